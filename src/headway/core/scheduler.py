"""Who takes a request: the policy's ranking among those of a pool that may, one pick, and the Decision.

The policy never sees an excluded replica and never chooses; among costs within its tolerance, chance does. Who may be
used at all is the pool's business. Of replicas that differ in version, the new ones are closed while they have had
their share (rollout).
"""

import heapq
import math
from collections.abc import Callable, Iterable, Sequence

from headway.core.affinity import Keeps, Refuses
from headway.core.commands import Command, HealthChanged, Record
from headway.core.constants import AffinityConfig, SchedulerConfig
from headway.core.decision import Candidate, Decision, Forecast
from headway.core.demand import Demand
from headway.core.entries import Choice, Job
from headway.core.fleet import Fleet
from headway.core.ids import ReplicaId
from headway.core.plugin import Chance, Policy
from headway.core.pool import FALLBACKS, Pool, context_limit, reason, suits
from headway.core.replica import ReplicaSpec
from headway.core.request import RequestInfo
from headway.core.ring import CIRCLE, place
from headway.core.standing import Replica
from headway.core.variants import Variants
from headway.core.view import ReplicaView

Avoid = Callable[[ReplicaId, str], str]
"""Given a replica and why it is not preferred, a reason against it for one request, or nothing."""


def _more(exclusions: dict[str, int], why: str, count: int) -> dict[str, int]:
    """The same and so many for this reason."""
    return {**exclusions, why: exclusions.get(why, 0) + count} if count else exclusions


def _by_hit(item: tuple[ReplicaId, int]) -> tuple[int, ReplicaId]:
    return item[1], item[0]


class Scheduler:
    """Pools by the model names clients use, and the choice among a pool's candidates."""

    def __init__(
        self,
        fleet: Fleet,
        policy: Policy,
        chance: Chance,
        config: SchedulerConfig | None = None,
        affinity: AffinityConfig | None = None,
        others: Sequence[Policy] = (),
    ) -> None:
        """`others`: policies that requests may ask for by name."""
        self._fleet = fleet
        self._chance = chance
        self._config = c = config or SchedulerConfig()
        self._considered, self._shown = c.considered, c.candidates
        self._affinity = affinity or AffinityConfig()
        self.policy = policy
        self.policies = {each.name: each for each in (*others, policy)}
        self.pools: dict[str, Pool] = {}
        self._listed: dict[str, Variants] = {}
        self._member: dict[ReplicaId, tuple[Pool, ...]] = {}
        self._serves: dict[ReplicaId, tuple[Pool, ...]] = {}
        self._regrouped = False

    def regroup(self, at: float) -> None:
        """Replicas were added, changed or removed: sort them into pools by the names they serve."""
        groups: dict[str, list[Replica]] = {}
        for replica in self._fleet.replicas.values():
            for name in replica.spec.names:
                groups.setdefault(name, []).append(replica)
        for gone in [name for name in self.pools if name not in groups]:
            del self.pools[gone]
        member: dict[ReplicaId, list[Pool]] = {}
        serves: dict[ReplicaId, list[Pool]] = {}
        for name, replicas in groups.items():
            pool = self.pools.get(name) or Pool(name, self._config, self._affinity)
            self.pools[name] = pool
            pool.reset(replicas)
            pool.rollout.reset((r.spec.version for r in replicas), at)
            self._separate(pool)
            for replica in replicas:
                serves.setdefault(replica.id, []).append(pool)
            for each in (pool, *pool.above.values()):
                for replica in each.replicas:
                    member.setdefault(replica.id, []).append(each)
        self._member = {replica_id: tuple(pools) for replica_id, pools in member.items()}
        self._serves = {replica_id: tuple(pools) for replica_id, pools in serves.items()}
        _connect(self._serves.values())
        self._regrouped = True

    def sent(self, request: RequestInfo, spec: ReplicaSpec, at: float, asked: str = "") -> tuple[tuple[str, str], ...]:
        """A request goes there. What its client is to be told about it, as response headers. `asked`: the model that
        its model answers for."""
        pool = self.pools[request.model]
        if pool.rollout.newcomers:
            pool.rollout.sent(spec.version, at, _among_sessions(request))
        if asked in self.pools:
            return self.pools[asked].variants.stood_in(spec)
        return () if pool.variants.uniform else pool.variants.disclosed(spec)

    def _separate(self, pool: Pool) -> None:
        """Give those that reach a precision which others do not pools of their own."""
        name = pool.model
        variants = pool.variants = self._listed.get(name, pool.variants)
        variants.reset(name, [r.spec for r in pool.replicas])
        if variants.lasting:
            self._listed[name] = variants
        above, pool.above = pool.above, {}
        for rank in variants.floors:
            within = pool.above[rank] = above.get(rank) or Pool(name, self._config, self._affinity, rank)
            within.variants, within.rollout = variants, pool.rollout
            within.reset([r for r in pool.replicas if variants.reach(r.id, rank)])

    def pools_of(self, replica_id: ReplicaId) -> tuple[Pool, ...]:
        """The pools of the models a replica serves."""
        return self._serves.get(replica_id, ())

    def refresh(self, at: float, out: list[Command]) -> None:
        """Bring every pool up to date. Reports panic when a pool enters or leaves it."""
        unsettled: list[Pool] = []
        config, member = self._config, self._member
        for replica in self._fleet.take_changed(at):
            why = reason(replica, config, at)
            for pool in member.get(replica.id, ()):
                pool.patch(replica, why)
                if not pool.settled and pool not in unsettled:
                    unsettled.append(pool)
        if self._regrouped:
            self._regrouped = False
            everything = [each for pool in self.pools.values() for each in (pool, *pool.above.values())]
            unsettled = [pool for pool in everything if not pool.settled]
        for pool in unsettled:
            before = pool.panic
            pool.arrange()
            if pool.panic != before:
                state = "panic" if pool.panic else "calm"
                out.append(Record(HealthChanged(at, ReplicaId(""), state, f"model {pool.model}")))

    def choose(
        self,
        pool: Pool,
        demand: Demand,
        at: float,
        at_least: int,
        avoid: Avoid | None,
        refuses: Refuses | None,
        among: Sequence[ReplicaView] | None = None,
    ) -> Choice | None:
        """Pick a replica, None if none may or all refuse. `at_least`: tokens the request needs for certain.

        `avoid` gives a reason against a replica for this request only; `refuses` is asked as late as possible: of the
        favourite first, of all only if that one refuses. `among`: candidates of the pool, if not all of them.
        """
        views: Sequence[ReplicaView] = pool.candidates
        exclusions = pool.exclusions
        if among is not None:
            exclusions = _more(exclusions, "full_before", len(views) - len(among))
            views = among
        if avoid is not None or at_least > pool.shortest > 0:
            views, exclusions = self._narrow(pool, views, exclusions, at_least, avoid)
        if pool.rollout.newcomers:
            views, exclusions = self._ramped(pool, demand.request, views, exclusions, at_least, avoid, at)
        kept = None
        if demand.request.session_key and pool.affinity is not None:
            kept = pool.affinity.keeps(demand, views, refuses)
        if len(views) > self._considered > 0:
            drawn = self._draw(views, demand, kept)
            choice = self._rank(demand, drawn, _more(exclusions, "not_drawn", len(views) - len(drawn)), at, kept)
            if choice is not None and (refuses is None or not refuses(choice.view)):
                return choice
        choice = self._rank(demand, views, exclusions, at, kept)
        if choice is None or refuses is None or not refuses(choice.view):
            return choice
        fitting = []
        for view in views:
            why = refuses(view)
            if why:
                exclusions = _more(exclusions, why, 1)
            else:
                fitting.append(view)
        return self._rank(demand, fitting, exclusions, at, kept)

    def insist(self, pool: Pool, demand: Demand, at: float, at_least: int, tried: Sequence[ReplicaId]) -> Choice | None:
        """Somebody for a request that cannot wait and has failed elsewhere: a candidate even if the policy wants none
        of them, else one of those not preferred (but never in place of a trial that is under way)."""

        def avoid(replica_id: ReplicaId, _why: str) -> str:
            return "tried" if replica_id in tried else ""

        views, exclusions = self._narrow(pool, pool.candidates, pool.exclusions, at_least, avoid)
        for fallback in () if views else FALLBACKS:
            others = {why: count for why, count in exclusions.items() if why not in fallback}
            spare = [r for r in pool.replicas if pool.reason_of(r.id) in fallback and r.health.trial is None]
            views, others = self._narrow(pool, [r.view for r in spare if r.view], others, at_least, avoid)
            if views:
                return self._rank(demand, views, others, at, insist=True)
        return self._rank(demand, views, exclusions, at, insist=True)

    def _draw(self, views: Sequence[ReplicaView], demand: Demand, kept: Keeps | None) -> list[ReplicaView]:
        """A window of the (circular) list at a random place, and outside of it the warmest and where the session keeps
        to, sorted by id."""
        count = self._considered
        start = int(self._chance.random() * len(views))
        drawn = list(views[start : start + count])
        drawn = list(views[: count - len(drawn)]) + drawn
        if demand.hits or kept is not None:
            inside = {view.id for view in drawn}
            warmest = heapq.nlargest(self._config.warmest, demand.hits.items(), key=_by_hit)
            outside = {replica_id for replica_id, hit in warmest if hit > 0} - inside
            if kept is not None:
                outside.add(kept[0])
            if not outside <= inside:
                drawn = [view for view in views if view.id in inside or view.id in outside]
        return drawn

    def _narrow(
        self,
        pool: Pool,
        views: Sequence[ReplicaView],
        exclusions: dict[str, int],
        at_least: int,
        avoid: Avoid | None,
    ) -> tuple[Sequence[ReplicaView], dict[str, int]]:
        left = []
        for view in views:
            replica_id = view.id
            limit = context_limit(self._fleet.replicas[replica_id])
            why = "too_small" if 0 < limit < at_least else ""
            if not why and avoid is not None:
                why = avoid(replica_id, pool.reason_of(replica_id))
            if why:
                exclusions = _more(exclusions, why, 1)
            else:
                left.append(view)
        return left, exclusions

    def _ramped(
        self,
        pool: Pool,
        request: RequestInfo,
        views: Sequence[ReplicaView],
        exclusions: dict[str, int],
        at_least: int,
        avoid: Avoid | None,
        at: float,
    ) -> tuple[Sequence[ReplicaView], dict[str, int]]:
        """Without the new versions that have had their share, if there is anybody else for this request."""
        versions = {view.spec.version for view in pool.candidates}
        closed = pool.rollout.closed(versions, at, _among_sessions(request))
        left = [view for view in views if view.spec.version not in closed]
        if not left:  # they may be all that was asked about, or all there is
            others = [view for view in pool.candidates if view.spec.version not in closed]
            if not self._narrow(pool, others, exclusions, at_least, avoid)[0]:
                return views, exclusions
        return left, _more(exclusions, "rollout", len(views) - len(left))

    def _rank(
        self,
        demand: Demand,
        views: Sequence[ReplicaView],
        exclusions: dict[str, int],
        at: float,
        kept: Keeps | None = None,
        insist: bool = False,
    ) -> Choice | None:
        if not views:
            return None
        policy = self._policy(demand)
        costs = policy.costs(demand, views, at, self._chance)
        best = costs[0][0]
        for cost in costs:
            if cost[0] < best:
                best = cost[0]
        if kept is not None:
            index = next(i for i, view in enumerate(views) if view.id == kept[0])
            if self._stays(policy, costs[index][0], best, kept[1]):
                return Choice(views[index], index, views, costs, exclusions, True)
        if not best < math.inf:  # never, or not a number
            best = min((cost[0] for cost in costs if cost[0] < math.inf), default=math.inf)
            if best == math.inf:
                if not insist:
                    return None
                index = min(range(len(views)), key=[view.in_flight for view in views].__getitem__)
                return Choice(views[index], index, views, costs, exclusions)
        edge = best + policy.tolerance * abs(best)
        near = [i for i, cost in enumerate(costs) if cost[0] <= edge]
        index = near[int(self._chance.random() * len(near))] if len(near) > 1 else near[0]
        return Choice(views[index], index, views, costs, exclusions)

    def _stays(self, policy: Policy, cost: float, best: float, easy: bool) -> bool:
        """Whether a session keeps to its replica, given its cost there and the least. A policy that knows where
        prefixes are knows better, unless the request is easy; none is made to use a replica that it never would."""
        if not cost < math.inf:
            return False
        yields = self._affinity.yields
        return easy or not yields or not getattr(policy, "minds_prefixes", False) or cost <= yields * best

    def _policy(self, demand: Demand) -> Policy:
        """The policy that a request asked for."""
        name = demand.request.policy
        return self.policies[name] if name else self.policy

    def decision(
        self, choice: Choice, demand: Demand, expected: Forecast, at: float, attempt: int, queued_s: float
    ) -> Decision:
        """Why this went there: the chosen one and the best others."""
        views, costs, policy = choice.views, choice.all_costs, self._policy(demand)
        ranked = [(cost[0], index) for index, cost in enumerate(costs)]
        ranked.sort()
        order = [index for _, index in ranked]
        if len(order) > self._shown:
            del order[self._shown :]
            if choice.index not in order:
                order[-1] = choice.index
        best = []
        for index in order:
            cost, view = costs[index], views[index]
            if cost[0] < math.inf:
                headroom = view.headroom_tokens if view.kv_capacity_tokens else None
                age = view.sample_age_s
                best.append(Candidate(view.id, cost, headroom, age + at - view.as_of if age >= 0.0 else age))
        return Decision(
            demand.request.id,
            at,
            policy.name,
            choice.view.id,
            attempt,
            tuple(best),
            policy.parts,
            choice.exclusions,
            expected,
            queued_s,
            choice.kept,
            demand.request.pinned,
        )


def bound(job: Job, pool: Pool, avoid: Avoid | None) -> Avoid:
    """What keeps one that has begun from where it would not go on as it began, beside what else is to be avoided."""
    suiting = {replica.id for replica in pool.replicas if suits(replica, job)}

    def avoids(replica_id: ReplicaId, why: str) -> str:
        if replica_id not in suiting:
            return "unlike"
        return avoid(replica_id, why) if avoid is not None else ""

    return avoids


def _among_sessions(request: RequestInfo) -> float | None:
    """The place of a request's session among all, from 0 to 1, None if it has none."""
    session = request.session_key
    return place(request.tenant, session) / CIRCLE if session else None


def _connect(shared: Iterable[Sequence[Pool]]) -> None:
    """Number the groups of pools: those that share a replica are of one, and so are their pools by precision."""
    groups: dict[str, dict[str, Pool]] = {}
    for pools in shared:
        group = groups.get(pools[0].model)
        if group is not None and all(groups.get(pool.model) is group for pool in pools):
            continue
        joined: dict[str, Pool] = {}
        for pool in pools:
            joined.update(groups.get(pool.model) or {pool.model: pool})
        for name in joined:
            groups[name] = joined
    for number, group in enumerate({id(group): group for group in groups.values()}.values(), start=1):
        for pool in group.values():
            for each in (pool, *pool.above.values()):
                each.group = number


def forecast(demand: Demand, view: ReplicaView) -> Forecast:
    """What to expect of a request at a replica: its prefill waits for what was sent before it."""
    hit = demand.hits.get(view.id, 0)
    speed = view.speed
    wait = (view.prefill_backlog_tokens + demand.prompt_tokens - hit) / speed.prefill_tokens_per_s
    ttft = wait + speed.step_s(view.running + 1, view.context_tokens)
    peak = view.peak_mean + demand.prompt_tokens
    low, high = demand.output_low, demand.output_high
    return Forecast(demand.prompt_tokens, hit, demand.output_mean, ttft, peak, low, high, demand.output_class)
