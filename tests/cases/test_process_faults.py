"""Faults of whole processes: F1 (an engine killed), F16 (SIGTERM), F19 (files, streams, names, clocks run out).

`headway serve` in a process of its own. `tests/compose/test_hardship.py` has F19 without traffic: closed and full log
streams, no descriptors for idle clients.
"""

import asyncio
import json
import os
import re
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from headway.gateway import plane
from tests.cases.house import House, at_most, case, rounds, within
from tests.cases.served import Served, process_case, served_case, serving
from tests.emulator.process import EmulatorProcess, emulator
from tests.harness import scripts
from tests.harness.client import Answer, RawClient, chat, request

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc, uses /dev/full")
MODEL = "llama-3.1-8b"


@asynccontextmanager
async def emulators(count: int) -> AsyncIterator[list[EmulatorProcess]]:
    """So many emulated engines, started at the same time."""
    async with AsyncExitStack() as stack:
        contexts = [emulator(time_scale=2.0) for _ in range(count)]
        engines = await asyncio.gather(*(asyncio.to_thread(context.__enter__) for context in contexts))
        for context in contexts:
            stack.push_async_callback(asyncio.to_thread, context.__exit__, None, None, None)
        yield list(engines)


class Traffic:
    """Requests at a steady rate, plain and streamed; each with its beginning and its end."""

    def __init__(self, served: Served, rate: float) -> None:
        self.done: list[tuple[float, bool, Answer]] = []
        self.failed: list[str] = []
        self._served = served
        self._gap_s = 1.0 / rate
        self._stopped = False

    async def run(self) -> None:
        """Send until stopped, then wait for the answers."""
        sent: set[asyncio.Task[None]] = set()
        while not self._stopped:
            task = asyncio.ensure_future(self._one(streaming=len(sent) % 2 == 0))
            sent.add(task)
            await asyncio.sleep(self._gap_s)
        await asyncio.gather(*sent)

    def stop(self) -> None:
        """Send no more."""
        self._stopped = True

    async def _one(self, streaming: bool) -> None:
        began = time.monotonic()
        body = chat(streaming, model=MODEL, max_tokens=400 if streaming else 5, ignore_eos=True)
        try:
            async with self._served.client() as client:
                self.done.append((began, streaming, await client.ask(body=body)))
        except (OSError, AssertionError) as error:
            self.failed.append(repr(error))


def complete(answer: Answer) -> bool:
    """Whether an answer is a whole one."""
    return answer.status == 200 and not answer.error and answer.failure is None


def truthful(answer: Answer) -> bool:
    """Whether an answer is a whole one, or says that it is none."""
    return complete(answer) or answer.failure is not None or answer.status >= 500


@pytest.mark.slow
@pytest.mark.parametrize("turn", range(rounds(20, 1)))
@process_case
async def test_a_killed_engine_costs_only_what_it_was_saying(folder: Path, turn: int) -> None:
    """F1, 145: kill -9 under load: who comes afterwards gets 200; out of rotation in 100 ms; nothing ends silently."""
    async with emulators(3) as engines, _in_front_of(folder, engines) as served:
        traffic = Traffic(served, rate=rounds(100, 50))
        running = asyncio.ensure_future(traffic.run())
        victim = engines[0]
        async with asyncio.timeout(10.0):
            while (await view_of(served, victim))["in_flight"] < 4:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        await asyncio.sleep(0.3)  # those that are there have begun to speak
        os.kill(victim.pid, signal.SIGKILL)
        killed = time.monotonic()
        await until_out(served, victim, killed + within(0.2))
        out = time.monotonic() - killed
        await asyncio.sleep(1.0)
        traffic.stop()
        await running
    assert out < within(0.1) + 0.1  # and the looking
    assert not traffic.failed
    later = [answer for began, _, answer in traffic.done if began > killed]
    assert len(later) > 20
    assert all(complete(answer) for answer in later), [answer.status for answer in later if not complete(answer)]
    before = [(streaming, answer) for began, streaming, answer in traffic.done if began <= killed]
    assert all(truthful(answer) for _, answer in before)
    assert all(complete(answer) for streaming, answer in before if not streaming)
    assert [answer for streaming, answer in before if streaming and not complete(answer)], "it was not saying anything"


def _in_front_of(folder: Path, engines: list[EmulatorProcess]) -> Any:
    return serving(folder, urls=tuple(engine.url for engine in engines), detected=True)


async def view_of(served: Served, engine: EmulatorProcess) -> dict[str, Any]:
    """An engine as the brain sees it."""
    return next(view for view in await served.views() if view["spec"]["url"] == engine.url)


async def until_out(served: Served, victim: EmulatorProcess, end: float) -> None:
    """Wait until an engine is out of rotation."""
    while (view := await view_of(served, victim))["breaker"] == "closed":
        assert time.monotonic() < end, view
        await asyncio.sleep(0.005)


def stopped_line(served: Served) -> dict[str, int]:
    """The accounts as the process logged them when it ended; they must balance."""
    lines = [line for line in served.process.log.read_text().splitlines() if '"stopped"' in line]
    books: dict[str, int] = {key: value for key, value in json.loads(lines[-1]).items() if isinstance(value, int)}
    assert books["started"] == sum(count for key, count in books.items() if key != "started")
    return books


async def open_streams(stack: AsyncExitStack, served: Served, count: int) -> list[RawClient]:
    """So many clients, each past the first event of a stream."""
    clients = [await stack.enter_async_context(served.client()) for _ in range(count)]
    for client in clients:
        await client.send(request(body=chat(stream=True)))
    for client in clients:
        await client.read_events(1, timeout_s=10.0)
    return clients


@pytest.mark.slow
@served_case(scripts.stream(20, gap_s=0.1), settings={"timeouts": {"drain_s": 30}})
async def test_a_drain_cuts_nobody(served: Served) -> None:
    """F16: SIGTERM with 500 streams (here 100): all end as they should; the door is shut, the process ends with 0."""
    async with AsyncExitStack() as stack:
        clients = await open_streams(stack, served, rounds(500, 100))
        idle = await stack.enter_async_context(served.client())
        assert (await idle.ask("/health", method="GET")).status == 200
        served.signal()
        await asyncio.sleep(0.2)
        assert (await served.admin("/readyz")).status == 503
        assert (await served.admin("/healthz")).status == 200
        with pytest.raises(OSError):
            await served.ask(chat())
        assert await idle.closed(1.0)
        answers = await asyncio.gather(*(client.answer(timeout_s=30.0) for client in clients))
        assert all(answer.done and complete(answer) for answer in answers)
        ended = time.monotonic()
        assert await served.ended(5.0) == 0
        assert time.monotonic() - ended < within(1.0)
    assert stopped_line(served)["ok"] == len(clients) + 1


@pytest.mark.slow
@pytest.mark.parametrize("numbers", [(signal.SIGTERM, signal.SIGTERM), (signal.SIGINT, signal.SIGTERM)])
@served_case(scripts.stream(600, gap_s=0.1), settings={"timeouts": {"drain_s": 60}})
async def test_a_second_signal_ends_it_at_once(served: Served, numbers: tuple[signal.Signals, signal.Signals]) -> None:
    """F16: within a second, each stream is told why."""
    async with AsyncExitStack() as stack:
        clients = await open_streams(stack, served, 30)
        served.signal(numbers[0])
        await asyncio.sleep(0.3)
        assert served.alive
        served.signal(numbers[1])
        began = time.monotonic()
        answers = await asyncio.gather(*(client.answer() for client in clients))
        assert await served.ended(5.0) == 0
        assert time.monotonic() - began < within(1.0)
    assert {answer.failure["reason"] for answer in answers} == {"cancelled"}
    assert not [answer for answer in answers if answer.done]
    assert stopped_line(served)["server_error"] == 30


@pytest.mark.slow
@served_case(scripts.stream(600, gap_s=0.1), settings={"timeouts": {"drain_s": 0.5}})
async def test_the_end_of_the_drain_is_told(served: Served) -> None:
    """F16: streams that outlast the drain get an error event, not a silent end."""
    async with AsyncExitStack() as stack:
        clients = await open_streams(stack, served, 30)
        served.signal()
        began = time.monotonic()
        answers = await asyncio.gather(*(client.answer() for client in clients))
        assert 0.4 < time.monotonic() - began < within(1.5)
        assert await served.ended(5.0) == 0
    assert {answer.failure["code"] for answer in answers} == {502}
    assert all(answer.error for answer in answers)  # no last chunk either


@LINUX
@pytest.mark.slow
@process_case
async def test_no_files_left_under_traffic(folder: Path) -> None:
    """F19: clients take all descriptors: those that are connected are served or refused in words, no replica is blamed,
    nothing spins, health answers, and it heals by itself."""
    import resource

    async with serving(folder, (scripts.answer(),)) as served:
        pid = served.process.popen.pid
        used = served.files()
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (used + 40, used + 40))
        async with served.client() as old, served.client() as other:
            assert (await old.ask(body=chat())).status == 200
            assert (await other.ask(body=chat())).status == 200
            hogs = []
            for _ in range(100):
                hog = socket.socket()
                hog.setblocking(False)
                hog.connect_ex(("127.0.0.1", served.port))
                hogs.append(hog)
            await asyncio.sleep(0.3)
            before, lines = served.cpu_s(), served.process.log.read_text().count("\n")
            for _ in range(10):
                both = await asyncio.gather(old.ask(body=chat()), other.ask(body=chat()))
                assert {answer.status for answer in both} <= {200, 503}
                await asyncio.sleep(0.1)
            assert served.cpu_s() - before < 0.5
            assert served.process.log.read_text().count("\n") - lines < 100
            for hog in hogs:
                hog.close()
            healed = time.monotonic()
            while (await old.ask(body=chat())).status != 200:
                assert time.monotonic() - healed < 5.0
                await asyncio.sleep(0.05)
        assert (await served.ask(chat())).status == 200
        assert (await served.admin("/healthz")).status == 200
        page = (await served.admin("/metrics")).body
        assert b'outcome="no_resources"' in page, "one idle connection was not enough for two"
        assert b'outcome="connect_failed"' not in page
        assert b'state="open"} 1' not in page


@pytest.mark.slow
@process_case
async def test_names_that_do_not_resolve_harm_nobody(folder: Path) -> None:
    """F19: replicas whose names cannot be resolved: the others serve, health answers, nothing spins."""
    async with serving(folder, (scripts.answer(),)) as served:
        for name in ("no-such-engine", "other-engine"):
            wanted = {"url": f"http://{name}.invalid:8000", "engine": "vllm", "model": "m"}
            assert (await served.admin("/replicas", "POST", wanted)).status == 201
        before = served.cpu_s()
        answers = []
        for _ in range(40):
            answers.append((await served.ask(chat())).status)
            await asyncio.sleep(0.025)
        assert answers == [200] * 40
        assert (await served.admin("/healthz")).status == 200
        assert (await served.admin("/readyz")).status == 200
        assert served.cpu_s() - before < 1.0


@pytest.mark.slow
@case(scripts.answer(after_s=0.02), brain=at_most(1))
async def test_the_wall_clock_may_jump(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """F19: hours forth and back between and within requests: patience, queues and deadlines do not notice."""
    jumps = iter(3600.0 * (-1) ** n * n for n in range(10_000))
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + next(jumps))
    waits = {"X-Request-Deadline-S": "20"}
    for _ in range(rounds(5, 1)):  # in turns: what one replica can do within the deadline
        answers = await asyncio.gather(*(house.ask(chat(), headers=waits) for _ in range(rounds(200, 40))))
        assert {answer.status for answer in answers} == {200}
    assert all(0.0 < access.duration_s < 30.0 for access in house.booked)
    assert plane.time.time is time.time


WALL_CLOCK = re.compile(
    r"\btime\.time\(|\bdatetime\.(now|utcnow|today)\b|\btime\.time_ns\(|from time import [^\n]*\btime\b"
)
FOR_PEOPLE = {"gateway/plane.py", "wire/journal.py", "compose/journal.py", "emulator"}


def test_only_stamps_for_people_read_the_wall_clock() -> None:
    """F19: by construction: the wall clock is read where something is dated, never where something is waited for."""
    source = Path(plane.__file__).parents[1]
    readers = {
        path.relative_to(source).as_posix() for path in source.rglob("*.py") if WALL_CLOCK.search(path.read_text())
    }
    assert {path for path in readers if path not in FOR_PEOPLE and path.split("/")[0] not in FOR_PEOPLE} == set()


test_only_stamps_for_people_read_the_wall_clock.checks_books = True  # type: ignore[attr-defined]  # no gateway here
