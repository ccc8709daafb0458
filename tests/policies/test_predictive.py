"""Short requests anywhere that fits, long ones where there is headroom."""

import random

from headway.policies.predictive import Predictive, PredictiveConfig
from tests.policies.fleet import busy, demand, pick, view

TIGHT = view("tight", kv_used_tokens=90_000.0, headroom_tokens=9_000.0)


def test_long_requests_avoid_little_headroom_short_ones_do_not() -> None:
    policy, rng = Predictive(PredictiveConfig()), random.Random(0)
    views = [TIGHT, busy("roomy", 2)]
    assert pick(policy, demand(output=2000.0), views, rng) == 1
    assert pick(policy, demand(output=20.0), views, rng) == 0


def test_nobody_goes_where_the_prompt_does_not_fit() -> None:
    views = [TIGHT, busy("roomy", 9, prefill_backlog_tokens=3_000.0)]
    assert pick(Predictive(PredictiveConfig()), demand(20_000, output=20.0), views, random.Random(0)) == 1


def test_a_warm_prefix_saves_work() -> None:
    views = [view("a"), busy("b", 1)]
    assert pick(Predictive(PredictiveConfig()), demand(hits={"b": 900}), views, random.Random(0)) == 1


def test_ample_headroom_costs_nothing() -> None:
    costs = Predictive(PredictiveConfig()).costs(demand(output=2000.0), [view("a")], 0.0, random.Random(0))
    assert costs[0][3] == 0.0
