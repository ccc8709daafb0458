"""The relay of event streams, and which relay a response gets.

A stream is scanned beside its way to the client, and held back only where that saves a retry or keeps an event whole.
What is said in it is judged the same however it is cut into pieces.
"""

from typing import ClassVar, Final

from headway.core.outcome import OutcomeKind
from headway.gateway.head import ResponseHead
from headway.gateway.relay import (
    OK,
    RETRYABLE_STATUS,
    TIMEOUTS,
    AnswerRelay,
    Boss,
    ErrorRelay,
    Holding,
    PlainRelay,
    in_band_kind,
)
from headway.wire.errors import sse_error
from headway.wire.exhaustion import exhausted
from headway.wire.sse import Scanner, UsageStripper
from headway.wire.usage import Facts

MAX_HELD_STREAM_BYTES: Final = 16 * 1024
MAX_HELD_LINE_BYTES: Final = 64 * 1024


class StreamRelay(Holding):
    """A stream of server-sent events: scanned beside the relay, held back only before its first content, and where a
    piece ends within a line: half an event is of no use to a client, and would be broken JSON if the engine died there.
    """

    limit: ClassVar[int] = MAX_HELD_STREAM_BYTES

    def __init__(self, boss: Boss, head: ResponseHead, length: int) -> None:
        super().__init__(boss, head, length)
        self._scanner = Scanner()
        self._stripper = UsageStripper() if boss.injected_usage else None
        self._content = False
        self._waited = False
        self._verbatim = False
        self._line = b""  # that has not ended yet
        self._within_line = False  # its begin was too long to hold, and has passed

    def feed(self, data: bytes) -> None:
        """Payload arrived. The path of every token: two calls once content has begun."""
        scanner = self._scanner
        if scanner.feed(data) and self._content:  # nothing is held, nor in question
            self.outlet.write(data)
            if not self.boss.advanced:
                self.boss.advance()
            return
        if not self._content:
            self._before_content(data)
            return
        if self._line or not scanner.clean:
            data = self._whole_lines(data)
        if scanner.aborted and not self._verbatim:
            self._cut_at_abort(data)
            return
        if scanner.error is not None and self._fails_over(data):
            return
        if self._stripper is not None:
            data = self._stripper.feed(data)
        if data:
            self.outlet.write(data)
        if not self.boss.advanced:
            self.boss.advance()

    def end(self) -> None:
        """The stream ended as its framing said."""
        scanner = self._scanner
        scanner.end()
        unframed = self.length < 0 and not self.head.chunked
        if (unframed and not scanner.complete) or (not scanner.done and self.boss.may_go_on()):
            self.lost(OutcomeKind.TRUNCATED, "the stream ended without a sign of its end")
            return
        self.complete = True
        if scanner.empty and not self._content and not self.outlet.body_sent:
            self.boss.failed(OutcomeKind.TRUNCATED, "the stream ended before any event")
            return
        self._close()

    def lost(self, kind: OutcomeKind, detail: str) -> None:
        """The stream was cut."""
        if self.unheard:
            self.boss.failed(kind, detail)
            return
        self._release()
        self.boss.broken(kind, detail, self.farewell(kind, detail))

    @property
    def unheard(self) -> bool:
        """Of a stream the head alone says nothing yet, unless it says how long it is."""
        outlet = self.outlet
        return not (outlet.body_sent or (outlet.begun and outlet.fixed))

    def soon(self) -> None:
        """A moment has passed since the head: nothing is held any longer."""
        if self._content or self._waited:
            return
        self._waited = True
        if not self._scanner.done:
            self._release()

    def go_on(self) -> None:
        """Pass on what is held, and the rest."""
        self._verbatim = self._content = True
        self._release()
        if self.complete:
            self._close()

    def facts(self) -> Facts:
        """The engine's usage report, else what was counted."""
        scanner = self._scanner
        usage = scanner.usage
        return Facts(usage, usage.completion_tokens if usage else scanner.tokens, scanner.hit_limit)

    def left(self) -> OutcomeKind:
        """What the stream said of its end counts, though its framing has not ended yet."""
        if self._scanner.error is not None:
            return self._error_kind()
        return OK if self._scanner.done else OutcomeKind.CLIENT_CLOSED

    @property
    def ending(self) -> bool:
        """Whether its last word was said."""
        return self._scanner.complete

    def farewell(self, kind: OutcomeKind, detail: str) -> bytes:
        """An error event, after the end of the event that may have been broken off."""
        status = 504 if kind in TIMEOUTS else 502
        ended = b"" if kind is OutcomeKind.ENGINE_ABORT else b"\n" * (2 * self._within_line or self._scanner.open)
        return ended + sse_error(detail, kind.value, status)

    def _before_content(self, data: bytes) -> None:
        scanner = self._scanner
        fits = self._hold(data)
        if scanner.aborted:
            self._aborted_early()
        elif scanner.error is not None and not self.outlet.body_sent:
            self._error_early()
        elif scanner.error is not None and self._fails_over(self._take_line()):
            return
        elif scanner.first_content:
            self._content = True
            self.boss.first_token()
            self._release()
            self.boss.passed()
            self.boss.advance()
        elif scanner.done and scanner.empty:
            return  # [DONE] and nothing else: an empty stream is not an answer, `end` will ask
        elif self._waited or scanner.error is not None or scanner.finished or not fits:
            self._release()

    def _error_kind(self) -> OutcomeKind:
        """What an error in the stream means, however the stream is cut into pieces. Of one that follows content nobody
        can tell any more whether it quotes the request, which is let go with the first token."""
        scanner = self._scanner
        kind = in_band_kind(scanner.error_status)
        if scanner.first_content or kind is not OutcomeKind.IN_BAND_ERROR or self.boss.may_be_quoted():
            return kind
        return OutcomeKind.OUT_OF_MEMORY if exhausted((scanner.error or "").encode("utf-8", "replace")) else kind

    def _error_early(self) -> None:
        """The engine's words are for the client alone: they may repeat its prompt, and what is told here is kept."""
        kind = self._error_kind()
        if kind is OutcomeKind.CLIENT_ERROR:  # nobody else would say otherwise
            self._release()
        else:
            self.boss.failed(kind, "the stream began with an error of the engine's")

    def _aborted_early(self) -> None:
        if self.outlet.body_sent:
            self._cut_at_abort(self._take_line())
        else:
            self.boss.failed(OutcomeKind.ENGINE_ABORT, "the engine aborted the request")

    def _release(self) -> None:
        """Give the client everything that is held, its head first."""
        data = self._take() if self._held else b""
        if self._line or not self._scanner.clean:
            data = self._whole_lines(data)
        if data and self._stripper is not None:
            data = self._stripper.feed(data)
        if not self.outlet.begun:
            self.boss.commit(data, reframe=self._stripper is not None)
        elif data:
            self.outlet.write(data)

    def _fails_over(self, data: bytes) -> bool:
        """An error of the engine's in the middle of a stream ends the stream; unless the request can go on elsewhere:
        then the error is not for the client."""
        kind = self._error_kind()
        if kind is OutcomeKind.CLIENT_ERROR or not self.boss.may_go_on():
            self._held = [] if self._content else [data]
            return False
        start = max(0, data.rfind(b"data:", 0, data.find(b'"error"')))
        self._held, self._line = [data[:start]] if start else [], b""
        self._release()
        self.boss.broken(kind, "the engine said an error within the stream")
        return True

    def _cut_at_abort(self, data: bytes) -> None:
        """Pass on what precedes the abort (or the rest of its event, if that has begun to pass), then apologise."""
        mark = data.find(b'"abort"')
        start = data.rfind(b"data:", 0, mark)
        if start < 0:
            end = data.find(b"\n\n", mark)
            start = len(data) if end < 0 else end + 2
        self._held, self._line = [data[:start]] if start else [], b""
        self._release()
        detail = "the engine aborted the request"
        self.boss.broken(OutcomeKind.ENGINE_ABORT, detail, self.farewell(OutcomeKind.ENGINE_ABORT, detail))

    def _take_line(self) -> bytes:
        """All that is held, from the begin of an unfinished line on."""
        line, self._line = self._line, b""
        return line + self._take()

    def _whole_lines(self, data: bytes) -> bytes:
        """What of it, and of what is held, may pass."""
        data = self._line + data
        end = max(data.rfind(b"\n"), data.rfind(b"\r")) + 1
        self._within_line = len(data) - end > MAX_HELD_LINE_BYTES or (self._within_line and not end)
        if self._within_line:
            end = len(data)
        self._line = data[end:]
        return data[:end]

    def _close(self) -> None:
        self._release()
        tail, self._line = self._line, b""
        if self._stripper is not None:
            tail = self._stripper.feed(tail) + self._stripper.end()
        if tail:
            self.outlet.write(tail)
        self.boss.complete(OK if self._scanner.error is None else self._error_kind())


Relay = PlainRelay


_BY_MEDIA: Final[dict[bytes, type[Relay]]] = {b"application/json": AnswerRelay, b"text/event-stream": StreamRelay}


def choose(head: ResponseHead) -> type[Relay]:
    """The kind of relay for a response, by its status and content type."""
    if head.status == 200:
        return _BY_MEDIA.get(head.media, PlainRelay)
    return ErrorRelay if head.status in RETRYABLE_STATUS else PlainRelay
