"""Answers the gateway gives itself: refusals, /health, /v1/models, preflights. They never pass through the relay."""

import math
from http import HTTPStatus
from typing import Final

from headway.gateway.headers import POSITION_HEADER, WAIT_HEADER
from headway.wire.errors import error_body

_STATUS_LINES: Final = {status.value: b"%d %s" % (status.value, status.phrase.encode()) for status in HTTPStatus}
_STATUS_LINES[413] = b"413 Content Too Large"
CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"


def connection_line(minor: int, keep_alive: bool) -> bytes:
    """The Connection header, where the version's default is not what we mean."""
    if keep_alive:
        return b"\r\nconnection: keep-alive" if minor == 0 else b""
    return b"\r\nconnection: close"


def status_line(status: int) -> bytes:
    """Status and phrase; of one that we do not know, no phrase."""
    return _STATUS_LINES.get(status, b"%d " % status)


def reply(status: int, body: bytes, lines: bytes = b"", content_type: bytes = b"application/json") -> bytes:
    """A whole response. `lines` are further header lines, each preceded by CRLF."""
    head = b"HTTP/1.1 " + _STATUS_LINES[status]
    if status == 204:
        return head + lines + b"\r\n\r\n"
    return b"%b\r\ncontent-type: %b\r\ncontent-length: %d%b\r\n\r\n%b" % (head, content_type, len(body), lines, body)


def without_body(response: bytes) -> bytes:
    """The same response as the answer to HEAD."""
    return response[: response.index(b"\r\n\r\n") + 4]


def refusal(status: int, code: str, message: str, lines: bytes = b"", param: str | None = None) -> bytes:
    """An error in OpenAI's shape. A status we have no phrase for would be a mistake of ours: 500."""
    if status not in _STATUS_LINES:
        status = 500
    return reply(status, error_body(status, message, code, param), lines)


def early_hints(position: int, wait_s: float) -> bytes:
    """A whole interim response: the position in the queue, and the seconds it may take if anything is known of that."""
    wait = b"\r\n%b: %.1f" % (WAIT_HEADER.encode(), wait_s) if wait_s > 0 else b""
    return b"HTTP/1.1 103 Early Hints\r\n%b: %d%b\r\n\r\n" % (POSITION_HEADER.encode(), position, wait)


def retry_after(seconds: float) -> bytes:
    """The Retry-After line: whole seconds, at least one; nothing when nothing was asked."""
    return b"\r\nretry-after: %d" % max(1, math.ceil(seconds)) if seconds > 0 else b""
