"""Moving a running request: make before break, and who settles what.

The source streams on while the target prefills the prompt and all that was generated; when the target's continuation
begins, the body cuts over at exactly what the client was given, and ends the source. Until then the source is the one
that counts: a target that fails, or is too late, costs the client nothing. The states and what moves them are the table
`NEXT`, from which the diagram in docs/migration.md is made. Which request should move is not known here (rebalance).

A request whose replica dies in the middle goes on elsewhere in the same way (*failover*), and one that is evicted waits
in the queue in between. Either way nothing that the client has is said again or lost.
"""

import enum

from headway.core.attempts import Attempts
from headway.core.commands import Abort, Command, Evict, Migrate, Moved, Record, Reject
from headway.core.constants import MigrationConfig
from headway.core.entries import Choice, Expected, Job, Move, Plan
from headway.core.entry import Entry
from headway.core.fleet import Fleet, spoken
from headway.core.holding import Holding
from headway.core.ids import AttemptId, ReplicaId
from headway.core.outcome import Outcome, OutcomeKind
from headway.core.pool import context_limit
from headway.core.scheduler import Scheduler
from headway.core.tenant import Tier

MOST_ATTEMPTS = 9
"""Attempt ids have one digit; the last is left for a failover."""


class Phase(enum.StrEnum):
    """Where a move stands."""

    READYING = "readying"  # the source counts
    EVICTING = "evicting"  # the source counts, and was asked to stop
    CUT = "cut"  # the target counts
    FAILED_OVER = "failed_over"  # the source is lost, the target counts before it has begun
    EVICTED = "evicted"  # nobody runs it
    ABANDONED = "abandoned"  # the source counts, or the request has ended


class Signal(enum.StrEnum):
    """What may move a move."""

    CUT_OVER = "cut_over"  # the body ended the source, for the target goes on
    STOPPED = "stopped"  # the body ended the source, and kept what the client has
    SOURCE_ENDED = "source_ended"
    SOURCE_LOST = "source_lost"  # but the client's stream can go on
    TARGET_ENDED = "target_ended"
    REFUSED = "refused"  # the body cannot do it


NEXT: dict[tuple[Phase, Signal], Phase] = {
    (Phase.READYING, Signal.CUT_OVER): Phase.CUT,
    (Phase.READYING, Signal.SOURCE_ENDED): Phase.ABANDONED,
    (Phase.READYING, Signal.SOURCE_LOST): Phase.FAILED_OVER,
    (Phase.READYING, Signal.TARGET_ENDED): Phase.ABANDONED,
    (Phase.EVICTING, Signal.STOPPED): Phase.EVICTED,
    (Phase.EVICTING, Signal.SOURCE_ENDED): Phase.ABANDONED,
    (Phase.EVICTING, Signal.SOURCE_LOST): Phase.EVICTED,
    (Phase.EVICTING, Signal.REFUSED): Phase.ABANDONED,
}
"""The rest cannot happen: an attempt ends once."""

LIVES_ON = frozenset({Phase.CUT, Phase.FAILED_OVER, Phase.EVICTED})
"""The request goes on although its source has ended."""


class Migration:
    """All moves under way."""

    def __init__(
        self, config: MigrationConfig, fleet: Fleet, scheduler: Scheduler, holding: Holding, attempts: Attempts
    ) -> None:
        self._config = config
        self._fleet = fleet
        self._scheduler = scheduler
        self._holding = holding
        self._attempts = attempts
        self.under_way: list[Move] = []

    def may_move(self, entry: Entry, at: float) -> bool:
        """Whether a running request may be moved at all, now: it can be continued, and was not moved lately."""
        job = self._attempts.jobs.get(entry.request.id)
        return (
            job is not None
            and job.attempt == entry.attempt_id
            and job.move is None
            and entry.request.resumable
            and entry.first_token_at is not None
            and not entry.aborting
            and job.moves < self._config.moves_max
            and job.tries.made < MOST_ATTEMPTS
            and at - job.moved_at >= self._config.cooldown_s
        )

    def hindrance(self, entry: Entry) -> str:
        """Why a running request cannot be moved even if an operator wants it, "" if it can."""
        job = self._attempts.jobs[entry.request.id]
        if not entry.request.resumable:
            return f"it is pinned: {entry.request.pinned or 'it cannot be continued'}"
        if job.move is not None:
            return "it is being moved"
        if entry.first_token_at is None:
            return "it has not begun"
        if job.tries.made >= MOST_ATTEMPTS:
            return f"it was sent to replicas {job.tries.made} times"
        return "it is being ended" if entry.aborting else ""

    def may_evict(self, entry: Entry) -> bool:
        """Whether a request that may move may also be made to wait."""
        return self._attempts.jobs[entry.request.id].evictions < self._config.evictions_max

    def may_recall(self, entry: Entry) -> bool:
        """Whether a request that waits in an engine may be taken away again: nobody has heard anything of it."""
        job = self._attempts.jobs.get(entry.request.id)
        return (
            job is not None
            and job.attempt == entry.attempt_id
            and not job.generated
            and not entry.started
            and not entry.aborting
            and entry.request.resumable
            and entry.request.tier < Tier.HIGH
            and job.evictions < self._config.evictions_max
        )

    def recall(self, entry: Entry, reason: str, at: float, out: list[Command]) -> None:
        """Take away what waits in an engine, or only say so. It waits with us, and goes where it fits."""
        job = self._attempts.jobs[entry.request.id]
        move = Move(Phase.EVICTING, entry.replica_id, ReplicaId(""), entry.attempt_id, reason, at)
        if self._config.dry_run:
            self._record(job, move, "planned", at, out)
            return
        job.evictions += 1
        entry.aborting = True
        out.append(Abort(entry.attempt_id, "recalled"))
        self._record(job, move, "recalled", at, out)

    def begin(self, plan: Plan, at: float, out: list[Command]) -> None:
        """Make a move, or only say so."""
        entry, view = plan.entry, plan.target
        job = self._attempts.jobs[entry.request.id]
        target = view.id if view is not None else ReplicaId("")
        move = Move(
            Phase.READYING, entry.replica_id, target, entry.attempt_id, plan.reason, at,
            plan.replayed, plan.benefit_s, plan.cost_s,
        )  # fmt: skip
        job.moved_at = at
        if self._config.dry_run:
            self._record(job, move, "planned", at, out)
            return
        job.move = move
        self.under_way.append(move)
        if view is None:
            move.phase = Phase.EVICTING
            out.append(Evict(entry.attempt_id, plan.reason))
        else:
            expected = self._continuation(job, entry, entry.base + entry.generated)
            attempt = self._attempts.target(job, expected, view, at)
            move.attempt = attempt
            model = view.spec.serves.get(job.request.model, job.request.model)
            held, replay_s = entry.prompt + entry.generated, plan.replayed / view.speed.prefill_tokens_per_s
            out.append(Migrate(job.request.id, entry.attempt_id, attempt, target, model, plan.reason, held, replay_s))
        self._record(job, move, "begun", at, out)

    def ended(self, job: Job, entry: Entry, outcome: Outcome, at: float, out: list[Command]) -> bool:
        """An attempt of a request ended that is being moved or can go on. True if the request lives on by this."""
        move = job.move
        if move is None:
            return self._config.enabled and outcome.resumable and self._fail_over(job, entry, outcome, at, out)
        source = entry.attempt_id == job.attempt
        signal = _signal(outcome) if source else Signal.TARGET_ENDED
        move.phase = NEXT[Phase(move.phase), signal]
        job.move = None
        self.under_way.remove(move)
        if not source:
            self._record(job, move, "abandoned", at, out, f"target: {_why(outcome)}")
            return True
        self._record(job, move, move.phase, at, out, "" if move.phase in LIVES_ON else f"source: {_why(outcome)}")
        if move.phase is Phase.EVICTED:
            self._wait(job, entry, outcome, at, out)
        elif move.phase in LIVES_ON:
            job.attempt = move.attempt
            job.moves += 1
            job.generated = spoken(entry, outcome)
        return move.phase in LIVES_ON

    def refused(self, attempt: AttemptId, at: float, out: list[Command]) -> bool:
        """The body cannot evict it, or recall it: the source counts as before. False if nothing of the kind is under
        way (any more)."""
        entry = self._fleet.ledger.entries.get(attempt)
        job = self._attempts.jobs.get(entry.request.id) if entry is not None else None
        if entry is None or job is None:
            return False
        if job.move is None and entry.aborting:
            entry.aborting = False
            recall = Move(Phase.ABANDONED, entry.replica_id, ReplicaId(""), attempt, "memory", at)
            self._record(job, recall, recall.phase, at, out, "it has begun")
            return True
        if job.move is None or job.move.phase != Phase.EVICTING:
            return False
        move, job.move = job.move, None
        move.phase = NEXT[Phase.EVICTING, Signal.REFUSED]
        self.under_way.remove(move)
        job.evictions += 1  # or it would be asked for again and again
        self._record(job, move, move.phase, at, out, "it cannot be continued")
        return True

    def _continuation(self, job: Job, entry: Entry, generated: int) -> Expected:
        limit = entry.base + entry.limit if entry.limit else 0
        return self._fleet.go_on(job, job.asked.prompt_tokens + generated, generated, limit)

    def _fail_over(self, job: Job, entry: Entry, outcome: Outcome, at: float, out: list[Command]) -> bool:
        """Its replica is lost, and the client's stream waits: go on elsewhere at once, or as soon as there is room."""
        if entry.first_token_at is not None:  # a replica that never went on with it has not died of it
            job.failovers += 1
            job.tries.excluded = ()
        job.tries.excluded = (*job.tries.excluded, entry.replica_id)
        move = Move(Phase.FAILED_OVER, entry.replica_id, ReplicaId(""), entry.attempt_id, str(outcome.kind), at)
        if job.failovers > self._config.failovers_max or job.tries.made > MOST_ATTEMPTS:
            self._record(job, move, "refused", at, out)
            text = f"the engine failed while it answered ({outcome.kind})"
            out.append(Reject(job.request.id, 502, "upstream_failed", text))
            return False
        self._resume(job, entry, outcome)
        job.waits_from = at
        choice = self._choose(job, at, out)
        if choice is None:
            return self._keep(job, at, out)
        move.target, move.replayed = choice.view.id, job.demand.prompt_tokens - job.demand.hit(choice.view.id)
        self._attempts.dispatch(job, choice, at, out, free=True)
        self._record(job, move, "failed_over", at, out)
        return True

    def _wait(self, job: Job, entry: Entry, outcome: Outcome, at: float, out: list[Command]) -> None:
        """It was evicted: whoever it made room for goes first, as tiers say."""
        job.evictions += 1
        self._resume(job, entry, outcome)
        if not self._keep(job, at, out):
            self._attempts.end(job)

    def _resume(self, job: Job, entry: Entry, outcome: Outcome) -> None:
        """What is believed of it from now on, and what it is bound to."""
        job.generated = spoken(entry, outcome)
        source, lost = self._fleet.replicas.get(entry.replica_id), outcome.kind is not OutcomeKind.EVICTED
        room = context_limit(source) if source is not None else 0
        job.left, job.at_least = entry.spec, max(job.at_least, needs(entry, job.generated, room, lost))
        expected = self._continuation(job, entry, job.generated)
        job.demand, job.part = expected.demand, expected.part

    def _choose(self, job: Job, at: float, out: list[Command]) -> Choice | None:
        self._scheduler.refresh(at, out)
        pool = self._scheduler.pools.get(job.request.model)
        if pool is None:
            return None

        def avoid(replica_id: ReplicaId, _why: str) -> str:
            return "lost" if replica_id in job.tries.excluded else ""

        return self._holding.choose(job, pool.reaching(job.request.precision_floor), at, avoid)

    def _keep(self, job: Job, at: float, out: list[Command]) -> bool:
        """Let it wait. False if it cannot even do that; the client was told then."""
        job.attempt, job.waits_from, job.due = None, at, at
        return self._holding.keep(job, at, out)

    def _record(self, job: Job, move: Move, result: str, at: float, out: list[Command], why: str = "") -> None:
        reason = f"{move.reason} ({why})" if why else move.reason
        took = at - move.began_at
        out.append(
            Record(
                Moved(
                    at, job.request.id, move.source, move.target, reason, str(result),
                    move.replayed, took, move.benefit_s, move.cost_s,
                )
            )
        )  # fmt: skip


def needs(entry: Entry, generated: int, source: int, lost: bool = False) -> int:
    """Tokens that a replica must have room for to go on with a run that has said so many: for all that its client lets
    it say, since engines refuse what might grow beyond their room, or cut it off there. Of one that is `lost`, and has
    no limit of its own, only for what there is of it: it might have ended early. Never for more than where it ran
    (`source`, 0 if unknown): what is believed of its prompt may be too much."""
    prompt, most = entry.prompt - entry.base, entry.request.max_output_tokens
    held = prompt + generated + 1
    if not source:
        return held
    return min(source, max(held, prompt + most) if most or lost else source)


def _why(outcome: Outcome) -> str:
    return f"{outcome.kind}, {outcome.detail}" if outcome.detail else str(outcome.kind)


def _signal(outcome: Outcome) -> Signal:
    """What the end of the source means."""
    if outcome.kind is OutcomeKind.MIGRATED:
        return Signal.CUT_OVER
    if outcome.kind is OutcomeKind.EVICTED:
        return Signal.STOPPED
    return Signal.SOURCE_LOST if outcome.resumable else Signal.SOURCE_ENDED
