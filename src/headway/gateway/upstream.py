"""Connections to engines: a pool that decides synchronously, and the protocol that reads responses.

A connection belongs to one attempt at a time (`owner`) and goes back to the pool only after a response that ended
exactly where its framing said. Idle ones are dropped before the engine would (uvicorn: 5 s), and there is no cap on
their number: limits are the brain's business. What goes wrong on the wire leaves here as an OutcomeKind, not as an
exception.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

from headway.core.ids import ReplicaId
from headway.core.outcome import OutcomeKind
from headway.gateway.framing import BadFraming, EngineChunks
from headway.gateway.head import HeadReader, ResponseHead
from headway.gateway.sweep import Sweeper
from headway.gateway.target import Target
from headway.runtime.clock import now
from headway.runtime.shortage import SHORTAGES
from headway.runtime.tasks import TaskSet
from headway.wire.splice import Octets, Piece

MAX_HEAD_BYTES: Final = 64 * 1024
MAX_JOINED_BYTES: Final = 64 * 1024  # up to here a copy is cheaper than a second buffer for the kernel
STALE_PASSES: Final = 10
"""Of the sweeper: a second when all is well. A connection that was closed while idle shows it at once, a later death is
the request's. Not measured in time: a starved process reads late, and sweeps late."""
MAX_INTERIM: Final = 8  # 1xx responses before the real one; RFC 9110 allows any number, engines send none or one
IDLE: Final = 0
HEAD: Final = 1
LENGTH: Final = 2
CHUNKED: Final = 3
CLOSE: Final = 4


class Owner(Protocol):
    """Who waits for a response. `body` gets payload only, the framing taken off."""

    def response(self, head: ResponseHead, length: int) -> None:
        """The head arrived; `length` is -1 when it does not state one."""
        ...

    body: Callable[[bytes], None]

    def answered(self, head: ResponseHead, body: bytes) -> None:
        """All of a JSON answer arrived at once, in place of `response`, `body` and `ended`."""
        ...

    def ended(self) -> None:
        """The response is complete. The connection is no longer the owner's."""
        ...

    def lost(self, kind: OutcomeKind, detail: str) -> None:
        """The response will not be completed. The connection is no longer the owner's."""
        ...


class UpstreamConnection:
    """One connection to an engine: an asyncio.Protocol in all but name, as compiled classes inherit from their own kind
    only."""

    __slots__ = (
        "_chunks",
        "_held",
        "_interim",
        "_last",
        "_left",
        "_mode",
        "_pool",
        "_reusable",
        "_sent_in",
        "heard_at",
        "idle_since",
        "owner",
        "served",
        "target",
        "transport",
    )  # fmt: skip

    transport: asyncio.Transport

    def __init__(self, pool: "Pool", target: Target) -> None:
        self._pool = pool
        self.target = target
        self.owner: Owner | None = None
        self.served = 0
        self.idle_since = 0.0
        self.heard_at = 0.0
        self._mode = IDLE
        self._held = b""
        self._left = 0
        self._interim = 0
        self._last: ResponseHead | None = None
        self._reusable = False
        self._sent_in = 0
        self._chunks: EngineChunks | None = None

    def __repr__(self) -> str:
        return f"<UpstreamConnection to {self.target.spec.id}, {self.served} served>"

    def send(self, owner: Owner, head: bytes, body: Octets) -> None:
        """Write a request, and wait for its response on behalf of `owner`."""
        self._expect(owner)
        if len(body) < MAX_JOINED_BYTES:
            self.transport.write(head + body)
        else:
            self.transport.writelines((head, body))

    def send_pieces(self, owner: Owner, head: bytes, pieces: Sequence[Piece]) -> None:
        """The same for a body in pieces."""
        self._expect(owner)
        if sum(map(len, pieces)) < MAX_JOINED_BYTES:
            self.transport.write(head + b"".join(pieces))
        else:
            self.transport.writelines((head, *pieces))

    def _expect(self, owner: Owner) -> None:
        self.owner = owner
        self._mode = HEAD
        self._interim = 0
        self._sent_in = self._pool.sweeper.passes

    def drop(self) -> None:
        """Close at once, whatever is under way; the owner is not told."""
        self.owner = None
        self._pool.forget(self)
        self.transport.abort()

    def pause(self) -> None:
        """Stop reading: the client cannot keep up."""
        self.transport.pause_reading()

    def resume(self) -> None:
        """Read on; the silence so far was ours."""
        self.heard_at = self._pool.sweeper.now
        self.transport.resume_reading()

    def connection_made(self, transport: Any) -> None:
        """asyncio: the connection is open."""
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        """asyncio: bytes of a response, or of something that is not one."""
        owner = self.owner
        self.heard_at = self._pool.sweeper.now
        if owner is None:
            self.drop()
        elif self._mode == CHUNKED:
            self._chunked(owner, data)
        elif self._mode == HEAD:
            self._head(owner, data)
        elif self._mode == LENGTH:
            self._counted(owner, data)
        else:
            owner.body(data)

    def eof_received(self) -> bool:
        """asyncio: the engine will send no more; `connection_lost` follows."""
        return False

    def pause_writing(self) -> None:
        """asyncio: the engine does not keep up. Its request is already whole, and held anyway."""

    def resume_writing(self) -> None:
        """asyncio: the engine caught up."""

    def connection_lost(self, exc: Exception | None) -> None:
        """asyncio: the connection is gone, by whomever."""
        self._pool.forget(self)
        owner, self.owner = self.owner, None
        if owner is None:
            return
        if self._mode == CLOSE and exc is None:
            owner.ended()
        elif self._mode != HEAD:
            owner.lost(OutcomeKind.TRUNCATED, "the response ended early")
        elif self._held or self._interim:
            owner.lost(OutcomeKind.BAD_RESPONSE, "the response ended within its head")
        elif self.served and self._pool.sweeper.passes - self._sent_in < STALE_PASSES:
            owner.lost(OutcomeKind.STALE_CONNECTION, "a reused connection was closed")
        else:
            owner.lost(OutcomeKind.RESET, "the connection was closed before a response")

    def _head(self, owner: Owner, data: bytes) -> None:
        last = self._last
        if last is not None and not self._held:
            length, end = last.again(data)
            if end:
                self._begin(owner, last, length, data[end:])
                return
        while self._mode == HEAD:
            if self._held:
                data, self._held = self._held + data, b""
            end = data.find(b"\r\n\r\n")
            if end < 0:
                lost = not data.startswith(b"HTTP/1."[: len(data)]) or data.count(b"\n") != data.count(b"\r\n")
                if lost or len(data) > MAX_HEAD_BYTES:
                    self._bad("the response head is malformed or too long")
                else:
                    self._held = data
                return
            end += 4
            head, length = self._pool.reader.response(data[:end]) if end <= MAX_HEAD_BYTES else (None, 0)
            if head is None or head.status == 101:
                self._bad("the response head is malformed")
                return
            data = data[end:]
            if head.status >= 200:
                self._last = head
                self._begin(owner, head, length, data)
                return
            self._interim += 1
            if self._interim > MAX_INTERIM:
                self._bad("too many interim responses")
                return
            if not data:
                return

    def _begin(self, owner: Owner, head: ResponseHead, length: int, data: bytes) -> None:
        """The final head is known: choose how the body is read."""
        self._reusable = head.keep_alive
        if head.status in (204, 304):
            self._mode, self._left = LENGTH, 0
        elif head.chunked:
            self._mode, self._chunks = CHUNKED, EngineChunks()
        elif length >= 0:
            self._mode, self._left = LENGTH, length
        else:
            self._mode, self._reusable = CLOSE, False
        if length == len(data) and head.is_answer:
            self._free()
            owner.answered(head, data)
            return
        owner.response(head, length)
        if self.owner is not owner:
            return
        if data or (self._mode == LENGTH and not self._left):
            if self._mode == LENGTH:
                self._counted(owner, data)
            else:
                self.data_received(data)

    def _counted(self, owner: Owner, data: bytes) -> None:
        left = self._left
        if len(data) > left:
            data = data[:left]
            self._reusable = False  # bytes that belong to nothing
        self._left = left - len(data)
        if data:
            owner.body(data)
        if not self._left and self.owner is owner:
            self._free()
            owner.ended()

    def _chunked(self, owner: Owner, data: bytes) -> None:
        chunks = self._chunks
        assert chunks is not None
        try:
            payload = chunks.feed(data)
        except BadFraming as error:
            self._bad(f"the response's framing is broken: {error}")
            return
        if payload:
            owner.body(payload)
        if chunks.complete and self.owner is owner:
            if chunks.surplus:
                self._reusable = False
            self._free()
            owner.ended()

    def _free(self) -> None:
        """The response is complete: the connection goes back to the pool, if it may."""
        self.owner = None
        self._mode = IDLE
        self._chunks = None
        self.served += 1
        if self._reusable and not self.transport.is_closing() and not self.transport.get_write_buffer_size():
            self._pool.release(self)
        else:
            self.drop()

    def _bad(self, detail: str) -> None:
        owner = self.owner
        self.drop()
        if owner is not None:
            owner.lost(OutcomeKind.BAD_RESPONSE, detail)


class Pool:
    """Idle connections per replica, newest first, and the making of new ones."""

    def __init__(self, reader: HeadReader, sweeper: Sweeper, max_idle_s: float) -> None:
        self.reader = reader
        self.sweeper = sweeper
        self.targets: dict[ReplicaId, Target] = {}
        self._max_idle_s = max_idle_s
        self._idle: dict[ReplicaId, list[UpstreamConnection]] = {}
        self._open: set[UpstreamConnection] = set()
        self._tasks = TaskSet()

    def set_target(self, target: Target) -> None:
        """Add a replica or replace what is known about it; connections to an older address are dropped."""
        self.remove(target.spec.id)
        self.targets[target.spec.id] = target
        self._idle[target.spec.id] = []

    def remove(self, replica: ReplicaId) -> None:
        """Forget a replica. Attempts in flight there go on."""
        self.targets.pop(replica, None)
        for connection in self._idle.pop(replica, ()):
            connection.drop()

    def acquire(self, target: Target) -> UpstreamConnection | None:
        """An idle connection that is young enough, if there is one."""
        idle = self._idle.get(target.spec.id)
        if not idle:
            return None
        youngest = now() - self._max_idle_s
        while idle:
            connection = idle.pop()
            if connection.idle_since >= youngest and not connection.transport.is_closing():
                return connection
            connection.drop()
        return None

    def connect(
        self,
        target: Target,
        done: Callable[[UpstreamConnection], None],
        failed: Callable[[OutcomeKind, str], None],
    ) -> asyncio.Task[Any]:
        """Open a connection; one of the two is called from the event loop, neither if the task is cancelled."""
        return self._tasks.spawn(self._connect(target, done, failed), f"connect to {target.spec.id}")

    def release(self, connection: UpstreamConnection) -> None:
        """Keep a connection for later."""
        target = connection.target
        replica = target.spec.id
        idle = self._idle.get(replica)
        if idle is None or self.targets[replica] is not target:
            connection.drop()
            return
        connection.idle_since = now()
        idle.append(connection)

    def forget(self, connection: UpstreamConnection) -> None:
        """The connection is gone."""
        self._open.discard(connection)
        idle = self._idle.get(connection.target.spec.id)
        if idle and connection in idle:
            idle.remove(connection)

    def prune(self) -> None:
        """Drop what has been idle for too long."""
        oldest = now() - self._max_idle_s
        for idle in self._idle.values():
            while idle and idle[0].idle_since < oldest:
                idle[0].drop()

    @property
    def idle(self) -> int:
        """Idle connections, for metrics and tests."""
        return sum(map(len, self._idle.values()))

    async def close(self) -> None:
        """Drop every connection and stop connecting."""
        await self._tasks.close()
        for connection in list(self._open):
            connection.drop()

    async def _connect(
        self,
        target: Target,
        done: Callable[[UpstreamConnection], None],
        failed: Callable[[OutcomeKind, str], None],
    ) -> None:
        loop = asyncio.get_running_loop()
        make: Any = lambda: UpstreamConnection(self, target)  # noqa: E731 - what it makes is a protocol by its methods only
        try:
            _, connection = await loop.create_connection(
                make,
                target.host,
                target.port,
                ssl=target.ssl,
                server_hostname=target.host if target.ssl else None,
            )
        except (OSError, UnicodeError) as error:  # UnicodeError: a host name that is none
            ours = isinstance(error, OSError) and error.errno in SHORTAGES
            kind = OutcomeKind.NO_RESOURCES if ours else OutcomeKind.CONNECT_FAILED
            failed(kind, f"cannot connect: {type(error).__name__}")
            return
        self._open.add(connection)
        done(connection)
