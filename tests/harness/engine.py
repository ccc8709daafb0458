"""A scripted engine: accepts connections, logs what happened when, and does to each request what the test says.

Built on a bare protocol, not on streams, so that FIN and RST of the peer are seen at the moment they happen.
"""

import asyncio
import socket
import struct
import time
from collections import Counter, deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Self

from tests.harness.http1 import Malformed, Message, Reader


@dataclass
class Seen:
    """One request that arrived, and what became of it. Times are `time.perf_counter()`; None: it did not happen."""

    request: Message
    connection: int
    number: int
    at: float
    wrote: int = 0
    fin_at: float | None = None
    rst_at: float | None = None
    answered_at: float | None = None

    @property
    def gone_at(self) -> float | None:
        """When the peer left, in whichever way."""
        times = [at for at in (self.fin_at, self.rst_at) if at is not None]
        return min(times) if times else None


Script = Callable[["Connection", Seen], Awaitable[None]]


@dataclass
class Log:
    """What an engine has seen."""

    requests: list[Seen] = field(default_factory=list)
    accepted: list[float] = field(default_factory=list)
    malformed: list[str] = field(default_factory=list)
    hits: Counter[str] = field(default_factory=Counter)
    ids: Counter[str] = field(default_factory=Counter)
    running: int = 0
    peak: int = 0
    open: int = 0

    @property
    def inference(self) -> list[Seen]:
        """Requests other than GET: not probes and scrapes."""
        return [seen for seen in self.requests if seen.request.method != "GET"]


class Connection(asyncio.Protocol):
    """One accepted connection: what a script drives."""

    def __init__(self, engine: "ScriptedEngine") -> None:
        self._engine = engine
        self._reader = Reader()
        self._waiting: deque[Message] = deque()
        self._task: asyncio.Task[None] | None = None
        self._seen: Seen | None = None
        self._writable = asyncio.Event()
        self._transport: Any = None
        self._count = 0
        self._half_closed = False
        self.number = 0
        self.gone = asyncio.Event()
        self._writable.set()

    # What a script may do

    async def send(self, data: bytes) -> None:
        """Write, and wait while the peer reads too slowly. Raises ConnectionError when it is gone."""
        if self._transport is None or self._transport.is_closing():
            raise ConnectionResetError("the peer is gone")
        self._transport.write(data)
        if self._seen is not None:
            self._seen.wrote += len(data)
        await self._writable.wait()

    async def pause(self, seconds: float) -> bool:
        """Wait; True at once when the peer leaves meanwhile."""
        try:
            async with asyncio.timeout(seconds):
                return await self.gone.wait()
        except TimeoutError:
            return False

    def fin(self) -> None:
        """Close in order: FIN after what was written."""
        self._transport.close()

    def half_close(self) -> None:
        """Send FIN and keep reading."""
        self._transport.write_eof()

    def rst(self) -> None:
        """Close with RST, now, unless the peer has left already."""
        if self._transport.is_closing():
            return
        sock = self._transport.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._transport.abort()

    # What the loop calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._engine.opened(self)

    def data_received(self, data: bytes) -> None:
        try:
            self._waiting.extend(self._reader.feed(data))
        except Malformed as error:
            self._engine.log.malformed.append(str(error))
            self._transport.abort()
            return
        self._next()

    def eof_received(self) -> bool:
        self._half_closed = True
        self._leave("fin_at")
        return self._task is not None  # an idle connection closes at once

    def connection_lost(self, error: Exception | None) -> None:
        self._leave("rst_at" if isinstance(error, ConnectionError) else None)
        self._writable.set()
        self._engine.log.open -= 1
        self._engine.connections.discard(self)

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def _leave(self, how: str | None) -> None:
        if self._seen is not None and how is not None:
            setattr(self._seen, how, time.perf_counter())
        self.gone.set()

    def _next(self) -> None:
        if self._task is None and self._waiting and not self._transport.is_closing():
            self._count += 1
            seen = Seen(self._waiting.popleft(), self.number, self._count, time.perf_counter())
            self._seen = seen
            self._task = asyncio.get_running_loop().create_task(self._answer(seen))

    async def _answer(self, seen: Seen) -> None:
        log = self._engine.begin(seen)
        try:
            await self._engine.script_for(seen)(self, seen)
        except ConnectionError:
            pass
        finally:
            log.running -= 1
            seen.answered_at = time.perf_counter()
            self._task = None
        if self._half_closed:
            self._transport.close()
        else:
            self._next()

    async def stop(self) -> None:
        """Cut the connection and end its script."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        self._transport.abort()


class ScriptedEngine:
    """An engine of the test's own. Use it as an async context manager.

    `script` answers inference requests; `then(...)` queues scripts for the next ones, before `script` takes over again.
    `paths` answers whole paths (health, models, metrics) and may be changed.
    """

    def __init__(self, script: Script, paths: dict[str, Script] | None = None) -> None:
        self.script = script
        self.paths = dict(paths or {})
        self.log = Log()
        self.connections: set[Connection] = set()
        self._queue: deque[Script] = deque()
        self._server: asyncio.Server | None = None
        self.port = 0

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def listening(self) -> bool:
        """Whether it takes new connections."""
        return self._server is not None

    def then(self, *scripts: Script) -> None:
        """What to do with the next inference requests."""
        self._queue.extend(scripts)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self, ssl: Any = None) -> None:
        """Listen: on a free port the first time, on the same one after a stop."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: Connection(self), "127.0.0.1", self.port, ssl=ssl, backlog=1024)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Refuse new connections and cut the open ones."""
        if self._server is not None:
            self._server.close()
            self._server = None
        await asyncio.gather(*(connection.stop() for connection in list(self.connections)))

    def refuse(self) -> None:
        """Close the listening socket only: what is open goes on."""
        if self._server is not None:
            self._server.close()
            self._server = None

    async def wait_for(self, condition: Callable[[Log], object], seconds: float = 5.0) -> None:
        """Wait until the log says so, or fail."""
        async with asyncio.timeout(seconds):
            while not condition(self.log):  # noqa: ASYNC110 any condition over a plain log
                await asyncio.sleep(0.002)

    # What connections call

    def opened(self, connection: Connection) -> None:
        """A connection was accepted."""
        self.log.accepted.append(time.perf_counter())
        self.log.open += 1
        connection.number = len(self.log.accepted)
        self.connections.add(connection)

    def begin(self, seen: Seen) -> Log:
        """A request begins to be answered."""
        log = self.log
        log.requests.append(seen)
        log.hits[seen.request.path] += 1
        for name in seen.request.all("x-request-id"):
            log.ids[name] += 1
        log.running += 1
        log.peak = max(log.peak, log.running)
        return log

    def script_for(self, seen: Seen) -> Script:
        """Paths first, then what was queued, then the usual script."""
        if seen.request.path in self.paths:
            return self.paths[seen.request.path]
        return self._queue.popleft() if self._queue else self.script
