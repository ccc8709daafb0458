"""Reading bodies off a connection, exactly: the client's (collected whole), and the engine's chunked ones (passed on).

The client's body is collected because the brain must see it before it can route, and because a retry needs it again.
Chunk extensions and trailers are checked and dropped. What is left over behind the end is given back, never guessed at.
"""

import re
from collections.abc import Callable
from typing import Final

import httptools

from headway.gateway.head import TOKEN, VALUE

MAX_CHUNK_LINE: Final = 1024  # a size and its extensions; both llhttp and haproxy take far less in practice
MAX_TRAILER_BYTES: Final = 8 * 1024
MAX_EMPTY_BYTES: Final = 16 * 1024  # framing bytes in a row that carry no data: a flood of extensions or zeros

_SIZE: Final = re.compile(rb"([0-9a-fA-F]{1,8})(?:;" + VALUE + rb")?")
_TRAILER: Final = re.compile(TOKEN + rb":" + VALUE)


class BadFraming(ValueError):
    """The bytes do not follow the framing that the head announced."""


class TooLarge(ValueError):
    """The body is longer than allowed."""


class FixedBody:
    """A body of a known length, collected in place: pieces and a joined copy would need twice the memory, and the small
    ones leave holes that the allocator cannot give back."""

    __slots__ = ("_data", "_length", "received")

    def __init__(self, length: int) -> None:
        self._length = length
        self._data = bytearray(length)  # zeroed lazily by the system: costs nothing until it is written
        self.received = 0

    def feed(self, data: bytes) -> bytes | None:
        """Take what belongs to the body. Returns what lies behind its end, None while it is not complete."""
        start = self.received
        end = self.received = min(self._length, start + len(data))
        self._data[start:end] = data if end - start == len(data) else data[: end - start]
        return None if end < self._length else data[end - start :]

    def take(self) -> bytearray:
        """The whole body; it is not kept here, nor changed any more."""
        data, self._data = self._data, bytearray()
        return data


SIZE: Final = 0
DATA: Final = 1
DATA_END: Final = 2
TRAILER: Final = 3
END: Final = 4


class ChunkedBody:
    """A chunked body, at most `limit` bytes. Raises BadFraming or TooLarge from `feed`."""

    __slots__ = ("_data", "_held", "_limit", "_missing", "_phase", "_trailer_bytes", "received")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._phase = SIZE
        self._missing = 0
        self._held = b""
        self._trailer_bytes = 0
        self._data = bytearray()
        self.received = 0

    def feed(self, data: bytes) -> bytes | None:
        """Take what belongs to the body. Returns what lies behind its end, None while it is not complete."""
        if self._held:
            data, self._held = self._held + data, b""
        at = 0
        while self._phase is not END:
            step = self._payload(data, at) if self._phase is DATA else self._line(data, at)
            if step is None:
                return None
            at = step
        return data[at:]

    def take(self) -> bytearray:
        """The whole body; it is not kept here, nor changed any more."""
        data, self._data = self._data, bytearray()
        return data

    def _payload(self, data: bytes, at: int) -> int | None:
        piece = data[at : at + self._missing]
        self._data += piece
        self._missing -= len(piece)
        if self._missing:
            return None
        self._phase = DATA_END
        return at + len(piece)

    def _line(self, data: bytes, at: int) -> int | None:
        """Take one line: a size, the end of a chunk's data, or a trailer."""
        end = data.find(b"\r\n", at, at + MAX_CHUNK_LINE)
        if end < 0:
            rest = data[at:]
            if len(rest) >= MAX_CHUNK_LINE or b"\n" in rest or b"\r" in rest[:-1]:
                raise BadFraming("a line of the chunked framing is malformed")
            if self._phase is DATA_END and rest not in (b"", b"\r"):
                raise BadFraming("chunk data is not followed by a line end")
            self._held = rest
            return None
        if self._phase is SIZE:
            self._size(data[at:end])
        elif self._phase is DATA_END:
            if end != at:
                raise BadFraming("chunk data is not followed by a line end")
            self._phase = SIZE
        else:
            self._trailer(data[at:end])
        return end + 2

    def _size(self, line: bytes) -> None:
        found = _SIZE.fullmatch(line)
        if found is None:
            raise BadFraming("a chunk size is malformed")
        self._missing = int(found[1], 16)
        self.received += self._missing
        if self.received > self._limit:
            raise TooLarge
        self._phase = DATA if self._missing else TRAILER

    def _trailer(self, line: bytes) -> None:
        if not line:
            self._phase = END
            return
        self._trailer_bytes += len(line)
        if _TRAILER.fullmatch(line) is None or self._trailer_bytes > MAX_TRAILER_BYTES:
            raise BadFraming("a trailer is malformed")


class _Collector:
    """What llhttp calls while it checks a chunked body. `on_body` is the list's own append: no Python frame."""

    def __init__(self) -> None:
        self.pieces: list[bytes] = []
        self.on_body: Callable[[bytes], None] = self.pieces.append
        self.messages = 0
        self.ours = -1
        self.within = False  # a chunk

    def on_message_begin(self) -> None:
        """The synthetic head begins the first message; any other is surplus."""
        self.messages += 1

    def on_chunk_header(self) -> None:
        """The size of a chunk was read."""
        self.within = True

    def on_chunk_complete(self) -> None:
        """Its data was read, and the line end behind it."""
        self.within = False

    def on_message_complete(self) -> None:
        """The last chunk and its trailers were read. What comes behind is not part of this body."""
        if self.ours < 0:
            self.ours = len(self.pieces)


_CHUNKS: Final = {
    line: (len(line), len(line) + size) for size in range(16, 2048) for line in (b"%x\r\n" % size, b"%X\r\n" % size)
}
"""First lines of chunks that carry one event, as engines spell them, and where the payload lies. Four or five bytes:
two looks into a table cost less than a search for the line end."""

SIZE_LINES: Final = [b"%x\r\n" % size for size in range(2048)]
"""First lines of chunks, as most engines spell them, and as we do."""

_ONLY: Final = [b""] * 22 + SIZE_LINES[16:256] + [b""] + SIZE_LINES[256:]
"""By the length of a whole chunk: the first line that it must have. (A line grows by a byte at 256.)"""


class EngineChunks:
    """An engine's chunked body, checked by llhttp: data goes in as received, payload comes out.

    Whole chunks of a usual size, one event each, are all that comes most of the time. They are recognised here, and
    llhttp, which stands between two chunks then, need not see them.
    """

    __slots__ = ("_between", "_collector", "_empty_bytes", "_feed", "complete", "surplus")

    def __init__(self) -> None:
        self._collector = _Collector()
        self._feed = httptools.HttpResponseParser(self._collector).feed_data
        self._feed(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
        self._empty_bytes = 0
        self._between = True
        self.complete = False
        self.surplus = False

    def feed(self, data: bytes) -> bytes:
        """The payload in these bytes. Raises BadFraming. Sets `complete` at the end, `surplus` if bytes follow it."""
        if self._between:
            length = len(data)
            line = _ONLY[length] if length < len(_ONLY) else b""
            one = line and data.startswith(line) and data.endswith(b"\r\n")
            payload = data[len(line) : -2] if one else _whole_chunks(data)
            if payload:
                self._empty_bytes = 0
                return payload
        return self._parse(data)

    def _parse(self, data: bytes) -> bytes:
        collector = self._collector
        try:
            self._feed(data)
        except httptools.HttpParserError as error:
            if collector.ours < 0:
                raise BadFraming(str(error)) from None
            self.surplus = True
        self._between = not collector.within and data.endswith(b"\r\n")
        pieces = collector.pieces
        if collector.ours >= 0:
            self.complete = True
            self._between = False
            self.surplus = self.surplus or collector.messages > 1
            del pieces[collector.ours :]
        payload = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        pieces.clear()
        if payload:
            self._empty_bytes = 0
            return payload
        self._empty_bytes += len(data)
        if self._empty_bytes > MAX_EMPTY_BYTES:
            raise BadFraming("chunked framing without data")
        return payload


def _whole_chunks(data: bytes) -> bytes:
    """The payload, if these are whole chunks of usual sizes and nothing else; empty if not."""
    pieces: list[bytes] = []
    at, length = 0, len(data)
    while at < length:
        place = _CHUNKS.get(data[at : at + 5]) or _CHUNKS.get(data[at : at + 4])
        if place is None:
            return b""
        start, end = at + place[0], at + place[1]
        at = end + 2
        if at > length or data[end:at] != b"\r\n":
            return b""
        pieces.append(data[start:end])
    return b"".join(pieces)
