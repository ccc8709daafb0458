"""When requests arrive, and how to make a workload denser or sparser without changing its shape in time.

Compressing a trace in time would turn its bursts into something no user ever did, so load is scaled by leaving out
whole sessions (`thin`) and by laying shifted copies over each other (`superpose`).
"""

import math
from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from headway.workload.request import Request

Times = NDArray[np.float64]

_COPY_KEYS = 1 << 48
"""Distance between the segment keys of two copies: a copy shares no prefix with its original, which would invent
cache hits the trace never had."""


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


def thin(requests: Sequence[Request], keep: float, rng: np.random.Generator) -> list[Request]:
    """Keep a share of the sessions, whole: a conversation with turns missing would not be one."""
    names = list(dict.fromkeys(request.session for request in requests if request.session))
    chosen = {name for name, draw in zip(names, rng.random(len(names)), strict=True) if draw < keep}
    return [r for r in requests if (r.session in chosen if r.session else rng.random() < keep)]


def superpose(requests: Sequence[Request], copies: int, rng: np.random.Generator) -> list[Request]:
    """Lay `copies` of a workload over each other, each but the first rotated in time by its own random amount.

    The requests that a rotation moves over the end come in again at the start, so a few sessions begin in mid-talk.
    """
    span = max((request.arrival_s for request in requests), default=0.0)
    merged = list(requests)
    for number in range(1, copies):
        shift = float(rng.uniform(0.0, span))
        merged.extend(
            _copy(request, number, (request.arrival_s + shift) % span if span else 0.0) for request in requests
        )
    return sorted(merged, key=lambda request: request.arrival_s)


def scale(requests: Sequence[Request], factor: float, rng: np.random.Generator) -> list[Request]:
    """A workload with `factor` times the load and the same shape in time."""
    whole = math.floor(factor)
    rest = factor - whole
    scaled = superpose(requests, whole, rng) if whole else []
    if rest > 0:
        extra = thin(requests, rest, rng)
        scaled.extend(_copy(request, whole, request.arrival_s) if whole else request for request in extra)
    return sorted(scaled, key=lambda request: request.arrival_s)


def _copy(request: Request, number: int, arrival_s: float) -> Request:
    return msgspec.structs.replace(
        request,
        arrival_s=arrival_s,
        session=f"{request.session}#{number}" if request.session else "",
        segments=tuple(
            msgspec.structs.replace(segment, key=segment.key + number * _COPY_KEYS) for segment in request.segments
        ),
    )
