"""Whether requests for a model suddenly come much faster than they did: a rate held against its own past.

What lives here: counting arrivals, and the judgement. What must not: what a burst costs clients (`degrade`). The last
few seconds are held against an average of what came before them. If they were part of that average, a jump to the
five-fold would look like less than the three-fold at any moment, and a jump to the three-fold never.
"""

from collections import deque
from math import exp, floor

from headway.core.constants import BurstConfig


class Pulse:
    """Arrivals of one model, in whole seconds. `on`: there is a burst; `rate` and `usual` are requests per second."""

    __slots__ = ("_config", "_count", "_enough", "_keep", "_moved_at", "_second", "_usual", "_weight", "_window", "on")

    def __init__(self, config: BurstConfig) -> None:
        self._config = config
        self._keep = exp(-1.0 / config.slow_s)
        self._enough = 1.0 - exp(-config.history_s / config.slow_s)
        self._window: deque[int] = deque(maxlen=config.fast_s)
        self._second = -1
        self._count = 0
        self._usual = 0.0
        self._weight = 0.0
        self._moved_at = float("-inf")
        self.on = False

    @property
    def rate(self) -> float:
        """Over the last `fast_s` full seconds."""
        return sum(self._window) / self._config.fast_s

    @property
    def usual(self) -> float:
        """Over the time before those, the last `slow_s` or so; 0 before anything is known."""
        return self._usual / self._weight if self._weight else 0.0

    @property
    def learned(self) -> bool:
        """Whether the past is long enough to say what is usual."""
        return self._weight >= self._enough

    def arrived(self, at: float) -> None:
        """A request came."""
        if floor(at) != self._second:
            self._close(floor(at))
        self._count += 1

    def judge(self, at: float) -> bool:
        """Look at the seconds that are over. True if a burst began or ended."""
        if self._second < 0:
            return False
        if floor(at) != self._second:
            self._close(floor(at))
        config, count = self._config, sum(self._window)
        if at - self._moved_at < config.dwell_s:
            return False
        if self.on:
            turns = self.rate < config.leave * self.usual or count < config.least
        else:
            turns = self.learned and count >= config.least and self.rate >= config.enter * self.usual
        if turns:
            self.on = not self.on
            self._moved_at = at
        return turns

    def _close(self, second: int) -> None:
        """Seconds are over: the one that was counted, and those in which nothing came."""
        if self._second >= 0:
            self._push(self._count)
            empty = second - self._second - 1
            for _ in range(min(empty, self._config.fast_s)):
                self._push(0)
            self._fade(max(0, empty - self._config.fast_s))
        self._second = second
        self._count = 0

    def _push(self, count: int) -> None:
        window = self._window
        if len(window) == self._config.fast_s:
            self._usual = self._usual * self._keep + window[0] * (1.0 - self._keep)
            self._weight = self._weight * self._keep + 1.0 - self._keep
        window.append(count)

    def _fade(self, seconds: int) -> None:
        """So many seconds without anything leave the window, which is empty."""
        fade = self._keep**seconds
        self._usual *= fade
        self._weight = 1.0 - (1.0 - self._weight) * fade
