"""The grammar of heads: what is refused, what is taken apart, and that llhttp agrees with what is accepted."""

import httptools
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.gateway.head import HeadReader, Refusal, RequestHead

READER = HeadReader(
    read=("x-session-id",), dropped=("endpoint-load-metrics-format",), samples=("endpoint-load-metrics",)
)


def read(*lines: str, first: str = "POST /v1/x?q=1 HTTP/1.1") -> RequestHead | Refusal:
    return HeadReader().request("\r\n".join((first, *lines, "", "")).encode("latin-1"))[0]


def accepted(*lines: str, first: str = "POST /v1/x?q=1 HTTP/1.1") -> RequestHead:
    head = read("Host: h", *lines, first=first)
    assert isinstance(head, RequestHead), head
    return head


@pytest.mark.parametrize(
    ("raw", "status"),
    [
        (b"POST / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nHost: a/b\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nHost: a@b\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1, 1\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: +1\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0x1\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: \r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1_0\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nHost: a\r\nContent_Length: 1\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: identity\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: xchunked\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
        (b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding : chunked\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nHost: a\r\n Transfer-Encoding: chunked\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nHost: a\r\nX: a\r\n b\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nHost: a\r\nX: a\nTransfer-Encoding: chunked\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nHost: a\r\nX: a\rb\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nHost: a\r\nX: a\x00b\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nHost: a\r\nX\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nHost: a\r\n: x\r\n\r\n", 400),
        (b"POST  / HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        (b"POST / HTTP/1.1 \r\nHost: a\r\n\r\n", 400),
        (b"POST / http/1.1\r\nHost: a\r\n\r\n", 400),
        (b"POST /\r\n\r\n", 400),
        (b"POST x HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        (b"POST /a#b HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        (b"POST * HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        (b"POST http://u@h/ HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        (b"CONNECT h:1 HTTP/1.1\r\nHost: h:1\r\n\r\n", 405),
        (b"PRI * HTTP/2.0\r\n\r\n", 505),
        (b"GET / HTTP/1.2\r\nHost: a\r\n\r\n", 505),
        (b"POST / HTTP/1.1\r\nHost: a\r\nAuthorization: a\r\nauthorization: b\r\n\r\n", 400),
    ],
)
def test_ambiguous_or_malformed_heads_are_refused(raw: bytes, status: int) -> None:
    head, _ = READER.request(raw)
    assert isinstance(head, Refusal), head
    assert head.status == status


def test_too_many_headers() -> None:
    head = read("Host: h", *(f"x-{n}: 1" for n in range(100)))
    assert isinstance(head, Refusal)
    assert head.status == 431


def test_lines_that_are_none_of_our_business_pass_in_order_and_verbatim() -> None:
    head = accepted("B:  two ", "Connection: keep-alive, B2", "a: one", "B2: gone", "Keep-Alive: 5", "Content-Type:x/y")
    assert head.rest == b"\r\nB:  two \r\na: one\r\nContent-Type:x/y"
    assert head.fields[b"content-type"] == b"x/y"
    assert (head.method, head.path, head.target, head.keep_alive) == ("POST", "/v1/x", b"/v1/x?q=1", True)


def test_absolute_form_names_the_authority() -> None:
    head = accepted(first="POST http://other.example:80/v1/y HTTP/1.1")
    assert (head.authority, head.target, head.path) == (b"other.example:80", b"/v1/y", "/v1/y")


@pytest.mark.parametrize(
    ("version", "connection", "keep_alive"),
    [
        ("1.1", "", True),
        ("1.1", "close", False),
        ("1.1", "x, Close", False),
        ("1.0", "", False),
        ("1.0", "Keep-Alive", True),
    ],
)
def test_keep_alive(version: str, connection: str, keep_alive: bool) -> None:
    lines = [f"Connection: {connection}"] if connection else []
    assert accepted(*lines, first=f"GET / HTTP/{version}").keep_alive is keep_alive


def test_heads_are_remembered_without_their_length() -> None:
    reader = HeadReader()
    raw = b"POST /v1/x HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n"
    first, length = reader.request(raw % 5)
    second, other = reader.request(raw % 123456)
    assert first is second
    assert (length, other) == (5, 123456)


def test_a_remembered_head_does_not_excuse_an_ambiguous_one() -> None:
    reader = HeadReader()
    raw = b"POST /v1/x HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n"
    reader.request(raw % 5)
    head, _ = reader.request(raw.replace(b"\r\n\r\n", b"\r\nContent-Length: 5\r\n\r\n") % 5)
    assert isinstance(head, Refusal)


def test_memory_of_heads_is_bounded() -> None:
    reader = HeadReader()
    for n in range(3000):
        reader.request(b"POST /v1/x HTTP/1.1\r\nHost: h\r\nX: %d\r\nContent-Length: 1\r\n\r\n" % n)
    assert len(reader._requests) <= 1024


@pytest.mark.parametrize(
    "raw",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nHTTP/1.1 200 OK\r\n\r\n",
        b"HTTP/1.1 20 OK\r\n\r\n",
        b"HTTP/1.1 000 OK\r\n\r\n",
        b"HTTP/2 200 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\nX: y\r\n\r\n",
        b"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 101 + b"\r\n",
    ],
)
def test_hostile_response_heads_are_not_accepted(raw: bytes) -> None:
    assert READER.response(raw)[0] is None


def test_a_response_head_keeps_its_lines_and_loses_hop_by_hop_ones() -> None:
    head, length = READER.response(
        b"HTTP/1.1 404 Not Here\r\nSet-Cookie: a\r\nConnection: close, X-Gone\r\nX-Gone: 1\r\nSet-Cookie: b\r\n"
        b"endpoint-load-metrics: TEXT x=1\r\nContent-Type: application/JSON; charset=x\r\nContent-Length: 7\r\n\r\n"
    )
    assert head is not None
    assert head.lead == (
        b"HTTP/1.1 404 Not Here\r\nSet-Cookie: a\r\nSet-Cookie: b\r\nContent-Type: application/JSON; charset=x"
    )
    assert (head.status, length, head.keep_alive, head.media) == (404, 7, False, b"application/json")
    assert head.fields[b"endpoint-load-metrics"] == b"TEXT x=1"


class _Seen:
    """What llhttp reads."""

    def __init__(self) -> None:
        self.fields: list[tuple[bytes, bytes]] = []
        self.complete = 0
        self.url = b""

    def on_url(self, url: bytes) -> None:
        self.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self.fields.append((name.lower(), value))

    def on_message_complete(self) -> None:
        self.complete += 1


_PIECES = st.sampled_from(
    ["Host: h", "host:x", "Content-Length: 0", "content-length:0 ", "X: a", "X:\t b", "Transfer-Encoding: chunked", "x",
     "Connection: close", " folded", "Y : z", "Z: \x00", "Expect: 100-continue", "W: \xff", "Upgrade: h2c", "TE: x"]
)  # fmt: skip


@given(st.lists(_PIECES, max_size=5), st.sampled_from(["\r\n", "\r\n", "\r\n", "\n", "\r"]))
def test_llhttp_reads_the_same_from_what_is_accepted(lines: list[str], line_end: str) -> None:
    raw = line_end.join(("POST /v1/x HTTP/1.1", *lines, "", "")).encode("latin-1")
    head, length = READER.request(raw)
    if isinstance(head, Refusal):
        return
    seen = _Seen()
    parser = httptools.HttpRequestParser(seen)
    try:
        parser.feed_data(raw)
    except httptools.HttpParserUpgrade:
        pass
    assert seen.url == head.target
    assert [value for name, value in seen.fields if name == b"host"] == [head.authority]
    assert length == 0
    assert (seen.complete == 1) is not head.chunked


AGAIN = b"POST /v1/x HTTP/1.1\r\nhost: h\r\ncontent-length: %b\r\nx-a: 1\r\n\r\n"


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (AGAIN % b"7" + b"body", (7, len(AGAIN) - 1)),
        (AGAIN % b"123456789012345", (123456789012345, len(AGAIN) + 13)),
        *(
            (data, (0, 0))
            for data in (
                AGAIN % b"1234567890123456",
                AGAIN % b"+7",
                AGAIN % b"",
                AGAIN % b"7 ",
                AGAIN % b"7_0",
                AGAIN % b"7\r\nx-a: 1",
                AGAIN.replace(b"x-a: 1", b"x-a: 2") % b"7",
                b"\r\n" + AGAIN % b"7",
                (AGAIN % b"7")[:-1],
                AGAIN[:40],
                b"",
            )
        ),
    ],
)
def test_a_head_is_known_again_by_all_but_the_digits_of_its_length(data: bytes, found: tuple[int, int]) -> None:
    reader = HeadReader()
    head, length = reader.request(AGAIN % b"12")
    assert isinstance(head, RequestHead)
    assert length == 12
    assert head.again(data) == found
    reader.forget()
    assert head.again(data) == (0, 0)


def test_a_head_without_a_length_is_not_known_again() -> None:
    head, _ = HeadReader().response(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
    assert head is not None
    assert head.again(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n") == (0, 0)
