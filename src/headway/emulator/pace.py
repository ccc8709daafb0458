"""The emulator's clock: virtual time that runs `scale` times as fast as real time while the engine works.

Steps follow each other on a cursor, so that timers that fire late do not add up: the next step starts where the last
one ended. Falling behind by more than SLACK_S of real time is not caught up in a rush; it is written down as lag.
"""

import asyncio

from headway.runtime import clock

SLACK_S = 0.05
HALF_LIFE_S = 10.0


class Pace:
    """Turns durations of steps into waiting. `lag_ratio`: real time lost over time worked, in the last seconds."""

    def __init__(self, scale: float) -> None:
        self.scale = scale
        self._origin = clock.now()
        self._cursor = self._origin
        self._worked = self._lost = 0.0
        self.lost_total_s = 0.0

    def virtual(self) -> float:
        """Virtual seconds since the start, at the cursor."""
        return (self._cursor - self._origin) * self.scale

    def now(self) -> float:
        """Virtual seconds since the start, now."""
        return (clock.now() - self._origin) * self.scale

    def real(self, virtual_s: float) -> float:
        """Real seconds for a span of virtual ones."""
        return virtual_s / self.scale

    @property
    def lag_ratio(self) -> float:
        """How much longer work took than it should have: 0.1 means 10 % late."""
        return self._lost / self._worked if self._worked > 0 else 0.0

    def rejoin(self) -> None:
        """After a rest, the cursor is now."""
        self._cursor = clock.now()

    async def spend(self, virtual_s: float) -> None:
        """Wait until a step of this length has ended; always lets others run."""
        span = virtual_s / self.scale
        self._cursor += span
        wait = self._cursor - clock.now()
        await asyncio.sleep(max(0.0, wait))
        behind = clock.now() - self._cursor
        fade = 0.5 ** (span / HALF_LIFE_S)
        self._worked = self._worked * fade + span
        self._lost *= fade
        if behind > SLACK_S:
            self._lost += behind
            self.lost_total_s += behind
            self._cursor += behind
