"""Small questions to an engine beside its streams: one POST and its whole answer, and several in a row.

What lives here: asking. What must not: what is asked and why (`preparing`). Answers are short, and nobody waits for
them longer than the one who asked cares to: `drop` ends it at once.
"""

import asyncio
from collections.abc import Callable, Generator
from typing import Any, Final, TypeVar

from headway.core.outcome import OutcomeKind
from headway.gateway.head import RequestHead, ResponseHead
from headway.gateway.spool import unheard
from headway.gateway.target import Target
from headway.gateway.upstream import Pool, UpstreamConnection
from headway.wire.resume_body import Ask

MAX_ANSWER_BYTES: Final = 16 * 1024 * 1024
"""The ids of a million tokens with their brackets are half of it."""

T = TypeVar("T")
Steps = Generator[Ask, bytes, T]
"""Gives what to ask, wants the answer, returns what came of it."""


class Call:
    """One POST. `done` gets the answer's body, or None with why there is none."""

    def __init__(
        self, pool: Pool, target: Target, head: RequestHead, name: str, ask: Ask,
        done: Callable[[bytes | None, OutcomeKind, str], None],
    ) -> None:  # fmt: skip
        self.body: Callable[[bytes], None] = self._collect
        self._pool = pool
        self._target = target
        self._done = done
        self._parts: list[bytes] = []
        self._size = 0
        self._status = 0
        self._again = False
        self._lead = target.post(head, ask.path, name, len(ask.body))
        self._body = ask.body
        self._connecting: asyncio.Task[Any] | None = None
        self._upstream: UpstreamConnection | None = None
        connection = pool.acquire(target)
        if connection is None:
            self._connect()
        else:
            self._send(connection)

    def drop(self) -> None:
        """Nobody wants the answer any more."""
        self.body = unheard
        if self._connecting is not None:
            self._connecting.cancel()
            self._connecting = None
        if self._upstream is not None:
            self._upstream.drop()
            self._upstream = None

    # Called by the connection.

    def response(self, head: ResponseHead, _length: int) -> None:
        """The head arrived."""
        self._status = head.status

    def answered(self, head: ResponseHead, body: bytes) -> None:
        """All of it arrived at once."""
        self._status = head.status
        self._parts = [body]
        self.ended()

    def ended(self) -> None:
        """The answer is complete."""
        self._upstream = None
        if self._status == 200:
            self._end(b"".join(self._parts), OutcomeKind.OK, "")
        else:
            kind = OutcomeKind.CLIENT_ERROR if 400 <= self._status < 500 else OutcomeKind.SERVER_ERROR
            self._end(None, kind, f"it answered {self._status}")

    def lost(self, kind: OutcomeKind, detail: str) -> None:
        """There will be no answer."""
        self._upstream = None
        if kind is OutcomeKind.STALE_CONNECTION and not self._again:
            self._again = True
            self._connect()
        else:
            self._end(None, kind, detail)

    # Steps.

    def _end(self, answer: bytes | None, kind: OutcomeKind, detail: str) -> None:
        self.body = unheard
        self._done(answer, kind, detail)

    def _connect(self) -> None:
        self._connecting = self._pool.connect(self._target, self._send, self._unconnected)

    def _send(self, connection: UpstreamConnection) -> None:
        self._connecting = None
        self._upstream = connection
        connection.send(self, self._lead, self._body)

    def _unconnected(self, kind: OutcomeKind, detail: str) -> None:
        self._connecting = None
        self._end(None, kind, detail)

    def _collect(self, data: bytes) -> None:
        self._parts.append(data)
        self._size += len(data)
        if self._size > MAX_ANSWER_BYTES and self._upstream is not None:
            self.drop()
            self._end(None, OutcomeKind.BAD_RESPONSE, "the answer is too long")


class Errand:
    """Asks one engine what `steps` want to know, one after the other. `done` gets what they return, `failed` why they
    did not come to an end, with the exception if they gave up themselves. Neither is called after `drop`, nor before
    `go` returns unless nothing had to be asked."""

    def __init__(
        self, pool: Pool, target: Target, head: RequestHead, name: str, steps: Steps[Any],
        done: Callable[[Any], None], failed: Callable[[OutcomeKind, str, Exception | None], None],
    ) -> None:  # fmt: skip
        self._pool = pool
        self._target = target
        self._head = head
        self._name = name
        self._steps = steps
        self._done = done
        self._failed = failed
        self._call: Call | None = None

    def go(self) -> None:
        """Begin."""
        self._next(None)

    def drop(self) -> None:
        """Stop at once."""
        if self._call is not None:
            self._call.drop()
            self._call = None
        self._steps.close()

    def _next(self, answer: bytes | None) -> None:
        try:
            ask = next(self._steps) if answer is None else self._steps.send(answer)
        except StopIteration as end:
            self._done(end.value)
            return
        except ValueError as error:  # Unresumable and its kind: there is nothing to ask for
            self._failed(OutcomeKind.CANCELLED, str(error), error)
            return
        self._call = Call(self._pool, self._target, self._head, self._name, ask, self._answered)

    def _answered(self, answer: bytes | None, kind: OutcomeKind, detail: str) -> None:
        self._call = None
        if answer is None:
            self._failed(kind, detail, None)
        else:
            self._next(answer)
