"""Where each running request has most room to grow: dispatch to the freest (Llumnix, Sun et al., OSDI 2024).

    freeness = (free - waiting) / running      (core.freeness)

What it knows: the pool and the batch of each engine as Headway's ledger has them now. Deviations: Llumnix runs inside
the engines, so its figures are exact and never old; it moves requests by copying KV while they run (the rebalancer's
strategy `freeness` moves them by this measure, but replays their tokens); headroom for priorities and scaling are left
out. Where the size of a pool is not known, whoever has fewest in flight is the freest.
"""

from collections.abc import Sequence

from headway.core.demand import Demand
from headway.core.freeness import freeness
from headway.core.plugin import Chance, NoConfig, Plugin
from headway.core.view import ReplicaView


class Freeness:
    """The freest first; beyond freeness zero, whoever is least overcommitted."""

    name = "freeness"
    parts: tuple[str, ...] = ()
    tolerance = 0.0
    binds_late = False
    foresees = False

    def __init__(self, config: NoConfig) -> None:
        """Nothing to set."""

    def costs(
        self, demand: Demand, views: Sequence[ReplicaView], now: float, rng: Chance
    ) -> Sequence[tuple[float, ...]]:
        """A falling function of freeness: 1 at 0, towards 0 above it."""
        return [(_cost(view),) for view in views]


def _cost(view: ReplicaView) -> float:
    free = freeness(view) if view.kv_capacity_tokens else -float(view.in_flight)
    return 1.0 / (1.0 + free) if free > 0.0 else 1.0 - free


PLUGIN = Plugin("freeness", Freeness)
