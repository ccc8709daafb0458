"""The grammar of HTTP/1.1 heads: a request's on the way in, a response's on the way back.

One regular expression accepts a whole head or refuses it; nothing is repaired. What it accepts is a subset of RFC 9112
on which all parsers agree: CRLF line ends only, no folding, no space before a colon, no control characters, one Host,
one framing. That is what keeps requests from being smuggled past us (docs: the tests compare it with llhttp).
Lines that mean something to a proxy are taken out by name; all others stay one untouched run of bytes.
Quantifiers are possessive only over character classes: over groups, Python before 3.11.5 gets them wrong (gh-106052).
No I/O, no state but the compiled expressions.
"""

import re
from collections.abc import Iterable
from typing import Any, Final, TypeVar

TOKEN: Final = rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]++"
VALUE: Final = rb"[^\x00-\x08\n-\x1f\x7f]*+"
FIELDS: Final = rb"((?:\r\n" + TOKEN + rb":" + VALUE + rb")*)\r\n\r\n"

_REQUEST: Final = re.compile(rb"(" + TOKEN + rb") ([\x21-\x7e]++) HTTP/1\.([01])" + FIELDS)
_RESPONSE: Final = re.compile(rb"HTTP/1\.([01]) (([1-9][0-9][0-9])(?: " + VALUE + rb")?)" + FIELDS)
_OTHER_VERSION: Final = re.compile(rb"[A-Z]+ \S+ HTTP/[0-9]+(?:\.[0-9]+)?")
_ABSOLUTE: Final = re.compile(rb"(?i:https?)://([A-Za-z0-9.\-_~%:\[\]]+)(/[^#]*)?")
_HOST: Final = re.compile(rb"[A-Za-z0-9.\-_~%:\[\]]*")
_LENGTH: Final = re.compile(rb"[0-9]{1,15}")
MAX_REMEMBERED: Final = 1024
MAX_REMEMBERED_BYTES: Final = 2048
"""A client repeats its head with every request, but for the length of the body; engines repeat theirs within a second.
So heads are remembered without their length's digits: whatever digits stand there, the rest reads the same."""

HOP_BY_HOP: Final = (
    rb"connection", rb"keep-alive", rb"proxy-connection", rb"proxy-authenticate", rb"proxy-authorization",
    rb"te", rb"trailer", rb"upgrade", rb"http2-settings",
)  # fmt: skip
"""Headers that end at a proxy (RFC 9110, 7.6.1, and the ones in use besides)."""

_FRAMING: Final = (rb"content[-_]length", rb"transfer[-_]encoding")  # the underscore is a known way past a filter
_REQUEST_NAMES: Final = (
    *_FRAMING, *HOP_BY_HOP, rb"host", rb"expect", rb"authorization", rb"x-api-key", rb"api-key", rb"content-type",
    rb"origin", rb"access-control-request-method", rb"x-request-id", rb"forwarded", rb"x-forwarded-[a-z]+",
    rb"accept-encoding", rb"content-encoding",
)  # fmt: skip
_RESPONSE_NAMES: Final = (
    *_FRAMING,
    *HOP_BY_HOP,
    rb"content-type",
    rb"content-encoding",
    rb"retry-after",
    rb"x-request-id",
)
_ONCE: Final = frozenset(
    (b"host", b"content-length", b"transfer-encoding", b"authorization", b"x-api-key", b"api-key", b"content-type",
     b"expect", b"origin")
)  # fmt: skip
"""Two lines of one of these contradict each other: the request is ambiguous."""
_KEPT: Final = frozenset((b"content-type", b"content-encoding", b"retry-after", b"origin"))
"""Read and passed on."""
_CREDENTIALS: Final = frozenset((b"authorization", b"x-api-key", b"api-key"))
"""Never passed on as they are, whatever the settings read them for."""


class Refusal:
    """Why a head was not accepted: the status to answer with and words for people. The connection must be closed."""

    __slots__ = ("code", "message", "status")

    def __init__(self, status: int, code: str, message: str) -> None:
        self.status = status
        self.code = code
        self.message = message

    def __repr__(self) -> str:
        return f"<Refusal {self.status} {self.code}: {self.message}>"


class _Repeatable:
    """A head that may come again on the same connection, with other digits in its length."""

    __slots__ = ("_before", "_behind", "_latest", "_length")

    def __init__(self) -> None:
        self._before = self._behind = b""
        self._latest = b""  # the whole of it, as it came last
        self._length = 0

    def again(self, data: bytes) -> tuple[int, int]:
        """(length, end of the head) if `data` begins with this head again, as it was remembered; else an end of 0."""
        latest = self._latest
        if latest and data.startswith(latest):
            return self._length, len(latest)
        before = self._before
        if not before or not data.startswith(before):
            return 0, 0
        start = len(before)
        end = data.find(b"\r", start, start + 16)
        digits = data[start:end]
        if end < 0 or not digits.isdigit() or not data.startswith(self._behind, end):
            return 0, 0
        end += len(self._behind)
        self._latest = data[:end]
        self._length = int(digits)
        return self._length, end

    def known_as(self, before: bytes, behind: bytes) -> None:
        """What it consists of, but for the digits. Nothing: it is no longer remembered."""
        self._before, self._behind, self._latest = before, behind, b""


class RequestHead(_Repeatable):
    """An accepted request head.

    `target` is the origin-form target as bytes (path and query), `path` its path. `rest` holds the lines we have no
    business with, each preceded by CRLF, verbatim. `fields` are the others: lower-case name -> value without outer
    blanks; lines of one name joined by a comma. Never changed once read: requests whose heads differ in nothing but
    the body's length share one (`HeadReader`), and `notes` is where others keep what they work out from it.
    """

    __slots__ = (
        "authority", "chunked", "fields", "keep_alive", "method", "minor", "notes", "path", "rest", "target",
    )  # fmt: skip

    def __init__(self, method: bytes, target: bytes, minor: bytes, rest: bytes, fields: dict[bytes, bytes]) -> None:
        super().__init__()
        self.method = method.decode("ascii")
        self.target = target
        self.path = target.partition(b"?")[0].decode("ascii")
        self.minor = 1 if minor == b"1" else 0
        self.rest = rest
        self.fields = fields
        self.authority = b""
        self.chunked = False
        self.keep_alive = self.minor == 1
        self.notes: Any = None

    def __repr__(self) -> str:
        return f"<RequestHead {self.method} {self.path}>"


class ResponseHead(_Repeatable):
    """An accepted response head. `lead` is its status line and end-to-end lines, ready to be passed on; `media` the
    content type in lower case without parameters; empty if the body is compressed, and so not for us to read;
    `is_answer` tells that the body is a JSON answer."""

    __slots__ = ("chunked", "fields", "is_answer", "keep_alive", "lead", "media", "status")

    def __init__(self, status: int, status_line: bytes, rest: bytes, fields: dict[bytes, bytes]) -> None:
        super().__init__()
        self.status = status
        self.lead = b"HTTP/1.1 " + status_line + rest
        self.fields = fields
        plain = fields.get(b"content-encoding", b"identity").lower() == b"identity"
        self.media = fields.get(b"content-type", b"").partition(b";")[0].strip().lower() if plain else b""
        self.is_answer = status == 200 and self.media == b"application/json"
        self.chunked = False
        self.keep_alive = True

    def __repr__(self) -> str:
        return f"<ResponseHead {self.status}>"


Head = TypeVar("Head", RequestHead, ResponseHead)
_Key = tuple[bytes, bytes]


class _Ambiguous(Exception):
    """A field occurs twice that must not, or two fields contradict each other."""


def _lines(names: Iterable[bytes]) -> re.Pattern[bytes]:
    return re.compile(rb"(\r\n((?i:" + b"|".join(names) + rb")):[ \t]*+([^\r]*+))")


def _sort_out(special: re.Pattern[bytes], keep: frozenset[bytes], block: bytes) -> tuple[bytes, dict[bytes, bytes]]:
    """Read the special lines of a block into a dict, and take those out that are not in `keep`."""
    parts = special.split(block)
    if len(parts) == 1:
        return block, {}
    rest = [parts[0]]
    fields: dict[bytes, bytes] = {}
    for i in range(1, len(parts), 4):
        line, name, value, others = parts[i : i + 4]
        name = name.lower()
        value = value.rstrip(b" \t")
        if name in fields:
            if name in _ONCE:
                raise _Ambiguous(name.decode())
            value = fields[name] + b", " + value
        fields[name] = value
        if name in keep:
            rest.append(line)
        rest.append(others)
    return b"".join(rest), fields


def _framing(fields: dict[bytes, bytes], minor: bytes) -> tuple[int, bool]:
    """(length or -1, chunked). Raises _Ambiguous unless at most one framing is stated, and in so many words."""
    if b"content_length" in fields or b"transfer_encoding" in fields:
        raise _Ambiguous("framing header with an underscore")
    length = fields.pop(b"content-length", None)
    coding = fields.pop(b"transfer-encoding", None)
    if coding is not None:
        if length is not None or minor == b"0" or coding.lower() != b"chunked":
            raise _Ambiguous("transfer-encoding")
        return -1, True
    if length is None:
        return -1, False
    if _LENGTH.fullmatch(length) is None:
        raise _Ambiguous("content-length")
    return int(length), False


def without(rest: bytes, nominated: Iterable[bytes]) -> bytes:
    """`rest` less the lines that a Connection header nominates as hop-by-hop."""
    names = frozenset(nominated)
    lines = rest.split(b"\r\n")
    return b"\r\n".join([line for line in lines if line.partition(b":")[0].lower() not in names])


def _nominated(connection: bytes) -> list[bytes]:
    tokens = [token.strip(b" \t").lower() for token in connection.split(b",")]
    return [t for t in tokens if t and t not in (b"close", b"keep-alive", b"upgrade", b"te", b"http2-settings")]


class HeadReader:
    """Reads heads. `read` are names of request headers the settings care about (they pass on), `dropped` of ones that
    only we may set upstream; `samples` are response headers meant for us; `own_cors`: the engine's CORS is not wanted.
    """

    def __init__(
        self,
        max_headers: int = 100,
        read: Iterable[str] = (),
        dropped: Iterable[str] = (),
        samples: Iterable[str] = (),
        own_cors: bool = False,
    ) -> None:
        self._max_headers = max_headers
        self._requests: dict[_Key, RequestHead] = {}
        self._responses: dict[_Key, ResponseHead] = {}
        extra = [name.lower().encode() for name in read if name]
        self._keep = frozenset((*_KEPT, *extra)) - _CREDENTIALS
        known = [*extra, *(name.lower().encode() for name in dropped if name)]
        self._request = _lines((*_REQUEST_NAMES, *map(re.escape, known)))
        cors = [rb"access-control-[a-z-]+"] if own_cors else []
        self._response = _lines((*_RESPONSE_NAMES, *(re.escape(n.encode()) for n in samples if n), *cors))

    @property
    def remembered(self) -> int:
        """Request heads that are kept for the next request like them."""
        return len(self._requests)

    def forget(self) -> None:
        """Keep none of the request heads, nor what others have noted with them."""
        _forget(self._requests)

    def request(self, data: bytes) -> tuple[RequestHead | Refusal, int]:
        """Read a request head that ends with an empty line. The length is that of the body, 0 if chunked or none."""
        key, length = _apart(data)
        head = self._requests.get(key)
        if head is not None:
            return head, length
        read = self._read_request(data)
        if length >= 0 and isinstance(read[0], RequestHead):
            _remember(self._requests, key, read[0])
        return read

    def response(self, data: bytes) -> tuple[ResponseHead | None, int]:
        """Read a response head that ends with an empty line; None if it is not one. The length is -1 if not stated."""
        key, length = _apart(data)
        head = self._responses.get(key)
        if head is not None:
            return head, length
        head, stated = self._read_response(data)
        if head is not None and stated == length:  # else a length spelt in an uncommon way
            _remember(self._responses, key, head)
        return head, stated

    def _read_request(self, data: bytes) -> tuple[RequestHead | Refusal, int]:
        found = _REQUEST.fullmatch(data)
        if found is None:
            return _malformed(data), 0
        method, target, minor, block = found.groups()
        if block.count(b"\r\n") > self._max_headers:
            return Refusal(431, "too_many_headers", "The request has too many headers."), 0
        try:
            rest, fields = _sort_out(self._request, self._keep, block)
            head = RequestHead(method, target, minor, rest, fields)
            length, head.chunked = _framing(fields, minor)
        except _Ambiguous as error:
            return Refusal(400, "bad_request", f"The request head is ambiguous: {error}."), 0
        refusal = _routing(head)
        if refusal is None:
            _connection(head)
        return refusal or head, max(length, 0)

    def _read_response(self, data: bytes) -> tuple[ResponseHead | None, int]:
        found = _RESPONSE.fullmatch(data)
        if found is None or found[4].count(b"\r\n") > self._max_headers:
            return None, 0
        minor, status_line, status, block = found.groups()
        if status_line == status:
            status_line += b" "  # RFC 9112, 4: the blank stays where the reason is left out
        try:
            rest, fields = _sort_out(self._response, _KEPT, block)
            length, chunked = _framing(fields, minor)
        except _Ambiguous:
            return None, 0
        connection = fields.get(b"connection", b"").lower()
        if connection and (nominated := _nominated(connection)):
            rest = without(rest, nominated)
        head = ResponseHead(int(status), status_line, rest, fields)
        head.chunked = chunked
        head.keep_alive = b"close" not in connection if minor == b"1" else b"keep-alive" in connection
        return head, length


def _apart(data: bytes) -> tuple[_Key, int]:
    """What comes before and behind the digits of the length, and the length; without one, the whole and -1."""
    before, line, rest = data.partition(b"\r\ncontent-length: ")
    if not line:
        before, line, rest = data.partition(b"\r\nContent-Length: ")
    digits, end, behind = rest.partition(b"\r\n")
    if digits.isdigit() and len(digits) < 16:
        return (before + line, end + behind), int(digits)
    return (data, b""), -1


def _remember(heads: dict[_Key, Head], key: _Key, head: Head) -> None:
    """Keep a head for the next request like it. Full: start anew, which costs each kind of head one more reading."""
    if len(key[0]) + len(key[1]) <= MAX_REMEMBERED_BYTES:
        if len(heads) >= MAX_REMEMBERED:
            _forget(heads)
        heads[key] = head
        if key[1]:
            head.known_as(*key)


def _forget(heads: dict[_Key, Head]) -> None:
    """Remember none, on no connection."""
    for head in heads.values():
        head.known_as(b"", b"")
    heads.clear()


def _malformed(data: bytes) -> Refusal:
    line = data.partition(b"\r\n")[0]
    if _OTHER_VERSION.fullmatch(line) and not line.endswith((b" HTTP/1.1", b" HTTP/1.0")):
        return Refusal(505, "http_version", "Only HTTP/1.1 and HTTP/1.0 are spoken here.")
    return Refusal(400, "bad_request", "The request head is malformed.")


def _routing(head: RequestHead) -> Refusal | None:
    """Check Host and bring the target into origin form."""
    host = head.fields.get(b"host")
    if host is None and head.minor == 1:
        return Refusal(400, "bad_request", "The Host header is missing.")
    head.authority = host or b""
    if _HOST.fullmatch(head.authority) is None:
        return Refusal(400, "bad_request", "The Host header is malformed.")
    if head.method == "CONNECT":
        return Refusal(405, "method_not_allowed", "CONNECT is not served here.")
    if b"#" in head.target:
        return Refusal(400, "bad_request", "The request target has a fragment.")
    if head.target.startswith(b"/") or (head.target == b"*" and head.method == "OPTIONS"):
        return None
    absolute = _ABSOLUTE.fullmatch(head.target)
    if absolute is None:
        return Refusal(400, "bad_request", "The request target is malformed.")
    head.authority = absolute[1]
    head.target = absolute[2] or b"/"
    head.path = head.target.partition(b"?")[0].decode("ascii")
    return None


def _connection(head: RequestHead) -> None:
    """Decide on keep-alive; drop the lines that the client nominates."""
    connection = head.fields.get(b"connection")
    if connection is None:
        return
    if connection == b"keep-alive":
        head.keep_alive = True
        return
    lower = connection.lower()
    tokens = [token.strip(b" \t") for token in lower.split(b",")]
    head.keep_alive = b"close" not in tokens and (head.minor == 1 or b"keep-alive" in tokens)
    head.rest = without(head.rest, _nominated(lower))
