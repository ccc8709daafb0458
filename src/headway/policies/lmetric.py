"""Prefill work times batch size, `(P + n) * (R + 1)`: no weights, no units, and hard to beat on long prompts.

Source: LMetric (arXiv 2603.15202, 2026); as a policy of the SGLang router, `lmetric.rs`. What it knows: the gateway's
own count of requests in flight (R), of their prompt tokens whose prefill has not ended (P), and its prefix index (n).
No engine gauge. Deviations: the SGLang policy leaves out P and counts characters; ties are broken by chance.
"""

from collections.abc import Sequence

from headway.core.demand import Demand
from headway.core.plugin import Chance, NoConfig, Plugin
from headway.core.view import ReplicaView


class Lmetric:
    """P: prompt tokens waiting for prefill; n: this prompt's uncached tokens; R: requests in flight."""

    name = "lmetric"
    parts: tuple[str, ...] = ("prefill", "batch")
    tolerance = 0.0
    binds_late = False
    minds_prefixes = True
    foresees = False

    def __init__(self, config: NoConfig) -> None:
        """Nothing to set."""

    def costs(
        self, demand: Demand, views: Sequence[ReplicaView], now: float, rng: Chance
    ) -> Sequence[tuple[float, ...]]:
        """The product and its factors."""
        costs: list[tuple[float, ...]] = []
        for view in views:
            prefill = view.prefill_backlog_tokens + max(1, demand.prompt_tokens - demand.hit(view.id))
            batch = view.in_flight + 1.0
            costs.append((prefill * batch, prefill, batch))
        return costs


PLUGIN = Plugin("lmetric", Lmetric)
