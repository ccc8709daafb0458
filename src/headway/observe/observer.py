"""Keeps one watch per registered replica and ends it with the registration."""

import random
from collections.abc import Callable, Iterable, Mapping, Sequence

from headway.core.events import ProbeFailed, ProbeSucceeded, SampleTaken
from headway.core.ids import ReplicaId
from headway.core.plugin import Chance
from headway.core.replica import ReplicaSpec
from headway.engines import dcgm
from headway.engines.base import Dialect
from headway.observe.boots import Boots
from headway.observe.config import DEFAULTS, ObserveConfig
from headway.observe.devices import DeviceReader
from headway.observe.models import Cards
from headway.observe.status import ObserverCounts, ReplicaStatus
from headway.observe.watch import Watch
from headway.runtime import clock
from headway.runtime.http import Client
from headway.runtime.tasks import TaskSet

Seen = SampleTaken | ProbeSucceeded | ProbeFailed


class Observer:
    """Scrapes, probes and reads the cards of every watched replica; posts what it sees.

    `post` is called synchronously with SampleTaken, ProbeSucceeded and ProbeFailed. `keys` maps replica URLs to API
    keys; `exporters` are URLs of DCGM pages. `on_cards(id, cards)` hears of changed names and limits of models,
    `on_altered(id)` of engines that may be others than before: started anew, well again, or with changed cards.
    """

    def __init__(
        self,
        post: Callable[[Seen], None],
        dialects: Mapping[str, Dialect],
        client: Client,
        config: ObserveConfig = DEFAULTS,
        *,
        keys: Mapping[str, str] | None = None,
        exporters: Sequence[str] = (),
        on_cards: Callable[[ReplicaId, Cards], None] = lambda _id, _cards: None,
        on_altered: Callable[[ReplicaId], None] = lambda _id: None,
        chance: Chance | None = None,
    ) -> None:
        self._post = post
        self._dialects = dialects
        self._client = client
        self._config = config
        self._keys = keys or {}
        self._on_cards = on_cards
        self._on_altered = on_altered
        self._chance = chance or random.Random()
        self._tasks = TaskSet()
        self._watches: dict[ReplicaId, Watch] = {}
        self._gone = _Totals()
        self._readers = [DeviceReader(url, client, config) for url in exporters]
        self._reading = False

    def watch(self, specs: Iterable[ReplicaSpec]) -> None:
        """Watch exactly these replicas from now on. Known ones keep their watch; of others nothing is posted any more.

        Must be called inside the running loop.
        """
        if not self._reading:
            self._reading = True
            for reader in self._readers:
                self._tasks.spawn(reader.run(), "devices")
        wanted = {spec.id: spec for spec in specs}
        for replica_id in [known for known in self._watches if known not in wanted]:
            self._end(replica_id)
        for replica_id, spec in wanted.items():
            current = self._watches.get(replica_id)
            if current is not None and current.takes(spec):
                current.take(spec)
                continue
            if current is not None:
                self._end(replica_id)
            self._watches[replica_id] = self._begin(spec, current.scraper.boots if current else None)

    def probe(self, replica_id: ReplicaId) -> None:
        """Probe a replica now (the brain's Probe command). Unknown ids are ignored: they were removed meanwhile."""
        if watch := self._watches.get(replica_id):
            watch.prober.ask()

    def warm_up(self, replica_id: ReplicaId) -> None:
        """Have a replica generate a token (the brain's WarmUp command), which counts as a probe."""
        if watch := self._watches.get(replica_id):
            watch.prober.ask_warm_up()

    def cards(self) -> dict[ReplicaId, Cards]:
        """The last known model cards of every replica that ever gave some, as the engine wrote them."""
        return {replica_id: watch.models.cards for replica_id, watch in self._watches.items() if watch.models.cards}

    def status(self) -> tuple[ReplicaStatus, ...]:
        """Every watched replica, by id."""
        now = clock.now()
        return tuple(self._watches[replica_id].status(now) for replica_id in sorted(self._watches))

    def counts(self) -> ObserverCounts:
        """Totals, those of replicas that are gone included."""
        now, gone = clock.now(), self._gone
        watches = list(self._watches.values())
        return ObserverCounts(
            replicas=len(watches),
            scrapes_total=gone.scrapes + sum(w.scraper.scrapes for w in watches),
            scrape_failures_total=gone.scrape_failures + sum(w.scraper.failures for w in watches),
            probes_total=gone.probes + sum(w.prober.probes for w in watches),
            probe_failures_total=gone.probe_failures + sum(w.prober.failures for w in watches),
            alarms_total=gone.alarms + sum(w.scraper.alarms.total for w in watches),
            missing_gauges=sum(len(w.scraper.reading.missing) for w in watches if w.scraper.reading),
            frozen=sum(w.scraper.frozen for w in watches),
            stale=sum(w.is_stale(now) for w in watches),
        )

    async def stop(self) -> None:
        """End every watch; nothing is posted afterwards."""
        for replica_id in list(self._watches):
            self._end(replica_id)
        await self._tasks.close()

    def _begin(self, spec: ReplicaSpec, earlier: Boots | None) -> Watch:
        key = self._keys.get(spec.url, "")
        dialect = self._dialects.get(spec.engine) or self._dialects["openai"]
        boots = earlier.go_on() if earlier is not None else Boots()
        watch = Watch(spec, dialect, key, self._client, self._config, self._chance, self._post, self._devices, boots)
        watch.models_changed = self._on_cards
        watch.altered = self._on_altered
        watch.start(self._tasks)
        return watch

    def _end(self, replica_id: ReplicaId) -> None:
        watch = self._watches.pop(replica_id)
        watch.stop()
        self._gone.add(watch)

    def _devices(self) -> list[dcgm.Device]:
        return [device for reader in self._readers for device in reader.devices]


class _Totals:
    """What was counted at replicas that are no longer watched."""

    def __init__(self) -> None:
        self.scrapes = self.scrape_failures = self.probes = self.probe_failures = self.alarms = 0

    def add(self, watch: Watch) -> None:
        self.scrapes += watch.scraper.scrapes
        self.scrape_failures += watch.scraper.failures
        self.probes += watch.prober.probes
        self.probe_failures += watch.prober.failures
        self.alarms += watch.scraper.alarms.total
