"""Plain-number counters and histograms for the per-request path, and the bound on how many there may be.

A metrics library's counters take a lock and look labels up on every call; these are only read when a scrape asks.
Everything here runs on one thread.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator
from typing import Final, TypeVar

from headway.core.outcome import OutcomeKind
from headway.telemetry.access import Access, Account

Cell = TypeVar("Cell")

LATENCY_BOUNDS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 180.0, 600.0)
"""From a cached small answer to the longest generation the default timeouts allow."""

MAX_CELLS: Final = 2048
"""Hard cap on the label combinations of one table. Labels are bounded where they are made; this is the second lock."""


def others(labels: tuple[str, ...]) -> tuple[str, ...]:
    """Every label "other"."""
    return ("other",) * len(labels)


class Histogram:
    """Counts per bucket (upper bounds inclusive, as Prometheus has it) and a sum."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: tuple[float, ...] = LATENCY_BOUNDS_S) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        """Count one value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def cumulative(self) -> list[tuple[str, int]]:
        """(upper bound, count at or below it) pairs, the last bound being +Inf."""
        pairs: list[tuple[str, int]] = []
        running = 0
        for bound, count in zip((*self.bounds, "+Inf"), self.counts, strict=True):
            running += count
            pairs.append((str(bound), running))
        return pairs


class Counter:
    """A number that only grows."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0


class ModelTally:
    """What is summed per model."""

    __slots__ = (
        "bytes_in",
        "bytes_out",
        "cached_tokens",
        "duration",
        "output_tokens",
        "prompt_tokens",
        "queue",
        "retries",
        "ttft",
    )

    def __init__(self) -> None:
        self.duration = Histogram()
        self.ttft = Histogram()
        self.queue = Histogram()
        self.prompt_tokens = self.cached_tokens = self.output_tokens = 0
        self.bytes_in = self.bytes_out = self.retries = 0

    def ended(self, access: Access) -> None:
        """Add one request."""
        self.duration.observe(access.duration_s)
        self.bytes_in += access.bytes_in
        self.bytes_out += access.bytes_out
        if not access.attempts:
            return
        self.queue.observe(access.queued_s)
        self.retries += access.attempts - 1
        self.prompt_tokens += access.prompt_tokens
        self.cached_tokens += access.cached_tokens
        self.output_tokens += access.output_tokens
        if access.ttft_s is not None:
            self.ttft.observe(access.ttft_s)


class RequestTally(Counter):
    """A count of requests, and where their model is summed."""

    __slots__ = ("model",)

    def __init__(self, model: ModelTally) -> None:
        super().__init__()
        self.model = model


class TenantTally:
    """What is summed per tenant: requests by account, and tokens."""

    __slots__ = ("accounts", "output_tokens", "prompt_tokens")

    def __init__(self) -> None:
        self.accounts: dict[Account, int] = {}
        self.prompt_tokens = self.output_tokens = 0

    def ended(self, access: Access) -> None:
        """Add one request."""
        self.accounts[access.account] = self.accounts.get(access.account, 0) + 1
        self.prompt_tokens += access.prompt_tokens
        self.output_tokens += access.output_tokens


class ReplicaTally:
    """Attempts of one replica by outcome."""

    __slots__ = ("ok", "others")

    def __init__(self) -> None:
        self.ok = 0
        self.others: dict[OutcomeKind, int] = {}

    def outcomes(self) -> Iterator[tuple[str, int]]:
        """Each kind of outcome that occurred, with its count."""
        yield OutcomeKind.OK.value, self.ok
        for kind, count in self.others.items():
            yield kind.value, count


class Table(dict[tuple[str, ...], Cell]):
    """Cells by label values. Once full, new combinations share cells whose labels `fold` has coarsened."""

    def __init__(
        self,
        make: Callable[[tuple[str, ...]], Cell],
        limit: int = MAX_CELLS,
        fold: Callable[[tuple[str, ...]], tuple[str, ...]] = others,
    ) -> None:
        super().__init__()
        self._make = make
        self._limit = limit
        self._fold = fold

    def __missing__(self, labels: tuple[str, ...]) -> Cell:
        if len(self) >= self._limit:
            labels = self._fold(labels)
            if labels in self:
                return self[labels]
        cell = self[labels] = self._make(labels)
        return cell
