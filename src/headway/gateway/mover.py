"""Who runs a request that may go on elsewhere, and what its client has: make before break, failover and eviction.

A request that may move has a mover from its arrival on. While one replica answers, the mover keeps a tape of what the
client got. To move it, the target first reads what there is (WARMING) while the source streams on. Then the source's
stream is held back and the target is asked to go on from exactly what the client has (CUTTING); with the target's first
word the client hears the target and the source is left. Until that word nothing has happened: if the target fails or is
late, what was held passes. If the source dies first, or was left before (evicted, failed over, or so that its engine
can hand over what it computed), the target is the one that counts before it has said anything (ALONE).

So the client's bytes are always a prefix that the one replica said and the rest that another said of that very prefix.
What lives here: those states, as the table `MOVES`. What must not: bytes (`spool`, `wire.resume*`), what is asked of
engines (`preparing`), and whether a move is a good idea (the brain).
"""

import asyncio
import math
from typing import TYPE_CHECKING, Final

from headway.core.commands import Dispatch, Migrate
from headway.core.events import FirstToken
from headway.core.ids import AttemptId
from headway.core.outcome import OutcomeKind
from headway.engines.continuation import Continuation, Way
from headway.gateway.config import Moving
from headway.gateway.continued import AGAIN, Continued
from headway.gateway.head import RequestHead, ResponseHead
from headway.gateway.preparing import Score, wants_running_usage
from headway.gateway.slots import Claim
from headway.gateway.spool import Gathering, Spool
from headway.gateway.target import Target
from headway.runtime.clock import now
from headway.wire import resume_body
from headway.wire.resume import Tape
from headway.wire.resume_cut import Cut
from headway.wire.resume_ids import IdStripper, ids_edit
from headway.wire.resume_splice import Splicer
from headway.wire.resume_whole import Whole, streaming_edits
from headway.wire.spans import TooManyKeys
from headway.wire.splice import Piece, splice

if TYPE_CHECKING:
    from headway.gateway.attempt import Attempt
    from headway.gateway.exchange import Exchange

PLAIN: Final = 0  # nobody is being continued: the source, if any, has the client
WARMING: Final = 1
CUTTING: Final = 2
WAITING: Final = 3  # no replica has it, the brain was asked
ALONE: Final = 4
OVER: Final = 5
STATES: Final = ("PLAIN", "WARMING", "CUTTING", "WAITING", "ALONE", "OVER")
MOVES: Final[dict[int, frozenset[int]]] = {
    PLAIN: frozenset((WARMING, WAITING, ALONE, OVER)),
    WARMING: frozenset((CUTTING, PLAIN, ALONE, OVER)),
    CUTTING: frozenset((PLAIN, ALONE, OVER)),
    WAITING: frozenset((ALONE, OVER)),
    ALONE: frozenset((PLAIN, WAITING, OVER)),
    OVER: frozenset(),
}
"""What may follow. PLAIN after CUTTING: the cut was made, or given up. ALONE to PLAIN: the client hears it."""

LOSSES: Final = frozenset({
    OutcomeKind.RESET, OutcomeKind.TRUNCATED, OutcomeKind.IDLE_TIMEOUT, OutcomeKind.BAD_RESPONSE,
    OutcomeKind.ENGINE_ABORT, OutcomeKind.IN_BAND_ERROR, OutcomeKind.SERVER_ERROR, OutcomeKind.OUT_OF_MEMORY,
    OutcomeKind.BACKPRESSURE, OutcomeKind.STALE_CONNECTION,
})  # fmt: skip
"""Ends of a source that its client need not hear of."""

FINAL: Final = frozenset({OutcomeKind.CANCELLED, OutcomeKind.CLIENT_ERROR})
"""Failures of a continuation that no other replica would mend."""

WANTED: Final = frozenset({"drain", "operator"})
"""Reasons of people, who would rather have a client wait for a moment than the move not be made."""

OK: Final = OutcomeKind.OK
COMMENT: Final = b": waiting for a replica\n"
"""Between two events, and no event itself: clients skip it."""

TOO_LARGE: Final = "The answer is longer than what is kept of one in one piece. A stream has no such limit."

NOTHING: Final = Score("", b"", None, Continuation(), Way.NONE, resume_body.Stops())  # type: ignore[arg-type]


class Mover:
    """One request's. `tape`: what its client has; `score`: what another replica would be given; `plain`: its client
    wants no stream, and gets all at once (`gathered`)."""

    __slots__ = (
        "_exchange", "_gathering", "_kept_bytes", "_reason", "_shown", "_since", "_state", "_target", "_timer", "head",
        "plain", "score", "spool", "tape", "transport",
    )  # fmt: skip

    def __init__(self, exchange: "Exchange", head: RequestHead, transport: asyncio.Transport) -> None:
        self.head = head
        self.transport = transport
        self.plain = not exchange.parsed.stream
        self._gathering = Gathering(self) if self.plain else None
        self.spool: Spool = self._gathering or Spool(transport, self)
        self._shown: ResponseHead | None = None
        self.tape = Tape()
        self.score = NOTHING
        self._exchange = exchange
        self._state = PLAIN
        self._target: Continued | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._reason = ""
        self._since = 0.0
        self._kept_bytes = 0

    def __repr__(self) -> str:
        return f"<Mover {STATES[self._state]} to {self._target}>"

    # Called by the first attempt.

    def begin(self, target: Target, pieces: list[Piece]) -> list[Piece]:
        """An attempt that begins the answer is sent: the body that its engine gets, given what it would get."""
        body = b"".join(pieces)
        self._keep(0)
        self.score, self.tape = NOTHING, Tape()
        self.spool.through(None, False)
        exchange, parsed = self._exchange, self._exchange.parsed
        way = target.dialect.continuation if target.dialect is not None else Continuation()
        if way.pinned(body, parsed, exchange.path):
            return [body]
        if self._gathering is not None:
            edits = streaming_edits(body)
            if edits is None:
                return [body]
            self._gathering.clear()
            body, parsed = splice(body, edits), parsed.changed(stream=True, include_usage=True)
        try:
            stops = resume_body.stops(body)
        except TooManyKeys:
            return [body]
        kind = way.way(exchange.path, parsed.media_tokens > 0)
        edit = ids_edit(body) if kind is Way.IDS else None
        self.score = Score(
            exchange.path, body, parsed, way, kind, stops,
            ids=kind is Way.IDS and edit is None, running_usage=wants_running_usage(body),
        )  # fmt: skip
        self._keep(len(body))
        self.spool.through(IdStripper(self.tape, edit is not None), False)
        return [splice(body, [edit])] if edit is not None else [body]

    def gather(self, head: ResponseHead) -> bool:
        """A stream begins, to be given with this head once it is whole. False if the client gets it as it comes."""
        self._shown = head
        return self._gathering is not None and self.score.way is not Way.NONE

    @property
    def whole(self) -> Whole:
        """What was gathered."""
        assert self._gathering is not None
        return self._gathering.whole

    def forsake(self) -> None:
        """The source failed, and all begins again: a target that was to go on is of no use."""
        if self._target is not None:
            self._give_up(OutcomeKind.CANCELLED, "the source failed")

    # Called by the exchange.

    def can_go_on(self) -> bool:
        """Whether another replica could go on from what the client has."""
        tape, way = self.tape, self.score.way
        whole = way is not Way.NONE and not tape.pinned and not tape.error and self.spool.body_sent
        return whole and bool(tape.sample) and (way is not Way.IDS or tape.prompt_ids is not None)

    def can_begin_again(self) -> bool:
        """Whether its client has nothing yet, of a stream whose engine would say that it is complete."""
        return self.score.way is not Way.NONE and (self.plain or not self.spool.body_sent)

    def migrate(self, command: Migrate, source: "Attempt | None") -> None:
        """Make a target ready beside the source."""
        told = Dispatch(command.request_id, command.attempt_id, command.replica_id, command.model, resumes=True)
        target = Continued(self._exchange, told, self)
        fit = source is not None and source.id == command.source and source.streaming and self._state == PLAIN
        if not fit or not self.can_go_on() or self.tape.ended or not target.reachable:
            target.settle(OutcomeKind.CANCELLED, False, self._hindrance(fit))
            return
        assert source is not None  # or it would not fit
        held = self._giver(source, command)
        if held is not None and source.claim is not None and (seat := target.seat()) is not None:
            self._hand_over(source, target, source.claim, seat, command)
            return
        self._state, self._target, self._reason = WARMING, target, command.reason
        self._arm(self._moving.warm_s)
        if held is not None and held.pull is not None:
            target.fetch(held, held.pull, command.held_tokens)
        else:
            target.warm()

    def evict(self, source: "Attempt") -> bool:
        """Leave its engine, and keep what the client has. False if it could not go on from that."""
        can = self._state == PLAIN and source.streaming and self.can_go_on() and not self.tape.ended
        if can:
            self._leave(source, OutcomeKind.EVICTED, "room was needed")
        return can

    def resumed(self, command: Dispatch) -> Continued:
        """A replica is to go on with it."""
        self._state = ALONE
        self._keep_alive()
        return Continued(self._exchange, command, self)

    def aborted(self, attempt: AttemptId) -> bool:
        """The brain wants this attempt ended. False if it is not the target of a move."""
        if self._target is None or self._target.id != attempt:
            return False
        self._give_up(OutcomeKind.CANCELLED, "the replica is gone")
        return True

    def pause(self) -> None:
        """The client reads slower than engines write."""
        if self._target is not None:
            self._target.pause()

    def resume(self) -> None:
        """The client caught up."""
        if self._target is not None:
            self._target.resume()

    def over(self) -> None:
        """The request has ended."""
        target, self._target = self._target, None
        self._state = OVER
        self._disarm()
        self._keep(0)
        self.spool.unwatched()
        if target is not None:
            target.drop()
            target.settle(OutcomeKind.CANCELLED, False, "the request has ended")
            target.release()

    # Called by attempts.

    def outlives(self, source: "Attempt", kind: OutcomeKind, detail: str) -> bool:
        """The client hears this attempt, and it is lost: whether its request goes on."""
        if self._state == OVER or kind not in LOSSES or not self.can_go_on():
            return False
        if self.tape.ended:
            self._finish(source, kind, detail)
        elif self._target is None:
            self._leave(source, kind, detail)
        else:
            self._replace(source, kind, detail)
        return True

    def warmed(self, target: Continued) -> None:
        """The target has read what there is: make the cut."""
        if target is not self._target:
            return
        if self.tape.ended or not self.can_go_on():
            self._give_up(OutcomeKind.CANCELLED, "the source said its last")
            return
        self._state = CUTTING
        self._since = now()
        self.spool.hold()
        self._arm(self._moving.warm_s if self.plain else self._moving.hold_s)
        target.prepare()

    def patience(self, target: Continued) -> float:
        """Tokens that may have to be said again before there is something new, while nobody speaks to the client: a few
        or, where somebody wants the move for a reason of his own, as many as the time that is left for the cut allows.
        Without bound where no other replica has it."""
        if target is not self._target:
            return math.inf
        if self._reason not in WANTED and not self.plain:
            return AGAIN
        began, tokens = self._exchange.ticket.first_token_at, self.tape.generated
        at = now()
        left = (self._moving.warm_s if self.plain else self._moving.hold_s) - (at - self._since)
        return max(AGAIN, left * tokens / max(at - began, 1e-6)) if began is not None else AGAIN

    def target_failed(self, target: Continued, kind: OutcomeKind, detail: str) -> None:
        """It said nothing to the client, and will not."""
        if target is self._target:
            self._give_up(kind, detail)
        elif self._state == ALONE and self._exchange.counts(target):
            if kind in FINAL:
                target.settle(kind, True, detail)
                self._exchange.refuse(502, "upstream_failed", f"The answer could not be continued: {detail}.")
            else:
                self._state = WAITING
                self._exchange.undecided()
                target.drop()
                target.undone(kind, max(1, self.tape.generated), detail)

    def nothing_left(self, target: Continued) -> None:
        """All that may be said was said: the source will say so, or is gone and we do."""
        if target is self._target:
            self._give_up(OutcomeKind.CANCELLED, "nothing is left to say")
        elif self._state == ALONE:
            tape, score = target.tape, self.score
            cut = Cut(tape.generated, tape.text)
            self.spool.say(Splicer(tape, cut, score.manner(), score.prompt_tokens).finish("length"))
            self.spool.through(None, False)
            self.spool.finish()
            target.settle(OutcomeKind.CANCELLED, True, "nothing was left to say")
            self._exchange.relayed(OK)

    def cut_over(self, target: Continued, shown: bytes) -> None:
        """The target goes on, and these are its first bytes: from now on the client hears it."""
        exchange, source = self._exchange, None
        at = now()
        if not self.plain:
            kind = "cut" if target is self._target else "handed_over" if target.handed_over else "resumed"
            exchange.plane.telemetry.moves.gap(kind, at - self._since)
            exchange.first_token(at)
        self._disarm()
        tokens = 0
        if target is self._target:
            source, self._target = exchange.source, None
            tokens = self._said(source)
        exchange.plane.driver.post(FirstToken(at, target.id))
        self._state = PLAIN
        self.tape = target.tape
        assert target.splicer is not None
        self.spool.through(target.splicer, True)
        target.join()
        if source is not None:
            exchange.take(target)
            source.leave(OutcomeKind.MIGRATED, tokens, "")
            source.release()
        self.spool.say(shown)
        target.advance()
        self.spoke()

    # Called by the spool.

    def held(self, size: int) -> None:
        """The source has said so much since the cut was marked."""
        source = self._exchange.source
        if source is not None and not source.streaming:
            self._give_up(OutcomeKind.CANCELLED, "the source said its last")
        elif size > (self._moving.plain_bytes if self.plain else self._moving.hold_bytes):
            self._give_up(OutcomeKind.CANCELLED, "the source said too much meanwhile")

    def spoke(self) -> None:
        """A continuation's piece went through the splicer: it may have ended the answer by itself."""
        attempt = self._exchange.source
        if isinstance(attempt, Continued) and attempt.splicer is not None:
            if attempt.splicer.cut_short:
                attempt.close_early()
            elif attempt.splicer.failed:
                attempt.broken(OutcomeKind.BAD_RESPONSE, "the continuation cannot be read")

    def gathered(self, size: int) -> None:
        """So much is kept for a client that waits for all of it."""
        if self._state == OVER:
            return
        self._keep(len(self.score.body) + size)
        source = self._exchange.source
        if size > self._moving.plain_bytes and source is not None:
            source.drop()
            self._exchange.refuse(502, "answer_too_large", TOO_LARGE)

    def give(self, whole: Whole) -> None:
        """All of it is there."""
        assert self._shown is not None
        body = whole.answer(self.score.continuation.form(self.score.path))
        self._exchange.answer(self._shown, len(body), body, False)

    # Steps.

    @property
    def _moving(self) -> Moving:
        moving = self._exchange.plane.config.moving
        assert moving is not None  # or there would be no mover
        return moving

    def _hindrance(self, fit: bool) -> str:
        """Why no target can be made ready. `fit`: for nothing that is wrong with the order."""
        tape = self.tape
        if tape.pinned:
            return f"its stream cannot be continued: {tape.pinned}"
        if tape.ended:
            return "the source said its last"
        if not fit:
            return "it is not being answered by the source now"
        return "the target is not there, or another kind of engine" if self.can_go_on() else "too little was said yet"

    def _give_up(self, kind: OutcomeKind, detail: str) -> None:
        """There is no move: the source goes on as if nothing had been."""
        target, self._target = self._target, None
        assert target is not None
        self._state = PLAIN
        self._disarm()
        target.drop()
        self.spool.release()
        target.settle(kind, False, detail)
        target.release()

    def _leave(self, source: "Attempt", kind: OutcomeKind, detail: str) -> None:
        """Nobody runs it from now on; the brain says who will."""
        self._state = WAITING
        self._since = now()
        self.spool.through(None, False)
        self._exchange.undecided()
        self._keep_alive()
        source.leave(kind, self._said(source), detail)

    def _replace(self, source: "Attempt", kind: OutcomeKind, detail: str) -> None:
        """The target that was being made ready is all there is now."""
        target, self._target = self._target, None
        assert target is not None
        cutting = self._state == CUTTING
        self._leave_to(target, source, kind, detail)
        if not cutting:
            target.drop()
            target.prepare()

    def _giver(self, source: "Attempt", order: Migrate) -> Target | None:
        """The replica that is left, if it can hand over what it computed and that is cheaper than to compute it."""
        plane, moving = self._exchange.plane, self._moving
        held, there = plane.pool.targets.get(source.replica), plane.pool.targets.get(order.replica_id)
        if held is None or there is None or not moving.handover_s:
            return None
        most_s = moving.handover_s if held.pull is None else moving.warm_s  # or nobody's stream stands still meanwhile
        return held if plane.domains.pays(held, there, order, most_s) else None

    def _hand_over(self, source: "Attempt", target: Continued, claim: Claim, seat: Claim, order: Migrate) -> None:
        """Leave the source, and have the engines hand over what it computed."""
        source.claim = None  # nobody else may have it until it is saved
        self._leave_to(target, source, OutcomeKind.MIGRATED, "")
        target.take_over(claim, seat, order.held_tokens)

    def _leave_to(self, target: Continued, source: "Attempt", kind: OutcomeKind, detail: str) -> None:
        """The source is gone; the target counts, and has said nothing yet."""
        self._state = ALONE
        self._since = now()
        self._keep_alive()
        self.spool.through(None, False)
        self._exchange.take(target)
        source.leave(kind, self._said(source), detail)
        source.release()

    def _finish(self, source: "Attempt", kind: OutcomeKind, detail: str) -> None:
        """The answer was complete but for its last formalities, which we can say as well."""
        tape, score = self.tape, self.score
        self.spool.through(None, False)
        if not tape.done:
            cut = Cut(tape.generated, tape.text)
            self.spool.say(Splicer(tape, cut, score.manner(), score.prompt_tokens).close())
        source.drop()
        self.spool.finish()
        source.settle(kind, True, detail)
        self._exchange.relayed(OK)

    def _said(self, source: "Attempt | None") -> int:
        """Tokens that the client has. Only ids are counted by the tape whoever said them."""
        if isinstance(source, Continued) and self.score.way is not Way.IDS:
            return source.said()
        return self.tape.generated

    def _keep(self, size: int) -> None:
        self._exchange.plane.body_bytes += size - self._kept_bytes
        self._kept_bytes = size

    def _arm(self, seconds: float) -> None:
        self._disarm()
        self._timer = asyncio.get_running_loop().call_later(seconds, self._late)

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _keep_alive(self) -> None:
        """The client may have to wait: tell it from time to time that nothing is lost, if that is wanted."""
        self._disarm()
        seconds = self._moving.keepalive_s
        if seconds and not self.plain:
            self._timer = asyncio.get_running_loop().call_later(seconds, self._comment)

    def _comment(self) -> None:
        self.spool.say(COMMENT)
        self._keep_alive()

    def _late(self) -> None:
        self._timer = None
        if self._target is not None:
            self._target.late()
            self._give_up(OutcomeKind.CANCELLED, "the target was late")
