"""Coarse timers, one per process: thousands of deadlines cost one pass over a set, not a timer each.

A deadline here may fire up to one period late, which is fine for patience measured in seconds. Precise timers (the
brain's) are the driver's business.
"""

import asyncio
from collections.abc import Callable
from typing import Final, Protocol

from headway.runtime.clock import now

SWEEP_S: Final = 0.1  # a pass over 15,000 connections takes about 1 ms
LATE: Final = 2.0  # periods between two passes from which on the process itself was not run, or blocked
SOON_S: Final = 0.01  # how long a head or a preface may wait for the content behind it: not felt by anyone


class Patient(Protocol):
    """Something that must not take for ever. It is told once its deadline passed, and each period after until it moves
    the deadline or leaves."""

    deadline: float

    def expired(self, at: float) -> None:
        """The deadline passed."""
        ...


class Sweeper:
    """Watches deadlines. `now` is the time of the last pass: good enough to push deadlines along. `passes` counts them.

    After a stall of our own (a stopped process, a starved or suspended machine) nothing expires in the first pass: what
    arrived meanwhile is to be read first, or every stream would be cut for a silence that was ours. Never twice in a
    row: where every pass is late, deadlines hold all the same.
    """

    def __init__(self, period_s: float = SWEEP_S) -> None:
        self.now = now()
        self.passes = 0
        self._period_s = period_s
        self._excused = False
        self._members: set[Patient] = set()
        self._handle: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._members)

    def add(self, member: Patient) -> None:
        """Watch its deadline from now on."""
        self._members.add(member)
        if self._handle is None:
            self.now = now()
            self._handle = asyncio.get_running_loop().call_later(self._period_s, self._pass)

    def discard(self, member: Patient) -> None:
        """Watch it no longer."""
        self._members.discard(member)

    def stop(self) -> None:
        """Forget everything."""
        self._members.clear()
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _pass(self) -> None:
        at = now()
        self._excused = not self._excused and at - self.now > LATE * self._period_s
        self.now = at
        self.passes += 1
        self._handle = None
        if self._members:
            self._handle = asyncio.get_running_loop().call_later(self._period_s, self._pass)
        if self._excused:
            return
        for member in [member for member in self._members if member.deadline <= at]:
            member.expired(at)


class Soon:
    """Calls what was added, a moment later, all by one timer. Nothing is ever taken out: callees know if it is over."""

    def __init__(self, delay_s: float = SOON_S) -> None:
        self._delay_s = delay_s
        self._calls: list[Callable[[], None]] = []

    def add(self, call: Callable[[], None]) -> None:
        """Call it `delay_s` from now at the latest."""
        if not self._calls:
            asyncio.get_running_loop().call_later(self._delay_s, self._run)
        self._calls.append(call)

    def _run(self) -> None:
        calls, self._calls = self._calls, []
        for call in calls:
            call()
