"""What all connections of one gateway share, and the record that each request leaves behind."""

import asyncio
import os
import time
from collections.abc import Callable
from itertools import count
from typing import TYPE_CHECKING, cast

from headway.core.ids import ReplicaId, RequestId
from headway.gateway.config import GatewayConfig
from headway.gateway.driver import Driver
from headway.gateway.head import HeadReader, RequestHead
from headway.gateway.headers import CorsLines
from headway.gateway.models import ModelList
from headway.gateway.notes import Notes
from headway.gateway.routes import Routes
from headway.gateway.sweep import Soon, Sweeper
from headway.gateway.upstream import Pool
from headway.runtime.clock import now
from headway.telemetry import Telemetry
from headway.telemetry.access import Access, Account

if TYPE_CHECKING:
    from headway.gateway.protocol import ClientConnection

ENOUGH_REPORTS = 32
"""Usage reports after which a model's bytes-per-token ratio counts as known (inject_usage: learn)."""


class Ticket:
    """What will be booked about one request. Filled in along the way, booked once."""

    __slots__ = (
        "asked_at", "attempts", "bytes_in", "cached_tokens", "first_token_at", "model", "notes", "output_tokens",
        "prompt_tokens", "queued_s", "replica", "request_id", "started_at", "stream",
    )  # fmt: skip

    def __init__(self, request_id: RequestId, notes: Notes) -> None:
        self.request_id = request_id
        self.notes = notes
        self.started_at = self.asked_at = now()
        self.queued_s = 0.0
        self.model = "other"
        self.replica = ""
        self.attempts = 0
        self.first_token_at: float | None = None
        self.stream = False
        self.bytes_in = 0
        self.prompt_tokens = self.cached_tokens = self.output_tokens = 0

    def attempted(self, replica: ReplicaId) -> None:
        """A replica is tried."""
        if not self.attempts:
            self.queued_s = now() - self.asked_at
        self.attempts += 1
        self.replica = replica


class Plane:
    """The shared parts of a gateway, wired by `Gateway`. `mint` makes request ids: 22 characters, never the prefix of
    another."""

    def __init__(self, config: GatewayConfig, reader: HeadReader, telemetry: Telemetry) -> None:
        self.config = config
        self.limits = config.limits
        self.reader = reader
        self.telemetry = telemetry
        self.routes = Routes(config.paths)
        self.cors = CorsLines(config.cors)
        self.unread = Notes(RequestHead(b"", b"", b"1", b"", {}), None, config, self.cors)  # of a head that is none
        self.sweeper = Sweeper()
        self.soon = Soon()
        self.pool = Pool(reader, self.sweeper, config.timeouts.pool_idle_s)
        self.model_list = ModelList()
        self.models: frozenset[str] = frozenset()
        self.connections: set[ClientConnection] = set()
        self.nobody = asyncio.Event()
        self.draining = False
        self.body_bytes = 0
        self.turned_away = 0
        self.unanswered = 0
        self.usage_reports: dict[str, int] = {}
        self.driver: Driver
        numbered = os.urandom(6).hex() + "%010x"
        self.mint = cast(Callable[[], RequestId], map(numbered.__mod__, count(1)).__next__)

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

    def note(self, head: RequestHead) -> Notes:
        """What follows from a head, worked out when it is first seen."""
        head.notes = notes = Notes(head, self.routes.find(head.path), self.config, self.cors)
        return notes

    def set_models(self) -> None:
        """The fleet changed: the names that clients may use, and the list of models."""
        specs = {replica: target.spec for replica, target in self.pool.targets.items()}
        self.models = frozenset(name for spec in specs.values() for name in (spec.serves or (spec.model,)) if name)
        self.model_list.set_replicas(specs)

    def book(self, ticket: Ticket, account: Account, status: int, code: str = "", bytes_out: int = 0) -> None:
        """The request is over."""
        at = now()
        notes, first = ticket.notes, ticket.first_token_at
        self.telemetry.access(
            Access(
                time.time(),
                ticket.request_id,
                notes.method,
                notes.template,
                status,
                account,
                ticket.model,
                notes.client_request_id,
                "",  # tenant
                code,
                ticket.replica,
                ticket.attempts,
                ticket.queued_s,
                None if first is None else first - ticket.started_at,
                at - ticket.started_at,
                ticket.prompt_tokens,
                ticket.cached_tokens,
                ticket.output_tokens,
                ticket.bytes_in,
                bytes_out,
                ticket.stream,
            )
        )
