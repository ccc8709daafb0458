"""ServeGen (Alibaba Cloud Model Studio): streams of requests from the published laws of its clients.

The data set is no log. Per client and 600 s it gives the rate and a fitted law of the gaps, per client and six hours
two histograms of lengths. A stream is drawn client by client:

- A client sends exactly the published number of requests in each window (rate x 600 s). Their gaps have the law's
  shape, scaled to fill the window: a law with a coefficient of variation of 6 started afresh every 600 s would bring
  far more than its mean, and the fitted scale itself differs from the counted rate (mean gap x rate .78 to 1.05 at the
  10th and 90th percentile of deepseek-r1).
- Lengths come from the client's histogram of that time of day, or the nearest there is. A client without any (the data
  set lacks the largest) takes those of all clients together, by their load.
- Input and output are drawn independently, and no prompt shares anything: the data set says nothing about either.
"""

import csv
import math
from collections.abc import Iterable, Mapping, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from headway.workload.arrivals import Times
from headway.workload.columns import TraceError
from headway.workload.request import Request, Segment, Workload
from headway.workload.trace import MAX_TOKENS

Counts = NDArray[np.int64]

WINDOW_S = 600.0
_HISTOGRAM_S = 21_600.0
_KEYS = 1 << 40
DAY_S = 86_400.0
_MOST_RPS = 10_000
"""Of one client: more than any service had from all of them together, and more than can be drawn at once."""
_LATEST_S = 1e8
"""Three years."""
HEADER = ("client", "timestamp", "rate", "cv", "pattern", "arg1", "arg2")
_INPUTS = (
    ("input_tokens", ""),
    ("text_tokens", ""),
    *((f"{kind}_tokens", f"{kind}_count") for kind in ("image", "audio", "video")),
)
"""Histograms that make up a prompt; the second of a pair says how many of them one prompt has."""


class Rate(msgspec.Struct, frozen=True):
    """One client's arrivals in the window of 600 s from `start_s`. `shape` is the law's, whose scale is not used."""

    client: int
    start_s: float
    rate: float
    law: str
    shape: float


class Histogram(msgspec.Struct, frozen=True):
    """Values and their shares, which sum to 1."""

    values: Counts
    shares: NDArray[np.float64]

    def draw(self, count: int, rng: np.random.Generator) -> Counts:
        """`count` values."""
        drawn: Counts = rng.choice(self.values, size=count, p=self.shares)
        return drawn


class Lengths(msgspec.Struct, frozen=True):
    """One client's histograms from `start_s` on; `inputs` are summed (each times its count, where it has one)."""

    client: int
    start_s: float
    inputs: tuple[tuple[Histogram, Histogram | None], ...]
    output: Histogram

    def draw(self, count: int, rng: np.random.Generator) -> tuple[Counts, Counts]:
        """Prompts and outputs of `count` requests."""
        prompts = np.zeros(count, np.int64)
        for tokens, times in self.inputs:
            prompts += tokens.draw(count, rng) * (times.draw(count, rng) if times else 1)
        return prompts, self.output.draw(count, rng)


class Pool(msgspec.Struct, frozen=True):
    """What the two files of a pool hold."""

    rates: Sequence[Rate]
    lengths: Mapping[int, Sequence[Lengths]]


def read_pool(rates: Iterable[str], tokens: Iterable[str]) -> Pool:
    """A pool from the lines of its rates (CSV) and of its histograms (JSON Lines)."""
    lengths: dict[int, list[Lengths]] = {}
    for number, line in enumerate(tokens, 1):
        try:
            read = _lengths(msgspec.json.decode(line, type=dict[str, object]))
        except (KeyError, ValueError, OverflowError, RecursionError) as error:
            raise TraceError(f"ServeGen token histograms, line {number}: {error!r}") from None
        lengths.setdefault(read.client, []).append(read)
    if not lengths:
        raise TraceError("ServeGen token histograms: empty")
    return Pool(list(_rates(rates)), lengths)


def peak(pool: Pool, length_s: float) -> float:
    """The second at which the busiest `length_s` begin (a multiple of 600 s)."""
    if not pool.rates:
        return 0.0
    first, counts = _counts(pool)
    sums = np.convolve(counts, np.ones(max(1, round(length_s / WINDOW_S))), mode="valid")
    return first + WINDOW_S * int(np.argmax(sums))


def generate(pool: Pool, start_s: float, length_s: float, rng: np.random.Generator, name: str = "servegen") -> Workload:
    """The stream of [start_s, start_s + length_s), counted from 0. Its tenants are the clients."""
    others = _Others([row for own in pool.lengths.values() for row in own], pool.rates)
    parts = [
        _window(rate, start_s, length_s, pool.lengths.get(rate.client), others, rng)
        for rate in pool.rates
        if start_s - WINDOW_S < rate.start_s < start_s + length_s
    ]
    how = f"drawn from ServeGen's laws of its clients, seconds {start_s:.0f} to {start_s + length_s:.0f}"
    return Workload(name, _merged(parts), length_s, (how,))


def _rates(lines: Iterable[str]) -> Iterable[Rate]:
    for number, row in enumerate(csv.reader(lines), 1):
        if number == 1 and tuple(row) != HEADER:
            raise TraceError(f"ServeGen rates: expected the columns {', '.join(HEADER)}")
        if number > 1:
            try:
                client, start_s, rate, _, law, shape, _ = row
                yield _checked(Rate(int(client), float(start_s), float(rate), law, float(shape)))
            except ValueError as error:
                raise TraceError(f"ServeGen rates, line {number}: {error}") from None


def _checked(rate: Rate) -> Rate:
    if not 0 <= rate.rate <= _MOST_RPS or not 0 <= rate.start_s <= _LATEST_S:
        raise ValueError(f"a rate of {rate.rate:g}/s from second {rate.start_s:g} on is none")
    if not 0 < rate.shape < math.inf:
        raise ValueError(f"a law of shape {rate.shape:g} is none")
    return rate


def _lengths(row: dict[str, object]) -> Lengths:
    inputs = [
        (_histogram(row[name]), _histogram(row[times]) if times else None) for name, times in _INPUTS if name in row
    ]
    if not inputs:
        raise KeyError("input_tokens")
    client, start_s = msgspec.convert((row["client"], row["timestamp"]), tuple[int, float])
    return Lengths(client, start_s, tuple(inputs), _histogram(row["output_tokens"]))


def _histogram(found: object) -> Histogram:
    shares = msgspec.convert(found, dict[str, float])
    values = np.array([round(float(value)) for value in shares], dtype=np.int64)
    weights = np.array(list(shares.values()))
    if not 0 < weights.sum() < math.inf or (weights < 0).any():
        raise ValueError("shares of a histogram are 0 or more, and some are more")
    if (values < 0).any() or (values > MAX_TOKENS).any():
        raise ValueError(f"a length is 0 to {MAX_TOKENS:,} tokens")
    return Histogram(values, weights / weights.sum())


def _counts(pool: Pool) -> tuple[float, NDArray[np.float64]]:
    """The pool's first second, and its requests in every window from there."""
    first = min(rate.start_s for rate in pool.rates)
    windows = [round((rate.start_s - first) / WINDOW_S) for rate in pool.rates]
    return first, np.bincount(windows, [rate.rate * WINDOW_S for rate in pool.rates]).astype(np.float64)


def _times(rate: Rate, rng: np.random.Generator) -> Times:
    """Arrivals within the window of a client: so many gaps of the law's shape that they fill it, the first one too."""
    count = round(rate.rate * WINDOW_S) + 1
    gaps = rng.gamma(rate.shape, size=count) if rate.law == "Gamma" else rng.weibull(rate.shape, size=count)
    ends = np.cumsum(gaps)
    # A shape near 0 can draw nothing but gaps too small for a double.
    times: Times = WINDOW_S * ends[:-1] / ends[-1] if ends[-1] > 0 else np.sort(rng.uniform(0, WINDOW_S, count - 1))
    return times


class _Others:
    """Lengths of clients without histograms of their own: those of all others, each by the load it stands for."""

    def __init__(self, rows: Sequence[Lengths], rates: Sequence[Rate]) -> None:
        loads: dict[tuple[int, int], float] = {}
        for rate in rates:
            place = (rate.client, math.floor(rate.start_s / _HISTOGRAM_S))
            loads[place] = loads.get(place, 0.0) + rate.rate
        found = np.array([loads.get((row.client, math.floor(row.start_s / _HISTOGRAM_S)), 0.0) for row in rows])
        self.rows = rows
        self.shares = found / found.sum() if found.sum() > 0 else np.full(len(rows), 1 / len(rows))

    def draw(self, count: int, rng: np.random.Generator) -> tuple[Counts, Counts]:
        """Prompts and outputs of `count` requests."""
        donors = rng.choice(len(self.rows), size=count, p=self.shares)
        prompts, outputs = np.empty(count, np.int64), np.empty(count, np.int64)
        for donor in np.unique(donors):
            mine = donors == donor
            prompts[mine], outputs[mine] = self.rows[donor].draw(int(mine.sum()), rng)
        return prompts, outputs


def _nearest(own: Sequence[Lengths], at_s: float) -> Lengths:
    """The row whose six hours are nearest in the time of day; among equals the nearest in time."""

    def distance(row: Lengths) -> tuple[float, float]:
        apart = at_s - row.start_s - _HISTOGRAM_S / 2
        around = abs((apart + DAY_S / 2) % DAY_S - DAY_S / 2)
        return max(around, _HISTOGRAM_S / 2), abs(apart)

    return min(own, key=distance)


Part = tuple[int, Times, Counts, Counts]
"""A client, and the arrivals, prompts and outputs of its requests in one window."""


def _window(
    rate: Rate,
    start_s: float,
    length_s: float,
    own: Sequence[Lengths] | None,
    others: _Others,
    rng: np.random.Generator,
) -> Part:
    times = rate.start_s - start_s + _times(rate, rng)
    times = times[(times >= 0.0) & (times < length_s)]
    law = _nearest(own, rate.start_s) if own else others
    return rate.client, times, *law.draw(len(times), rng)


def _merged(parts: Sequence[Part]) -> list[Request]:
    clients = np.concatenate([np.full(len(part[1]), part[0]) for part in parts] or [np.empty(0, np.int64)])
    times, prompts, outputs = (np.concatenate([part[at] for part in parts] or [np.empty(0)]) for at in (1, 2, 3))
    order = np.argsort(times, kind="stable")
    columns = (np.arange(len(order)), times[order], prompts[order], outputs[order], clients[order])
    return [
        Request(time, (Segment(_KEYS + number, max(1, prompt)),), max(1, output), tenant=f"client-{client}")
        for number, time, prompt, output, client in zip(*(column.tolist() for column in columns), strict=True)
    ]
