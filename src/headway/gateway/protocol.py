"""The client's side: bytes in, requests out, responses back in order. One object per connection, no coroutine.

What lives here: reading heads and bodies within limits, keep-alive and pipelining, timeouts, noticing that the client
went away. What must not: anything about replicas (`exchange`), or what we answer ourselves (`local`).

A client that closes its sending side while a response is owed counts as gone, as with nginx: HTTP clients that
half-close are rare, and engines must not generate for one that left.
"""

import asyncio
from typing import Any, Final

from headway.gateway import local
from headway.gateway.exchange import FAR, Exchange
from headway.gateway.framing import BadFraming, ChunkedBody, FixedBody, TooLarge
from headway.gateway.head import Refusal, RequestHead
from headway.gateway.headers import forwarded_lines
from headway.gateway.notes import Notes
from headway.gateway.plane import Plane
from headway.gateway.replies import CONTINUE, connection_line, refusal, retry_after, without_body
from headway.runtime.clock import now
from headway.telemetry.access import Access, Account
from headway.wire.splice import Octets

MAX_EMPTY_BYTES: Final = 16  # of empty lines before a request; more are no slip
MAX_AHEAD_BYTES: Final = 64 * 1024  # of pipelined requests; above it the socket is not read, and a FIN not seen
MAX_IGNORED_BODY_BYTES: Final = 64 * 1024  # a refused request's body up to here is read, and the connection kept
LAST_CALL_S: Final = 1.0  # how long a drain waits for the first request of a fresh connection
LINGER_S: Final = 2.0  # how long a refused sender may go on before the connection is reset under it

TARGET_TOO_LONG: Final = Refusal(414, "uri_too_long", "The request target is too long.")
HEAD_TOO_LARGE: Final = Refusal(431, "head_too_large", "The request head is too large.")
MALFORMED: Final = Refusal(400, "bad_request", "The request head is malformed.")
HEAD_TOO_SLOW: Final = Refusal(408, "head_timeout", "The request head took too long.")
BODY_TOO_SLOW: Final = Refusal(408, "body_timeout", "The request body took too long.")
BODY_TOO_LARGE: Final = Refusal(413, "body_too_large", "The request body is too large.")
ODD_EXPECTATION: Final = Refusal(417, "expectation_failed", "Only 100-continue is understood.")
TOO_MANY_BODIES: Final = Refusal(503, "overloaded", "Too many request bodies are being held.")


HEAD: Final = 0  # waiting for a request, or within its head
BODY: Final = 1
BUSY: Final = 2  # a response is owed
LINGER: Final = 3  # our last response is written; what still comes is thrown away
CLOSED: Final = 4
PHASES: Final = ("head", "body", "busy", "linger", "closed")


class ClientConnection:
    """One client: an asyncio.Protocol in all but name, as compiled classes inherit from their own kind only.

    `forwarded` are the X-Forwarded lines of its requests; `cutting`: no clean end may follow."""

    __slots__ = (
        "_body", "_body_since", "_exchange", "_head", "_inbox", "_last", "_paused_at", "_phase", "_plane", "_reserved",
        "_scanned", "_served", "_stopped", "_ticket", "_turning", "cutting", "deadline", "forwarded", "keep_alive",
        "paused", "peer", "secure", "transport",
    )  # fmt: skip

    transport: asyncio.Transport

    def __init__(self, plane: Plane) -> None:
        self._plane = plane
        self._phase = HEAD
        self._inbox = b""
        self._scanned = 0
        self._head: RequestHead | None = None
        self._last: RequestHead | None = None
        self._ticket: Access | None = None
        self._body: FixedBody | ChunkedBody | None = None
        self._body_since = 0.0
        self._exchange: Exchange | None = None
        self._reserved = 0
        self._served = 0
        self._stopped = False
        self._turning = False
        self.keep_alive = True
        self.cutting = False
        self.paused = False
        self._paused_at = 0.0
        self.deadline = FAR

    def __repr__(self) -> str:
        return f"<ClientConnection {PHASES[self._phase]}, {self._served} served>"

    # Called by the event loop.

    def connection_made(self, transport: Any) -> None:
        """asyncio: a client connected."""
        plane = self._plane
        self.transport = transport
        transport.set_write_buffer_limits(high=plane.limits.write_high_water_bytes)
        address = transport.get_extra_info("peername")
        self.peer = address[0].encode() if address else b"unknown"
        self.secure = transport.get_extra_info("sslcontext") is not None
        self.forwarded = forwarded_lines(self.peer, self.secure)
        plane.joined(self)
        self.deadline = plane.sweeper.now + plane.limits.head_timeout_s
        if 0 < plane.limits.max_connections < len(plane.connections):
            plane.turned_away += 1
            transport.abort()

    def data_received(self, data: bytes) -> None:
        """asyncio: bytes of a request."""
        if self._phase == HEAD:
            self._inbox = self._inbox + data if self._inbox else data
            self._turn()
        elif self._phase == BODY:
            self._collect(data)
            self._turn()
        elif self._phase == BUSY:
            self._inbox += data
            if len(self._inbox) > MAX_AHEAD_BYTES:
                self._reading(False)

    def eof_received(self) -> bool:
        """asyncio: the client will send no more. Whoever is owed a response is taken to have left."""
        if self._exchange is not None:
            self._leave()
            self.transport.abort()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """asyncio: the connection is gone. What is no error of the network is one of ours, and logged by the loop."""
        self._plane.left(self)
        self._leave(exc is not None and not isinstance(exc, OSError))

    def pause_writing(self) -> None:
        """asyncio: the client does not keep up."""
        self.paused = True
        self._paused_at = self._plane.sweeper.now
        if self._exchange is not None:
            self._exchange.pause()

    def resume_writing(self) -> None:
        """asyncio: the client caught up."""
        self.paused = False
        if self._exchange is not None:
            self._exchange.resume()
        else:
            self._turn()

    # Called by the sweeper and by the gateway.

    def expired(self, at: float) -> None:
        """The deadline passed."""
        if self._phase == BUSY and self._exchange is not None:
            if not self.paused:
                self._exchange.expired(at)
            elif at - self._paused_at < self._plane.idle_s:
                self.deadline = self._paused_at + self._plane.idle_s
            else:
                self.transport.abort()  # it did not read for as long as we would wait for an engine
        elif self._phase == BODY:
            self._slow_body(at)
        elif self._phase == HEAD and self._inbox:
            self._refuse(HEAD_TOO_SLOW)
        elif self._phase == HEAD:
            self._close()
        else:
            self.deadline = FAR
            self.transport.abort()

    def drain(self) -> None:
        """No further request on this connection; close it now if it is idle, soon if its first request may be on its
        way."""
        self.keep_alive = False
        if self._phase != HEAD or self._inbox:
            return
        if self._served:
            self._close()
        else:
            self.deadline = min(self.deadline, self._plane.sweeper.now + LAST_CALL_S)

    def shut_down(self) -> None:
        """The drain time is over."""
        self.keep_alive = False
        if self._exchange is not None:
            self._exchange.shut_down()
        if self._phase != LINGER:
            self._close()

    # Called by the exchange.

    def own_lines(self, ticket: Access, notes: Notes) -> bytes:
        """The header lines of ours that every response carries."""
        if self._plane.draining:
            self.keep_alive = False
        line = b"" if self.keep_alive and notes.minor else connection_line(notes.minor, self.keep_alive)
        shown = ticket.client_request_id or ticket.request_id
        return b"\r\nx-request-id: %b%b%b" % (shown.encode(), line, notes.lines)

    def interim(self, response: bytes) -> None:
        """Write a 1xx response before the one that is owed; a client that does not read what it has gets no more."""
        if not self.paused:
            self.transport.write(response)

    def exchange_ended(self) -> None:
        """The response is over: cut the connection, close it, or go on to the next request."""
        self._exchange = None
        if self._phase != BUSY:
            return
        if self.cutting:
            self._close()
        else:
            self._next()

    # Reading a request.

    def _turn(self) -> None:
        """Read as many requests as are here and may be served now. Not recursive: answers may be immediate."""
        if self._turning:
            return
        self._turning = True
        try:
            while self._inbox and self._phase == HEAD and not self.paused and self._read_head():
                pass
        finally:
            self._turning = False

    def _read_head(self) -> bool:
        """Read one head; False while it is not complete."""
        inbox, limits = self._inbox, self._plane.limits
        last = self._last
        if last is not None:
            length, end = last.again(inbox)
            if end:
                self._scanned = 0
                self._inbox = inbox[end:]
                self._accept(last, length)
                return True
        start = 2 if inbox.startswith(b"\r\n") else 0  # RFC 9112, 2.2: empty lines before a request are forgiven
        while start and start < MAX_EMPTY_BYTES and inbox.startswith(b"\r\n", start):
            start += 2
        end = inbox.find(b"\r\n\r\n", max(self._scanned, start)) + 4
        if end < 4 or end > limits.max_head_bytes:
            self._await_head(inbox)
            return False
        self._scanned = 0
        head, length = self._plane.reader.request(inbox[start:end])
        self._inbox = inbox[end:]
        if isinstance(head, Refusal):
            self._refuse(head)
        elif len(head.target) > limits.max_uri_bytes:
            self._refuse(TARGET_TOO_LONG)
        else:
            self._last = head
            self._accept(head, length)
        return True

    def _await_head(self, inbox: bytes) -> None:
        """The head is not complete. Refuse what can no longer become one before more of it is buffered."""
        limits = self._plane.limits
        self.deadline = min(self.deadline, self._plane.sweeper.now + limits.head_timeout_s)
        line_limit = limits.max_uri_bytes + 64
        if len(inbox) > line_limit and inbox.find(b"\r\n", 2, line_limit) < 0:
            self._refuse(TARGET_TOO_LONG)
        elif len(inbox) > limits.max_head_bytes:
            self._refuse(HEAD_TOO_LARGE)
        elif inbox.count(b"\n") != inbox.count(b"\r\n") or b"\x00" in inbox:
            self._refuse(MALFORMED)
        self._scanned = max(0, len(inbox) - 3)

    def _accept(self, head: RequestHead, length: int) -> None:
        """A head was read: make sure that its body may be, and read it."""
        plane = self._plane
        notes: Notes = head.notes or plane.note(head)
        self._head = head
        self._ticket = plane.open(notes)
        self.keep_alive = head.keep_alive
        limits = plane.limits
        if length > limits.max_body_bytes:
            self._refuse(notes.stranger or BODY_TOO_LARGE)
        elif length and plane.body_bytes + length > limits.buffered_body_bytes:
            self._refuse(notes.stranger or TOO_MANY_BODIES)
        elif notes.expects_oddly:
            self._refuse(notes.stranger or ODD_EXPECTATION)
        elif notes.wrong is not None and (head.chunked or length > MAX_IGNORED_BODY_BYTES or notes.continues):
            self._refuse(notes.wrong)
        elif length > len(self._inbox) or head.chunked:
            self._await_body(head, length, notes)
        else:
            inbox = self._inbox
            self._reserved = length
            plane.body_bytes += length
            self._inbox = inbox[length:]
            self._begin(inbox[:length])

    def _await_body(self, head: RequestHead, length: int, notes: Notes) -> None:
        limits = self._plane.limits
        self._body = ChunkedBody(limits.max_body_bytes) if head.chunked else FixedBody(length)
        self._reserve(length)
        self._phase = BODY
        self._body_since = now()
        self.deadline = self._body_since + limits.body_timeout_s
        data, self._inbox = self._inbox, b""
        if data:
            self._collect(data)
        elif notes.continues:
            self.transport.write(CONTINUE)

    def _collect(self, data: bytes) -> None:
        """More of a body arrived."""
        body = self._body
        assert body is not None
        try:
            rest = body.feed(data)
        except BadFraming as error:
            self._refuse(Refusal(400, "bad_request", f"The request body is malformed: {error}."))
            return
        except TooLarge:
            self._refuse(BODY_TOO_LARGE)
            return
        if body.received > self._reserved:
            self._reserve(body.received - self._reserved)
            if self._plane.body_bytes > self._plane.limits.buffered_body_bytes:
                self._refuse(TOO_MANY_BODIES)
                return
        if rest is not None:
            self._inbox = rest
            self._body = None
            self._begin(body.take())

    def _reserve(self, size: int) -> None:
        self._reserved += size
        self._plane.body_bytes += size

    def _release_body(self) -> None:
        """The request's body is no longer kept."""
        self._plane.body_bytes -= self._reserved
        self._reserved = 0

    def _slow_body(self, at: float) -> None:
        """The body is late: allowed only while it keeps a minimum rate."""
        body = self._body
        assert body is not None
        if body.received >= (at - self._body_since) * self._plane.limits.min_body_bytes_per_s:
            self.deadline = at + 1.0
        else:
            self._refuse(BODY_TOO_SLOW)

    # Answering it.

    def _begin(self, body: Octets) -> None:
        """The request is complete."""
        self._phase = BUSY
        self.deadline = FAR
        head, ticket = self._head, self._ticket
        assert head is not None
        assert ticket is not None
        self._head = self._ticket = None
        ticket.bytes_in = len(body)
        notes: Notes = head.notes
        if notes.inference:
            self._reserved = 0  # it is the exchange's from now on
            self._exchange = exchange = Exchange(self._plane, self, head, notes, ticket, body)
            exchange.begin()
            return
        self._release_body()
        status, response, code = local.answer(self._plane, head, notes, self.own_lines(ticket, notes))
        self.transport.write(without_body(response) if head.method == "HEAD" else response)
        account: Account = "ok" if status < 400 else "client_error" if status < 500 else "server_error"
        self._plane.book(ticket, account, status, code, len(response))
        self._next()

    def _refuse(self, why: Refusal) -> None:
        """Answer a request that was not read to its end, and close: what follows cannot be told apart."""
        plane = self._plane
        ticket, notes = self._ticket, plane.unread
        if ticket is None:
            ticket = plane.open(notes)
        elif self._head is not None:
            notes = self._head.notes
        self.keep_alive = False
        lines = self.own_lines(ticket, notes) + (retry_after(1.0) if why.status == 503 else b"")
        response = refusal(why.status, why.code, why.message, lines)
        self.transport.write(without_body(response) if notes.method == "HEAD" else response)
        account: Account = "shed" if why.status == 503 else "client_error"
        self._ticket = self._head = self._body = None
        self._inbox = b""
        self._release_body()
        plane.book(ticket, account, why.status, why.code, len(response))
        self._linger()

    # Between requests.

    def _next(self) -> None:
        """The response is written: on to the next request, or close."""
        self._served += 1
        if not self.keep_alive or self._plane.draining:
            self._close()
            return
        if self._stopped:
            self._reading(True)
        self._phase = HEAD
        self.deadline = self._plane.sweeper.now + self._plane.limits.keepalive_timeout_s
        if self._inbox:
            self._turn()

    def _reading(self, wanted: bool) -> None:
        if wanted is not self._stopped:
            return
        self._stopped = not wanted
        if wanted:
            self.transport.resume_reading()
        else:
            self.transport.pause_reading()

    def _close(self) -> None:
        """Close once everything is written; a client that does not read gets as long as a slow engine would."""
        self._phase = LINGER
        self.deadline = self._plane.sweeper.now + self._plane.idle_s
        self.transport.close()

    def _linger(self) -> None:
        """Close after a refusal. Closing with unread bytes would reset the connection, and the client might never see
        why it was refused: so say that we are done, and throw away what still comes for a moment."""
        self._phase = LINGER
        self.deadline = self._plane.sweeper.now + LINGER_S
        if self.transport.can_write_eof():
            self.transport.write_eof()
        else:
            self.transport.close()

    def _leave(self, fault: bool = False) -> None:
        """The client is gone, or (`fault`) lost by us."""
        phase, self._phase = self._phase, CLOSED
        exchange, self._exchange = self._exchange, None
        if exchange is not None:
            exchange.client_gone(fault)
        elif phase == BODY and self._ticket is not None:
            self._plane.book(self._ticket, "client_closed", 499, "client_closed")
        self._release_body()
        self._inbox = b""
        self._body = self._head = self._ticket = None
