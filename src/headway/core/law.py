"""The law of output lengths: observations in bins, and the survival that follows from them.

Output lengths are a log-histogram, read as a survival law P(l > x). An output that was cut short (by max_tokens, by the
client) is right-censored: it says "at least this long", and counting it as an end would make every forecast too short.
The estimator is Kaplan and Meier's on binned data (J. Amer. Statist. Assoc. 53, 1958): the hazard of a bin is ends in
it over outputs at risk in it. Which law is whose is not known here (length).
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from math import ceil
from operator import neg
from typing import Final

_MAX_HAZARD: Final = 0.999
"""No bin ends everything: what outlives all that was seen must still be divisible by its own survival."""


class Law:
    """A survival law on fixed edges, linear within a bin.

    `survival[k]` is P(l > edges[k]); `tail[k]` the integral of the survival from edges[k] on, `tail2[k]` the integral
    of the tail. Summed from the far end, so that quotients stay exact where hardly anything survives.
    """

    __slots__ = ("edges", "ended", "forecasts", "hazard", "survival", "tail", "tail2")

    def __init__(self, edges: Sequence[int], hazard: list[float]) -> None:
        self.edges = edges
        self.hazard = hazard
        self.forecasts: dict[int, tuple[float, float]] = {}
        alive = 1.0
        self.survival = [alive]
        for h in hazard:
            alive *= 1.0 - min(h, _MAX_HAZARD)
            self.survival.append(alive)
        self.survival[-1] = 0.0  # whatever is longer than the last edge ends there
        self.ended = [1.0 - s for s in self.survival]
        self.tail = [0.0] * len(edges)
        self.tail2 = [0.0] * len(edges)
        for k in range(len(edges) - 2, -1, -1):
            width, near, far = edges[k + 1] - edges[k], self.survival[k], self.survival[k + 1]
            self.tail[k] = self.tail[k + 1] + width * (near + far) / 2
            self.tail2[k] = self.tail2[k + 1] + width * self.tail[k + 1] + width * width * (near + 2 * far) / 6

    def clamp(self, generated: int) -> int:
        """Beyond the last bin nothing is known: whoever got there is taken to have just entered it."""
        return min(generated, self.edges[-2])

    def at(self, x: float) -> float:
        """P(l > x)."""
        edges = self.edges
        if x >= edges[-1]:
            return 0.0
        k = bisect_right(edges, x) - 1
        near = self.survival[k]
        return near + (self.survival[k + 1] - near) * (x - edges[k]) / (edges[k + 1] - edges[k])

    def outlive(self, x: int, ahead: Sequence[int], room: int) -> list[float]:
        """P(l > x + a), given l > x, for every `a` of some in ascending order; 0 from `room` on."""
        edges, survival, last, alive = self.edges, self.survival, self.edges[-1], self.at(x)
        k, found = 0, []
        for a in ahead:
            y = x + a
            if y >= last or a >= room:
                found.append(0.0)
                continue
            k = bisect_right(edges, y, k) - 1
            near = survival[k]
            found.append((near + (survival[k + 1] - near) * (y - edges[k]) / (edges[k + 1] - edges[k])) / alive)
        return found

    def quantile(self, p: float) -> int:
        """The least number of tokens that an output does not exceed with a probability of `p` (0 < p < 1)."""
        edges, ended = self.edges, self.ended
        k = bisect_left(ended, p, 1) - 1
        near, far = ended[k], ended[k + 1]
        return ceil(edges[k] + (edges[k + 1] - edges[k]) * (p - near) / (far - near)) or 1

    def quantile_beyond(self, x: int, p: float) -> int:
        """The same for those that are longer than `x`. From the survival and not from its complement: where hardly
        anything survives, that is 1 to the last digit."""
        edges, survival = self.edges, self.survival
        alive = self.at(x) * (1.0 - p)
        k = bisect_left(survival, -alive, 1, key=neg) - 1
        near, far = survival[k], survival[k + 1]
        return max(x, ceil(edges[k] + (edges[k + 1] - edges[k]) * (near - alive) / (near - far)))

    def integrals(self, x: float) -> tuple[float, float, float]:
        """Survival at x, its integral from x on, and the integral of that from x on."""
        edges = self.edges
        if x >= edges[-1]:
            return (0.0, 0.0, 0.0)
        k = bisect_right(edges, x) - 1
        far, width = self.survival[k + 1], edges[k + 1] - x
        near = far + (self.survival[k] - far) * width / (edges[k + 1] - edges[k])
        tail = self.tail[k + 1] + width * (near + far) / 2
        return (near, tail, self.tail2[k + 1] + width * self.tail[k + 1] + width * width * (near + 2 * far) / 6)

    def left(self, generated: int, limit: int) -> tuple[float, float]:
        """Mean and variance of min(l, limit) - generated, given l > generated (generated < limit or limit 0).

        Lengths are whole tokens while the law is continuous: the mean of whole numbers in (a, b] is half a token
        above the middle.
        """
        alive, tail, tail2 = self.integrals(generated)
        beyond = 0.0
        if limit:
            beyond, tail_limit, tail2_limit = self.integrals(limit)
            tail -= tail_limit
            tail2 -= tail2_limit + (limit - generated) * tail_limit
        mean = tail / alive
        variance = max(0.0, 2 * tail2 / alive - mean * mean)
        return (mean + (1.0 - beyond / alive) / 2, variance)


class Counts:
    """Observed outputs per bin: ended there, cut short there, and how much of the bin the cut ones had passed."""

    __slots__ = ("cut", "ended", "law", "passed", "pending", "total")

    def __init__(self, bins: int) -> None:
        self.ended = [0.0] * bins
        self.cut = [0.0] * bins
        self.passed = [0.0] * bins
        self.total = 0.0
        self.pending = 0
        self.law: Law | None = None

    def add(self, k: int, censored: bool, passed: float, memory: float) -> None:
        """Count one output in bin k; beyond `memory` of them the past is halved."""
        if censored:
            self.cut[k] += 1.0
            self.passed[k] += passed
        else:
            self.ended[k] += 1.0
        self.total += 1.0
        self.pending += 1
        if self.total > memory:
            for counts in (self.ended, self.cut, self.passed):
                counts[:] = [c / 2 for c in counts]
            self.total /= 2

    def current(self) -> Law | None:
        """The law, unless so much was observed since it was built that it may have moved (an eighth, at most 64)."""
        return self.law if self.pending <= min(64.0, self.total / 8) else None

    def rebuild(self, base: Law, weight: float) -> Law:
        """These counts and `weight` pseudo-observations of the base law."""
        hazard = list(base.hazard)
        at_risk = 0.0
        for k in range(len(hazard) - 1, -1, -1):
            pseudo = max(weight * base.survival[k], 1e-9)
            exposed = at_risk + self.ended[k] + self.passed[k]
            hazard[k] = (self.ended[k] + pseudo * hazard[k]) / (exposed + pseudo)
            at_risk += self.ended[k] + self.cut[k]
        self.pending = 0
        self.law = Law(base.edges, hazard)
        return self.law
