"""An attempt that goes on with what another replica has begun. It says nothing to the client until it has something new
to say; until then it may fail without anybody but the mover noticing (`Anteroom`).

States and deadlines are those of any attempt; while engines hand over KV or are asked what must be known first, it is
NEW.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from headway.core.commands import Dispatch
from headway.core.outcome import Outcome, OutcomeKind
from headway.engines.continuation import KvPull
from headway.gateway.attempt import CONNECTING, OVER, SENT, Attempt
from headway.gateway.errand import Errand, Steps
from headway.gateway.handover import Fetch, Handover
from headway.gateway.preparing import Place, Ready, export, ready, warm
from headway.gateway.slots import Claim
from headway.gateway.spool import Anteroom
from headway.gateway.target import Target
from headway.gateway.upstream import UpstreamConnection
from headway.wire.resume import Tape
from headway.wire.resume_body import LimitReached
from headway.wire.resume_cut import Cut
from headway.wire.resume_splice import Splicer
from headway.wire.usage import Facts

if TYPE_CHECKING:
    from headway.gateway.exchange import Exchange
    from headway.gateway.mover import Mover

OK: Final = OutcomeKind.OK
AGAIN: Final = 4
"""Tokens that may have to be generated again before there is something new: a character has so many. Where ids and text
do not go together more may be needed, and the client would wait for each."""

PREPARE_S: Final = 10.0
"""Patience with an engine that is asked what ids spell, or hands over KV: it takes milliseconds."""


class Continued(Attempt):
    """`tape`: what the client has, and then what this attempt says; `joined`: the client hears it; `handed_over`: it
    was to have what the source computed."""

    __slots__ = ("_behind", "_cut", "_errand", "_mover", "_ready", "handed_over", "joined", "splicer", "tape")

    def __init__(self, exchange: "Exchange", command: Dispatch, mover: "Mover") -> None:
        super().__init__(exchange, command, mover.spool)
        self.outlet = Anteroom(mover.transport, self._said)
        self.joined = self.handed_over = False
        self.tape = Tape()
        self.splicer: Splicer | None = None
        self._boarded = True  # continuations ride alone
        self._mover = mover
        self._errand: Errand | Handover | Fetch | None = None
        self._ready: Ready | None = None
        self._cut = Cut(0, "")
        self._behind = 0

    # Called by the mover.

    @property
    def reachable(self) -> bool:
        """Whether its replica is there at all, and speaks as the source does."""
        dialect = self._target.dialect if self._target is not None else None
        return dialect is not None and dialect.continuation == self._mover.score.continuation

    def warm(self) -> None:
        """Have the target read what there is so far."""
        self._run(warm(self._mover.score, self._mover.tape.fork(), self._place()), self._warmed)

    def fetch(self, source: Target, pull: KvPull, tokens: int) -> None:
        """Have the target fetch what the source has computed, while the source goes on."""
        mover, plane, target = self._mover, self._plane, self._target
        assert target is not None  # it was reachable
        score, tape = mover.score, mover.tape.fork()
        self._errand = fetching = Fetch(
            plane.pool, plane.domains, mover.head, self.id, source, target, tokens, export(score, tape, pull),
            lambda ticket: warm(score, tape, self._place(ticket)), self._fetched,
        )  # fmt: skip
        fetching.go()

    def seat(self) -> Claim | None:
        """Its slot of the engine, where those are handed over and one is free."""
        if self.claim is None and self._target is not None:
            self.claim = self._plane.slots.claim(self._target, self._mover.score.parsed)
        return self.claim

    def take_over(self, source: Claim, seat: Claim, tokens: int) -> None:
        """Have the engines hand over what the source computed, then go on."""
        self.handed_over = True
        self._wait(PREPARE_S)
        plane, head = self._plane, self._mover.head
        self._errand = handover = Handover(plane.pool, plane.domains, head, source, seat, tokens, self._handed_over)
        handover.go()

    def prepare(self) -> None:
        """Find the cut and begin. What the client has must not change any more."""
        self._wait(PREPARE_S)
        self.tape = self._mover.tape.fork()
        self._run(ready(self._mover.score, self.tape, self._place()), self._prepared)

    def late(self) -> None:
        """The mover waits for it no longer, nor for what the source hands over to it."""
        if isinstance(self._errand, Fetch):
            self._errand.late()

    def join(self) -> None:
        """From now on the client hears it."""
        self.joined = True
        self.outlet = self._mover.spool
        if self._relay is not None:
            self._relay.outlet = self.outlet

    def close_early(self) -> None:
        """Nothing more is needed of the engine."""
        self.drop()
        self.complete(OK)

    # Attempt's.

    def start(self) -> None:
        """Ask first, then send."""
        if self.reachable:
            self.prepare()
        elif self._target is None:
            self.failed(OutcomeKind.CONNECT_FAILED, "the replica is gone")
        else:
            self.failed(OutcomeKind.NO_RESOURCES, "it is another kind of engine")

    def drop(self) -> None:
        """Close what is open towards the engine, now."""
        if self._errand is not None:
            self._errand.drop()
            self._errand = None
        super().drop()

    def release(self) -> None:
        """The request is over, or goes on without it: hold on to nothing."""
        super().release()
        if isinstance(self.outlet, Anteroom):
            self.outlet.shut()

    @property
    def overdue(self) -> bool:
        """Whether deadlines apply to it."""
        return self._errand is not None or super().overdue

    def expired(self, at: float) -> float:
        """The deadline passed."""
        if self._errand is None:
            return super().expired(at)
        if isinstance(self._errand, Handover):
            self._errand.late()
            self._handed_over(False)
            return 0.0
        self.end(OutcomeKind.FIRST_BYTE_TIMEOUT, f"it did not say what ids spell within {PREPARE_S:g} s")
        return 0.0

    def go_on(self) -> bool:
        """What an engine says of a continuation is not for the client."""
        return False

    def tokens(self) -> int:
        """New tokens only: not those that the client had already."""
        return max(0, super().tokens() - self._behind)

    def failed(self, kind: OutcomeKind, detail: str) -> None:
        """The client has nothing of it."""
        self._mover.target_failed(self, kind, detail)

    def undone(self, kind: OutcomeKind, tokens: int, detail: str) -> None:
        """The client has nothing of it, but so many tokens of others: whoever goes on with these is the brain's choice,
        as if the last replica that said something had been lost again."""
        sent = self._state > CONNECTING
        self._over(kind, Outcome(kind, 0, True, sent, output_tokens=tokens, detail=detail, resumable=True))

    def broken(self, kind: OutcomeKind, detail: str, farewell: bytes = b"") -> None:
        """Its stream cannot be completed."""
        if self.joined and self._mover.plain:
            self.drop()
            if self._state != OVER and not self._mover.outlives(self, kind, detail):
                self.settle(kind, True, detail)
                self._exchange.refuse(502, "upstream_failed", f"The answer could not be continued: {detail}.")
        elif self.joined:
            super().broken(kind, detail, farewell)
        else:
            self.drop()
            self.failed(kind, detail)

    def left(self) -> OutcomeKind:
        """The client left; one that waits for all of an answer has nothing of it."""
        kind = super().left()
        return OutcomeKind.CLIENT_CLOSED if self._mover.plain else kind

    def complete(self, kind: OutcomeKind) -> None:
        """All was said."""
        splicer = self.splicer
        if not self.joined or splicer is None:
            self.failed(OutcomeKind.BAD_RESPONSE if kind is OK else kind, "it ended without a word")
            return
        spool = self._mover.spool
        spool.flush()
        if not splicer.finished:
            self.broken(OutcomeKind.BAD_RESPONSE if kind is OK else kind, "the continuation has no end")
            return
        if not splicer.done:
            spool.say(splicer.close())
        super().complete(kind)

    def first_token(self) -> None:
        """It counts once the client hears it."""

    def advance(self) -> None:
        """Tokens were generated."""
        if self.joined and self._state != OVER:
            super().advance()

    # Steps.

    def _run(self, steps: Steps[Any], done: Callable[[Any], None]) -> None:
        target, mover = self._target, self._mover
        assert target is not None  # it was reachable
        self._errand = Errand(self._plane.pool, target, mover.head, self.id, steps, done, self._stuck)
        self._errand.go()

    def _fetched(self, whole: bool) -> None:
        self._errand = None
        if whole:
            self._mover.warmed(self)
        else:
            self.warm()

    def _handed_over(self, _whole: bool) -> None:
        self._errand = None
        self.prepare()

    def _stuck(self, kind: OutcomeKind, detail: str, error: Exception | None) -> None:
        self._errand = None
        if isinstance(error, LimitReached):
            self._mover.nothing_left(self)
        else:
            self.failed(kind, detail)

    def _warmed(self, _answer: bytes) -> None:
        self._errand = None
        self._mover.warmed(self)

    def _prepared(self, found: Ready) -> None:
        self._errand = None
        self._ready, self._cut = found, found.cut
        self._behind = max(0, self.tape.generated - found.cut.count)
        if self._behind > self._mover.patience(self):
            self.failed(OutcomeKind.CANCELLED, f"{self._behind} tokens would have to be said again")
            return
        score = self._mover.score
        self.splicer = Splicer(self.tape, found.cut, score.manner(), score.prompt_tokens)
        super().start()

    def _place(self, more: dict[str, object] | None = None) -> Place:
        target, seat = self._target, self.seat()
        context = target.spec.max_model_tokens if target is not None else 0
        kv = seat.target.kv if seat is not None else None
        fields: dict[str, object] = {kv.slot_field: seat.slot} if seat is not None and kv is not None else {}
        return Place(self._command.model, context, {**fields, **(more or {})})

    def _wait(self, seconds: float) -> None:
        """Until it is the one that counts, the mover's patience is what bounds it."""
        if self._exchange.counts(self):
            super()._wait(seconds)

    def _send(self, target: Target, connection: UpstreamConnection) -> None:
        self._state = SENT
        self._upstream = connection
        self._wait(self._plane.first_byte_s)
        assert self._ready is not None
        ask = self._ready.ask
        head = target.towards(self._exchange.upstream_head(target, self.id, len(ask.body)), ask.path)
        connection.send(self, head, ask.body)

    def _settle(
        self,
        kind: OutcomeKind,
        committed: bool,
        status: int,
        facts: Facts,
        retry_after_s: float = 0.0,
        detail: str = "",
    ) -> None:
        """What it says of its prompt is about more than the client's, and what it generated comes on top of that."""
        usage = facts.usage
        prompt, cached = (usage.prompt_tokens, usage.cached_tokens) if usage is not None else (0, 0)
        total = self.said() if self.joined else 0
        if self.joined:
            self._exchange.ticket.output_tokens = total
        self._over(
            kind, Outcome(kind, status, committed, True, prompt, cached, total, facts.hit_limit, retry_after_s, detail)
        )

    def said(self) -> int:
        """Tokens that the client has had altogether, however many replicas said them."""
        return max(self.tape.generated, self._cut.count + super().tokens())

    def _said(self, data: bytes) -> None:
        """Its relay lets something pass, and the client does not hear it yet."""
        splicer = self.splicer
        if splicer is None or self._state == OVER:
            return
        shown = splicer.feed(data)
        if splicer.failed:
            self.drop()
            mended = splicer.failed != "differs"  # elsewhere
            kind = OutcomeKind.BAD_RESPONSE if mended else OutcomeKind.CANCELLED
            self._mover.target_failed(self, kind, f"it cannot be shown: {splicer.failed}")
        elif shown:
            self._mover.cut_over(self, shown)
