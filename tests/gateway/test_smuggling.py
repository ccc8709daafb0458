"""The smuggling corpus against the gateway: what the engine gets is what was meant, or the client is refused (B1).

A strict reader of the tests' own sits in the engine, so a request with two framings or a doubtful head counts as sent.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from headway.core.events import ReplicasChanged
from headway.core.ids import ReplicaId
from headway.core.replica import ReplicaSpec
from headway.gateway import Gateway, GatewayConfig
from headway.runtime.clock import now
from headway.telemetry import Telemetry
from tests.gateway.fakes import FakeBrain
from tests.gateway.smuggling import BODY, ENTRIES, GOOD, Entry
from tests.harness import scripts
from tests.harness.client import RawClient
from tests.harness.engine import ScriptedEngine
from tests.harness.http1 import Malformed, Message, Reader

Run = Callable[[Awaitable[Any]], Any]
SENTINEL = b"GET /sentinel HTTP/1.1\r\nHost: gateway\r\nX-Request-Id: sentinel\r\n\r\n"


def test_the_corpus_is_large_and_its_names_are_names() -> None:
    assert len(ENTRIES) >= 80
    assert len({entry.name for entry in ENTRIES}) == len(ENTRIES)


@pytest.mark.parametrize("entry", [e for e in ENTRIES if e.forwards and not e.either], ids=lambda entry: entry.name)
def test_what_is_to_be_forwarded_is_well_formed(entry: Entry) -> None:
    bodies: list[bytes] = []
    reader = Reader()
    try:
        for message in reader.feed(entry.data):
            bodies.append(bytes(message.body))
    except Malformed:
        assert entry.refused
        return
    assert bodies[: len(entry.forwards)] == list(entry.forwards)


def segmentations(data: bytes, name: str) -> Iterator[list[bytes]]:
    """Whole; in single bytes (the first 600, and the last 200); at three random places."""
    yield [data]
    yield [*(data[i : i + 1] for i in range(min(600, len(data)))), data[600:-200], *_last_bytes(data)]
    cuts = sorted(random.Random(name).sample(range(1, len(data)), 3))
    yield [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)]


def _last_bytes(data: bytes) -> list[bytes]:
    return [data[i : i + 1] for i in range(max(600, len(data) - 200), len(data))] if len(data) > 800 else [data[600:]]


async def responses(client: RawClient, entry: Entry) -> tuple[list[Message], bool]:
    """Every response up to that of the sentinel, which is left out, and whether the connection closed before."""
    got: list[Message] = []
    while True:
        method = "OPTIONS" if "options" in entry.name and not got else "POST"
        answer = await client.answer(timeout_s=5.0, method=method)
        if answer.error:
            assert not answer.message.start, answer.error
            return got, True
        got.append(answer.message)
        if answer.message.get("x-request-id") == "sentinel" or len(got) > len(entry.forwards) + 2:
            return got[:-1], False


async def send(entry: Entry, pieces: list[bytes]) -> tuple[list[Message], bool, ScriptedEngine]:
    telemetry = Telemetry()
    gateway = Gateway(FakeBrain(), GatewayConfig(port=0), {}, telemetry)
    async with ScriptedEngine(scripts.answer()) as engine:
        await gateway.start()
        spec = ReplicaSpec(id=ReplicaId("r"), url=engine.url, model="m", serves={"m": "m", "smuggled": "smuggled"})
        gateway.post(ReplicasChanged(now(), (spec,)))
        async with RawClient(gateway.port) as client:
            try:
                for piece in pieces:
                    await client.send(piece)
                await client.send(SENTINEL)
            except ConnectionError:
                pass  # refused and closed in the middle: what was said is read all the same
            got, closed = await responses(client, entry)
        await gateway.stop(0.0)
        assert telemetry.balanced, telemetry.accounts
    return got, closed, engine


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_one_meaning_or_none(run: Run, entry: Entry) -> None:
    for pieces in segmentations(entry.data, entry.name):
        got, closed, engine = run(send(entry, [piece for piece in pieces if piece]))
        statuses = [message.status for message in got]
        bodies = [bytes(seen.request.body) for seen in engine.log.requests]
        assert engine.log.malformed == []
        if entry.either and not bodies:
            assert statuses in ([400], [505])
            continue
        assert bodies == list(entry.forwards)
        assert statuses[: len(bodies)] == [200] * len(bodies)
        for seen in engine.log.requests:
            assert not [name for name in entry.absent if seen.request.all(name)]
            assert len(seen.request.all("host")) == 1
        refusals = statuses[len(bodies) :]
        if entry.refused:
            assert refusals, "neither forwarded nor refused"
            assert refusals[0] in entry.refused
            assert closed or not entry.closes
        else:
            assert refusals == []


def test_good_requests_in_a_row_reach_the_engine_on_one_connection(run: Run) -> None:
    entry = Entry("row", GOOD * 3, (BODY,) * 3)
    got, closed, engine = run(asyncio.wait_for(send(entry, [entry.data]), 10))
    assert ([message.status for message in got], closed) == ([200] * 3, False)
    assert len(engine.log.accepted) == 1
