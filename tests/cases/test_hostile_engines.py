"""Engines that do not speak HTTP as they should (B2).

What must hold: the client gets an exact copy of a sound response, or an error of the 502 class, never a mixture; the
connection is not used again; nothing grows beyond a bound.
"""

import asyncio
import time
import tracemalloc
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from tests.cases.house import House, case, until
from tests.harness import scripts
from tests.harness.client import Answer, chat
from tests.harness.engine import Connection, Script, Seen

OK = b"HTTP/1.1 200 OK\r\n"
MEDIA = b"content-type: application/octet-stream\r\n"
HELLO = b"content-length: 5\r\n\r\nhello"

CHUNKED = b"transfer-encoding: chunked\r\n\r\n"
FIVE = b"5\r\nhello\r\n0\r\n\r\n"
EARLY = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: a\r\n\r\n"
NO_RESPONSE = {
    "garbage": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 hello?\r\n\r\n",
    "http2": b"\x00\x00\x12\x04\x00\x00\x00\x00\x00\x00\x03\x00\x00\x00\x80\x00\x04\x00\x01\x00\x00",
    "http09": b"hello\r\n\r\n",
    "other_version": b"HTTP/2.0 200 OK\r\n" + HELLO,
    "lower_case": b"http/1.1 200 OK\r\n" + HELLO,
    "no_status": b"HTTP/1.1 OK\r\n" + HELLO,
    "status_of_two_digits": b"HTTP/1.1 20 OK\r\n" + HELLO,
    "status_of_four_digits": b"HTTP/1.1 2000 OK\r\n" + HELLO,
    "status_zero": b"HTTP/1.1 000 OK\r\n" + HELLO,
    "two_status_lines": OK + OK + HELLO,
    "switching": b"HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: upgrade\r\n\r\nhello",
    "two_framings": OK + b"transfer-encoding: chunked\r\n" + HELLO,
    "two_framings_reversed": OK + b"content-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
    "two_lengths": OK + b"content-length: 6\r\n" + HELLO,
    "two_equal_lengths": OK + b"content-length: 5\r\n" + HELLO,
    "length_list": OK + b"content-length: 5, 5\r\n\r\nhello",
    "length_negative": OK + b"content-length: -5\r\n\r\nhello",
    "length_with_plus": OK + b"content-length: +5\r\n\r\nhello",
    "length_hexadecimal": OK + b"content-length: 0x5\r\n\r\nhello",
    "length_empty": OK + b"content-length:\r\n\r\nhello",
    "length_blank": OK + b"content-length: \r\n\r\nhello",
    "length_endless": OK + b"content-length: 99999999999999999999\r\n\r\nhello",
    "coding_unknown": OK + b"transfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "coding_twice": OK + b"transfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
    "coding_misspelt": OK + b"transfer-encoding: chunked\x0b\r\n\r\n0\r\n\r\n",
    "no_colon": OK + b"hello\r\n" + HELLO,
    "blank_before_colon": OK + b"content-length : 5\r\n\r\nhello",
    "folded": OK + b"x-a: b\r\n c\r\n" + HELLO,
    "nul_in_value": OK + b"x-a: b\x00c\r\n" + HELLO,
    "cr_in_value": OK + b"x-a: b\rc: d\r\n" + HELLO,
    "lf_in_value": OK + b"x-a: b\nc: d\r\n" + HELLO,
    "bare_line_feeds": b"HTTP/1.1 200 OK\ncontent-length: 5\n\nhello",
    "underscored_framing": OK + b"content_length: 7\r\n" + HELLO,
    "empty_name": OK + b": x\r\n" + HELLO,
    "too_many_headers": OK + b"".join(b"x-%d: y\r\n" % n for n in range(5000)) + HELLO,
    "too_large_header": OK + b"x: " + b"y" * 100_000 + b"\r\n" + HELLO,
    "many_interim": b"HTTP/1.1 100 Continue\r\n\r\n" * 50 + OK + HELLO,
    "long_interim": b"HTTP/1.1 103 Early Hints\r\nlink: " + b"x" * 100_000 + b"\r\n\r\n" + OK + HELLO,
    "interim_with_framing": b"HTTP/1.1 103 Early Hints\r\ncontent-length: 5\r\n\r\nhello" + OK + HELLO,
    "early_line_ends": b"\r\n\r\n" + OK + HELLO,
}  # fmt: skip
"""Heads that are none, or contradict themselves."""

BROKEN_CHUNKS = {
    "size_negative": b"-5\r\nhello\r\n0\r\n\r\n",
    "size_prefixed": b"0x5\r\nhello\r\n0\r\n\r\n",
    "size_endless": b"fffffffffffffffff\r\nhello\r\n0\r\n\r\n",
    "size_missing": b"\r\nhello\r\n0\r\n\r\n",
    "size_not_hexadecimal": b"5g\r\nhello\r\n0\r\n\r\n",
    "data_too_long": b"3\r\nhello\r\n0\r\n\r\n",
    "data_without_line_end": b"5\r\nhello0\r\n\r\n",
    "bare_line_feed": b"5\nhello\n0\n\n",
    "nul_in_extension": b"5;a=\x00\r\nhello\r\n0\r\n\r\n",
}

SURPLUS = {
    "response_behind_a_length": (OK + MEDIA + HELLO + OK + HELLO, b"hello"),
    "bytes_behind_a_length": (OK + MEDIA + HELLO + b"!", b"hello"),
    "response_behind_chunks": (OK + MEDIA + CHUNKED + FIVE + OK + HELLO, b"hello"),
    "bytes_behind_chunks": (OK + MEDIA + CHUNKED + FIVE + b"!!!!", b"hello"),
    "body_behind_204": (b"HTTP/1.1 204 No Content\r\n" + HELLO, b""),
    "body_behind_304": (b"HTTP/1.1 304 Not Modified\r\n" + HELLO, b""),
    "close_announced": (OK + MEDIA + b"connection: close\r\n" + HELLO, b"hello"),
    "http10": (b"HTTP/1.0 200 OK\r\n" + MEDIA + HELLO, b"hello"),
}  # fmt: skip
"""Sound responses after which the connection must not be used again."""

SOUND = {
    "interim": (EARLY + OK + MEDIA + HELLO, b"hello"),
    "no_reason": (b"HTTP/1.1 200\r\n" + MEDIA + HELLO, b"hello"),
    "odd_reason": (b"HTTP/1.1 200 \xe9 (fine)\r\n" + MEDIA + HELLO, b"hello"),
    "odd_status": (b"HTTP/1.1 299 Fine\r\n" + MEDIA + HELLO, b"hello"),
    "latin_value": (OK + MEDIA + b"x-a: caf\xe9\r\n" + HELLO, b"hello"),
    "odd_case": (b"HTTP/1.1 200 OK\r\n" + MEDIA + b"CONTENT-length:5 \t\r\n\r\nhello", b"hello"),
    "extensions_and_trailers": (OK + MEDIA + CHUNKED.title() + b"5;a=b\r\nhello\r\n00\r\nx: y\r\n\r\n", b"hello"),
    "length_without_blank": (OK + MEDIA + b"content-length:5\r\n\r\nhello", b"hello"),
    "empty": (OK + MEDIA + b"content-length: 0\r\n\r\n", b""),
}  # fmt: skip


async def _then_another(house: House, response: bytes, at: int) -> tuple[Answer, bool]:
    """The client's answer to this response, sent in two pieces, and whether its connection was used again."""
    house.engine.then(scripts.raw(response[:at], response[at:], gap_s=0.002))
    async with house.client() as client:
        answer = await client.ask(body=chat())
    again = await house.ask(chat())
    assert again.status == 200
    connections = [seen.connection for seen in house.engine.log.inference]
    return answer, connections[-1] in connections[:-1]


@pytest.mark.parametrize("split", ["whole", "cut"])
@pytest.mark.parametrize("what", NO_RESPONSE)
@case(scripts.answer())
async def test_what_is_no_response_is_502(house: House, what: str, split: str) -> None:
    """B2: heads that are none, contradict themselves or do not end: 502, the connection is closed, the next is fine."""
    response = NO_RESPONSE[what]
    answer, reused = await _then_another(house, response, len(response) if split == "whole" else len(response) // 2)
    assert answer.status == 502
    assert answer.json["error"]["type"] == "upstream_error"
    assert not reused
    await house.at_rest(started=2, ok=1, server_error=1)
    assert house.count("headway_attempts_total", outcome="bad_response") == 1


@pytest.mark.parametrize("media", ["application/json", "text/event-stream", "application/octet-stream"])
@pytest.mark.parametrize("what", BROKEN_CHUNKS)
@case(scripts.answer())
async def test_broken_chunks_are_no_end(house: House, what: str, media: str) -> None:
    """B2: framing that breaks within the body: 502 if nothing was given to the client, else visibly cut."""
    head = OK + b"content-type: %b\r\ntransfer-encoding: chunked\r\n\r\n" % media.encode()
    answer, reused = await _then_another(house, head + BROKEN_CHUNKS[what], len(head))
    assert not reused
    if answer.status == 200:
        assert answer.error
        assert media != "application/json"
    else:
        assert answer.status == 502
        assert not answer.error
    await house.at_rest(started=2, ok=1, server_error=1)


@pytest.mark.parametrize("what", SURPLUS)
@case(scripts.answer())
async def test_what_follows_a_response_is_nobodys(house: House, what: str) -> None:
    """B2: bytes behind the end of a response reach no client, and its connection is not used again."""
    response, body = SURPLUS[what]
    answer, reused = await _then_another(house, response, len(response))
    assert (answer.status, answer.body, answer.error) == (int(response[9:12]), body, "")
    assert not reused
    await house.at_rest(started=2, ok=2)


@pytest.mark.parametrize("what", SOUND)
@case(scripts.answer())
async def test_odd_but_sound_responses_are_relayed_exactly(house: House, what: str) -> None:
    """B2: what the RFC allows passes, and the connection stays."""
    response, body = SOUND[what]
    for at in (len(response), len(response) // 2, 10):
        answer, reused = await _then_another(house, response, at)
        assert (answer.status, answer.body, answer.error) == (
            int(response[9:12]) if what != "interim" else 200,
            body,
            "",
        )
        assert reused
        assert not answer.interim
        lines = [line for line in response.split(b"\r\n") if line.startswith(b"x-a")]
        assert all(line in bytes(answer.message.raw) for line in lines)


@case(scripts.answer())
async def test_a_head_seen_before_is_read_as_well(house: House) -> None:
    """B2: heads that differ in the spelling of their length only, in turns: each is read for what it says."""
    heads = {b"content-length: 5": 200, b"content-length: ": 502, b"content-length:5": 200, b"content-length: 05": 200}
    for line, status in [*heads.items()] * 3:
        house.engine.then(scripts.then_close(scripts.raw(OK + MEDIA + line + b"\r\n\r\nhello"), after_s=0.02))
        answer = await house.ask(chat())
        assert (answer.status, answer.error) == (status, "")
        assert status != 200 or answer.body == b"hello"


@case(scripts.answer())
async def test_an_answer_without_a_question_is_dropped(house: House) -> None:
    """B2: a response on an idle connection is nobody's; the next request goes over a fresh one and gets its own."""

    async def blurts(connection: Connection, seen: Seen) -> None:
        await scripts.answer()(connection, seen)
        await asyncio.sleep(0.02)
        await connection.send(scripts.response(b'{"not":"yours"}'))

    house.engine.then(blurts)
    assert (await house.ask(chat())).status == 200
    await house.engine.wait_for(lambda log: log.open == 0)
    assert (await house.ask(chat())).json == scripts.CHAT_ANSWER


def endless(begin: bytes, piece: bytes) -> Script:
    """Writes a beginning and then the same piece until the peer has had enough."""

    async def script(connection: Connection, _: Seen) -> None:
        await connection.send(begin)
        while not connection.gone.is_set():
            await connection.send(piece)

    return script


FLOODS: dict[str, tuple[bytes, bytes]] = {
    "head": (OK + b"x: ", b"y" * 16384),
    "headers": (OK, b"x-y: z\r\n" * 2000),
    "reason": (b"HTTP/1.1 200 ", b"O" * 16384),
    "interim": (b"", b"HTTP/1.1 102 Processing\r\n\r\n" * 500),
    "line_ends": (b"", b"\r\n" * 8000),
    "chunk_size": (OK + b"transfer-encoding: chunked\r\n\r\n", b"0" * 16384),
    "chunk_extension": (OK + b"transfer-encoding: chunked\r\n\r\n5;a=", b"b" * 16384),
    "trailers": (OK + b"transfer-encoding: chunked\r\n\r\n0\r\n", b"x: y\r\n" * 2000),
}


@pytest.mark.parametrize("what", FLOODS)
@case(scripts.answer())
async def test_floods_are_cut_off_in_time(house: House, what: str) -> None:
    """B2: heads, interim responses and framing without end: 502 before a MiB was kept."""
    assert (await house.ask(chat())).status == 200
    house.engine.then(endless(*FLOODS[what]))
    tracemalloc.start()
    began = time.perf_counter()
    try:
        answer = await house.ask(chat())
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert answer.status == 502
    assert time.perf_counter() - began < 3.0
    assert peak < 1 << 20
    await house.engine.wait_for(lambda log: log.running == 0)


class Hasty(asyncio.Protocol):
    """Answers as soon as the first bytes of a request arrive. `then`: what it does next."""

    def __init__(self, log: list[str], then: str) -> None:
        self._log = log
        self._then = then
        self._answered = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: asyncio.Transport = transport  # type: ignore[assignment]
        self._log.append("open")

    def data_received(self, data: bytes) -> None:
        if self._answered:
            return
        self._answered = True
        self._transport.write(scripts.response(b'{"error":{"message":"too large"}}', "413 Content Too Large"))
        if self._then == "closes":
            self._transport.close()
        elif self._then == "stops reading":
            self._transport.pause_reading()
            asyncio.get_running_loop().call_later(0.1, self._transport.resume_reading)

    def connection_lost(self, exc: Exception | None) -> None:
        self._log.append("closed")


@asynccontextmanager
async def hasty(house: House, then: str) -> AsyncIterator[list[str]]:
    """Put a hasty engine in the place of r0."""
    log: list[str] = []
    make: Callable[[], Hasty] = lambda: Hasty(log, then)  # noqa: E731
    server = await asyncio.get_running_loop().create_server(make, "127.0.0.1", 0)
    house.add(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", 0)
    try:
        yield log
        await until(lambda: log.count("closed") == log.count("open"), describe=lambda: log)
    finally:
        server.close()


@pytest.mark.parametrize("then", ["closes", "reads on", "stops reading"])
@case(scripts.answer())
async def test_an_answer_before_the_request_was_read(house: House, then: str) -> None:
    """B2: an engine answers while 20 MB are still being sent to it: its answer is relayed, the connection given up."""
    async with hasty(house, then) as log:
        for _ in range(3):
            answer = await house.ask(chat(content="x" * 20_000_000))
            assert (answer.status, answer.json["error"]["message"]) == (413, "too large")
        if then != "reads on":
            assert log.count("open") == 3
        await house.at_rest(started=3, client_error=3)
        house.add(house.engine.url, 0)
    assert (await house.ask(chat())).status == 200
