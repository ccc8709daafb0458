"""A client that sends any bytes in any pieces, leaves in any way, and reads responses to the letter."""

import asyncio
import json
import re
import socket
import struct
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from tests.harness.http1 import Malformed, Message, Reader

BLANK_LINE = re.compile(rb"\r?\n\r?\n")
DATA = re.compile(rb"^data: ?([^\r\n]*)", re.MULTILINE)


@dataclass
class Event:
    """One server-sent event: when its last byte arrived, and its data."""

    at: float
    data: bytes

    @property
    def json(self) -> Any:
        """The data, decoded."""
        return json.loads(self.data)


@dataclass
class Answer:
    """A response and when it came. `error` says what was wrong with it, empty when it ended as its framing says."""

    message: Message
    error: str = ""
    head_at: float = 0.0
    ended_at: float = 0.0
    events: list[Event] = field(default_factory=list)
    interim: list[Message] = field(default_factory=list)

    @property
    def status(self) -> int:
        """The status code."""
        return self.message.status

    @property
    def body(self) -> bytes:
        """The body without framing."""
        return bytes(self.message.body)

    @property
    def json(self) -> Any:
        """The body, decoded."""
        return json.loads(self.message.body)

    @property
    def done(self) -> bool:
        """A stream that ended with `[DONE]`."""
        return any(event.data == b"[DONE]" for event in self.events)

    @property
    def failure(self) -> Any:
        """The error object of an in-band error event, None without one."""
        for event in self.events:
            if event.data != b"[DONE]" and (error := event.json.get("error")) is not None:
                return error
        return None


def request(
    path: str = "/v1/chat/completions",
    body: object = None,
    method: str = "",
    headers: Mapping[str, str] | Sequence[tuple[str, str]] = (),
    version: str = "1.1",
) -> bytes:
    """The bytes of a request. A body that is not bytes is sent as JSON, headers given replace our own."""
    data = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
    given = list(headers.items() if isinstance(headers, Mapping) else headers)
    names = {name.lower() for name, _ in given}
    lines = [f"{method or ('POST' if data else 'GET')} {path} HTTP/{version}"]
    lines += [f"{name}: {value}" for name, value in (given if "host" in names else [("Host", "gateway.test"), *given])]
    if data and "content-type" not in names:
        lines.append("Content-Type: application/json")
    if data:
        lines.append(f"Content-Length: {len(data)}")
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + data


def chat(stream: bool = False, content: str = "hi", model: str = "m", **more: object) -> dict[str, object]:
    """A chat body."""
    body: dict[str, object] = {"model": model, "messages": [{"role": "user", "content": content}], **more}
    return {**body, "stream": True} if stream else body


class RawClient:
    """One connection to the gateway. Use it as an async context manager."""

    def __init__(self, port: int, host: str = "127.0.0.1", ssl: Any = None, limit: int = 1 << 20) -> None:
        self._where = (host, port, ssl)
        self._limit = limit
        self._parser = Reader(response=True)
        self._reader: asyncio.StreamReader
        self._writer: asyncio.StreamWriter
        self._ready: list[Message] = []
        self.received = bytearray()
        self.pieces: list[tuple[float, int]] = []

    async def __aenter__(self) -> Self:
        host, port, ssl = self._where
        self._reader, self._writer = await asyncio.open_connection(host, port, ssl=ssl, limit=self._limit)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._writer.transport.abort()

    @property
    def port(self) -> int:
        """Our own port."""
        port: int = self._writer.get_extra_info("sockname")[1]
        return port

    async def send(self, *pieces: bytes, gap_s: float = 0.0) -> None:
        """Write the pieces as separate segments."""
        sock = self._writer.get_extra_info("socket")
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for number, piece in enumerate(pieces):
            if number:
                await asyncio.sleep(gap_s)
            self._writer.write(piece)
            await self._writer.drain()

    async def ask(self, path: str = "/v1/chat/completions", body: object = None, **options: Any) -> Answer:
        """One request and its answer."""
        data = request(path, body, **options)
        await self.send(data)
        return await self.answer(method=data.split(b" ", 1)[0].decode())

    def half_close(self) -> None:
        """Send FIN and keep reading."""
        self._writer.write_eof()

    def close(self) -> None:
        """Send FIN, read no more."""
        self._writer.close()

    def rst(self) -> None:
        """Leave with RST."""
        sock = self._writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._writer.transport.abort()

    async def read_bytes(self, count: int, timeout_s: float = 5.0) -> bytes:
        """Read until that many bytes of the connection have been received in all; all of them."""
        async with asyncio.timeout(timeout_s):
            while len(self.received) < count and await self._read_some():
                pass
        return bytes(self.received)

    async def read_events(self, count: int, timeout_s: float = 5.0) -> int:
        """Read until so many events have arrived in this connection; how many did."""
        async with asyncio.timeout(timeout_s):
            while self.received.count(b"data:") < count and await self._read_some():
                pass
        return self.received.count(b"data:")

    async def rest(self, timeout_s: float = 5.0) -> bytes:
        """Everything the connection ever received, once it is closed. A reset ends it, too."""
        async with asyncio.timeout(timeout_s):
            while await self._read_some():
                pass
        return bytes(self.received)

    async def closed(self, timeout_s: float = 5.0) -> bool:
        """Whether the other side closes in time; what it says before is read and kept."""
        try:
            await self.rest(timeout_s)
        except TimeoutError:
            return False
        return True

    async def answer(self, timeout_s: float = 10.0, method: str = "POST") -> Answer:
        """The next response. Raises Malformed for bytes that are no response; a cut one has `error` set."""
        self._parser.methods.append(method)
        answer = Answer(self._parser.message)
        counted = 0
        async with asyncio.timeout(timeout_s):
            while True:
                self._take_ready(answer)
                counted = self._stamp(answer, counted)
                if answer.ended_at:
                    return answer
                if not await self._read_some():
                    self._end(answer)
                    self._stamp(answer, counted)
                    return answer

    def _take_ready(self, answer: Answer) -> None:
        while self._ready and not answer.ended_at:
            message = self._ready.pop(0)
            if message.status < 200:
                answer.interim.append(message)
            else:
                answer.message = message
                answer.ended_at = time.perf_counter()
        if not answer.ended_at:
            answer.message = self._parser.message

    def _end(self, answer: Answer) -> None:
        try:
            self._ready += self._parser.end()
        except Malformed as error:
            answer.error = str(error)
        self._take_ready(answer)
        if not answer.ended_at and not answer.error:
            answer.error = "closed without a response"
        answer.ended_at = time.perf_counter()

    def _stamp(self, answer: Answer, counted: int) -> int:
        """Note the arrival of the head and of each event that is complete by now."""
        if answer.message.headers and not answer.head_at:
            answer.head_at = time.perf_counter()
        if not answer.message.start or "event-stream" not in answer.message.get("content-type"):
            return 0
        for blank in BLANK_LINE.finditer(answer.message.body, counted):
            lines = DATA.findall(answer.message.body[counted : blank.end()])
            if lines:
                answer.events.append(Event(time.perf_counter(), b"\n".join(lines)))
            counted = blank.end()
        return counted

    async def _read_some(self) -> bool:
        try:
            data = await self._reader.read(65536)
        except ConnectionError:
            return False
        if not data:
            return False
        self.received += data
        self.pieces.append((time.perf_counter(), len(data)))
        self._ready += self._parser.feed(data)
        return True
