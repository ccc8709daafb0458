"""The default policy: send a request where it does the least harm, counted in seconds.

    ttft  what this request waits for its first token: its turn (pace), prefill ahead of it and its own, KV or batch
          slots to come free
    dec   its own decoding, at the step time it will find (weighted: with the memory hold it matters less)
    ext   what it costs the others there: slower steps while they decode, a prefill they sit through
    mem   probability that the forecast peak outgrows the KV pool, times what a preemption costs everybody there
    unc   doubt: what was sent since the last sample, and how far the load may have drifted since

All seconds come from learned speeds, so different GPUs compare directly. `mem` is worked out best first and only for
replicas that can still win; as it is never negative, the minimum stays exact. A warm prefix is worth the prefill it
saves; above that, a request that is mostly cached somewhere stays there unless waiting for the warm replica costs much
more (`sticky_*`). There is never a bonus for an empty cache: it drives traffic away from warm ones (published: a
quarter worse than round robin under memory pressure).

Until any speed is learned the cost is prefill work times batch size, `(P + n) * (R + 1)`; a replica not yet measured
among measured ones is taken to be as fast as their mean. Without a trusted sample R is what we have in flight; without
a known capacity there is no `mem`.
"""

from collections.abc import Sequence
from math import erfc, fsum, inf, sqrt

from headway.core.ids import ReplicaId
from headway.core.plugin import Chance, Plugin
from headway.core.request import Demand
from headway.core.view import ReplicaView, Speed
from headway.policies.weights import HeadroomConfig

Costs = list[tuple[float, ...]]

Terms = tuple[ReplicaView, float, float, float, float, float, float, float, float, float, float]
"""What does not depend on the request: the view that it was worked out from, prefill rate, step time, what a request
and a token add to that, prefill backlog, mean output left, running requests, weight of those that sit through a
prefill, `unc`, and the tokens up to which neither memory nor batch slots make a request wait or cost anything."""

_KNOWN = 4096  # replicas whose terms are remembered, at most


class Headroom:
    """Ranks replicas by seconds of harm."""

    name = "headroom"
    parts: tuple[str, ...] = ("ttft", "dec", "ext", "mem", "unc")
    binds_late = True
    counts_waits = True

    def __init__(self, config: HeadroomConfig) -> None:
        self._config = config
        self._known: dict[ReplicaId, Terms] = {}
        self.tolerance = config.tolerance

    def costs(
        self, demand: Demand, views: Sequence[ReplicaView], now: float, rng: Chance
    ) -> Sequence[tuple[float, ...]]:
        """Seconds of harm per replica and their parts; a count without unit while nothing is learned."""
        average = None
        for view in views:
            if not view.speed.learned:
                average = _average(views)
                if average is None:
                    return _counted(demand, views)
                break
        costs, tight = self._cheap(demand, views, average)
        if demand.hits:
            self._stick(demand, views, costs)
        if tight:
            self._add_memory(demand, views, costs)
        return costs

    def _cheap(self, demand: Demand, views: Sequence[ReplicaView], average: Speed | None) -> tuple[Costs, bool]:
        """Everything but `mem`, for every replica, and whether any is tight. The hot loop: nothing is called
        for a known view with memory to spare, and all is counted in floats, because mixed sums are slow."""
        prompt, output, hits = float(demand.prompt_tokens), demand.output_mean, demand.hits
        ttft_weight, decode_weight = self._config.ttft_weight, self._config.decode_weight * output
        ample = prompt + output + 4.0 * demand.output_sigma
        known, tight, new, waits = self._known, False, prompt, demand.waits
        wait_weight = self._config.wait_weight
        costs: Costs = []
        for view in views:
            terms = known.get(view.spec.id)
            if terms is None or terms[0] is not view:
                terms = self._work_out(view, average)
            _, rate, step, per_request, per_token, backlog, left, running, batch, unc, spare = terms
            if hits:
                new = prompt - hits.get(view.spec.id, 0)
                if new < 1.0:
                    new = 1.0
            slower = per_request + per_token * prompt
            step += slower
            ttft = (backlog + new) / rate
            if waits:
                ttft += wait_weight * waits.get(view.spec.id, 0.0)
            if spare < ample:
                tight = True
                ttft += _wait(view, new, step)
            dec = decode_weight * step
            ext = running * slower * (output if output < left else left) + new / rate * batch
            costs.append((ttft_weight * ttft + dec + ext + unc, ttft, dec, ext, 0.0, unc))
        return costs, tight

    def _work_out(self, view: ReplicaView, average: Speed | None) -> Terms:
        """The terms of a view, remembered if its speed is its own."""
        speed = view.speed
        own = average is None or speed.learned
        if average is not None and not own:
            speed = average
        rate, slots, capacity = speed.prefill_tokens_per_s, view.max_num_seqs, view.kv_capacity_tokens
        if view.slow_start < 1.0:
            rate *= view.slow_start
        running, waiting = (view.in_flight, 0.0) if view.stale else (view.running, view.waiting)
        step = speed.step_base_s + speed.step_per_request_s * running + speed.step_per_token_s * view.context_tokens
        doubt = self._config.doubt / 2 * view.dispatched_tokens
        if view.sample_age_s > 0.0:
            doubt += view.sample_age_s * view.growth_tokens_per_s
        spare = inf
        if view.slow_start < 1.0 or running + waiting >= slots > 0:
            spare = -inf
        elif capacity:
            spare = view.headroom_tokens - 4.0 * view.headroom_sigma
            if spare > capacity - view.kv_used_tokens:
                spare = capacity - view.kv_used_tokens
        terms = (
            view,
            rate,
            step,
            speed.step_per_request_s,
            speed.step_per_token_s,
            float(view.prefill_backlog_tokens),
            view.output_left_mean,
            float(running),
            float(running if running <= waiting else waiting + 1.0) + self._config.stall_weight * running,
            doubt / rate,
            spare,
        )
        if own:
            if len(self._known) >= _KNOWN:
                self._known.clear()
            self._known[view.spec.id] = terms
        return terms

    def _stick(self, demand: Demand, views: Sequence[ReplicaView], costs: Costs) -> None:
        """Keep only warm replicas, if some hold most of the prompt and the best of them is not too busy."""
        config, prompt, hits = self._config, demand.prompt_tokens, demand.hits
        enough = max(config.sticky_hit * prompt, config.sticky_tokens)
        warm = [k for k, view in enumerate(views) if hits.get(view.spec.id, 0) >= enough]
        if not warm or len(warm) == len(views):
            return
        cold = [k for k in range(len(views)) if k not in set(warm)]
        slo = config.ttft_slo_s + config.ttft_slo_per_token_s * prompt
        if min(costs[k][1] for k in warm) - min(costs[k][1] for k in cold) > config.sticky_slos * slo:
            return
        best = min(warm, key=lambda k: costs[k][0])
        saved = hits[views[best].spec.id] / views[best].speed.prefill_tokens_per_s
        if costs[best][0] - min(costs[k][0] for k in cold) > config.sticky_patience * saved:
            return
        for k in cold:
            costs[k] = (inf, *costs[k][1:])

    def _add_memory(self, demand: Demand, views: Sequence[ReplicaView], costs: Costs) -> None:
        """Add `mem` from the cheapest on, as long as the next one could still come within tolerance of the best.

        Where memory is plentiful it is 0. If many are tight, those after the first `exact` ones get the worst `mem`
        found: they must not win by not having been looked at.
        """
        within, best, worst, exact = 1.0 + self.tolerance, inf, 0.0, self._config.exact
        ample = demand.prompt_tokens + demand.output_mean + 4.0 * demand.output_sigma
        cheap = [cost[0] for cost in costs]
        for k in sorted(range(len(cheap)), key=cheap.__getitem__):
            cost = cheap[k]
            if cost > best * within:
                break
            view = views[k]
            if _room(view) < ample:
                if exact:
                    mem = self._memory(demand, view)
                    worst = mem if mem > worst else worst
                    exact -= 1
                else:
                    mem = worst
                cost += mem
                _, ttft, dec, ext, _, unc = costs[k]
                costs[k] = (cost, ttft, dec, ext, mem, unc)
            if cost < best:
                best = cost

    def _memory(self, demand: Demand, view: ReplicaView) -> float:
        """Seconds a preemption would cost times its probability, should the request go there (normal peak).

        The batch peaks about when its mean request ends; by then this one holds its prompt and what it generated.
        """
        config, capacity = self._config, view.kv_capacity_tokens
        output, left = demand.output_mean, view.output_left_mean
        new = max(1, demand.prompt_tokens - demand.hits.get(view.spec.id, 0))
        room = capacity * view.slow_start * (1.0 - config.reserve) - view.peak_mean - new
        room -= output if left <= 0.0 or output < left else left
        sigma = sqrt(view.peak_var + demand.output_sigma * demand.output_sigma) + 1.0
        overflow = 0.5 * erfc(room / sigma * 0.7071067811865476)
        recompute = view.context_tokens / view.speed.prefill_tokens_per_s
        return overflow * (recompute + config.requeue_s + config.lost_slo_s)


def _wait(view: ReplicaView, new: float, step: float) -> float:
    """Seconds until KV and a batch slot come free for `new` tokens, at a step time of `step`."""
    used, capacity, left = view.kv_used_tokens + new, view.kv_capacity_tokens, view.output_left_mean
    wait = 0.0
    if used > capacity > 0 and view.context_tokens > 0.0:
        wait += (used - capacity) * left * step / view.context_tokens
    running, waiting = (view.in_flight, 0.0) if view.stale else (view.running, view.waiting)
    slots = view.max_num_seqs
    if running + waiting >= slots > 0:
        wait += (running + waiting + 1.0 - slots) * left * step / slots
    return wait


def _room(view: ReplicaView) -> float:
    """KV tokens that are free at the forecast peak and four deviations above it; none for sure while it warms up."""
    if not view.kv_capacity_tokens:
        return inf
    return -inf if view.slow_start < 1.0 else view.headroom_tokens - 4.0 * view.headroom_sigma


def _average(views: Sequence[ReplicaView]) -> Speed | None:
    """The mean of the learned speeds, None if there are none. Summed exactly: the order of replicas must not show."""
    known = [view.speed for view in views if view.speed.learned]
    if not known:
        return None
    count = len(known)
    return Speed(
        step_base_s=fsum(s.step_base_s for s in known) / count,
        step_per_request_s=fsum(s.step_per_request_s for s in known) / count,
        step_per_token_s=fsum(s.step_per_token_s for s in known) / count,
        prefill_tokens_per_s=count / fsum(1.0 / s.prefill_tokens_per_s for s in known),
        learned=True,
    )


def _counted(demand: Demand, views: Sequence[ReplicaView]) -> Costs:
    """Prefill work times batch size, for want of seconds."""
    costs: Costs = []
    for view in views:
        new = max(1, demand.prompt_tokens - demand.hits.get(view.spec.id, 0))
        running = view.in_flight if view.stale else view.running
        cost = (view.prefill_backlog_tokens + new) * (running + 1.0) / view.slow_start
        costs.append((cost, 0.0, 0.0, 0.0, 0.0, 0.0))
    return costs


PLUGIN = Plugin("headroom", Headroom, HeadroomConfig)
