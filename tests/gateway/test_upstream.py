"""What engines may send, byte by byte on a fake transport: framing, hostile responses, reuse, and the pool."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from headway.core.ids import ReplicaId
from headway.core.outcome import OutcomeKind
from headway.core.replica import ReplicaSpec
from headway.gateway.config import GatewayConfig
from headway.gateway.head import HeadReader, ResponseHead
from headway.gateway.sweep import Sweeper
from headway.gateway.target import Target
from headway.gateway.upstream import Pool, UpstreamConnection
from headway.runtime.shortage import SHORTAGES

Run = Callable[[Any], Any]


class Transport:
    """Remembers what was done to it."""

    def __init__(self) -> None:
        self.written = b""
        self.aborted = False
        self.buffered = 0

    def write(self, data: bytes) -> None:
        self.written += data

    def abort(self) -> None:
        self.aborted = True

    def is_closing(self) -> bool:
        return self.aborted

    def get_write_buffer_size(self) -> int:
        return self.buffered


class Owner:
    """Collects what an attempt would be told."""

    def __init__(self) -> None:
        self.heads: list[tuple[int, int]] = []
        self.data = b""
        self.ends = 0
        self.whole = 0
        self.losses: list[OutcomeKind] = []

    def response(self, head: ResponseHead, length: int) -> None:
        self.heads.append((head.status, length))

    def body(self, data: bytes) -> None:
        self.data += data

    def answered(self, head: ResponseHead, body: bytes) -> None:
        self.whole += 1
        self.data += body

    def ended(self) -> None:
        self.ends += 1

    def lost(self, kind: OutcomeKind, detail: str) -> None:
        self.losses.append(kind)


class Bench:
    """One connection with an owner."""

    def __init__(self) -> None:
        self.pool = Pool(HeadReader(), Sweeper(), 3.0)
        self.target = Target(ReplicaSpec(ReplicaId("r"), "http://h:1"), GatewayConfig(), None)
        self.pool.set_target(self.target)
        self.connection = UpstreamConnection(self.pool, self.target)
        self.transport = Transport()
        self.connection.connection_made(self.transport)
        self.owner = self.send()

    def send(self) -> Owner:
        owner = Owner()
        self.connection.send(owner, b"HEAD", b"BODY")
        return owner

    def feed(self, data: bytes, step: int = 0) -> None:
        for at in range(0, len(data), step or len(data)):
            if not self.transport.aborted:
                self.connection.data_received(data[at : at + (step or len(data))])


FIXED = b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello"
CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n"


@pytest.mark.parametrize("raw", [FIXED, CHUNKED, b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n" + FIXED])
@pytest.mark.parametrize("step", [0, 1, 3])
def test_a_response_that_ends_cleanly_frees_the_connection(raw: bytes, step: int) -> None:
    bench = Bench()
    bench.feed(raw, step)
    assert (bench.owner.data, bench.owner.ends, bench.owner.losses) == (b"hello", 1, [])
    assert bench.pool.idle == 1
    assert bench.transport.written == b"HEADBODY"
    assert bench.pool.acquire(bench.target) is bench.connection
    second = bench.send()
    bench.feed(raw, step)
    assert second.data == b"hello"


JSON = b'HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 7\r\n\r\n{"a":1}'


@pytest.mark.parametrize(
    ("raw", "step", "whole"),
    [
        (JSON, 0, 1),
        (b"HTTP/1.1 103 Early Hints\r\n\r\n" + JSON, 0, 1),
        (JSON, 3, 0),
        (JSON.replace(b"200", b"400"), 0, 0),
        (JSON.replace(b"json", b"jsonl"), 0, 0),
        (JSON + b"more", 0, 0),
        (JSON.replace(b"content-type", b"content-encoding: gzip\r\ncontent-type"), 0, 0),
    ],
)
def test_a_json_answer_that_arrives_at_once_is_handed_over_at_once(raw: bytes, step: int, whole: int) -> None:
    bench = Bench()
    bench.feed(raw, step)
    assert (bench.owner.whole, bench.owner.ends) == (whole, 1 - whole)
    assert bench.owner.data == b'{"a":1}'
    assert bench.pool.idle == (b"more" not in raw)


@pytest.mark.parametrize("status", [204, 304])
def test_responses_without_a_body(status: int) -> None:
    bench = Bench()
    bench.feed(b"HTTP/1.1 %d X\r\ncontent-length: 5\r\n\r\n" % status)
    assert (bench.owner.heads, bench.owner.ends, bench.pool.idle) == ([(status, 5)], 1, 1)


@pytest.mark.parametrize(
    "raw",
    [
        FIXED.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n"),
        FIXED.replace(b"HTTP/1.1", b"HTTP/1.0"),
        FIXED + b"surplus",
        FIXED + b"HTTP/1.1 200 OK\r\n\r\n",
        CHUNKED + b"surplus",
        CHUNKED + b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nabc",
    ],
)
def test_what_is_not_kept(raw: bytes) -> None:
    bench = Bench()
    bench.feed(raw)
    assert (bench.owner.data, bench.owner.ends) == (b"hello", 1)
    assert bench.pool.idle == 0
    assert bench.transport.aborted


def test_an_early_response_does_not_leave_half_a_request_behind() -> None:
    bench = Bench()
    bench.transport.buffered = 1
    bench.feed(FIXED)
    assert bench.owner.ends == 1
    assert bench.pool.idle == 0


@pytest.mark.parametrize(
    "raw",
    [
        b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\ntransfer-encoding: chunked\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nHTTP/1.1 200 OK\r\n\r\n",
        b"HTTP/1.1 101 Switching\r\n\r\n",
        b"SSH-2.0-x\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 200 + b"\r\n",
        b"HTTP/1.1 200 OK\r\nx: " + b"y" * 70_000,
        b"HTTP/1.1 100 Continue\r\n\r\n" * 10,
    ],
)
@pytest.mark.parametrize("step", [0, 1000])
def test_hostile_heads(raw: bytes, step: int) -> None:
    bench = Bench()
    bench.feed(raw, step)
    assert (bench.owner.losses, bench.owner.heads) == ([OutcomeKind.BAD_RESPONSE], [])
    assert bench.transport.aborted


@pytest.mark.parametrize("tail", [b"zz\r\n", b"5\nhello", b"2\r\nhelp", b"5 \r\nhello\r\n"])
def test_broken_chunks_are_a_bad_response(tail: bytes) -> None:
    bench = Bench()
    bench.feed(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" + tail)
    assert bench.owner.losses == [OutcomeKind.BAD_RESPONSE]
    assert (bench.owner.ends, bench.pool.idle) == (0, 0)


@pytest.mark.parametrize(
    ("before", "kind"),
    [
        (b"", OutcomeKind.RESET),
        (b"HTTP/1.1 20", OutcomeKind.BAD_RESPONSE),
        (FIXED[:-1], OutcomeKind.TRUNCATED),
        (CHUNKED[:-1], OutcomeKind.TRUNCATED),
        (CHUNKED[:-12], OutcomeKind.TRUNCATED),
    ],
)
@pytest.mark.parametrize("error", [None, ConnectionResetError()])
def test_deaths(before: bytes, kind: OutcomeKind, error: Exception | None) -> None:
    bench = Bench()
    if before:
        bench.feed(before)
    bench.connection.connection_lost(error)
    assert (bench.owner.losses, bench.owner.ends) == ([kind], 0)


def test_a_reused_connection_that_dies_at_once_is_stale() -> None:
    bench = Bench()
    bench.feed(FIXED)
    bench.pool.acquire(bench.target)
    second = bench.send()
    bench.connection.connection_lost(None)
    assert second.losses == [OutcomeKind.STALE_CONNECTION]


def test_a_reused_connection_that_dies_later_is_not_stale() -> None:
    bench = Bench()
    bench.feed(FIXED)
    bench.pool.acquire(bench.target)
    second = bench.send()
    bench.pool.sweeper.passes += 10
    bench.connection.connection_lost(None)
    assert second.losses == [OutcomeKind.RESET]


def test_a_body_until_close_ends_with_the_connection() -> None:
    bench = Bench()
    bench.feed(b"HTTP/1.1 200 OK\r\n\r\nhello")
    bench.connection.connection_lost(None)
    assert (bench.owner.data, bench.owner.ends) == (b"hello", 1)
    other = Bench()
    other.feed(b"HTTP/1.1 200 OK\r\n\r\nhello")
    other.connection.connection_lost(ConnectionResetError())
    assert other.owner.losses == [OutcomeKind.TRUNCATED]


def test_bytes_nobody_asked_for_end_an_idle_connection() -> None:
    bench = Bench()
    bench.feed(FIXED)
    bench.feed(b"HTTP/1.1 408 Timeout\r\n\r\n")
    assert bench.pool.idle == 0
    assert bench.transport.aborted


def test_idle_connections_are_dropped_before_the_engine_would() -> None:
    bench = Bench()
    bench.feed(FIXED)
    bench.connection.idle_since -= 10
    assert bench.pool.acquire(bench.target) is None
    assert bench.transport.aborted
    other = Bench()
    other.feed(FIXED)
    other.connection.idle_since -= 10
    other.pool.prune()
    assert other.pool.idle == 0


def test_a_replaced_replica_takes_no_connection_of_its_predecessor() -> None:
    bench = Bench()
    bench.pool.set_target(Target(bench.target.spec, GatewayConfig(), None))
    bench.feed(FIXED)
    assert bench.owner.ends == 1
    assert bench.pool.idle == 0


def test_the_latest_connection_is_used_first() -> None:
    bench = Bench()
    bench.feed(FIXED)
    younger = UpstreamConnection(bench.pool, bench.target)
    younger.connection_made(Transport())
    bench.pool.release(younger)
    assert bench.pool.acquire(bench.target) is younger


def test_failure_to_connect_is_a_value(run: Run) -> None:
    async def main() -> None:
        pool = Pool(HeadReader(), Sweeper(), 3.0)
        server = await asyncio.start_server(lambda r, w: None, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        server.close()
        target = Target(ReplicaSpec(ReplicaId("r"), f"http://127.0.0.1:{port}"), GatewayConfig(), None)
        failures: list[tuple[OutcomeKind, str]] = []
        await pool.connect(target, lambda _: None, lambda kind, detail: failures.append((kind, detail)))
        ((kind, detail),) = failures
        assert kind is OutcomeKind.CONNECT_FAILED
        assert str(port) not in detail
        await pool.close()

    run(main())


@pytest.mark.parametrize("number", sorted(SHORTAGES))
def test_what_we_lack_ourselves_is_not_held_against_the_replica(
    run: Run, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    async def none_left(*_args: object, **_more: object) -> None:
        raise OSError(number, "none left")

    async def main() -> None:
        pool = Pool(HeadReader(), Sweeper(), 3.0)
        target = Target(ReplicaSpec(ReplicaId("r"), "http://127.0.0.1:1"), GatewayConfig(), None)
        monkeypatch.setattr(asyncio.get_running_loop(), "create_connection", none_left, raising=False)
        failures: list[OutcomeKind] = []
        await pool.connect(target, lambda _: None, lambda kind, _detail: failures.append(kind))
        assert failures == [OutcomeKind.NO_RESOURCES]
        await pool.close()

    run(main())
