"""Fewest tokens promised and not yet settled (prompts and reserves for outputs), relative to weight."""

from collections.abc import Sequence

from headway.core.plugin import Chance, NoConfig, Plugin
from headway.core.request import Demand
from headway.core.view import ReplicaView


class LeastTokens:
    """The ledger's reservations per unit of weight: known for every engine, with or without a load report."""

    name = "least_tokens"
    parts: tuple[str, ...] = ()
    tolerance = 0.0
    binds_late = False

    def __init__(self, config: NoConfig) -> None:
        """Nothing to set."""

    def costs(
        self, demand: Demand, views: Sequence[ReplicaView], now: float, rng: Chance
    ) -> Sequence[tuple[float, ...]]:
        """Reserved tokens over weight."""
        return [(view.reserved_tokens / view.spec.weight,) for view in views]


PLUGIN = Plugin("least_tokens", LeastTokens)
