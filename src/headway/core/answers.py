"""Durations of the answers in one piece of one replica, summed up: one observation stands for many answers, and costs
next to nothing. What they tell is not here (`unseen`, `speed`)."""

import math
from collections import deque

from headway.core.entries import Answered
from headway.core.entry import Entry


class Answers:
    """Sums since `since`. `filling`: attempts that are to be answered in one piece, and were not presumed to have begun
    when last looked at, in order. `step_told_at` and `prefill_told_at`: when a stream last told how long a step, and a
    prefill, takes there."""

    __slots__ = (
        "_context", "_count", "_prefilled", "_running", "_seconds", "_steps", "filling", "prefill_told_at", "since",
        "step_told_at",
    )  # fmt: skip

    def __init__(self, at: float) -> None:
        self.filling: deque[Entry] = deque()
        self.step_told_at = self.prefill_told_at = -math.inf
        self._restart(at)

    def add(self, answered: Answered) -> None:
        """One more."""
        self._count += 1
        self._prefilled += answered.prefilled
        self._steps += answered.steps
        self._running += answered.running
        self._context += answered.context
        self._seconds += answered.seconds

    def take(self, at: float) -> Answered:
        """The mean of at least one, and a new window."""
        n = self._count
        mean = Answered(self._prefilled / n, self._steps / n, self._running / n, self._context / n, self._seconds / n)
        self._restart(at)
        return mean

    def _restart(self, at: float) -> None:
        self.since = at
        self._count = 0
        self._prefilled = self._steps = self._running = self._context = self._seconds = 0.0
