"""Micro-batching: requests that differ in their inputs only, sent to one replica within a few milliseconds, become one
upstream call. For engines that do not batch by themselves; off unless it is set for a model.

What lives here: who rides with whom, the one call, and giving each rider its part. What must not: the bytes of bodies
and replies (`wire.batches`), or anything about a rider's account: each stays an attempt of its own, which ends once.

Riders share a call only if they are of one tenant, and everything else about theirs is the same bytes: path, the
headers an engine would see, and the body around its inputs. The call itself carries no X-Forwarded lines and an id of
its own, so that no reply names another client's request. Whatever goes wrong with a call that was sent, each rider goes
again by itself; a refusal for lack of room is given to each, for the brain to decide.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, Protocol

import structlog

from headway.core.ids import RequestId
from headway.core.outcome import OutcomeKind
from headway.engines.continuation import Way
from headway.gateway.config import Batching
from headway.gateway.head import ResponseHead
from headway.gateway.relay import kind_of
from headway.gateway.target import Target
from headway.gateway.upstream import Pool, UpstreamConnection
from headway.wire.batches import FIELDS, Part, merged, part_of, split
from headway.wire.body import BodyError
from headway.wire.rewrites import UNSTATED_COMPLETION_TOKENS
from headway.wire.splice import Piece

if TYPE_CHECKING:
    from headway.gateway.exchange import Exchange

log = structlog.get_logger(__name__)

MAX_RIDER_BYTES: Final = 256 * 1024
"""Larger bodies are worth a call of their own: an engine is busy with them for longer than a call costs."""
MAX_REPLY_BYTES: Final = 64 * 1024 * 1024

Key = tuple[Target, str, bytes, bytes, bytes, bool]


class Rider(Protocol):
    """An attempt, as a batch sees it."""

    def payload_for(self, target: Target) -> list[Piece] | BodyError:
        """What this engine is to get of it."""
        ...

    def under_way(self, connected: bool) -> None:
        """The call it rides on is being connected, or was sent."""
        ...

    def alone(self) -> None:
        """Send it by itself."""
        ...

    def failed(self, kind: OutcomeKind, detail: str) -> None:
        """Nothing was sent, nor will be."""
        ...

    def answered(self, head: ResponseHead, body: bytes) -> None:
        """Its part of the reply."""
        ...

    def refused(self, head: ResponseHead, body: bytes) -> None:
        """The engine has no room for the call."""
        ...


class Batcher:
    """All batches of a gateway. `settings` by the model's name as clients write it. `calls` and `riders` were sent;
    `scattered` are riders that had to go again alone."""

    def __init__(self, settings: Mapping[str, Batching], pool: Pool, mint: Callable[[], RequestId]) -> None:
        self._settings = settings
        self._waiting: dict[Key, Batch] = {}
        self.pool = pool
        self.mint = mint
        self.calls = 0
        self.riders = 0
        self.scattered = 0

    def take(self, rider: Rider, exchange: "Exchange", target: Target) -> "Batch | None":
        """Have an attempt ride with others; None if it goes alone: streams, what was tried before, what has choices."""
        parsed, path = exchange.parsed, exchange.path
        settings = self._settings.get(parsed.model)
        if settings is None or path not in FIELDS or path in target.unmergeable:
            return None
        if parsed.stream or exchange.ticket.attempts > 1 or (parsed.generates and parsed.sequences > 1):
            return None
        body = rider.payload_for(target) if len(exchange.body) <= MAX_RIDER_BYTES else []
        part = None if isinstance(body, BodyError) or not body else part_of(b"".join(body), path)
        if part is None or len(part.items) >= settings.max:
            return None
        key = (target, exchange.notes.tenant, exchange.lead(target), part.before, part.after, part.ids)
        return self._board(rider, part, key, path, settings)

    def _board(self, rider: Rider, part: Part, key: Key, path: str, settings: Batching) -> "Batch":
        batch = self._waiting.get(key)
        if batch is not None and batch.items + len(part.items) > settings.max:
            batch.depart()
            batch = None
        if batch is None:
            batch = self._waiting[key] = Batch(self, key, path, settings.window_ms / 1000)
        batch.add(rider, part)
        if batch.items == settings.max:
            batch.depart()
        return batch

    def gone(self, key: Key, batch: "Batch") -> None:
        """Nobody can board it any more."""
        if self._waiting.get(key) is batch:
            del self._waiting[key]


class Batch:
    """One call on behalf of several riders: it owns the connection, they own everything else."""

    def __init__(self, batcher: Batcher, key: Key, path: str, window_s: float) -> None:
        self.items = 0
        self.body: Callable[[bytes], None] = self._collect
        self._batcher = batcher
        self._key = key
        self._target = key[0]
        self._path = path
        dialect = self._target.dialect
        self._asks = dialect is not None and path == "/v1/completions" and dialect.continuation.completion is Way.IDS
        self._unstated = 0 if dialect is not None and dialect.endless else UNSTATED_COMPLETION_TOKENS
        self._riders: dict[Rider, Part] = {}
        self._sent: list[tuple[Rider, Part]] = []
        self._timer: asyncio.TimerHandle | None = asyncio.get_running_loop().call_later(window_s, self.depart)
        self._connecting: asyncio.Task[Any] | None = None
        self._upstream: UpstreamConnection | None = None
        self._head: ResponseHead | None = None
        self._held: list[bytes] = []
        self._held_bytes = 0

    def __repr__(self) -> str:
        return f"<Batch of {len(self._riders)} to {self._target}>"

    # Called by the batcher and by riders.

    def add(self, rider: Rider, part: Part) -> None:
        """One more."""
        self._riders[rider] = part
        self.items += len(part.items)

    def leave(self, rider: Rider) -> None:
        """Its client, or its time, is gone: its part of the reply will be thrown away; with the last, the call ends."""
        part = self._riders.pop(rider, None)
        if part is None:
            return
        if not self._sent:
            self.items -= len(part.items)
        if not self._riders:
            self._close()

    def depart(self) -> None:
        """Send what is aboard; one rider goes as if there were no batches."""
        self._no_longer_waiting()
        if len(self._riders) == 1:
            self._scatter()
            return
        connection = self._batcher.pool.acquire(self._target)
        if connection is not None:
            self._connected(connection)
            return
        self._connecting = self._batcher.pool.connect(self._target, self._connected, self._unconnected)
        for rider in self._riders:
            rider.under_way(False)

    # Called by the pool and by the connection.

    def response(self, head: ResponseHead, length: int) -> None:
        """A response begins."""
        self._head = head

    def answered(self, head: ResponseHead, body: bytes) -> None:
        """All of a JSON answer is here."""
        self._head = head
        self._held = [body]
        self.ended()

    def ended(self) -> None:
        """The response is complete: to each its part."""
        self._upstream = None
        head, body = self._head, b"".join(self._held)
        assert head is not None
        if kind_of(head.status) is OutcomeKind.BACKPRESSURE:
            while self._riders:
                self._next().refused(head, body)
            return
        parts = [part for _, part in self._sent]
        replies = split(body, self._path, parts, self._asks, self._unstated) if head.is_answer else None
        if replies is not None:
            self._hand_out(head, replies)
            return
        if head.status == 200:
            self._target.unmergeable.add(self._path)
            log.warning(
                "replies to merged requests cannot be taken apart", replica=self._target.spec.id, path=self._path
            )
        self._scatter()

    def lost(self, kind: OutcomeKind, detail: str) -> None:
        """The response will not be completed."""
        self._upstream = None
        self._scatter()

    # Steps.

    def _connected(self, connection: UpstreamConnection) -> None:
        self._connecting = None
        self._upstream = connection
        self._sent = list(self._riders.items())
        self._batcher.calls += 1
        self._batcher.riders += len(self._sent)
        body = merged([part for _, part in self._sent], self._asks)
        lead, request_id = self._key[2], self._batcher.mint().encode()
        for rider in self._riders:
            rider.under_way(True)
        head = b"%b\r\nX-Request-Id: %b\r\nContent-Length: %d\r\n\r\n" % (lead, request_id, len(body))
        connection.send(self, head, body)

    def _unconnected(self, kind: OutcomeKind, detail: str) -> None:
        self._connecting = None
        while self._riders:
            self._next().failed(kind, detail)

    def _collect(self, data: bytes) -> None:
        self._held.append(data)
        self._held_bytes += len(data)
        if self._held_bytes > MAX_REPLY_BYTES:
            self._drop()
            self._scatter()

    def _hand_out(self, head: ResponseHead, replies: list[bytes]) -> None:
        for (rider, _), reply in zip(self._sent, replies, strict=True):
            if self._riders.pop(rider, None) is not None:
                rider.answered(head, reply)

    def _scatter(self) -> None:
        """Everybody alone. Whoever is sent may make others leave: so one after the other."""
        if self._sent:
            self._batcher.scattered += len(self._riders)
        while self._riders:
            self._next().alone()

    def _next(self) -> Rider:
        rider = next(iter(self._riders))
        del self._riders[rider]
        return rider

    def _no_longer_waiting(self) -> None:
        self._batcher.gone(self._key, self)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _close(self) -> None:
        """Nobody is left."""
        self._no_longer_waiting()
        if self._connecting is not None:
            self._connecting.cancel()
            self._connecting = None
        self._drop()

    def _drop(self) -> None:
        if self._upstream is not None:
            self._upstream.drop()
            self._upstream = None
