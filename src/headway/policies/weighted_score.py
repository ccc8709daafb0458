"""Weighted sum of memory, cache and queue, chosen by weighted chance: `S = 0.40 m + 0.35 k + 0.25 a`, all in [0, 1].

    m  share of the KV pool in use, with the prompts still to be prefilled and what decoding adds in the next seconds
    k  share of the prompt that this replica would have to compute
    a  share of the engine's batch slots in use

Memory and queue are smoothed with a half-life: they rise at once (a dispatch must count immediately) and fall slowly
(a dip between two batches is no invitation). The chance of a replica is proportional to exp(-S / temperature).

When S exceeds `full_above` everywhere nobody is a candidate, so that requests wait in Headway's queue, until some
replica is below `open_below` again: two thresholds, or the queue would flutter.
"""

from collections.abc import Sequence
from math import exp, inf, log

import msgspec

from headway.core.demand import Demand
from headway.core.ids import ReplicaId
from headway.core.plugin import Chance, Plugin
from headway.core.view import ReplicaView


class WeightedScoreConfig(msgspec.Struct, frozen=True):
    """The three weights and the constants of smoothing and choice."""

    memory: float = 0.40
    cache: float = 0.35
    queue: float = 0.25
    temperature: float = 0.05
    half_life_s: float = 2.0
    ahead_s: float = 2.0
    full_above: float = 0.85
    open_below: float = 0.80
    max_num_seqs: int = 256  # where the engine's limit is unknown and it never queued: vLLM's default
    max_replicas: int = 16_384  # smoothed loads kept


class _Smooth:
    """The smoothed load of one replica under one model, and the largest batch it ran while others waited."""

    __slots__ = ("at", "full", "memory", "queue")

    def __init__(self, at: float) -> None:
        self.at = at
        self.memory = 0.0
        self.queue = 0.0
        self.full = 0.0


class WeightedScore:
    """The classic weighted load score."""

    name = "weighted_score"
    parts: tuple[str, ...] = ("score", "memory", "cache", "queue")
    tolerance = 0.0
    binds_late = False
    minds_prefixes = True
    foresees = False

    def __init__(self, config: WeightedScoreConfig) -> None:
        self._config = config
        self._smooth: dict[tuple[str, ReplicaId], _Smooth] = {}
        self._full: set[str] = set()  # models all of whose replicas are too loaded

    def costs(
        self, demand: Demand, views: Sequence[ReplicaView], now: float, rng: Chance
    ) -> Sequence[tuple[float, ...]]:
        """An exponential draw of rate exp(-S / temperature) per replica, so that the least is each one's with the
        wanted probability; then S and its terms."""
        config, prompt = self._config, max(1, demand.prompt_tokens)
        costs: list[tuple[float, ...]] = []
        for view in views:
            memory, queue = self._load(demand.request.model, view, now)
            cache = 1.0 - min(1.0, demand.hit(view.id) / prompt)
            score = config.memory * memory + config.cache * cache + config.queue * queue
            cost = -log(1.0 - rng.random()) * exp(score / config.temperature)
            costs.append((cost, score, memory, cache, queue))
        known = all(view.kv_capacity_tokens and not view.stale and view.in_flight + view.running for view in views)
        if self._is_full(demand.request.model, min(cost[1] for cost in costs) if known else 0.0):
            return [(inf, *cost[1:]) for cost in costs]
        return costs

    def _is_full(self, model: str, lowest: float) -> bool:
        """Whether requests for a model wait, given the lowest score among its replicas. (0 where a replica is idle or
        its report is missing: neither is a reason to wait.)"""
        limit = self._config.open_below if model in self._full else self._config.full_above
        if lowest > limit:
            self._full.add(model)
            return True
        self._full.discard(model)
        return False

    def _load(self, model: str, view: ReplicaView, now: float) -> tuple[float, float]:
        """Smoothed m and a. Without a known capacity memory counts as full as the queue."""
        config = self._config
        smooth = self._entry(model, view.id, now)
        if view.waiting > 0.0 and view.running > smooth.full:
            smooth.full = view.running
        slots = view.max_num_seqs or smooth.full or config.max_num_seqs
        load = view.in_flight if view.stale else view.running + view.waiting
        queue = min(1.0, load / (slots * view.slow_start))
        memory = queue
        if view.kv_capacity_tokens:
            used = view.kv_used_tokens + view.prefill_backlog_tokens + config.ahead_s * view.growth_tokens_per_s
            memory = min(1.0, used / (view.kv_capacity_tokens * view.slow_start))
        keep = 0.5 ** (max(0.0, now - smooth.at) / config.half_life_s)
        smooth.at = now
        smooth.memory = max(memory, memory + (smooth.memory - memory) * keep)
        smooth.queue = max(queue, queue + (smooth.queue - queue) * keep)
        return (smooth.memory, smooth.queue)

    def _entry(self, model: str, replica: ReplicaId, now: float) -> _Smooth:
        key = (model, replica)
        smooth = self._smooth.get(key)
        if smooth is None:
            if len(self._smooth) >= self._config.max_replicas:
                del self._smooth[next(iter(self._smooth))]
            smooth = self._smooth[key] = _Smooth(now)
        return smooth


PLUGIN = Plugin("weighted_score", WeightedScore, WeightedScoreConfig)
