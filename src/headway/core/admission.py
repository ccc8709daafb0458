"""Whether a request may go now, must wait, or is refused.

A request is refused only for certain reasons: its model is unknown, it cannot fit any replica even by a lower bound of
its length, its deadline has passed or leaves no time for a first token anywhere, the queue is full. It waits (bound
late) only for memory: until on some acceptable replica the forecast peak of the batch, with it and `z` deviations,
stays within the pool; or, where the operator set one, for a count limit. Two things are never a reason to wait: missing
data, and a replica with nothing to do.

It may also wait for its turn at prefill (pace). Who goes first is the queue's business, and who of those that would
take it, the scheduler's.
"""

import math
from collections.abc import Mapping, Sequence
from itertools import islice
from types import MappingProxyType
from typing import Final

from headway.core.commands import Reject
from headway.core.constants import AdmissionConfig, PaceConfig, SloConfig
from headway.core.entries import Job
from headway.core.entry import Entry
from headway.core.fleet import Fleet
from headway.core.ids import ReplicaId, RequestId
from headway.core.pace import Pace
from headway.core.pool import Pool
from headway.core.queue import HoldQueue
from headway.core.request import RequestInfo
from headway.core.reserve import Reserve
from headway.core.snapshot import HeldState
from headway.core.standing import Replica
from headway.core.tenancy import Tenancy
from headway.core.tenant import Tier
from headway.core.view import ReplicaView

_HIGH: Final = int(Tier.HIGH)  # looked up once: members of an enum are slow to get at

Lanes = Mapping[str, HoldQueue]
"""Queues by the names of their pools' lanes."""

_NONE: Final[Lanes] = MappingProxyType({})


class Admission:
    """The queues of all models, and the tests a request must pass. `late`: whether requests are bound late at all."""

    def __init__(
        self,
        fleet: Fleet,
        config: AdmissionConfig | None = None,
        slo: SloConfig | None = None,
        pace: PaceConfig | None = None,
        late: bool = True,
    ) -> None:
        self._fleet = fleet
        self._slo = slo or SloConfig()
        self.config = c = config or AdmissionConfig()
        self._holds, self._orders, self._share = c.hold, c.order, c.reserved
        self._z, self._spare = fleet.memory.z, fleet.memory.spare
        self.pace_config = pace or PaceConfig()
        self.pace = Pace(self.pace_config, self._slo) if self.config.pace and late else None
        self.late = late
        self.tenancy = Tenancy()
        self.queues: dict[str, HoldQueue] = {}
        self._lanes: dict[str, list[HoldQueue]] = {}
        self._busy: dict[int, dict[str, HoldQueue]] = {}
        self._pools: Mapping[str, Pool] = {}
        self._reserves: dict[str, Reserve] = {}
        self._refused: dict[ReplicaId, tuple[ReplicaView, float]] = {}
        self._lag_s = 0.0

    @property
    def queued(self) -> int:
        """All who wait."""
        return sum(len(queue) for queue in self.queues.values())

    @property
    def queued_bytes(self) -> int:
        """Bodies of all who wait."""
        return sum(queue.bytes for queue in self.queues.values())

    def queue(self, pool: Pool) -> HoldQueue:
        """The queue of a pool: one for each precision that not all replicas of a model reach, so that those who wait
        for one never block the others."""
        found = self.queues.get(pool.lane)
        if found is None:
            config, weight, beside = self.config, self.tenancy.weight, self._busy.setdefault(pool.group, {})
            ordered = config.order and self.late
            found = HoldQueue(config, ordered, weight, pool.model, pool.lane, pool.rank, beside)
            self.queues[pool.lane] = found
            self._lanes.setdefault(pool.model, []).append(found)
        return found

    def busy(self, pool: Pool) -> Lanes:
        """The queues in which somebody waits for replicas of this pool's group, its own or others."""
        return self._busy.get(pool.group) or _NONE

    def holder(self, job: Job) -> HoldQueue | None:
        """The queue in which a request waits, None if it does not."""
        return next((queue for queue in self.lanes(job.request.model) if queue.find(job.request.id)), None)

    def positions(self) -> dict[RequestId, int]:
        """Who is held, with the position in its queue, counted from 1."""
        queues = self.queues.values()
        return {item.job.request.id: n for queue in queues for n, item in enumerate(queue, start=1)}

    def held(self, at: float, most: int) -> tuple[HeldState, ...]:
        """The first of those who wait, queue by queue."""
        found: list[HeldState] = []
        for queue in self.queues.values():
            for position, item in enumerate(islice(queue, most - len(found)), start=1):
                request, waited = item.job.request, at - item.job.arrived_at
                wait = queue.wait_s(item, position, at)
                found.append(HeldState(request.id, queue.model, request.tenant, request.tier, position, waited, wait))
        return tuple(found)

    def prospect(self, job: Job, at: float) -> tuple[int, float] | None:
        """Position and expected wait (s, 0 if unknown) of a request, None if it is not held."""
        queue = self.holder(job)
        item = queue.find(job.request.id) if queue is not None else None
        if queue is None or item is None:
            return None
        position = queue.position(item)
        return position, queue.wait_s(item, position, at)

    def regroup(self, pools: Mapping[str, Pool]) -> list[HoldQueue]:
        """Replicas came or went, and models that nobody serves were closed: others may share replicas now. Those whose
        accounts are strange to the others: they must begin anew."""
        self._pools, self._busy = pools, {}
        strange = []
        for queue in self.queues.values():
            before, beside = queue.beside, self._busy.setdefault(pools[queue.model].group, {})
            queue.beside = beside
            if queue and beside.keys() <= before.keys():
                beside[queue.lane] = queue
            elif queue:
                strange.append(queue)
        return strange

    def lanes(self, model: str) -> Sequence[HoldQueue]:
        """All queues of a model."""
        return self._lanes.get(model, ())

    def close(self, model: str) -> list[HoldQueue]:
        """Nobody serves the model any more: its queues, which are forgotten."""
        self._reserves.pop(model, None)
        gone = self._lanes.pop(model, [])
        for queue in gone:
            del self.queues[queue.lane]
        return gone

    def ended(self, job: Job, tokens: int | None) -> None:
        """A request ended after so many tokens, None if it was never served: its tenant was charged a guess."""
        self.tenancy.left(job.asked, tokens)
        pool = self._pools.get(job.request.model) if job.charged else None
        queue = self._charged(pool, job.request) if pool is not None else None
        if queue is not None:
            queue.mend(job, tokens)

    def _charged(self, pool: Pool, request: RequestInfo) -> HoldQueue | None:
        """The queue in which what is served to a request counts: its own, or one for the same replicas."""
        if pool.above:
            pool = pool.reaching(request.precision_floor)
        own = self.queues.get(pool.lane)
        return own if own is not None else next(iter(self.busy(pool).values()), None)

    def due(self, job: Job, views: Sequence[ReplicaView]) -> float:
        """The last moment at which a request can go and keep its TTFT objective, if all goes as it mostly does.

        What first tokens lately took takes away a part of the slack at most: if nearly everybody counted as late from
        the start, they would go in order of arrival, and indeed be late.
        """
        if job.due is not None:
            return job.due
        demand = job.demand
        prompt, hits = demand.prompt_tokens, demand.hits
        own = min(
            ((prompt - hits.get(view.id, 0)) / view.speed.prefill_tokens_per_s for view in views if view.speed.learned),
            default=0.0,
        )
        slack = self._slo.ttft_limit_s(prompt) - own
        job.due = due = job.arrived_at + slack - min(self._lag_s, self.config.lag_most * slack)
        return due

    def overdue(self, job: Job, views: Sequence[ReplicaView], wait_s: float, at: float) -> str:
        """What speaks against a request whose first token will come after its deadline, empty if nothing does: its
        wait, or that no replica is fast enough. One of which nothing is learned may always be."""
        deadline = job.request.deadline
        if deadline is None or job.generated:
            return ""
        if at + wait_s > deadline:
            return "the request would have to wait for longer than its deadline allows"
        hits, prompt = job.demand.hits, job.demand.prompt_tokens
        least = min(
            (
                (prompt - hits.get(view.id, 0) + view.prefill_backlog_tokens) / view.speed.prefill_tokens_per_s
                if view.speed.learned
                else 0.0
                for view in views
            ),
            default=0.0,
        )
        late = at + wait_s + least > deadline
        return "no replica would begin to answer within the deadline of the request" if late else ""

    def lagged(self, entry: Entry, view: ReplicaView, at: float) -> None:
        """A first token came: learn what most of them take beyond their own prefill (waiting in the engine, the step
        under way). A quantile by stochastic approximation: it moves up a little for each that took longer, and down
        less for each that did not."""
        lag = at - entry.dispatched_at - entry.uncached / view.speed.prefill_tokens_per_s
        config = self.config
        step = config.lag_step * max(self._lag_s, config.lag_least_s)
        self._lag_s += step * config.lag_quantile if lag > self._lag_s else -step * (1.0 - config.lag_quantile)
        if self._lag_s < 0.0:
            self._lag_s = 0.0

    def reserved(
        self, request: RequestInfo, replicas: Sequence[Replica], candidates: Sequence[ReplicaView]
    ) -> Reserve | None:
        """What of its model's replicas is not for this request, None if it may have all."""
        share = self._share
        if not share or request.tier >= Tier.CRITICAL:
            return None
        ids = tuple(replica.id for replica in replicas)
        found = self._reserves.get(request.model)
        if found is None or found.ids != ids:
            found = self._reserves[request.model] = Reserve(ids, share)
        return found if found.binds(candidates) else None

    def over_share(self, job: Job, replicas: Sequence[Replica]) -> bool:
        """Whether a request must wait because its tenant holds its share of the model's memory."""
        tenancy = self.tenancy
        if not tenancy.usages or not tenancy.shares(job.request.tenant):
            return False
        return tenancy.over_share(job.demand, {replica.id: replica.capacity for replica in replicas})

    def refuses(self, job: Job, view: ReplicaView, at: float) -> str:
        """Why a replica should not have the request now, empty if it may."""
        demand, pace, model = job.demand, self.pace, job.request.model
        if pace is not None and not unpaced(job):
            hit = demand.hits.get(view.id, 0)
            if not pace.open(model, view, demand.prompt_tokens, hit, at):
                return "paced"
        # who was taken away from an engine must not be sent into the same straits at once, nor overtaken while it waits
        holds = self._holds or job.generated or job.evictions or self._returned(model)
        return "no_headroom" if holds and not self.fits(job, view, at) else ""

    def _returned(self, model: str) -> bool:
        """Whether anybody waits who was taken away from an engine."""
        pool = self._pools.get(model)
        return pool is not None and any(queue.returned for queue in self.busy(pool).values())

    def infeasible(self, request: RequestInfo, at_least: int, longest: int) -> Reject | None:
        """A refusal if the prompt exceeds every replica's limit. `longest` is 0 if any limit is unknown."""
        if not longest or at_least <= longest:
            return None
        text = (
            f"This model's maximum context length is {longest} tokens, "
            f"but the request has at least {at_least - 1} tokens in its prompt."
        )
        return Reject(request.id, 400, "context_length_exceeded", text)

    def fits(self, job: Job, view: ReplicaView, at: float) -> bool:
        """Whether the replica's forecast peak with this request stays within its pool.

        Upper bounds first, the cheapest of all (which also holds where the pool's size is unknown) before all.
        Only if the sum of both reaches is too much are the horizons walked. What a view has refused, it refuses to
        whoever needs as much (unless it was refused for being late).
        """
        part, z = job.part, self._z
        refused = self._refused.get(view.id)
        if refused is not None and refused[0] is view and part.peak >= refused[1]:
            return False
        spared = self._spared(job, view, at)
        if view.headroom_tokens - spared >= part.mean_bound + z * (view.headroom_sigma + part.sigma_bound):
            return True
        if view.in_flight == 0 and view.running <= 0:
            return True
        room = view.kv_capacity_tokens * (1.0 - self._spare) - spared
        spread = z * (math.sqrt(view.peak_var) + math.sqrt(part.peak_var))
        if view.peak_mean + part.peak + spread <= room:
            return True
        replica = self._fleet.replicas[view.id]
        _, kv, kv_var = self._fleet.viewing.foreign(replica, at) or (0, 0.0, 0.0)
        if replica.account.curve.fits(part, room - kv, kv_var, z):
            return True
        if not spared:
            self._refused[view.id] = (view, part.peak)
        return False

    def may_fit(self, job: Job, view: ReplicaView) -> bool:
        """Whether the replica's forecast peak would stay within its pool with as little as the request may need. For
        one whose forecast cannot be right: if it is longer, the engine says so, or lets it wait for those it has."""
        peak = view.peak_mean + self._z * math.sqrt(view.peak_var)
        return 0.0 < peak + job.at_least <= view.kv_capacity_tokens * (1.0 - self._spare)

    def _spared(self, job: Job, view: ReplicaView, at: float) -> float:
        """KV tokens that are not for this request: what is late takes only what others leave. (Whoever has begun goes
        on as soon as it can, and so does what matters more than most.)"""
        late = self._orders and job.due is not None and job.due < at
        late = late and not job.generated and job.request.tier < _HIGH
        return self.config.late_spare * view.kv_capacity_tokens if late else 0.0

    def forget(self, replica_id: ReplicaId) -> None:
        """The replica is gone."""
        self._refused.pop(replica_id, None)
        if self.pace is not None:
            self.pace.forget(replica_id)


def unpaced(job: Job) -> bool:
    """Whether a request goes although others are to have a rest: it is urgent, or its client waits in the middle of an
    answer whose replica died."""
    return job.failovers > 0 or job.request.tier >= _HIGH


def expired(request_id: RequestId) -> Reject:
    """The client's deadline has passed, before or while it waited."""
    return Reject(request_id, 504, "deadline", "the deadline of the request has passed", shed=True)
