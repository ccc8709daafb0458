"""Whether a replica may be used: one small state machine per replica, as tables.

A replica is *pending* until a probe succeeds, then *closed* (in use). Failures in a row, a bad failure rate, or one
failure that cannot be doubted (nobody listens, its memory is exhausted) *open* its breaker for a time that grows. After
it one probe is sent (*probing*); if that is answered exactly one request is let through (*trial*), and its success
closes the breaker, with slow start. A replica that could not be reached at all needs no trial, nor need it wait: being
reached is the proof. A replica under backpressure is never ejected, only avoided for a moment.

An engine that was just started is cold: its first request compiles, captures and allocates. So where warm-up is on, a
replica that joins, wakes, was started anew or could not be reached generates one token for us before any for clients.
An engine that never manages that is used all the same after some tries: our request may be what is wrong.

Outcomes of attempts that were sent before the breaker last moved say nothing about now and are ignored. What is not
here: panic and "the last one is never ejected", which concern a model's replicas together (scheduler).
"""

import enum
from collections.abc import Callable
from typing import Final

from headway.core.commands import Command, HealthChanged, Probe, Record, SetTimer, WarmUp
from headway.core.constants import HealthConfig
from headway.core.ids import AttemptId, ReplicaId
from headway.core.outcome import VERDICT, Outcome, OutcomeKind, Verdict
from headway.core.view import Breaker


class Phase(enum.StrEnum):
    """Where a replica stands. `BREAKER` tells what policies and people see of it."""

    PENDING = "pending"
    CLOSED = "closed"
    OPEN = "open"
    PROBING = "probing"
    TRIAL = "trial"


class Signal(enum.StrEnum):
    """What may move a replica."""

    TRIP = "trip"
    SUCCESS = "success"
    PROBE_OK = "probe_ok"
    REACHED = "reached"  # a probe succeeded and the breaker had opened because nobody could be reached
    PROBE_BAD = "probe_bad"
    ELAPSED = "elapsed"
    COLD = "cold"  # its engine woke or was started anew, and is to be warmed up


BREAKER: Final[dict[Phase, Breaker]] = {
    Phase.PENDING: Breaker.HALF_OPEN,
    Phase.CLOSED: Breaker.CLOSED,
    Phase.OPEN: Breaker.OPEN,
    Phase.PROBING: Breaker.HALF_OPEN,
    Phase.TRIAL: Breaker.HALF_OPEN,
}

NEXT: Final[dict[tuple[Phase, Signal], Phase]] = {
    (Phase.PENDING, Signal.PROBE_OK): Phase.CLOSED,
    (Phase.PENDING, Signal.SUCCESS): Phase.CLOSED,
    (Phase.CLOSED, Signal.TRIP): Phase.OPEN,
    (Phase.CLOSED, Signal.COLD): Phase.PENDING,
    (Phase.OPEN, Signal.ELAPSED): Phase.PROBING,
    (Phase.OPEN, Signal.REACHED): Phase.CLOSED,
    (Phase.PROBING, Signal.PROBE_OK): Phase.TRIAL,
    (Phase.PROBING, Signal.REACHED): Phase.CLOSED,
    (Phase.PROBING, Signal.PROBE_BAD): Phase.OPEN,
    (Phase.PROBING, Signal.ELAPSED): Phase.OPEN,
    (Phase.TRIAL, Signal.SUCCESS): Phase.CLOSED,
    (Phase.TRIAL, Signal.TRIP): Phase.OPEN,
}
"""A pair that is absent changes nothing."""

_CLOSED: Final = Phase.CLOSED
_TRIAL: Final = Phase.TRIAL
_SUCCESS: Final = Verdict.SUCCESS
"""What every request asks for, looked up once: getting at a member of an enum takes as long as ten attributes."""

UNREACHABLE: Final = frozenset({OutcomeKind.CONNECT_FAILED, OutcomeKind.CONNECT_TIMEOUT})
AT_ONCE: Final = UNREACHABLE | {OutcomeKind.FIRST_BYTE_TIMEOUT, OutcomeKind.OUT_OF_MEMORY}
"""Kinds that open at once: refused or black-holed, one is proof enough and each costs a client its patience; out of
memory, whoever is sent there meanwhile makes it worse."""


class Health:
    """The breaker of one replica. Methods append what must be done to `out`."""

    def __init__(self, replica_id: ReplicaId, config: HealthConfig) -> None:
        self._id = replica_id
        self._config = config
        self.phase = Phase.PENDING
        self.breaker = BREAKER[self.phase]
        self.unreachable = False
        self.exhausted = False
        self.trial: AttemptId | None = None
        self.avoid_until = 0.0
        self.ramp_from: float | None = None
        self._moved_at = 0.0
        self._open_s = config.open_s
        self._due = 0.0
        self._failures = 0
        self._probe_failures = 0
        self._bits = 0
        self._seen = 0
        self._ramps = False
        self._ramp_s = self._next_ramp_s = config.slow_start_s
        self._warming = False  # a warm-up is under way
        self._warm_ups = 0  # that failed since it was last in use
        self._window, self._remembered = (1 << config.window) - 1, config.window

    @property
    def ejected(self) -> bool:
        """Taken out of use by its breaker (a free trial is not)."""
        return self.phase in (Phase.OPEN, Phase.PROBING) or (self.phase is Phase.TRIAL and self.trial is not None)

    @property
    def dead(self) -> str:
        """Why its engine is thought to be dead, empty if it is not: a breaker may also be open for lesser reasons."""
        if self.phase in (Phase.PENDING, Phase.CLOSED):
            return ""
        return "unreachable" if self.unreachable else "out_of_memory" if self.exhausted else ""

    def join(self, at: float, ramps: bool, out: list[Command]) -> None:
        """The replica was just added. `ramps`: it joins others at work, so it starts slowly."""
        self._moved_at = at
        self._ramps = ramps
        self._ask(at, out)

    def cooled(self, at: float, woke: bool, out: list[Command]) -> bool:
        """Its engine woke (`woke`) or was started anew. True if anything about eligibility changed."""
        self._ramps = True
        if woke:
            self._next_ramp_s = self._config.wake_start_s
        if self.phase is not _CLOSED:
            return False
        if self._config.warm_up:
            return self._move(Signal.COLD, at, "woke" if woke else "started anew", out)
        self._ramp(at)
        return True

    def dispatched(self, attempt: AttemptId) -> bool:
        """A request goes there. True if that changed whether others may (it is the trial)."""
        if self.phase is _TRIAL and self.trial is None:
            self.trial = attempt
            return True
        return False

    def answered(self, attempt: AttemptId, at: float, out: list[Command]) -> bool:
        """Content came from there. True if that closed the breaker: the trial need not end for that."""
        if attempt != self.trial:
            return False
        self._move(Signal.SUCCESS, at, "trial answered", out)
        return True

    def finished(self, attempt: AttemptId, sent_at: float, outcome: Outcome, at: float, out: list[Command]) -> bool:
        """An attempt ended. True if anything about eligibility changed."""
        verdict = VERDICT[outcome.kind]
        if verdict is _SUCCESS and self.phase is _CLOSED:  # nearly always
            self._failures = 0
            self._remember(0)
            return False
        if attempt == self.trial:
            self.trial = None
            return self._tried(verdict, outcome, at, out)
        if sent_at < self._moved_at:
            return False
        if verdict is Verdict.BACKPRESSURE:
            return self._avoid(outcome, at)
        if verdict is Verdict.SUCCESS:
            return self._move(Signal.SUCCESS, at, "answered", out) if self.phase is Phase.PENDING else False
        if verdict is Verdict.FAILURE:
            return self._failed(outcome, at, out)
        return False

    def probe_succeeded(self, at: float, out: list[Command]) -> bool:
        """A probe was answered well. True if anything about eligibility changed."""
        self._probe_failures = 0
        reached = self.unreachable and self._heard_since(at)
        if self._warmable and not self._warming:
            if self.phase is Phase.PENDING:
                self._warm(at, out)
                return False
            if reached and self.phase is Phase.OPEN:
                return self._move(Signal.ELAPSED, at, "reached again", out)
        signal = Signal.REACHED if reached else Signal.PROBE_OK
        return self._move(signal, at, "probe succeeded", out)

    def _heard_since(self, at: float) -> bool:
        """Whether a probe that is answered now was sent after the breaker moved. A periodic one may have been under way
        when the replica died: it counts only once the breaker was open for a while."""
        return self.phase is Phase.PROBING or at - self._moved_at >= self._config.open_s

    def probe_failed(self, at: float, refused: bool, reason: str, out: list[Command]) -> bool:
        """A probe failed. True if anything about eligibility changed."""
        self._probe_failures += 1
        self._cool(refused)
        text = reason or ("connection refused" if refused else "probe failed")
        if self.phase is Phase.PENDING:
            self._set_timer(at + self._config.pending_probe_s, out)
            return False
        if self.phase is Phase.PROBING:
            self.unreachable = self.unreachable or refused
            return self._move(Signal.PROBE_BAD, at, text, out)
        if refused or self._probe_failures >= self._config.probe_failures:
            self.unreachable = refused
            return self._move(Signal.TRIP, at, text, out)
        return False

    def timer(self, at: float, out: list[Command]) -> bool:
        """The breaker's timer fired. True if anything about eligibility changed."""
        if at < self._due:
            return False
        self._cool(False)
        if self.phase is Phase.PENDING:
            self._ask(at, out)
            return False
        return self._move(Signal.ELAPSED, at, "time elapsed", out)

    def slow_start(self, at: float) -> float:
        """Fraction of capacity it may get now, 1.0 when warm."""
        if self.ramp_from is None:
            return 1.0
        fraction = (at - self.ramp_from) / self._ramp_s if self._ramp_s else 1.0
        return min(1.0, max(self._config.slow_start_floor, fraction))

    def _tried(self, verdict: Verdict, outcome: Outcome, at: float, out: list[Command]) -> bool:
        if verdict is Verdict.FAILURE:
            self._blame(outcome.kind)
            return self._move(Signal.TRIP, at, f"trial: {outcome.kind}", out)
        if verdict is Verdict.NEUTRAL:
            return True  # it said nothing: the next request is the trial
        if verdict is Verdict.BACKPRESSURE:
            self._avoid(outcome, at)
        return self._move(Signal.SUCCESS, at, "trial succeeded", out)

    def _failed(self, outcome: Outcome, at: float, out: list[Command]) -> bool:
        self._failures += 1
        self._remember(1)
        rate = self._bits.bit_count() / self._seen
        bad_rate = self._seen >= self._config.window_min and rate >= self._config.failure_rate
        if not (outcome.kind in AT_ONCE or self._failures >= self._config.failures or bad_rate):
            return False
        self._blame(outcome.kind)
        return self._move(Signal.TRIP, at, str(outcome.kind), out)

    def _blame(self, kind: OutcomeKind) -> None:
        self.unreachable = kind in UNREACHABLE
        self.exhausted = kind is OutcomeKind.OUT_OF_MEMORY

    def _avoid(self, outcome: Outcome, at: float) -> bool:
        wait = min(outcome.retry_after_s or self._config.avoid_s, self._config.avoid_max_s)
        self.avoid_until = max(self.avoid_until, at + wait)
        return True

    def _remember(self, failed: int) -> None:
        self._bits = (self._bits << 1 | failed) & self._window
        if self._seen < self._remembered:
            self._seen += 1

    def _move(self, signal: Signal, at: float, reason: str, out: list[Command]) -> bool:
        target = NEXT.get((self.phase, signal))
        if target is None:
            return False
        before, self.phase = self.phase, target
        self.breaker = BREAKER[target]
        self.trial = None
        self._warming = False
        _ENTER[target](self, at, before, out)
        self._moved_at = at
        out.append(Record(HealthChanged(at, self._id, str(target), reason)))
        return True

    def _enter_open(self, at: float, before: Phase, out: list[Command]) -> None:
        if before is Phase.CLOSED and at - self._moved_at >= self._config.forgive_s:
            self._open_s = self._config.open_s
        self._set_timer(at + self._open_s, out)
        self._open_s = min(self._open_s * self._config.backoff, self._config.open_max_s)

    def _enter_probing(self, at: float, before: Phase, out: list[Command]) -> None:
        if self.unreachable and self._warmable:
            self._warm(at, out)
        else:
            self._ask(at, out)

    def _enter_pending(self, at: float, before: Phase, out: list[Command]) -> None:
        self._warm(at, out)

    def _enter_trial(self, at: float, before: Phase, out: list[Command]) -> None:
        pass  # nothing to do but wait for the one request

    def _enter_closed(self, at: float, before: Phase, out: list[Command]) -> None:
        self._failures = self._probe_failures = self._bits = self._seen = 0
        self._warm_ups = 0
        self.unreachable = self.exhausted = False
        if before is not Phase.PENDING or self._ramps:
            self._ramp(at)

    def _ramp(self, at: float) -> None:
        self.ramp_from = at
        self._ramp_s, self._next_ramp_s = self._next_ramp_s, self._config.slow_start_s

    @property
    def _warmable(self) -> bool:
        return self._config.warm_up and self._warm_ups < self._config.warm_up_tries

    def _warm(self, at: float, out: list[Command]) -> None:
        """Have it warmed up. The next probe that succeeds is that one."""
        self._warming = True
        out.append(WarmUp(self._id))
        self._set_timer(at + self._config.warm_up_timeout_s, out)

    def _cool(self, refused: bool) -> None:
        """A warm-up that may have been under way failed, or was never heard of again."""
        if self._warming:
            self._warming = False
            self._warm_ups += not refused  # where nobody listens, nothing was wrong with our request

    def _ask(self, at: float, out: list[Command]) -> None:
        out.append(Probe(self._id))
        self._set_timer(at + self._config.probe_timeout_s, out)

    def _set_timer(self, due: float, out: list[Command]) -> None:
        self._due = due
        out.append(SetTimer(f"breaker:{self._id}", due))


_ENTER: Final[dict[Phase, Callable[[Health, float, Phase, list[Command]], None]]] = {
    Phase.PENDING: Health._enter_pending,
    Phase.OPEN: Health._enter_open,
    Phase.PROBING: Health._enter_probing,
    Phase.TRIAL: Health._enter_trial,
    Phase.CLOSED: Health._enter_closed,
}
