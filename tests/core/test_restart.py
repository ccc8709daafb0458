"""Restarts: late, seldom, ever more seldom, and never without a hook."""

import itertools
import math

from hypothesis import given
from hypothesis import strategies as st

from headway.core.commands import Command, Restart
from headway.core.constants import RestartConfig
from headway.core.ids import ReplicaId
from headway.core.restart import Restarts

A = ReplicaId("a")
CONFIG = RestartConfig(enabled=True, after_s=30.0, every_s=300.0, backoff=2.0, every_max_s=1000.0, forgive_s=600.0)


def asked(restarts: Restarts, moments: list[tuple[float, str]]) -> list[float]:
    """At which of the moments a restart was asked for."""
    found = []
    for at, dead in moments:
        out: list[Command] = []
        restarts.look(A, dead, at, out)
        found += [at for command in out if command == Restart(A, dead)]
    return found


def test_without_a_hook_nothing_is_kept() -> None:
    restarts = Restarts()
    assert restarts.look(A, "unreachable", 0.0, []) == math.inf
    assert len(restarts) == 0


def test_only_after_a_while() -> None:
    restarts = Restarts(CONFIG)
    assert restarts.look(A, "unreachable", 5.0, []) == 35.0
    assert asked(restarts, [(34.9, "unreachable"), (35.0, "unreachable")]) == [35.0]


def test_ever_more_seldom_up_to_a_limit() -> None:
    moments = [(float(at), "unreachable") for at in range(5000)]
    assert asked(Restarts(CONFIG), moments) == [30.0, 330.0, 930.0, 1930.0, 2930.0, 3930.0, 4930.0]


def test_whoever_is_well_in_between_has_its_time_anew_but_keeps_the_pause() -> None:
    restarts = Restarts(CONFIG)
    assert asked(restarts, [(0.0, "unreachable"), (30.0, "unreachable")]) == [30.0]
    assert restarts.look(A, "", 40.0, []) == math.inf
    assert restarts.look(A, "", 41.0, []) == math.inf
    assert restarts.look(A, "out_of_memory", 50.0, []) == 330.0
    assert restarts.look(A, "", 60.0, []) == math.inf
    assert restarts.look(A, "out_of_memory", 320.0, []) == 350.0


def test_long_health_forgives() -> None:
    restarts = Restarts(CONFIG)
    assert asked(restarts, [(0.0, "unreachable"), (30.0, "unreachable")]) == [30.0]
    restarts.look(A, "", 40.0, [])
    moments = [(640.0, "unreachable"), (670.0, "unreachable"), (969.0, "unreachable"), (970.0, "unreachable")]
    assert asked(restarts, moments) == [670.0, 970.0]


def test_who_left_is_forgotten() -> None:
    restarts = Restarts(CONFIG)
    restarts.look(A, "unreachable", 0.0, [])
    restarts.keep({A: None})
    assert len(restarts) == 1
    restarts.keep({})
    assert len(restarts) == 0


@given(st.lists(st.tuples(st.floats(0.1, 100.0), st.sampled_from(["", "unreachable", "out_of_memory"])), max_size=80))
def test_two_restarts_are_never_closer_than_the_pause(steps: list[tuple[float, str]]) -> None:
    at, moments = 0.0, []
    for gap, dead in steps:
        at += gap
        moments.append((at, dead))
    found = asked(Restarts(CONFIG), moments)
    assert all(later - earlier >= CONFIG.every_s for earlier, later in itertools.pairwise(found))
