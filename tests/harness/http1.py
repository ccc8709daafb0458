"""Strict HTTP/1.1 messages for tests: what does not keep to RFC 9112 to the letter is an error, never guessed at.

Written apart from the gateway's own parser on purpose: two readers that share a mistake would agree on it.
"""

import re
from collections.abc import Generator
from dataclasses import dataclass, field
from typing import TypeVar

REQUEST_LINE = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+ [\x21-\x7e]+ HTTP/1\.[01]")
STATUS_LINE = re.compile(rb"HTTP/1\.[01] [1-5][0-9]{2} [\t\x20-\x7e\x80-\xff]*")
TOKEN = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
VALUE = rb"[\x21-\x7e\x80-\xff](?:[ \t\x21-\x7e\x80-\xff]*[\x21-\x7e\x80-\xff])?"
FIELD = re.compile(rb"(%b):[ \t]*(|%b)[ \t]*" % (TOKEN, VALUE))
CHUNK = re.compile(rb"([0-9a-fA-F]{1,8})(?:[ \t]*;[\t\x20-\x7e\x80-\xff]*)?")


T = TypeVar("T")
Steps = Generator[None, None, T]


class Malformed(AssertionError):
    """A peer broke the protocol."""


@dataclass
class Message:
    """A request or a response. `raw` is every byte it was made of; `body` is without framing."""

    start: bytes = b""
    headers: list[tuple[str, str]] = field(default_factory=list)
    body: bytearray = field(default_factory=bytearray)
    raw: bytearray = field(default_factory=bytearray)
    framing: str = "none"
    trailers: list[tuple[str, str]] = field(default_factory=list)

    def all(self, name: str) -> list[str]:
        """Every value of a header, in order."""
        return [value for key, value in self.headers if key == name]

    def get(self, name: str) -> str:
        """The one value of a header, empty when absent. Twice is an error."""
        values = self.all(name)
        if len(values) > 1:
            raise Malformed(f"{name} is there {len(values)} times: {values}")
        return values[0] if values else ""

    @property
    def method(self) -> str:
        """The method of a request."""
        return self.start.split(b" ")[0].decode()

    @property
    def target(self) -> str:
        """The target of a request."""
        return self.start.split(b" ")[1].decode()

    @property
    def path(self) -> str:
        """The target without its query."""
        return self.target.partition("?")[0]

    @property
    def status(self) -> int:
        """The status of a response."""
        return int(self.start[9:12])


class Reader:
    """Makes messages of one connection's bytes. `methods` are those asked for, in order, when reading responses."""

    def __init__(self, response: bool = False) -> None:
        self._response = response
        self._steps = self._read()
        self._data = bytearray()
        self._ended = False
        self._messages: list[Message] = []
        self.message = Message()
        self.methods: list[str] = []
        next(self._steps)

    def feed(self, data: bytes) -> list[Message]:
        """Messages completed by these bytes. Raises Malformed."""
        self._data += data
        if next(self._steps, self) is self:
            raise Malformed("bytes after an error")
        done, self._messages = self._messages, []
        return done

    def end(self) -> list[Message]:
        """The peer sent FIN. Raises Malformed when that cuts a message."""
        self._ended = True
        return self.feed(b"")

    @property
    def idle(self) -> bool:
        """Between two messages, nothing left over."""
        return not self._data and not self.message.start

    def _read(self) -> Steps[None]:
        while True:
            self.message = Message()
            while not self._data:
                yield
            yield from self._read_head()
            if self._response and self.message.status < 200 and self.message.status != 101:
                self._messages.append(self.message)
                continue
            yield from self._read_body()
            self._messages.append(self.message)

    def _read_head(self) -> Steps[None]:
        line = yield from self._line()
        if not (STATUS_LINE if self._response else REQUEST_LINE).fullmatch(line):
            raise Malformed(f"start line {line[:200]!r}")
        self.message.start = line
        self.message.headers = yield from self._fields()

    def _read_body(self) -> Steps[None]:
        message = self.message
        method = self.methods.pop(0) if self._response and self.methods else ""
        if self._response and (method == "HEAD" or message.status in (204, 304)):
            return
        coding, length = message.get("transfer-encoding"), message.get("content-length")
        if coding:
            if coding.lower() != "chunked" or length:
                raise Malformed(f"framing: transfer-encoding {coding!r}, content-length {length!r}")
            message.framing = "chunked"
            yield from self._chunks()
        elif length:
            if not re.fullmatch("[0-9]+", length):
                raise Malformed(f"content-length {length!r}")
            message.framing = "length"
            yield from self._grow(int(length))
        elif self._response:
            message.framing = "close"
            while self._data or not self._ended:
                yield from self._grow(len(self._data))
                if not self._ended:
                    yield

    def _chunks(self) -> Steps[None]:
        while True:
            line = yield from self._line()
            size = CHUNK.fullmatch(line)
            if size is None:
                raise Malformed(f"chunk size {line[:100]!r}")
            if not int(size[1], 16):
                break
            yield from self._grow(int(size[1], 16))
            if (yield from self._take(2)) != b"\r\n":
                raise Malformed("a chunk does not end where its size says")
        self.message.trailers = yield from self._fields()

    def _fields(self) -> Steps[list[tuple[str, str]]]:
        fields: list[tuple[str, str]] = []
        while line := (yield from self._line()):
            one = FIELD.fullmatch(line)
            if one is None:
                raise Malformed(f"header line {line[:200]!r}")
            fields.append((one[1].decode().lower(), one[2].decode("latin-1")))
        return fields

    def _line(self) -> Steps[bytes]:
        while (end := self._data.find(b"\n")) < 0:
            yield from self._more()
        line = yield from self._take(end + 1)
        if not line.endswith(b"\r\n"):
            raise Malformed(f"a bare LF ends {line[:200]!r}")
        return line[:-2]

    def _take(self, count: int) -> Steps[bytes]:
        while len(self._data) < count:
            yield from self._more()
        taken = bytes(self._data[:count])
        del self._data[:count]
        self.message.raw += taken
        return taken

    def _grow(self, count: int) -> Steps[None]:
        """Take body bytes as they come, so that a reader can be watched while it reads."""
        while count:
            if not self._data:
                yield from self._more()
            piece = yield from self._take(min(count, len(self._data)))
            self.message.body += piece
            count -= len(piece)

    def _more(self) -> Steps[None]:
        if self._ended:
            raise Malformed(f"cut by FIN after {len(self.message.raw) + len(self._data)} bytes")
        yield
