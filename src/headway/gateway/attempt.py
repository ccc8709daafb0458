"""One try of a request at one replica: connect, send, receive, settle. A retry is a new object, so nothing of an
earlier try can colour a later one.

The states and the moves between them are the table `MOVES`, which the tests hold every move against. Exactly one
AttemptFinished is posted (`_over`), whichever of the engine, the client, the brain or a deadline ends it first.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from headway.core.commands import Dispatch
from headway.core.events import AttemptFinished, FirstToken, SampleTaken
from headway.core.ids import ReplicaId
from headway.core.outcome import Outcome, OutcomeKind
from headway.engines.continuation import KvMove
from headway.gateway.batching import Batch
from headway.gateway.head import ResponseHead
from headway.gateway.intake import payload
from headway.gateway.outlet import Outlet
from headway.gateway.relay import TIMEOUTS, facts_of, kind_of
from headway.gateway.slots import Claim, slot_edit
from headway.gateway.streaming import Relay, StreamRelay, choose
from headway.gateway.target import Target
from headway.gateway.upstream import UpstreamConnection
from headway.runtime.clock import now
from headway.wire.answers import answer_of
from headway.wire.body import BodyError
from headway.wire.errors import sse_error
from headway.wire.exhaustion import may_be_quoted
from headway.wire.splice import Piece, splice
from headway.wire.usage import Facts

if TYPE_CHECKING:
    from headway.gateway.exchange import Exchange


NEW: Final = 0
CONNECTING: Final = 1
SENT: Final = 2
STREAMING: Final = 3
OVER: Final = 4
STATES: Final = ("NEW", "CONNECTING", "SENT", "STREAMING", "OVER")
OK: Final = OutcomeKind.OK
MOVES: Final[dict[int, frozenset[int]]] = {
    NEW: frozenset((CONNECTING, SENT, OVER)),
    CONNECTING: frozenset((SENT, OVER)),
    SENT: frozenset((STREAMING, CONNECTING, SENT, OVER)),  # back: once for a stale connection, a batch, a field of ours
    STREAMING: frozenset((OVER,)),
    OVER: frozenset(),
}
OVERDUE: Final = {
    CONNECTING: OutcomeKind.CONNECT_TIMEOUT,
    SENT: OutcomeKind.FIRST_BYTE_TIMEOUT,
    STREAMING: OutcomeKind.IDLE_TIMEOUT,
}
"""What it means when nothing happened for too long in a state."""
UNKNOWN_FIELD: Final = frozenset((400, 422))
"""What engines answer to a field they do not know, beside much else."""


class Attempt:
    """One attempt. `outlet` is the client's response, `body` where the connection delivers payload, `claim` its slot of
    the engine, where engines hand those over."""

    __slots__ = (
        "_bare", "_batch", "_boarded", "_command", "_connecting", "_detail", "_exchange", "_kind", "_plane", "_relay",
        "_retried", "_state", "_target", "_upstream", "advanced", "body", "claim", "id", "injected_usage", "outlet",
    )  # fmt: skip

    body: Callable[[bytes], None]
    _kind: OutcomeKind  # how it ended, once it did
    _detail: str

    def __init__(self, exchange: "Exchange", command: Dispatch, outlet: Outlet) -> None:
        self.id = command.attempt_id
        self.outlet = outlet
        self.advanced = False
        self.claim: Claim | None = None
        self.injected_usage = False
        self._exchange = exchange
        self._plane = exchange.plane
        self._command = command
        self._target: Target | None = exchange.plane.pool.targets.get(command.replica_id)
        self._state = NEW
        self._retried = False
        self._bare = False
        self._boarded = False
        self._batch: Batch | None = None
        self._relay: Relay | None = None
        self._upstream: UpstreamConnection | None = None
        self._connecting: asyncio.Task[Any] | None = None

    def __repr__(self) -> str:
        return f"<Attempt {self.id} at {self._target} {STATES[self._state]}>"

    # Called by the exchange.

    def start(self) -> None:
        """Take a connection or make one."""
        target = self._target
        if target is None:
            self.failed(OutcomeKind.CONNECT_FAILED, "the replica is gone")
            return
        if self._plane.batcher is not None and not self._boarded:
            self._boarded = True
            self._batch = self._plane.batcher.take(self, self._exchange, target)
            if self._batch is not None:
                return
        connection = self._plane.pool.acquire(target)
        if connection is not None:
            self._send(target, connection)
        else:
            self._connect(target)

    def drop(self) -> None:
        """Close what is open towards the engine, now."""
        if self._connecting is not None:
            self._connecting.cancel()
            self._connecting = None
        if self._upstream is not None:
            self._upstream.drop()
            self._upstream = None
        if self._batch is not None:
            self._batch.leave(self)
            self._batch = None

    def end(self, kind: OutcomeKind, detail: str) -> None:
        """End the attempt from our side: a deadline passed, or its replica is known to be gone."""
        if self._state == OVER:
            return
        self.drop()
        if self._relay is not None:
            self._relay.lost(kind, detail)
        else:
            self.failed(kind, detail)

    def left(self) -> OutcomeKind:
        """End the attempt because the client left. Says how that counts: clients need not wait for the end of a stream
        that has said its last, and leave at once after an error."""
        self.drop()
        kind = OutcomeKind.CLIENT_CLOSED if self._relay is None else self._relay.left()
        self.settle(kind, self.outlet.begun)
        return kind

    def settle(self, kind: OutcomeKind, committed: bool, detail: str = "") -> None:
        """Tell the brain how the attempt ended, once."""
        if self._state == OVER:
            return
        relay = self._relay
        if relay is not None:
            retry_after_s = 0.0 if kind is OK else relay.retry_after_s()
            self._settle(kind, committed, relay.head.status, relay.facts(), retry_after_s, detail)
        else:
            sent = self._state > CONNECTING or self._retried  # a stale connection had taken the request, too
            self._over(kind, Outcome(kind, committed=committed, sent=sent, detail=detail))

    def expired(self, at: float) -> float:
        """The deadline passed. Returns a new one if something was heard in time after all, else ends the attempt."""
        kind = OVERDUE[self._state]
        plane = self._plane
        patience = (0.0, plane.connect_s, plane.first_byte_s, plane.idle_s)[self._state]
        if self._state == STREAMING and self._upstream is not None:
            later = self._upstream.heard_at + patience
            if later > at:
                return later
        self.end(kind, f"{kind.value.removesuffix('_timeout')} timeout after {patience:g} s")
        return 0.0

    @property
    def overdue(self) -> bool:
        """Whether deadlines apply to it."""
        return self._state in OVERDUE

    def pause(self) -> None:
        """The client reads slower than the engine writes."""
        if self._upstream is not None:
            self._upstream.pause()

    def resume(self) -> None:
        """The client caught up."""
        if self._upstream is not None:
            self._upstream.resume()

    def go_on(self) -> bool:
        """There will be no retry: pass on what the engine said. False if that is not all here and never will be."""
        relay = self._relay
        if relay is None or not (relay.complete or self._upstream is not None):
            return False
        self._exchange.wait(self._plane.idle_s)
        relay.go_on()
        return True

    def excuse(self) -> tuple[int, str, str]:
        """Status, code and words for a client whose engine's answer cannot be given to it."""
        return 504 if self._kind in TIMEOUTS else 502, self._kind.value, f"The engine failed: {self._detail}."

    def farewell(self, kind: OutcomeKind, detail: str) -> bytes:
        """The last words of a response that is cut."""
        return self._relay.farewell(kind, detail) if self._relay is not None else b""

    def tokens(self) -> int:
        """Tokens generated so far."""
        return self._relay.facts().tokens if self._relay is not None else 0

    @property
    def replica(self) -> ReplicaId:
        """Where it is."""
        return self._command.replica_id

    @property
    def streaming(self) -> bool:
        """Whether its engine speaks, and has not said its last."""
        return self._state == STREAMING and self._relay is not None and not self._relay.ending

    @property
    def unheard(self) -> bool:
        """Whether its client has nothing of it that could not be said by another."""
        return self._relay is None or self._relay.unheard

    def leave(self, kind: OutcomeKind, tokens: int, detail: str) -> None:
        """Its engine is left, or lost, and its request goes on with what the client has: so many tokens."""
        self.drop()
        relay = self._relay
        status = relay.head.status if relay is not None else 0
        resumable = kind is not OutcomeKind.MIGRATED
        told = Outcome(kind, status, True, True, output_tokens=max(1, tokens), detail=detail, resumable=resumable)
        self._over(kind, told)

    def release(self) -> None:
        """The request is over: hold on to nothing."""
        self._relay = None
        self._batch = None
        self.body = _ignore

    # Called by the batch it rides in.

    def under_way(self, connected: bool) -> None:
        """The call it rides on is being connected, or was sent."""
        plane = self._plane
        self._state = SENT if connected else CONNECTING
        self._exchange.wait(plane.first_byte_s if connected else plane.connect_s)

    def alone(self) -> None:
        """Send it by itself: nobody joined it, or the call it rode on came to nothing."""
        self._batch = None
        self._retried = self._state == SENT
        self.start()

    def payload_for(self, target: Target) -> list[Piece] | BodyError:
        """What this engine gets where that is not just the client's bytes."""
        exchange, endless = self._exchange, target.dialect is not None and target.dialect.endless
        usage, form, path = self.injected_usage, exchange.notes.form, exchange.path
        return payload(exchange.body, exchange.parsed, self._command, path, form, usage, endless)

    def refused(self, head: ResponseHead, body: bytes) -> None:
        """The engine has no room for the call: as if it had said so to each."""
        self.response(head, len(body))
        self.body(body)
        self.ended()

    # Called by the connection.

    def response(self, head: ResponseHead, length: int) -> None:
        """A response begins."""
        if (self.injected_usage or self._bare) and self._minds_our_field(head.status):
            self.drop()
            self._bare = True
            self.start()
            return
        self._state = STREAMING
        self._wait(self._plane.idle_s)
        if self._target is not None and self._target.sample_header:
            self._free_sample(self._target, head)
        self._begin(head, length)

    def answered(self, head: ResponseHead, body: bytes) -> None:
        """All of a JSON answer is here, and its connection is the pool's again: nothing is to be held or waited for."""
        self._upstream = None
        self._state = STREAMING
        if self._target is not None and self._target.sample_header:
            self._free_sample(self._target, head)
        answer = answer_of(body)
        if not (answer.aborted or answer.malformed or self.outlet.begun):
            self._exchange.answer(head, len(body), body, False)
            self._settle(OK, True, head.status, facts_of(answer))
            self._exchange.relayed(OK)
            return
        self._begin(head, len(body))
        if self._relay is not None:
            self._relay.feed(body)
            self._relay.end()

    def ended(self) -> None:
        """The response is complete, and its connection is the pool's again."""
        self._upstream = None
        if self._relay is not None:
            self._relay.end()

    def lost(self, kind: OutcomeKind, detail: str) -> None:
        """The connection died, or what came was not HTTP."""
        self._upstream = None
        if kind is OutcomeKind.STALE_CONNECTION and not self._retried and self._target is not None:
            self._retried = True
            self._connect(self._target)
        else:
            self.end(kind, detail)

    # Called by the relay.

    def commit(self, first: bytes, reframe: bool = False) -> None:
        """Give the client the head, unless it has one of an earlier attempt, and a first piece."""
        relay = self._relay
        assert relay is not None
        if not self.outlet.begun:
            self._exchange.answer(relay.head, relay.length, first, reframe)
        elif first:
            self.outlet.write(first)

    def complete(self, kind: OutcomeKind) -> None:
        """All was passed on."""
        self.outlet.finish()
        self.settle(kind, True)
        self._exchange.relayed(self._kind)

    def failed(self, kind: OutcomeKind, detail: str) -> None:
        """Nothing that cannot be taken back was given to the client: let the brain decide."""
        self._exchange.undecided()
        self.settle(kind, False, detail)

    def broken(self, kind: OutcomeKind, detail: str, farewell: bytes = b"") -> None:
        """The client's response is under way and cannot be completed, unless the request goes on elsewhere."""
        self.drop()
        mover = self._exchange.mover
        if mover is not None and mover.outlives(self, kind, detail):
            return
        if farewell and not self.outlet.fixed:
            self.outlet.say(farewell)
        self.settle(kind, True, detail)
        self._exchange.cut(kind)

    def first_token(self) -> None:
        """The first content arrived."""
        at = now()
        self._exchange.first_token(at)
        self._plane.driver.post(FirstToken(at, self.id))

    def passed(self) -> None:
        """The first content was passed on."""
        self._exchange.passed()

    def may_go_on(self) -> bool:
        """Whether the request could go on elsewhere if this attempt ended now."""
        mover = self._exchange.mover
        return mover is not None and (mover.can_go_on() or mover.can_begin_again())

    def may_be_quoted(self) -> bool:
        """Whether an error about memory may repeat what the client said."""
        return may_be_quoted(self._exchange.body)

    def advance(self) -> None:
        """Tokens were generated; the next tick tells the brain."""
        self._plane.driver.advance(self)

    # Steps.

    def _minds_our_field(self, status: int) -> bool:
        """Whether a refusal may be meant for the wish for usage that we put into the request: no client is to have an
        error for it. Of an engine that has taken it, or the request without it, that is known."""
        target = self._target
        if target is None or target.tells_usage is not None:
            return False
        if status < 300:
            target.tells_usage = self.injected_usage
        return self.injected_usage and status in UNKNOWN_FIELD

    def _begin(self, head: ResponseHead, length: int) -> None:
        """Choose how the response is passed on."""
        kind = choose(head)
        if self.outlet.begun and kind is not StreamRelay:
            wrong = kind_of(head.status) if head.status >= 400 else OutcomeKind.BAD_RESPONSE
            detail = f"the retried attempt answered {head.status}"
            self.broken(wrong, detail, sse_error(detail, wrong.value))
            return
        self._relay = relay = kind(self, head, length)
        self.body = relay.feed
        if relay.impatient:
            self._plane.soon.add(partial(self._moment_passed, relay))

    def _settle(
        self,
        kind: OutcomeKind,
        committed: bool,
        status: int,
        facts: Facts,
        retry_after_s: float = 0.0,
        detail: str = "",
    ) -> None:
        """Tell the brain how it ended, with what the response said."""
        ticket, usage = self._exchange.ticket, facts.usage
        ticket.output_tokens = facts.tokens
        if usage is not None:
            ticket.prompt_tokens = usage.prompt_tokens
            ticket.cached_tokens = usage.cached_tokens
            self._plane.usage_reported(ticket.model)
        tokens = (ticket.prompt_tokens, ticket.cached_tokens, facts.tokens)
        self._over(kind, Outcome(kind, status, committed, True, *tokens, facts.hit_limit, retry_after_s, detail))

    def _over(self, kind: OutcomeKind, outcome: Outcome) -> None:
        self._state = OVER
        self._kind = kind
        self._detail = outcome.detail
        if self.claim is not None:
            self.claim.leave()
        self._plane.driver.post(AttemptFinished(now(), self.id, outcome))

    def _connect(self, target: Target) -> None:
        self._state = CONNECTING
        self._wait(self._plane.connect_s)
        self._connecting = self._plane.pool.connect(target, self._connected, self._unconnected)

    def _connected(self, connection: UpstreamConnection) -> None:
        self._connecting = None
        self._send(connection.target, connection)

    def _unconnected(self, kind: OutcomeKind, detail: str) -> None:
        self._connecting = None
        self.failed(kind, detail)

    def _send(self, target: Target, connection: UpstreamConnection) -> None:
        self._state = SENT
        self._upstream = connection
        exchange, plane = self._exchange, self._plane
        self._wait(plane.first_byte_s)
        parsed, mover = exchange.parsed, exchange.mover
        self.injected_usage = (
            parsed.usage_edit is not None
            and not self._bare
            and target.tells_usage is not False
            and plane.wants_usage(parsed.model)
        )
        command = self._command
        as_it_came = command.model == parsed.model and command.logprobs and not command.max_tokens
        if as_it_came and not self.injected_usage and mover is None and target.kv is None:
            body = exchange.body
            connection.send(self, exchange.upstream_head(target, self.id, len(body)), body)
            return
        edited = self.payload_for(target)
        if isinstance(edited, BodyError):
            self.drop()
            exchange.refuse(edited.status, edited.code, edited.message, param=edited.param)
            return
        if mover is not None:
            edited = mover.begin(target, edited)
        if target.kv is not None:
            edited = self._seated(target, target.kv, edited)
        connection.send_pieces(self, exchange.upstream_head(target, self.id, sum(map(len, edited))), edited)

    def _seated(self, target: Target, kv: KvMove, pieces: list[Piece]) -> list[Piece]:
        """The body for an engine that is told which slot to use, so that it can be handed over from there."""
        claim = self.claim or self._plane.slots.claim(target, self._exchange.parsed)
        if claim is None:
            return pieces
        body = b"".join(pieces)
        edit = slot_edit(body, kv.slot_field, claim.slot)
        if edit is None:
            claim.leave()
            return [body]
        self.claim = claim
        return [splice(body, [edit])]

    def _wait(self, seconds: float) -> None:
        """Something is expected within this time."""
        self._exchange.wait(seconds)

    def _moment_passed(self, relay: Relay) -> None:
        if relay is self._relay and self._state == STREAMING:
            relay.soon()

    def _free_sample(self, target: Target, head: ResponseHead) -> None:
        """Some engines report their load in a response header."""
        value = head.fields.get(target.sample_header)
        if value is not None and target.dialect is not None:
            at = now()
            sample = target.dialect.read_header(value.decode("latin-1"), target.spec.id, at)
            if sample is not None:
                self._plane.driver.post(SampleTaken(at, sample))


def _ignore(data: bytes) -> None:
    """Where payload goes after the end."""
