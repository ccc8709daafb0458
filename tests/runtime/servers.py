"""A server for tests: answers by path from a table that may be changed while it runs, and leaves nothing behind."""

import asyncio
import re
import ssl
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

LENGTH = re.compile(rb"\r\ncontent-length: *([0-9]+)", re.IGNORECASE)


@dataclass
class Reply:
    """What a path answers. `raw` replaces the whole answer; `delay_s` None means never."""

    body: bytes = b""
    status: int = 200
    delay_s: float | None = 0.0
    raw: bytes | None = None
    headers: tuple[str, ...] = ()

    def encode(self) -> bytes:
        if self.raw is not None:
            return self.raw
        head = [f"HTTP/1.1 {self.status} X", f"content-length: {len(self.body)}", *self.headers, "", ""]
        return "\r\n".join(head).encode() + self.body


@dataclass
class Served:
    """A running server: where it listens, what it answers (path -> Reply), and what it was asked."""

    url: str = ""
    replies: dict[str, Reply] = field(default_factory=dict)
    asked: Counter[str] = field(default_factory=Counter)
    heads: list[bytes] = field(default_factory=list)
    transports: set[asyncio.Transport] = field(default_factory=set)
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    async def asked_for(self, path: str, times: int) -> None:
        """Wait until a path has been asked for this many times."""
        async with asyncio.timeout(20):
            while self.asked[path] < times:
                self.changed.clear()
                await self.changed.wait()


class _Connection(asyncio.Protocol):
    def __init__(self, served: Served) -> None:
        self.served = served
        self.buffer = b""
        self.timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: asyncio.Transport = transport  # type: ignore[assignment]
        self.served.transports.add(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self.served.transports.discard(self.transport)
        if self.timer is not None:
            self.timer.cancel()

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        while b"\r\n\r\n" in self.buffer:
            head, _, rest = self.buffer.partition(b"\r\n\r\n")
            owed = LENGTH.search(head)
            if owed is not None and len(rest) < int(owed[1]):
                return
            self.buffer = rest[int(owed[1]) :] if owed is not None else rest
            self.served.heads.append(head)
            path = head.split(b" ", 2)[1].decode()
            self.served.asked[path] += 1
            self.served.changed.set()
            reply = self.served.replies.get(path, Reply(b'{"detail":"Not Found"}', 404))
            if reply.delay_s is not None:
                self.timer = asyncio.get_running_loop().call_later(reply.delay_s, self.answer, reply)

    def answer(self, reply: Reply) -> None:
        self.transport.write(reply.encode())
        if reply.raw is not None:
            self.transport.close()


@asynccontextmanager
async def serving(replies: dict[str, Reply], port: int = 0, tls: ssl.SSLContext | None = None) -> AsyncIterator[Served]:
    """Serve these replies on loopback until the block ends; every connection is cut then."""
    served = Served(replies=replies)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: _Connection(served), "127.0.0.1", port, backlog=512, ssl=tls)
    served.url = f"http{'s' if tls else ''}://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield served
    finally:
        server.close()
        for transport in list(served.transports):
            transport.abort()
        await server.wait_closed()
        await asyncio.sleep(0)
