"""Which replicas of a model may be used now: filters by reason, fallbacks, panic.

Per model a `Pool` keeps the views of the replicas that may be used, patched as views change, so that a decision costs
what changed plus what the policy does. Filters are in order of strength: what may never be used (draining, asleep, at
its limit), what is used only if nothing better is left (backpressure, slow start, pending, ejected). If more than half
of a model's replicas are ejected, the reachable ones among them are used again (panic): such a verdict says more about
us or the load than about them. So the last replica is never ejected. A refused connection is no such verdict, and those
stay out while anything else is there.

Where the replicas of a model differ in precision, those that reach a floor are a pool of their own below that of the
model, with fallbacks of its own: requests are given to the pool that suffices, and pay nothing for the distinction. Who
of a pool takes a request is not known here (scheduler).
"""

from typing import Final

from headway.core.affinity import Affinity
from headway.core.constants import AffinityConfig, SchedulerConfig
from headway.core.entries import Job
from headway.core.health import Phase
from headway.core.ids import ReplicaId
from headway.core.precision import FLOORS
from headway.core.rollout import Rollout
from headway.core.standing import Replica
from headway.core.variants import Variants
from headway.core.view import ReplicaView

_CLOSED: Final = Phase.CLOSED  # looked up once: members of an enum are slow to get at, and this is asked per request

SPARED: Final = ("backpressure", "slow_start")
"""Reasons that only ask to prefer others."""

FALLBACKS: Final = (SPARED, ("pending",), ("ejected",), ("unreachable",))
"""Who is used when nobody better is left, in this order."""


def reason(replica: Replica, config: SchedulerConfig, at: float) -> str:
    """Why a replica should not be used, empty if it may."""
    view, health = replica.view, replica.health
    assert view is not None
    if view.draining:
        return "draining"
    if view.sleeping:
        return "sleeping"
    if config.max_in_flight and view.in_flight >= config.max_in_flight:
        return "at_limit"
    if health.phase is not _CLOSED:
        if health.phase is Phase.PENDING:
            return "pending"
        if health.ejected:
            return "unreachable" if health.unreachable else "ejected"
    if health.avoid_until > at:
        return "backpressure"
    if view.slow_start < 1.0 and _over_ramp(view, config):
        return "slow_start"
    return ""


def _over_ramp(view: ReplicaView, config: SchedulerConfig) -> bool:
    if not view.kv_capacity_tokens:
        return view.in_flight >= max(1.0, config.slow_start_requests * view.slow_start)
    promised = view.kv_used_tokens + view.prefill_backlog_tokens + view.reserved_tokens
    seats = view.max_num_seqs or config.slow_start_seats
    return view.in_flight > 0 and (
        promised >= view.kv_capacity_tokens * view.slow_start or view.in_flight >= seats * view.slow_start
    )


class Pool:
    """The replicas of one model, and the views of those that may be used now (sorted by id). `above`: pools of those
    that reach a precision that not all of them do, by its `rank` (0: the pool of all). `lane` is the name of its queue.
    Pools of one `group` share replicas, directly or by way of others."""

    __slots__ = (
        "_config",
        "_index",
        "_slots",
        "above",
        "affinity",
        "candidates",
        "exclusions",
        "group",
        "lane",
        "longest",
        "model",
        "panic",
        "rank",
        "replicas",
        "rollout",
        "saturated",
        "settled",
        "shortest",
        "variants",
    )

    def __init__(self, model: str, config: SchedulerConfig, affinity: AffinityConfig, rank: int = 0) -> None:
        self.model = model
        self.rank = rank
        self.lane = f"{FLOORS[rank]}|{model}" if rank else model
        self.group = 0
        self.affinity = Affinity(affinity) if affinity.enabled else None
        self._config = config
        self.variants = Variants()
        self.rollout = Rollout(config.rollout_per_minute, config.rollout_grace_s)
        self.above: dict[int, Pool] = {}
        self.replicas: list[Replica] = []
        self.candidates: list[ReplicaView] = []
        self.exclusions: dict[str, int] = {}
        self.panic = False
        self.saturated = False  # some would do but are at their limit
        self.shortest = 0  # context limits (tokens) of its replicas, the least and the largest; 0 unknown
        self.longest = 0
        self.settled = False
        self._index: dict[ReplicaId, int] = {}
        self._slots: dict[ReplicaId, str] = {}

    def patch(self, replica: Replica, why: str) -> None:
        """A view changed. If its reason did not, only the view is replaced."""
        replica_id, view = replica.id, replica.view
        if self.settled and self._slots[replica_id] == why:
            if view is not None and replica_id in self._index:
                self.candidates[self._index[replica_id]] = view
        else:
            self._slots[replica_id] = why
            self.settled = False

    def arrange(self) -> None:
        """Choose candidates afresh. Every replica has a view and a reason."""
        groups: dict[str, list[Replica]] = {}
        for replica in self.replicas:
            groups.setdefault(self._slots[replica.id], []).append(replica)
        chosen = groups.pop("", [])
        ejected, lost = len(groups.get("ejected", ())), len(groups.get("unreachable", ()))
        judged = sum(len(g) for why, g in groups.items() if why not in ("draining", "sleeping", "pending"))
        self.panic = ejected + lost > self._config.panic * (judged + len(chosen))
        if self.panic:
            chosen = chosen + groups.pop("ejected", [])
        self.saturated = "at_limit" in groups
        for fallback in FALLBACKS:
            if chosen or self.saturated:
                break
            chosen = [r for why in fallback for r in groups.pop(why, [])]
        self.candidates = [r.view for r in sorted(chosen, key=_by_id) if r.view is not None]
        self._index = {view.id: i for i, view in enumerate(self.candidates)}
        self.exclusions = {why: len(group) for why, group in sorted(groups.items())}
        limits = [context_limit(r) for r in self.replicas]
        self.shortest = min(filter(None, limits), default=0)
        self.longest = max(limits) if limits and all(limits) else 0
        self.settled = True

    def reset(self, replicas: list[Replica]) -> None:
        """The membership changed."""
        self.replicas = sorted(replicas, key=_by_id)
        self._slots = {r.id: self._slots.get(r.id, "pending") for r in self.replicas}
        if self.affinity is not None:
            self.affinity.reset(r.spec for r in self.replicas)
        self.settled = False

    def reaching(self, floor: str) -> "Pool":
        """The pool for requests with this precision floor (as `precision.floor` has it, or empty)."""
        return self.from_rank(self.variants.needs(floor))

    def from_rank(self, rank: int) -> "Pool":
        """The pool of those that reach this rank."""
        if rank <= self.variants.lowest:
            return self
        for each, pool in self.above.items():
            if each >= rank:
                return pool
        nobody = Pool(self.model, self._config, AffinityConfig(enabled=False), rank)  # whoever reached it has left
        nobody.group = self.group
        return nobody

    def candidate(self, replica_id: ReplicaId) -> ReplicaView | None:
        """The view of a replica that may be used now."""
        index = self._index.get(replica_id)
        return None if index is None else self.candidates[index]

    def reason_of(self, replica_id: ReplicaId) -> str:
        """Why a member is not preferred, empty if it is."""
        return self._slots.get(replica_id, "")


def _by_id(replica: Replica) -> ReplicaId:
    return replica.id


def context_limit(replica: Replica) -> int:
    """Most tokens one request can have at a replica, 0 if unknown."""
    known = [limit for limit in (replica.spec.max_model_tokens, replica.capacity) if limit]
    return min(known, default=0)


def suits(replica: Replica, job: Job) -> bool:
    """Whether a replica can take a request at all: it is large enough and, for one that has begun elsewhere, would say
    what was to come there."""
    alike = job.left is None or replica.spec.make == job.left.make
    return alike and not 0 < context_limit(replica) < job.at_least
