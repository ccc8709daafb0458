"""The only holder of the brain in the simulator: a heap of what happens next, events in, commands performed.

It mirrors gateway/driver and decides nothing. A request is followed from arrival to its one end; what became of it is
written into a `Ledger` of plain columns (`measure`). Virtual time: the only clock read is the one that measures what a
decision costs.
"""

import heapq
import random
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from headway.core.commands import (
    Abort,
    Command,
    Dispatch,
    Hold,
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
from headway.sim.measure import Columns
from headway.sim.prompt import Prompt
from headway.sim.replica import SimReplica
from headway.sim.scenario import MODEL, Fault, Scenario
from headway.workload.request import Request

CONNECT_S = 0.001
"""Until a refused connection or a probe's answer is heard of."""

TIMELINE_S = 1.0


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
        self.columns = Columns(requests, prompts, replicas)
        self.brain_s = 0.0
        self.now = 0.0
        self._brain = brain
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
        self._failed: dict[AttemptId, Outcome] = {}
        self._perform: dict[type, Callable[[Any], None]] = {
            Dispatch: self._dispatch,
            Hold: self._nothing,
            Record: self._nothing,
            Reject: self._reject,
            Relay: self._relay,
            Abort: self._abort,
            SetTimer: self._set_timer,
            Probe: self._probe,
            WarmUp: self._probe,
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
                self.now, _, act, what = heapq.heappop(heap)
                act(self.now, what)
        self.columns.finish(self.now, self._replicas.values())
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
        names = list(self._replicas)
        for fault in self._scenario.faults:
            self._push(fault.at_s, self._break, (fault, self._replicas[names[fault.replica]]))

    def _push(self, at: float, act: Callable[[float, Any], None], what: Any) -> None:
        self._pushed += 1
        heapq.heappush(self._heap, (at, self._pushed, act, what))

    def _post(self, event: Event) -> None:
        began = time.perf_counter()
        commands = self._brain.handle(event)
        self.brain_s += time.perf_counter() - began
        if self._journal is not None:
            self._journal(event, commands)
        perform = self._perform
        for command in commands:
            if type(command) is not Record:
                perform[type(command)](command)

    # -- requests ----------------------------------------------------------------------------------------------

    def _arrive(self, index: int) -> None:
        request, prompt = self._requests[index], self._prompts[index]
        name = RequestId(f"{index:07d}")
        self._index[name] = index
        self._open += 1
        known = self._scenario.clairvoyant
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
        )
        self._post(RequestArrived(self.now, info))

    def _dispatch(self, command: Dispatch) -> None:
        index, replica = self._index[command.request_id], self._replicas[command.replica_id]
        self.columns.dispatched(index, replica, self.now)
        prompt = self._prompts[index]
        job = Job(command.attempt_id, prompt.tokens, self._requests[index].output_tokens, prompt.pieces, self.now)
        self._jobs[command.attempt_id] = (index, replica, job)
        if replica.alive:
            self._push(replica.enters(prompt.tokens, self.now), self._enter, command.attempt_id)
        else:
            self._push(self.now + CONNECT_S, self._refuse, command.attempt_id)

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
        self._wake(replica)

    def _wake(self, replica: SimReplica) -> None:
        if replica.ends < float("inf"):
            self._push(replica.ends, self._complete, (replica, replica.version))

    def _complete(self, at: float, what: tuple[SimReplica, int]) -> None:
        replica, version = what
        if version != replica.version:
            return
        happened = replica.complete()
        self._wake(replica)
        for job in happened.first:
            if job.id in self._jobs:
                self._post(FirstToken(at, AttemptId(job.id)))
        for job in happened.finished:
            if job.id in self._jobs:
                self._end(AttemptId(job.id), self._success(job))

    def _success(self, job: Job) -> Outcome:
        known = self._scenario.clairvoyant
        return Outcome(
            OutcomeKind.OK,
            200,
            committed=True,
            sent=True,
            prompt_tokens=job.prompt,
            cached_tokens=job.cached,
            output_tokens=job.generated,
            hit_limit=known,
        )

    def _refuse(self, at: float, attempt: AttemptId) -> None:
        if attempt in self._jobs:
            self._end(attempt, Outcome(OutcomeKind.CONNECT_FAILED))

    def _end(self, attempt: AttemptId, outcome: Outcome) -> None:
        """An attempt ended; unless the brain goes on with it, so did its request."""
        index, _, job = self._jobs.pop(attempt)
        self.columns.ended(index, job)
        final = outcome.kind is OutcomeKind.OK or outcome.committed or outcome.kind is OutcomeKind.CLIENT_ERROR
        if final:
            self._close(attempt, index, outcome.kind is OutcomeKind.OK)
        self._post(AttemptFinished(self.now, attempt, outcome))

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
        self._wake(replica)
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
            self._push(at + lag, self._sample, replica.report(at, at + lag))
        else:
            self._push(at + CONNECT_S, self._unprobed, replica)
        spread = truth.scrape_jitter * truth.scrape_interval_s
        self._push(at + truth.scrape_interval_s + self._chance.uniform(-spread, spread), self._scrape, replica)

    def _sample(self, at: float, sample: Any) -> None:
        self._post(SampleTaken(at, sample))

    def _unprobed(self, at: float, replica: SimReplica) -> None:
        if not replica.alive:
            self._post(ProbeFailed(at, replica.id, "refused", refused=True))

    def _probe(self, command: Probe | WarmUp) -> None:
        self._push(self.now + CONNECT_S, self._probed, command.replica_id)

    def _probed(self, at: float, name: ReplicaId) -> None:
        if self._replicas[name].alive:
            self._post(ProbeSucceeded(at, name))
        else:
            self._post(ProbeFailed(at, name, "refused", refused=True))

    def _tick(self, at: float, _what: None) -> None:
        counts = [count for replica in self._replicas.values() for count in replica.progress(at)]
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

    # -- faults ------------------------------------------------------------------------------------------------

    def _break(self, at: float, what: tuple[Fault, SimReplica]) -> None:
        fault, replica = what
        if fault.kind == "crash":
            replica.crash()
            for attempt in [a for a, (_, r, _) in self._jobs.items() if r is replica]:
                committed = self._jobs[attempt][2].first_token >= 0.0
                kind = OutcomeKind.TRUNCATED if committed else OutcomeKind.RESET
                self._end(attempt, Outcome(kind, committed=committed, sent=True))
        elif fault.kind == "slow":
            replica.slow(fault.factor, at)
            self._wake(replica)
        else:
            replica.silent = True
        self._push(at + fault.duration_s, self._mend, what)

    def _mend(self, at: float, what: tuple[Fault, SimReplica]) -> None:
        fault, replica = what
        if fault.kind == "crash":
            replica.restart()
        elif fault.kind == "slow":
            replica.slow(1.0, at)
            self._wake(replica)
        else:
            replica.silent = False
