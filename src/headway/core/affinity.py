"""Which replica a session keeps to: its owner on the ring, or the next one while the owner has too much to do.

Nothing is kept per session: the owner follows from the key, and where a session goes meanwhile follows from who is
overloaded. So a session whose owner is ejected, drained, or was tried in vain is at the next one as long as that lasts,
and comes back afterwards; and two million session keys cost nothing.

A replica has too much to do when it is full, or when it has far more requests than its share of the mean (consistent
hashing with bounded loads: Mirrokni, Thorup and Zadimoghaddam, 2018). Being full ends at a lower mark than it begins,
or sessions would flap.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence

from headway.core.constants import AffinityConfig
from headway.core.demand import Demand
from headway.core.ids import ReplicaId
from headway.core.replica import ReplicaSpec
from headway.core.ring import Ring, place
from headway.core.view import ReplicaView

Refuses = Callable[[ReplicaView], str]
"""Why a replica cannot take a request now, empty if it can."""

Keeps = tuple[ReplicaId, bool]
"""A replica, and whether the request is so little to it that there is nothing to weigh."""


class Affinity:
    """The ring of one model's replicas, and who among them is full."""

    __slots__ = ("_config", "_full", "_ring", "_stale", "_weights")

    def __init__(self, config: AffinityConfig) -> None:
        self._config = config
        self._ring = Ring(config.points)
        self._weights: dict[ReplicaId, float] = {}
        self._stale = False
        self._full: set[ReplicaId] = set()

    def reset(self, specs: Iterable[ReplicaSpec]) -> None:
        """The membership changed. The ring is made when a session asks for it: there may be a pool for every alias."""
        self._weights = {spec.id: spec.weight for spec in specs}
        self._stale = True

    def keeps(self, demand: Demand, views: Sequence[ReplicaView], refuses: Refuses | None) -> Keeps | None:
        """Where a session keeps to: the first on its ring that is among the views (sorted by id), has not too much
        to do and does not refuse. None if there is nobody."""
        if self._stale:
            self._stale = False
            self._ring.reset(self._weights)
            self._full.intersection_update(self._weights)
        request, most = demand.request, -1.0
        for replica_id in self._ring.walk(place(request.tenant, request.session_key)):
            index = bisect_left(views, replica_id, key=_id)
            if index == len(views) or (view := views[index]).spec.id != replica_id or self._is_full(view):
                continue
            load = _load(view)
            easy = self._is_easy(demand, view, load)
            if not easy and load >= self._config.spare:
                most = most if most >= 0.0 else self._most(views)
                if load >= most * view.spec.weight:
                    continue
            if refuses is None or not refuses(view):
                return replica_id, easy
        return None

    def _is_easy(self, demand: Demand, view: ReplicaView, load: float) -> bool:
        """Whether the request will hardly be felt there: memory is no matter, its prefill starts and ends soon, and
        steps stay short. Where speeds are not known, whether there is hardly anybody."""
        config, speed, capacity = self._config, view.speed, view.kv_capacity_tokens
        if capacity and _used(view) + demand.prompt_tokens > config.easy_kv * capacity:
            return False
        if not speed.learned:
            return load < config.spare
        tokens = view.prefill_backlog_tokens + demand.prompt_tokens - demand.hits.get(view.id, 0)
        return (
            tokens <= config.easy_prefill_s * speed.prefill_tokens_per_s
            and speed.step_s(load + 1.0, view.context_tokens + demand.prompt_tokens) <= config.easy_step_s
        )

    def _is_full(self, view: ReplicaView) -> bool:
        """Whether its KV pool is used beyond `spill`, or was and has not fallen below `resume` since."""
        capacity, full = view.kv_capacity_tokens, self._full
        if not capacity:
            return False
        replica_id = view.id
        used = _used(view) / capacity
        if used > self._config.spill:
            full.add(replica_id)
        elif used < self._config.resume:
            full.discard(replica_id)
        return replica_id in full

    def _most(self, views: Sequence[ReplicaView]) -> float:
        """Requests from which on a replica of weight 1 has too many: the bound times the mean, the new one included."""
        total, weight = 1.0, 0.0
        for view in views:
            total += _load(view)
            weight += view.spec.weight
        return self._config.bound * total / weight


def _used(view: ReplicaView) -> float:
    return view.kv_used_tokens + view.prefill_backlog_tokens


def _id(view: ReplicaView) -> ReplicaId:
    return view.id


def _load(view: ReplicaView) -> float:
    """Requests there: by its report, if that can be trusted, else those that we have sent."""
    return float(view.in_flight) if view.stale else view.running + view.waiting
