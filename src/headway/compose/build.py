"""Body one, assembled: the only place where brain, data plane, observation, sources, admin port and logs meet."""

import asyncio
import signal
from collections.abc import Callable

import structlog

from headway.admin import AdminServer, make_app
from headway.compose.certificates import CertificateWatch
from headway.compose.clients import Clients, KeyWatch
from headway.compose.control import AppControl
from headway.compose.fleet import Fleet
from headway.compose.gauges import watch_certificates, watch_clients, watch_observer, watch_plane
from headway.compose.journal import JournalWriter
from headway.compose.plan import Plan, make_plan
from headway.compose.registry import Registry, find
from headway.compose.restart import Restarter, watch_restarts
from headway.compose.settings import Settings
from headway.compose.tls import owns
from headway.compose.twins import TWINS, twins
from headway.coordinate.base import Source, Undetected
from headway.coordinate.local import Local
from headway.coordinate.registry import replica_name
from headway.coordinate.static import Static
from headway.core.ids import ReplicaId
from headway.core.replica import ReplicaSpec
from headway.gateway import Gateway
from headway.observe import ObserveConfig, Observer
from headway.observe.detect import detect
from headway.observe.models import Cards
from headway.runtime import http
from headway.runtime.parent import parent_gone
from headway.runtime.tasks import TaskSet
from headway.telemetry import Access, Telemetry

log = structlog.get_logger(__name__)

ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
"""A terminal that is closed, or whoever hopes for settings to be read again, must not cut streams."""

LEAVE_S = 0.3
"""What may still take time after the drain: the admin port's last answers."""


def build_gateway(
    settings: Settings, registry: Registry | None = None, access_log: Callable[[Access], None] | None = None
) -> "App":
    """A gateway process from settings. Raises SettingsError or PluginError; opens nothing yet."""
    registry = registry or find()
    return App(make_plan(settings, registry), registry, access_log)


class App:
    """One gateway process. Call `start` and `stop` inside a running loop, or `run` for both with signals between."""

    gateway: Gateway
    observer: Observer
    fleet: Fleet

    def __init__(self, plan: Plan, registry: Registry, access_log: Callable[[Access], None] | None = None) -> None:
        self.plan = plan
        self.telemetry = Telemetry(access_log=access_log)
        self.draining = False
        self.port = 0
        self.admin_port = 0
        self._registry = registry
        self._sources = TaskSet()
        self._serving = TaskSet()
        self._admin: AdminServer | None = None
        self._journal: JournalWriter | None = None
        self.key_watch: KeyWatch | None = None
        self._certificates: CertificateWatch | None = None

    async def start(self) -> None:
        """Open both ports and begin to look for replicas. Raises OSError when a port or the journal cannot be, and
        leaves nothing open then."""
        self._assemble()
        try:
            if self.plan.settings.admin.enabled:
                self._open_admin()
            await self.gateway.start()
        except OSError:
            await self.gateway.stop(0.0)
            await self._close()
            raise
        self.port = self.gateway.port
        recipe = self.plan.recipe
        log.info("listening", port=self.port, admin_port=self.admin_port, policy=recipe.policy, seed=recipe.seed)
        if self.key_watch is not None:
            self._sources.spawn(self.key_watch.run(), "file of keys")
        if self._certificates is not None:
            self._sources.spawn(self._certificates.run(), "certificates")
        self._sources.spawn(self._tell_twins(), "twins")
        for source in self._list_sources():
            self._sources.spawn(source.run(self.fleet.publisher(source.name)), f"source {source.name}")

    async def stop(self, drain_s: float | None = None) -> None:
        """Drain (readiness falls at once), then close everything. The admin port answers until the end."""
        self.draining = True
        await self.gateway.stop(self.plan.gateway.timeouts.drain_s if drain_s is None else drain_s)
        await self._close()
        log.info("stopped", started=self.telemetry.requests_started, **self.telemetry.accounts)

    async def _close(self) -> None:
        await self._sources.close()
        await self._restarter.close()
        await self.observer.stop()
        if self._admin is not None:
            self._admin.stop()
        await self._serving.close(grace_s=LEAVE_S)
        await self._client.close()
        if self._journal is not None:
            self._journal.close()

    async def run(
        self, started: Callable[["App"], None] = lambda _app: None, *, exit_with_parent: bool = False
    ) -> None:
        """Serve until a signal of `ENDING`, then drain; a second one cuts the drain short, and so does the end of the
        process that started this one, if that is wanted."""
        first, second = asyncio.Event(), asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in ENDING:
            if number == signal.SIGHUP and signal.getsignal(number) is signal.SIG_IGN:
                continue  # by nohup: the terminal may go, this process stays
            loop.add_signal_handler(number, lambda: second.set() if first.is_set() else first.set())
        await self.start()
        if exit_with_parent:
            self._sources.spawn(self._leave_with_parent(first, second), "parent")
        try:
            started(self)
        except OSError:
            await self.stop(drain_s=0.0)
            raise
        await first.wait()
        log.info("draining", seconds=self.plan.gateway.timeouts.drain_s, in_flight=self.gateway.snapshot().in_flight)
        async with TaskSet() as ending:
            drained = ending.spawn(self.stop(), "drain")
            hurried = ending.spawn(second.wait(), "second signal")
            await asyncio.wait((drained, hurried), return_when=asyncio.FIRST_COMPLETED)
            if not drained.done():
                log.warning("a second signal: cutting what still runs")
                await ending.cancel(drained)
                await self.stop(drain_s=0.0)

    async def _leave_with_parent(self, *ends: asyncio.Event) -> None:
        await parent_gone()
        log.warning("the process that started this one is gone")
        for end in ends:
            end.set()

    async def detect(self, url: str) -> ReplicaSpec | Undetected:
        """Find out what listens at a URL, with the key the settings give it."""
        self.plan.keys.setdefault(url, self.plan.common_key)
        dialects = self.plan.dialects.values()
        suggestion = ReplicaId(replica_name(url))
        return await detect(url, dialects, self._client, replica_id=suggestion, key=self.plan.keys[url])

    def _assemble(self) -> None:
        plan, settings = self.plan, self.plan.settings
        if settings.journal is not None:
            self._journal = JournalWriter(settings.journal, plan.recipe.header())
        self._client = http.client(connect_s=settings.timeouts.connect_s, tls=plan.gateway.client_tls)
        brain = plan.recipe.brain(self._registry)
        self.gateway = Gateway(brain, plan.gateway, plan.dialects, self.telemetry, self._journal)
        self.gateway.plane.counters = plan.counters
        self.observer = Observer(
            self.gateway.post,
            plan.dialects,
            self._client,
            ObserveConfig(interval_s=settings.observe.interval_s),
            keys=plan.keys,
            exporters=settings.observe.dcgm_exporters,
            on_cards=self._new_cards,
            on_altered=self._look_again,
        )
        self.fleet = Fleet(
            self.gateway.post,
            self.observer.watch,
            self.detect,
            settings.models,
            plan.dialects,
            plan.entries,
            own=lambda: [(settings.listen.host, self.port), (settings.admin.host, self.admin_port)],
        )
        self.gateway.on_probe(self.observer.probe)
        self.gateway.on_warm_up(self.observer.warm_up)
        self._restarter = Restarter(settings.degradation.restart, self._client, self._url_of)
        self.gateway.on_restart(self._restarter)
        self._admit_clients()
        shown = owns(settings.listen.tls, plan.gateway.server_tls, settings.upstream.tls, plan.gateway.client_tls)
        if shown:
            self._certificates = CertificateWatch(shown)
            watch_certificates(self.telemetry, self._certificates)
        watch_restarts(self.telemetry, self._restarter)
        watch_observer(self.telemetry, self.observer)
        watch_plane(self.telemetry, self.gateway.plane)

    def _admit_clients(self) -> None:
        """Without a file of keys everybody is served, and there are no tenants."""
        plan, file = self.plan, self.plan.settings.keys_file
        if file is None:
            return
        clients = Clients(plan.tenants, self.gateway.set_identities, self.gateway.post, self.telemetry)
        clients.apply(plan.client_keys)
        self.key_watch = KeyWatch(file, plan.client_keys, clients.apply)
        watch_clients(self.telemetry, clients, self.key_watch)

    def _url_of(self, replica_id: ReplicaId) -> str:
        target = self.gateway.plane.pool.targets.get(replica_id)
        return target.spec.url if target is not None else ""

    def _open_admin(self) -> None:
        admin = self.plan.settings.admin
        app = make_app(AppControl(self), self.telemetry, self.plan.admin_token)
        self._admin = AdminServer(app, admin.host, admin.port)
        self.admin_port = self._admin.bind()
        self._serving.spawn(self._admin.serve(), "admin port")

    def _list_sources(self) -> list[Source]:
        sources: list[Source] = []
        if self.plan.entries:
            sources.append(Static(self.plan.entries, self.detect))
        if self.plan.settings.observe.discover:
            sources.append(Local(self.plan.dialects.values(), self.detect))
        return sources

    async def _tell_twins(self) -> None:
        for first, second in await twins(entry.url for entry in self.plan.entries):
            log.warning(TWINS, first=first, second=second)

    def _new_cards(self, replica_id: ReplicaId, cards: Cards) -> None:
        self.gateway.set_cards({replica_id: cards})
        self.fleet.new_cards(replica_id, cards)

    def _look_again(self, replica_id: ReplicaId) -> None:
        if not self.draining:
            self._sources.spawn(self.fleet.look_again(replica_id), f"look again {replica_id}")
