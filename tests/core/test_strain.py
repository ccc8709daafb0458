"""How likely a pool overflows, beside a normal distribution that is asked directly; and what one request changes."""

import math
from statistics import NormalDist

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.core.entry import Entry, Share
from headway.core.fleet import Fleet
from headway.core.ids import AttemptId, ReplicaId
from headway.core.memory import HORIZONS
from headway.core.replica import LoadSample
from headway.core.standing import Replica
from headway.core.strain import REQUEUE_S, Strain
from tests.core.house import BY_HAND, demand, outlook, request, spec

CAPACITY = 10_000
STEP_S = 0.01


class Pool:
    """One replica whose steps take 10 ms, and what runs there, as (prompt, survival by horizon)."""

    def __init__(self, *batch: tuple[int, list[float]], capacity: int = CAPACITY, per_request_s: float = 0.0) -> None:
        self.fleet = Fleet(memory=BY_HAND)
        features = {
            "step_base_s": STEP_S,
            "step_per_request_s": per_request_s,
            "step_per_token_s": 0.0,
            "prefill_tokens_per_s": 1000.0,
        }
        self.replica: Replica = self.fleet.upsert(
            spec("a", kv_capacity_tokens=capacity, features=features), 0.0, False, []
        )
        self.entries = [self.open(number, *one) for number, one in enumerate(batch)]

    def open(self, number: int, prompt: int, survival: list[float]) -> Entry:
        name, asked = AttemptId(f"r{number}-0"), request(f"r{number}")
        part = outlook(*survival).share(float(prompt))
        entry = Entry(name, asked, ReplicaId("a"), prompt, 0, 0, 50, 0, part, 0.0, 0.0, 0.1, demand(asked, prompt))
        self.fleet.opened(self.replica, entry, 0.0)
        self.fleet.ledger.first_token(name, 0.0)
        return entry

    def strain(self, horizon_s: float = 5.0, at: float = 0.0) -> Strain:
        self.fleet.touch(self.replica)
        self.fleet.take_changed(at)
        return Strain(self.fleet, self.replica, horizon_s, at)


def near(horizon_s: float) -> list[int]:
    """The horizons that count: those within, and the first two at any rate."""
    return [k for k, steps in enumerate(HORIZONS) if k < 2 or steps <= horizon_s / STEP_S]


def brute(parts: list[Share], ks: list[int], room: float = 0.99 * CAPACITY) -> float:
    """The probability that a normal variable with the sum of means and variances is beyond the room."""
    worst = 0.0
    for k in ks:
        mean, var = math.fsum(part.mean[k] for part in parts), math.fsum(part.var[k] for part in parts)
        beyond = 1.0 - NormalDist(mean, math.sqrt(var)).cdf(room) if var > 0.0 else float(mean > room)
        worst = max(worst, beyond)
    return worst


def survivals() -> st.SearchStrategy[list[float]]:
    """Falling from 1."""
    chance = st.floats(0.05, 0.95)
    return st.lists(chance, min_size=len(HORIZONS) - 1, max_size=len(HORIZONS) - 1).map(
        lambda found: [1.0, *sorted(found, reverse=True)]
    )


batches = st.lists(st.tuples(st.integers(1, 4000), survivals()), min_size=1, max_size=6)


@pytest.mark.slow
@settings(max_examples=50)
@given(batches, st.floats(0.01, 100.0))
def test_it_is_the_worst_of_the_near_horizons(batch: list[tuple[int, list[float]]], horizon_s: float) -> None:
    pool = Pool(*batch)
    expected = brute([entry.share for entry in pool.entries], near(horizon_s))
    assert pool.strain(horizon_s).overflow() == pytest.approx(expected, abs=1e-9)


@pytest.mark.slow
@settings(max_examples=50)
@given(batches, st.tuples(st.integers(1, 4000), survivals()))
def test_one_less_and_one_more_are_as_if_it_were_so(
    batch: list[tuple[int, list[float]]], other: tuple[int, list[float]]
) -> None:
    shares = [entry.share for entry in Pool(*batch).entries]
    joining = outlook(*other[1]).share(float(other[0]))
    strain = Pool(*batch).strain()
    assert strain.overflow(without=shares[:1]) == pytest.approx(brute(shares[1:], near(5.0)), abs=1e-6)
    assert strain.overflow(more=joining) == pytest.approx(brute([*shares, joining], near(5.0)), abs=1e-9)
    swapped = brute([*shares[1:], joining], near(5.0))
    assert strain.overflow(without=shares[:1], more=joining) == pytest.approx(swapped, abs=1e-6)


@pytest.mark.slow
@settings(max_examples=50)
@given(batches, st.tuples(st.integers(1, 4000), survivals()))
def test_while_there_is_room_everybody_who_comes_makes_it_worse(
    batch: list[tuple[int, list[float]]], other: tuple[int, list[float]]
) -> None:
    pool = Pool(*batch)
    strain, joining = pool.strain(), outlook(*other[1]).share(float(other[0]))
    alone = strain.overflow()
    assert 0.0 <= alone <= 1.0
    if alone <= 0.5:
        assert strain.overflow(without=[pool.entries[0].share]) <= alone <= strain.overflow(more=joining)


@pytest.mark.slow
@settings(max_examples=50)
@given(batches, st.floats(0.01, 20.0), st.floats(0.0, 20.0))
def test_more_may_happen_in_more_time(batch: list[tuple[int, list[float]]], soon_s: float, later_s: float) -> None:
    pool = Pool(*batch)
    assert pool.strain(soon_s).overflow() <= pool.strain(soon_s + later_s).overflow()


def test_what_is_certain_is_certain() -> None:
    room = 0.99 * CAPACITY
    certain = [1.0] * len(HORIZONS)
    beyond = next(k for k, steps in enumerate(HORIZONS) if steps >= 100)
    pool = Pool((round(room) - HORIZONS[beyond] + 1, certain))
    assert pool.strain(STEP_S * (HORIZONS[beyond] + 0.5)).overflow() == 1.0
    assert pool.strain(STEP_S * (HORIZONS[beyond] - 0.5)).overflow() == 0.0
    assert Pool((round(room), [1.0])).strain().overflow() == 0.0, "just full is not beyond"
    assert Pool((round(room) + 1, [1.0])).strain().overflow() == 1.0


def test_an_unknown_pool_does_not_overflow() -> None:
    assert Pool((10**6, [1.0]), capacity=0).strain().overflow() == 0.0


def test_what_others_hold_counts_while_it_is_known() -> None:
    pool = Pool((4000, [1.0]))
    pool.fleet.sample(LoadSample(ReplicaId("a"), 1.0, kv_used_tokens=9950), 1.0)
    assert pool.strain(at=1.0).overflow() == 1.0
    half = pool.strain(at=1.0)
    pool.fleet.sample(LoadSample(ReplicaId("a"), 1.1, kv_used_tokens=9850), 1.1)
    assert 0.0 < pool.strain(at=1.1 + 0.25).overflow() < half.overflow(), "uncertain, and more so with time"
    assert pool.strain(at=60.0).overflow() < 0.01, "nobody knows any more"


@pytest.mark.parametrize(("running", "context"), [(1, 3000), (4, 500)])
def test_a_preemption_costs_its_place_and_everybody_a_prefill(running: int, context: int) -> None:
    strain = Pool(*[(context, [1.0])] * running).strain()
    assert strain.preemption_s() == pytest.approx(REQUEUE_S + running * context / 1000.0)


def test_who_leaves_makes_the_steps_of_the_others_shorter() -> None:
    pool = Pool((100, [1.0]), (100, [1.0]), (100, [1.0]), per_request_s=0.002)
    leaving = pool.entries[0]
    assert pool.strain().step_gain_s(leaving) == pytest.approx(0.002 * 2 * 50)
    leaving.generated = 40
    assert pool.strain().step_gain_s(leaving) == pytest.approx(0.002 * 2 * 10), "no longer than it would have stayed"
    alone = Pool((100, [1.0]), per_request_s=0.002)
    assert alone.strain().step_gain_s(alone.entries[0]) == 0.0
