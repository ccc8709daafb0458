"""When requests arrive: point processes, drawn from a seeded generator. What arrives is made elsewhere.

How a workload is made denser or sparser afterwards is `scaling`'s business.
"""

import math

import msgspec
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


class Profile(msgspec.Struct, frozen=True):
    """How a rate changes with time: relative weights of steps of `step_s` from second 0, repeated for ever."""

    step_s: float
    weights: tuple[float, ...]


STEADY = Profile(1.0, (1.0,))
"""The same rate always."""


def following(
    profile: Profile, rate: float, cv: float, start_s: float, end_s: float, rng: np.random.Generator
) -> Times:
    """Arrivals in [start_s, end_s) at `rate` times the profile (whose mean counts as 1), gaps of coefficient cv.

    A Gamma process of constant rate whose clock runs by the profile: exact for cv 1, where it is an inhomogeneous
    Poisson process, and bursts of a given size stay that size in busy and in quiet times for others.
    """
    steps = np.arange(math.floor(start_s / profile.step_s), math.ceil(end_s / profile.step_s) + 1)
    weights = np.array(profile.weights) / np.mean(profile.weights)
    clock = np.concatenate(([0.0], np.cumsum(weights[steps[:-1] % len(weights)] * profile.step_s)))
    times: Times = np.interp(gamma(rate, cv, float(clock[-1]), rng), clock, steps * profile.step_s)
    return times[(times >= start_s) & (times < end_s)]
