"""Stand-ins for what the data plane meets: a brain that follows a script, an engine whose every byte is the test's."""

import asyncio
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from headway.core.commands import Command, Dispatch, Reject, Relay
from headway.core.events import AttemptFinished, Event, ReplicasChanged, RequestArrived
from headway.core.ids import ReplicaId, attempt_id
from headway.core.outcome import Outcome, OutcomeKind
from headway.core.replica import ReplicaSpec
from headway.core.snapshot import FleetSnapshot
from headway.gateway import Gateway, GatewayConfig
from headway.runtime.clock import now
from headway.telemetry import Access, Telemetry

FINAL = frozenset((OutcomeKind.OK, OutcomeKind.CLIENT_ERROR, OutcomeKind.CLIENT_CLOSED))
JSON_ANSWER = (
    b'{"id":"x","choices":[{"index":0,"message":{"content":"hi"},"finish_reason":"stop"}],'
    b'"usage":{"prompt_tokens":7,"completion_tokens":3}}'
)
CHAT = b'{"model":"m","messages":[{"role":"user","content":"hi"}]}'
CHAT_STREAM = b'{"model":"m","stream":true,"messages":[{"role":"user","content":"hi"}]}'


class FakeBrain:
    """Sends each request to the first replica of its list; retries on the next one, at most `tries` times in all."""

    def __init__(self, tries: int = 2) -> None:
        self.tries = tries
        self.replicas: list[ReplicaId] = []
        self.events: list[Event] = []
        self.outcomes: list[Outcome] = []
        self.attempts: dict[str, int] = {}
        self.requests: dict[str, RequestArrived] = {}
        self.exhausted: Callable[[AttemptFinished], Command] | None = None
        self.arrived: Callable[[RequestArrived], list[Command]] | None = None
        self.renamed: dict[str, str] = {}
        self.prospects: dict[str, tuple[int, float]] = {}

    def handle(self, event: Event) -> list[Command]:
        self.events.append(event)
        if isinstance(event, ReplicasChanged):
            self.replicas = [r for r in self.replicas if r not in event.removed]
            self.replicas += [spec.id for spec in event.upserted if spec.id not in self.replicas]
        elif isinstance(event, RequestArrived):
            self.requests[event.request.id] = event
            return self.arrived(event) if self.arrived else [self.dispatch(event.request.id, 0)]
        elif isinstance(event, AttemptFinished):
            self.outcomes.append(event.outcome)
            return self._finished(event)
        return []

    def dispatch(self, request: Any, number: int) -> Command:
        replica = self.replicas[number % len(self.replicas)]
        self.attempts[request] = number
        model = self.requests[request].request.model
        return Dispatch(request, attempt_id(request, number), replica, self.renamed.get(model, model))

    def _finished(self, event: AttemptFinished) -> list[Command]:
        if event.outcome.committed or event.outcome.kind in FINAL:
            return []
        request, _, number = event.attempt_id.rpartition("-")
        if int(number) + 1 < self.tries:
            return [self.dispatch(request, int(number) + 1)]
        if self.exhausted is not None:
            return [self.exhausted(event)]
        if event.outcome.status:
            return [Relay(request, event.attempt_id)]  # type: ignore[arg-type]
        status = 504 if event.outcome.kind.endswith("timeout") else 502
        return [Reject(request, status, "upstream_failed", event.outcome.detail)]  # type: ignore[arg-type]

    def snapshot(self, at: float) -> FleetSnapshot:
        return FleetSnapshot(at, "fake", 0, 0, False, ())

    def prospect(self, request_id: Any, at: float) -> tuple[int, float] | None:
        return self.prospects.get(request_id)


class Engine:
    """A server on plain asyncio streams. The script answers one request; it is called again for the next."""

    def __init__(self, script: Callable[["Connection"], Awaitable[None]]) -> None:
        self._script = script
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.requests: list[bytes] = []
        self.connections = 0
        self.open = 0
        self.gone_at: list[float] = []
        self.port = 0

    async def start(self, host: str = "127.0.0.1", port: int = 0, ssl: Any = None) -> None:
        self._server = await asyncio.start_server(self._serve, host, port, ssl=ssl)
        self.port = self._server.sockets[0].getsockname()[1]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.connections += 1
        self.open += 1
        connection = Connection(self, reader, writer)
        try:
            while await connection.read_request():
                await self._script(connection)
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            self.open -= 1
            self.gone_at.append(now())
            writer.transport.abort()
            self._tasks.discard(task)


class Connection:
    """One connection that the gateway made."""

    def __init__(self, engine: Engine, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.engine = engine
        self.reader = reader
        self.writer = writer
        self.head = b""
        self.body = b""

    async def read_request(self) -> bool:
        try:
            self.head = await self.reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError:
            return False
        length = int(self.header(b"content-length") or 0)
        self.body = await self.reader.readexactly(length)
        self.engine.requests.append(self.head + self.body)
        return True

    def header(self, name: bytes) -> bytes:
        for line in self.head.split(b"\r\n")[1:]:
            key, _, value = line.partition(b":")
            if key.lower() == name:
                return value.strip()
        return b""

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def gone(self, timeout_s: float = 5.0) -> bool:
        """Wait for the gateway to close; True if it did in time."""
        try:
            async with asyncio.timeout(timeout_s):
                return await self.reader.read(1) == b""
        except TimeoutError:
            return False
        except ConnectionError:
            return True

    def reset(self) -> None:
        """Close with RST."""
        sock = self.writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()


def answer(body: bytes = JSON_ANSWER, status: str = "200 OK", lines: str = "") -> bytes:
    """A response with a length."""
    head = f"HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n{lines}\r\n"
    return head.encode() + body


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


STREAM_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n"
DONE = b"data: [DONE]\n\n"
LAST = b"0\r\n\r\n"


def event(text: str = "a", finish: str = "null") -> bytes:
    """One content event of a chat stream."""
    reason = finish if finish == "null" else f'"{finish}"'
    choice = f'{{"index":0,"delta":{{"content":"{text}"}},"finish_reason":{reason}}}'
    return f'data: {{"id":"c","object":"chat.completion.chunk","choices":[{choice}]}}\n\n'.encode()


async def always(connection: Connection) -> None:
    """Answers every request with the same JSON."""
    await connection.send(answer())


class Rig:
    """A gateway before engines, with everything a test wants to look at."""

    def __init__(self, gateway: Gateway, brain: FakeBrain, engines: list[Engine], accesses: list[Access]) -> None:
        self.gateway = gateway
        self.brain = brain
        self.engines = engines
        self.accesses = accesses

    async def client(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.gateway.port)

    async def ask(self, request: bytes, timeout_s: float = 5.0) -> bytes:
        """Send bytes, and read until the gateway closes (send `connection: close`, or it will time out)."""
        reader, writer = await self.client()
        writer.write(request)
        async with asyncio.timeout(timeout_s):
            data = await reader.read()
        writer.close()
        return data

    def balanced(self) -> bool:
        """Nothing is left behind."""
        plane = self.gateway.plane
        return not plane.driver.exchanges and plane.body_bytes == 0

    async def until(self, condition: Callable[[], bool], timeout_s: float = 5.0) -> None:
        """Wait for something to become true."""
        async with asyncio.timeout(timeout_s):
            while not condition():  # noqa: ASYNC110 - the gateway tells tests nothing
                await asyncio.sleep(0.002)


def post(body: bytes, path: str = "/v1/chat/completions", lines: str = "", close: bool = True) -> bytes:
    """A request with a length."""
    closing = "connection: close\r\n" if close else ""
    head = f"POST {path} HTTP/1.1\r\nhost: gateway\r\ncontent-type: application/json\r\n{closing}{lines}"
    return f"{head}content-length: {len(body)}\r\n\r\n".encode() + body


@asynccontextmanager
async def rig(
    *scripts: Callable[[Connection], Awaitable[None]], config: GatewayConfig | None = None, tries: int = 2, **spec: Any
) -> AsyncIterator[Rig]:
    """A gateway on a free port before one engine per script."""
    brain, accesses = FakeBrain(tries), list[Access]()
    telemetry = Telemetry(access_log=accesses.append)
    config = config or GatewayConfig(port=0)
    gateway = Gateway(brain, config, {}, telemetry)
    engines = [Engine(script) for script in scripts]
    for engine in engines:
        await engine.start()
    await gateway.start()
    specs = tuple(
        ReplicaSpec(id=ReplicaId(f"r{n}"), url=engine.url, model="m", **({"serves": {"m": "m"}} | spec))
        for n, engine in enumerate(engines)
    )
    gateway.post(ReplicasChanged(now(), specs))
    try:
        yield Rig(gateway, brain, engines, accesses)
    finally:
        await gateway.stop(0.0)
        for engine in engines:
            await engine.stop()
        assert not gateway.plane.driver.exchanges
        assert gateway.plane.body_bytes == 0
        assert telemetry.balanced, telemetry.accounts
