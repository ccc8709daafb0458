"""Requests go to the freest."""

import random

from headway.policies.freeness import PLUGIN
from tests.policies.fleet import busy, demand, view


def order(*views: object) -> list[str]:
    costs = PLUGIN.factory(PLUGIN.config()).costs(demand(), views, 0.0, random.Random(0))
    return [v.id for _, v in sorted(zip(costs, views, strict=True), key=lambda pair: pair[0])]  # type: ignore[attr-defined]


def test_free_tokens_per_request_decide_not_free_tokens() -> None:
    many = busy("many", 40, 500)  # 80,000 free for 40
    few = busy("few", 10, 5000)  # 50,000 free for 10
    assert order(many, few, view("idle")) == ["idle", "few", "many"]


def test_of_those_that_are_overcommitted_the_least_is_chosen() -> None:
    assert order(busy("c", 30, 5000), busy("b", 30, 4000), busy("a", 30, 3000)) == ["a", "b", "c"]


def test_pools_of_unknown_size_go_by_requests_in_flight() -> None:
    views = [busy(name, count, kv_capacity_tokens=0) for name, count in (("a", 5), ("b", 2))]
    assert order(*views) == ["b", "a"]
