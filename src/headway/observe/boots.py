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
    """Numbers a replica's reports (`epoch`, growing over restarts too) and counts the starts of the engine."""

    def __init__(self, epoch: int = 0, count: int = 0) -> None:
        self.epoch = epoch
        self.count = count
        self._last: Reading | None = None

    def go_on(self) -> "Boots":
        """For another watch over the same registration: numbers go on. Whoever it finds counts as started anew."""
        return Boots(self.epoch, self.count)

    def take(self, reading: Reading) -> bool:
        """Count this reading; whether it comes from another boot than the one before."""
        restarted = self._last is not None and _restarted(self._last, reading)
        self.count += restarted or self._last is None
        self.epoch += 1
        self._last = reading
        return restarted


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
