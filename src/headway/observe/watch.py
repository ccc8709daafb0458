"""Everything that looks at one registration of a replica: its scraper, its prober, its model cards."""

from asyncio import Task
from collections.abc import Callable, Sequence
from typing import Any

import structlog

from headway.core.events import ProbeFailed, ProbeSucceeded, SampleTaken
from headway.core.ids import ReplicaId
from headway.core.plugin import Chance
from headway.core.replica import ReplicaSpec
from headway.engines import dcgm
from headway.engines.base import Dialect
from headway.observe.boots import Boots
from headway.observe.config import ObserveConfig
from headway.observe.models import Cards, ModelCards
from headway.observe.pace import Pace
from headway.observe.polling import Poller
from headway.observe.prober import Prober
from headway.observe.scraper import Scraper
from headway.observe.status import ReplicaStatus
from headway.runtime.http import Client
from headway.runtime.tasks import TaskSet

log = structlog.get_logger(__name__)

STALE_INTERVALS = 6.0
STALE_OWN_INTERVALS = 2.5
"""Reports are stale after so many intervals as set, or, where longer, as paced for a slow engine."""


class Watch:
    """One registration under observation. After `stop` nothing more is posted, not even by work under way."""

    def __init__(
        self,
        spec: ReplicaSpec,
        dialect: Dialect,
        key: str,
        client: Client,
        config: ObserveConfig,
        chance: Chance,
        post: Callable[[SampleTaken | ProbeSucceeded | ProbeFailed], None],
        devices: Callable[[], Sequence[dcgm.Device]],
        boots: Boots,
    ) -> None:
        headers = {"authorization": f"Bearer {key}"} if key else {}
        base = spec.url.rstrip("/")
        poller = Poller(client, base, dialect.polls, headers, config)
        self.scraper = Scraper(spec, dialect, poller, Pace(config, chance), config, self._pass_on, devices, boots)
        self.prober = Prober(spec, base + dialect.health_path, headers, client, config, chance, self._pass_on)
        self.models = ModelCards(base, headers, client, config, self._new_cards)
        self.models_changed: Callable[[ReplicaId, Cards], None] = lambda _id, _cards: None
        self.scraper.on_refused = self.prober.ask
        self.altered: Callable[[ReplicaId], None] = lambda _id: None
        self.scraper.on_boot = self.prober.on_return = self._anew
        self._listed = False
        self._interval_s = config.interval_s
        self._post = post
        self._over = False
        self._running: list[Task[Any]] = []

    def start(self, tasks: TaskSet) -> None:
        """Begin to look."""
        spec = self.scraper.spec
        self._running = [tasks.spawn(self.prober.run(), f"probe {spec.id}")]
        self._running.append(tasks.spawn(self.models.run(), f"cards {spec.id}"))
        if self.has_report:
            self._running.append(tasks.spawn(self.scraper.run(), f"scrape {spec.id}"))
        elif self.scraper.dialect.polls:
            log.info("this engine has no load report: only our own requests are counted", replica=spec.id)

    def stop(self) -> None:
        """Look no more. Tasks end by themselves soon after."""
        self._over = True
        for task in self._running:
            task.cancel()

    @property
    def has_report(self) -> bool:
        """Whether this engine reports its load."""
        return self.scraper.spec.metrics and bool(self.scraper.dialect.polls)

    def takes(self, spec: ReplicaSpec) -> bool:
        """Whether new facts about the replica can be taken over without starting anew."""
        own = self.scraper.spec
        return (own.url, own.engine, own.metrics) == (spec.url, spec.engine, spec.metrics)

    def take(self, spec: ReplicaSpec) -> None:
        """Take over new facts about the replica."""
        self.scraper.spec = self.prober.spec = spec

    def is_stale(self, now: float) -> bool:
        """Whether a report that should be there is missing, or old even for an engine that is asked as rarely."""
        scraper = self.scraper
        if not self.has_report or scraper.sampled_at is None:
            return self.has_report
        old_s = max(STALE_INTERVALS * self._interval_s, STALE_OWN_INTERVALS * scraper.sampled_every_s)
        return now - scraper.sampled_at > old_s

    def status(self, now: float) -> ReplicaStatus:
        """What is known at `now`."""
        scraper, prober, reading = self.scraper, self.prober, self.scraper.reading
        return ReplicaStatus(
            id=scraper.spec.id,
            url=scraper.spec.url,
            engine=scraper.spec.engine,
            sample_age_s=None if scraper.sampled_at is None else now - scraper.sampled_at,
            interval_s=scraper.pace.interval_s,
            scrape_ms=scraper.took_s * 1e3,
            scrapes=scraper.scrapes,
            failures=scraper.failures,
            error=scraper.error,
            missing=reading.missing if reading else (),
            frozen=scraper.frozen,
            boots=scraper.boots.count,
            rejections_total=reading.rejections_total if reading else None,
            health=prober.health,
            probes=prober.probes,
        )

    def _pass_on(self, event: SampleTaken | ProbeSucceeded | ProbeFailed) -> None:
        if not self._over:
            self._post(event)

    def _anew(self) -> None:
        self.models.ask()
        if not self._over:
            self.altered(self.scraper.spec.id)

    def _new_cards(self, cards: Cards) -> None:
        if self._over:
            return
        self.models_changed(self.scraper.spec.id, cards)
        if self._listed:  # the first ones are as old as the registration
            self.altered(self.scraper.spec.id)
        self._listed = True
