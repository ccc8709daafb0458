"""Any replica, by chance, in proportion to its weight. The baseline that knows nothing."""

from collections.abc import Sequence
from math import log

from headway.core.demand import Demand
from headway.core.plugin import Chance, NoConfig, Plugin
from headway.core.view import ReplicaView


class Random:
    """Costs are drawn from exponential laws of rate `weight`: the least of them is each replica's with probability
    weight / sum of weights."""

    name = "random"
    parts: tuple[str, ...] = ()
    tolerance = 0.0
    binds_late = False
    foresees = False

    def __init__(self, config: NoConfig) -> None:
        """Nothing to set."""

    def costs(
        self, demand: Demand, views: Sequence[ReplicaView], now: float, rng: Chance
    ) -> Sequence[tuple[float, ...]]:
        """One draw per replica."""
        return [(-log(1.0 - rng.random()) / view.spec.weight,) for view in views]


PLUGIN = Plugin("random", Random)
