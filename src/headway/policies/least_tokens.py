"""Fewest tokens promised and not yet settled (prompts and reserves for outputs), relative to weight.

Known for every engine, with or without a load report: prompts that wait for prefill, contexts that are held, outputs
that are expected. (Where an engine reports more in its pool than Headway sent, that counts as held.)
"""

from collections.abc import Sequence

from headway.core.demand import Demand
from headway.core.plugin import Chance, NoConfig, Plugin
from headway.core.view import ReplicaView


class LeastTokens:
    """The ledger's tokens per unit of weight; equals are told apart by chance."""

    name = "least_tokens"
    parts: tuple[str, ...] = ()
    tolerance = 0.0
    binds_late = False

    def __init__(self, config: NoConfig) -> None:
        """Nothing to set."""

    def costs(
        self, demand: Demand, views: Sequence[ReplicaView], now: float, rng: Chance
    ) -> Sequence[tuple[float, ...]]:
        """Tokens over weight."""
        return [
            ((view.prefill_backlog_tokens + view.context_tokens + view.reserved_tokens) / view.spec.weight,)
            for view in views
        ]


PLUGIN = Plugin("least_tokens", LeastTokens)
