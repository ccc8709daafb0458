"""Which running requests should move, and why: the decision tree of algorithms section 7, twice a second.

The first reason that holds for a model decides: a replica that is to be emptied, an urgent request that fits nowhere,
memory about to overflow, steps that miss the TPOT objective where others keep it, and a lasting imbalance. What wants
no prefill is done at once: where requests go out unchecked, those that wait in an engine's own queue for memory are
recalled, and whoever matters less gives way to an urgent one. Each move for memory or latency must be worth it, and one
for balance must last (worth).

Bounds keep moves from chasing each other: one in and one out per replica, an eighth of the fleet at once, a cooldown
per request, a share of the fleet's prefill. Nothing moves while a replica warms up. How a request moves is not known
here (migration), nor who gives way (clearing).
"""

import math
from collections.abc import Iterator, Sequence
from typing import Final

from headway.core.clearing import surplus, victims
from headway.core.commands import Command, SetTimer
from headway.core.constants import MigrationConfig, SloConfig
from headway.core.emptying import expected
from headway.core.entries import Job, Plan
from headway.core.entry import Entry
from headway.core.fleet import Fleet
from headway.core.freeness import SCARCE, freeness
from headway.core.holding import Holding
from headway.core.ids import ReplicaId
from headway.core.migration import Migration
from headway.core.pool import Pool
from headway.core.request import RequestInfo
from headway.core.scheduler import Scheduler
from headway.core.snapshot import Emptying
from headway.core.standing import Replica
from headway.core.strain import Strain
from headway.core.tenancy import Bucket
from headway.core.tenant import Tier
from headway.core.view import ReplicaView
from headway.core.worth import Worth, holds, step_s

TIMER: Final = "rebalance:"

IMMINENT_S, IMMINENT = 1.0, 0.5
"""A pool that will rather overflow than not within so many seconds, while nobody has room, lets somebody go: its engine
would preempt one anyway, and might take one that matters more."""

URGENT_S: Final = 0.05
"""When an urgent request has to wait, replicas are compared at once, but not more often than this."""


class Strategy:
    """Thresholds by name: shares of the TPOT objective from which a replica is too slow and below which one may take
    over, the imbalance of KV use that is mended (over so many ticks), and the overflow that is not tolerated."""

    __slots__ = ("gap", "overflow", "slow", "spare", "ticks")

    def __init__(self, slow: float, spare: float, gap: float, ticks: int, overflow: float) -> None:
        self.slow = slow
        self.spare = spare
        self.gap = gap
        self.ticks = ticks
        self.overflow = overflow


STRATEGIES: Final[dict[str, Strategy]] = {
    "balanced": Strategy(slow=math.inf, spare=0.0, gap=0.25, ticks=1, overflow=1.0),
    "latency": Strategy(slow=0.85, spare=0.70, gap=0.35, ticks=3, overflow=1.0),
    "throughput": Strategy(slow=1.20, spare=0.85, gap=0.20, ticks=2, overflow=0.5),
    "plain": Strategy(slow=0.70, spare=0.0, gap=1.0, ticks=3, overflow=0.0),
    "freeness": Strategy(slow=math.inf, spare=0.0, gap=1.0, ticks=3, overflow=0.0),
}
"""`overflow` multiplies the setting of that name. "balanced" makes no moves for latency: they cost .5 points of goodput
where they were most frequent (docs/migration.md). "plain": where steps take 35 ms (.7 of the default objective) and
memory is 85 % full, evict what matters least; else leave everything alone. "freeness": as Llumnix, from the least to
the most free, for comparison."""

PLAIN_FULL: Final = 0.85


class Rebalance:
    """Looks at all pools from time to time, and has requests moved."""

    def __init__(
        self,
        config: MigrationConfig,
        slo: SloConfig,
        fleet: Fleet,
        scheduler: Scheduler,
        holding: Holding,
        migration: Migration,
    ) -> None:
        self._config = config
        self._tpot_s = slo.tpot_s
        self._strategy = STRATEGIES[config.strategy]
        self._fleet = fleet
        self._scheduler = scheduler
        self._holding = holding
        self._migration = migration
        self._worth = Worth(config, fleet, scheduler, holding, migration)
        self._due, self._looked_at = False, -math.inf
        self._uneven: dict[str, int] = {}
        self._preemptions: dict[ReplicaId, tuple[int, float]] = {}
        self._replay: dict[str, Bucket] = {}
        self._names: list[str] = []  # of the pool that is looked at
        self._recalls = config.strategy not in ("freeness", "plain")
        self._reasons = (
            (self._drain, self._freeness)
            if config.strategy == "freeness"
            else (self._drain, self._plain)
            if config.strategy == "plain"
            else (self._drain, self._urgent, self._memory, self._latency, self._balance)
        )

    def arrived(self, job: Job, at: float, out: list[Command]) -> None:
        """A request came: look again in a moment, or at once if it is urgent and has to wait."""
        if job.held and job.request.tier >= Tier.HIGH and self._config.enabled:
            self._due = True
            out.append(SetTimer(TIMER, max(at, self._looked_at + URGENT_S)))
        else:
            self._watch(at, out)

    def _watch(self, at: float, out: list[Command]) -> None:
        if self._config.enabled and not self._due:
            self._due = True
            out.append(SetTimer(TIMER, at + self._config.tick_s))

    def timer(self, at: float, out: list[Command]) -> None:
        """Look at every pool. Nothing is looked at while nothing runs."""
        self._due, self._looked_at = False, at
        if not self._fleet.ledger.entries:
            return
        self._scheduler.refresh(at, out)
        self._forget()
        alike: dict[tuple[ReplicaId, ...], list[Pool]] = {}
        for pool in self._scheduler.pools.values():
            alike.setdefault(tuple(replica.id for replica in pool.replicas), []).append(pool)
        for members, pools in alike.items():
            if len(members) > 1:
                self._names = [pool.model for pool in pools]
                self._mend(pools[0], at, out)
        self._watch(at, out)

    def _forget(self) -> None:
        """Whoever has left is counted no longer: each registration has an id of its own."""
        pools = self._scheduler.pools
        self._preemptions = {name: seen for name, seen in self._preemptions.items() if name in self._fleet.replicas}
        self._uneven = {name: ticks for name, ticks in self._uneven.items() if name in pools}
        self._replay = {name: bucket for name, bucket in self._replay.items() if name in pools}

    def asked(self, request: RequestInfo, entry: Entry, target: ReplicaId) -> Plan | str:
        """What an operator wants moved: the plan, or why it cannot be. How often and how lately it was moved is the
        operator's business."""
        if not self._config.enabled:
            return "migration is off"
        hindrance = "it runs there" if target == entry.replica_id else self._migration.hindrance(entry)
        if hindrance:
            return hindrance
        pool = self._scheduler.pools.get(request.model)
        views = self._worth.targets(pool, entry) if pool is not None else []
        views = [view for view in views if not target or view.id == target]
        if not views:
            return "no other replica can go on with it"
        best = min(views, key=lambda view: self._worth.done_s(entry, view))
        return Plan(entry, best, "operator", self._worth.replayed(entry, best))

    def emptying(self, views: Sequence[ReplicaView]) -> tuple[Emptying, ...]:
        """When those that are drained will be empty."""
        return tuple(self._emptying(view) for view in views if view.draining)

    def _emptying(self, view: ReplicaView) -> Emptying:
        entries = list(self._fleet.replicas[view.id].account.entries.values())
        moves, costs = [], []
        for entry in entries if self._config.enabled and not self._config.dry_run else ():
            pool = self._scheduler.pools.get(entry.request.model)
            targets = self._worth.targets(pool, entry, there=True) if pool is not None else []
            if entry.request.resumable and targets:
                moves.append(entry)
                costs.append(min(self._worth.move_s(entry, target) for target in targets))
        ticks = math.ceil(sum(costs) / len(costs) / self._config.tick_s) if costs else 1
        stay = [entry for entry in entries if entry not in moves]
        return expected(self._fleet.length, view.id, stay, moves, step_s(view), ticks * self._config.tick_s)

    # -- the tree ----------------------------------------------------------------------------------------------

    def _mend(self, pool: Pool, at: float, out: list[Command]) -> None:
        if self._recalls and self._holding.unchecked:
            self._recall(pool, at, out)
        members = {replica.id for replica in pool.replicas}
        busy = sum(move.source in members for move in self._migration.under_way)
        budget = max(1, int(len(members) * self._config.fleet_share)) - busy
        for plan in self._plans(pool, at):
            if budget < 1 and plan.reason != "urgent":
                return
            if not self._afford(plan, pool, at):
                continue
            self._migration.begin(plan, at, out)
            self._scheduler.refresh(at, out)
            budget -= plan.reason != "urgent"  # all who make room for one go at once, or it would be filled again

    def _recall(self, pool: Pool, at: float, out: list[Command]) -> None:
        """A pool will overflow once all are let in that wait in its engine: those who are too many wait with us, where
        they go as soon as there is room anywhere. It costs nothing but their place."""
        limit = self._config.overflow * self._strategy.overflow
        for replica, view in _standing(pool):
            count = round(view.waiting)
            if not count:
                continue
            waiting = [entry for entry in replica.account.entries.values() if self._migration.may_recall(entry)]
            waiting = sorted(waiting, key=lambda entry: (entry.dispatched_at, entry.attempt_id))[-count:]
            for entry in surplus(self._worth.strain(replica, at), waiting, limit):
                self._migration.recall(entry, "memory", at, out)

    def _plans(self, pool: Pool, at: float) -> Iterator[Plan]:
        """Moves worth making, for the first reason there is."""
        if any(replica.health.ramp_from is not None and view.slow_start < 1.0 for replica, view in _standing(pool)):
            yield from self._drain(pool, at)
            return
        for reason in self._reasons:
            found = False
            for plan in reason(pool, at):
                found = True
                yield plan
            if found:
                return

    def _drain(self, pool: Pool, at: float) -> Iterator[Plan]:
        """A replica is to be emptied: whoever has most left goes first, for the others may end by themselves."""
        for replica, view in _standing(pool):
            if view.draining:
                for entry in sorted(self._worth.movable(replica, at), key=_outstanding, reverse=True):
                    target = self._worth.cheapest(pool, entry, at)
                    if target is not None:
                        yield Plan(entry, target, "drain", self._worth.replayed(entry, target))
                        break

    def _memory(self, pool: Pool, at: float) -> Iterator[Plan]:
        """A pool is about to overflow, or has just done so."""
        limit = self._config.overflow * self._strategy.overflow
        for replica, view in _standing(pool):
            strain = self._worth.strain(replica, at)
            preempted = self._preempted(replica, view, at)
            if preempted or strain.overflow() > limit:
                best = self._worth.best(pool, strain, at, "memory")
                if best is not None:
                    yield best
                elif Strain(self._fleet, replica, IMMINENT_S, at).overflow() > IMMINENT and self._full(pool, replica):
                    yield from self._least(replica, at, Tier.CRITICAL, "memory")

    def _full(self, pool: Pool, replica: Replica) -> bool:
        """Whether nobody else has room even for the smallest of a replica's requests."""
        least = min((entry.share.peak for entry in replica.account.entries.values()), default=0.0)
        return all(view.headroom_tokens < least for view in pool.candidates if view.id != replica.id)

    def _plain(self, pool: Pool, at: float) -> Iterator[Plan]:
        for replica, view in _standing(pool):
            full = view.kv_used_tokens > PLAIN_FULL * view.kv_capacity_tokens > 0
            if full and step_s(view) > self._strategy.slow * self._tpot_s:
                yield from self._least(replica, at, Tier.STANDARD, "plain")

    def _latency(self, pool: Pool, at: float) -> Iterator[Plan]:
        """Steps take too long somewhere, and not somewhere else."""
        standing = _standing(pool)
        quick = any(step_s(view) < self._strategy.spare * self._tpot_s for _, view in standing)
        for replica, view in standing if quick else ():
            if step_s(view) > self._strategy.slow * self._tpot_s:
                best = self._worth.best(pool, self._worth.strain(replica, at), at, "latency")
                if best is not None and best.target is not None and step_s(best.target) < step_s(view):
                    yield best

    def _urgent(self, pool: Pool, at: float) -> Iterator[Plan]:
        """Somebody important fits nowhere: make room by a move if there is room in all, else by evictions. One look
        makes room for one: the first for whom it can be made, whatever name or precision it asked for."""
        heads = [head for name in self._names for head in self._holding.blocked(name, Tier.HIGH)]
        for head in sorted(heads, key=_precedence):
            request = head.request
            views = self._holding.places(
                head, self._scheduler.pools[request.model].reaching(request.precision_floor), at
            )
            if not views or any(self._holding.fits(head, view, at) for view in views):
                continue  # it is not memory that it waits for
            plans = [*self._room_for(head, views, at)] or [*self._room_by_moving(head, views, pool, at)]
            if plans:
                yield from plans
                return

    def _room_for(self, head: Job, views: Sequence[ReplicaView], at: float) -> Iterator[Plan]:
        """Evict from one of these replicas what matters less than this request, as little as is enough for it."""
        least, chosen = (math.inf, math.inf), []
        for view in views:
            replica = self._fleet.replicas[view.id]
            below = [
                entry
                for entry in replica.account.entries.values()
                if entry.request.tier < head.request.tier
                and self._migration.may_move(entry, at)
                and self._migration.may_evict(entry)
            ]
            found = victims(self._fleet, replica, head, below, at)
            if found:
                lost = max(entry.request.tier for entry in found), sum(map(holds, found))
                if lost < least:
                    least, chosen = lost, found
        if chosen:
            self._holding.keep_for(head, chosen[0].replica_id)
        for entry in chosen:
            yield Plan(entry, None, "urgent")

    def _room_by_moving(self, head: Job, views: Sequence[ReplicaView], pool: Pool, at: float) -> Iterator[Plan]:
        """One move away from the roomiest of these replicas that is enough, if there is room in all: the smallest."""
        roomy = max(views, key=lambda view: (view.headroom_tokens, view.id))
        replica, missing = self._fleet.replicas[roomy.id], head.part.peak - roomy.headroom_tokens
        if sum(max(0.0, view.headroom_tokens) for view in pool.candidates) <= head.part.peak:
            return
        for entry in sorted(self._worth.movable(replica, at), key=holds):
            target = self._worth.cheapest(pool, entry, at)
            if target is not None and holds(entry) >= missing:
                self._holding.keep_for(head, replica.id)
                yield Plan(entry, target, "urgent", self._worth.replayed(entry, target))
                return

    def _balance(self, pool: Pool, at: float) -> Iterator[Plan]:
        """Some are much fuller than others, and have been for a while: the largest that does not turn it round goes to
        the emptiest. Nobody goes while others wait, for whom every prefill counts."""
        uses = [
            (view.kv_used_tokens / view.kv_capacity_tokens, r, view)
            for r, view in _standing(pool)
            if view.kv_capacity_tokens
        ]
        if len(uses) < 2 or self._holding.waiting(pool.model):
            return
        (low, _, _), (high, fullest, view) = min(uses, key=_use), max(uses, key=_use)
        name = pool.model
        self._uneven[name] = self._uneven.get(name, 0) + 1 if high - low > self._strategy.gap else 0
        if self._uneven[name] < self._strategy.ticks:
            return
        gap = (high - low) * view.kv_capacity_tokens
        small = [entry for entry in self._worth.movable(fullest, at) if gap - 2.0 * holds(entry) > 0.0]
        for entry in sorted(small, key=holds, reverse=True):
            targets = [target for target in self._worth.roomy(pool, entry, at) if self._worth.lasts(entry, target)]
            if targets:
                target = min(targets, key=_fullness)
                yield Plan(entry, target, "balance", self._worth.replayed(entry, target))
                return

    def _freeness(self, pool: Pool, at: float) -> Iterator[Plan]:
        """From the least free, if its requests have hardly room to grow, to the most free: the shortest, for it costs
        least. Its new place must stay freer than its old one was, and not become scarce itself."""
        standing = [(freeness(view), replica) for replica, view in _standing(pool) if view.kv_capacity_tokens]
        least, source = min(standing, key=_freedom, default=(math.inf, None))
        if source is None or least >= SCARCE:
            return
        for entry in sorted(self._worth.movable(source, at), key=holds)[:1]:
            best = max(self._worth.targets(pool, entry), key=freeness, default=None)
            if best is not None and freeness(best, holds(entry)) > max(least, SCARCE):
                yield Plan(entry, best, "balance", self._worth.replayed(entry, best))

    def _least(self, replica: Replica, at: float, tier: int, reason: str) -> Iterator[Plan]:
        """Evict what matters least of those below a tier; of equals what has come least far, for it loses least."""
        below = [e for e in self._worth.movable(replica, at) if e.request.tier < tier and self._migration.may_evict(e)]
        for entry in sorted(below, key=lambda e: (e.request.tier, e.base + e.generated, e.attempt_id))[:1]:
            yield Plan(entry, None, reason)

    def _afford(self, plan: Plan, pool: Pool, at: float) -> bool:
        """Whether the fleet's prefill has a share left for it."""
        if plan.reason in ("drain", "urgent") or not plan.replayed:
            return True
        rate = sum(view.speed.prefill_tokens_per_s for _, view in _standing(pool)) * self._config.replay_share
        if rate <= 0.0:
            return False
        bucket = self._replay.get(pool.model)
        if bucket is None:
            bucket = self._replay[pool.model] = Bucket(rate, 10.0 * rate, at)
        bucket.resize(rate, 10.0 * rate)
        if bucket.short_s(plan.replayed, at):
            return False
        bucket.take(plan.replayed)
        return True

    def _preempted(self, replica: Replica, view: ReplicaView, at: float) -> bool:
        """Whether its engine reported a preemption in the last two seconds."""
        total = view.sample.preemptions_total if view.sample is not None else None
        if total is None:
            return False
        known, since = self._preemptions.get(replica.id, (total, -10.0))
        if total > known:
            since = at
        self._preemptions[replica.id] = (total, since)
        return at - since <= 2.0


def _standing(pool: Pool) -> list[tuple[Replica, ReplicaView]]:
    return [(replica, replica.view) for replica in pool.replicas if replica.view is not None]


def _precedence(job: Job) -> tuple[int, float]:
    return -job.request.tier, job.arrived_at


def _outstanding(entry: Entry) -> tuple[int, str]:
    return entry.outstanding, entry.attempt_id


def _freedom(item: tuple[float, Replica]) -> tuple[float, ReplicaId]:
    return item[0], item[1].spec.id


def _use(item: tuple[float, Replica, ReplicaView]) -> tuple[float, ReplicaId]:
    return item[0], item[1].spec.id


def _fullness(view: ReplicaView) -> tuple[float, ReplicaId]:
    return view.kv_used_tokens / view.kv_capacity_tokens, view.id
