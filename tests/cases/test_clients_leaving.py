"""Clients that leave: family A of the cases, and F7 (ten phases by three ways of leaving).

What must hold wherever a client goes: the engine's connection is closed at once, the slot is free, one account is
booked, the replica is not blamed.
"""

import asyncio
import gc
import random
import time

import pytest

from headway.gateway.config import INFERENCE_PATHS
from tests.cases.house import (
    SEED,
    SOAK,
    House,
    at_most,
    black_hole,
    case,
    gather_bounded,
    gone_within,
    patience,
    rounds,
    until,
)
from tests.harness import chaos, scripts
from tests.harness.client import RawClient, chat, request
from tests.harness.engine import Connection, Seen

AUDIO_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: audio/mpeg\r\ntransfer-encoding: chunked\r\n\r\n"
LONG = scripts.stream(400, gap_s=0.02)
BIG = scripts.stream(pieces=[scripts.token("x" * 65536)] * 400, gap_s=0.002)


async def _leaves_after_five(house: House, leave: str, path: str = "/v1/chat/completions", body: object = None) -> None:
    async with house.client() as client:
        await client.send(request(path, body or chat(stream=True)))
        assert await client.read_events(5) >= 5
        left = time.perf_counter()
        await chaos.LEAVES[leave](client)
        await house.engine.wait_for(lambda log: log.inference[-1].gone_at)
    assert gone_within(house.engine.log.inference[-1], left) < 1.0
    await house.at_rest(started=1, client_closed=1)


@pytest.mark.parametrize("leave", chaos.LEAVES)
@case(LONG)
async def test_upstream_is_closed_when_the_client_leaves_a_stream(house: House, leave: str) -> None:
    """001: within 1 s of FIN or RST, slot and load counters released."""
    await _leaves_after_five(house, leave)
    assert house.count("headway_attempts_total", outcome="client_closed") == 1


@pytest.mark.parametrize("leave", chaos.LEAVES)
@case(BIG)
async def test_upstream_is_closed_although_buffers_are_full(house: House, leave: str) -> None:
    """001 with 64 KiB events: the client stops reading until everything between is full, then leaves."""
    async with house.client() as client:
        await client.send(request(body=chat(stream=True)))
        await client.read_events(5)
        wrote = -1
        while wrote != house.engine.log.inference[0].wrote:
            wrote = house.engine.log.inference[0].wrote
            await asyncio.sleep(0.05)
        assert house.engine.log.running == 1
        left = time.perf_counter()
        await chaos.LEAVES[leave](client)
        await house.engine.wait_for(lambda log: log.running == 0)
    assert time.perf_counter() - left < 1.0
    await house.at_rest(started=1, client_closed=1)


@pytest.mark.parametrize("leave", chaos.LEAVES)
@case(scripts.stall(), brain=at_most(1))
async def test_leaving_before_the_first_byte_frees_the_slot(house: House, leave: str) -> None:
    """002: the engine has said nothing yet; with a limit of 1 the next request is served at once."""
    async with house.client() as client:
        await client.send(request(body=chat(stream=True)))
        await house.engine.wait_for(lambda log: log.inference)
        left = time.perf_counter()
        await chaos.LEAVES[leave](client)
        await house.engine.wait_for(lambda log: log.inference[0].gone_at)
        assert gone_within(house.engine.log.inference[0], left) < 1.0
        house.engine.script = scripts.stream(3)
        assert (await house.ask(chat(stream=True))).done
    await house.at_rest(started=2, client_closed=1, ok=1)


@case(scripts.stall())
async def test_impatient_plain_requests_are_cancelled_upstream(house: House) -> None:
    """004: 50 clients give up on a plain answer; no connection stays, no failure is booked against the replica."""

    async def gives_up() -> None:
        async with house.client() as client:
            await client.send(request(body=chat()))
            await asyncio.sleep(0.3)
            client.close()

    await asyncio.gather(*(gives_up() for _ in range(50)))
    await house.engine.wait_for(lambda log: log.open == 0, 1.0)
    await house.at_rest(started=50, client_closed=50)
    assert house.engine.log.peak == 50
    assert house.view().breaker == "closed"
    assert house.count("headway_attempts_total") == house.count("headway_attempts_total", outcome="client_closed") == 50
    assert {access.status for access in house.booked} == {499}


PATHS = (*(path for path in INFERENCE_PATHS if path != "/v1/"), "/v1/completions", "/v1/responses", "/v1/messages",
         "/v1/not/listed")  # fmt: skip


@pytest.mark.parametrize("path", PATHS)
@case(LONG)
async def test_leaving_is_noticed_on_every_path(house: House, path: str) -> None:
    """005: the same on every proxied path, named or not."""
    body = {"model": "m", "prompt": "hi", "input": "hi", "stream": True, "max_tokens": 9}
    await _leaves_after_five(house, "fin", path, body)


@case(scripts.raw(AUDIO_HEAD, *[scripts.chunk(b"data:\x00\xff")] * 400, gap_s=0.02))
async def test_leaving_a_binary_stream_is_noticed(house: House) -> None:
    """005 on /v1/audio/speech: bytes that are no events."""
    await _leaves_after_five(house, "rst", "/v1/audio/speech", {"model": "m", "input": "hi", "voice": "x"})


@case(scripts.answer(), config=patience(idle_s=0.3, first_byte_s=3.0), brain=at_most(10))
async def test_no_abnormal_end_leaks_a_slot(house: House) -> None:
    """007: stalls, aborts and resets, ten of each at once, with room for ten; then 20 requests are served in time."""
    half = scripts.STREAM_HEAD + scripts.chunk(scripts.token("a"))
    house.engine.then(*[scripts.stall(half)] * 10)
    stalled = await asyncio.gather(*(house.ask(chat(stream=True)) for _ in range(10)))
    assert all(answer.failure["code"] == 504 and not answer.done for answer in stalled)
    house.engine.then(*[scripts.stall(half)] * 10)
    await asyncio.gather(*(_reads_one_and_leaves(house) for _ in range(10)))
    house.engine.then(*[scripts.cut(half, "rst")] * 10)
    reset = await asyncio.gather(*(house.ask(chat(stream=True)) for _ in range(10)))
    assert all(answer.failure["code"] == 502 and answer.error for answer in reset)
    began = time.perf_counter()
    answers = await asyncio.gather(*(house.ask(chat()) for _ in range(20)))
    assert {answer.status for answer in answers} == {200}
    assert time.perf_counter() - began < (1.0 if SOAK else 3.0)
    assert house.engine.log.peak <= 10
    await house.at_rest(started=50, server_error=20, client_closed=10, ok=20)


async def _reads_one_and_leaves(house: House) -> None:
    async with house.client() as client:
        await client.send(request(body=chat(stream=True)))
        await client.read_events(1)
        client.close()


class PrefixAborter:
    """An engine that aborts every request whose id begins with the one given, as some do."""

    def __init__(self) -> None:
        self.running: dict[str, Connection] = {}

    async def serve(self, connection: Connection, seen: Seen) -> None:
        if seen.request.path == "/abort_request":
            for rid in [rid for rid in self.running if rid.startswith(bytes(seen.request.body).decode())]:
                self.running[rid].rst()
            return
        rid = seen.request.get("x-request-id")
        self.running[rid] = connection
        await scripts.stream(20, gap_s=0.02)(connection, seen)
        del self.running[rid]


@pytest.mark.parametrize(
    "names", [("a", "ab"), ("", "x"), ("a" * 10_000, "a" * 10_001)], ids=["prefix", "empty", "long"]
)
@case(PrefixAborter().serve)
async def test_one_clients_id_never_ends_another_request(house: House, names: tuple[str, str]) -> None:
    """008: engines see ids of ours, of one length, none the beginning of another; nothing is aborted by name."""
    async with house.client() as one, house.client() as two:
        await one.send(request(body=chat(stream=True), headers={"X-Request-Id": names[0]}))
        await two.send(request(body=chat(stream=True), headers={"X-Request-Id": names[1]}))
        await one.read_events(2)
        one.close()
        other = await two.answer()
    assert other.done
    assert len(other.events) == 21
    shown = other.message.get("x-request-id")
    assert shown == names[1] if len(names[1]) <= 128 else shown
    ids = [seen.request.get("x-request-id") for seen in house.engine.log.inference]
    assert len(set(ids)) == len(ids) == 2
    assert len({len(rid) for rid in ids}) == 1
    assert not {*names} & {*ids}
    assert house.engine.log.hits["/abort_request"] == 0
    await house.at_rest(started=2, client_closed=1, ok=1)


async def _leaves_somewhere(house: House, chance: random.Random) -> None:
    """A client that leaves within its head, its body (5 MB, slowly), the queue, or before the first byte."""
    data = request(body=chat(stream=True, content="x" * (5_000_000 if chance.random() < 0.05 else 10)))
    upto = chance.choice([len(data), len(data), len(data), chance.randrange(1, len(data))])
    async with house.client() as client:
        pieces = [data[at : min(at + 262_144, upto)] for at in range(0, upto, 262_144)]
        try:
            await client.send(*pieces, gap_s=0.001)
            await asyncio.sleep(chance.random() * 0.03)
        except ConnectionError:
            return
        await chaos.LEAVES[chance.choice([*chaos.LEAVES])](client)


@case(scripts.stall(), brain=at_most(3))
async def test_permits_come_back_from_every_point_of_leaving(house: House) -> None:
    """010: with a limit of 3, clients leave at random points; afterwards exactly 3 run at once, never more."""
    chance = random.Random(SEED)
    await gather_bounded(30, (_leaves_somewhere(house, chance) for _ in range(rounds(3000, 300))))
    await house.at_rest()
    assert house.engine.log.peak <= 3
    clients = [house.client() for _ in range(6)]
    for client in clients:
        await client.__aenter__()
        await client.send(request(body=chat(stream=True)))
    await until(lambda: house.gateway.snapshot().queued == 3, describe=house.unsettled)
    assert house.gateway.snapshot().in_flight == house.engine.log.running == 3
    for client in clients:
        await client.__aexit__()


async def _both_leave(house: House, together: asyncio.Event, delay_s: float) -> None:
    async with house.client() as client:
        await client.send(request(body=chat(stream=True)))
        await client.read_events(1)
        together.set()
        if delay_s:
            await asyncio.sleep(delay_s)
        client.rst() if delay_s else client.close()


@case(scripts.stall())
async def test_both_sides_leaving_at_once_ends_the_request_once(house: House) -> None:
    """011: the engine resets in the millisecond in which the client closes; each request ends once."""
    chance = random.Random(SEED)
    count = rounds(3000, 300)

    async def one_round() -> None:
        together = asyncio.Event()

        async def resets(connection: Connection, _: Seen) -> None:
            await connection.send(scripts.STREAM_HEAD + scripts.chunk(scripts.token("a")))
            await together.wait()
            connection.rst()

        house.engine.script = resets
        await _both_leave(house, together, chance.choice((0.0, 0.0, 0.0005, 0.001)))

    for _ in range(count):
        await one_round()
    await house.at_rest(started=count)
    books = house.telemetry.accounts
    assert books["client_closed"] + books["server_error"] == count
    assert books["client_closed"]


@pytest.mark.parametrize(("phase", "leave"), chaos.cases(), ids=chaos.case_id)
@case(scripts.stall(), moves=True)
async def test_leaving_in_every_phase(house: House, phase: chaos.Phase, leave: str) -> None:
    """F7: whatever the phase, the engine is let go at once and the next client is served."""
    house.engine.script = phase.script()
    async with house.client() as client:
        await client.send(phase.sends)
        await phase.reached(client, house.engine)
        left = time.perf_counter()
        await chaos.LEAVES[leave](client)
        if phase.upstream:
            await house.engine.wait_for(lambda log: log.running == 0)
            assert gone_within(house.engine.log.inference[0], left) < 1.0
        assert await client.closed() or leave != "half_close"
        await house.at_rest()
    expected = {"reading_head": "", "after_last_byte": "ok"}.get(phase.name, "client_closed")
    assert [access.account for access in house.booked] == [expected] * bool(expected)
    house.engine.script = scripts.stream(3)
    assert (await house.ask(chat(stream=True))).done


@pytest.mark.parametrize("leave", chaos.LEAVES)
@case(scripts.stall(), brain=at_most(1), moves=True)
async def test_leaving_the_queue(house: House, leave: str) -> None:
    """F7, held: who leaves is never sent to an engine, and those behind move up."""
    async with house.client() as first, house.client() as held, house.client() as behind:
        await first.send(request(body=chat(stream=True)))
        await house.engine.wait_for(lambda log: log.inference)
        await held.send(request(body=chat(stream=True)))
        await until(lambda: house.gateway.snapshot().queued == 1)
        await behind.send(request(body=chat(stream=True, content="behind")))
        await until(lambda: house.gateway.snapshot().queued == 2)
        await chaos.LEAVES[leave](held)
        await until(lambda: house.gateway.snapshot().queued == 1)
        house.engine.script = scripts.stream(3)
        first.close()
        assert (await behind.answer()).done
    assert [b"behind" in seen.request.body for seen in house.engine.log.inference] == [False, True]
    await house.at_rest(started=3, client_closed=2, ok=1)


@pytest.mark.parametrize("leave", chaos.LEAVES)
@case(scripts.stall(), moves=True)
async def test_leaving_while_connecting(house: House, leave: str) -> None:
    """F7, connecting: the engine's address swallows SYNs; the attempt is withdrawn, not waited for."""
    with black_hole() as url:
        house.add(url, 0)
        async with house.client() as client:
            await client.send(request(body=chat()))
            await until(lambda: house.gateway.snapshot().in_flight == 1)
            await asyncio.sleep(0.02)
            left = time.perf_counter()
            await chaos.LEAVES[leave](client)
            await house.at_rest(started=1, client_closed=1)
            assert time.perf_counter() - left < 1.0
    assert house.count("headway_attempts_total", outcome="client_closed") == 1


@pytest.mark.parametrize("leave", chaos.LEAVES)
@case(scripts.cut(b"", "rst"), scripts.stall(), moves=True)
async def test_leaving_during_a_retry(house: House, leave: str) -> None:
    """F7, during a retry: the second engine is let go too, and neither twice."""
    for engine in house.engines:  # whichever is asked first resets, the other one stalls
        engine.script = _first_resets(house)
    async with house.client() as client:
        await client.send(request(body=chat(stream=True)))
        await until(lambda: sum(len(engine.log.inference) for engine in house.engines) == 2)
        left = time.perf_counter()
        await chaos.LEAVES[leave](client)
        await until(lambda: all(engine.log.running == 0 for engine in house.engines))
        assert time.perf_counter() - left < 1.0
    await house.at_rest(started=1, client_closed=1)
    assert [access.attempts for access in house.booked] == [2]


def _first_resets(house: House) -> scripts.Script:
    async def script(connection: Connection, seen: Seen) -> None:
        first = sum(len(engine.log.inference) for engine in house.engines) == 1
        await (scripts.cut(b"", "rst") if first else scripts.stall())(connection, seen)

    return script


async def _out_of_step(connection: Connection, seen: Seen) -> None:
    """A stream at a pace of its own: engines and clients share this process, and should not all act at one moment."""
    pace_s = 0.5 + len(seen.request.raw) * seen.connection % 1000 / 1000
    await connection.send(scripts.STREAM_HEAD + scripts.chunk(scripts.token("a")))
    while not await connection.pause(pace_s):
        await connection.send(scripts.chunk(scripts.token("a")))


@case(*[_out_of_step] * 4)
async def test_leaving_is_quick_among_many_streams(house: House) -> None:
    """F7: with many other streams running (1,000 in full), the engine hears of it within 20 ms, 99 times of 100
    (here half the time: others use the machine)."""
    async with _streams(house, rounds(1000, 100)):
        for engine in house.engines:
            engine.script = scripts.stream(400, gap_s=0.01)
        gc.freeze()  # as `headway serve` does: what was loaded is not looked through again
        delays = []
        for number in range(rounds(300, 60)):
            async with house.client() as client:
                await client.send(request(body=chat(stream=True)))
                await client.read_events(1)
                seen = max((engine.log.requests[-1] for engine in house.engines), key=lambda seen: seen.at)
                left = time.perf_counter()
                await chaos.LEAVES[("fin", "rst", "half_close")[number % 3]](client)
                await until(lambda seen=seen: seen.gone_at is not None)
                delays.append(gone_within(seen, left))
    gc.unfreeze()
    assert sorted(delays)[int(len(delays) * (0.99 if SOAK else 0.5))] < 0.02


class _streams:  # noqa: N801 used as a function
    """So many streams, each with a client that reads nothing but lets buffers take what comes."""

    def __init__(self, house: House, count: int) -> None:
        self._clients = [RawClient(house.gateway.port) for _ in range(count)]

    async def __aenter__(self) -> None:
        for client in self._clients:
            await client.__aenter__()
            await client.send(request(body=chat(stream=True)))
        for client in self._clients:
            await client.read_events(1)

    async def __aexit__(self, *_: object) -> None:
        for client in self._clients:
            await client.__aexit__()
