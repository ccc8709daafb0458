"""Two replicas by chance, the less loaded of them: the power of two choices (Mitzenmacher, 1996)."""

from collections.abc import Sequence

from headway.core.demand import Demand
from headway.core.plugin import Chance, NoConfig, Plugin
from headway.core.view import ReplicaView

_NOT_DRAWN = 1e9
"""Requests that no replica has."""


class P2c:
    """Requests in flight per unit of weight for the two drawn, never for the others."""

    name = "p2c"
    parts: tuple[str, ...] = ()
    tolerance = 0.0
    binds_late = False
    foresees = False

    def __init__(self, config: NoConfig) -> None:
        """Nothing to set."""

    def costs(
        self, demand: Demand, views: Sequence[ReplicaView], now: float, rng: Chance
    ) -> Sequence[tuple[float, ...]]:
        """In flight over weight for two distinct replicas (one, if there is no other); the rest come after them: only a
        session that belongs to one of those goes there."""
        count = len(views)
        first = int(rng.random() * count)
        second = (first + 1 + int(rng.random() * (count - 1))) % count
        costs: list[tuple[float, ...]] = [(_NOT_DRAWN,)] * count
        for k in (first, second):
            costs[k] = (views[k].in_flight / views[k].spec.weight,)
        return costs


PLUGIN = Plugin("p2c", P2c)
