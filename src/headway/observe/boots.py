"""Telling one boot of an engine from the next, and a living report from a frozen one. Pure."""

import xxhash

from headway.core.replica import LoadSample
from headway.engines.base import Reading

COUNTERS = (
    "generated_tokens_total",
    "prompt_tokens_total",
    "preemptions_total",
    "prefix_hits_total",
    "prefix_queries_total",
)
SAME_BOOT_S = 1.0  # the boot time is one constant in the engine; a second allows for rounding


class Boots:
    """Numbers the reports of one boot: `epoch` is 1 for the first report of each."""

    def __init__(self) -> None:
        self.epoch = 0
        self.count = 0
        self._last: Reading | None = None

    def next_epoch(self, reading: Reading) -> int:
        """The epoch of this reading: one more than the last, or 1 when the engine was started anew."""
        if self._last is None or _restarted(self._last, reading):
            self.count += 1
            self.epoch = 0
        self._last = reading
        self.epoch += 1
        return self.epoch


def _restarted(before: Reading, now: Reading) -> bool:
    if before.started_at is not None and now.started_at is not None:
        return abs(before.started_at - now.started_at) > SAME_BOOT_S
    return any(_fell(name, before.sample, now.sample) for name in COUNTERS)


def _fell(name: str, before: LoadSample, now: LoadSample) -> bool:
    old, new = getattr(before, name), getattr(now, name)
    return old is not None and new is not None and new < old


class Stillness:
    """Since when a report has not changed by a single byte."""

    def __init__(self) -> None:
        self._digest = 0
        self._since = 0.0

    def unchanged_s(self, page: bytes, at: float) -> float:
        """Seconds for which this page has been the same as now."""
        digest = xxhash.xxh3_64_intdigest(page)
        if digest != self._digest:
            self._digest, self._since = digest, at
        return at - self._since
