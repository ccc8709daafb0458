"""The smallest fleet that serves enough requests well: a search over its number of replicas, one per policy.

Pure: it is told how many replicas did how well and says which number to try next. It takes for granted that more
replicas never serve fewer requests well; the number it ends with was tried, and so was the one below it.
"""

import math

import msgspec

GROWTH = 1.5
"""How fast a bracket is widened: a first guess from throughput is rarely off by more than this."""


class Trial(msgspec.Struct, frozen=True):
    """A fleet that was tried: the share of requests served well."""

    replicas: int
    good_share: float


class Search:
    """Brackets, then halves. `first` is the first number to try, `most` the largest allowed."""

    def __init__(self, target: float, first: int, most: int) -> None:
        self.target = target
        self.trials: list[Trial] = []
        self._first = min(max(1, first), most)
        self._most = most

    @property
    def enough(self) -> int | None:
        """The smallest fleet known to be enough."""
        return min((trial.replicas for trial in self.trials if trial.good_share >= self.target), default=None)

    @property
    def too_few(self) -> int:
        """The largest fleet known to be too small; 0 is known from the beginning."""
        return max((trial.replicas for trial in self.trials if trial.good_share < self.target), default=0)

    def told(self, replicas: int, good_share: float) -> None:
        """What a fleet did."""
        self.trials.append(Trial(replicas, good_share))

    def next(self) -> int | None:
        """What to try, None when the search is over: the answer is found or `most` was not enough."""
        enough, too_few = self.enough, self.too_few
        if not self.trials:
            return self._first
        if enough is None:
            return min(self._most, math.ceil(too_few * GROWTH)) if too_few < self._most else None
        if enough <= too_few + 1:
            return None
        return max(too_few + 1, int(enough / GROWTH)) if too_few == 0 else (enough + too_few) // 2
