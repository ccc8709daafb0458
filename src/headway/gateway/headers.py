"""Header lines that we write ourselves: forwarding, CORS, and the head of a relayed response."""

import re
from typing import Final

from headway.gateway.config import Cors
from headway.gateway.head import RequestHead

_REQUEST_ID = re.compile(rb"[\x21-\x7e]{1,128}")
_NAME = re.compile(r"[0-9A-Za-z\-]{1,64}")
_UNFIT = re.compile(r"[^\x20-\x7e]")
MAX_DISCLOSED_CHARS: Final = 256
LEVEL_HEADER: Final = "x-headway-level"
POSITION_HEADER: Final = "x-queue-position"
WAIT_HEADER: Final = "x-expected-wait-s"

Disclosed = tuple[tuple[str, str], ...]
"""Names and values of response headers that say what was changed about a request."""


def forwarded_lines(peer: bytes, secure: bool) -> bytes:
    """The X-Forwarded-* lines, set once: the client's own are dropped."""
    return b"\r\nX-Forwarded-For: %b\r\nX-Forwarded-Proto: %b" % (peer, b"https" if secure else b"http")


def trusted_forwarded_lines(head: RequestHead, peer: bytes, secure: bool) -> bytes:
    """The same behind a balancer that is trusted: its lines stay, and its address is added."""
    proto = b"https" if secure else b"http"
    fields = head.fields
    earlier = fields.get(b"x-forwarded-for")
    lines = [b"\r\nX-Forwarded-For: " + (b"%b, %b" % (earlier, peer) if earlier else peer)]
    lines.append(b"\r\nX-Forwarded-Proto: " + fields.get(b"x-forwarded-proto", proto))
    lines += [
        b"\r\n%b: %b" % (name, value)
        for name, value in fields.items()
        if name.startswith((b"x-forwarded-", b"forwarded")) and name not in (b"x-forwarded-for", b"x-forwarded-proto")
    ]
    return b"".join(lines)


def client_id(head: RequestHead) -> str:
    """The client's own x-request-id if it is fit to be repeated in headers and logs, else empty."""
    value = head.fields.get(b"x-request-id")
    return value.decode("ascii") if value is not None and _REQUEST_ID.fullmatch(value) else ""


_EXPOSED: Final = ", ".join(("x-request-id", "retry-after", LEVEL_HEADER, POSITION_HEADER, WAIT_HEADER)).encode()
"""Headers of ours that scripts of other origins may read. What is disclosed of single requests is added there."""


class CorsLines:
    """Header lines for browsers. Everything is empty when no origin is allowed."""

    def __init__(self, cors: Cors) -> None:
        self._any = "*" in cors.origins
        self._origins = frozenset(origin.encode() for origin in cors.origins)
        self.configured = bool(cors.origins)
        self._preflight = (
            b"\r\naccess-control-allow-methods: GET, POST, OPTIONS\r\naccess-control-allow-headers: %b"
            b"\r\naccess-control-max-age: %d" % (", ".join(cors.headers).encode(), cors.max_age_s)
        )

    def lines(self, head: RequestHead) -> bytes:
        """What each response to this request carries."""
        if not self.configured:
            return b""
        origin = head.fields.get(b"origin")
        if origin is None:
            return b""
        exposed = b"\r\naccess-control-expose-headers: " + _EXPOSED
        if self._any:
            return b"\r\naccess-control-allow-origin: *" + exposed
        if origin not in self._origins:
            return b"\r\nvary: Origin"
        return b"\r\naccess-control-allow-origin: %b\r\nvary: Origin%b" % (origin, exposed)

    def disclosed(self, head: RequestHead, pairs: Disclosed) -> bytes:
        """Lines for these names and values, in plain ASCII and of bounded length, which scripts may read if they may
        read anything. A name that is none is left out: it would break the whole head."""
        fit = [
            (name, _UNFIT.sub("?", value)[:MAX_DISCLOSED_CHARS].strip())
            for name, value in pairs
            if _NAME.fullmatch(name)
        ]
        if not fit:
            return b""
        lines = "".join(f"\r\n{name}: {value}" for name, value in fit)
        if b"access-control-allow-origin" in self.lines(head):
            lines += f"\r\naccess-control-expose-headers: {', '.join(name for name, _ in fit)}"
        return lines.encode("ascii")

    def preflight(self, head: RequestHead) -> bytes:
        """What the answer to a preflight carries besides."""
        allowed = self._any or head.fields.get(b"origin", b"") in self._origins
        return self._preflight if self.configured and allowed else b""
