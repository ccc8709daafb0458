"""The one object that decides: events in, commands out. It wires the rooms below, admits requests, and minds replicas.

`handle` looks the event's type up in a table. Everything else belongs to a floor below: what is known of replicas
(fleet), who may wait (admission), who takes a request (scheduler), what becomes of it (attempts), who is well (health),
what is given up under pressure (relief). Dispatches come first among the commands of an event, records last, so that a
body sends before it writes.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from headway.core.admission import Admission
from headway.core.attempts import Attempts
from headway.core.commands import Abort, Command, Moved, Record, Reject
from headway.core.constants import BrainConfig
from headway.core.entries import PLAIN, Job, Plan, Tries
from headway.core.entry import Entry
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
from headway.core.fleet import Fleet
from headway.core.holding import Holding, no_replica
from headway.core.ids import ReplicaId, RequestId
from headway.core.migration import Migration
from headway.core.plugin import Chance, Policy, Tracker
from headway.core.pool import Pool
from headway.core.rebalance import Rebalance
from headway.core.relief import Relief
from headway.core.request import RequestInfo
from headway.core.retry import Retries
from headway.core.scheduler import Scheduler
from headway.core.snapshot import FleetSnapshot
from headway.core.standing import Replica
from headway.core.variants import with_floor

SHOWN: Final = 100
"""So many of those who wait are in a snapshot."""


class Brain:
    """All decisions. Same config, policy, chance and events: same commands."""

    def __init__(self, config: BrainConfig, policy: Policy, chance: Chance, others: Sequence[Policy] = ()) -> None:
        """`others`: policies that requests may ask for by name; the queue is that of `policy`."""
        self._config = config
        late = policy.binds_late or config.admission.every_policy
        self._fleet = Fleet(
            config.fleet,
            config.memory,
            config.health,
            config.ledger,
            config.length,
            config.prefix,
            config.speed,
            foresees=late or getattr(policy, "foresees", True),
        )
        self._scheduler = Scheduler(self._fleet, policy, chance, config.scheduler, config.affinity, others)
        trackers = [each for each in (policy, *others) if isinstance(each, Tracker)]
        self._admission = Admission(self._fleet, config.admission, config.slo, config.pace, late)
        attempts = Attempts(self._fleet, self._scheduler, self._admission, Retries(config.retry), trackers)
        self._attempts, self._jobs = attempts, attempts.jobs
        self._holding = Holding(
            self._scheduler, self._admission, self._jobs, attempts.dispatch, attempts.end, attempts.too_late
        )
        self._relief = Relief(self._fleet.replicas, self._scheduler, self._admission, self._holding, config, chance)
        attempts.holding, attempts.relief = self._holding, self._relief
        self._migration = Migration(config.migration, self._fleet, self._scheduler, self._holding, attempts)
        attempts.moved = self._migration.ended
        self._rebalance = Rebalance(
            config.migration, config.slo, self._fleet, self._scheduler, self._holding, self._migration
        )
        self._ignored = 0
        self._on: dict[type, Callable[[Any, list[Command]], None]] = {
            RequestArrived: self._arrived,
            RequestCancelled: self._cancelled,
            FirstToken: attempts.first_token,
            Progress: attempts.progress,
            AttemptFinished: attempts.finished,
            ReplicasChanged: self._replicas_changed,
            SampleTaken: self._sample,
            ProbeSucceeded: self._probe_succeeded,
            ProbeFailed: self._probe_failed,
            TimerFired: self._timer,
            DrainAsked: self._drain,
            TenantsChanged: self._tenants_changed,
            MigrateAsked: self._migrate_asked,
            EvictionRefused: self._eviction_refused,
        }

    def handle(self, event: Event) -> list[Command]:
        """What to do about an event, in order."""
        out: list[Command] = []
        self._on[type(event)](event, out)
        return out

    def snapshot(self, at: float) -> FleetSnapshot:
        """Every view at `at`. Asking changes nothing, so a journal need not know."""
        fleet, admission = self._fleet, self._admission
        views = tuple(fleet.viewing.build(fleet.replicas[i], at) for i in sorted(fleet.replicas))
        panic = any(pool.panic for pool in self._scheduler.pools.values())
        name = self._scheduler.policy.name
        errors = fleet.kv_errors()
        return FleetSnapshot(
            at,
            name,
            admission.queued,
            len(fleet.ledger.entries),
            panic,
            views,
            errors,
            pools=self._relief.states(views, at),
            held=admission.held(at, SHOWN),
            tenants=admission.tenancy.states(),
            emptying=self._rebalance.emptying(views),
        )

    def queue_positions(self) -> dict[RequestId, int]:
        """Who is held, with the position in the queue of its model, counted from 1."""
        return self._admission.positions()

    def prospect(self, request_id: RequestId, at: float) -> tuple[int, float] | None:
        """Position in its queue (from 1) and expected wait (s, 0 if unknown) of a request; None if it is not held."""
        job = self._jobs.get(request_id)
        return self._admission.prospect(job, at) if job is not None and job.held else None

    @property
    def ignored(self) -> int:
        """Events that named what is not (or no longer) known: late news, doubled ends."""
        return self._ignored + self._fleet.ledger.ignored

    # -- requests ----------------------------------------------------------------------------------------------

    def _arrived(self, event: RequestArrived, out: list[Command]) -> None:
        request, at = event.request, event.at
        model = request.model
        if request.id in self._jobs:
            self._ignored += 1
            return
        self._scheduler.refresh(at, out)
        pool, tenancy = self._scheduler.pools.get(model), self._admission.tenancy
        if pool is None or (tenancy.usages and not tenancy.may_use(request.tenant, model)):
            if not self._scheduler.pools:  # nobody can say yet what there will be
                out.append(no_replica(request.id))
                return
            text = f"The model `{model[:256]}` does not exist"  # in the same words: which is not told
            out.append(Reject(request.id, 404, "model_not_found", text))
            return
        policy = request.policy
        if policy and policy not in self._scheduler.policies:
            known = ", ".join(sorted(self._scheduler.policies))
            text = f"The policy `{policy[:64]}` is not offered; these are: {known}"
            out.append(Reject(request.id, 400, "unknown_policy", text))
            return
        if tenancy.usages:
            request = tenancy.completed(request, at)
        self._admit(request, pool, at, out)

    def _admit(self, request: RequestInfo, pool: Pool, at: float, out: list[Command]) -> None:
        """A request for something that is offered to its tenant: on which terms it is served, or why it is not."""
        tenancy = self._admission.tenancy
        request, terms = self._relief.arrived(request, at)
        if terms is not PLAIN:
            pool = self._scheduler.pools[request.model]
        if request.precision_floor or not pool.variants.uniform:
            request = with_floor(request)
            imprecise = pool.variants.refuses(request)
            if imprecise is not None:
                out.append(imprecise)
                return
            pool = pool.reaching(request.precision_floor)
        at_least = 0
        if pool.shortest and request.prompt_bytes + request.prompt_tokens >= pool.shortest:  # no token without a byte
            at_least = self._fleet.length.prompt_tokens_at_least(request) + (1 if request.generates else 0)
        refusal = (
            self._attempts.too_late(request, at)
            or self._admission.infeasible(request, at_least, pool.longest)
            or tenancy.refuses(request, at)
            or self._relief.refuses(request, at)
        )
        if refusal is not None:
            out.append(refusal)
            return
        matches = self._fleet.matches(request)
        expected = self._fleet.expect(request, pool.longest, matches, at)
        if tenancy.usages:
            refusal = tenancy.refuses_length(request, expected.demand, at)
            if refusal is not None:
                out.append(refusal)
                return
            tenancy.entered(request, expected.demand)
        job = Job(request, expected.demand, expected.demand, matches, expected.part, at_least, at, Tries(), terms=terms)
        self._holding.admit(job, pool, at, out)
        self._relief.watch(at, out)
        self._rebalance.arrived(job, at, out)

    def _cancelled(self, event: RequestCancelled, out: list[Command]) -> None:
        job = self._jobs.get(event.request_id)
        if job is None or not job.held:
            self._ignored += 1
            return
        self._holding.withdraw(job, event.at, out)

    # -- replicas ----------------------------------------------------------------------------------------------

    def _replicas_changed(self, event: ReplicasChanged, out: list[Command]) -> None:
        at = event.at
        for replica_id in event.removed:
            lost = self._fleet.remove(replica_id)
            self._admission.forget(replica_id)
            self._abort((e for e in lost if e.first_token_at is None), "replica_removed", out)
        served = set(self._scheduler.pools)
        for spec in event.upserted:
            ramps = not served.isdisjoint(spec.names)
            self._fleet.upsert(spec, at, ramps, out)
        self._scheduler.regroup(at)
        self._scheduler.refresh(at, out)
        self._relief.regrouped(at, out)
        self._holding.dissolve(at, out)
        self._holding.release(list(self._scheduler.pools.values()), at, out)

    def _abort(self, entries: Iterable[Entry], why: str, out: list[Command]) -> None:
        for entry in entries:
            if not entry.aborting:
                entry.aborting = True
                out.append(Abort(entry.attempt_id, why))

    def _sample(self, event: SampleTaken, out: list[Command]) -> None:
        replica = self._fleet.sample(event.sample, event.at)
        if replica is None:
            return
        if event.sample.sleep_level and replica.account.entries:
            self._leave_sleeper(replica, event.at, out)
        if replica.gauges.cold:
            self._fleet.prefix.forget(replica.id)
            if replica.health.cooled(event.at, replica.gauges.cold == "woke", out):
                self._fleet.touch(replica)
                self._relief.moved(replica, event.at, out)
        if self._admission.queues:
            self._holding.release(self._scheduler.pools_of(replica.id), event.at, out, replica.id)

    def _leave_sleeper(self, replica: Replica, at: float, out: list[Command]) -> None:
        """An engine that falls asleep lets those hang who come just then: they go elsewhere, if there is a place.

        What it had begun before is its own affair: it finishes, aborts or keeps it, as it was told.
        """
        self._scheduler.refresh(at, out)
        pools, awake_at = self._scheduler.pools, replica.gauges.awake_at
        late = [e for e in replica.account.entries.values() if e.first_token_at is None and e.dispatched_at > awake_at]
        self._abort(
            (e for e in late if (pool := pools.get(e.request.model)) and pool.candidates), "replica_asleep", out
        )

    def _probe_succeeded(self, event: ProbeSucceeded, out: list[Command]) -> None:
        replica = self._known(event.replica_id)
        if replica is not None and replica.health.probe_succeeded(event.at, out):
            self._moved(replica, event.at, out)

    def _probe_failed(self, event: ProbeFailed, out: list[Command]) -> None:
        replica = self._known(event.replica_id)
        if replica is None:
            return
        if replica.health.probe_failed(event.at, event.refused, event.reason, out):
            self._moved(replica, event.at, out)
        if event.refused:
            self._fleet.prefix.forget(event.replica_id)
            heard = event.at - self._config.health.silent_s
            silent = [e for e in replica.account.entries.values() if e.heard_at <= heard]
            self._abort(silent, "replica_gone", out)

    def _drain(self, event: DrainAsked, out: list[Command]) -> None:
        replica = self._known(event.replica_id)
        if replica is not None:
            replica.draining = event.draining
            self._moved(replica, event.at, out)

    def _tenants_changed(self, event: TenantsChanged, out: list[Command]) -> None:
        self._admission.tenancy.configure(event.tenants, event.at)
        self._holding.release(list(self._scheduler.pools.values()), event.at, out)

    def _migrate_asked(self, event: MigrateAsked, out: list[Command]) -> None:
        job = self._jobs.get(event.request_id)
        entry = self._fleet.ledger.entries.get(job.attempt) if job is not None and job.attempt else None
        if entry is None:
            self._ignored += 1
            return
        self._scheduler.refresh(event.at, out)
        plan = self._rebalance.asked(entry.request, entry, event.replica_id)
        if isinstance(plan, Plan):
            self._migration.begin(plan, event.at, out)
        else:
            why = f"operator ({plan})"
            told = Moved(event.at, event.request_id, entry.replica_id, event.replica_id, why, "refused")
            out.append(Record(told))

    def _eviction_refused(self, event: EvictionRefused, out: list[Command]) -> None:
        if not self._migration.refused(event.attempt_id, event.at, out):
            self._ignored += 1

    def _timer(self, event: TimerFired, out: list[Command]) -> None:
        kind, _, name = event.timer.partition(":")
        if kind == "breaker":
            replica = self._known(ReplicaId(name))
            if replica is not None and replica.health.timer(event.at, out):
                self._moved(replica, event.at, out)
        elif kind == "degrade":
            self._relief.timer(event.at, out)
        elif kind == "rebalance":
            self._rebalance.timer(event.at, out)
        elif kind != "queue" or not self._holding.timer(name, event.at, out):
            self._ignored += 1

    def _known(self, replica_id: ReplicaId) -> Replica | None:
        replica = self._fleet.replicas.get(replica_id)
        if replica is None:
            self._ignored += 1
        return replica

    def _moved(self, replica: Replica, at: float, out: list[Command]) -> None:
        """A replica became (un)usable."""
        self._fleet.touch(replica)
        self._relief.moved(replica, at, out)
        self._holding.release(self._scheduler.pools_of(replica.id), at, out)
