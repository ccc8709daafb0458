"""Levels: their moves, who is refused at each, what a burst costs. All in virtual time, a look each second."""

import itertools
import math
import random
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.core.commands import Command, LevelChanged
from headway.core.constants import BurstConfig, DegradeConfig, HealthConfig
from headway.core.degrade import NEXT, Degrade, Level, Strained, Zone, saturation
from headway.core.health import Health
from headway.core.ids import AttemptId, ReplicaId
from headway.core.ledger import Account
from headway.core.outcome import Outcome, OutcomeKind
from headway.core.standing import Replica
from headway.core.tenant import Tier
from headway.core.view import Breaker, ReplicaView, Speed
from tests.core.house import entries, request, spec

SPEED = Speed(0.01, 0.0, 0.0, 8000.0)
CONFIG = DegradeConfig()


def view(capacity: int = 1000, peak: float = 0.0, var: float = 0.0) -> ReplicaView:
    """A view that says how full its pool will be."""
    return ReplicaView(
        spec("r"), None, 0.0, -1.0, True, capacity, 0.0, 0.0, 0.0, peak, var, 0.0, 0.0, 0.0, 0.0, 0, 0, 0, 0.0, 0.0, 0,
        SPEED, Breaker.CLOSED, 1.0, False, False,
    )  # fmt: skip


def degrade(**facts: object) -> Degrade:
    return Degrade(random.Random(1), DegradeConfig(**facts))  # type: ignore[arg-type]


def watched(pool: Strained, values: Sequence[float], at: float = 0.0) -> list[int]:
    """The level after each second with such a saturation."""
    levels = []
    for number, value in enumerate(values):
        pool.measured(value, at + number, [])
        levels.append(int(pool.level))
    return levels


class Member:
    """A replica whose health can be told to change."""

    def __init__(self, name: str) -> None:
        health = Health(ReplicaId(name), HealthConfig(open_s=1000.0))
        self.replica = Replica(spec(name), Account(), health, SPEED, 0.0)
        health.probe_succeeded(0.0, [])

    def fail(self, kind: OutcomeKind, at: float) -> None:
        health = self.replica.health
        for _ in range(3):
            health.finished(AttemptId("x-0"), at, Outcome(kind), at, [])
        assert health.ejected

    def recover(self, at: float) -> None:
        health = self.replica.health
        health.timer(at + 1e6, [])
        health.probe_succeeded(at, [])
        health.dispatched(AttemptId("y-0"))
        health.answered(AttemptId("y-0"), at, [])
        assert not health.ejected


# -- saturation --------------------------------------------------------------------------------------------------------


def test_the_worse_of_wait_and_memory_counts_for_each_replica() -> None:
    views = [view(1000, 900.0), view(1000, 100.0)]
    assert saturation(views, 0.0, False, CONFIG) == pytest.approx(0.5)
    assert saturation(views, 2.5, False, CONFIG) == pytest.approx((0.9 + 0.5) / 2)
    assert saturation(views, 10.0, False, CONFIG) == pytest.approx(2.0)


def test_memory_is_what_nineteen_in_twenty_times_is_not_exceeded() -> None:
    assert saturation([view(1000, 500.0, 100.0**2)], 0.0, False, CONFIG) == pytest.approx(0.6645)


def test_a_full_pool_is_no_distress_where_requests_are_held_for_it() -> None:
    assert saturation([view(1000, 990.0)], 0.0, True, CONFIG) == CONFIG.memory_most == CONFIG.shed_from
    assert saturation([view(1000, 400.0)], 0.0, True, CONFIG) == pytest.approx(0.4)
    assert saturation([view(1000, 990.0)], 4.5, True, CONFIG) == pytest.approx(0.9)


def test_pools_of_unknown_size_count_by_the_wait() -> None:
    assert saturation([view(0, 5000.0)], 2.0, False, CONFIG) == pytest.approx(0.4)
    assert saturation([], 2.0, False, CONFIG) == pytest.approx(0.4)


# -- levels by saturation ----------------------------------------------------------------------------------------------


def test_moves_are_those_of_the_table() -> None:
    """Every pair of level and zone, once the dwelling is over."""
    middle = {Zone.CALM: 0.5, Zone.EASY: 0.87, Zone.FULL: 0.92, Zone.OVER: 1.2}
    into = {Level.NORMAL: 0.5, Level.NO_NEW_SESSIONS: 0.92, Level.SHEDDING: 1.0}
    for (level, first), (zone, value) in itertools.product(into.items(), middle.items()):
        pool = degrade().pool("m")
        watched(pool, [first] * 20)
        assert pool.stage is level
        watched(pool, [value] * 20, 20.0)
        assert pool.stage is NEXT.get((level, zone), level)


def test_bounds_belong_to_the_zone_above() -> None:
    assert watched(degrade().pool("m"), [0.9] * 6)[-1] == 1
    assert watched(degrade().pool("m"), [0.95] * 6)[-1] == 2
    assert watched(degrade().pool("m"), [0.8999] * 60)[-1] == 0
    pool = degrade().pool("m")
    assert watched(pool, [1.0] * 10 + [0.9] * 60)[-1] == 2
    assert watched(pool, [0.8999] * 60, 70.0)[-1] == 1
    assert watched(pool, [0.85] * 60, 130.0)[-1] == 1
    assert watched(pool, [0.8499] * 60, 190.0)[-1] == 0


def test_one_bad_moment_is_none() -> None:
    assert watched(degrade().pool("m"), [0.0, 0.0, 0.0, 9.0, 9.0] * 20) == [0] * 100


def test_moves_dwell() -> None:
    levels = watched(degrade().pool("m"), [1.0] * 3 + [0.0] * 20)
    assert levels[2] == 2
    assert levels.index(0, 2) == 2 + 5, "though its median is calm after three seconds"


@settings(max_examples=80)
@given(st.lists(st.floats(0.0, 1.5), min_size=10, max_size=200))
def test_two_moves_are_never_closer_than_the_dwelling(values: list[float]) -> None:
    levels = watched(degrade().pool("m"), values)
    moves = [n for n, (a, b) in enumerate(itertools.pairwise(levels)) if a != b]
    assert all(later - earlier >= CONFIG.dwell_s for earlier, later in itertools.pairwise(moves))


def test_each_change_is_told_once() -> None:
    out: list[Command] = []
    pool = degrade().pool("m")
    begins = [pool.measured(1.0, float(at), out) for at in range(10)]
    assert begins.index(True) == 2
    assert begins.count(True) == 1
    assert entries(out, LevelChanged) == [LevelChanged(2.0, "m", 2, False, 1.0)]


# -- levels by health --------------------------------------------------------------------------------------------------


def test_a_dead_replica_is_level_three_at_once_and_for_a_while() -> None:
    members = [Member(name) for name in "abc"]
    replicas = [member.replica for member in members]
    pool, out = degrade().pool("m"), list[Command]()
    pool.stands(replicas, 0.0, out)
    assert pool.level == 0
    members[0].fail(OutcomeKind.OUT_OF_MEMORY, 1.0)
    pool.stands(replicas, 1.0, out)
    assert (pool.level, pool.stage) == (Level.REPLICA_LOST, Level.NORMAL)
    members[0].recover(2.0)
    pool.stands(replicas, 2.0, out)
    assert (pool.level, pool.settling) == (Level.REPLICA_LOST, True)
    assert pool.restless(2.0)
    pool.stands(replicas, 6.0, out)
    assert (pool.level, pool.settling, pool.restless(6.0)) == (Level.NORMAL, False, False)
    assert [entry.level for entry in entries(out, LevelChanged)] == [3, 0]


def test_an_engine_that_merely_fails_is_not_dead() -> None:
    members = [Member(name) for name in "abc"]
    members[0].fail(OutcomeKind.SERVER_ERROR, 1.0)
    pool = degrade().pool("m")
    pool.stands([member.replica for member in members], 1.0, [])
    assert pool.level == 0
    members[1].fail(OutcomeKind.SERVER_ERROR, 1.0)
    pool.stands([member.replica for member in members], 1.0, [])
    assert pool.level == Level.FALLBACK


def test_half_of_the_breakers_open_is_level_four() -> None:
    members = [Member(name) for name in "abcd"]
    replicas = [member.replica for member in members]
    pool = degrade(fallbacks={"m": "small"}).pool("m")
    members[0].fail(OutcomeKind.CONNECT_FAILED, 1.0)
    pool.stands(replicas, 1.0, [])
    assert pool.level == Level.REPLICA_LOST
    members[1].fail(OutcomeKind.CONNECT_FAILED, 1.0)
    pool.stands(replicas, 1.0, [])
    assert pool.level == Level.FALLBACK
    members[1].recover(20.0)
    pool.stands(replicas, 20.0, [])
    assert pool.level == Level.REPLICA_LOST


def test_a_pool_without_replicas_is_not_degraded() -> None:
    pool = degrade().pool("m")
    pool.stands([], 1.0, [])
    assert pool.level == 0


def test_the_fallback_answers_at_level_four_only_if_it_fares_better() -> None:
    house = degrade(fallbacks={"m": "small"})
    pool, small, lone = house.pool("m"), house.pool("small"), Member("a")
    assert house.fallback(pool) == ""
    lone.fail(OutcomeKind.CONNECT_FAILED, 1.0)
    pool.stands([lone.replica], 1.0, [])
    assert house.fallback(pool) == "small"
    small.stands([lone.replica], 1.0, [])
    assert house.fallback(pool) == ""
    assert house.fallback(small) == ""
    house.keep(["m"], 2.0, [])
    assert house.fallback(pool) == "small"
    off = degrade(levels=False, fallbacks={"m": "small"})
    off.pool("m").stands([lone.replica], 1.0, [])
    assert off.fallback(off.pool("m")) == ""


# -- who is refused ----------------------------------------------------------------------------------------------------


def at_saturation(house: Degrade, value: float) -> Strained:
    pool = house.pool("m")
    watched(pool, [value] * 10)
    return pool


@pytest.mark.parametrize("value", [0.92, 1.0])
def test_new_sessions_are_refused_from_level_one_on(value: float) -> None:
    house = degrade()
    pool = at_saturation(house, value)
    new = request("q", session_key="s")
    assert house.refuses(pool, new, False) == "new_sessions_refused"
    assert house.refuses(pool, new, True) == ""
    assert house.refuses(pool, new.changed(tier=int(Tier.HIGH)), False) == ""
    assert house.refuses(pool, new.changed(tier=int(Tier.CRITICAL)), False) == ""


def test_nobody_is_refused_below() -> None:
    house = degrade()
    pool = at_saturation(house, 0.8)
    assert house.refuses(pool, request("q", session_key="s", tier=int(Tier.LOW)), False) == ""


def test_nobody_is_refused_if_levels_are_off() -> None:
    house = degrade(levels=False)
    assert house.refuses(at_saturation(house, 2.0), request("q", session_key="s", tier=int(Tier.LOW)), False) == ""


def test_what_is_low_is_shed_at_level_two() -> None:
    house = degrade()
    pool = at_saturation(house, 1.0)
    pool.measured(0.5, 10.0, [])  # a moment's relief changes nothing
    low = request("q", tier=int(Tier.LOW))
    assert {house.refuses(pool, low, True) for _ in range(50)} == {"shed"}
    assert house.refuses(pool, request("q"), True) == ""


@pytest.mark.parametrize("value", [0.82, 0.85, 0.88])
def test_what_is_low_is_shed_by_chance_before(value: float) -> None:
    """p = ((sat - .80) / .20)^2, within three deviations of 4,000 tries."""
    house = degrade()
    pool = at_saturation(house, value)
    low, tries = request("q", tier=int(Tier.LOW)), 4000
    shed = sum(house.refuses(pool, low, True) == "shed" for _ in range(tries))
    p = ((value - 0.8) / 0.2) ** 2
    assert abs(shed - p * tries) < 3.0 * math.sqrt(tries * p * (1.0 - p)) + 1.0


# -- bursts ------------------------------------------------------------------------------------------------------------


def surged(house: Degrade) -> Strained:
    out: list[Command] = []
    pool = house.pool("m")
    for second in range(80):
        for n in range(30 if second > 60 else 5):
            house.arrived("m", second + n / 30)
        pool.measured(0.0, second + 1.0, out)
    assert [(entry.burst, entry.level) for entry in entries(out, LevelChanged)] == [(True, 0)]
    return pool


def test_a_burst_caps_what_is_longer() -> None:
    house = Degrade(random.Random(1), burst=BurstConfig(curbs=True))
    pool = surged(house)
    assert house.cap(request("q")) == 256
    assert house.cap(request("q", max_output_tokens=257)) == 256
    assert house.cap(request("q", max_output_tokens=256)) == 0
    assert house.curbs(pool, request("q"))
    assert not house.curbs(pool, request("q", generates=False))
    assert not house.curbs(house.pool("other"), request("q"))


def test_a_burst_is_seen_but_costs_nothing_unless_that_is_wanted() -> None:
    house = degrade()
    pool = surged(house)
    assert pool.burst
    assert not house.curbs(pool, request("q"))


# -- how long it is looked at ------------------------------------------------------------------------------------------


def test_an_idle_pool_is_left_alone() -> None:
    house = degrade()
    pool = house.arrived("m", 100.0)
    assert pool.restless(104.0)
    assert not pool.restless(106.0)
    watched(pool, [1.0] * 10, 106.0)
    assert pool.restless(116.0)
    watched(pool, [0.0] * 10, 116.0)
    assert not pool.restless(126.0)


def test_what_lies_in_the_window_is_waited_for() -> None:
    pool = degrade().pool("m")
    watched(pool, [0.0, 0.0, 9.0])
    assert pool.level == 0
    assert pool.restless(3.0)


def test_models_that_are_gone_are_forgotten() -> None:
    house = degrade()
    assert house.arrived("a", 1.0) is house.pool("a")
    house.pool("b")
    watched(house.pool("d"), [1.0] * 10)
    out: list[Command] = []
    house.keep(["b", "c"], 20.0, out)
    assert list(house.pools) == ["b"]
    assert entries(out, LevelChanged) == [LevelChanged(20.0, "d", 0, False, 0.0)]
