"""Connections that engines close while we use them again, and engines that think for long: family K, F8.

What must hold: a client never sees that a kept connection had died, and no request runs twice.
"""

import asyncio
import json
import random
import time

import pytest

from headway.core.constants import BrainConfig, HealthConfig
from headway.gateway.config import Timeouts
from tests.cases.house import SEED, House, case, gather_bounded, open_house, patience, rounds
from tests.harness import scripts
from tests.harness.client import chat, request
from tests.harness.engine import Connection, Script, Seen


class Counting:
    """An engine that answers each connection once, then closes it unannounced, `after_s` later, by FIN or RST.

    `executed` counts, by what the client calls its request, how often it was answered.
    """

    def __init__(self, how: str, after_s: float) -> None:
        self.executed: dict[str, int] = {}
        self._how = how
        self._after_s = after_s

    async def serve(self, connection: Connection, seen: Seen) -> None:
        name = seen.request.get("x-name")
        self.executed[name] = self.executed.get(name, 0) + 1
        await scripts.then_close(scripts.answer(), self._how, self._after_s)(connection, seen)


@pytest.mark.slow
@pytest.mark.parametrize("after_ms", [0.0, 0.3, 1.0, 5.0])
@pytest.mark.parametrize("how", ["fin", "rst"])
@case()
async def test_a_connection_closed_at_the_moment_of_reuse(outer: House, how: str, after_ms: float) -> None:
    """142, F8: the engine closes 0 to 5 ms after its answer, as the next request is written: no error, none doubled."""
    engine = Counting(how, after_ms / 1000)
    count = rounds(10_000, 400)
    chance = random.Random(SEED)
    async with open_house(engine.serve) as house:

        async def one(number: int) -> int:
            await asyncio.sleep(chance.random() * 0.004)
            return (await house.ask(chat(), headers={"X-Name": str(number)})).status

        statuses = await gather_bounded(8, (one(number) for number in range(count)))
        assert statuses == [200] * count
        assert engine.executed == {str(number): 1 for number in range(count)}
        await house.at_rest(started=count, ok=count)
        assert house.view().breaker == "closed"


def closes_unread(how: str) -> Script:
    """Answers the first request of a connection; the next one is met by FIN or RST and never looked at."""

    async def script(connection: Connection, seen: Seen) -> None:
        if seen.number == 1:
            await scripts.answer()(connection, seen)
        else:
            (connection.rst if how == "rst" else connection.fin)()

    return script


@pytest.mark.parametrize("how", ["fin", "rst"])
@case(scripts.stall())
async def test_every_reuse_may_fail(house: House, how: str) -> None:
    """F8, the worst case: each reused connection dies with the request on it; a fresh one serves it, once."""
    house.engine.script = closes_unread(how)
    count = rounds(10_000, 300)
    async with house.client() as client:
        for _ in range(count):
            assert (await client.ask(body=chat())).status == 200
    first = [seen for seen in house.engine.log.inference if seen.number == 1]
    assert len(first) == count
    assert house.engine.log.open <= 1
    await house.at_rest(started=count, ok=count)
    assert house.view().breaker == "closed"


@case(scripts.stall())
async def test_a_fin_while_a_large_request_is_written(house: House) -> None:
    """142: the FIN arrives while the body is still on its way."""
    body = chat(content="x" * 5_000_000)
    house.engine.script = closes_unread("rst")
    async with house.client() as client:
        for _ in range(6):
            assert (await client.ask(body=body)).status == 200
    assert {bytes(seen.request.body) for seen in house.engine.log.inference} == {json.dumps(body).encode()}
    assert len(house.engine.log.accepted) == 6


@pytest.mark.parametrize("answered", [b"H", b"HTTP/1.1 200 OK\r\n", scripts.STREAM_HEAD])
@case(scripts.stall())
async def test_nothing_is_repeated_on_the_quiet_once_a_byte_was_answered(house: House, answered: bytes) -> None:
    """142: a reused connection that dies within a response is no stale one: one replica, so the client hears of it."""
    async with house.client() as client:
        house.engine.script = scripts.answer()
        assert (await client.ask(body=chat())).status == 200
        house.engine.script = scripts.cut(answered, "fin")
        answer = await client.ask(body=chat())
        assert answer.status == 502
    assert len(house.engine.log.inference) == 2
    await house.at_rest(started=2, ok=1, server_error=1)


@case(scripts.stall(), brain=BrainConfig(health=HealthConfig(failures=10_000, failure_rate=1.1)))
async def test_a_death_long_after_the_request_is_not_taken_for_a_stale_connection(house: House) -> None:
    """142: a reused connection that dies after the engine had time to work is not repeated for free."""
    async with house.client() as client:
        house.engine.script = scripts.answer()
        assert (await client.ask(body=chat())).status == 200
        house.engine.script = scripts.cut(b"", "fin")

        async def late(connection: Connection, _: Seen) -> None:
            await asyncio.sleep(1.3)
            connection.rst()

        house.engine.script = late
        assert (await client.ask(body=chat())).status == 502
    assert house.count("headway_attempts_total", outcome="reset") == 1
    assert len(house.engine.log.inference) == 2


@pytest.mark.slow
@case(scripts.answer(after_s=0.8), config=patience(first_byte_s=5.0, idle_s=5.0))
async def test_a_slow_engine_is_waited_for(house: House) -> None:
    """143: silence before the first byte and between pieces, below what is configured, is no error.

    (Scaled: no bound is built in but the configured ones, whose defaults are minutes.)
    """
    defaults = Timeouts()
    assert (defaults.first_byte_s, defaults.idle_s) >= (120.0, 120.0)
    house.engine.then(scripts.stream(3, gap_s=0.3))
    assert (await house.ask(chat(stream=True))).done
    assert (await house.ask(chat())).status == 200


@pytest.mark.slow
@case(scripts.stream(4, gap_s=0.3), config=patience(idle_s=1.0, first_byte_s=1.0))
async def test_a_stall_of_our_own_is_not_the_engines_silence(house: House) -> None:
    """143: the process is stopped for longer than its patience with engines; what came meanwhile is read first."""
    async with house.client() as client:
        await client.send(request(body=chat(stream=True)))
        assert await client.read_events(1) >= 1
        time.sleep(1.5)  # noqa: ASYNC251 the stall
        assert (await client.answer()).done
    await house.at_rest(started=1, ok=1)


@pytest.mark.parametrize(
    ("before", "names"), [(b"", "first_byte"), (scripts.STREAM_HEAD + scripts.chunk(scripts.token("a")), "idle")]
)
@case(scripts.stall(), config=patience(first_byte_s=0.4, idle_s=0.4))
async def test_a_timeout_is_kept_and_names_its_cause(house: House, before: bytes, names: str) -> None:
    """143: the configured bound is kept, within a sweep, and the error says which one it was."""
    house.engine.script = scripts.stall(before)
    began = time.perf_counter()
    answer = await house.ask(chat(stream=True))
    assert 0.25 < time.perf_counter() - began < 2.0
    error = answer.failure if before else answer.json["error"]
    assert names in error["message"]
    assert (error["code"] == 504) if before else (answer.status == 504)
    await house.at_rest(server_error=1)
