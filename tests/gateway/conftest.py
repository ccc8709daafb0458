"""Every move of an exchange and of an attempt, in every test here, is held against the tables that define them."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from headway.gateway import attempt, exchange, mover
from headway.gateway.config import Moving
from tests.gateway.stage import Stage, Timers
from tests.interpreted import COMPILED

GUARDED: tuple[tuple[Any, Mapping[Any, frozenset[Any]]], ...] = (
    (exchange.Exchange, exchange.MOVES),
    (attempt.Attempt, attempt.MOVES),
    (mover.Mover, mover.MOVES),
)


class Guarded:
    """In place of a slot: takes only values that may follow the one that is there."""

    def __init__(self, slot: Any, moves: Mapping[Any, frozenset[Any]]) -> None:
        self._slot = slot
        self._moves = moves

    def __get__(self, owner: Any, kind: type) -> int:
        state: int = self._slot.__get__(owner, kind)
        return state

    def __set__(self, owner: Any, state: int) -> None:
        try:
            before = self._slot.__get__(owner, type(owner))
        except AttributeError:
            before = None
        if before is not None and state not in self._moves[before]:
            raise RuntimeError(f"{owner!r} cannot become {state}")
        self._slot.__set__(owner, state)


@pytest.fixture(autouse=True)
def moves(monkeypatch: pytest.MonkeyPatch) -> None:
    if COMPILED:
        return  # nothing can come between compiled code and its attributes
    for kind, table in GUARDED:
        monkeypatch.setattr(kind, "_state", Guarded(kind.__dict__["_state"], table))


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Stage]:
    """Makes a stage, with settings of moves; nothing there waits for anything but the test."""
    timers = Timers()
    monkeypatch.setattr(asyncio, "get_running_loop", lambda: timers)
    return lambda domains=(), pulls=False, **moving: Stage(timers, Moving(**moving), domains, pulls)
