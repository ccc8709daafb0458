"""The gateway as one object: binds, serves, drains, stops. All wiring inside the data plane happens here."""

import asyncio
from collections.abc import Callable, Mapping
from typing import cast

from headway.core.commands import Command
from headway.core.events import Event, ReplicasChanged
from headway.core.ids import ReplicaId, RequestId
from headway.core.snapshot import FleetSnapshot
from headway.engines.base import Dialect
from headway.gateway.config import GatewayConfig
from headway.gateway.driver import Brain, Driver
from headway.gateway.head import HeadReader
from headway.gateway.identity import Identities
from headway.gateway.models import Card
from headway.gateway.plane import Plane
from headway.gateway.protocol import ClientConnection
from headway.gateway.target import Target
from headway.runtime.tasks import TaskSet
from headway.telemetry import Telemetry

LAST_WORDS_S = 0.5  # after the drain: for in-band errors to reach clients


class Gateway:
    """Body one. `host` in the settings may name several addresses, separated by commas; `port` 0 takes a free one."""

    def __init__(
        self,
        brain: Brain,
        config: GatewayConfig,
        dialects: Mapping[str, Dialect],
        telemetry: Telemetry,
        journal: Callable[[Event, list[Command]], None] | None = None,
        probe: Callable[[ReplicaId], None] | None = None,
    ) -> None:
        self._config = config
        self._dialects = dialects
        headers = {name.lower() for dialect in dialects.values() for name, _ in dialect.request_headers}
        asked = (config.deadline_header, config.priority_header, config.policy_header, config.precision_header)
        reader = HeadReader(
            config.limits.max_headers,
            read=config.session_headers,
            dropped=(*sorted(headers), *asked, config.hints_header),
            samples=sorted({dialect.sample_header.lower() for dialect in dialects.values()}),
            own_cors=bool(config.cors.origins),
        )
        self._plane = Plane(config, reader, telemetry)
        self._driver = Driver(
            brain,
            telemetry,
            config.progress_tick_s,
            self._replicas_changed,
            journal,
            probe,
            level_changed=self._plane.level_changed,
        )
        self._plane.driver = self._driver
        self._servers: list[asyncio.Server] = []
        self._housekeeping = TaskSet()
        self._stopping = False

    def __repr__(self) -> str:
        return f"<Gateway on port {self.port}, {len(self._plane.connections)} connections>"

    @property
    def ready(self) -> bool:
        """Whether new requests are welcome."""
        return bool(self._servers) and not self._plane.draining

    @property
    def port(self) -> int:
        """The port that is listened on, 0 while none is."""
        sockets = [sock for server in self._servers for sock in server.sockets]
        return int(sockets[0].getsockname()[1]) if sockets else 0

    @property
    def plane(self) -> Plane:
        """The data plane's shared parts, for tests and gauges."""
        return self._plane

    def post(self, event: Event) -> None:
        """Hand an event to the brain."""
        self._driver.post(event)

    def snapshot(self) -> FleetSnapshot:
        """Every view now."""
        return self._driver.snapshot()

    def running(self, name: str) -> RequestId | None:
        """The id of a request in flight, by that or by the client's own (the latest that has it); None if there is
        none."""
        exchanges = self._driver.exchanges
        if name in exchanges:
            return RequestId(name)
        return next((i for i, exchange in reversed(exchanges.items()) if exchange.client_name == name), None)

    def on_probe(self, probe: Callable[[ReplicaId], None]) -> None:
        """Who performs Probe commands."""
        self._driver.probe = probe

    def on_warm_up(self, warm_up: Callable[[ReplicaId], None]) -> None:
        """Who performs WarmUp commands; while nobody does, a probe has to do."""
        self._driver.warm_up = warm_up

    def on_restart(self, restart: Callable[[ReplicaId, str], None]) -> None:
        """Who performs Restart commands, which say why."""
        self._driver.restart = restart

    def set_identities(self, identities: Identities) -> None:
        """Who may use the gateway, from the next request on: what was noted with heads is forgotten."""
        self._plane.identities = identities
        self._plane.reader.forget()

    def set_cards(self, cards: Mapping[ReplicaId, list[Card]]) -> None:
        """What engines answer to /v1/models, for the merged list."""
        self._plane.model_list.set_cards(cards)

    async def start(self) -> None:
        """Begin to listen. Raises OSError if an address cannot be bound."""
        config = self._config
        loop = asyncio.get_running_loop()
        port = config.port
        for host in config.host.split(","):
            server = await loop.create_server(
                lambda: cast(asyncio.BaseProtocol, ClientConnection(self._plane)),
                host.strip().strip("[]"),
                port,
                ssl=config.server_tls,
                backlog=config.backlog,
                reuse_address=True,
            )
            self._servers.append(server)
            port = port or self.port
        self._housekeeping.spawn(self._prune(), "prune idle connections")

    async def stop(self, drain_s: float | None = None) -> None:
        """Finish what is in flight for at most `drain_s` seconds (the setting's if None), then cut it, and close.

        A second call, even while the first still waits, cuts at once if its `drain_s` is 0.
        """
        plane = self._plane
        drain_s = self._config.timeouts.drain_s if drain_s is None else drain_s
        plane.draining = True
        if drain_s and not self._stopping and self._config.timeouts.drain_grace_s:
            await asyncio.sleep(min(drain_s, self._config.timeouts.drain_grace_s))
        self._stopping = True
        for server in self._servers:
            server.close()
        for connection in list(plane.connections):
            connection.drain()
        await self._wait_for_connections(drain_s)
        for connection in list(plane.connections):
            connection.shut_down()
        await self._wait_for_connections(LAST_WORDS_S)
        for connection in list(plane.connections):
            connection.transport.abort()
        self._driver.stop()
        plane.sweeper.stop()
        plane.hints.stop()
        await self._housekeeping.close()
        await plane.pool.close()

    async def _wait_for_connections(self, seconds: float) -> None:
        if self._plane.connections and seconds > 0:
            try:
                async with asyncio.timeout(seconds):
                    await self._plane.nobody.wait()
            except TimeoutError:
                return

    async def _prune(self) -> None:
        while True:
            await asyncio.sleep(1.0)
            self._plane.pool.prune()

    def _replicas_changed(self, event: ReplicasChanged) -> None:
        """Keep addresses and names in step with the brain, before it may send anything there."""
        pool = self._plane.pool
        for replica in event.removed:
            pool.remove(replica)
        for spec in event.upserted:
            pool.set_target(Target(spec, self._config, self._dialects.get(spec.engine)))
        self._plane.reader.forget()  # heads keep what they look like to each replica: also to those that are gone
        self._plane.set_models()
