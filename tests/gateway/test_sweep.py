"""Coarse deadlines and short delays."""

import asyncio
import time
from collections.abc import Callable
from typing import Any

from headway.gateway.sweep import Soon, Sweeper

Run = Callable[[Any], Any]


class Member:
    """Counts its expiries; moves its deadline away after the first."""

    def __init__(self, deadline: float) -> None:
        self.deadline = deadline
        self.expiries = 0

    def expired(self, at: float) -> None:
        self.expiries += 1
        self.deadline = at + 100


def test_deadlines(run: Run) -> None:
    async def main() -> None:
        sweeper = Sweeper(0.005)
        due, far, gone = Member(0.0), Member(sweeper.now + 100), Member(0.0)
        for member in (due, far, gone):
            sweeper.add(member)
        sweeper.discard(gone)
        before = sweeper.now
        await asyncio.sleep(0.03)
        assert (due.expiries, far.expiries, gone.expiries, len(sweeper)) == (1, 0, 0, 2)
        assert sweeper.now > before
        sweeper.stop()
        assert len(sweeper) == 0

    run(main())


def test_nothing_expires_right_after_a_stall_of_our_own(run: Run) -> None:
    async def main() -> None:
        sweeper = Sweeper(0.02)
        due = Member(sweeper.now + 0.03)
        sweeper.add(due)
        time.sleep(0.1)  # noqa: ASYNC251 the stall
        await asyncio.sleep(0)
        assert (sweeper.passes, due.expiries) == (1, 0)
        await asyncio.sleep(0.05)
        assert due.expiries == 1
        sweeper.stop()

    run(main())


def test_where_every_pass_is_late_deadlines_hold_all_the_same(run: Run) -> None:
    async def main() -> None:
        sweeper = Sweeper(0.005)
        due = Member(sweeper.now)
        sweeper.add(due)
        for _ in range(2):
            time.sleep(0.02)  # noqa: ASYNC251 the stall
            await asyncio.sleep(0)
        assert (sweeper.passes, due.expiries) == (2, 1)
        sweeper.stop()

    run(main())


def test_soon(run: Run) -> None:
    async def main() -> None:
        soon, calls = Soon(0.005), list[int]()
        soon.add(lambda: calls.append(1))
        soon.add(lambda: soon.add(lambda: calls.append(2)))
        assert calls == []
        await asyncio.sleep(0.03)
        assert calls == [1, 2]

    run(main())
