"""Short requests anywhere, long ones where they will still fit when they have grown.

A request expected to stay short is done before it can hurt: it goes where it starts soonest. A long one grows for
minutes, so replicas with little headroom left after it cost more. Warm prefixes count through the work they save, and
requests may be held until their forecast peak fits (`binds_late`).
"""

from collections.abc import Sequence

import msgspec

from headway.core.demand import Demand
from headway.core.plugin import Chance, Plugin
from headway.core.view import ReplicaView


class PredictiveConfig(msgspec.Struct, frozen=True):
    """`short_tokens`: outputs expected below it are short. `scarce`: the share of the KV pool below which headroom is
    scarce. `avoid`: how many times as costly a replica without any headroom is to a long request. `unfit`: the same for
    any request whose prompt does not fit now."""

    short_tokens: float = 50.0
    scarce: float = 0.25
    avoid: float = 8.0
    unfit: float = 16.0
    tolerance: float = 0.05


class Predictive:
    """Work times batch, raised by scarcity."""

    name = "predictive"
    parts: tuple[str, ...] = ("work", "batch", "scarcity")
    binds_late = True
    minds_prefixes = True

    def __init__(self, config: PredictiveConfig) -> None:
        self._config = config
        self.tolerance = config.tolerance

    def costs(
        self, demand: Demand, views: Sequence[ReplicaView], now: float, rng: Chance
    ) -> Sequence[tuple[float, ...]]:
        """`(P + n) * (R + 1) * (1 + scarcity)`."""
        long = demand.output_mean >= self._config.short_tokens
        costs: list[tuple[float, ...]] = []
        for view in views:
            new = max(1, demand.prompt_tokens - demand.hit(view.id))
            work = (view.prefill_backlog_tokens + new) / view.slow_start
            batch = (view.in_flight if view.stale else view.running + view.waiting) + 1.0
            scarcity = self._scarcity(view, new, demand.output_mean if long else 0.0)
            costs.append((work * batch * (1.0 + scarcity), work, batch, scarcity))
        return costs

    def _scarcity(self, view: ReplicaView, new: int, output: float) -> float:
        """0 with ample headroom or without a known capacity; up to `avoid` for long requests (output > 0)."""
        config, capacity = self._config, view.kv_capacity_tokens
        if not capacity:
            return 0.0
        if view.kv_used_tokens + new > capacity:
            return config.unfit
        if not output:
            return 0.0
        left = view.headroom_tokens - view.headroom_sigma - new - output
        return config.avoid * min(1.0, max(0.0, 1.0 - left / (config.scarce * capacity)))


PLUGIN = Plugin("predictive", Predictive, PredictiveConfig)
