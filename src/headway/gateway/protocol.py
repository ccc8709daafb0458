"""The client's side: bytes in, requests out, responses back in order. One object per connection, no coroutine.

What lives here: reading heads and bodies within limits, what is answered without an engine, keep-alive and
pipelining, timeouts, noticing that the client went away. What must not: anything about replicas (`Exchange` does that).

A client that closes its sending side while a response is owed counts as gone, as with nginx: HTTP clients that
half-close are rare, and engines must not generate for one that left.
"""

import asyncio
import enum
from typing import Any
from urllib.parse import unquote

from headway.gateway.exchange import FAR, Exchange
from headway.gateway.framing import BadFraming, ChunkedBody, FixedBody, TooLarge
from headway.gateway.head import Refusal, RequestHead
from headway.gateway.headers import client_id
from headway.gateway.plane import Plane, Ticket
from headway.gateway.replies import CONTINUE, connection_line, refusal, reply, retry_after, without_body
from headway.gateway.routes import UNMATCHED, Kind, Route
from headway.runtime.clock import now
from headway.telemetry.access import Account

MAX_AHEAD_BYTES = 64 * 1024  # of pipelined requests; above it the socket is not read, and a FIN not seen
MAX_IGNORED_BODY_BYTES = 64 * 1024  # a refused request's body up to here is read, and the connection kept
LINGER_S = 2.0  # how long a refused sender may go on before the connection is reset under it


class Phase(enum.Enum):
    """What the connection is doing."""

    HEAD = "head"  # waiting for a request, or within its head
    BODY = "body"
    BUSY = "busy"  # a response is owed
    LINGER = "linger"  # our last response is written; what still comes is thrown away
    CLOSED = "closed"


class ClientConnection(asyncio.Protocol):
    """One client."""

    __slots__ = (
        "_body", "_body_since", "_exchange", "_head", "_inbox", "_phase", "_plane", "_reserved", "_route", "_scanned",
        "_served", "_stopped", "_ticket", "_turning", "cutting", "deadline", "keep_alive", "paused", "peer", "secure",
        "transport",
    )  # fmt: skip

    transport: asyncio.Transport

    def __init__(self, plane: Plane) -> None:
        self._plane = plane
        self._phase = Phase.HEAD
        self._inbox = b""
        self._scanned = 0
        self._head: RequestHead | None = None
        self._ticket: Ticket | None = None
        self._body: FixedBody | ChunkedBody | None = None
        self._body_since = 0.0
        self._exchange: Exchange | None = None
        self._reserved = 0
        self._served = 0
        self._stopped = False
        self._route: Route | None = None
        self._turning = False
        self.keep_alive = True
        self.cutting = False
        self.paused = False
        self.deadline = FAR

    def __repr__(self) -> str:
        return f"<ClientConnection {self.peer.decode()} {self._phase.value}, {self._served} served>"

    # Called by the event loop.

    def connection_made(self, transport: Any) -> None:
        """asyncio: a client connected."""
        plane = self._plane
        self.transport = transport
        transport.set_write_buffer_limits(high=plane.limits.write_high_water_bytes)
        address = transport.get_extra_info("peername")
        self.peer = address[0].encode() if address else b"unknown"
        self.secure = transport.get_extra_info("sslcontext") is not None
        self.deadline = plane.sweeper.now + plane.limits.head_timeout_s
        plane.joined(self)

    def data_received(self, data: bytes) -> None:
        """asyncio: bytes of a request."""
        if self._phase is Phase.HEAD:
            self._inbox = self._inbox + data if self._inbox else data
            self._turn()
        elif self._phase is Phase.BODY:
            self._collect(data)
            self._turn()
        elif self._phase is Phase.BUSY:
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
        """asyncio: the connection is gone."""
        self._plane.left(self)
        self._leave()

    def pause_writing(self) -> None:
        """asyncio: the client does not keep up."""
        self.paused = True
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
        if self._phase is Phase.BUSY and self._exchange is not None:
            if self.paused:
                self.transport.abort()  # it did not read for as long as we would wait for an engine
            else:
                self._exchange.expired(at)
        elif self._phase is Phase.BODY:
            self._slow_body(at)
        elif self._phase is Phase.HEAD and self._inbox:
            self._refuse(Refusal(408, "head_timeout", "The request head took too long."))
        elif self._phase is Phase.HEAD:
            self._close()
        else:
            self.transport.abort()
            self.deadline = FAR

    def drain(self) -> None:
        """No further request on this connection; close it now if it is idle."""
        self.keep_alive = False
        if self._phase is Phase.HEAD and not self._inbox and self._served:
            self._close()

    def shut_down(self) -> None:
        """The drain time is over."""
        if self._exchange is not None:
            self.keep_alive = False
            self._exchange.shut_down()
        if self._phase is not Phase.LINGER:
            self._close()

    # Called by the exchange.

    def own_lines(self, ticket: Ticket) -> bytes:
        """The header lines of ours that every response carries."""
        if self._plane.draining:
            self.keep_alive = False
        line = connection_line(ticket.minor, self.keep_alive)
        return b"\r\nx-request-id: %b%b%b" % (ticket.shown_id.encode(), line, ticket.cors)

    def release_body(self) -> None:
        """The request's body is no longer kept."""
        self._plane.body_bytes -= self._reserved
        self._reserved = 0

    def exchange_ended(self) -> None:
        """The response is over: cut the connection, close it, or go on to the next request."""
        self._exchange = None
        self.release_body()
        if self._phase is not Phase.BUSY:
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
            while self._inbox and self._phase is Phase.HEAD and not self.paused and self._read_head():
                pass
        finally:
            self._turning = False

    def _read_head(self) -> bool:
        """Read one head; False while it is not complete."""
        inbox, limits = self._inbox, self._plane.limits
        end = inbox.find(b"\r\n\r\n", self._scanned)
        if end < 0 or end + 4 > limits.max_head_bytes:
            self._await_head(inbox)
            return False
        self._scanned = 0
        end += 4
        start = 2 if inbox.startswith(b"\r\n") else 0  # RFC 9112, 2.2: one empty line before a request is forgiven
        head = self._plane.reader.request(inbox[start:end])
        self._inbox = inbox[end:]
        if isinstance(head, Refusal):
            self._refuse(head)
        elif len(head.target) > limits.max_uri_bytes:
            self._refuse(_TOO_LONG_A_TARGET)
        else:
            self._accept(head)
        return True

    def _await_head(self, inbox: bytes) -> None:
        """The head is not complete. Refuse what can no longer become one before more of it is buffered."""
        limits = self._plane.limits
        self.deadline = min(self.deadline, self._plane.sweeper.now + limits.head_timeout_s)
        fresh = max(0, self._scanned - 1)
        if inbox.count(b"\n", fresh) != inbox.count(b"\r\n", fresh):
            self._refuse(Refusal(400, "bad_request", "The request head is malformed."))
        elif inbox.find(b"\r\n", 2, limits.max_uri_bytes + 64) < 0 and len(inbox) > limits.max_uri_bytes + 64:
            self._refuse(_TOO_LONG_A_TARGET)
        elif len(inbox) > limits.max_head_bytes:
            self._refuse(Refusal(431, "head_too_large", "The request head is too large."))
        self._scanned = max(0, len(inbox) - 3)

    def _accept(self, head: RequestHead) -> None:
        """A head was read: make sure that its body may be, and read it."""
        plane = self._plane
        route = plane.routes.find(head.path)
        self._ticket = ticket = Ticket(plane.mint(), head.method, route.template if route else UNMATCHED)
        ticket.minor = head.minor
        ticket.client_request_id = client_id(head)
        ticket.cors = plane.cors.lines(head)
        ticket.bytes_in = head.length
        plane.telemetry.started()
        self._head = head
        self._route = route
        self.keep_alive = head.keep_alive
        refusal_ = self._too_much(head, route)
        if refusal_ is not None:
            self._refuse(refusal_)
        elif not head.length and not head.chunked:
            self._begin(b"")
        elif 0 < head.length <= len(self._inbox):
            self._reserve(head.length)
            body, self._inbox = self._inbox[: head.length], self._inbox[head.length :]
            self._begin(body)
        else:
            self._await_body(head)

    def _too_much(self, head: RequestHead, route: Route | None) -> Refusal | None:
        """What is wrong with a request before its body was read."""
        plane, limits = self._plane, self._plane.limits
        if head.length > limits.max_body_bytes:
            return _TOO_LARGE_A_BODY
        expect = head.fields.get(b"expect")
        if expect is not None and expect.lower() != b"100-continue":
            return Refusal(417, "expectation_failed", "Only 100-continue is understood.")
        if plane.body_bytes + head.length > limits.buffered_body_bytes:
            return Refusal(503, "overloaded", "Too many request bodies are being held.")
        if (head.length > MAX_IGNORED_BODY_BYTES or head.chunked) and (wrong := self._wrong(head, route)):
            return wrong
        return None

    def _wrong(self, head: RequestHead, route: Route | None) -> Refusal | None:
        """Whether path and method are not served."""
        if head.method == "OPTIONS":
            return None
        if route is None:
            return Refusal(404, "not_found", "There is nothing at this path.")
        if head.method not in route.methods:
            return Refusal(405, "method_not_allowed", f"This path takes {' and '.join(route.methods)} only.")
        return None

    def _await_body(self, head: RequestHead) -> None:
        limits = self._plane.limits
        self._body = ChunkedBody(limits.max_body_bytes) if head.chunked else FixedBody(head.length)
        self._reserve(head.length)
        self._phase = Phase.BODY
        self._body_since = now()
        self.deadline = self._body_since + limits.body_timeout_s
        if b"expect" in head.fields and not self._inbox and head.minor == 1:
            self.transport.write(CONTINUE)
        data, self._inbox = self._inbox, b""
        if data:
            self._collect(data)

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
            self._refuse(_TOO_LARGE_A_BODY)
            return
        if body.received > self._reserved:
            self._reserve(body.received - self._reserved)
            if self._plane.body_bytes > self._plane.limits.buffered_body_bytes:
                self._refuse(Refusal(503, "overloaded", "Too many request bodies are being held."))
                return
        if rest is not None:
            self._inbox = rest
            self._body = None
            self._begin(body.take())

    def _reserve(self, size: int) -> None:
        self._reserved += size
        self._plane.body_bytes += size

    def _slow_body(self, at: float) -> None:
        """The body is late: allowed only while it keeps a minimum rate."""
        limits, body = self._plane.limits, self._body
        assert body is not None
        if body.received >= (at - self._body_since) * limits.min_body_bytes_per_s:
            self.deadline = at + 1.0
            return
        self._refuse(Refusal(408, "body_timeout", "The request body took too long."))

    # Answering it.

    def _begin(self, body: bytes) -> None:
        """The request is complete."""
        self._phase = Phase.BUSY
        self.deadline = FAR
        head, ticket, route = self._head, self._ticket, self._route
        assert head is not None
        assert ticket is not None
        ticket.bytes_in = len(body)
        if route is not None and route.kind is Kind.INFERENCE and head.method == "POST":
            self._head = self._ticket = None
            self._exchange = Exchange(self._plane, self, head, ticket, body)
            self._exchange.begin()
            return
        self.release_body()
        if head.method == "OPTIONS":
            self._preflight(head, route)
        elif wrong := self._wrong(head, route):
            allow = b"\r\nallow: " + ", ".join(route.methods).encode() if route else b""
            self._answer(wrong.status, refusal(wrong.status, wrong.code, wrong.message, allow + self.own_lines(ticket)))
        else:
            assert route is not None
            self._local(route.kind, head.path, self.own_lines(ticket))

    def _local(self, kind: Kind, path: str, lines: bytes) -> None:
        """Answer from what we know ourselves."""
        plane = self._plane
        if kind is Kind.MODELS:
            self._answer(200, reply(200, plane.model_list.page(), lines))
        elif kind is Kind.MODEL:
            name = unquote(path.removeprefix("/v1/models/"))
            card = plane.model_list.card(name)
            if card is not None:
                self._answer(200, reply(200, card, lines))
            else:
                self._answer(404, refusal(404, "model_not_found", "The model does not exist.", lines, "model"))
        elif plane.draining:
            self._answer(503, reply(503, b'{"status":"draining"}', lines))
        else:
            self._answer(200, reply(200, b'{"status":"ok"}', lines))

    def _preflight(self, head: RequestHead, route: Route | None) -> None:
        ticket = self._ticket
        assert ticket is not None
        methods = (*(route.methods if route else ()), "OPTIONS")
        allow = b"\r\nallow: " + ", ".join(methods).encode()
        self._answer(204, reply(204, b"", allow + self._plane.cors.preflight(head) + self.own_lines(ticket)))

    def _answer(self, status: int, response: bytes, code: str = "") -> None:
        """Write a whole response of our own, book it, and go on."""
        ticket, self._ticket, self._head = self._ticket, None, None
        assert ticket is not None
        self.transport.write(without_body(response) if ticket.method == "HEAD" else response)
        account: Account = "ok" if status < 400 else "client_error" if status < 500 else "server_error"
        self._plane.book(ticket, account, status, code, len(response))
        self._next()

    def _refuse(self, why: Refusal) -> None:
        """Answer a request that was not read to its end, and close: what follows cannot be told apart."""
        plane = self._plane
        ticket = self._ticket
        if ticket is None:
            ticket = Ticket(plane.mint())
            plane.telemetry.started()
        self.keep_alive = False
        lines = self.own_lines(ticket) + (retry_after(1.0) if why.status == 503 else b"")
        response = refusal(why.status, why.code, why.message, lines)
        self.transport.write(without_body(response) if ticket.method == "HEAD" else response)
        account: Account = "shed" if why.status == 503 else "client_error"
        self._ticket = self._head = self._body = None
        self._inbox = b""
        self.release_body()
        plane.book(ticket, account, why.status, why.code, len(response))
        self._linger()

    # Between requests.

    def _next(self) -> None:
        """The response is written: on to the next request, or close."""
        self._served += 1
        self._reading(True)
        if not self.keep_alive or self._plane.draining:
            self._close()
            return
        self._phase = Phase.HEAD
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
        self._phase = Phase.LINGER
        self.deadline = self._plane.sweeper.now + self._plane.config.timeouts.idle_s
        self.transport.close()

    def _linger(self) -> None:
        """Close after a refusal. Closing with unread bytes would reset the connection, and the client might never see
        why it was refused: so say that we are done, and throw away what still comes for a moment."""
        self._phase = Phase.LINGER
        self.deadline = self._plane.sweeper.now + LINGER_S
        if self.transport.can_write_eof():
            self.transport.write_eof()
        else:
            self.transport.close()

    def _leave(self) -> None:
        """The client is gone."""
        phase, self._phase = self._phase, Phase.CLOSED
        exchange, self._exchange = self._exchange, None
        if exchange is not None:
            exchange.client_gone()
        elif phase is Phase.BODY and self._ticket is not None:
            self._plane.book(self._ticket, "client_closed", 499, "client_closed")
        self.release_body()
        self._inbox = b""
        self._body = self._head = self._ticket = None


_TOO_LONG_A_TARGET = Refusal(414, "uri_too_long", "The request target is too long.")
_TOO_LARGE_A_BODY = Refusal(413, "body_too_large", "The request body is too large.")
