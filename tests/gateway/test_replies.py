"""Our own answers."""

import msgspec
import pytest

from headway.gateway.replies import connection_line, refusal, reply, retry_after, without_body


def test_a_refusal_has_openais_shape() -> None:
    head, _, body = refusal(404, "model_not_found", "No.", b"\r\nx: y", "model").partition(b"\r\n\r\n")
    assert head.split(b"\r\n") == [
        b"HTTP/1.1 404 Not Found",
        b"content-type: application/json",
        b"content-length: %d" % len(body),
        b"x: y",
    ]
    assert msgspec.json.decode(body)["error"]["code"] == "model_not_found"


def test_odd_statuses_become_500() -> None:
    assert refusal(999, "x", "y").startswith(b"HTTP/1.1 500 ")


def test_no_content_has_no_length() -> None:
    assert reply(204, b"", b"\r\nallow: GET") == b"HTTP/1.1 204 No Content\r\nallow: GET\r\n\r\n"


def test_head_gets_the_head() -> None:
    assert without_body(reply(200, b"{}")).endswith(b"content-length: 2\r\n\r\n")


@pytest.mark.parametrize(("seconds", "line"), [(0.0, b""), (0.2, b"\r\nretry-after: 1"), (2.1, b"\r\nretry-after: 3")])
def test_retry_after(seconds: float, line: bytes) -> None:
    assert retry_after(seconds) == line


@pytest.mark.parametrize(
    ("minor", "keep", "word"), [(1, False, b"close"), (0, True, b"keep-alive"), (0, False, b"close")]
)
def test_connection(minor: int, keep: bool, word: bytes) -> None:
    assert connection_line(minor, keep) == b"\r\nconnection: " + word


def test_keep_alive_needs_no_words_in_http_1_1() -> None:
    assert connection_line(1, True) == b""
