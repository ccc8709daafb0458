"""Turns are even per model, by weight, and survive changes of the fleet."""

import random
from collections import Counter

from headway.core.view import ReplicaView
from headway.policies.round_robin import RoundRobin, RoundRobinConfig
from tests.policies.fleet import demand, pick, view


def turns(policy: RoundRobin, views: list[ReplicaView], count: int, model: str = "m") -> Counter[str]:
    rng = random.Random(0)
    return Counter(views[pick(policy, demand(model=model), views, rng)].id for _ in range(count))


def test_case_094_models_asked_alternately_do_not_skew_each_other() -> None:
    policy, counts = RoundRobin(RoundRobinConfig()), {"a": Counter[str](), "b": Counter[str]()}
    pools = {"a": [view("a0"), view("a1")], "b": [view("b0"), view("b1"), view("b2")]}
    for _ in range(300):
        for model, views in pools.items():
            counts[model] += turns(policy, views, 1, model)
    assert counts["a"] == {"a0": 150, "a1": 150}
    assert counts["b"] == {"b0": 100, "b1": 100, "b2": 100}


def test_two_models_of_one_replica_set_have_turns_of_their_own() -> None:
    policy, views = RoundRobin(RoundRobinConfig()), [view("a"), view("b")]
    counts = {model: Counter[str]() for model in ("x", "y")}
    for _ in range(100):
        for model, seen in counts.items():
            seen += turns(policy, views, 1, model)
    assert counts["x"] == counts["y"] == {"a": 50, "b": 50}


def test_turns_follow_weights_without_bursts() -> None:
    policy = RoundRobin(RoundRobinConfig())
    views = [view("a", spec={"weight": 2.0}), view("b", spec={"weight": 1.0})]
    order = [next(iter(turns(policy, views, 1))) for _ in range(9)]
    assert Counter(order) == {"a": 6, "b": 3}
    assert all(set(order[k : k + 3]) == {"a", "b"} for k in range(7))


def test_who_comes_back_gets_no_burst() -> None:
    policy, both = RoundRobin(RoundRobinConfig()), [view("a"), view("b")]
    turns(policy, both, 10)
    turns(policy, both[:1], 100)
    assert turns(policy, both, 10) == {"a": 5, "b": 5}


def test_a_newcomer_starts_at_the_present() -> None:
    policy = RoundRobin(RoundRobinConfig())
    turns(policy, [view("a"), view("b")], 1000)
    assert turns(policy, [view("a"), view("b"), view("c")], 9) == {"a": 3, "b": 3, "c": 3}


def test_models_are_bounded() -> None:
    policy = RoundRobin(RoundRobinConfig(max_models=3))
    for k in range(10):
        turns(policy, [view("a")], 1, f"m{k}")
    assert len(policy._models) == 3
