"""What all connections of one gateway share."""

import asyncio
import os
import time
from collections.abc import Callable, Mapping
from itertools import count
from typing import TYPE_CHECKING, Final, cast

from headway.core.commands import LevelChanged
from headway.core.ids import RequestId
from headway.engines.base import NOWHERE
from headway.engines.continuation import UNSUPPORTED, Continuation
from headway.gateway.batching import Batcher
from headway.gateway.config import GatewayConfig
from headway.gateway.counting import Counter
from headway.gateway.driver import Driver
from headway.gateway.handover import Domains
from headway.gateway.head import HeadReader, RequestHead
from headway.gateway.headers import CorsLines
from headway.gateway.hints import Hints
from headway.gateway.identity import Identities
from headway.gateway.models import ModelList
from headway.gateway.notes import Notes
from headway.gateway.routes import Routes
from headway.gateway.slots import SlotKeeper
from headway.gateway.sweep import Soon, Sweeper
from headway.gateway.upstream import Pool
from headway.runtime.clock import now
from headway.telemetry import Telemetry
from headway.telemetry.access import Access, Account
from headway.wire.body import Body
from headway.wire.resume_pins import API, UNSTREAMED
from headway.wire.splice import Octets

if TYPE_CHECKING:
    from headway.gateway.protocol import ClientConnection

ENOUGH_REPORTS: Final = 32
"""Usage reports after which a model's bytes-per-token ratio counts as known (inject_usage: learn)."""


class Plane:
    """The shared parts of a gateway, wired by `Gateway`. `mint` makes request ids: 22 characters, never the prefix of
    another."""

    def __init__(self, config: GatewayConfig, reader: HeadReader, telemetry: Telemetry) -> None:
        self.config = config
        self.limits = config.limits
        timeouts = config.timeouts
        self.connect_s: Final = timeouts.connect_s  # here, because they are read several times per request
        self.first_byte_s: Final = timeouts.first_byte_s
        self.idle_s: Final = timeouts.idle_s
        self.reader = reader
        self.telemetry = telemetry
        self.routes = Routes(config.paths)
        self.cors = CorsLines(config.cors)
        self.identities = Identities()
        self.unread = Notes(RequestHead(b"", b"", b"1", b"", {}), None, config, self.cors)  # of a head that is none
        self.sweeper = Sweeper()
        self.soon = Soon()
        self.pool = Pool(reader, self.sweeper, timeouts.pool_idle_s)
        self.model_list = ModelList()
        self.models: frozenset[str] = frozenset()
        self.connections: set[ClientConnection] = set()
        self.nobody = asyncio.Event()
        self.draining = False
        self.body_bytes = 0
        self.turned_away = 0
        self.unanswered = 0
        self.usage_reports: dict[str, int] = {}
        self.levels: dict[str, int] = {}
        self.plain = config.moving is not None and config.moving.plain
        self.slots = SlotKeeper()
        self.domains = Domains(telemetry.moves)
        self.ways: dict[str, list[Continuation]] = {}  # model -> how its engines go on; empty while nothing may move
        self.counters: Mapping[str, Counter] = {}
        self.hints = Hints(lambda request: self.driver.prospect(request), config.hints_period_s)
        self.driver: Driver
        numbered = os.urandom(6).hex() + "%010x"
        self.mint = cast(Callable[[], RequestId], map(numbered.__mod__, count(1)).__next__)
        self.batcher = Batcher(config.batching, self.pool, self.mint) if config.batching else None

    def joined(self, connection: "ClientConnection") -> None:
        """A client connected."""
        self.connections.add(connection)
        self.sweeper.add(connection)
        self.nobody.clear()

    def left(self, connection: "ClientConnection") -> None:
        """A client's connection is gone."""
        self.connections.discard(connection)
        self.sweeper.discard(connection)
        if not self.connections:
            self.nobody.set()

    def wants_usage(self, model: str) -> bool:
        """Whether to ask engines for a usage report that the client did not ask for."""
        setting = self.config.inject_usage
        return setting == "always" or (setting == "learn" and self.usage_reports.get(model, 0) < ENOUGH_REPORTS)

    def usage_reported(self, model: str) -> None:
        """An engine reported its usage for a model of the fleet."""
        if model in self.models:
            self.usage_reports[model] = self.usage_reports.get(model, 0) + 1

    def pinned(self, parsed: Body, body: Octets, path: str) -> str:
        """Why a request may not go on elsewhere once it runs, "" if it may. Counted."""
        if not (parsed.stream or self.plain):
            return UNSTREAMED if parsed.generates else API
        why = parsed.pinned
        if not why:
            whys = [way.pinned(body, parsed, path) for way in self.ways.get(parsed.model, ())]
            why = "" if "" in whys else whys[0] if whys else UNSUPPORTED
        if why:
            self.telemetry.moves.pinned(why)
        return why

    def level_changed(self, entry: LevelChanged) -> None:
        """A model's service is degraded further, or less: `levels` holds those above 0, for response headers."""
        if entry.level:
            self.levels[entry.model] = entry.level
        else:
            self.levels.pop(entry.model, None)

    def note(self, head: RequestHead) -> Notes:
        """What follows from a head, worked out when it is first seen."""
        who = self.identities.of(head)
        head.notes = notes = Notes(head, self.routes.find(head.path), self.config, self.cors, who)
        return notes

    def set_models(self) -> None:
        """The fleet changed: the names that clients may use, and the list of models."""
        specs = {replica: target.spec for replica, target in self.pool.targets.items()}
        self.models = frozenset(name for spec in specs.values() for name in (spec.serves or (spec.model,)) if name)
        self.model_list.set_replicas(specs)
        self.ways = self._ways()

    def _ways(self) -> dict[str, list[Continuation]]:
        """How the engines of each model go on with what others began, where that is wanted and there is a way."""
        moving = self.config.moving
        ways: dict[str, list[Continuation]] = {}
        for target in self.pool.targets.values() if moving is not None else ():
            if target.dialect is not None and (way := target.dialect.continuation) != NOWHERE:
                for name in target.spec.serves or (target.spec.model,):
                    if way not in ways.setdefault(name, []):
                        ways[name].append(way)
        wanted = moving.models if moving is not None else frozenset()
        return {name: found for name, found in ways.items() if not wanted or name in wanted}

    def open(self, notes: Notes) -> Access:
        """A request began."""
        self.telemetry.started()
        access = Access(self.mint(), notes.method, notes.template, notes.client_request_id, now())
        access.tenant = notes.tenant
        return access

    def book(self, access: Access, account: Account, status: int, code: str = "", bytes_out: int = 0) -> None:
        """The request is over."""
        access.ended(time.time(), now(), account, status, code, bytes_out)
        self.telemetry.access(access)
