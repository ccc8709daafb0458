"""Counting without a metrics library's cost: a histogram that takes many equal observations at once."""

from bisect import bisect_left
from collections.abc import Iterator


class Histogram:
    """Cumulative buckets, as Prometheus wants them."""

    __slots__ = ("_counts", "bounds", "count", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self.count = 0
        self.total = 0.0

    def observe(self, value: float, times: int = 1) -> None:
        """Take in `times` observations of one value."""
        self._counts[bisect_left(self.bounds, value)] += times
        self.count += times
        self.total += value * times

    def buckets(self) -> Iterator[tuple[str, int]]:
        """(upper bound as text, observations up to it), the last one +Inf."""
        below = 0
        for bound, count in zip(self.bounds, self._counts, strict=False):
            below += count
            yield str(float(bound)), below
        yield "+Inf", self.count


def one_two_five(highest: int) -> tuple[float, ...]:
    """1, 2, 5, 10, ... up to `highest`: vLLM's buckets for token counts."""
    bounds = [float(digit * 10**power) for power in range(9) for digit in (1, 2, 5)]
    return tuple(bound for bound in bounds if bound <= highest)
