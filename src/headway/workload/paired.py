"""How sure a mean over seeds is, and a difference between two policies that ran on the same seeds.

Policies are compared on common random numbers: seed for seed the same arrivals and lengths. Most of what varies from
seed to seed is therefore the same on both sides and cancels in the difference, which is why pairs are resampled and
not the two sides apart. The bootstrap is the percentile bootstrap (Efron and Tibshirani, 1993, chapter 13); with a
handful of seeds it is too narrow: from three pairs it cannot reach beyond the smallest and largest of three numbers.
"""

from collections.abc import Sequence

import msgspec
import numpy as np

RESAMPLES = 2_000
LEVEL = 0.95
FEW_SEEDS = 6
"""Below this many pairs even differences of one sign throughout are no evidence at 5 % (sign test: 2 / 2^n)."""


class Interval(msgspec.Struct, frozen=True):
    """A mean with its bootstrap interval; `low` and `high` are None where one value alone tells nothing."""

    mean: float
    low: float | None = None
    high: float | None = None

    @property
    def sign(self) -> int:
        """1 or -1 when the whole interval lies on that side of 0, else 0."""
        if self.low is None or self.high is None:
            return 0
        return 1 if self.low > 0 else -1 if self.high < 0 else 0


def mean_interval(values: Sequence[float], rng: np.random.Generator, resamples: int = RESAMPLES) -> Interval:
    """Mean of one or more values and its 95 % percentile bootstrap. Raises ValueError without values."""
    sample = np.asarray(values, dtype=np.float64)
    if not len(sample):
        raise ValueError("no values to take the mean of")
    mean = float(sample.mean())
    if len(sample) == 1:
        return Interval(mean)
    picks = rng.integers(0, len(sample), size=(resamples, len(sample)))
    low, high = np.quantile(sample[picks].mean(axis=1), ((1 - LEVEL) / 2, (1 + LEVEL) / 2))
    return Interval(mean, float(low), float(high))


def paired_interval(
    a: Sequence[float], b: Sequence[float], rng: np.random.Generator, resamples: int = RESAMPLES
) -> Interval:
    """Mean of a - b and its 95 % interval, pairs resampled together. Raises ValueError unless equally long."""
    if len(a) != len(b):
        raise ValueError(f"{len(a)} and {len(b)} values cannot be paired")
    return mean_interval(np.subtract(a, b).tolist(), rng, resamples)
