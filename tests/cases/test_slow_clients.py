"""Clients that are slow, idle or long-winded: B4 and B5.

What must hold: they are cut at the limit, not before, cost others nothing, and nothing of theirs is buffered beyond it.
"""

import asyncio
import random
import resource
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from headway.admin import server
from headway.gateway.config import GatewayConfig, Limits
from headway.gateway.head import HeadReader
from tests.cases.house import SEED, SOAK, House, case, gather_bounded, rounds, until
from tests.cases.served import open_app, process_case
from tests.harness import scripts
from tests.harness.client import RawClient, chat, request

WAIT_S = 10.0 if SOAK else 0.6
IMPATIENT = GatewayConfig(
    port=0, limits=Limits(head_timeout_s=WAIT_S, body_timeout_s=WAIT_S, keepalive_timeout_s=3600.0)
)
WHOLE = request(body=chat(content="x" * 200))
HEAD_BYTES = WHOLE.index(b"\r\n\r\n")
HEAD = WHOLE[: HEAD_BYTES + 4]


async def dribble(client: RawClient, data: bytes, seconds: float) -> float:
    """Send a byte at a time until the other side says or does something; how long that took (s)."""
    began = time.perf_counter()
    reading = asyncio.ensure_future(client.rest(timeout_s=60.0))
    try:
        for at in range(len(data)):
            await client.send(data[at : at + 1])
            if (await asyncio.wait((reading,), timeout=seconds))[0]:
                break
    except ConnectionError:
        pass
    await reading
    return time.perf_counter() - began


async def latencies(house: House, count: int) -> list[float]:
    """Seconds that good requests take, one after the other, sorted."""
    took: list[float] = []
    async with house.client() as client:
        for _ in range(count):
            began = time.perf_counter()
            assert (await client.ask(body=chat())).status == 200
            took.append(time.perf_counter() - began)
            await asyncio.sleep(0.002)
    return sorted(took)


async def _slow(house: House, lead: bytes, data: bytes) -> None:
    async with house.client() as client:
        await client.send(lead)
        took = await dribble(client, data, WAIT_S / 4)
        assert WAIT_S - 0.15 < took < WAIT_S * 1.3 + 0.4
        assert bytes(client.received).startswith(b"HTTP/1.1 408 ")


@pytest.mark.slow
@case(scripts.answer(), config=IMPATIENT)
async def test_slow_and_idle_clients_are_cut_and_harm_nobody(house: House) -> None:
    """B4: 2,000 slow heads, 500 slow bodies, 5,000 idle (here a twentieth): good ones take 10 ms more at the most."""
    heads, bodies, idle = rounds(2_000, 100), rounds(500, 25), rounds(5_000, 250)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 32_768), hard))
    before = await latencies(house, 200)
    async with AsyncExitStack() as stack:
        for _ in range(idle):
            client = await stack.enter_async_context(house.client())
            assert (await client.ask("/health", method="GET")).status == 200
        slow = [_slow(house, b"", HEAD) for _ in range(heads)]
        slow += [_slow(house, HEAD, WHOLE[len(HEAD) : -1]) for _ in range(bodies)]
        crowd = asyncio.ensure_future(gather_bounded(len(slow), slow))
        during = await latencies(house, 200)
        await crowd
        await until(lambda: len(house.gateway.plane.connections) == idle)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert during[197] < before[197] + (0.01 if SOAK else 0.03)
    assert during[100] < before[100] + 0.01
    assert {access.code for access in house.booked if access.status == 408} == {"head_timeout", "body_timeout"}
    await house.at_rest(client_error=heads + bodies)


@pytest.mark.slow
@case(scripts.answer(), config=IMPATIENT)
async def test_who_never_says_anything_is_let_go(house: House) -> None:
    """B4: a connection without a single byte is closed after the time for a head; no request is booked for it."""
    async with house.client() as client:
        began = time.perf_counter()
        assert await client.rest(timeout_s=WAIT_S * 2) == b""
        assert WAIT_S * 0.9 < time.perf_counter() - began < WAIT_S * 1.5 + 0.3
    await house.at_rest(started=0)


@pytest.mark.slow
@case(scripts.answer(), config=IMPATIENT)
async def test_a_second_head_must_not_be_slower_than_a_first(house: House) -> None:
    """B4: patience between requests is long, but not within a head that has begun."""
    async with house.client() as client:
        assert (await client.ask(body=chat())).status == 200
        took = await dribble(client, WHOLE[: HEAD_BYTES - 4], WAIT_S / 4)
        assert WAIT_S * 0.9 < took < WAIT_S * 1.5 + 0.3
    await house.at_rest(started=2, ok=1, client_error=1)


@pytest.mark.slow
@case(scripts.answer(), config=GatewayConfig(port=0, limits=Limits(body_timeout_s=0.3, min_body_bytes_per_s=1_000)))
async def test_a_slow_body_that_keeps_the_pace_is_served(house: House) -> None:
    """B4: 2,000 bytes/s for 1.5 s is slow, but above the minimum: no cut, though it takes five times body_timeout."""
    body = request(body=chat(content="x" * 3_000))
    async with house.client() as client:
        pieces = [body[at : at + 200] for at in range(0, len(body), 200)]
        await client.send(*pieces, gap_s=0.1)
        assert (await client.answer()).status == 200


def padded(size: int) -> bytes:
    """A whole request whose head is so long."""
    return WHOLE.replace(b"\r\n\r\n", b"\r\nX: %b\r\n\r\n" % (b"x" * (size - HEAD_BYTES - 4 - 5)), 1)


def with_headers(count: int) -> bytes:
    """A whole request with so many header lines."""
    lines = WHOLE[:HEAD_BYTES].count(b"\r\n")
    more = b"".join(b"\r\nX-%d: 1" % i for i in range(count - lines))
    return WHOLE.replace(b"\r\n\r\n", more + b"\r\n\r\n", 1)


def with_target(size: int) -> bytes:
    """A whole request whose target is so long."""
    return WHOLE.replace(b" HTTP", b"?%b HTTP" % (b"q" * (size - len("/v1/chat/completions") - 1)), 1)


KIB = 1024
LIMITS: dict[str, tuple[bytes, int]] = {
    "head_at_limit": (padded(32 * KIB), 200),
    "head_over": (padded(32 * KIB + 1), 431),
    "headers_at_limit": (with_headers(100), 200),
    "headers_over": (with_headers(101), 431),
    "target_at_limit": (with_target(8 * KIB), 200),
    "target_over": (with_target(8 * KIB + 1), 414),
    "name_huge": (WHOLE.replace(b"\r\n\r\n", b"\r\n%b: 1\r\n\r\n" % (b"n" * 40_000), 1), 431),
    "method_huge": (b"P" * 40_000 + WHOLE, 414),
}


@pytest.mark.parametrize("pieces", [1, 9])
@pytest.mark.parametrize("kind", LIMITS)
@case(scripts.answer())
async def test_limits_of_heads_are_exact(house: House, kind: str, pieces: int) -> None:
    """B5: at the limit 200, one over it 431 or 414, and closed, however the bytes are cut."""
    data, status = LIMITS[kind]
    if kind == "head_at_limit":
        assert data.index(b"\r\n\r\n") + 4 == 32 * KIB
    step = len(data) // pieces + 1
    async with house.client() as client:
        try:
            await client.send(*(data[at : at + step] for at in range(0, len(data), step)), gap_s=0.002)
        except ConnectionError:
            pass  # refused in the middle
        answer = await client.answer()
        assert answer.status == status
        if status != 200:
            assert answer.message.get("connection") == "close"
            assert await client.closed()


COSTLY: dict[str, bytes] = {
    "nominations": b"Connection: " + b",".join(b"x%x" % i for i in range(5_000)),
    "one_nomination": b"Connection: " + b"ab," * 10_000,
    "colons": b"X: " + b": " * 15_000,
    "commas": b"X-Request-Id: " + b"," * 31_000,
    "blanks": b"Connection:" + b" \t" * 15_000,
    "forwarded": b"\r\n".join(b"X-Forwarded-%b: a" % (b"a" * 300) for _ in range(90)),
    "repeated": b"\r\n".join([b"Connection: ab,cd,ef"] * 95),
    "not_a_header": b"x" * 32_000,
}


@pytest.mark.parametrize("kind", COSTLY)
@case(scripts.answer())
async def test_no_head_within_the_limits_is_costly_to_read(house: House, kind: str) -> None:
    """B5: whatever 32 KiB say, reading them takes milliseconds of CPU at the most."""
    data = WHOLE.replace(b"\r\n\r\n", b"\r\n" + COSTLY[kind] + b"\r\n\r\n", 1)
    reader = HeadReader()
    took: list[float] = []
    for _ in range(3):
        began = time.thread_time()
        reader.request(data[: data.index(b"\r\n\r\n") + 4])
        reader.forget()
        took.append(time.thread_time() - began)
    assert min(took) < 0.01
    async with house.client() as client:
        await client.send(data)
        assert (await client.answer()).status in (200, 400, 431)


async def _forever(client: RawClient, lead: bytes, more: Callable[[], bytes]) -> int:
    """Send without end; how many bytes went out before the other side had enough."""
    sent = 0
    reading = asyncio.ensure_future(client.rest(timeout_s=30.0))
    try:
        await client.send(lead)
        while not reading.done():
            piece = more()
            await client.send(piece)
            sent += len(piece)
            await asyncio.sleep(0)
    except ConnectionError:
        pass
    await reading
    return sent


ENDLESS: dict[str, tuple[bytes, bytes, int]] = {
    "head": (b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\n", b"X-Some: thing\r\n" * 300, 431),
    "line": (b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nX: ", b"y" * 4_096, 431),
    "target": (b"POST /", b"t" * 4_096, 414),
    "empty_lines": (b"", b"\r\n" * 2_048, 400),
    "nuls": (b"", b"\x00" * 4_096, 400),
}


@pytest.mark.parametrize("kind", ENDLESS)
@case(scripts.answer())
async def test_endless_heads_are_not_buffered(house: House, kind: str) -> None:
    """B5: the refusal comes when the limit is passed, not when the sender is done; the rest is thrown away unread."""
    lead, piece, status = ENDLESS[kind]
    async with house.client() as client:
        began = time.perf_counter()
        await _forever(client, lead, lambda: piece)
        assert time.perf_counter() - began < 4.0
        assert bytes(client.received).startswith(b"HTTP/1.1 %d " % status)
    await house.at_rest(started=1, client_error=1)


HALF = b"POST /replicas HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n{"


@pytest.mark.slow
@process_case
async def test_the_admin_port_answers_while_others_hold_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """B4 for the admin port: 300 connections with half a request do not make health checks fail, and are cut."""
    monkeypatch.setattr(server, "REQUEST_WAIT_S", 0.5)
    chance = random.Random(SEED)
    async with open_app() as app, AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(RawClient(app.admin_port)) for _ in range(300)]
        for client in clients:
            await client.send(HALF[: chance.randrange(len(HALF) + 1)])

        async def healthy() -> None:
            async with RawClient(app.admin_port) as client:
                assert (await client.ask("/healthz", method="GET")).status == 200

        for _ in range(5):
            await healthy()
        closed = await asyncio.gather(*(client.closed(timeout_s=3.0) for client in clients))
        assert all(closed)
        await healthy()
