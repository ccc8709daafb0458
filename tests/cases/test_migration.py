"""Requests that are moved while they run, over sockets: what a client gets is what one undisturbed replica would say."""

import asyncio
import json
import re
from typing import Any

import pytest

from headway.core.brain import Brain
from headway.core.constants import BrainConfig, FleetConfig, HealthConfig, MigrationConfig
from headway.core.events import MigrateAsked
from headway.core.ids import ReplicaId, RequestId
from headway.gateway.config import GatewayConfig, Moving
from headway.runtime.clock import now
from tests.cases.house import House, case, until
from tests.harness import scripts
from tests.harness.client import Answer, RawClient
from tests.harness.speaker import MODEL, Speaker, said
from tests.wire.engine import CHAT, COMPLETIONS

MOVABLE = GatewayConfig(port=0, moving=Moving())
BRAIN = BrainConfig(
    health=HealthConfig(slow_start_s=0.001),
    fleet=FleetConfig(ramp_refresh_s=0.001),
    migration=MigrationConfig(cooldown_s=0.0, moves_max=8),
)
SAY: dict[str, Any] = {"messages": [{"role": "user", "content": "скажи привет, 你好 🙂"}], "max_tokens": 60}
ONCE: dict[str, Any] = {"prompt": "Once upon a time", "max_tokens": 60}


def wish(path: str, **more: Any) -> dict[str, Any]:
    """A streamed request."""
    return {"model": MODEL, "stream": True, **(SAY if path == CHAT else ONCE), **more}


def plain(data: bytes) -> bytes:
    """A stream without what tells one run from another."""
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
    return request


async def move(house: House, to: str = "") -> None:
    """Ask for a move, as an operator does."""
    house.gateway.post(MigrateAsked(now(), running(house), ReplicaId(to)))


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
@case(scripts.stream(1), scripts.stream(1), config=MOVABLE, brain=BRAIN, model=MODEL)
async def test_a_stream_is_moved(house: House, path: str) -> None:
    speak(house, gap_s=0.01)
    body = wish(path, stream_options={"include_usage": True})
    asked = asyncio.ensure_future(house.ask(body, path))
    await until(lambda: sum(seen.wrote for e in house.engines for seen in e.log.inference) > 2000)
    await move(house)
    answer = await asked
    assert answer.error == ""
    assert plain(answer.body) == undisturbed(path, body)
    assert [len(engine.log.hits) > 0 for engine in house.engines] == [True, True]
    assert house.count("headway_attempts_total", outcome="migrated") == 1
