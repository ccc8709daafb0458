"""What moving one running request would be worth: who may go, where to, what it gains and what it costs.

A move is worth it if its benefit exceeds its cost by a margin, both in request-seconds:

    benefit = dp_overflow x cost of a preemption + steps saved at the source - steps lost at the target
    cost    = stall + prefill for itself, for all who are held, and for all who decode at the target + 2 % of its rest

A prefill is only cheap where nobody waits for one: targets that have prompts to prefill are none, unless a replica must
be emptied. Whether anything should move at all is not known here (rebalance).
"""

from headway.core.constants import MigrationConfig
from headway.core.entries import Plan
from headway.core.entry import Entry
from headway.core.fleet import Fleet
from headway.core.holding import Holding
from headway.core.ids import ReplicaId
from headway.core.migration import Migration, needs
from headway.core.pool import Pool, context_limit
from headway.core.scheduler import Scheduler
from headway.core.standing import Replica
from headway.core.strain import Strain
from headway.core.view import ReplicaView

STALL_S = 0.05
"""What the client notices of a cut: one prefill of what is cached already (25 to 34 ms measured), and one step."""

SAFE_OVERFLOW = 0.05
"""A target must stay below this with the request."""


LASTING_S = 10.0
"""Imbalance is not mended by those who have less than this to say: it would be back at once."""


class Worth:
    """Judges moves; changes nothing."""

    def __init__(
        self, config: MigrationConfig, fleet: Fleet, scheduler: Scheduler, holding: Holding, migration: Migration
    ) -> None:
        self._config = config
        self._fleet = fleet
        self._scheduler = scheduler
        self._holding = holding
        self._migration = migration

    def strain(self, replica: Replica, at: float) -> Strain:
        """How likely its pool overflows as far ahead as is looked."""
        return Strain(self._fleet, replica, self._config.horizon_s, at)

    def best(self, pool: Pool, strain: Strain, at: float, reason: str) -> Plan | None:
        """The move from a replica that gains most, if any is worth it."""
        best: Plan | None = None
        for entry in sorted(self.movable(strain.replica, at), key=holds, reverse=True)[:8]:
            target = min(self.roomy(pool, entry, at), key=lambda view: self._soonest(entry, view), default=None)
            if target is None:
                continue
            plan = self._worth(entry, strain, target, reason, at)
            if plan is not None and (best is None or plan.benefit_s - plan.cost_s > best.benefit_s - best.cost_s):
                best = plan
        return best

    def movable(self, replica: Replica, at: float) -> list[Entry]:
        """Who may leave a replica now; nobody while somebody does."""
        if any(move.source == replica.id for move in self._migration.under_way):
            return []
        return [entry for entry in replica.account.entries.values() if self._migration.may_move(entry, at)]

    def targets(self, pool: Pool, entry: Entry, there: bool = False) -> list[ReplicaView]:
        """Replicas on which it would go on as where it is: of the same make, with its adapter, if it has one, and room
        for all it may say. Of those that nobody moves to now, or all that are `there`."""
        taken = () if there else {move.target for move in self._migration.under_way}
        replicas = self._fleet.replicas
        source, spec = replicas.get(entry.replica_id), entry.spec
        if source is None or spec is None:
            return []
        least = needs(entry, entry.base + entry.generated, context_limit(source))
        return [
            view
            for view in pool.candidates
            if view.id != source.id
            and view.id not in taken
            and view.slow_start >= 1.0
            and view.spec.make == spec.make
            and entry.request.model in view.spec.names
            and not 0 < context_limit(replicas[view.id]) < least
        ]

    def cheapest(self, pool: Pool, entry: Entry, at: float) -> ReplicaView | None:
        """Where it will be done soonest, of those that have room for it."""
        fits = [view for view in self.targets(pool, entry) if self._fits(entry, view, at)]
        return min(fits, key=lambda view: self._soonest(entry, view), default=None)

    def roomy(self, pool: Pool, entry: Entry, at: float) -> list[ReplicaView]:
        """Those who have room for it, and nothing to prefill."""
        return [
            view
            for view in self.targets(pool, entry)
            if view.prefill_backlog_tokens <= 0.0 and view.waiting <= 0.0 and self._fits(entry, view, at)
        ]

    def lasts(self, entry: Entry, target: ReplicaView) -> bool:
        """Whether it will stay long enough where it goes for that to make a difference."""
        left = entry.outstanding * step_s(target)
        return left >= max(LASTING_S, self._config.remaining * (self._prefill_s(entry, target) + STALL_S))

    def done_s(self, entry: Entry, view: ReplicaView) -> float:
        """How long a request would take at a replica from now on."""
        step = view.speed.step_s(view.running + 1.0, view.context_tokens + holds(entry))
        return self._prefill_s(entry, view) + max(1, entry.outstanding) * step

    def move_s(self, entry: Entry, view: ReplicaView) -> float:
        """How long a move takes, from the order to the cut."""
        return self._prefill_s(entry, view) + STALL_S

    def replayed(self, entry: Entry, view: ReplicaView) -> int:
        """Tokens to be prefilled at the target."""
        return max(1, holds(entry) - entry.demand.hit(view.id))

    def _worth(self, entry: Entry, strain: Strain, target: ReplicaView, reason: str, at: float) -> Plan | None:
        there = self.strain(self._fleet.replicas[target.spec.id], at)
        risked = there.overflow(more=entry.share) - there.overflow()
        benefit = strain.relief(entry.share) * strain.preemption_s() + strain.step_gain_s(entry)
        benefit -= risked * there.preemption_s() + there.step_gain_s(entry, coming=True)
        left = entry.outstanding * step_s(target)
        prefill = self._prefill_s(entry, target)
        delayed = 1.0 + self._kept_waiting(entry) + target.running
        cost = STALL_S + prefill * delayed + 0.02 * left
        if benefit <= self._config.margin * cost or left <= self._config.remaining * (prefill + STALL_S):
            return None
        return Plan(entry, target, reason, self.replayed(entry, target), benefit, cost)

    def _fits(self, entry: Entry, view: ReplicaView, at: float) -> bool:
        strain = self.strain(self._fleet.replicas[view.id], at)
        return strain.overflow(more=entry.share) <= SAFE_OVERFLOW

    def _soonest(self, entry: Entry, view: ReplicaView) -> tuple[float, ReplicaId]:
        return self.done_s(entry, view), view.id

    def _prefill_s(self, entry: Entry, view: ReplicaView) -> float:
        return (view.prefill_backlog_tokens + self.replayed(entry, view)) / view.speed.prefill_tokens_per_s

    def _kept_waiting(self, entry: Entry) -> float:
        """How many wait for prefill behind the one of a move: those who are held, per replica."""
        model = entry.request.model
        return self._holding.waiting(model) / max(1, len(self._scheduler.pools[model].replicas))


def holds(entry: Entry) -> int:
    """Tokens of the pool that a running request has, and that would have to be computed again."""
    return entry.prompt + entry.generated


def step_s(view: ReplicaView) -> float:
    """Seconds of a decode step as it is."""
    return view.speed.step_s(max(1.0, view.running), view.context_tokens)
