"""Prefix affinity with a brake, as the SGLang router does it."""

import random
from collections import Counter

from headway.core.demand import Demand
from headway.core.ids import ReplicaId, RequestId
from headway.core.request import RequestInfo
from headway.core.view import ReplicaView
from headway.policies.cache_aware import CacheAware, CacheAwareConfig
from tests.policies.fleet import pick, view

A, B = ReplicaId("a"), ReplicaId("b")


def prompt(*blocks: int, fingerprint: int = 0, model: str = "m") -> Demand:
    """A prompt of these text blocks, 512 characters each (one of 100 without any)."""
    size = 512 * len(blocks) or 100
    request = RequestInfo(
        RequestId("q"), model, prompt_bytes=size, prefix_hashes=blocks, fingerprint=fingerprint, stream=True
    )
    return Demand(request, size // 4, 100.0, 50.0, 0, {})


def costs(policy: CacheAware, wanted: Demand, views: list[ReplicaView]) -> list[float]:
    return [cost[0] for cost in policy.costs(wanted, views, 0.0, random.Random(0))]


def fresh(**changes: object) -> CacheAware:
    return CacheAware(CacheAwareConfig(**changes))  # type: ignore[arg-type]


def test_a_long_match_goes_where_it_was_sent() -> None:
    policy, views = fresh(), [view("a"), view("b", in_flight=60)]
    policy.sent(prompt(1, 2, 3), B, 0.0)
    assert costs(policy, prompt(1, 2, 3, 4), views) == [1.0, 0.0]


def test_a_match_up_to_the_threshold_is_no_match() -> None:
    """3 of 10 blocks are not more than 0.3."""
    policy, views = fresh(), [view("a"), view("b")]
    policy.sent(prompt(1, 2, 3), B, 0.0)
    assert costs(policy, prompt(1, 2, 3, *range(90, 97)), views) == [0.0, 3 * 512.0]
    assert costs(policy, prompt(1, 2, 3, *range(90, 96)), views) == [1.0, 0.0]


def test_a_block_in_the_middle_is_no_prefix() -> None:
    policy, views = fresh(), [view("a"), view("b")]
    policy.sent(prompt(1, 2, 3), B, 0.0)
    assert costs(policy, prompt(9, 2, 3), views) == [0.0, 1536.0]


def test_the_deepest_match_belongs_to_its_first_owner() -> None:
    policy, views = fresh(), [view("a"), view("b")]
    policy.sent(prompt(1, 2), A, 0.0)
    policy.sent(prompt(1, 2, 3), B, 0.0)
    assert costs(policy, prompt(1, 2, 7), views) == [0.0, 1.0]
    assert costs(policy, prompt(1, 2, 3), views) == [1.0, 0.0]


def test_out_of_balance_the_fewest_in_flight_win_whatever_matches() -> None:
    policy = fresh()
    policy.sent(prompt(1, 2, 3), B, 0.0)
    both = [view("a", in_flight=10), view("b", in_flight=75)]
    assert costs(policy, prompt(1, 2, 3), both) == [10.0, 75.0]


def test_both_thresholds_must_be_passed() -> None:
    policy = fresh()
    policy.sent(prompt(1, 2, 3), B, 0.0)
    absolute = [view("a", in_flight=200), view("b", in_flight=270)]  # 70 more, but 1.35 times
    relative = [view("a", in_flight=1), view("b", in_flight=65)]  # 65 times, but 64 more
    for views in (absolute, relative):
        assert costs(policy, prompt(1, 2, 3), views) == [1.0, 0.0]


def test_without_a_match_the_smallest_tree_or_the_shortest_queue() -> None:
    views = [view("a", in_flight=3), view("b", in_flight=5)]
    for low_match, expected in (("smallest_tree", [1024.0, 512.0]), ("shortest_queue", [3.0, 5.0])):
        policy = fresh(low_match=low_match)
        policy.sent(prompt(1, 2), A, 0.0)
        policy.sent(prompt(3), B, 0.0)
        assert costs(policy, prompt(8, 9), views) == expected


def test_a_tree_does_not_grow_by_what_it_holds() -> None:
    policy = fresh()
    for _ in range(3):
        policy.sent(prompt(1, 2), A, 0.0)
    assert costs(policy, prompt(9), [view("a")]) == [1024.0]


def test_prompts_without_blocks_take_room_and_are_known_by_their_fingerprint() -> None:
    policy, views = fresh(), [view("a"), view("b")]
    policy.sent(prompt(), A, 0.0)
    policy.sent(prompt(), A, 0.0)
    policy.sent(prompt(fingerprint=7), B, 0.0)
    assert costs(policy, prompt(), views) == [200.0, 100.0]
    assert costs(policy, prompt(fingerprint=7), views) == [1.0, 0.0]


def test_an_owner_that_is_no_candidate_is_passed_over() -> None:
    policy = fresh()
    policy.sent(prompt(1, 2, 3), B, 0.0)
    assert costs(policy, prompt(1, 2, 3), [view("a")]) == [0.0]


def test_the_least_recently_sent_is_evicted_now_and_then_and_prefixes_last() -> None:
    policy, views = fresh(max_tree_size=3 * 512, eviction_interval_s=60.0), [view("a"), view("b")]
    policy.sent(prompt(1, 2, 3), A, 0.0)
    policy.sent(prompt(1, 2, 4), A, 1.0)
    assert costs(policy, prompt(1, 2, 3), views) == [0.0, 1.0], "not before its time"
    policy.sent(prompt(1, 2, 5), A, 61.0)
    matches = [policy.costs(prompt(1, 2, last), views, 62.0, random.Random(0))[0][2] for last in (3, 4, 5)]
    assert matches == [2 / 3, 2 / 3, 1.0]


def test_models_have_trees_of_their_own() -> None:
    policy, views = fresh(), [view("a"), view("b")]
    policy.sent(prompt(1, 2, 3), B, 0.0)
    assert costs(policy, prompt(1, 2, 3, model="n"), views) == [0.0, 0.0]


def test_replicas_that_left_are_forgotten_with_what_only_they_had() -> None:
    policy = fresh()
    for k in range(40):
        policy.sent(prompt(k, 1000 + k), ReplicaId(f"r{k}"), 0.0)
    views = [view("a"), view("b")]
    assert costs(policy, prompt(3, 1003), views) == [0.0, 0.0]
    rows = policy.costs(prompt(3, 1003), [view("r3"), view("a")], 0.0, random.Random(0))
    assert rows[0][2:] == (0.0, 0.0)


def test_unknown_prompts_are_spread_by_size() -> None:
    policy, rng, views = fresh(), random.Random(1), [view("a"), view("b"), view("c")]
    counts = Counter(pick(policy, prompt(10 * k, 10 * k + 1), views, rng) for k in range(1, 31))
    assert counts == {0: 10, 1: 10, 2: 10}
