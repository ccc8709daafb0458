"""Prefill and decode load in blocks, as Dynamo counts them."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.core.demand import Demand
from headway.core.ids import ReplicaId, RequestId
from headway.core.request import RequestInfo
from headway.core.view import ReplicaView
from headway.policies.kv_cost import KvCost, KvCostConfig
from tests.policies.fleet import view

A, B = ReplicaId("a"), ReplicaId("b")


def prompt(name: str, *blocks: int, tokens: int = 0, hit: int = 0) -> Demand:
    """A prompt of text blocks of 128 tokens each, or of `tokens` without any; `hit` tokens cached at a."""
    request = RequestInfo(RequestId(name), "m", prefix_hashes=blocks)
    return Demand(request, tokens or 128 * len(blocks), 100.0, 50.0, 0, {A: hit})


def parts(policy: KvCost, wanted: Demand, *views: ReplicaView) -> list[tuple[float, ...]]:
    return list(policy.costs(wanted, views, 0.0, random.Random(0)))


def test_cost_is_prefill_less_hits_plus_blocks_in_use() -> None:
    policy = KvCost(KvCostConfig())
    policy.sent(prompt("old", 9, 8), A, 0.0)
    rows = parts(policy, prompt("new", 1, 2, hit=128), view("a", prefill_backlog_tokens=64.0), view("b"))
    assert rows[0] == ((64 + 256 - 128) / 16 + 512 / 16, 12.0, 32.0)
    assert rows[1] == (32.0, 16.0, 16.0)


def test_blocks_in_use_count_once() -> None:
    policy = KvCost(KvCostConfig())
    policy.sent(prompt("q", 1, 2, 3), A, 0.0)
    policy.sent(prompt("r", 1, 2, 4), A, 0.0)
    assert parts(policy, prompt("s", 1, 2, 5), view("a"))[0][2] == 5 * 128 / 16
    assert parts(policy, prompt("s", 9, 2, 5), view("a"))[0][2] == (4 + 3) * 128 / 16, "only a prefix is shared"


def test_what_ended_is_given_back() -> None:
    policy = KvCost(KvCostConfig())
    first, second = prompt("q", 1, 2, 3), prompt("r", 1, 2, 4)
    policy.sent(first, A, 0.0)
    policy.sent(second, A, 0.0)
    policy.ended(first.request, A)
    assert parts(policy, prompt("s", 7), view("a"))[0][2] == (3 + 1) * 128 / 16
    policy.ended(second.request, A)
    assert parts(policy, prompt("s", 7), view("a"))[0][2] == 128 / 16


def test_credit_above_what_is_to_do_costs_nothing_less() -> None:
    policy = KvCost(KvCostConfig(overlap_credit=2.0))
    assert parts(policy, prompt("q", 1, 2, hit=255), view("a"))[0][1] == 0.0


def test_the_constants_scale() -> None:
    policy = KvCost(KvCostConfig(prefill_load_scale=3.0, block_tokens=1))
    assert parts(policy, prompt("q", tokens=100), view("a")) == [(400.0, 300.0, 100.0)]


@given(st.lists(st.tuples(st.lists(st.integers(1, 9), max_size=6, unique=True), st.sampled_from((A, B))), max_size=20))
def test_books_return_to_nothing(sends: list[tuple[list[int], ReplicaId]]) -> None:
    policy, empty = KvCost(KvCostConfig()), KvCost(KvCostConfig())
    open_: list[tuple[Demand, ReplicaId]] = []
    for k, (blocks, replica) in enumerate(sends):
        wanted = prompt(f"q{k}", *blocks, tokens=0 if blocks else 50)
        policy.sent(wanted, replica, 0.0)
        open_.append((wanted, replica))
    for wanted, replica in reversed(open_):
        policy.ended(wanted.request, replica)
    probe, views = prompt("p", 1, 2, 3), (view("a"), view("b"))
    assert parts(policy, probe, *views) == parts(empty, probe, *views)


def test_distinct_tokens_never_exceed_the_sum() -> None:
    policy, rng = KvCost(KvCostConfig(block_tokens=1)), random.Random(3)
    total = 0
    for k in range(50):
        wanted = prompt(f"q{k}", *rng.sample(range(12), 4))
        policy.sent(wanted, A, 0.0)
        total += wanted.prompt_tokens
        used = parts(policy, prompt("p", 999), view("a"))[0][2] - 128
        assert 4 * 128 <= used <= min(total, 12 * 128) + 1e-6
    assert used == pytest.approx(12 * 128)
