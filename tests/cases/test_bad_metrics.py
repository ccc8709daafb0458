"""Load reports that lie, stall or burst, under traffic (F13; `tests/observe/test_faults.py` has each fault alone).

What must hold: no request is lost for the want of a good report, nobody starves or is flooded, memory is bounded, the
gauges tell who is stale, and all is well again once the reports are.
"""

import asyncio
import itertools
import time
from pathlib import Path

import pytest

from headway.core.view import ReplicaView
from headway.wire.promtext import read
from tests.cases.house import rounds, until, within
from tests.cases.served import open_app, process_case, serving
from tests.engines import pages
from tests.harness import scripts
from tests.harness.client import RawClient, chat
from tests.harness.engine import Connection, Script, ScriptedEngine, Seen

GOOD = pages.VLLM.replace("tiny", "m")
TEXT = "text/plain; version=0.0.4; charset=utf-8"


def page(text: str | bytes) -> Script:
    """A metrics page."""
    return scripts.raw(scripts.response(text if isinstance(text, bytes) else text.encode(), content_type=TEXT))


def beating() -> Script:
    """A good page of an engine that is at work."""
    beats = itertools.count()

    async def script(connection: Connection, seen: Seen) -> None:
        beat = next(beats)
        await page(GOOD.replace(" 9.14\n", f" {10 + beat}\n").replace(" 3746.0", f" {3746 + beat}"))(connection, seen)

    return script


FAULTS: dict[str, Script] = {
    "silence": scripts.stall(),
    "half": scripts.stall(scripts.response(GOOD.encode(), content_type=TEXT)[:400]),
    "500": scripts.error(500),
    "reset": scripts.cut(b"", "rst"),
    "garbage": page(b"\x00\xff{}\n" * 2_000),
    "not_utf8": page(GOOD.encode().replace(b"tiny", b"\xff\xfe")),
    "nan": page(GOOD.replace(" 0.5\n", " NaN\n").replace(" 2.0\n", " +Inf\n").replace(" 1.0\n", " -Inf\n")),
    "negative": page(GOOD.replace(" 0.5\n", " -3\n").replace(" 2.0\n", " -1e308\n")),
    "full": page(GOOD.replace(" 0.5\n", " 1.0\n").replace(" 2.0\n", " 4096.0\n")),
    "other_model": page(GOOD.replace('"m"', '"another"')),
    "other_engine": page(GOOD.replace("vllm:", "sglang:")),
    "empty": page(""),
    "html": scripts.raw(scripts.response(b"<html>", content_type="text/html")),
    "redirect": scripts.raw(scripts.response(b"", "302 Found", headers=["location: http://127.0.0.1:1/"])),
    "lacking": page("\n".join(line for line in GOOD.splitlines() if "kv_cache" not in line)),
    "counters_fall": page(GOOD.replace(" 1771.0", " 1.0").replace(" 3746.0", " 0.0")),
    "huge_integers": page(GOOD.replace(" 3746.0", " " + "9" * 400)),
    "frozen": page(GOOD),
}


@pytest.mark.slow
@process_case
async def test_one_fault_after_the_other(folder: Path) -> None:
    """F13: every fault in turn at two of three engines: each request is 200, each engine gets its part, all heal."""
    engines = [
        ScriptedEngine(scripts.answer(after_s=0.002), {**scripts.vllm_paths(), "/metrics": beating()}) for _ in range(3)
    ]
    async with engines[0], engines[1], engines[2], open_app(*engines) as app:
        statuses: list[int] = []

        async def ask(count: int) -> None:
            async with RawClient(app.port) as client:
                for _ in range(count):
                    statuses.append((await client.ask(body=chat())).status)

        for name, fault in FAULTS.items():
            engines[1].paths["/metrics"] = engines[2].paths["/metrics"] = fault
            await asyncio.sleep(rounds(1, 0) or 0.06)
            before = [engine.log.hits["/v1/chat/completions"] for engine in engines]
            await asyncio.gather(*(ask(8) for _ in range(6)))
            served = [
                engine.log.hits["/v1/chat/completions"] - was for engine, was in zip(engines, before, strict=True)
            ]
            assert set(statuses) == {200}, name
            assert served[0] > 0, name
            assert served[1] + served[2] > 0 or name == "full", (name, served)
        for engine in engines:
            engine.paths["/metrics"] = beating()

        def fresh(view: ReplicaView) -> bool:
            return 0 <= view.sample_age_s < 0.5 and not view.stale and view.breaker.value == "closed"

        def state() -> list[tuple[float, bool, str]]:
            return [(view.sample_age_s, view.stale, view.breaker.value) for view in app.gateway.snapshot().views]

        await until(lambda: all(map(fresh, app.gateway.snapshot().views)), 25.0, state)
        gauges = read(app.telemetry.render(app.gateway.snapshot()), frozenset(("headway_stale_endpoints",)))
        assert sum(value for _, value in gauges["headway_stale_endpoints"]) == 0


@pytest.mark.slow
@process_case
async def test_giant_pages_cost_neither_memory_nor_time(folder: Path) -> None:
    """F13: 50 MB at every scrape of both engines: requests are quick, memory stays, scraping is rare."""
    giant = (GOOD + 'vllm:odd{a="b"} 1\n' * 2_800_000).encode()
    assert len(giant) > 50_000_000
    async with serving(folder, (scripts.answer(), scripts.answer()), {"observe": {"interval_s": 0.1}}) as served:
        for _ in range(20):
            assert (await served.ask(chat())).status == 200
        before = served.memory_bytes(peak=True)
        for engine in served.engines:
            engine.paths["/metrics"] = page(giant)
        took: list[float] = []
        until_s = time.monotonic() + rounds(30, 2)
        while time.monotonic() < until_s:
            began = time.perf_counter()
            assert (await served.ask(chat())).status == 200
            took.append(time.perf_counter() - began)
            await asyncio.sleep(0.02)
        assert served.memory_bytes(peak=True) - before < 48 * 2**20
        assert sorted(took)[len(took) // 2] < within(0.02)
        assert (await served.admin("/readyz")).status == 200
