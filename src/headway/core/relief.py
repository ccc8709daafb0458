"""What is done about a pool in distress: whose turn it is to give way, told to those who can make them.

Levels are worked out elsewhere (`degrade`, `burst`, `restart`); here their figures are fetched, once a second while
there is anything to see, and what follows is asked of others: a queue drops who matters least, a body restarts an
engine. The brain asks what becomes of a request that arrives. One timer serves all models; nothing runs while nothing
comes and nothing is wrong.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Final

from headway.core.admission import Admission
from headway.core.commands import Command, Reject, SetTimer
from headway.core.constants import BrainConfig
from headway.core.degrade import Degrade, Level, saturation
from headway.core.entries import PLAIN, Terms
from headway.core.holding import Holding
from headway.core.ids import ReplicaId
from headway.core.plugin import Chance
from headway.core.pool import Pool
from headway.core.request import RequestInfo
from headway.core.restart import Restarts
from headway.core.scheduler import Scheduler
from headway.core.sessions import Sessions
from headway.core.snapshot import PoolState
from headway.core.standing import Replica
from headway.core.tenant import Tier
from headway.core.view import ReplicaView

TIMER: Final = "degrade:"

_WELL: Final = (False, "")

_WORDS: Final = {
    "shed": "the model is overloaded, and more important requests come first",
    "new_sessions_refused": "the model is overloaded, and serves only sessions that have begun",
}


class Relief:
    """The levels of all pools at work."""

    def __init__(
        self,
        replicas: Mapping[ReplicaId, Replica],
        scheduler: Scheduler,
        admission: Admission,
        holding: Holding,
        config: BrainConfig,
        chance: Chance,
    ) -> None:
        self._replicas = replicas
        self.degrade = Degrade(chance, config.degrade, config.burst)
        self._restarts = Restarts(config.restart)
        self._sessions = Sessions(config.sessions)
        self._scheduler = scheduler
        self._admission = admission
        self._holding = holding
        self._due = math.inf
        self._standing: dict[ReplicaId, tuple[bool, str]] = {}  # whoever is not well: ejected, dead

    # -- requests ----------------------------------------------------------------------------------------------

    def arrived(self, request: RequestInfo, at: float) -> tuple[RequestInfo, Terms]:
        """A request for a known model came: what becomes of it, and on which terms. It may have another model that
        answers instead, and a lower limit that a burst costs it."""
        degrade = self.degrade
        pool = degrade.arrived(request.model, at)
        if pool.raised is not Level.FALLBACK and not pool.burst:
            return request, PLAIN
        told: list[tuple[str, str]] = []
        asked = ""
        other = degrade.fallback(pool)
        if other in self._scheduler.pools and self._admission.tenancy.may_use(request.tenant, other):
            asked, request = request.model, request.changed(model=other)
            told.append(("x-headway-model", other))
            pool = degrade.arrived(other, at)
        curbs = degrade.curbs(pool, request)
        cap = degrade.cap(request) if curbs else 0
        if cap:
            request = request.changed(max_output_tokens=cap)
            told.append(("x-headway-max-tokens", str(cap)))
        if curbs:
            told.append(("x-headway-logprobs", "off"))
        return request, Terms(cap, not curbs, tuple(told), asked)

    def watch(self, at: float, out: list[Command]) -> None:
        """There is traffic: have the timer fire soon."""
        due = at + self.degrade.config.tick_s
        if due < self._due:
            self._due = due
            out.append(SetTimer(TIMER, due))

    def refuses(self, request: RequestInfo, at: float) -> Reject | None:
        """A refusal because the model is in distress, and this request must give way."""
        pool = self.degrade.pool(request.model)
        if pool.stage is Level.NORMAL and pool.latest <= self.degrade.config.shed_from:
            return None
        key = request.session_key
        known = not key or pool.stage is Level.NORMAL or self._sessions.known(request.tenant, key, at)
        why = self.degrade.refuses(pool, request, known)
        if not why:
            return None
        queue = self._admission.queue(self._scheduler.pools[request.model].reaching(request.precision_floor))
        return Reject(request.id, 503, why, _WORDS[why], queue.promise_s(at), shed=True)

    def served(self, request: RequestInfo, at: float) -> None:
        """A request goes to a replica: its session has begun."""
        if request.session_key and self.degrade.config.levels:
            self._sessions.seen(request.tenant, request.session_key, at)

    # -- what happens ------------------------------------------------------------------------------------------

    def moved(self, replica: Replica, at: float, out: list[Command]) -> None:
        """The health of a replica may have changed."""
        health = replica.health
        standing = (health.ejected, health.dead)
        name = replica.id
        if self._standing.get(name, _WELL) == standing:
            return
        if standing == _WELL:
            del self._standing[name]
        else:
            self._standing[name] = standing
        for pool in self._scheduler.pools_of(name):
            self._stand(pool, at, out)
        self._arm(self._revive(replica, at, out), out)

    def regrouped(self, at: float, out: list[Command]) -> None:
        """Replicas came or went."""
        self.degrade.keep(self._scheduler.pools, at, out)
        self._restarts.keep(self._replicas)
        self._standing = {name: each for name, each in self._standing.items() if name in self._replicas}
        for pool in self._scheduler.pools.values():
            self._stand(pool, at, out)

    def timer(self, at: float, out: list[Command]) -> None:
        """Look at every pool, and at every replica that is dead."""
        self._due = math.inf
        self._scheduler.refresh(at, out)
        next_look = math.inf
        for pool in self._scheduler.pools.values():
            if self._look(pool, at, out):
                next_look = at + self.degrade.config.tick_s
        for name in self._standing:
            next_look = min(next_look, self._revive(self._replicas[name], at, out))
        self._arm(next_look, out)

    def states(self, views: Sequence[ReplicaView], at: float) -> tuple[PoolState, ...]:
        """How every model fares, as these views of all replicas have it."""
        fresh = {view.id: view for view in views}
        return tuple(self._state(pool, fresh, at) for _, pool in sorted(self._scheduler.pools.items()))

    # -- steps -------------------------------------------------------------------------------------------------

    def _stand(self, pool: Pool, at: float, out: list[Command]) -> None:
        strained = self.degrade.pool(pool.model)
        strained.stands(pool.replicas, at, out)
        if strained.settling:
            self.watch(at, out)

    def _look(self, pool: Pool, at: float, out: list[Command]) -> bool:
        """Measure one pool. True if it must be looked at again soon."""
        strained = self.degrade.pool(pool.model)
        views = [replica.view for replica in pool.replicas if replica.view is not None and _at_work(replica)]
        began = strained.measured(self._saturation(views, pool.model, at), at, out)
        strained.stands(pool.replicas, at, out)
        if began and self.degrade.config.levels:
            self._holding.shed(pool.model, Tier.STANDARD, at, out)
        return strained.restless(at)

    def _saturation(self, views: Sequence[ReplicaView], model: str, at: float) -> float:
        admission = self._admission
        held, lost_s = admission.late and admission.config.hold, admission.config.lost_s
        return saturation(views, self._wait_s(model, at, lost_s), held, self.degrade.config)

    def _wait_s(self, model: str, at: float, lost_s: float = 0.0) -> float:
        """What one of STANDARD that comes now must expect: whoever matters less does not delay it."""
        lanes = self._admission.lanes(model)
        return max((queue.wait_of(Tier.STANDARD, at, lost_s) for queue in lanes), default=0.0)

    def _state(self, pool: Pool, fresh: Mapping[ReplicaId, ReplicaView], at: float) -> PoolState:
        strained = self.degrade.pools.get(pool.model)
        level, burst = (int(strained.level), strained.burst) if strained is not None else (0, False)
        queued = sum(len(queue) for queue in self._admission.lanes(pool.model))
        views = [fresh[replica.id] for replica in pool.replicas if _at_work(replica)]
        full = self._saturation(views, pool.model, at)
        return PoolState(pool.model, queued, level, burst, full, self._wait_s(pool.model, at))

    def _revive(self, replica: Replica, at: float, out: list[Command]) -> float:
        """Have it restarted if it is dead and nobody wants it to be. Returns when to look again."""
        dead = "" if replica.draining else replica.health.dead
        return self._restarts.look(replica.id, dead, at, out)

    def _arm(self, due: float, out: list[Command]) -> None:
        if due < self._due:
            self._due = due
            out.append(SetTimer(TIMER, due))


def _at_work(replica: Replica) -> bool:
    """Whether what it has says anything about its pool."""
    return not (replica.health.ejected or replica.draining)
