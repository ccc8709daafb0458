"""The weighted load score: its terms, its smoothing and its weighted chance."""

import math
import random
from collections import Counter
from typing import Any

import pytest

from headway.core.view import ReplicaView
from headway.policies.weighted_score import WeightedScore, WeightedScoreConfig
from tests.policies.fleet import busy, demand, pick, view


def terms(policy: WeightedScore, views: list[ReplicaView], now: float = 0.0, **wanted: Any) -> list[tuple[float, ...]]:
    """Per replica: score, memory, cache, queue."""
    return [cost[1:] for cost in policy.costs(demand(**wanted), views, now, random.Random(0))]


def test_terms_are_shares() -> None:
    state = view("a", kv_used_tokens=30_000.0, growth_tokens_per_s=5_000.0, running=60.0, waiting=4.0, max_num_seqs=128)
    ((score, memory, cache, queue),) = terms(
        WeightedScore(WeightedScoreConfig()), [state], prompt=1000, hits={"a": 250}
    )
    assert (memory, cache, queue) == pytest.approx((0.4, 0.75, 0.5))
    assert score == pytest.approx(0.40 * 0.4 + 0.35 * 0.75 + 0.25 * 0.5)


def test_chance_is_proportional_to_the_exponential_of_the_score() -> None:
    policy, rng = WeightedScore(WeightedScoreConfig(half_life_s=1e-9)), random.Random(1)
    views = [view("a"), view("b", kv_used_tokens=10_000.0)]
    counts = Counter(pick(policy, demand(), views, rng) for _ in range(4000))
    odds = math.exp(0.40 * 0.1 / 0.05)
    assert counts[0] / 4000 == pytest.approx(odds / (1 + odds), abs=0.03)


def test_load_rises_at_once_and_falls_with_the_half_life() -> None:
    policy = WeightedScore(WeightedScoreConfig())
    assert terms(policy, [view("a", kv_used_tokens=80_000.0)], 0.0)[0][1] == pytest.approx(0.8)
    assert terms(policy, [view("a", kv_used_tokens=40_000.0)], 2.0)[0][1] == pytest.approx(0.6)
    assert terms(policy, [view("a", kv_used_tokens=90_000.0)], 2.1)[0][1] == pytest.approx(0.9)


def test_unknown_limit_is_the_largest_batch_seen_while_others_waited() -> None:
    policy = WeightedScore(WeightedScoreConfig(half_life_s=1e-9))
    terms(policy, [busy("a", 40, waiting=3.0, max_num_seqs=0)], 0.0)
    assert terms(policy, [busy("a", 20, max_num_seqs=0)], 1.0)[0][3] == pytest.approx(0.5)


def test_unknown_capacity_counts_as_full_as_the_queue() -> None:
    ((_, memory, _, queue),) = terms(WeightedScore(WeightedScoreConfig()), [busy("a", 64, kv_capacity_tokens=0)])
    assert memory == queue == pytest.approx(0.25)


def test_smoothed_loads_are_bounded() -> None:
    policy = WeightedScore(WeightedScoreConfig(max_replicas=5))
    for k in range(20):
        terms(policy, [view(f"r{k}")], float(k))
    assert len(policy._smooth) == 5


def test_nobody_is_a_candidate_while_all_are_too_loaded() -> None:
    policy = WeightedScore(WeightedScoreConfig(half_life_s=1e-9))

    def offered(now: float, used: float, running: float) -> bool:
        state = view("a", kv_used_tokens=used, running=running, max_num_seqs=100)
        (cost,) = policy.costs(demand(), [state], now, random.Random(0))
        return cost[0] < math.inf

    assert offered(0.0, 90_000.0, 50.0)  # .36 + .35 + .125
    assert not offered(1.0, 95_000.0, 60.0)  # .38 + .35 + .15
    assert not offered(2.0, 90_000.0, 55.0)  # .8475: below the first threshold, above the second
    assert offered(3.0, 80_000.0, 45.0)  # .7825
    assert offered(4.0, 90_000.0, 55.0)
