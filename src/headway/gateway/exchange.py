"""One client request from the moment its body is read until its account is booked.

The states and the moves between them are the table `MOVES`; everything that can happen to a request is a method here,
called by the client's connection, by the driver on the brain's behalf, by the engine's connection, or by the relay.
Exactly one AttemptFinished is posted for each Dispatch (`_settle`), and exactly one Access is booked (`_finish`).
"""

import asyncio
import enum
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from headway.core.commands import Dispatch, Hold, Reject, Relay
from headway.core.events import AttemptFinished, FirstToken, RequestArrived, RequestCancelled, SampleTaken
from headway.core.ids import AttemptId
from headway.core.outcome import Outcome, OutcomeKind
from headway.gateway import relay as relays
from headway.gateway.head import RequestHead, ResponseHead
from headway.gateway.headers import forwarded, response_head
from headway.gateway.intake import payload, read_body, request_info
from headway.gateway.outlet import Outlet
from headway.gateway.plane import Plane, Ticket
from headway.gateway.replies import refusal, retry_after
from headway.gateway.target import Target
from headway.gateway.upstream import UpstreamConnection
from headway.runtime.clock import now
from headway.telemetry.access import Account
from headway.wire.body import Body, BodyError
from headway.wire.errors import sse_error

if TYPE_CHECKING:
    from headway.gateway.protocol import ClientConnection


class State(enum.Enum):
    """Where a request stands."""

    DECIDING = "deciding"  # the brain was asked and answers before the call returns
    HELD = "held"
    CONNECTING = "connecting"
    SENT = "sent"
    STREAMING = "streaming"
    ENDED = "ended"


MOVES: dict[State, frozenset[State]] = {
    State.DECIDING: frozenset((State.HELD, State.CONNECTING, State.SENT, State.STREAMING, State.ENDED)),
    State.HELD: frozenset((State.HELD, State.CONNECTING, State.SENT, State.ENDED)),
    State.CONNECTING: frozenset((State.SENT, State.DECIDING, State.ENDED)),
    State.SENT: frozenset((State.STREAMING, State.CONNECTING, State.DECIDING, State.ENDED)),
    State.STREAMING: frozenset((State.DECIDING, State.ENDED)),
    State.ENDED: frozenset(),
}
OVERDUE = {
    State.CONNECTING: OutcomeKind.CONNECT_TIMEOUT,
    State.SENT: OutcomeKind.FIRST_BYTE_TIMEOUT,
    State.STREAMING: OutcomeKind.IDLE_TIMEOUT,
}
"""What it means when nothing happened for too long in a state."""
FAR = float("inf")


def account_of(kind: OutcomeKind, status: int) -> Account:
    """The account of a request that was answered with an engine's response."""
    if kind is OutcomeKind.OK:
        return "ok"
    return "client_error" if 400 <= status < 500 else "server_error"


class Exchange:
    """One request. See the module's docstring for who calls what."""

    __slots__ = (
        "_body", "_client", "_connecting", "_head", "_injects", "_kind", "_model", "_open", "_parsed", "_plane",
        "_relay", "_stale_retried", "_state", "_target", "_ticket", "_upstream", "advanced", "attempt_id", "body",
        "injected_usage", "outlet",
    )  # fmt: skip

    body: Callable[[bytes], None]

    def __init__(
        self, plane: Plane, client: "ClientConnection", head: RequestHead, ticket: Ticket, body: bytes
    ) -> None:
        self._plane = plane
        self._client = client
        self._head = head
        self._ticket = ticket
        self._body = body
        self._parsed: Body | None = None
        self._state = State.DECIDING
        self._open = False
        self._kind = OutcomeKind.OK
        self._model = ""
        self._target: Target | None = None
        self._relay: relays.Relay | None = None
        self._upstream: UpstreamConnection | None = None
        self._connecting: asyncio.Task[Any] | None = None
        self._stale_retried = False
        self.attempt_id = AttemptId("")
        self.advanced = False
        self.injected_usage = False
        self.outlet = Outlet(client.transport)

    def __repr__(self) -> str:
        return f"<Exchange {self._ticket.request_id} {self._state.value} {self.attempt_id}>"

    # Called by the client's connection.

    def begin(self) -> None:
        """Understand the body and ask the brain."""
        plane, ticket = self._plane, self._ticket
        parsed = read_body(self._body, self._head)
        if not isinstance(parsed, Body):
            self._refuse(parsed.status, parsed.code, parsed.message, param=parsed.param)
            return
        self._parsed = parsed
        ticket.stream = parsed.stream
        ticket.model = parsed.model if parsed.model in plane.models else "other"
        ticket.asked_at = at = now()
        plane.driver.exchanges[ticket.request_id] = self
        info = request_info(parsed, self._head, plane.config, ticket.request_id, at)
        plane.driver.post(RequestArrived(at, info))

    def client_gone(self) -> None:
        """The client went away: stop everything at once and give back what is held."""
        if self._state is State.ENDED:
            return
        if self._state is State.HELD:
            self._plane.driver.post(RequestCancelled(now(), self._ticket.request_id))
        self._drop_upstream()
        self._finish("client_closed", OutcomeKind.CLIENT_CLOSED)

    def pause(self) -> None:
        """The client reads slower than the engine writes."""
        if self._upstream is not None:
            self._upstream.pause()

    def resume(self) -> None:
        """The client caught up."""
        if self._upstream is not None:
            self._upstream.resume()

    def expired(self, at: float) -> None:
        """The deadline passed: see whether something was heard since, else the engine took too long."""
        kind = OVERDUE.get(self._state)
        if kind is None:
            self._client.deadline = FAR
            return
        heard = self._upstream.heard_at if self._upstream is not None else 0.0
        patience = self._patience()
        if self._state is State.STREAMING and heard + patience > at:
            self._client.deadline = heard + patience
            return
        self._drop_upstream()
        self._lost(kind, f"{kind.value.removesuffix('_timeout')} timeout after {patience:g} s")

    def shut_down(self) -> None:
        """The drain time is over."""
        if self._state is State.HELD:
            self._plane.driver.post(RequestCancelled(now(), self._ticket.request_id))
        self._drop_upstream()
        if self.outlet.begun and self._relay is not None:
            detail = "the gateway is shutting down"
            self.broken(OutcomeKind.CANCELLED, detail, self._relay.farewell(OutcomeKind.CANCELLED, detail))
        else:
            self._refuse(503, "shutting_down", "The gateway is shutting down.", account="shed", retry_s=1.0)

    # Commanded by the brain, through the driver.

    def dispatch(self, command: Dispatch) -> None:
        """Try a replica."""
        if self._state is State.ENDED:
            return
        self._drop_upstream()
        self._relay = None
        self._stale_retried = False
        self.attempt_id = command.attempt_id
        self._open = True
        self._model = command.model
        self._ticket.attempted(command.replica_id)
        self._target = target = self._plane.pool.targets.get(command.replica_id)
        if target is None:
            self.failed(OutcomeKind.CONNECT_FAILED, "the replica is gone")
            return
        connection = self._plane.pool.acquire(target)
        if connection is not None:
            self._send(connection)
        else:
            self._connect(target)

    def hold(self, command: Hold) -> None:
        """Wait; the client is watched meanwhile."""
        self._move(State.HELD)

    def reject(self, command: Reject) -> None:
        """Answer with an error of our own."""
        if self._state is State.ENDED:
            return
        self._drop_upstream()
        account: Account | None = "shed" if command.shed else None
        self._refuse(command.status, command.code, command.message, account=account, retry_s=command.retry_after_s)

    def relay(self, command: Relay) -> None:
        """Give the client what the engine said; it was held for this."""
        if self._state is not State.DECIDING or command.attempt_id != self.attempt_id:
            return
        relay = self._relay
        if relay is None or not (relay.complete or self._upstream is not None):
            self._refuse(502, "upstream_failed", "The engine did not answer properly.")
            return
        self._move(State.STREAMING)
        self._wait(self._plane.config.timeouts.idle_s)
        relay.go_on()

    def abort(self, reason: str) -> None:
        """The replica is gone; do not wait out its silence."""
        if self._open:
            self._drop_upstream()
            self._lost(OutcomeKind.RESET if self._relay is None else OutcomeKind.TRUNCATED, reason)

    def tokens(self) -> int:
        """Tokens generated by the attempt under way."""
        return self._relay.facts().tokens if self._relay is not None else 0

    # Called by the engine's connection.

    def response(self, head: ResponseHead) -> None:
        """A response begins."""
        self._move(State.STREAMING)
        self._wait(self._plane.config.timeouts.idle_s)
        self._free_sample(head)
        relay = relays.choose(self, head)
        if self.outlet.begun and not isinstance(relay, relays.StreamRelay):
            self.broken(OutcomeKind.BAD_RESPONSE, f"the retried attempt answered {head.status}")
            return
        self._relay = relay
        self.body = relay.feed
        if relay.impatient:
            self._plane.soon.add(partial(self._moment_passed, relay))

    def ended(self) -> None:
        """The response is complete, and its connection is the pool's again."""
        self._upstream = None
        if self._relay is not None:
            self._relay.end()

    def lost(self, kind: OutcomeKind, detail: str) -> None:
        """The connection died, or what came was not HTTP."""
        self._upstream = None
        if kind is OutcomeKind.STALE_CONNECTION and not self._stale_retried and self._target is not None:
            self._stale_retried = True
            self._connect(self._target)
            return
        self._lost(kind, detail)

    # Called by the relay.

    def commit(self, head: ResponseHead, first: bytes, reframe: bool = False) -> None:
        """Give the client the head, unless it has one of an earlier attempt, and a first piece."""
        outlet, client = self.outlet, self._client
        if outlet.begun:
            if first:
                outlet.write(first)
            return
        fixed, chunked = head.length >= 0 and not reframe, False
        if head.status in (204, 304):
            framing = b"\r\ncontent-length: %d" % head.length if head.status == 304 and head.length >= 0 else b""
            fixed = True
        elif fixed:
            framing = b"\r\ncontent-length: %d" % head.length
        elif self._head.minor == 1:
            framing, chunked = b"\r\ntransfer-encoding: chunked", True
        else:
            framing = b""
            client.keep_alive = False
        if fixed or first:
            self._forget_body()
        outlet.begin(response_head(head, framing, client.own_lines(self._ticket)), head.status, chunked, fixed, first)

    def complete(self, kind: OutcomeKind) -> None:
        """All was passed on."""
        self.outlet.finish()
        kind = kind if self._open else self._kind
        self._finish(account_of(kind, self.outlet.status), kind)

    def failed(self, kind: OutcomeKind, detail: str) -> None:
        """Nothing that cannot be taken back was given to the client: let the brain decide."""
        self._move(State.DECIDING)
        self._client.deadline = FAR
        self._settle(kind, False, detail)

    def broken(self, kind: OutcomeKind, detail: str, farewell: bytes = b"") -> None:
        """The client's response is under way and cannot be completed."""
        self._drop_upstream()
        if farewell and not self.outlet.fixed:
            self.outlet.write(farewell)
        self._client.cutting = True
        self._finish("server_error", kind, detail)

    def first_token(self) -> None:
        """The first content arrived."""
        self._forget_body()
        at = now()
        if self._ticket.first_token_at is None:
            self._ticket.first_token_at = at
        self._plane.driver.post(FirstToken(at, self.attempt_id))

    def advance(self) -> None:
        """Tokens were generated; the next tick tells the brain."""
        self._plane.driver.advance(self)

    # Steps.

    def _move(self, state: State) -> None:
        if state not in MOVES[self._state]:
            raise RuntimeError(f"{self!r} cannot become {state.value}")
        self._state = state

    def _wait(self, seconds: float) -> None:
        self._client.deadline = self._plane.sweeper.now + seconds

    def _patience(self) -> float:
        timeouts = self._plane.config.timeouts
        if self._state is State.CONNECTING:
            return timeouts.connect_s
        return timeouts.first_byte_s if self._state is State.SENT else timeouts.idle_s

    def _connect(self, target: Target) -> None:
        self._move(State.CONNECTING)
        self._wait(self._plane.config.timeouts.connect_s)
        self._connecting = self._plane.pool.connect(target, self._connected, self._unconnected)

    def _connected(self, connection: UpstreamConnection) -> None:
        self._connecting = None
        self._send(connection)

    def _unconnected(self, kind: OutcomeKind, detail: str) -> None:
        self._connecting = None
        self.failed(kind, detail)

    def _send(self, connection: UpstreamConnection) -> None:
        self._move(State.SENT)
        self._wait(self._plane.config.timeouts.first_byte_s)
        self._upstream = connection
        plane, parsed, client = self._plane, self._parsed, self._client
        assert parsed is not None
        self.injected_usage = parsed.usage_edit is not None and plane.wants_usage(parsed.model)
        data = payload(self._body, parsed, self._model, self._head, self.injected_usage)
        if isinstance(data, BodyError):
            self._drop_upstream()
            self._refuse(data.status, data.code, data.message, param=data.param)
            return
        lines = forwarded(self._head, client.peer, client.secure, plane.config.trust_forwarded)
        head = connection.target.request_head(self._head, self.attempt_id, lines, len(data))
        connection.send(self, head, data)

    def _moment_passed(self, relay: relays.Relay) -> None:
        if relay is self._relay and self._state is State.STREAMING:
            relay.soon()

    def _lost(self, kind: OutcomeKind, detail: str) -> None:
        """The attempt is over; its relay knows whether that can still be mended."""
        if self._relay is not None:
            self._relay.lost(kind, detail)
        else:
            self.failed(kind, detail)

    def _free_sample(self, head: ResponseHead) -> None:
        """Some engines report their load in a response header."""
        target = self._target
        if target is None or not target.sample_header or target.dialect is None:
            return
        value = head.fields.get(target.sample_header)
        if value is not None:
            at = now()
            sample = target.dialect.read_header(value.decode("latin-1"), target.spec.id, at)
            if sample is not None:
                self._plane.driver.post(SampleTaken(at, sample))

    def _settle(self, kind: OutcomeKind, committed: bool, detail: str = "") -> None:
        """Tell the brain how the attempt ended, once."""
        if not self._open:
            return
        self._open = False
        self._kind = kind
        relay, ticket = self._relay, self._ticket
        facts = relay.facts() if relay is not None else relays.NO_FACTS
        usage = facts.usage
        if usage is not None:
            ticket.prompt_tokens, ticket.cached_tokens = usage.prompt_tokens, usage.cached_tokens
            self._plane.usage_reported(ticket.model)
        ticket.output_tokens = facts.tokens
        outcome = Outcome(
            kind=kind,
            status=relay.head.status if relay is not None else 0,
            committed=committed,
            sent=self._state is not State.CONNECTING,
            prompt_tokens=ticket.prompt_tokens,
            cached_tokens=ticket.cached_tokens,
            output_tokens=facts.tokens,
            hit_limit=facts.hit_limit,
            retry_after_s=relay.retry_after_s() if relay is not None else 0.0,
            detail=detail,
        )
        self._plane.driver.post(AttemptFinished(now(), self.attempt_id, outcome))

    def _refuse(
        self, status: int, code: str, message: str, account: Account | None = None, retry_s: float = 0.0,
        param: str | None = None,
    ) -> None:  # fmt: skip
        """End with an error of our own: as a response, or inside the stream that has begun."""
        if self._open:
            self._settle(OutcomeKind.CANCELLED, True, message)
        if self.outlet.begun:
            self.outlet.write(sse_error(message, code, status))
            self._client.cutting = True
            self._finish("server_error", None, code=code)
            return
        account = account or ("client_error" if status < 500 else "server_error")
        lines = retry_after(retry_s) + self._client.own_lines(self._ticket)
        response = refusal(status, code, message, lines, param)
        self.outlet.begin(response, status, False, True, b"")
        self._finish(account, None, code=code)

    def _finish(self, account: Account, kind: OutcomeKind | None, detail: str = "", code: str = "") -> None:
        """Book the account, settle what is open, let go of everything, and give the connection back."""
        if kind is not None:
            self._settle(kind, self.outlet.body_sent or kind is not OutcomeKind.CLIENT_CLOSED, detail)
            code = "" if kind is OutcomeKind.OK else kind.value
        self._move(State.ENDED)
        plane, ticket, outlet = self._plane, self._ticket, self.outlet
        plane.driver.exchanges.pop(ticket.request_id, None)
        self._forget_body()
        self._relay = None
        status = outlet.status or 499
        plane.book(ticket, account, status, code, outlet.sent_bytes)
        self._client.exchange_ended()

    def _forget_body(self) -> None:
        if self._body:
            self._body = b""
            self._client.release_body()

    def _drop_upstream(self) -> None:
        if self._connecting is not None:
            self._connecting.cancel()
            self._connecting = None
        if self._upstream is not None:
            self._upstream.drop()
            self._upstream = None
