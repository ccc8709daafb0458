"""Emptying a replica of a whole gateway, put together as users do it: nobody notices, and nobody is waited for."""

import asyncio
from pathlib import Path

import pytest

from headway.compose.control import AppControl
from headway.compose.recipe import replay
from headway.compose.registry import find
from headway.core.ids import ReplicaId
from tests.cases.house import until
from tests.cases.moves import plain, undisturbed, wish
from tests.cases.served import open_app, process_case
from tests.harness import scripts
from tests.harness.client import Answer, RawClient
from tests.harness.engine import ScriptedEngine
from tests.harness.speaker import MODEL, Speaker
from tests.wire.engine import CHAT

STREAMS = 6
SOON = {"health": {"slow_start_s": 0.05}, "migration": {"tick_s": 0.05, "fleet_share": 1.0}}


@pytest.mark.slow
@process_case
async def test_a_drained_replica_is_left_by_all(folder: Path) -> None:
    """Streams of a second and a half: empty after a part of that, no errors, every byte right; and moved by hand."""
    engines = [ScriptedEngine(scripts.error(404, "Not Found")) for _ in range(2)]
    for number, engine in enumerate(engines):
        engine.paths = Speaker(f"r{number}", gap_s=0.02).paths()
        await engine.start()
    replicas = [{"url": engine.url, "engine": "vllm", "model": MODEL} for engine in engines]
    body = wish(CHAT, stream_options={"include_usage": True})
    journal = folder / "journal"
    settings = {"migration": {"enabled": True}, "brain": SOON, "replicas": replicas, "journal": str(journal)}
    async with open_app(*engines, **settings) as app:
        control = AppControl(app)
        await asyncio.sleep(0.6)  # until both are warm

        async def one(name: str) -> Answer:
            async with RawClient(app.port) as client:
                return await client.ask(CHAT, body, headers={"Host": "x", "X-Request-Id": name})

        asked = [asyncio.ensure_future(one(f"s{n}")) for n in range(STREAMS)]
        await until(lambda: sum(view.in_flight for view in control.snapshot().views) == STREAMS)
        await asyncio.sleep(0.2)
        busy = max(control.snapshot().views, key=lambda view: view.in_flight)
        assert busy.in_flight >= 2
        assert control.drain(busy.spec.id, True)
        await until(lambda: not any(v.in_flight for v in control.snapshot().views if v.spec.id == busy.spec.id), 1.2)
        assert not control.migrate("nobody", ReplicaId(""))
        answers = await asyncio.gather(*asked)
        moved = app.telemetry.render(app.gateway.snapshot()).decode()
    for engine in engines:
        await engine.stop()
    assert all(plain(answer.body) == undisturbed(CHAT, body) for answer in answers)
    assert 'headway_migrations_total{reason="drain",result="cut"}' in moved
    lines = await asyncio.to_thread(lambda: journal.read_bytes().splitlines(keepends=True))
    assert replay(lines, find()) is None
