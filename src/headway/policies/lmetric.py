"""Prefill work times batch size, `(P + n) * (R + 1)`: no weights, no units, and hard to beat on long prompts."""

from collections.abc import Sequence

from headway.core.plugin import Chance, NoConfig, Plugin
from headway.core.request import Demand
from headway.core.view import ReplicaView


class Lmetric:
    """P: prompt tokens waiting for prefill; n: this prompt's uncached tokens; R: running requests."""

    name = "lmetric"
    parts: tuple[str, ...] = ("prefill", "batch")
    tolerance = 0.0
    binds_late = False

    def __init__(self, config: NoConfig) -> None:
        """Nothing to set."""

    def costs(
        self, demand: Demand, views: Sequence[ReplicaView], now: float, rng: Chance
    ) -> Sequence[tuple[float, ...]]:
        """The product and its factors."""
        costs: list[tuple[float, ...]] = []
        for view in views:
            prefill = view.prefill_backlog_tokens + max(1, demand.prompt_tokens - demand.hit(view.spec.id))
            batch = view.running + view.waiting + 1.0
            costs.append((prefill * batch, prefill, batch))
        return costs


PLUGIN = Plugin("lmetric", Lmetric)
