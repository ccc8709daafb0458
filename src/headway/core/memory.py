"""How full a KV pool will get: the forecast peak of a running batch, in tokens.

For known remaining lengths the Past-Future formula of LightLLM would be exact. `Curve` is for uncertain ones: the
expected use at a few fixed horizons of decode steps, with its variance, kept as sums so that a request is added or
taken away without walking the batch. What is *not* here: who holds what (ledger) and how long outputs are (length).
"""

import math
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import Final

from headway.core.entry import Octet, Share

HORIZONS: Final = (0, 10, 30, 100, 280, 700, 1750, 4300)
"""Decode steps ahead at which use is forecast. Roughly geometric: the peak of a batch is flat, and eight points miss
2 % of it on average (a test measures it) while an addition stays at a microsecond."""

CARE = (1.0, 1.0, 1.0, 0.8, 0.73, 0.73, 0.73, 0.73)
"""The part of `z` that counts at each horizon. What may happen within a second cannot be helped any more, by holding
back whoever comes next; what may happen in half a minute can."""

_ZEROS: Octet = (0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)


def _sum(a: Octet, b: Octet) -> Octet:
    """By horizon. Unrolled, as all that each request pays for here: a loop takes two to three times as long."""
    a0, a1, a2, a3, a4, a5, a6, a7 = a
    b0, b1, b2, b3, b4, b5, b6, b7 = b
    return (a0 + b0, a1 + b1, a2 + b2, a3 + b3, a4 + b4, a5 + b5, a6 + b6, a7 + b7)


def _difference(a: Octet, b: Octet) -> Octet:
    a0, a1, a2, a3, a4, a5, a6, a7 = a
    b0, b1, b2, b3, b4, b5, b6, b7 = b
    return (a0 - b0, a1 - b1, a2 - b2, a3 - b3, a4 - b4, a5 - b5, a6 - b6, a7 - b7)


def _octet(values: Sequence[float]) -> Octet:
    a, b, c, d, e, f, g, h = values
    return (a, b, c, d, e, f, g, h)


def _further(worst: float, mean: float, var: float, far: float, most: float) -> float:
    """The larger of a reach and that of one more horizon: so many deviations beyond the mean, and never beyond what all
    would hold (unless more than that is certain). (Of a rounding residue below 0 there is no deviation.)"""
    reach = mean + far * math.sqrt(var) if var > 0.0 else mean
    if reach <= worst:
        return worst
    if reach <= most:
        return reach
    if most < mean:
        most = mean
    return most if most > worst else worst


class Outlook:
    """A survival per horizon, prepared so that the shares of many requests can be made from it cheaply.

    `sure`: so many tokens come for certain (their requests ignore the end of text). Many such outputs end in one step,
    which may lie far behind the last horizon that all live to see: so there they have already all that is certain.

    `_alive` is the survival, `_ahead` what is generated up to a horizon, `_grown` the product of both.
    """

    __slots__ = ("_ahead", "_alive", "_grown", "_growth", "_sequences", "_spread", "_spread_growth")

    def __init__(self, survival: Sequence[float], sequences: int = 1, sure: int = 0) -> None:
        ahead: list[float] = []
        grown: list[float] = []
        most = spread = spread_growth = 0.0
        last = bisect_left(HORIZONS, sure) - 1  # the one before that at which it may have ended
        for i, step in enumerate(HORIZONS):
            s, g = survival[i], float(sequences * (sure if i == last > 0 else step))
            deviation = math.sqrt(s * (1.0 - s))
            ahead.append(g)
            grown.append(s * g)
            most = max(most, s * g)
            spread = max(spread, deviation)
            spread_growth = max(spread_growth, deviation * g)
        self._sequences = sequences
        self._alive, self._ahead, self._grown = _octet(survival), _octet(ahead), _octet(grown)
        self._growth, self._spread, self._spread_growth = most, spread, spread_growth

    def share(self, context: float) -> Share:
        """The share of a request that holds `context` tokens now.

        At horizon t it holds `h = c + nt` (n sequences) with probability S(t), else nothing: mean `h S`, variance
        `h^2 S (1 - S)`.
        """
        c = context
        s0, s1, s2, s3, s4, s5, s6, s7 = self._alive
        e0, e1, e2, e3, e4, e5, e6, e7 = self._grown
        g0, g1, g2, g3, g4, g5, g6, g7 = self._ahead
        m0, m1, m2, m3 = c * s0 + e0, c * s1 + e1, c * s2 + e2, c * s3 + e3
        m4, m5, m6, m7 = c * s4 + e4, c * s5 + e5, c * s6 + e6, c * s7 + e7
        v0, v1, v2, v3 = m0 * (c + g0 - m0), m1 * (c + g1 - m1), m2 * (c + g2 - m2), m3 * (c + g3 - m3)
        v4, v5, v6, v7 = m4 * (c + g4 - m4), m5 * (c + g5 - m5), m6 * (c + g6 - m6), m7 * (c + g7 - m7)
        return Share(
            (m0, m1, m2, m3, m4, m5, m6, m7),
            (v0, v1, v2, v3, v4, v5, v6, v7),
            c,
            self._sequences,
            c + self._growth,
            c * self._spread + self._spread_growth,
        )


class Curve:
    """Sum of shares: expected use and variance of a whole batch at each horizon.

    Its *reach* at a horizon is `mean + z sigma`, but never more than all would hold if all lived. (For many small
    requests the first is less; for a few huge prompts, whose deviation is as large as they are, the second.)
    """

    __slots__ = ("_context", "_peak", "_peak_z", "_sequences", "mean", "var")

    def __init__(self) -> None:
        self.mean: Octet = _ZEROS
        self.var: Octet = _ZEROS
        self._context = 0.0
        self._sequences = 0
        self._peak = (0.0, 0.0)
        self._peak_z = 0.0  # the peak is known for this z; -1: it is not

    def add(self, part: Share) -> None:
        """A request joins."""
        self.mean = _sum(self.mean, part.mean)
        self.var = _sum(self.var, part.var)
        self._context += part.context
        self._sequences += part.sequences
        self._peak_z = -1.0

    def subtract(self, part: Share) -> None:
        """A request leaves with exactly what it added. Rounding residue is the caller's to clear (`reset`)."""
        self.mean = _difference(self.mean, part.mean)
        self.var = _difference(self.var, part.var)
        self._context -= part.context
        self._sequences -= part.sequences
        self._peak_z = -1.0

    def reset(self, parts: Iterable[Share] = ()) -> None:
        """Start again from these shares only."""
        m0 = m1 = m2 = m3 = m4 = m5 = m6 = m7 = context = 0.0
        v0 = v1 = v2 = v3 = v4 = v5 = v6 = v7 = 0.0
        sequences = 0
        for part in parts:
            a, b, c, d, e, f, g, h = part.mean
            m0, m1, m2, m3, m4, m5, m6, m7 = m0 + a, m1 + b, m2 + c, m3 + d, m4 + e, m5 + f, m6 + g, m7 + h
            a, b, c, d, e, f, g, h = part.var
            v0, v1, v2, v3, v4, v5, v6, v7 = v0 + a, v1 + b, v2 + c, v3 + d, v4 + e, v5 + f, v6 + g, v7 + h
            context += part.context
            sequences += part.sequences
        self.mean = (m0, m1, m2, m3, m4, m5, m6, m7)
        self.var = (v0, v1, v2, v3, v4, v5, v6, v7)
        self._context, self._sequences = context, sequences
        self._peak_z = -1.0

    def peak(self, z: float) -> tuple[float, float]:
        """The largest mean, and the variance that makes `mean + z sigma` the largest reach.

        The two may belong to different horizons (now for the mean, much later for the deviation). Remembered: a view is
        made anew more often than a batch changes.
        """
        if z != self._peak_z:
            self._peak, self._peak_z = self._find_peak(z), z
        return self._peak

    def _find_peak(self, z: float) -> tuple[float, float]:
        m0, m1, m2, m3, m4, m5, m6, m7 = self.mean
        v0, v1, v2, v3, v4, v5, v6, v7 = self.var
        k0, k1, k2, k3, k4, k5, k6, k7 = CARE
        h0, h1, h2, h3, h4, h5, h6, h7 = HORIZONS
        c, n = self._context, self._sequences
        worst = _further(0.0, m0, v0, z * k0, c + h0 * n)
        worst = _further(worst, m1, v1, z * k1, c + h1 * n)
        worst = _further(worst, m2, v2, z * k2, c + h2 * n)
        worst = _further(worst, m3, v3, z * k3, c + h3 * n)
        worst = _further(worst, m4, v4, z * k4, c + h4 * n)
        worst = _further(worst, m5, v5, z * k5, c + h5 * n)
        worst = _further(worst, m6, v6, z * k6, c + h6 * n)
        worst = _further(worst, m7, v7, z * k7, c + h7 * n)
        top = max(max(max(m0, m1), max(m2, m3)), max(max(m4, m5), max(m6, m7)))  # of two: compiled, no call
        sigma = (worst - top) / z if worst > top and z > 0.0 else 0.0
        return top, sigma * sigma

    def fits(self, part: Share, room: float, extra_var: float, z: float) -> bool:
        """Whether the reach with this request stays within `room` tokens at every horizon.

        `extra_var`: of whatever else is in the pool. Two bounds hold, and the lower counts: deviations of independent
        requests add as squares; and the reach of both is at most the sum of both reaches.
        """
        for step, care, mean, var, own, own_var in zip(  # noqa: B905 equal by construction
            HORIZONS, CARE, self.mean, self.var, part.mean, part.var
        ):
            far = z * care
            if mean + own + far * math.sqrt(max(0.0, var + own_var + extra_var)) <= room:
                continue
            most, own_most = self._context + step * self._sequences, part.context + step * part.sequences
            batch = min(mean + far * math.sqrt(max(0.0, var)), max(mean, most))
            alone = min(own + far * math.sqrt(max(0.0, own_var)), max(own, own_most))
            if batch + alone + far * math.sqrt(extra_var) > room:
                return False
        return True


class Residual:
    """Report minus ledger, filtered: the median of the last five, and a variance from their spread.

    Filtering the difference and not the report keeps the ledger's instant knowledge; the median shrugs off a
    single stuck or torn gauge.
    """

    __slots__ = ("_last", "value", "var")
    KEEP = 5

    def __init__(self) -> None:
        self._last: list[float] = []
        self.value = 0.0
        self.var = 0.0

    def push(self, difference: float) -> None:
        """One more report."""
        self._last = [*self._last[1 - self.KEEP :], difference]
        middle = _median(self._last)
        deviation = 1.4826 * _median([abs(x - middle) for x in self._last])
        self.value, self.var = middle, deviation * deviation


def _median(values: list[float]) -> float:
    ordered = sorted(values)
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2.0
