"""Request smuggling by machine: B1 beyond the written corpus (`tests/gateway/smuggling.py`, sent by its own test).

Every place of a request's head and framing is spoilt with every odd byte, a good request behind it as bait. Nothing is
expected of a single mutant but that everybody agrees: what the engine got is read in the same way by four readers (a
strict one, llhttp, h11 and a careless one), it is what the client's bytes say to the strict reader, and each request
that was forwarded was answered.
"""

import random
from collections.abc import Callable, Iterator
from contextlib import suppress

import h11
import httptools
import pytest

from headway.gateway.config import GatewayConfig, Limits
from headway.gateway.protocol import MAX_EMPTY_BYTES
from tests.cases.house import SEED, SOAK, House, case, gather_bounded
from tests.harness import scripts
from tests.harness.http1 import Malformed, Message, Reader

ODD = [b"\x00", b"\t", b"\n", b"\x0b", b"\x0c", b"\r", b" ", b"\r\n", b"\n\n", b"\x1f", b"\x7f", b"\x80", b"\xff", b'"',
       b",", b";", b":", b"0", b"_", b"+", b"-", b"\r\n ", b"\r\r\n", b"\\", b"#", b"\xc4\xb0", b"\xa0"]  # fmt: skip
LAST = b"GET /v1/models/last HTTP/1.1\r\nHost: g\r\nConnection: close\r\n\r\n"
HURRIED = GatewayConfig(port=0, limits=Limits(head_timeout_s=0.3, body_timeout_s=0.3))


def base(kind: str, number: int) -> bytes:
    """A good request; its number is in its body."""
    body = b'{"model":"m","n":"%06d"}' % number
    head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: gateway\r\n"
    length, coding = b"Content-Length: %d\r\n" % len(body), b"Transfer-Encoding: chunked\r\n"
    size = b"%x" % len(body)
    return {
        "length": head + length + b"X-A: b\r\n\r\n" + body,
        "chunked": head + coding + b"\r\n" + size + b"\r\n" + body + b"\r\n0\r\n\r\n",
        "two_chunks": head
        + coding
        + b"\r\n1;x=y\r\n{\r\n%x\r\n" % (len(body) - 1)
        + body[1:]
        + b"\r\n0\r\nX-A: b\r\n\r\n",
        "both": head + length + coding + b"\r\n" + size + b"\r\n" + body + b"\r\n0\r\n\r\n",
    }[kind]


def mutations(data: bytes) -> Iterator[Callable[[bytes], bytes]]:
    """Each odd byte put in and put over each place, each place left out, each line twice with each kind of line end."""
    for at in range(len(data)):
        yield lambda d, at=at: d[:at] + d[at + 1 :]
        for odd in ODD:
            yield lambda d, at=at, odd=odd: d[:at] + odd + d[at:]
            yield lambda d, at=at, odd=odd: d[:at] + odd + d[at + 1 :]
    for number in range(data.count(b"\r\n")):
        for end in (b"\r\n", b"\n", b"\r", b"\r\n "):
            yield lambda d, number=number, end=end: _line_twice(d, number, end)


def _line_twice(data: bytes, number: int, end: bytes) -> bytes:
    lines = data.split(b"\r\n")
    return b"\r\n".join([*lines[:number], lines[number] + end + lines[number], *lines[number + 1 :]])


def by_llhttp(data: bytes) -> list[bytes]:
    """Bodies as llhttp reads them."""
    bodies: list[bytes] = []

    class Listener:
        def on_message_begin(self) -> None:
            bodies.append(b"")

        def on_body(self, piece: bytes) -> None:
            bodies[-1] += piece

    httptools.HttpRequestParser(Listener()).feed_data(data)
    return bodies


def by_h11(data: bytes) -> list[bytes]:
    """Bodies as h11 reads them."""
    bodies: list[bytes] = []
    while data:
        reader = h11.Connection(h11.SERVER, max_incomplete_event_size=100_000)
        reader.receive_data(data)
        while not isinstance(event := reader.next_event(), h11.EndOfMessage):
            assert event is not h11.NEED_DATA
            if isinstance(event, h11.Request):
                bodies.append(b"")
            elif isinstance(event, h11.Data):
                bodies[-1] += bytes(event.data)
        data = reader.trailing_data[0]
    return bodies


def by_the_careless(data: bytes) -> list[bytes]:
    """Bodies as a reader sees them that splits at any line end and believes the first length it meets."""
    bodies: list[bytes] = []
    while data.strip():
        lines, at = [], 0
        while (end := data.find(b"\n", at)) >= 0:
            line, at = data[at:end].rstrip(b"\r"), end + 1
            if not line:
                break
            lines.append(line)
        lengths = [
            line.split(b":")[1] for line in lines if line.lower().replace(b" ", b"").startswith(b"content-length:")
        ]
        assert not [line for line in lines if b"transfer" in line.lower()]
        assert len(lengths) == 1
        bodies.append(data[at : at + int(lengths[0])])
        data = data[at + int(lengths[0]) :]
    return bodies


READERS: list[Callable[[bytes], list[bytes]]] = [by_llhttp, by_h11, by_the_careless]


READ_AS_SENT: list[Callable[[bytes], list[bytes]]] = [by_llhttp, by_h11, by_the_careless]


def by_the_letter(data: bytes) -> list[bytes]:
    """Bodies as a strict reader sees them, up to where it stops. A few empty lines before a request are forgiven."""
    reader, bodies, at = Reader(), [], 0
    with suppress(Malformed):
        while at < len(data):
            for _ in range(MAX_EMPTY_BYTES // 2):
                at += 2 * (reader.idle and data.startswith(b"\r\n", at))
            bodies += [bytes(message.body) for message in reader.feed(data[at : at + 1])]
            at += 1
    return bodies


def is_part_of(some: list[bytes], whole: list[bytes]) -> bool:
    """Whether `some` are in `whole`, in that order."""
    left = iter(whole)
    return all(item in left for item in some)


async def answers(house: House, pieces: list[bytes]) -> list[Message]:
    """Every response on one connection, which ends after the last request at the latest."""
    reader = Reader(response=True)
    async with house.client() as client:
        with suppress(ConnectionError):
            await client.send(*pieces)
        data = await client.rest(timeout_s=8.0)
    return [*reader.feed(data), *reader.end()]


async def agreed(house: House, number: int, mutant: bytes) -> None:
    """Send a mutant and a bait, then check that everybody agrees on what they were."""
    if b"%06d" % number not in mutant:
        return  # it could not be told from others
    data = mutant + base("length", number + 500_000) + LAST
    cut = random.Random(number).randrange(1, len(data))
    statuses = [message.status for message in await answers(house, [data[:cut], data[cut:]])]
    marks = b"%06d" % number, b"%06d" % (number + 500_000)
    seen = [seen for seen in house.engine.log.inference if any(mark in seen.request.body for mark in marks)]
    forwarded = [bytes(one.request.body) for one in seen]
    upstream = b"".join(bytes(one.request.raw) for one in seen)
    for read in READ_AS_SENT:
        assert read(upstream) == forwarded, (data, upstream)
    meant = by_the_letter(data)
    assert is_part_of(forwarded, meant), (data, forwarded)
    assert statuses.count(200) == len(forwarded), (data, statuses)
    assert all(status == 200 or 400 <= status < 506 for status in statuses), (data, statuses)
    assert len(statuses) <= len(meant) + 1, (data, statuses)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["length", "chunked", "two_chunks", "both"])
@case(scripts.answer(), config=HURRIED)
async def test_everybody_agrees_on_every_mutant(house: House, kind: str) -> None:
    """B1: all mutants of four requests (here 600 of each)."""
    all_of_them = list(mutations(base(kind, 0)))
    chosen = all_of_them if SOAK else random.Random(SEED).sample(all_of_them, 600)
    work = (agreed(house, number, mutate(base(kind, number))) for number, mutate in enumerate(chosen))
    await gather_bounded(60, work)
    assert not house.engine.log.malformed
    assert house.booked


def test_mutants_reach_both_sides() -> None:
    """The machine is of use only if some mutants are forwarded, some refused: here as the strict reader sees them."""
    sizes = [
        len(by_the_letter(mutate(base("length", 1)) + base("length", 2))) for mutate in mutations(base("length", 1))
    ]
    assert 200 < sizes.count(2) < len(sizes) - 1_000


test_mutants_reach_both_sides.checks_books = True  # type: ignore[attr-defined]  # no gateway here
