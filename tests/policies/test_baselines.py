"""The small policies: the one thing each is about."""

import random
from collections import Counter

import pytest

from headway.core.plugin import NoConfig
from headway.policies.least_connections import LeastConnections
from headway.policies.least_tokens import LeastTokens
from headway.policies.lmetric import Lmetric
from headway.policies.p2c import P2c
from headway.policies.random import Random
from tests.policies.fleet import busy, demand, pick, view


def test_random_follows_weights() -> None:
    rng, views = random.Random(1), [view("a", spec={"weight": 3.0}), view("b", spec={"weight": 1.0})]
    counts = Counter(pick(Random(NoConfig()), demand(), views, rng) for _ in range(4000))
    assert counts[0] / 4000 == pytest.approx(0.75, abs=0.03)


def test_least_connections_counts_in_flight_by_weight() -> None:
    views = [view("a", in_flight=9), view("b", in_flight=12, spec={"weight": 2.0})]
    assert LeastConnections(NoConfig()).costs(demand(), views, 0.0, random.Random(0)) == [(9.0,), (6.0,)]


def test_least_tokens_counts_what_is_promised() -> None:
    views = [
        view("a", reserved_tokens=400.0, context_tokens=500.0, in_flight=1),
        view("b", reserved_tokens=300.0, prefill_backlog_tokens=500.0, in_flight=9),
    ]
    assert LeastTokens(NoConfig()).costs(demand(), views, 0.0, random.Random(0)) == [(900.0,), (800.0,)]


def test_lmetric_is_prefill_times_batch() -> None:
    views = [busy("a", 4, running=3.0, waiting=1.0, prefill_backlog_tokens=500.0)]
    costs = Lmetric(NoConfig()).costs(demand(1000, hits={"a": 400}), views, 0.0, random.Random(0))
    assert costs == [((500 + 600) * 5, 1100, 5)]


def test_p2c_offers_two_distinct_replicas_evenly() -> None:
    rng, views, offered = random.Random(2), [view(f"r{k}") for k in range(5)], Counter[int]()
    for _ in range(2000):
        costs = P2c(NoConfig()).costs(demand(), views, 0.0, rng)
        pair = [k for k, (cost,) in enumerate(costs) if cost == 0.0]
        assert len(pair) == 2
        offered.update(pair)
    assert all(count == pytest.approx(800, rel=0.15) for count in offered.values())


def test_p2c_takes_the_less_loaded_of_the_two() -> None:
    rng, views = random.Random(3), [view("a", in_flight=5), view("b", in_flight=4)]
    assert {pick(P2c(NoConfig()), demand(), views, rng) for _ in range(50)} == {1}
    assert pick(P2c(NoConfig()), demand(), views[:1], rng) == 0
