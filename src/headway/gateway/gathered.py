"""An attempt that begins an answer for a client that did not ask for a stream, though its engine was: so that the
request can move, and outlive its engine, as one that streams.

Nothing is given to the client before all of it is there (`spool.Gathering`), so whatever goes wrong until then is tried
elsewhere, or becomes an error with a status. What an engine does not stream (a refusal, an answer of one that was not
asked to stream after all) passes as it would without this. What lives here: when an answer is whole, and what an error
within it becomes. What must not: putting it together (`wire.resume_whole`), and moving it (`mover`).
"""

import re
from typing import TYPE_CHECKING, Final

from headway.core.commands import Dispatch
from headway.core.events import FirstToken
from headway.core.outcome import OutcomeKind
from headway.gateway.attempt import OVER, Attempt
from headway.gateway.head import ResponseHead
from headway.gateway.replies import status_line
from headway.gateway.streaming import StreamRelay, choose
from headway.runtime.clock import now
from headway.wire.chunks import Tally

if TYPE_CHECKING:
    from headway.gateway.exchange import Exchange
    from headway.gateway.mover import Mover

OK: Final = OutcomeKind.OK
_MEDIA: Final = re.compile(rb"(?i)(\r\ncontent-type:)[^\r]*")
_OF_STREAMS: Final = re.compile(rb"(?i)\r\n(?:x-accel-buffering|cache-control):[^\r]*")
"""What engines say of streams only: that nobody may buffer or keep them."""


def as_answer(head: ResponseHead) -> ResponseHead:
    """The head of a stream, as that of a JSON answer."""
    shown = ResponseHead(head.status, b"", b"", {})
    shown.lead = _OF_STREAMS.sub(b"", _MEDIA.sub(rb"\1 application/json", head.lead))
    return shown


class Gathered(Attempt):
    """`gathers`: its engine streams, and the client does not hear it yet."""

    __slots__ = ("_mover", "gathers")

    def __init__(self, exchange: "Exchange", command: Dispatch, mover: "Mover") -> None:
        super().__init__(exchange, command, exchange.outlet)
        self._boarded = True  # a call that is shared cannot stream
        self._mover = mover
        self.gathers = False

    # Attempt's.

    def left(self) -> OutcomeKind:
        """The client left, and has nothing."""
        kind = super().left()
        return OutcomeKind.CLIENT_CLOSED if self.gathers else kind

    def go_on(self) -> bool:
        """There will be no retry: of a stream, there is nothing to pass on."""
        return not self.gathers and super().go_on()

    def complete(self, kind: OutcomeKind) -> None:
        """The engine has said all."""
        if not self.gathers:
            super().complete(kind)
            return
        spool = self._mover.spool
        spool.flush()
        whole = self._mover.whole
        if whole.error:
            self._pass_error(whole.error, kind)
        elif whole.unreadable:
            self.broken(OutcomeKind.BAD_RESPONSE, "the stream cannot be read")
        elif not whole.complete:
            self.broken(OutcomeKind.TRUNCATED, "the stream ended before its answer did")
        else:
            super().complete(kind)

    def failed(self, kind: OutcomeKind, detail: str) -> None:
        """The client has nothing: let the brain decide. What was being made ready beside is of no use."""
        self._mover.forsake()
        super().failed(kind, detail)

    def broken(self, kind: OutcomeKind, detail: str, farewell: bytes = b"") -> None:
        """The stream cannot be completed, but what came of it may go on elsewhere; if not, all of it begins again."""
        if not self.gathers:
            super().broken(kind, detail, farewell)
            return
        self.drop()
        if self._state != OVER and not self._mover.outlives(self, kind, detail):
            self.failed(kind, detail)

    def first_token(self) -> None:
        """The first content arrived, though not for the client."""
        if self.gathers:
            self._plane.driver.post(FirstToken(now(), self.id))
        else:
            super().first_token()

    def advance(self) -> None:
        """Tokens were generated."""
        if self._state != OVER:
            super().advance()

    # Steps.

    def _begin(self, head: ResponseHead, length: int) -> None:
        self.gathers = choose(head) is StreamRelay and self._mover.gather(as_answer(head))
        if self.gathers:
            self.outlet = self._mover.spool
        super()._begin(head, length)

    def _pass_error(self, data: bytes, kind: OutcomeKind) -> None:
        """An error that no other engine would mend: with the status that it has where nothing streams."""
        tally = Tally()
        tally.read(data)
        head = ResponseHead(tally.error_status or 502, b"", b"", {})
        head.lead = b"HTTP/1.1 %b\r\ncontent-type: application/json" % status_line(head.status)
        self._exchange.answer(head, len(data), data, False)
        self.settle(kind, True)
        self._exchange.relayed(kind)
