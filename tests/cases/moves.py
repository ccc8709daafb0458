"""What tests of moved requests share: a brain that lets them happen, orders to it, and streams to compare with."""

import json
import re
from typing import Any

from headway.core.constants import BrainConfig, FleetConfig, HealthConfig, MigrationConfig, RetryConfig
from headway.core.entries import Plan
from headway.core.events import Event, MigrateAsked
from headway.core.ids import ReplicaId, RequestId
from headway.gateway.config import GatewayConfig, Moving, Timeouts
from headway.runtime.clock import now
from tests.cases.house import House
from tests.harness.speaker import MODEL, Speaker, said
from tests.wire.engine import CHAT

QUEUE = ReplicaId("the queue")
"""Where an eviction goes."""

MOVABLE = GatewayConfig(port=0, inject_usage="never", moving=Moving())
HASTY = GatewayConfig(
    port=0,
    inject_usage="never",
    moving=Moving(hold_s=0.5, warm_s=0.5),
    timeouts=Timeouts(idle_s=1.0, first_byte_s=1.5),
)
PATIENT = BrainConfig(
    health=HealthConfig(slow_start_s=0.001, failures=10**9, failure_rate=2.0, avoid_s=0.001),
    fleet=FleetConfig(ramp_refresh_s=0.001),
    retry=RetryConfig(ratio=1.0, floor=100, attempts=9, tries=9, kills=10**9),
    migration=MigrationConfig(
        enabled=True, tick_s=1e6, cooldown_s=0.0, moves_max=99, evictions_max=99, failovers_max=99
    ),
)
"""A brain that never loses its trust in a replica: faults are to be met again and again."""

SAY: dict[str, Any] = {"messages": [{"role": "user", "content": "скажи привет, 你好 🙂"}], "max_tokens": 60}
ONCE: dict[str, Any] = {"prompt": "Once upon a time", "max_tokens": 60}


def wish(path: str, **more: Any) -> dict[str, Any]:
    """A streamed request."""
    return {"model": MODEL, "stream": True, **(SAY if path == CHAT else ONCE), **more}


def plain(data: bytes) -> bytes:
    """A stream without what tells one run from another, nor the fingerprint that is missing where we end it."""
    data = re.sub(rb',"system_fingerprint":"[^"]*"', b"", data)
    return re.sub(rb'"id":"[^"]*"', b'"id":"x"', data)


def undisturbed(path: str, body: dict[str, Any]) -> bytes:
    """What one engine would have said."""
    return plain(said(path, json.dumps(body).encode(), "undisturbed"))


def speak(house: House, **options: Any) -> None:
    """Make all engines generate."""
    for number, engine in enumerate(house.engines):
        engine.paths = Speaker(f"r{number}", **options).paths()


def running(house: House) -> RequestId:
    """The only request in flight."""
    [request] = house.gateway.plane.driver.exchanges
    return RequestId(request)


def move(house: House, request: RequestId, to: ReplicaId = ReplicaId("")) -> None:  # noqa: B008 a constant
    """Ask for a move, as an operator does. To the queue: as the rebalancer does when room is needed."""
    house.gateway.post(MigrateAsked(now(), request, to))


def obey(house: House) -> None:
    """Have the brain take orders for evictions, too."""
    brain: Any = house.brain
    usual = brain._on[MigrateAsked]

    def asked(event: Event, out: list[Any]) -> None:
        assert isinstance(event, MigrateAsked)
        if event.replica_id != QUEUE:
            usual(event, out)
            return
        job = brain._jobs.get(event.request_id)
        entry = brain._fleet.ledger.entries.get(job.attempt) if job is not None and job.attempt else None
        if entry is not None and brain._migration.may_move(entry, event.at):
            brain._migration.begin(Plan(entry, None, "test"), event.at, out)

    brain._on[MigrateAsked] = asked
