"""A random walk through everything a brain can be told: models with several names, precisions and adapters, tenants,
requests that move, replicas that come, go, change, drain, sleep and die. Its books are checked on the way and must be
empty in the end.

Unlike the storm, it plays a body that can continue a stream elsewhere; and it looks inside the brain.
"""

import heapq
import math
import random
from collections import Counter
from collections.abc import Callable
from itertools import pairwise

import msgspec

from headway.core.brain import Brain
from headway.core.commands import (
    Abort,
    Dispatch,
    Evict,
    Hold,
    Migrate,
    Probe,
    Reject,
    Relay,
    SetTimer,
)
from headway.core.constants import AdmissionConfig, BrainConfig, HealthConfig, MigrationConfig, SchedulerConfig
from headway.core.entries import Job, Waiting
from headway.core.events import (
    AttemptFinished,
    DrainAsked,
    Event,
    EvictionRefused,
    FirstToken,
    MigrateAsked,
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
from headway.core.queue import HoldQueue
from headway.core.replica import LoadSample, ReplicaSpec
from headway.core.request import RequestInfo
from headway.core.tenant import Tenant
from tests.core.house import FewestInFlight

CAPACITY = 6000
TENANTS = (
    Tenant("many", weight=3.0),
    Tenant("few", max_concurrent=9, max_tier=0),
    Tenant("small", kv_share=0.1),
    Tenant("exact", precision_floor="bf16"),
)
NAMES = ("big", "big", "alias", "alias", "lora", "small", "tiny")
SERVED = (*[("big", "alias", "lora")] * 3, ("big", "alias"), ("big", "lora"), ("small", "tiny"), ("tiny", "alias"))
LOST = (OutcomeKind.RESET, OutcomeKind.TRUNCATED, OutcomeKind.ENGINE_ABORT, OutcomeKind.SERVER_ERROR)
EARLY = (
    *LOST,
    OutcomeKind.BACKPRESSURE,
    OutcomeKind.CONNECT_FAILED,
    OutcomeKind.STALE_CONNECTION,
    OutcomeKind.FIRST_BYTE_TIMEOUT,
    OutcomeKind.CLIENT_ERROR,
    OutcomeKind.OUT_OF_MEMORY,
    OutcomeKind.NO_RESOURCES,
)
LATE_S = 1e-6
"""So much later than it may wait, nobody waits."""


class Run:
    """One attempt as the body has it. `base`: tokens that the client had before it; `spoken`: whether it has begun."""

    def __init__(self, request: RequestInfo, replica: ReplicaId, base: int) -> None:
        self.request = request
        self.replica = replica
        self.base = base
        self.count = 0
        self.spoken = False
        self.target: AttemptId | None = None
        self.joins = False  # another one is still what its client hears


class Walk:
    """Drives a brain, performs its commands, and compares its books with its own."""

    def __init__(self, seed: int, hold: bool = True, **admission: object) -> None:
        self.rng = random.Random(seed)
        settings: dict[str, object] = {
            "hold": hold, "max_queued": 40, "queue_timeout_s": 6.0, "bypass_max": 3, "urgent_bypass": 2, "scan": 8,
            "late_bypass": 6, "rise_s": 1.0, "max_queued_bytes": 40000, "reserved": 0.2,
        }  # fmt: skip
        config = BrainConfig(
            admission=AdmissionConfig(**{**settings, **admission}),  # type: ignore[arg-type]
            health=HealthConfig(open_s=0.5, open_max_s=2.0, slow_start_s=1.0),
            scheduler=SchedulerConfig(max_in_flight=20),
            migration=MigrationConfig(enabled=True, cooldown_s=0.2, tick_s=0.1, moves_max=4, fleet_share=1.0),
        )
        self.brain = Brain(config, FewestInFlight(binds_late=True), random.Random(seed))
        self.now = 0.0
        self.serial = 0
        self.heap: list[tuple[float, int, Callable[[], None]]] = []
        self.timers: dict[str, float] = {}
        self.present: dict[ReplicaId, bool] = {}
        self.live: dict[AttemptId, Run] = {}
        self.held: set[RequestId] = set()
        self.asked: dict[RequestId, RequestInfo] = {}
        self.ends: dict[RequestId, str] = {}
        self.said: Counter[str] = Counter()
        self._perform: dict[type, Callable[..., None]] = {
            Dispatch: self._dispatch,
            Migrate: self._migrate,
            Evict: self._evict,
            Hold: self._hold,
            Reject: self._reject,
            Relay: self._relay,
            Abort: self._abort,
            SetTimer: self._set_timer,
            Probe: self._probe,
        }

    def run(self, steps: int) -> "Walk":
        """So many steps, then quiet until everything has ended."""
        self.post(TenantsChanged(0.0, TENANTS))
        for number in range(8):
            self._join(f"a{number}")
        for step in range(steps):
            self._until(self.now + self.rng.expovariate(40.0))
            self.rng.choice(self._STEPS)(self)
            if step % 60 == 0:
                self.check()
        self._quiet()
        return self

    def post(self, event: Event) -> None:
        for command in self.brain.handle(event):
            self.said[type(command).__name__] += 1
            perform = self._perform.get(type(command))
            if perform is not None:
                perform(command)

    def later(self, delay: float, do: Callable[[], None]) -> None:
        self.serial += 1
        heapq.heappush(self.heap, (self.now + delay, self.serial, do))

    def _until(self, at: float) -> None:
        while self.heap and self.heap[0][0] <= at:
            self.now, _, do = heapq.heappop(self.heap)
            do()
        self.now = at

    def _quiet(self) -> None:
        deadline = self.now + 300.0
        while (self.live or self.held) and self.now < deadline:
            self._until(self.now + 0.5)
        self.check()
        brain, admission = self.brain, self.brain._admission
        assert not self.live
        assert not self.held
        assert self.ends.keys() == self.asked.keys()
        assert not brain._jobs
        assert not brain._fleet.ledger.entries
        assert not brain._migration.under_way
        assert brain._attempts._retries.in_flight == 0
        assert (admission.queued, admission.queued_bytes) == (0, 0)
        assert all((state.alive, state.promised_tokens) == (0, 0.0) for state in admission.tenancy.states())
        for view in brain.snapshot(self.now).views:
            assert (view.in_flight, view.reserved_tokens) == (0, 0.0), view

    # -- what must hold at any time

    def check(self) -> None:
        """Compare the brain's books with what is there."""
        brain, jobs = self.brain, self.brain._jobs
        assert {name for name, job in jobs.items() if job.held} == self.held
        assert brain._fleet.ledger.entries.keys() == self.live.keys()
        moving = [job.move for job in jobs.values() if job.move is not None]
        assert len(moving) == len(brain._migration.under_way)
        assert brain._attempts._retries.in_flight == sum(job.tries.retrying for job in jobs.values())
        alive = Counter(job.request.tenant for job in jobs.values())
        tenancy = brain._admission.tenancy
        assert all(state.alive == alive[state.name] for state in tenancy.states())
        queues = brain._admission.queues
        assert sorted(item.job.request.id for queue in queues.values() for item in queue) == sorted(self.held)
        pools = brain._scheduler.pools
        for queue in queues.values():
            self._check_queue(queue)
            pool = pools[queue.model].from_rank(queue.rank)
            busy = brain._admission.busy(pool)
            assert queue.beside is busy or not (queue or busy)
            assert (queue.lane in busy) == bool(queue)
            members = {replica.id for replica in pool.replicas}
            for other in queues.values():
                theirs = {r.id for r in pools[other.model].from_rank(other.rank).replicas}
                assert other.beside is queue.beside or not (other and queue and members & theirs)
            for item in queue:
                assert pools[queue.model].reaching(item.job.request.precision_floor).lane == queue.lane
        for queue in queues.values():
            for other in queue.beside.values() if queue else ():
                one, two = queue.turns, other.turns
                assert _near(one._clock, two._clock)
                for tenant in {item.tenant for item in queue}:
                    account, same = one.starts(tenant, 0.0), two.starts(tenant, 0.0)
                    least = account if two.waits(tenant) else max(account, two._clock)  # who is away has no credit
                    assert _near(least, same)

    def _check_queue(self, queue: HoldQueue) -> None:
        items: list[Waiting] = list(queue)
        jobs: list[Job] = [item.job for item in items]
        assert len(items) == len(set(jobs)) == len(queue)
        assert all(job.held for job in jobs)
        assert queue.bytes == sum(job.request.body_bytes for job in jobs)
        assert queue.returned == sum(bool(job.generated or job.evictions) for job in jobs)
        assert queue.apart == sum(bool(job.tries.excluded) for job in jobs)
        assert queue.kept_for == "" or queue.find(queue.kept_for) is not None
        assert all(item.expires + LATE_S >= self.now for item in items), "it waits for too long"
        assert [item.expires for _, _, item in queue._expiries] == sorted(item.expires for item in items)
        assert {item.serial for _, _, item in queue._late} == {item.serial for item in items if item.late}
        assert {item.serial for _, _, item in queue._rises} == {i.serial for i in items if i.rises_at < 1e9}
        turns = queue.turns
        assert turns._descending == sorted(turns._tiers, reverse=True)
        for tier, level in turns._tiers.items():
            here = [item for item in items if item.tier == tier]
            assert (level.count, level.timely) == (len(here), sum(not item.late for item in here))
            assert {line.tenant for _, _, line in level.order} == level.lines.keys() == {i.tenant for i in here}
            assert all(one[:2] < other[:2] for one, other in pairwise(level.order))
            for start, tenant, line in level.order:
                own = [item for item in here if item.tenant == tenant]
                assert start == turns._served[tenant]
                assert line.begun == sum(item.job.generated > 0 for item in own)
                assert _near(line.cost, sum(item.cost for item in own))

    # -- what the brain asks for

    def _dispatch(self, command: Dispatch) -> None:
        name = command.request_id
        assert name not in self.ends, "dispatched after its end"
        assert command.replica_id in self.present, "dispatched to a removed replica"
        assert all(run.request.id != name for run in self.live.values()), "two attempts at once"
        self.held.discard(name)
        said = self.brain._jobs[name].generated
        assert command.resumes is (said > 0)
        self._begin(command.attempt_id, Run(self.asked[name], command.replica_id, said))

    def _migrate(self, command: Migrate) -> None:
        source = self.live[command.source]
        target = Run(source.request, command.replica_id, source.base + source.count)
        target.joins = True
        source.target = command.attempt_id
        self._begin(command.attempt_id, target)

    def _begin(self, attempt: AttemptId, run: Run) -> None:
        assert attempt not in self.live
        self.live[attempt] = run
        dead = not self.present.get(run.replica, False)
        if dead or self.rng.random() < 0.1:
            self.later(0.01, lambda: self._fail(attempt, OutcomeKind.CONNECT_FAILED if dead else None))
            return
        self.later(self.rng.expovariate(5.0), lambda: self._speak(attempt))
        lost = self.rng.random() < 0.1
        lasts = self.rng.expovariate(0.5)
        self.later(0.01 + lasts, lambda: self._fail(attempt) if lost else self._complete(attempt))

    def _speak(self, attempt: AttemptId) -> None:
        run = self.live.get(attempt)
        if run is None or run.spoken:
            return
        run.spoken, run.count = True, 1
        self.post(FirstToken(self.now, attempt))
        source = next((name for name, other in self.live.items() if other.target == attempt), None)
        if source is not None and self.rng.random() < 0.8:
            run.joins = False
            self.live[source].target = None
            self._finish(source, OutcomeKind.MIGRATED, True)

    def _complete(self, attempt: AttemptId) -> None:
        run = self.live.get(attempt)
        if run is None:
            return
        if not run.spoken:
            self._speak(attempt)
        if attempt in self.live:
            self._finish(attempt, OutcomeKind.CANCELLED if run.joins else OutcomeKind.OK, not run.joins)

    def _fail(self, attempt: AttemptId, kind: OutcomeKind | None = None) -> None:
        run = self.live.get(attempt)
        if run is None:
            return
        if kind is None:
            kind = self.rng.choice(LOST if run.spoken or run.base else EARLY)
        heard = (run.spoken or run.base > 0) and not run.joins
        self._finish(attempt, kind, heard, heard and run.request.resumable and self.rng.random() < 0.9)

    def _finish(self, attempt: AttemptId, kind: OutcomeKind, committed: bool, resumable: bool = False) -> None:
        run = self.live.pop(attempt)
        name, source = run.request.id, next((r for r in self.live.values() if r.target == attempt), None)
        if source is not None:
            source.target = None
        goes_on = kind in (OutcomeKind.MIGRATED, OutcomeKind.EVICTED) or resumable
        over = not run.joins and not goes_on and (committed or kind in (OutcomeKind.OK, OutcomeKind.CLIENT_ERROR))
        if over:
            self._end(name, str(kind))
        target = self.live.get(run.target) if run.target else None
        if target is not None and goes_on:
            target.joins = False
        status = {OutcomeKind.OK: 200, OutcomeKind.BACKPRESSURE: 503, OutcomeKind.SERVER_ERROR: 500}.get(kind, 0)
        outcome = Outcome(
            kind, status, committed, self.rng.random() < 0.8, output_tokens=run.count, resumable=resumable
        )
        before = name in self.ends
        self.post(AttemptFinished(self.now, attempt, outcome))
        if run.target and not goes_on and run.target in self.live:
            self._finish(run.target, OutcomeKind.CANCELLED, False)
        elif not before and not run.joins:
            on = name in self.ends or name in self.held or any(r.request.id == name for r in self.live.values())
            assert on, f"nobody serves {name} after {kind}"

    def _end(self, name: RequestId, how: str) -> None:
        assert name not in self.ends, f"{name} ended twice: {self.ends[name]}, {how}"
        self.ends[name] = how

    def _evict(self, command: Evict) -> None:
        def stop() -> None:
            run = self.live.get(command.attempt_id)
            if run is not None and self.rng.random() < 0.9:
                self._finish(command.attempt_id, OutcomeKind.EVICTED, True, True)
            else:
                self.post(EvictionRefused(self.now, command.attempt_id))

        self.later(self.rng.random() * 0.1, stop)

    def _hold(self, command: Hold) -> None:
        assert command.request_id not in self.ends
        assert command.position >= 1
        assert command.request_id not in self.held
        self.held.add(command.request_id)

    def _reject(self, command: Reject) -> None:
        self.held.discard(command.request_id)
        self._end(command.request_id, command.code)

    def _relay(self, command: Relay) -> None:
        self._end(command.request_id, "relayed")

    def _abort(self, command: Abort) -> None:
        def abort() -> None:
            run = self.live.get(command.attempt_id)
            if run is None:
                return
            if command.reason == "recalled" and run.spoken:
                self.post(EvictionRefused(self.now, command.attempt_id))
            else:
                self._fail(command.attempt_id, OutcomeKind.TRUNCATED if run.spoken else OutcomeKind.CANCELLED)

        self.later(self.rng.random() * 0.05, abort)

    def _set_timer(self, command: SetTimer) -> None:
        name, at = command.timer, command.at
        self.timers[name] = at

        def fire() -> None:
            if self.timers.get(name) == at:
                del self.timers[name]
                self.post(TimerFired(self.now, name))

        self.later(max(0.0, at - self.now), fire)

    def _probe(self, command: Probe) -> None:
        def probe() -> None:
            if self.present.get(command.replica_id, False) and self.rng.random() < 0.9:
                self.post(ProbeSucceeded(self.now, command.replica_id))
            else:
                self.post(ProbeFailed(self.now, command.replica_id, refused=self.rng.random() < 0.5))

        self.later(0.01, probe)

    # -- steps

    def _arrive(self) -> None:
        rng = self.rng
        self.serial += 1
        request = RequestInfo(
            RequestId(f"q{self.serial}"),
            rng.choice(NAMES),
            tenant=rng.choice(("many", "few", "small", "exact", "unknown")),
            tier=rng.choice((-1, 0, 0, 0, 1, 2)),
            prompt_tokens=rng.choice((50, 200, 800, 2500)),
            prompt_bytes=rng.randrange(10, 8000),
            max_output_tokens=rng.choice((0, 50, 400, 1500)),
            deadline=self.now + rng.random() * 5 if rng.random() < 0.1 else None,
            session_key=f"s{rng.randrange(9)}" if rng.random() < 0.3 else "",
            stream=True,
            resumable=rng.random() < 0.8,
            precision_floor=rng.choice(("", "", "bf16", "fp8", "any", "any", "any", "any")),
            fingerprint=rng.choice((0, 0, 0, rng.randrange(1, 99))),
            body_bytes=rng.randrange(2000),
            prefix_hashes=tuple(rng.randrange(1, 4) for _ in range(rng.randrange(4))),
        )
        self.asked[request.id] = request
        self.post(RequestArrived(self.now, request))

    def _cancel(self) -> None:
        if self.held:
            name = self.rng.choice(sorted(self.held))
            self.held.remove(name)
            self._end(name, "cancelled")
            self.post(RequestCancelled(self.now, name))

    def _progress(self) -> None:
        counts = []
        for attempt, run in self.live.items():
            if run.spoken:
                run.count += self.rng.randrange(0, 30)
                counts.append((attempt, run.count))
        self.post(Progress(self.now, counts))

    def _report(self) -> None:
        for name in list(self.present):
            if name in self.present and self.rng.random() < 0.7:
                self.serial += 1
                running = sum(run.replica == name for run in self.live.values())
                used, waiting = self.rng.randrange(CAPACITY), self.rng.randrange(4)
                asleep = int(self.rng.random() < 0.02)
                sample = LoadSample(
                    name, self.now - 0.01, self.serial, CAPACITY, used, running, waiting, sleep_level=asleep
                )
                self.post(SampleTaken(self.now, sample))

    def _break(self) -> None:
        if self.present:
            name = self.rng.choice(sorted(self.present))
            self.present[name] = self.rng.random() < 0.6
            if not self.present[name]:
                for attempt in [attempt for attempt, run in self.live.items() if run.replica == name]:
                    self._fail(attempt, OutcomeKind.RESET)
            self.post(ProbeFailed(self.now, name, refused=not self.present[name]))

    def _drain(self) -> None:
        if self.present:
            self.post(DrainAsked(self.now, self.rng.choice(sorted(self.present)), self.rng.random() < 0.2))

    def _move(self) -> None:
        if self.live:
            run = self.live[self.rng.choice(sorted(self.live))]
            self.post(MigrateAsked(self.now, run.request.id, ReplicaId("")))

    def _change(self) -> None:
        if self.rng.random() < 0.2 and len(self.present) > 1:
            name = self.rng.choice(sorted(self.present))
            del self.present[name]
            self.post(ReplicasChanged(self.now, removed=(name,)))
        else:
            self._join(f"a{self.rng.randrange(9)}")

    def _join(self, name: str) -> None:
        served = self.rng.choice(SERVED)
        spec = ReplicaSpec(
            ReplicaId(name),
            f"http://{name}",
            model=served[0],
            serves={each: each for each in served},
            precision=self.rng.choice(("bf16", "bf16", "bf16", "fp8", "")),
            version=self.rng.choice(("", "", "", "", "2")),
            max_model_tokens=self.rng.choice((0, 0, 4000)),
            kv_capacity_tokens=CAPACITY,
        )
        self.present[spec.id] = True
        self.post(ReplicasChanged(self.now, (spec,)))

    def _limits(self) -> None:
        """Limits change; who is a tenant does not: what came before it was one is not counted."""
        names = [tenant.name for tenant in TENANTS]
        limits = self.rng.sample(TENANTS, len(TENANTS))
        self.post(TenantsChanged(self.now, tuple(map(_renamed, limits, names))))

    _STEPS = (
        [_arrive] * 90
        + [_progress] * 40
        + [_report] * 16
        + [_cancel] * 4
        + [_move] * 8
        + [_break] * 2
        + [_drain, _change, _limits]
    )


def _near(one: float, other: float) -> bool:
    return math.isclose(one, other, rel_tol=1e-6, abs_tol=1e-3)


def _renamed(tenant: Tenant, name: str) -> Tenant:
    return msgspec.structs.replace(tenant, name=name)
