"""What a replica's load reports say beyond what our ledger knows.

A report is never taken at its word: it is compared with what the ledger held when the report was requested, and only
the difference is kept until the next one. Reports that are outdated, partial or stuck are told from good ones here.
"""

from operator import attrgetter
from typing import Final

import msgspec

from headway.core.constants import FleetConfig
from headway.core.entries import Since
from headway.core.hindsight import Hindsight
from headway.core.ledger import Account
from headway.core.memory import Residual
from headway.core.replica import LoadSample

_MERGED: Final = tuple(
    name for name in LoadSample.__struct_fields__ if name not in ("replica_id", "taken_at", "epoch", "partial")
)
_MOVING: Final = ("kv_used_tokens", "kv_usage", "generated_tokens_total", "prompt_tokens_total")
"""Of the gauges, those that must change while tokens flow. (Counts of requests may well stay the same.)"""

_gauges = attrgetter(*_MOVING, "running", "waiting")  # all at once: a report has two dozen fields
_moving = attrgetter(*_MOVING)
_merged = attrgetter(*_MERGED)


class Gauges:
    """What a replica's load reports say beyond what our ledger knows.

    `kv`: tokens in the pool that are not ours (negative: ours that share blocks); `others`: requests that are not ours;
    `queue`: the engine's waiting count less our attempts in flight at that moment, None if it said that none waits;
    `awake_at`: when it was last reported awake; `lasts_s`: age at which the last report is stale. `hindsight`: how
    wrong we were about the pool. `cold`: why the last report says that the engine is cold ("woke", "started"), or "".
    """

    __slots__ = (
        "_moved", "_same", "awake_at", "cold", "epoch", "frozen", "hindsight", "kv", "lasts_s", "others", "queue",
        "sample", "sent_mark",
    )  # fmt: skip

    def __init__(self) -> None:
        self.sample: LoadSample | None = None
        self.lasts_s = 0.0
        self.epoch = 0
        self.kv = Residual()
        self.hindsight = Hindsight()
        self.others = 0
        self.queue: int | None = None
        self.sent_mark = 0
        self.awake_at = 0.0
        self.cold = ""
        self.frozen = False
        self._same = 0
        self._moved = 0

    def fold(self, sample: LoadSample, account: Account, capacity: int, config: FleetConfig) -> bool:
        """Take in a report. False if it is outdated: older than the last, or an epoch seen already.

        An engine that was silent until its last report was stale may have restarted: its epochs begin anew.
        """
        last = self.sample
        if last is not None:
            if sample.taken_at <= last.taken_at:
                return False
            silent = sample.taken_at - last.taken_at > self.lasts_s
            if 0 < sample.epoch <= self.epoch and not silent:
                return False
        if sample.epoch:
            self.epoch = sample.epoch
        if sample.sleep_level == 0:
            self.awake_at = sample.taken_at
        since = account.since(sample.taken_at)
        self._watch(sample, account, config)
        self._compare(sample, account, since, sample.kv_capacity_tokens or capacity)
        self.sample = merged = sample if last is None else _merge(last, sample)
        self.lasts_s = max(config.stale_after_s, config.stale_intervals * (merged.interval_s or 0.0))
        self.sent_mark = account.dispatched - since.dispatched
        self.cold = "" if last is None else _cold(last, merged)
        return True

    def _compare(self, sample: LoadSample, account: Account, since: Since, capacity: int) -> None:
        if sample.running is not None or sample.waiting is not None:
            waiting = sample.waiting if sample.waiting is not None else max(0, self._last("waiting"))
            running = sample.running if sample.running is not None else self._last("running")
            sent = account.in_flight - since.in_flight
            self.others = max(0, running + waiting - sent)
            self.queue = waiting - sent if waiting > 0 else None
        used = _used(sample, capacity)
        if used is not None:
            ledger = account.context - since.context
            if self.sample is not None and capacity:
                self._look_back(sample, used, ledger, account.prefill - since.prefill, account, capacity)
            difference = float(used - ledger)
            if difference > 0.0:  # prompts that are being prefilled hold some of what was promised
                difference = max(0.0, difference - (account.prefill - since.prefill))
            self.kv.push(difference)

    def _look_back(
        self, sample: LoadSample, used: int, ledger: int, filling: int, account: Account, capacity: int
    ) -> None:
        """Compare with what the reports before made us believe."""
        if self.frozen:
            self.hindsight.forget()
            return
        believed = max(0.0, ledger + self.foreign_tokens(account))
        self.hindsight.reported(sample.taken_at, used, believed, filling, account, capacity)

    def foreign_tokens(self, account: Account) -> float:
        """Tokens in the pool that are not ours. Negative are prefixes that several of ours share, which cannot be more
        than what was hit."""
        kv = self.kv.value
        return kv if kv > -account.hits else float(-account.hits)

    def _last(self, name: str) -> int:
        return int(getattr(self.sample, name, None) or 0)

    def _watch(self, sample: LoadSample, account: Account, config: FleetConfig) -> None:
        """Notice gauges that stand still while we know that tokens flow.

        A report of rest while nothing of ours runs is true whatever came before: an engine's last report may well have
        been ahead of the bytes that it still had to send.
        """
        last = self.sample
        if last is None or sample.partial:
            return
        moves = any(value is not None for value in _moving(sample))
        rests = not (account.in_flight or sample.running or sample.waiting)
        if rests or not moves or _gauges(sample) != _gauges(last):
            self._same, self.frozen = 0, False
            self._moved = account.generated + account.dispatched
            return
        self._same += 1
        flowed = account.generated + account.dispatched - self._moved
        if self._same >= config.frozen_samples and flowed >= config.frozen_tokens:
            self.frozen = True


def _cold(last: LoadSample, now: LoadSample) -> str:
    """What an engine went through between two reports that cost it its caches."""
    if last.boot and now.boot and now.boot > last.boot:
        return "started"
    return "woke" if last.sleep_level and now.sleep_level == 0 else ""


def _used(sample: LoadSample, capacity: int) -> int | None:
    if sample.kv_used_tokens is not None:
        return sample.kv_used_tokens
    if sample.kv_usage is not None and capacity:
        return round(sample.kv_usage * capacity)
    return None


def _merge(last: LoadSample, sample: LoadSample) -> LoadSample:
    """The new report, with what it leaves out kept from the last: missing is never zero."""
    values = _merged(sample)
    if None not in values:
        return sample
    kept, known = {}, _merged(last)
    for i, name in enumerate(_MERGED):
        if values[i] is None and known[i] is not None:
            kept[name] = known[i]
    return msgspec.structs.replace(sample, **kept) if kept else sample
