"""The bound is above the best of all plans, which is above every policy; and it is not absurdly far above."""

import random
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.sim.bounds import lp_goodput_bound
from headway.sim.exhaustive import Plan, exhaustive
from tests.sim.fleet import FAST, SLOW, Ask, Fleet, demands


@st.composite
def instances(draw: st.DrawFn) -> tuple[Fleet, list[Ask]]:
    """Up to four requests that hardly fit, on two small replicas, equal or not."""
    fleet = Fleet(
        models=draw(st.sampled_from(((FAST, FAST), (FAST, SLOW)))),
        blocks=draw(st.sampled_from((40, 150, 4000))),
        max_num_seqs=draw(st.sampled_from((1, 2, 64))),
        batched=draw(st.sampled_from((256, 2048))),
        caching=draw(st.booleans()),
    )
    trunk = draw(st.integers(0, 60))
    asks = []
    for k in range(draw(st.integers(2, 4))):
        pieces: tuple[tuple[int, int], ...] = ((1, trunk),) if trunk and draw(st.booleans()) else ()
        if pieces and draw(st.booleans()):
            pieces += ((2 + draw(st.integers(0, 1)), 20),)
        asks.append(
            Ask(
                arrival_s=draw(st.sampled_from((0.0, 0.0, 0.05, 0.4))) + k * 0.001,
                output=draw(st.sampled_from((1, 2, 20, 100))),
                rest=draw(st.sampled_from((10, 200, 3000))),
                pieces=pieces,
                ttft_s=draw(st.sampled_from((0.02, 0.06, 0.3, 1.0))),
                tpot_s=draw(st.sampled_from((0.0085, 0.009, 0.02, 0.1))),
            )
        )
    return fleet, asks


@pytest.mark.slow
@given(instances())
@settings(max_examples=40, deadline=None)
def test_no_plan_beats_the_bound_and_no_policy_beats_the_best_plan(instance: tuple[Fleet, list[Ask]]) -> None:
    fleet, asks = instance
    best = exhaustive(len(asks), 2, lambda plan: fleet.good(asks, plan), holds=(0.0, 0.1))
    bound = lp_goodput_bound(demands(asks, fleet.caching), fleet.kinds, bucket_s=0.05, spread=2)
    assert bound.relaxed >= best.good - 1e-6, best.plan
    assert bound.good >= best.good
    order = tuple(range(len(asks)))
    for chosen in (tuple(i % 2 for i in order), (0,) * len(asks), (1,) * len(asks)):
        assert fleet.good(asks, Plan(chosen, (0.0,) * len(asks), order)) <= best.good


@pytest.mark.slow
@pytest.mark.parametrize("fleet", [Fleet(), Fleet(blocks=40), Fleet(models=(FAST, SLOW)), Fleet(max_num_seqs=2)])
def test_coarser_buckets_are_never_tighter_by_much_nor_wrong(fleet: Fleet) -> None:
    asks = [Ask(k * 0.01, 60, rest=400, ttft_s=0.2, tpot_s=0.012) for k in range(6)]
    best = exhaustive(6, 2, lambda plan: fleet.good(asks, plan))
    for bucket_s, spread in ((0.01, 1), (0.1, 2), (1.0, 1), (0.0, 0)):
        assert lp_goodput_bound(demands(asks), fleet.kinds, bucket_s, spread).good >= best.good


class TestTight:
    """Where one resource alone decides, the bound says what that resource allows."""

    def test_all_of_an_easy_load(self) -> None:
        asks = [Ask(float(k), 50) for k in range(20)]
        assert lp_goodput_bound(demands(asks), Fleet().kinds).good == 20

    def test_prefill_in_a_burst(self) -> None:
        """Prompts of 4,000 tokens all at once: as many as are computed within the second."""
        fleet, order = Fleet(models=(FAST,), blocks=40_000, caching=False), tuple(range(60))
        asks = [Ask(0.0, 1, rest=4000, ttft_s=1.0) for _ in order]
        served = fleet.good(asks, Plan((0,) * 60, (0.0,) * 60, order))
        bound = lp_goodput_bound(demands(asks, caching=False), fleet.kinds, bucket_s=0.1).good
        assert 0 < served <= bound <= 1.3 * served

    @pytest.mark.slow
    def test_batch_size_under_tpot(self) -> None:
        """Steps of a full batch would be too slow for everybody, so the batch may not be full."""
        asks = [Ask(0.0, 400, rest=4000, ttft_s=60.0, tpot_s=0.012) for _ in range(80)]
        fleet = Fleet(models=(FAST,), blocks=40_000)
        bound = lp_goodput_bound(demands(asks, caching=False), fleet.kinds)
        assert bound.good == 80, "there is a minute for the first token: one after the other"
        hurry = [Ask(0.0, 400, rest=4000, ttft_s=5.0, tpot_s=0.012) for _ in range(300)]
        without = lp_goodput_bound(demands(hurry, caching=False), fleet.kinds)
        assert without.good < 300

    def test_memory(self) -> None:
        """Half the pool, about half the requests, where only memory is short."""
        asks = [Ask(0.0, 500, rest=800, ttft_s=1.5, tpot_s=0.02) for _ in range(64)]
        few, many = (lp_goodput_bound(demands(asks), Fleet(models=(FAST,), blocks=n).kinds).good for n in (1000, 4000))
        assert few < 64 == many

    def test_a_shared_prefix_is_computed_once(self) -> None:
        apart = [Ask(0.0, 1, rest=100, pieces=((k, 500),), ttft_s=0.5) for k in range(40)]
        alike = [Ask(0.0, 1, rest=100, pieces=((1, 500),), ttft_s=0.5) for k in range(40)]
        kinds = Fleet(models=(FAST,)).kinds
        assert lp_goodput_bound(demands(apart), kinds, bucket_s=0.5).good < 20
        assert lp_goodput_bound(demands(alike), kinds, bucket_s=0.5).good == 40
        assert lp_goodput_bound(demands(alike, caching=False), kinds, bucket_s=0.5).good < 20


def test_who_cannot_be_served_well_alone_is_not_counted() -> None:
    asks = [
        Ask(0.0, 10),
        Ask(0.0, 10, rest=30_000, ttft_s=0.2),
        Ask(0.0, 10, tpot_s=0.001),
        Ask(0.0, 10, rest=70_000, ttft_s=60.0),
    ]
    assert lp_goodput_bound(demands(asks), Fleet(blocks=4000).kinds).good == 1


def test_an_answer_cut_short_by_the_pool_has_more_time_per_token() -> None:
    """TPOT counts the tokens that were asked for, as the figures of a run do."""
    fleet, asks = Fleet(models=(FAST,), blocks=10), [Ask(0.0, 400, rest=100, tpot_s=0.0085)]
    plan = Plan((0,), (0.0,), (0,))
    assert fleet.good(asks, plan) == 1
    assert lp_goodput_bound(demands(asks), fleet.kinds).good == 1


def test_nothing_asked_or_nobody_to_ask() -> None:
    assert lp_goodput_bound(demands([Ask(0.0, 1)]), []).good == 0


@pytest.mark.slow
def test_five_thousand_requests_on_eight_replicas_of_two_kinds() -> None:
    chance = random.Random(1)
    asks, at = [], 0.0
    for _ in range(5000):
        at += chance.expovariate(30.0)
        prompt = int(chance.lognormvariate(6.5, 1.0)) + 10
        limit = 1.0 + 0.00025 * prompt
        asks.append(Ask(at, int(chance.lognormvariate(5.2, 0.8)) + 1, rest=prompt, ttft_s=limit))
    fleet = Fleet(models=(FAST,) * 4 + (SLOW,) * 4, max_num_seqs=256, batched=8192)
    began = time.perf_counter()
    bound = lp_goodput_bound(demands(asks, caching=False), fleet.kinds)
    assert 0 < bound.good <= 5000
    assert time.perf_counter() - began < 60.0
    half = np.arange(5000) % 2 == 0
    thinned = lp_goodput_bound(demands([a for a, keep in zip(asks, half, strict=True) if keep]), fleet.kinds)
    assert thinned.good <= bound.good
