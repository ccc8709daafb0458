"""The default policy: seconds of harm a request does at each replica (skeleton)."""

from collections.abc import Sequence

import msgspec

from headway.core.plugin import Chance, Plugin
from headway.core.request import Demand
from headway.core.view import ReplicaView


class HeadroomConfig(msgspec.Struct, frozen=True):
    """Constants of the policy."""

    tolerance: float = 0.05


class Headroom:
    """Ranks replicas by seconds of harm."""

    name = "headroom"
    parts: tuple[str, ...] = ("ttft", "dec", "ext", "mem", "unc")
    binds_late = True

    def __init__(self, config: HeadroomConfig) -> None:
        self.tolerance = config.tolerance

    def costs(
        self, demand: Demand, views: Sequence[ReplicaView], now: float, rng: Chance
    ) -> Sequence[tuple[float, ...]]:
        """Backlog times running requests, until the full cost is here."""
        return [((v.prefill_backlog_tokens + 1) * (v.running + 1), 0.0, 0.0, 0.0, 0.0, 0.0) for v in views]


PLUGIN = Plugin("headroom", Headroom, HeadroomConfig)
