"""When requests arrive: point processes, drawn from a seeded generator. What arrives is made elsewhere.

How a workload is made denser or sparser afterwards is `scaling`'s business.
"""

import math

import numpy as np
from numpy.typing import NDArray

Times = NDArray[np.float64]


def poisson(rate: float, duration_s: float, rng: np.random.Generator) -> Times:
    """Arrivals of a Poisson process in [0, duration_s), sorted (s)."""
    count = rng.poisson(rate * duration_s)
    return np.sort(rng.uniform(0.0, duration_s, size=count))


def gamma(rate: float, cv: float, duration_s: float, rng: np.random.Generator) -> Times:
    """Arrivals whose gaps follow a Gamma law with mean 1/rate and coefficient of variation cv (1 is Poisson).

    Shape 1/cv^2 and scale cv^2/rate. ServeGen (Alibaba) fits production clients with such laws, cv 1 to 5.
    """
    shape = 1.0 / (cv * cv)
    times: Times = np.empty(0)
    start = 0.0
    while start < duration_s:
        expected = max(16, math.ceil(rate * (duration_s - start) * 1.2))
        more = start + np.cumsum(rng.gamma(shape, 1.0 / (rate * shape), size=expected))
        times = np.concatenate((times, more))
        start = float(times[-1])
    return times[times < duration_s]


def bursts(
    rate: float, burst_rate: float, every_s: float, length_s: float, duration_s: float, rng: np.random.Generator
) -> Times:
    """A Poisson process at `rate` that runs at `burst_rate` during the first `length_s` of each `every_s`.

    Drawn at the higher rate and thinned, so that it is exact (Lewis and Shedler's thinning).
    """
    top = max(rate, burst_rate)
    times = poisson(top, duration_s, rng)
    wanted = np.where(times % every_s < length_s, burst_rate, rate)
    return times[rng.uniform(0.0, top, size=len(times)) < wanted]
