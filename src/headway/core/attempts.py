"""Attempts of requests at replicas: sent, heard of, ended, tried again. A job is a request from its arrival to its end.

Whoever ends first settles: an attempt that is over changes the ledger once, tells health, lengths and prefixes what it
was like, and then its request ends or is tried elsewhere. Who takes it is the scheduler's business, who must wait, that
of holding and admission.
"""

import math
from collections.abc import Callable, Sequence

from headway.core.admission import Admission, expired
from headway.core.commands import Command, Dispatch, Probe, Record, Reject, Relay, Settled
from headway.core.decision import Forecast
from headway.core.entries import Choice, Expected, Job
from headway.core.entry import Entry
from headway.core.events import AttemptFinished, FirstToken, Progress
from headway.core.fleet import Fleet, spoken
from headway.core.holding import Holding
from headway.core.ids import AttemptId, ReplicaId, RequestId, attempt_id
from headway.core.outcome import GOES_ON, Outcome, OutcomeKind
from headway.core.plugin import Tracker
from headway.core.relief import Relief
from headway.core.request import RequestInfo
from headway.core.retry import FINAL, NOBODY, RELAYED, Retries, Rule, answer
from headway.core.scheduler import Scheduler, forecast
from headway.core.standing import Replica
from headway.core.view import ReplicaView


class Attempts:
    """All attempts, and the jobs they belong to."""

    holding: Holding
    relief: Relief
    moved: Callable[[Job, Entry, Outcome, float, list[Command]], bool]

    def __init__(
        self,
        fleet: Fleet,
        scheduler: Scheduler,
        admission: Admission,
        retries: Retries,
        trackers: Sequence[Tracker],
    ) -> None:
        """`holding`, `relief` and `moved` (of migration) are set by the brain: they in turn ask this one to send."""
        self._fleet = fleet
        self._scheduler = scheduler
        self._admission = admission
        self._retries = retries
        self._trackers = trackers
        self.jobs: dict[RequestId, Job] = {}

    def too_late(self, request: RequestInfo, at: float) -> Reject | None:
        """A refusal for a reason that may come up at any try: its deadline, or what it did to engines."""
        if request.deadline is not None and request.deadline <= at:
            return expired(request.id)
        if not self._retries.suspects:
            return None
        left = self._retries.quarantined_s(request.fingerprint, at)
        if not left:
            return None
        text = "the request is refused because engines died while serving it"
        return Reject(request.id, 503, "quarantined", text, float(math.ceil(left)))

    def dispatch(self, job: Job, choice: Choice, at: float, out: list[Command], free: bool = False) -> None:
        """Send a request to what was chosen for it. `free`: that it is tried again says nothing against it."""
        request, demand, view, number = job.request, job.demand, choice.view, job.tries.made
        spec, request_id, named = view.spec, request.id, request.model
        resumes = job.generated > 0
        free, job.tries.spared = free or resumes or job.tries.spared, False
        self._retries.sent(job.tries, number > 0 and not free, free)
        expected = forecast(demand, view)
        attempt = job.attempt = attempt_id(request_id, number)
        self.open(job, attempt, Expected(demand, job.part), view, expected, at)
        self.relief.served(request, at)
        terms, told = job.terms, self._scheduler.sent(request, spec, at, job.terms.asked)
        model, told = spec.serves.get(named, named), terms.disclosed + told
        out.append(Dispatch(request_id, attempt, view.id, model, terms.max_tokens, terms.logprobs, told, resumes))
        waited = at - max(job.arrived_at, job.waits_from)
        out.append(Record(self._scheduler.decision(choice, demand, expected, at, number, waited)))

    def target(self, job: Job, expected: Expected, view: ReplicaView, at: float) -> AttemptId:
        """Open a second attempt of a request beside the one that runs, for a move."""
        attempt = attempt_id(job.request.id, job.tries.made)
        self._retries.sent(job.tries, False, True)
        self.open(job, attempt, expected, view, forecast(expected.demand, view), at)
        return attempt

    def open(
        self, job: Job, attempt: AttemptId, believed: Expected, view: ReplicaView, expected: Forecast, at: float
    ) -> None:
        """Reserve for an attempt, and tell everybody who keeps accounts."""
        request, demand, replica_id = job.request, believed.demand, view.id
        replica = self._fleet.replicas[replica_id]
        entry = Entry(
            attempt,
            request,
            replica_id,
            demand.prompt_tokens,
            expected.cached_tokens,
            self._fleet.unscaled_hit(request, job.asked.prompt_tokens, job.matches.get(replica_id, 0)),
            round(demand.output_mean),
            demand.output_limit,
            believed.part,
            at,
            at,
            expected.ttft_s,
            demand,
            base=demand.prompt_tokens - job.asked.prompt_tokens,
            spec=view.spec,
        )
        self._fleet.opened(replica, entry, at)
        for tracker in self._trackers:
            tracker.sent(demand, replica_id, at)
        if self._admission.pace is not None:
            self._admission.pace.sent(view, entry.uncached, at)
        self._admission.tenancy.sent(demand, replica_id)
        replica.health.dispatched(attempt)

    def first_token(self, event: FirstToken, out: list[Command]) -> None:
        """Content came: its prefill is done."""
        entry = self._fleet.ledger.first_token(event.attempt_id, event.at)
        if entry is None:
            return
        replica = self._fleet.first_token(entry, event.at)
        if replica is not None:
            if replica.health.answered(event.attempt_id, event.at, out):
                self.relief.moved(replica, event.at, out)
            assert replica.view is not None  # something was sent there
            if not entry.base:
                self._admission.lagged(entry, replica.view, event.at)

    def progress(self, event: Progress, out: list[Command]) -> None:
        """Streams went on."""
        for replica_id in self._fleet.ledger.progress(event.counts, event.at):
            if self._fleet.progressed(replica_id, event.at) is not None:
                self.holding.release(self._scheduler.pools_of(replica_id), event.at, out, replica_id)

    def finished(self, event: AttemptFinished, out: list[Command]) -> None:
        """An attempt ended, however."""
        at, outcome = event.at, event.outcome
        entry = self._fleet.ledger.settle(event.attempt_id, at)
        if entry is None:
            return
        for tracker in self._trackers:
            tracker.ended(entry.request, entry.replica_id)
        replica = self._fleet.settled(entry, outcome, at)
        if replica is not None:
            self._judge(replica, entry, outcome, at, out)
        request, replica_id = entry.request, entry.replica_id
        demand, tokens = entry.demand, spoken(entry, outcome)
        self._admission.tenancy.settled(demand, replica_id)
        job = self.jobs.get(request.id)
        if job is not None and not self._goes_on(job, entry, outcome, at, out):
            self._retries.ended(job.tries)
            self._retries.judge(request.fingerprint, job.tries, replica_id, outcome, at)
            if outcome.committed or outcome.kind in FINAL or not self._retry(job, entry, outcome, at, out):
                self.end(job, tokens)
        first = entry.first_token_at
        out.append(
            Record(
                Settled(
                    at,
                    request.id,
                    entry.attempt_id,
                    replica_id,
                    outcome,
                    None if first is None else first - entry.dispatched_at,
                    entry.forecast_ttft_s,
                    demand.output_mean,
                    demand.output_low,
                    demand.output_middle,
                    demand.output_high,
                    tokens,
                    request.model,
                    demand.prompt_tokens,
                )
            )
        )
        if self._admission.queues:
            self.holding.release(self._scheduler.pools_of(replica_id), at, out, replica_id)

    def end(self, job: Job, tokens: int | None = None) -> None:
        """A request has ended, however, after so many tokens of output; None if it was never served."""
        del self.jobs[job.request.id]
        self._retries.ended(job.tries)
        self._admission.ended(job, tokens if tokens is not None else job.generated or None)

    def _goes_on(self, job: Job, entry: Entry, outcome: Outcome, at: float, out: list[Command]) -> bool:
        """Whether the request lives on because it was being moved, or can go on where its attempt broke off."""
        if job.move is None and not outcome.resumable and outcome.kind not in GOES_ON:
            return False
        return self.moved(job, entry, outcome, at, out)

    def _judge(self, replica: Replica, entry: Entry, outcome: Outcome, at: float, out: list[Command]) -> None:
        moved = replica.health.finished(entry.attempt_id, entry.dispatched_at, outcome, at, out)
        if moved:
            self.relief.moved(replica, at, out)
        if moved and outcome.kind is OutcomeKind.CONNECT_FAILED:
            self._fleet.prefix.forget(replica.id)  # whatever comes back there starts with a cold cache
            if replica.account.in_flight:
                out.append(Probe(replica.id))  # if nobody listens, its silent streams are lost too

    def _retry(self, job: Job, entry: Entry, outcome: Outcome, at: float, out: list[Command]) -> bool:
        """Try the request again, or give it its end. True if it lives on."""
        request, tries = job.request, job.tries
        active = len(self._fleet.ledger.entries) + 1
        rule = self._retries.allows(tries, outcome, entry.aborting, active)
        refusal = self.too_late(request, at)
        if rule is not Rule.NEVER and refusal is None:
            free = entry.aborting or rule is Rule.ANYWHERE_ONCE_FREE
            if rule is Rule.ANYWHERE_ONCE_FREE:
                tries.free_used = True
            else:
                tries.excluded = (*tries.excluded, entry.replica_id)
            blameless = entry.aborting or (outcome.kind in NOBODY and not outcome.sent)
            if self._try_again(job, rule is Rule.HEALTHY_ONLY, blameless, free, at, out):
                return True
        if outcome.kind in RELAYED and outcome.status:
            out.append(Relay(request.id, entry.attempt_id))
        elif refusal is not None:
            out.append(refusal)
        else:
            said = answer(outcome)
            out.append(Reject(request.id, said.status, said.code, said.message, said.retry_after_s, said.shed))
        return False

    def _try_again(
        self, job: Job, healthy_only: bool, blameless: bool, free: bool, at: float, out: list[Command]
    ) -> bool:
        """Send it where it was not yet. If it fits nowhere, one that was withdrawn by us, or that no engine has seen,
        waits like others; any other goes where it costs least; if nobody good is left, to one that is not known to be
        dead; and if all who are well have as much as they may, it waits too. False if there is nobody."""
        self._scheduler.refresh(at, out)
        pool = self._scheduler.pools.get(job.request.model)
        if pool is None:
            return False
        pool = pool.reaching(job.request.precision_floor)
        excluded = job.tries.excluded

        def avoid(replica_id: ReplicaId, why: str) -> str:
            if replica_id in excluded:
                return "tried"
            return why if healthy_only else ""

        scheduler, demand, at_least = self._scheduler, job.demand, job.at_least
        choice = self.holding.choose(job, pool, at, avoid)
        if choice is None and blameless and self.holding.postpone(job, pool, at, out):
            job.tries.spared = free
            return True
        choice = choice or scheduler.choose(pool, demand, at, at_least, avoid, None)
        if choice is None and not healthy_only:
            choice = scheduler.insist(pool, demand, at, at_least, excluded)
            if choice is None and self.holding.postpone(job, pool, at, out, False):
                job.tries.spared = free
                if not free:
                    self._retries.waits(job.tries)
                return True
        if choice is None:
            return False
        job.waits_from = at
        self.dispatch(job, choice, at, out, free)
        return True
