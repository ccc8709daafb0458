"""The only holder of the brain in the simulator: a heap of what happens next, events in, commands performed.

It mirrors gateway/driver and decides nothing. A request is followed from arrival to its one end; what became of it is
written into plain `columns`. Virtual time: the only clock read is the one that measures what a
decision costs.
"""

import random
from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from time import perf_counter
from typing import Any, Final, Protocol

from headway.core.commands import (
    Abort,
    Command,
    Dispatch,
    Evict,
    Hold,
    Migrate,
    Moved,
    Probe,
    Record,
    Reject,
    Relay,
    Restart,
    SetTimer,
    WarmUp,
)
from headway.core.events import (
    AttemptFinished,
    Event,
    EvictionRefused,
    FirstToken,
    ProbeFailed,
    ProbeSucceeded,
    Progress,
    ReplicasChanged,
    RequestArrived,
    SampleTaken,
    TimerFired,
)
from headway.core.ids import AttemptId, ReplicaId, RequestId
from headway.core.outcome import Outcome, OutcomeKind
from headway.core.request import RequestInfo
from headway.perfmodel.decoding import Job
from headway.sim.columns import Columns
from headway.sim.faults import Faults
from headway.sim.moving import Moving
from headway.sim.prompt import Prompt
from headway.sim.replica import SimReplica
from headway.sim.scenario import MODEL, Scenario, tiers
from headway.workload.request import Request

CONNECT_S: Final = 0.001
"""Until a refused connection or a probe's answer is heard of."""

TIMELINE_S: Final = 1.0

BLOCK: Final = 16
"""Tokens of a KV block, as in `prompt`."""

_OK: Final = OutcomeKind.OK  # looked up once: members of an enum are slow to get at


class Deciding(Protocol):
    """core.brain.Brain, or a fake of it."""

    def handle(self, event: Event) -> list[Command]: ...


Journal = Callable[[Event, list[Command]], None]


class Driver:
    """One run. `play` runs it to its end: every request has ended and nothing is left in any engine."""

    def __init__(
        self,
        brain: Deciding,
        replicas: Sequence[SimReplica],
        scenario: Scenario,
        requests: Sequence[Request],
        prompts: Sequence[Prompt],
        seed: int,
        journal: Journal | None = None,
    ) -> None:
        self.columns = Columns(requests, prompts, replicas, tiers(scenario.classes, len(requests), seed))
        self.brain_s = 0.0
        self.now = 0.0
        self._handle = brain.handle
        self._replicas = {replica.id: replica for replica in replicas}
        self._scenario = scenario
        self._requests = requests
        self._prompts = prompts
        self._journal = journal
        self._chance = random.Random(f"scrapes {seed}")
        self._heap: list[tuple[float, int, Callable[[float, Any], None], Any]] = []
        self._pushed = 0
        self._next = 0
        self._open = 0
        self._index: dict[RequestId, int] = {}
        self._jobs: dict[AttemptId, tuple[int, SimReplica, Job]] = {}
        self._timers: dict[str, float] = {}
        self._base: dict[AttemptId, int] = {}
        self._said = [0] * len(requests)
        self._known = scenario.clairvoyant
        self._moves = scenario.moves
        self._moving = Moving(self)
        self._faults = Faults(self, scenario, seed)
        self._perform: dict[type, Callable[[Any], None]] = {
            Dispatch: self._dispatch,
            Migrate: self._migrate,
            Evict: self._evict,
            Hold: self._nothing,
            Record: self._nothing,
            Reject: self._reject,
            Relay: self._relay,
            Abort: self._abort,
            SetTimer: self._set_timer,
            Probe: self._asked,
            WarmUp: self._asked,
            Restart: self._nothing,
        }

    def play(self, progress: Callable[[float], None] | None = None) -> Columns:
        """Run until every request has ended."""
        self._begin()
        arrivals, heap, count = self._requests, self._heap, len(self._requests)
        while self._open or self._next < count:
            if self._next < count and (not heap or arrivals[self._next].arrival_s <= heap[0][0]):
                self.now = arrivals[self._next].arrival_s
                self._arrive(self._next)
                self._next += 1
                if progress is not None and not self._next & 0xFF:
                    progress(self._next / count)
            else:
                self.now, _, act, what = heappop(heap)
                act(self.now, what)
        self.columns.finish(self.now, self._replicas.values(), self._moving.stalls)
        return self.columns

    # -- the beginning -----------------------------------------------------------------------------------------

    def _begin(self) -> None:
        self._post(ReplicasChanged(0.0, tuple(replica.ground.spec for replica in self._replicas.values())))
        interval = self._scenario.truth.scrape_interval_s
        for replica in self._replicas.values():
            self._post(ProbeSucceeded(0.0, replica.id))
            self._push(self._chance.uniform(0.0, interval), self._scrape, replica)
        self._push(self._scenario.progress_s, self._tick, None)
        self._push(0.0, self._look, None)
        self._faults.begin(list(self._replicas.values()))

    def _push(self, at: float, act: Callable[[float, Any], None], what: Any) -> None:
        self._pushed += 1
        heappush(self._heap, (at, self._pushed, act, what))

    def _post(self, event: Event) -> None:
        began = perf_counter()
        commands = self._handle(event)
        self.brain_s += perf_counter() - began
        if self._journal is not None:
            self._journal(event, commands)
        perform = self._perform
        for command in commands:
            if type(command) is not Record:
                perform[type(command)](command)
            elif type(command.entry) is Moved:
                self.columns.moved(command.entry)

    # -- requests ----------------------------------------------------------------------------------------------

    def _arrive(self, index: int) -> None:
        request, prompt = self._requests[index], self._prompts[index]
        name = RequestId(f"{index:07d}")
        self._index[name] = index
        self._open += 1
        known = self._known
        info = RequestInfo(
            name,
            MODEL,
            prompt_bytes=prompt.bytes,
            prompt_tokens=prompt.tokens if known else 0,
            max_output_tokens=request.output_tokens if known else 0,
            prefix_hashes=prompt.hashes,
            tenant=request.tenant,
            session_key=request.session,
            stream=True,
            fingerprint=index + 1,
            precision_floor=self._scenario.precision_floor,
            tier=self.columns.tier[index],
            resumable=self._moves,
        )
        self._post(RequestArrived(self.now, info))

    def _dispatch(self, command: Dispatch) -> None:
        index, replica = self._index[command.request_id], self._replicas[command.replica_id]
        if not self._said[index]:
            self.columns.dispatched(index, replica, self.now)
        self.send(
            command.attempt_id, index, replica, self.continuation(command.attempt_id, index, self._said[index], 0)
        )

    def continuation(self, name: str, index: int, said: int, limit: int, warm: int = 0) -> Job:
        """A job that goes on from `said` tokens, for at most `limit` more (0: to its end). The first `warm` of them are
        a piece of its prompt that only another job of this request shares."""
        prompt, left = self._prompts[index], self._requests[index].output_tokens - said
        pieces, blocks = prompt.pieces, (prompt.tokens + warm) // BLOCK
        if warm and (own := blocks - sum(count for _, count in pieces)) > 0:
            pieces = (*pieces, (-1 - (index << 20 | blocks), own))
        return Job(name, prompt.tokens + said, min(limit, left) if limit else max(1, left), pieces, self.now)

    def send(self, attempt: AttemptId, index: int, replica: SimReplica, job: Job) -> None:
        """Send an attempt."""
        self._jobs[attempt] = (index, replica, job)
        self._base[attempt] = job.prompt - self._prompts[index].tokens
        if replica.alive:
            self._push(replica.enters(job.prompt, self.now), self._enter, attempt)
        else:
            self._push(self.now + CONNECT_S, self._refuse, attempt)

    def said(self, attempt: AttemptId) -> int:
        """Output tokens of the request so far, as the client sees it."""
        _, replica, job = self._jobs[attempt]
        return self._base[attempt] + job.tokens(replica.engine.steps_at(self.now))

    def later(self, delay: float, act: Callable[[float, Any], None], what: Any) -> None:
        """Do something after a while."""
        self._push(self.now + delay, act, what)

    def _enter(self, at: float, attempt: AttemptId) -> None:
        found = self._jobs.get(attempt)
        if found is None:
            return
        _, replica, job = found
        if not replica.alive:
            self._refuse(at, attempt)
            return
        try:
            replica.add(attempt, job, at)
        except ValueError as error:
            self._end(attempt, Outcome(OutcomeKind.CLIENT_ERROR, 400, sent=True, detail=str(error)))
            return
        self.wake(replica)

    def wake(self, replica: SimReplica) -> None:
        """Its engine's next event may be at another time now."""
        if replica.ends < float("inf"):
            self._push(replica.ends, self._complete, (replica, replica.version))

    def _complete(self, at: float, what: tuple[SimReplica, int]) -> None:
        replica, version = what
        if version != replica.version:
            return
        happened = replica.complete()
        self.wake(replica)
        moving = self._moving
        for job in happened.first:
            if job.id in self._jobs and not moving.warming(job.id):
                self._post(FirstToken(at, AttemptId(job.id)))
                self._cut_over(AttemptId(job.id))
        for job in happened.finished:
            if moving.warming(job.id):
                self._warmed(AttemptId(job.id))
            elif job.id in self._jobs:
                self._end(AttemptId(job.id), self._success(job))

    def _success(self, job: Job) -> Outcome:
        return Outcome(
            _OK,
            200,
            committed=True,
            sent=True,
            prompt_tokens=job.prompt,
            cached_tokens=job.cached,
            output_tokens=self._base[AttemptId(job.id)] + job.generated,
            hit_limit=self._known,
        )

    def _refuse(self, at: float, attempt: AttemptId) -> None:
        if attempt in self._jobs:
            self._end(attempt, Outcome(OutcomeKind.CONNECT_FAILED))

    def _end(self, attempt: AttemptId, outcome: Outcome) -> None:
        """An attempt ended; unless the brain goes on with it, so did its request."""
        if self._moving.source_of(attempt) is not None:
            self.ended(attempt, outcome)
            return
        index, _, job = self._jobs.pop(attempt)
        self.columns.ended(index, job)
        ok = outcome.kind is _OK
        goes_on = not ok and (outcome.resumable or not (outcome.committed or outcome.kind is OutcomeKind.CLIENT_ERROR))
        if goes_on:
            self._said[index] = max(self._said[index], outcome.output_tokens)
            self._moving.orphaned(attempt)
        else:
            self._close(attempt, index, ok)
        transfer = self._moving.lost(attempt)
        self._base.pop(attempt)
        self._post(AttemptFinished(self.now, attempt, outcome))
        if transfer is not None:
            self.ended(transfer.target, Outcome(OutcomeKind.CANCELLED))

    # -- moves -------------------------------------------------------------------------------------------------

    def _migrate(self, command: Migrate) -> None:
        self._moving.begin(command, self._index[command.request_id], self._replicas[command.replica_id])

    def _warmed(self, attempt: AttemptId) -> None:
        """The target knows all that was said when the move began: now what was said since."""
        source = self._moving.source_of(attempt)
        index, _, _ = self._jobs.pop(attempt)
        said = self.said(source) if source in self._jobs and source is not None else self._said[index]
        self._moving.warmed(attempt, said)

    def _cut_over(self, attempt: AttemptId) -> None:
        transfer = self._moving.started(attempt)
        if transfer is not None and transfer.source in self._jobs:
            _, replica, job = self._jobs[transfer.source]
            said = self.said(attempt)
            replica.abort(transfer.source, self.now)
            self.wake(replica)
            self.columns.ended(transfer.index, job)
            self.ended(transfer.source, Outcome(OutcomeKind.MIGRATED, committed=True, sent=True, output_tokens=said))

    def ended(self, attempt: AttemptId, outcome: Outcome) -> None:
        """An attempt is over; its request is not."""
        self._moving.lost(attempt)
        found = self._jobs.pop(attempt, None)
        if found is None:
            return
        _, replica, _ = found
        replica.abort(attempt, self.now)
        self.wake(replica)
        self._base.pop(attempt)
        self._post(AttemptFinished(self.now, attempt, outcome))

    def _evict(self, command: Evict) -> None:
        found = self._jobs.get(command.attempt_id)
        if found is None:
            self._push(self.now, self._refuse_eviction, command.attempt_id)
            return
        _, replica, _ = found
        said = self.said(command.attempt_id)
        replica.abort(command.attempt_id, self.now)
        self.wake(replica)
        evicted = Outcome(OutcomeKind.EVICTED, committed=True, sent=True, output_tokens=said, resumable=True)
        self._push(self.now, self._cut, (command.attempt_id, evicted))

    def _refuse_eviction(self, at: float, attempt: AttemptId) -> None:
        self._post(EvictionRefused(at, attempt))

    def _close(self, attempt: str, index: int, ok: bool, shed: bool = False) -> None:
        self._open -= 1
        self.columns.closed(index, self.now, ok, shed)
        self._index.pop(RequestId(attempt.rpartition("-")[0] or attempt), None)

    def _reject(self, command: Reject) -> None:
        self._close(command.request_id, self._index[command.request_id], False, command.shed)

    def _relay(self, command: Relay) -> None:
        self._close(command.attempt_id, self._index[command.request_id], False)

    def _abort(self, command: Abort) -> None:
        found = self._jobs.get(command.attempt_id)
        if found is None:
            return
        _, replica, job = found
        replica.abort(command.attempt_id, self.now)
        self.wake(replica)
        committed = job.first_token >= 0.0
        self._push(self.now, self._cut, (command.attempt_id, Outcome(OutcomeKind.CANCELLED, committed=committed)))

    def _cut(self, at: float, what: tuple[AttemptId, Outcome]) -> None:
        if what[0] in self._jobs:
            self._end(*what)

    def _nothing(self, command: Command) -> None:
        """The client waits as it did."""

    # -- what is observed --------------------------------------------------------------------------------------

    def _scrape(self, at: float, replica: SimReplica) -> None:
        truth = self._scenario.truth
        if replica.alive and not replica.silent:
            lag = truth.gauge_lag_s
            self._push(at + lag + truth.report_delay_s, self._sample, replica.report(at, at + lag))
        else:
            self._push(at + CONNECT_S, self._unprobed, replica)
        spread = truth.scrape_jitter * truth.scrape_interval_s
        self._push(at + truth.scrape_interval_s + self._chance.uniform(-spread, spread), self._scrape, replica)

    def _sample(self, at: float, sample: Any) -> None:
        self._post(SampleTaken(at, sample))

    def _unprobed(self, at: float, replica: SimReplica) -> None:
        if not replica.alive:
            self._post(ProbeFailed(at, replica.id, "refused", refused=True))

    def _asked(self, command: Probe | WarmUp) -> None:
        self.probe(command.replica_id)

    def probe(self, name: ReplicaId) -> None:
        """Ask whether it lives, and tell the brain."""
        self._push(self.now + CONNECT_S, self._probed, name)

    def _probed(self, at: float, name: ReplicaId) -> None:
        if self._replicas[name].alive:
            self._post(ProbeSucceeded(at, name))
        else:
            self._post(ProbeFailed(at, name, "refused", refused=True))

    def _tick(self, at: float, _what: None) -> None:
        counts: list[tuple[AttemptId, int]] = []
        for replica in self._replicas.values():
            counts += replica.progress(at)
        if counts:
            self._post(Progress(at, counts))
        self._push(at + self._scenario.progress_s, self._tick, None)

    def _look(self, at: float, _what: None) -> None:
        self.columns.look(at, self._replicas.values())
        self._push(at + TIMELINE_S, self._look, None)

    def _set_timer(self, command: SetTimer) -> None:
        self._timers[command.timer] = command.at
        self._push(max(command.at, self.now), self._fire, (command.timer, command.at))

    def _fire(self, at: float, what: tuple[str, float]) -> None:
        timer, due = what
        if self._timers.get(timer) == due:
            del self._timers[timer]
            self._post(TimerFired(at, timer))

    def crash(self, replica: SimReplica) -> None:
        """A replica loses all that it has, and its clients with it."""
        said = {attempt: self.said(attempt) for attempt, (_, r, _) in self._jobs.items() if r is replica}
        replica.crash(self.now)
        for attempt, tokens in said.items():
            if attempt in self._jobs:
                self._lose(attempt, tokens)

    def _lose(self, attempt: AttemptId, said: int) -> None:
        committed = said > 0
        kind = OutcomeKind.TRUNCATED if committed else OutcomeKind.RESET
        resumable = committed and self._moves
        self._end(attempt, Outcome(kind, 0, committed, True, output_tokens=said, resumable=resumable))
