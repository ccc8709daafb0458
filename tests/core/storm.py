"""A deterministic storm: a tiny fake fleet, a seeded generator, thousands of events, and every promise checked.

Used by the tests of determinism (one seed in two processes) and of the brain's invariants (many seeds).
"""

import heapq
import random
from collections.abc import Callable

from headway.core.brain import Brain
from headway.core.commands import Abort, Command, Dispatch, Hold, Probe, Reject, Relay, SetTimer
from headway.core.constants import AdmissionConfig, BrainConfig, HealthConfig, SchedulerConfig
from headway.core.events import (
    AttemptFinished,
    DrainAsked,
    Event,
    FirstToken,
    ProbeFailed,
    ProbeSucceeded,
    Progress,
    ReplicasChanged,
    RequestArrived,
    RequestCancelled,
    SampleTaken,
    TenantsChanged,
    TimerFired,
)
from headway.core.ids import AttemptId, ReplicaId, RequestId
from headway.core.outcome import Outcome, OutcomeKind
from headway.core.replica import LoadSample, ReplicaSpec
from headway.core.request import RequestInfo
from headway.core.tenant import Tenant
from headway.wire.journal import encode
from tests.core.house import FewestInFlight

CONFIG = BrainConfig(
    admission=AdmissionConfig(
        max_queued=6, queue_timeout_s=2.0, bypass_max=3, scan=4, rise_s=0.5, max_queued_bytes=3000, reserved=0.3
    ),
    health=HealthConfig(open_s=0.5, open_max_s=2.0, slow_start_s=1.0),
    scheduler=SchedulerConfig(max_in_flight=6),
)
MODELS = {"alpha": ("x", "y"), "beta": ("y",), "gamma": ("x",), "delta": ("x", "y")}
CAPACITY = 6000
TENANTS = (
    Tenant("many", weight=3.0),
    Tenant("few", max_concurrent=3, max_tier=0),
    Tenant("slow", requests_per_s=5.0, tokens_per_s=900.0, burst_s=1.0, deadline_s=1.0),
    Tenant("small", kv_share=0.05),
)
BAD_ENDS = (
    OutcomeKind.BACKPRESSURE,
    OutcomeKind.SERVER_ERROR,
    OutcomeKind.CONNECT_FAILED,
    OutcomeKind.STALE_CONNECTION,
    OutcomeKind.RESET,
    OutcomeKind.TRUNCATED,
    OutcomeKind.ENGINE_ABORT,
    OutcomeKind.FIRST_BYTE_TIMEOUT,
    OutcomeKind.CLIENT_CLOSED,
    OutcomeKind.CLIENT_ERROR,
    OutcomeKind.CANCELLED,
)


class Storm:
    """Drives a brain, performs its commands badly, and keeps accounts of its own."""

    def __init__(self, seed: int, policy: object | None = None) -> None:
        self.rng = random.Random(seed)
        self.brain = Brain(CONFIG, policy or FewestInFlight(binds_late=True), random.Random(seed))  # type: ignore[arg-type]
        self.mind = self.brain  # itself, should a test put something before it
        self.now = 0.0
        self.heap: list[tuple[float, int, Event]] = []
        self.serial = 0
        self.timers: dict[str, float] = {}
        self.present: dict[ReplicaId, bool] = {}
        self.draining: set[ReplicaId] = set()
        self.live: dict[AttemptId, Dispatch] = {}
        self.counts: dict[AttemptId, int] = {}
        self.held: list[RequestId] = []
        self.ends: dict[RequestId, str] = {}
        self.journal: list[tuple[Event, list[Command]]] = []
        self._perform: dict[type, Callable[..., None]] = {
            Dispatch: self._dispatch,
            Hold: self._hold,
            Reject: self._reject,
            Relay: self._relay,
            Abort: self._abort,
            SetTimer: self._set_timer,
            Probe: self._probe,
        }

    def post(self, event: Event) -> None:
        commands = self.brain.handle(event)
        self.journal.append((event, commands))
        for command in commands:
            perform = self._perform.get(type(command))
            if perform is not None:
                perform(command)

    def later(self, delay: float, event_at: Callable[[float], Event]) -> None:
        self.serial += 1
        at = self.now + delay
        heapq.heappush(self.heap, (at, self.serial, event_at(at)))

    def run(self, steps: int) -> "Storm":
        """So many steps of trouble, then quiet until everything ended."""
        self.post(TenantsChanged(0.0, TENANTS))
        self.post(ReplicasChanged(0.0, tuple(self._spec(name) for name in MODELS)))
        self.present.update({ReplicaId(name): True for name in MODELS})
        for _ in range(steps):
            self._until(self.now + self.rng.expovariate(40.0))
            self.rng.choice(self._TROUBLES)(self)
        for attempt in list(self.live):
            self._finish(attempt, OutcomeKind.OK)
        while self.held or self.live or self.heap:
            self._until(self.heap[0][0] if self.heap else self.now + 0.1)
        return self

    def _until(self, at: float) -> None:
        while self.heap and self.heap[0][0] <= at:
            self.now, _, event = heapq.heappop(self.heap)
            if isinstance(event, TimerFired):
                if self.timers.get(event.timer) != event.at:
                    continue
                del self.timers[event.timer]
                if event.timer.startswith("breaker") and not (self.held or self.live):
                    continue  # breakers of lost replicas go round for ever: the storm is over
            if isinstance(event, AttemptFinished):
                if event.attempt_id not in self.live:
                    continue
                self._ended(event)
            self.post(event)
        self.now = at

    # -- what the brain asks for

    def _dispatch(self, command: Dispatch) -> None:
        assert command.request_id not in self.ends, "dispatched after its end"
        assert command.replica_id in self.present, "dispatched to a removed replica"
        assert command.replica_id not in self.draining, "dispatched to a draining replica"
        assert all(d.request_id != command.request_id for d in self.live.values()), "two attempts at once"
        in_flight = sum(d.replica_id == command.replica_id for d in self.live.values())
        assert in_flight < CONFIG.scheduler.max_in_flight, "over the limit"
        if command.request_id in self.held:
            self.held.remove(command.request_id)
        self.live[command.attempt_id] = command
        self.counts[command.attempt_id] = 0
        lasts = self.rng.expovariate(3.0)
        kind = self.rng.choice(BAD_ENDS) if self.rng.random() < 0.25 else OutcomeKind.OK
        if not self.present[command.replica_id]:
            kind = OutcomeKind.CONNECT_FAILED
        if kind is OutcomeKind.OK and self.rng.random() < 0.7:
            self.later(lasts / 3, lambda at: FirstToken(at, command.attempt_id))
        outcome = self._outcome(kind)
        self.later(lasts, lambda at: AttemptFinished(at, command.attempt_id, outcome))

    def _outcome(self, kind: OutcomeKind) -> Outcome:
        ok = kind is OutcomeKind.OK
        status = {OutcomeKind.OK: 200, OutcomeKind.BACKPRESSURE: 503, OutcomeKind.SERVER_ERROR: 500}.get(kind, 0)
        committed = ok or self.rng.random() < 0.2
        return Outcome(kind, status, committed, True, self.rng.randrange(0, 900), 0, self.rng.randrange(1, 300))

    def _finish(self, attempt: AttemptId, kind: OutcomeKind) -> None:
        event = AttemptFinished(self.now, attempt, self._outcome(kind))
        self._ended(event)
        self.post(event)

    def _ended(self, event: AttemptFinished) -> None:
        command = self.live.pop(event.attempt_id)
        outcome = event.outcome
        if outcome.committed or outcome.kind in (
            OutcomeKind.OK,
            OutcomeKind.CLIENT_ERROR,
            OutcomeKind.CLIENT_CLOSED,
        ):
            self._end(command.request_id, str(outcome.kind))

    def _end(self, request_id: RequestId, how: str) -> None:
        assert request_id not in self.ends, f"{request_id} ended twice: {self.ends[request_id]}, {how}"
        self.ends[request_id] = how

    def _hold(self, command: Hold) -> None:
        assert command.request_id not in self.ends
        self.held.append(command.request_id)
        assert sorted(one.request_id for one in self.mind.snapshot(self.now).held) == sorted(self.held)
        if not self.mind._jobs[command.request_id].tries.made:  # what comes back waits, however many do
            assert self.mind._admission.queued_bytes <= CONFIG.admission.max_queued_bytes
            assert 1 <= command.position <= CONFIG.admission.max_queued

    def _reject(self, command: Reject) -> None:
        if command.request_id in self.held:
            self.held.remove(command.request_id)
        self._end(command.request_id, command.code)

    def _relay(self, command: Relay) -> None:
        self._end(command.request_id, "relayed")

    def _abort(self, command: Abort) -> None:
        if command.attempt_id in self.live:
            kind = OutcomeKind.CANCELLED
            outcome = Outcome(kind, committed=self.counts[command.attempt_id] > 0)
            self.later(0.001, lambda at: AttemptFinished(at, command.attempt_id, outcome))

    def _set_timer(self, command: SetTimer) -> None:
        self.timers[command.timer] = command.at
        self.serial += 1
        heapq.heappush(self.heap, (command.at, self.serial, TimerFired(command.at, command.timer)))

    def _probe(self, command: Probe) -> None:
        alive = self.present.get(command.replica_id, False)
        if alive and self.rng.random() < 0.9:
            self.later(0.01, lambda at: ProbeSucceeded(at, command.replica_id))
        else:
            self.later(0.01, lambda at: ProbeFailed(at, command.replica_id, refused=not alive))

    # -- trouble

    def _arrive(self) -> None:
        self.serial += 1
        name = RequestId(f"q{self.serial}")
        model = self.rng.choice(("x", "x", "y", "y", "z"))
        deadline = self.now + self.rng.random() * 3 if self.rng.random() < 0.2 else None
        hashes = tuple(self.rng.randrange(1, 4) for _ in range(self.rng.randrange(4)))
        self.post(
            RequestArrived(
                self.now,
                RequestInfo(
                    name,
                    model,
                    prompt_bytes=self.rng.randrange(10, 8000),
                    max_output_tokens=self.rng.choice((0, 0, 50, 400)),
                    sequences=self.rng.choice((1, 1, 1, 3)),
                    prefix_hashes=hashes,
                    deadline=deadline,
                    stream=self.rng.random() < 0.7,
                    generates=self.rng.random() < 0.9,
                    fingerprint=self.rng.randrange(20),
                    tenant=self.rng.choice(("many", "few", "slow", "small", "unknown")),
                    tier=self.rng.choice((-1, 0, 0, 1, 2)),
                    body_bytes=self.rng.randrange(1000),
                ),
            )
        )

    def _cancel(self) -> None:
        if self.held:
            name = self.held.pop(self.rng.randrange(len(self.held)))
            self._end(name, "cancelled")
            self.post(RequestCancelled(self.now, name))
        self.post(RequestCancelled(self.now, RequestId("nobody")))

    def _progress(self) -> None:
        counts = []
        for attempt in self.live:
            self.counts[attempt] += self.rng.randrange(0, 30)
            counts.append((attempt, self.counts[attempt]))
        self.post(Progress(self.now, [*counts, (AttemptId("nobody-0"), 3)]))

    def _report(self) -> None:
        for name in list(self.present):
            self.serial += 1
            used = self.rng.randrange(0, CAPACITY)
            running = self.rng.randrange(0, 8)
            asleep = 1 if self.rng.random() < 0.03 else 0
            sample = LoadSample(
                name, self.now - 0.01, self.serial, CAPACITY, used, running, self.rng.randrange(2), sleep_level=asleep
            )
            self.post(SampleTaken(self.now, sample))

    def _break(self) -> None:
        name = self.rng.choice(list(MODELS))
        if ReplicaId(name) in self.present:
            self.present[ReplicaId(name)] = self.rng.random() < 0.7
            self.post(ProbeFailed(self.now, ReplicaId(name), refused=not self.present[ReplicaId(name)]))

    def _drain(self) -> None:
        name = ReplicaId(self.rng.choice(list(MODELS)))
        draining = self.rng.random() < 0.3
        (self.draining.add if draining else self.draining.discard)(name)
        self.post(DrainAsked(self.now, name, draining))

    def _change(self) -> None:
        name = ReplicaId(self.rng.choice(list(MODELS)))
        if name in self.present and len(self.present) > 2 and self.rng.random() < 0.5:
            del self.present[name]
            self.draining.discard(name)
            self.post(ReplicasChanged(self.now, removed=(name,)))
        else:
            new = name not in self.present
            self.present[name] = True
            if new:
                self.draining.discard(name)
            self.post(ReplicasChanged(self.now, (self._spec(name),)))

    def _limits(self) -> None:
        """Some tenants go, or come back."""
        self.post(TenantsChanged(self.now, tuple(t for t in TENANTS if self.rng.random() < 0.8)))

    def _double(self) -> None:
        """Late news about what is over."""
        self.post(AttemptFinished(self.now, AttemptId("nobody-0"), Outcome(OutcomeKind.OK)))
        self.post(FirstToken(self.now, AttemptId("nobody-0")))
        self.post(TimerFired(self.now, "nothing:here"))

    def _spec(self, name: str) -> ReplicaSpec:
        serves = {model: model for model in MODELS[name]}
        return ReplicaSpec(
            ReplicaId(name), f"http://{name}", model=MODELS[name][0], serves=serves, metrics=name != "beta"
        )

    _TROUBLES = [_arrive] * 12 + [_progress] * 4 + [_report] * 2 + [_cancel, _break, _drain, _change, _double, _limits]

    def lines(self) -> list[bytes]:
        """Every event and its commands as JSON."""
        return [encode(pair) for pair in self.journal]


if __name__ == "__main__":
    import sys

    for line in Storm(int(sys.argv[1])).run(int(sys.argv[2])).lines():
        sys.stdout.buffer.write(line + b"\n")
