"""The load reports of one replica: one scrape in flight, paced, stamped with the time it was asked for, never trusted.

What arrives is posted as SampleTaken. A failed, frozen or unreadable report posts nothing, so that the replica's
sample ages and the brain falls back to counting requests.
"""

import asyncio
from collections.abc import Callable, Sequence

import msgspec
import structlog

from headway.core.events import SampleTaken
from headway.core.replica import ReplicaSpec
from headway.engines import dcgm
from headway.engines.base import Dialect, Reading
from headway.observe.alarms import Alarms
from headway.observe.boots import Boots, Stillness
from headway.observe.config import ObserveConfig
from headway.observe.pace import Pace
from headway.observe.polling import Polled, Poller
from headway.runtime import clock

log = structlog.get_logger(__name__)

FROZEN = "the load report does not change any more"
CUT = "the load report is longer than the cap and was cut"
UNREADABLE = "the dialect failed on a load report"
MUTE = "the load report tells nothing of the load, and is not read as zero"
NONE = "no load report can be had"
PATIENCE = 3
"""So many rounds in a row without a report are told of; one or two are an engine that starts."""


class Scraper:
    """Scrapes one replica until cancelled. `spec` may be replaced while it runs.

    `on_refused()` is called when nobody listens any more, `on_boot()` when the engine was started anew. `boots` goes on
    where an earlier watch over the same registration ended.
    """

    def __init__(
        self,
        spec: ReplicaSpec,
        dialect: Dialect,
        poller: Poller,
        pace: Pace,
        config: ObserveConfig,
        post: Callable[[SampleTaken], None],
        devices: Callable[[], Sequence[dcgm.Device]],
        boots: Boots | None = None,
    ) -> None:
        self.spec = spec
        self.dialect = dialect
        self.pace = pace
        self.boots = boots or Boots()
        self.alarms = Alarms(spec.id)
        self.on_refused: Callable[[], None] = lambda: None
        self.on_boot: Callable[[], None] = lambda: None
        self.scrapes = self.failures = 0
        self.took_s = 0.0
        self.error = ""
        self.frozen = False
        self.reading: Reading | None = None
        self.sampled_at: float | None = None
        self.sampled_every_s = 0.0
        self._poller = poller
        self._config = config
        self._post = post
        self._devices = devices
        self._still = Stillness()
        self._rest_s = 0.0

    async def run(self) -> None:
        """Scrape for ever."""
        while True:
            await self.scrape()
            await asyncio.sleep(self._rest_s)

    async def scrape(self) -> bool:
        """One scrape; whether it gave a sample in good order (a cut page gives one, and is still asked for less)."""
        taken_at = clock.now()
        polled = await self._poller.ask(taken_at)
        self.took_s = clock.now() - taken_at
        self.scrapes += 1
        self.error = "; ".join(polled.errors)
        reading = self._read(polled, taken_at)
        self._rest_s = self.pace.after(self.took_s, reading is not None and not polled.cut and not reading.mute)
        if not (polled.refused or polled.ours):  # who is gone is the prober's news
            self._note(NONE, not polled.answers, self.pace.failures >= PATIENCE)
        if reading is None:
            self.failures += 1
            if polled.refused:
                self.on_refused()
            return False
        self._deliver(reading, taken_at)
        return not polled.cut

    def _read(self, polled: Polled, taken_at: float) -> Reading | None:
        self.frozen = bool(polled.answers) and self._is_frozen(polled.answers, taken_at)
        self._note(CUT, polled.cut)
        self._note(FROZEN, self.frozen)
        if not polled.answers or self.frozen:
            self.error = self.error or (FROZEN if self.frozen else "no load report")
            return None
        spec = self.spec
        try:
            return self.dialect.read(polled.answers, spec.id, spec.model, taken_at, self.boots.epoch + 1)
        except Exception as error:  # noqa: BLE001 - a third party's dialect must not end the scraping of its replica
            self.error = f"{UNREADABLE}: {error!r}"
            self.alarms.trouble(UNREADABLE, repr(error))
            return None

    def _deliver(self, reading: Reading, taken_at: float) -> None:
        if self.boots.take(reading):
            log.info("an engine was started anew", replica=self.spec.id)
            self.alarms.forget()
            self.on_boot()
        self._note(MUTE, reading.mute, detail=", ".join(reading.missing))
        if not reading.mute:
            self.alarms.check(reading.missing)
        sample = msgspec.structs.replace(reading.sample, interval_s=self.pace.interval_s, boot=self.boots.count)
        if memory := dcgm.memory(self._devices(), self.spec.labels):
            sample = msgspec.structs.replace(sample, device_free_bytes=memory[0], device_total_bytes=memory[1])
        self.reading, self.sampled_at, self.sampled_every_s = reading, taken_at, self.pace.interval_s
        self._post(SampleTaken(clock.now(), sample))

    def _is_frozen(self, answers: dict[str, bytes], at: float) -> bool:
        beating = [page for page in answers.values() if self.dialect.heartbeat and self.dialect.heartbeat in page]
        return bool(beating) and self._still.unchanged_s(b"".join(beating), at) >= self._config.frozen_s

    def _note(self, what: str, now: bool, long_enough: bool = True, detail: str = "") -> None:
        if not now:
            self.alarms.over(what)
        elif long_enough:
            self.alarms.trouble(what, detail or self.error)
