"""One client request from the moment its body is read until its account is booked.

An exchange answers to three sides: the client's connection, the brain (through the driver), and its attempts at
engines. Exactly one Access is booked for it (`_finish`), and the body is let go as soon as no retry can need it. The
tests hold every move between its states against the table `MOVES`.
"""

from typing import TYPE_CHECKING, Final

import structlog

from headway.core.commands import Dispatch, Evict, Hold, Migrate, Reject, Relay
from headway.core.events import EvictionRefused, RequestArrived, RequestCancelled
from headway.core.ids import AttemptId
from headway.core.outcome import OutcomeKind
from headway.gateway.attempt import Attempt
from headway.gateway.counting import counted
from headway.gateway.gathered import Gathered
from headway.gateway.head import RequestHead, ResponseHead
from headway.gateway.headers import LEVEL_HEADER, Disclosed, trusted_forwarded_lines
from headway.gateway.intake import request_info, unknown
from headway.gateway.mover import Mover
from headway.gateway.notes import Notes
from headway.gateway.outlet import Outlet
from headway.gateway.plane import Plane
from headway.gateway.replies import early_hints, refusal, retry_after
from headway.gateway.target import Target
from headway.runtime.clock import now
from headway.telemetry.access import Access, Account
from headway.wire import openai
from headway.wire.body import Body
from headway.wire.errors import sse_error
from headway.wire.splice import Octets

if TYPE_CHECKING:
    from headway.gateway.protocol import ClientConnection

log = structlog.get_logger(__name__)

FAR: Final = float("inf")
UNANSWERED_S: Final = 2.0
"""The brain answers before the call returns, or its turn comes within the same pass of the loop. A request it owes an
answer for longer was forgotten: a fault of ours, which must cost the client an error and not its patience."""
SHUTTING_DOWN: Final = "the gateway is shutting down"
WITHDRAWN: Final = {
    "replica_removed": "its replica was removed from the fleet",
    "replica_asleep": "its replica was put to sleep",
    "recalled": "it waited in an engine for memory",
}
"""Reasons of the brain to end an attempt that accuse nobody, in words for people."""


DECIDING: Final = 0  # the brain was asked, and answers before the call returns
HELD: Final = 1
TRYING: Final = 2
ENDED: Final = 3
STATES: Final = ("DECIDING", "HELD", "TRYING", "ENDED")
OK: Final = OutcomeKind.OK
MOVES: Final[dict[int, frozenset[int]]] = {
    DECIDING: frozenset((HELD, TRYING, ENDED)),
    HELD: frozenset((HELD, TRYING, ENDED)),
    TRYING: frozenset((DECIDING, ENDED)),
    ENDED: frozenset(),
}


class Exchange:
    """One request."""

    __slots__ = (
        "_attempt", "_client", "_disclosed", "_head", "_state", "body", "mover", "notes", "outlet", "parsed", "plane",
        "ticket",
    )  # fmt: skip

    parsed: Body

    def __init__(
        self, plane: Plane, client: "ClientConnection", head: RequestHead, notes: Notes, ticket: Access, body: Octets
    ) -> None:
        self.plane = plane
        self.notes = notes
        self.ticket = ticket
        self.body = body
        self.mover: Mover | None = None
        self.outlet: Outlet = Outlet(client.transport)
        self._client = client
        self._head = head
        self._state = DECIDING
        self._attempt: Attempt | None = None
        self._disclosed: Disclosed = ()

    def __repr__(self) -> str:
        return f"<Exchange {self.ticket.request_id} {STATES[self._state]} {self._attempt}>"

    @property
    def path(self) -> str:
        """Where the request was sent."""
        return self._head.path

    @property
    def _forbidden(self) -> bool:
        """Whether its model is none of those that its tenant may use: nothing must tell that it is there."""
        models = self.notes.models
        return bool(models) and self.ticket.model not in models

    @property
    def client_name(self) -> str:
        """The client's own id for it, empty if it has none."""
        return self.ticket.client_request_id

    # Called by the client's connection.

    def begin(self) -> None:
        """Understand the body and ask the brain."""
        plane, ticket, notes = self.plane, self.ticket, self.notes
        parsed = openai.multipart(self.body, notes.form) if notes.form else openai.scan(self.body, self._head.path)
        if not isinstance(parsed, Body):
            self.refuse(parsed.status, parsed.code, parsed.message, param=parsed.param)
            return
        if plane.counters:
            parsed = counted(plane.counters, self.body, self._head.path, parsed)
        self.parsed = parsed
        model, ticket.stream = parsed.model, parsed.stream
        if model in plane.models:
            ticket.model = model
            if self._forbidden:
                self.parsed = parsed = unknown(parsed)
        elif not model:
            self.refuse(400, "missing_model", "you must provide a model parameter", param="model")
            return
        else:
            self.parsed = parsed = unknown(parsed)
        pinned = plane.pinned(parsed, self.body, self._head.path) if plane.ways else ""
        if plane.ways and not pinned:
            self.mover = mover = Mover(self, self._head, self._client.transport)
            if parsed.stream:
                self.outlet = mover.spool
        ticket.asked_at = at = now()
        plane.driver.exchanges[ticket.request_id] = self
        resumable = self.mover is not None
        info = request_info(parsed, notes, ticket.request_id, len(self.body), at, resumable, pinned)
        plane.driver.post(RequestArrived(at, info))
        if self._state == DECIDING:
            self.wait(UNANSWERED_S)

    def client_gone(self, fault: bool = False) -> None:
        """The client went away, or was lost by a `fault` of ours: stop everything and give back what is held."""
        if self._state == ENDED:
            return
        attempt, kind = self._attempt, OutcomeKind.CLIENT_CLOSED
        if self._state == HELD:
            self.plane.driver.post(RequestCancelled(now(), self.ticket.request_id))
        elif attempt is not None:
            kind = attempt.left()
        if fault:
            self.outlet.status = self.outlet.status or 500
            self._finish("server_error", "internal_error")
        elif kind is OutcomeKind.CLIENT_CLOSED:
            self._finish("client_closed", kind.value)
        else:
            self.relayed(kind)

    def pause(self) -> None:
        """The client reads slower than the engine writes."""
        if self._attempt is not None:
            self._attempt.pause()
        if self.mover is not None:
            self.mover.pause()

    def resume(self) -> None:
        """The client caught up."""
        if self._attempt is not None:
            self._attempt.resume()
        if self.mover is not None:
            self.mover.resume()

    def expired(self, at: float) -> None:
        """The deadline passed: the attempt knows whether that is so."""
        self._client.deadline = FAR
        attempt = self._attempt
        if self._state == DECIDING:
            self._unanswered()
        elif attempt is not None and attempt.overdue and (later := attempt.expired(at)):
            self._client.deadline = later

    def shut_down(self) -> None:
        """The drain time is over."""
        attempt = self._attempt
        if self._state == HELD:
            self.plane.driver.post(RequestCancelled(now(), self.ticket.request_id))
        elif attempt is not None and self.outlet.begun:
            attempt.broken(OutcomeKind.CANCELLED, SHUTTING_DOWN, attempt.farewell(OutcomeKind.CANCELLED, SHUTTING_DOWN))
            return
        elif attempt is not None:
            attempt.drop()
            attempt.settle(OutcomeKind.CANCELLED, True, SHUTTING_DOWN)
        self.refuse(503, "shutting_down", f"{SHUTTING_DOWN[0].upper()}{SHUTTING_DOWN[1:]}.", "shed", retry_s=1.0)

    # Commanded by the brain, through the driver.

    def dispatch(self, command: Dispatch) -> None:
        """Try a replica."""
        self._state = TRYING
        if self._attempt is not None:
            self._attempt.drop()
            self._attempt.release()
        self.ticket.attempted(command.replica_id, now())
        self._disclosed = command.disclosed
        if command.resumes and self.mover is not None:
            self._attempt = self.mover.resumed(command)
        elif self.mover is not None and self.mover.plain:
            self._attempt = Gathered(self, command, self.mover)
        else:
            self._attempt = Attempt(self, command, self.outlet)
        self._attempt.start()

    def hold(self, command: Hold) -> None:
        """Wait; the client is watched meanwhile, and told where it stands if it asked for that."""
        self._state = HELD
        self._client.deadline = FAR
        if self.notes.hints:
            self.plane.hints.add(command.request_id, self, command.position, command.wait_s)

    def hint(self, position: int, wait_s: float) -> bool:
        """Tell the client where it stands, unless it is held no longer or has a response already: then False."""
        if self._state != HELD or self.outlet.begun:
            return False
        self._client.interim(early_hints(position, wait_s))
        return True

    def reject(self, command: Reject) -> None:
        """Answer with an error of our own."""
        if self._attempt is not None:
            self._attempt.drop()
        account: Account | None = "shed" if command.shed else None
        text = command.message
        if command.code == "model_not_found":
            text += self.plane.model_list.instead(self.notes.models)
        self.refuse(command.status, command.code, text, account, retry_s=command.retry_after_s)

    def relay(self, command: Relay) -> None:
        """Give the client what the engine said; it was held for this."""
        attempt = self._attempt
        if attempt is None or attempt.id != command.attempt_id:
            return
        self._state = TRYING
        if not attempt.go_on():
            self.refuse(*attempt.excuse())

    def migrate(self, command: Migrate) -> None:
        """Let another replica go on with it, if it can be."""
        if self.mover is not None:
            self.mover.migrate(command, self._attempt)

    def evict(self, command: Evict) -> None:
        """Take it away from its engine, to go on later."""
        mover, attempt = self.mover, self._attempt
        if mover is None or attempt is None or attempt.id != command.attempt_id or not mover.evict(attempt):
            self.plane.driver.post(EvictionRefused(now(), command.attempt_id))

    def abort(self, attempt: AttemptId, reason: str) -> None:
        """It waits in vain; do not wait out its silence."""
        if self.mover is not None and self.mover.aborted(attempt):
            return
        if self._attempt is None or self._attempt.id != attempt:
            return
        if reason in WITHDRAWN:
            if reason == "recalled" and not self._attempt.unheard:
                self.plane.driver.post(EvictionRefused(now(), attempt))  # it had begun after all
                return
            self._attempt.end(OutcomeKind.CANCELLED, WITHDRAWN[reason])
        else:
            self._attempt.end(OutcomeKind.TRUNCATED if self.outlet.begun else OutcomeKind.RESET, "the replica is gone")

    # Called by the attempt.

    def wait(self, seconds: float) -> None:
        """Something is expected within this time."""
        self._client.deadline = self.plane.sweeper.now + seconds

    @property
    def source(self) -> Attempt | None:
        """The attempt that the request depends on."""
        return self._attempt

    def counts(self, attempt: Attempt) -> bool:
        """Whether this is the attempt that the request depends on."""
        return self._attempt is attempt

    def take(self, attempt: Attempt) -> None:
        """This attempt is the one that counts from now on."""
        self._attempt = attempt
        self.ticket.replica = attempt.replica
        self.ticket.attempts += 1
        self.wait(self.plane.idle_s)
        if self._client.paused:
            attempt.pause()

    def lead(self, target: Target) -> bytes:
        """The head for an engine, but for the lines that differ from request to request."""
        leads = self.notes.leads
        if target not in leads:
            leads[target] = target.lead(self._head)
        return leads[target]

    def upstream_head(self, target: Target, attempt: AttemptId, length: int) -> bytes:
        """The head for an engine."""
        notes, client, plane = self.notes, self._client, self.plane
        lead = notes.leads.get(target) or self.lead(target)
        lines = client.forwarded
        if plane.config.trust_forwarded:
            lines = trusted_forwarded_lines(self._head, client.peer, client.secure)
        request_id, digits = attempt.encode(), str(length).encode()
        return b"%b%b\r\nX-Request-Id: %b\r\nContent-Length: %b\r\n\r\n" % (lead, lines, request_id, digits)

    def answer(self, head: ResponseHead, length: int, first: bytes, reframe: bool) -> None:
        """Give the client the engine's head and the first piece of its body."""
        client, status = self._client, head.status
        if self.mover is not None and self.outlet is self.mover.spool:
            reframe = self.mover.spool.opens(head) or reframe
        fixed, chunked = length >= 0 and not reframe, False
        if status in (204, 304):
            framing = b"\r\ncontent-length: %d" % length if status == 304 and length >= 0 else b""
            fixed = True
        elif fixed:
            framing = b"\r\ncontent-length: %d" % length
        elif self._head.minor == 1:
            framing, chunked = b"\r\ntransfer-encoding: chunked", True
        else:
            framing = b""
            client.keep_alive = False
        lines = client.own_lines(self.ticket, self.notes)
        if self._disclosed or self.plane.levels:
            lines += self._told()
        whole = b"%b%b%b\r\n\r\n" % (head.lead, framing, lines)
        self.outlet.begin(whole, status, chunked, fixed, first)
        self.passed()

    def passed(self) -> None:
        """Something was passed on. If the client has it (a filter may keep it), no attempt will begin again."""
        if not self.body or not (self.outlet.body_sent or self.outlet.fixed):
            return
        if self.mover is None or not self.mover.can_begin_again():
            self._forget_body()

    def first_token(self, at: float) -> None:
        """Content arrived."""
        if self.ticket.first_token_at is None:
            self.ticket.first_token_at = at

    def undecided(self) -> None:
        """The attempt failed; the brain is about to be asked."""
        self._state = DECIDING
        self.wait(UNANSWERED_S)

    def relayed(self, kind: OutcomeKind) -> None:
        """The engine's answer was passed on in full."""
        if kind is OK:
            self._finish("ok", "")
        else:
            self._finish("client_error" if 400 <= self.outlet.status < 500 else "server_error", kind.value)

    def cut(self, kind: OutcomeKind) -> None:
        """The response was broken off."""
        self._client.cutting = True
        self._finish("server_error", kind.value)

    def refuse(
        self, status: int, code: str, message: str, account: Account | None = None, retry_s: float = 0.0,
        param: str | None = None,
    ) -> None:  # fmt: skip
        """End with an error of our own: as a response, or inside the stream whose head was given already."""
        if self._attempt is not None:
            self._attempt.settle(OutcomeKind.CANCELLED, True, message)
        if self.outlet.begun:
            self.outlet.say(sse_error(message, code, status))
            self._client.cutting = True
            self._finish("server_error", code)
            return
        lines = retry_after(retry_s) + self._client.own_lines(self.ticket, self.notes) + self._told()
        self.outlet.begin(refusal(status, code, message, lines, param), status, False, True, b"")
        self._finish(account or ("client_error" if status < 500 else "server_error"), code)

    # Steps.

    def _unanswered(self) -> None:
        self.plane.unanswered += 1
        log.error("no decision came for a request", request=self.ticket.request_id, attempt=repr(self._attempt))
        self.refuse(502, "no_decision", "The gateway lost track of the request.")

    def _told(self) -> bytes:
        """Header lines that say what was done to the request, and how far its model's service is degraded."""
        plane, model = self.plane, self.ticket.model
        level = None if self._forbidden else plane.levels.get(model)
        pairs = self._disclosed if level is None else (*self._disclosed, (LEVEL_HEADER, str(level)))
        return plane.cors.disclosed(self._head, pairs)

    def _forget_body(self) -> None:
        self.plane.body_bytes -= len(self.body)
        self.body = b""

    def _finish(self, account: Account, code: str) -> None:
        """Book the account, let go of everything, and give the connection back."""
        self._state = ENDED
        ticket, outlet = self.ticket, self.outlet
        self.plane.driver.exchanges.pop(ticket.request_id, None)
        if self.body:
            self._forget_body()
        attempt, self._attempt = self._attempt, None
        if attempt is not None:
            attempt.release()
        if self.mover is not None:
            self.mover.over()
            self.mover = None  # it knows us: what the request has said would stay until the next search for cycles
        self.plane.book(ticket, account, outlet.status or 499, code, outlet.sent_bytes)
        self._client.exchange_ended()
