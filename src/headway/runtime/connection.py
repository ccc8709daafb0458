"""One HTTP/1.1 connection: writes a whole request, collects the whole answer up to a cap. llhttp reads the framing.

Scraping is all that a large idle fleet costs, and a general client spends most of it on what a scrape has no use for:
this one costs a third of aiohttp's per exchange. It follows no redirect, unfolds nothing, keeps no cookies.
"""

import asyncio
from typing import Any

import httptools

from headway.runtime import clock
from headway.runtime.answers import Answer, Failure, FailureKind

MAX_HEAD_BYTES = 64 * 1024
_FRAMING = frozenset((b"content-length", b"transfer-encoding"))
_SWITCHING = 101


class Connection(asyncio.Protocol):
    """Carries one exchange at a time. `reusable` between exchanges: the last answer ended where its framing said."""

    transport: asyncio.Transport

    def __init__(self) -> None:
        self.reusable = False
        self.idle_since = 0.0
        self._parser: Any = None
        self._answer: asyncio.Future[Answer | Failure | None] | None = None
        self._cap = 0
        self._heard = 0
        self._framed = self._in_body = False
        self._body: list[bytes] = []
        self._length = 0

    async def ask(self, request: bytes, cap_bytes: int) -> Answer | Failure | None:
        """One exchange; None if the connection was closed before the first byte of an answer."""
        self.reusable = False
        self._parser = httptools.HttpResponseParser(self)
        self._cap, self._heard = cap_bytes, 0
        self._begin()
        self._answer = asyncio.get_running_loop().create_future()
        self.transport.write(request)
        try:
            return await self._answer
        finally:
            self._answer = None
            if self.reusable:
                self.idle_since = clock.now()
            else:
                self.transport.abort()

    def connection_made(self, transport: Any) -> None:
        """asyncio: the connection is open."""
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        """asyncio: bytes of an answer, or of something that is not one."""
        if self._answer is None:
            self.transport.abort()
            return
        self._heard += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self.reusable = False
            self._end(Failure(FailureKind.BROKEN, f"not HTTP: {error}"))
        if self._heard > MAX_HEAD_BYTES and not self._in_body:
            self._end(Failure(FailureKind.BROKEN, "the head of the answer is too long"))

    def connection_lost(self, exc: Exception | None) -> None:
        """asyncio: the connection is gone."""
        if not self._heard:
            self._end(None)
        elif self._in_body and not self._framed and exc is None:
            self._end(self._whole())
        else:
            self._end(Failure(FailureKind.BROKEN, "the connection was closed within an answer"))

    def on_header(self, name: bytes, _value: bytes) -> None:
        """llhttp: one header line."""
        self._framed = self._framed or name.lower() in _FRAMING

    def on_headers_complete(self) -> None:
        """llhttp: the body begins."""
        self._in_body = True

    def on_body(self, data: bytes) -> None:
        """llhttp: a piece of the body. The first one beyond the cap is the last: whoever asked gets to run later, and
        the peer may send faster than that."""
        if not self._pending():
            return
        self._length += len(data)
        excess = self._length - self._cap
        self._body.append(data if excess <= 0 else data[:-excess])
        if excess > 0:
            self.transport.abort()
            self._end(Answer(self._parser.get_status_code(), b"".join(self._body), cut=True))
            self._body = []

    def on_message_begin(self) -> None:
        """llhttp: an answer begins. A second one was not asked for."""
        self.reusable = False

    def on_message_complete(self) -> None:
        """llhttp: the answer ends here, unless it is an interim one."""
        status = self._parser.get_status_code()
        if status < 200 and status != _SWITCHING:
            self._begin()
            return
        self.reusable = self._pending() and self._parser.should_keep_alive()
        self._end(self._whole())

    def _begin(self) -> None:
        self._framed = self._in_body = False
        self._body, self._length = [], 0

    def _whole(self) -> Answer:
        return Answer(self._parser.get_status_code(), b"".join(self._body))

    def _pending(self) -> bool:
        return self._answer is not None and not self._answer.done()

    def _end(self, answer: Answer | Failure | None) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(answer)
