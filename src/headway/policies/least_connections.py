"""Fewest requests in flight, relative to weight. Counted at dispatch, so a slow first byte hides nobody's load."""

from collections.abc import Sequence

from headway.core.demand import Demand
from headway.core.plugin import Chance, NoConfig, Plugin
from headway.core.view import ReplicaView


class LeastConnections:
    """Requests in flight per unit of weight; equals are told apart by chance."""

    name = "least_connections"
    parts: tuple[str, ...] = ()
    tolerance = 0.0
    binds_late = False
    foresees = False

    def __init__(self, config: NoConfig) -> None:
        """Nothing to set."""

    def costs(
        self, demand: Demand, views: Sequence[ReplicaView], now: float, rng: Chance
    ) -> Sequence[tuple[float, ...]]:
        """In flight over weight."""
        return [(view.in_flight / view.spec.weight,) for view in views]


PLUGIN = Plugin("least_connections", LeastConnections)
