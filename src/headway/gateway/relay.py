"""What happens to an engine's response on its way to the client: one small relay per kind of response (of streams:
`streaming`, which also chooses).

Bytes pass unchanged; a relay only decides *when* they pass. Each holds back as little as it can, for as long as a
retry may still be wanted: a refusal until the brain was asked, a JSON answer until it is complete (an engine that
drains says "abort" inside a 200), a stream until its first content, but never longer than a moment (`sweep.SOON_S`).
A relay never talks to the brain or the client itself: `Exchange` does both.
"""

from typing import ClassVar, Final, Protocol

from headway.core.outcome import OutcomeKind
from headway.gateway.head import ResponseHead
from headway.gateway.outlet import Outlet
from headway.wire.answers import answer_of
from headway.wire.exhaustion import exhausted
from headway.wire.usage import NO_FACTS, Answer, Facts

MAX_HELD_ANSWER_BYTES: Final = 1024 * 1024
MAX_HELD_ERROR_BYTES: Final = 64 * 1024
RETRYABLE_STATUS: Final = frozenset((429, 500, 502, 503, 504))
"""Refusals worth a try elsewhere. 500 too: a vLLM that shuts down gives it to new requests while its health is 200, and
to those it was working on when its engine process dies."""

NOT_OFFERED: Final = 501
"""llama.cpp's answer to embeddings when it was started for chat: about the request, not about the engine's health."""

TIMEOUTS: Final = frozenset((OutcomeKind.FIRST_BYTE_TIMEOUT, OutcomeKind.IDLE_TIMEOUT, OutcomeKind.CONNECT_TIMEOUT))


OK: Final = OutcomeKind.OK


class Boss(Protocol):
    """What a relay asks of its exchange."""

    outlet: Outlet
    advanced: bool
    injected_usage: bool

    def commit(self, first: bytes, reframe: bool = False) -> None:
        """Give the client the head of the relay's response (if it has none yet) and a first piece."""
        ...

    def complete(self, kind: OutcomeKind) -> None:
        """The response ended as it should; everything was passed on."""
        ...

    def failed(self, kind: OutcomeKind, detail: str) -> None:
        """This attempt failed and the client knows nothing of it: ask what to do. `go_on` may follow."""
        ...

    def broken(self, kind: OutcomeKind, detail: str, farewell: bytes = b"") -> None:
        """The response cannot be completed: say `farewell` if that is possible, and end without a clean end."""
        ...

    def first_token(self) -> None:
        """The first content arrived."""
        ...

    def passed(self) -> None:
        """What there is of it was passed on."""
        ...

    def advance(self) -> None:
        """Tokens were generated."""
        ...

    def may_be_quoted(self) -> bool:
        """Whether an error about memory may repeat what the client said."""
        ...

    def may_go_on(self) -> bool:
        """Whether the request could go on elsewhere if this attempt ended now."""
        ...


def facts_of(answer: Answer) -> Facts:
    """What a JSON answer said about itself."""
    usage = answer.usage
    return Facts(usage, usage.completion_tokens if usage is not None else 0, answer.hit_limit)


def kind_of(status: int) -> OutcomeKind:
    """How an attempt that was answered with this status ended."""
    if status < 400:
        return OK
    if status in (429, 503):
        return OutcomeKind.BACKPRESSURE
    return OutcomeKind.CLIENT_ERROR if status < 500 or status == NOT_OFFERED else OutcomeKind.SERVER_ERROR


def in_band_kind(status: int) -> OutcomeKind:
    """How a stream ended that said an error, given the status it named, 0 if none. A 200 was given, so it is an error
    in band to the client; but a wrong prompt is no more an engine's fault here than with a status line."""
    return kind_of(status) if 400 <= status < 500 or status == 503 else OutcomeKind.IN_BAND_ERROR


class PlainRelay:
    """Passes everything on as it comes. `impatient`: wants `soon` called; `complete`: the response is all here."""

    impatient = True

    def __init__(self, boss: Boss, head: ResponseHead, length: int) -> None:
        self.boss = boss
        self.outlet = boss.outlet
        self.head = head
        self.length = length
        self.complete = False

    def feed(self, data: bytes) -> None:
        """Payload arrived."""
        if self.outlet.begun:
            self.outlet.write(data)
        else:
            self.boss.commit(data)

    def end(self) -> None:
        """The response is complete."""
        self.soon()
        self.boss.complete(kind_of(self.head.status))

    def lost(self, kind: OutcomeKind, detail: str) -> None:
        """The response will not be completed."""
        if self.unheard:
            self.boss.failed(kind, detail)
        else:
            self.boss.broken(kind, detail)

    @property
    def unheard(self) -> bool:
        """Whether its client has nothing of it that another response could not begin with, too."""
        return not self.outlet.begun

    def soon(self) -> None:
        """A moment has passed since the head: let it go."""
        if not self.outlet.begun:
            self.boss.commit(b"")

    def go_on(self) -> None:
        """There will be no retry: pass on what is held, and the rest."""
        self.soon()

    def facts(self) -> Facts:
        """What the response said so far."""
        return NO_FACTS

    def left(self) -> OutcomeKind:
        """How the attempt ended if the client leaves now."""
        return OutcomeKind.CLIENT_CLOSED

    @property
    def ending(self) -> bool:
        """Whether all was said that matters, though the response has not ended yet."""
        return self.complete

    def farewell(self, kind: OutcomeKind, detail: str) -> bytes:
        """The last words of a response that is cut: only event streams can carry any."""
        return b""

    def retry_after_s(self) -> float:
        """How long the engine asked clients to wait; dates are not read."""
        value = self.head.fields.get(b"retry-after", b"")
        return float(value) if value.isdigit() and len(value) < 8 else 0.0


class Holding(PlainRelay):
    """Holds the body up to a limit."""

    limit: ClassVar[int] = 0

    def __init__(self, boss: Boss, head: ResponseHead, length: int) -> None:
        super().__init__(boss, head, length)
        self._held: list[bytes] = []
        self._held_bytes = 0

    def _hold(self, data: bytes) -> bool:
        """Keep a piece; False when that is more than is allowed."""
        self._held.append(data)
        self._held_bytes += len(data)
        return self._held_bytes <= self.limit

    def _take(self) -> bytes:
        held, self._held = self._held, []
        return held[0] if len(held) == 1 else b"".join(held)


class ErrorRelay(Holding):
    """A refusal that another replica may not repeat: asks before passing it on, as soon as its (short) body is here."""

    limit: ClassVar[int] = MAX_HELD_ERROR_BYTES

    def __init__(self, boss: Boss, head: ResponseHead, length: int) -> None:
        super().__init__(boss, head, length)
        self._asked = False
        self._going = False

    def feed(self, data: bytes) -> None:
        """Payload arrived."""
        if self._going:
            super().feed(data)
        elif not self._hold(data):
            self._ask()

    def end(self) -> None:
        """The response is complete."""
        self.complete = True
        if self._going:
            self.boss.complete(kind_of(self.head.status))
        else:
            self._ask()

    def lost(self, kind: OutcomeKind, detail: str) -> None:
        """The rest of the refusal is lost: its status is what counts."""
        if self._going:
            super().lost(kind, detail)
        elif not self._asked:
            self._asked = True
            self.boss.failed(self._kind(), f"status {self.head.status}, cut short")

    def soon(self) -> None:
        """The body is slow to come: decide without it."""
        self._ask()

    def go_on(self) -> None:
        """Pass the refusal on."""
        self._going = True
        self.boss.commit(self._take())
        if self.complete:
            self.boss.complete(kind_of(self.head.status))

    def _ask(self) -> None:
        if not self._asked:
            self._asked = True
            self.boss.failed(self._kind(), f"status {self.head.status}")

    def _kind(self) -> OutcomeKind:
        kind = kind_of(self.head.status)
        if kind is OutcomeKind.SERVER_ERROR and exhausted(b"".join(self._held)) and not self.boss.may_be_quoted():
            return OutcomeKind.OUT_OF_MEMORY
        return kind


class AnswerRelay(Holding):
    """A JSON answer, held until it is complete or too long to hold."""

    limit: ClassVar[int] = MAX_HELD_ANSWER_BYTES
    impatient = False  # an answer that is not complete is of no use to the client

    def __init__(self, boss: Boss, head: ResponseHead, length: int) -> None:
        super().__init__(boss, head, length)
        self._answer = Answer()

    def feed(self, data: bytes) -> None:
        """Payload arrived."""
        if self.outlet.begun:
            self.outlet.write(data)
        elif not self._hold(data):
            self.boss.commit(self._take())

    def end(self) -> None:
        """The answer is complete: read how it ended."""
        self.complete = True
        if self.outlet.begun:
            self.boss.complete(OK)
            return
        body = self._take()
        self._answer = answer_of(body)
        if self._answer.aborted:
            self._held.append(body)
            self.boss.failed(OutcomeKind.ENGINE_ABORT, "the engine aborted the request")
            return
        if self._answer.malformed:
            self.boss.failed(OutcomeKind.BAD_RESPONSE, "the answer is no JSON, though it says so")
            return
        self.boss.commit(body)
        self.boss.complete(OK)

    def go_on(self) -> None:
        """Pass the aborted answer on."""
        self.boss.commit(self._take())
        self.boss.complete(OutcomeKind.ENGINE_ABORT)

    def facts(self) -> Facts:
        """The engine's own usage report."""
        return facts_of(self._answer)
