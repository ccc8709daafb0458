"""The default policy: send a request where it holds up the fewest for the shortest time.

    cost = (P + n) / F  x  (R + 1)  x  crowding           request-seconds

    P + n   prompt tokens before it there and its own, less what is cached; F the prefill rate: the seconds that its
            first token takes, and that everybody who decodes there waits for the prefill
    R + 1   those who wait: all requests there, and itself
    crowding  1 while the KV pool has room to spare; beyond `crowded` of it, in inverse proportion to what is left

This is `lmetric` in seconds instead of tokens, which makes different GPUs comparable, and with an eye on memory. Rates
are learned per replica and shrunk towards replicas of the same kind, so that noise does not herd everything onto the
one believed fastest. Who waits for memory, and in which order they go, is decided in admission. What was tried and made
things worse (docs/decisions/0009): adding up harm in seconds term by term (own decoding, slower steps for others,
expected cost of a preemption), powers of the step time, keeping to warm replicas by a gate.

Without a trusted report R is what we have in flight; without a known capacity there is no crowding.
"""

from collections.abc import Sequence
from math import fsum
from typing import Final

from headway.core.demand import Demand
from headway.core.plugin import Chance, Plugin
from headway.core.view import ReplicaView
from headway.policies.weights import HeadroomConfig

_NEARLY_FULL: Final = 0.02
"""Share of the pool from which on fuller makes no difference."""


class Headroom:
    """Ranks replicas by request-seconds held up."""

    name = "headroom"
    parts: tuple[str, ...] = ("ttft_s", "requests", "crowding")
    binds_late = True
    minds_prefixes = True

    def __init__(self, config: HeadroomConfig) -> None:
        self._crowded = config.crowded
        self.tolerance = config.tolerance

    def costs(
        self, demand: Demand, views: Sequence[ReplicaView], now: float, rng: Chance
    ) -> Sequence[tuple[float, ...]]:
        """Request-seconds per replica, and what they are the product of."""
        prompt, hits, fallback, crowded = float(demand.prompt_tokens), demand.hits, 0.0, self._crowded
        costs: list[tuple[float, ...]] = []
        for view in views:
            speed = view.speed
            rate = speed.prefill_tokens_per_s
            if not speed.learned:
                fallback = fallback or _typical(views)
                rate = fallback
            if view.slow_start < 1.0:
                rate *= view.slow_start
            new = prompt - hits.get(view.id, 0) if hits else prompt
            ahead = view.prefill_backlog_tokens
            ttft = (ahead + (new if new > 1.0 else 1.0)) / rate
            requests = (view.in_flight if view.stale else view.running + view.waiting) + 1.0
            crowding, capacity = 1.0, view.kv_capacity_tokens
            if capacity:
                left = 1.0 - (view.kv_used_tokens + ahead + prompt) / capacity
                if left < 1.0 - crowded:
                    crowding = (1.0 - crowded) / (left if left > _NEARLY_FULL else _NEARLY_FULL)
            costs.append((ttft * requests * crowding, ttft, requests, crowding))
        return costs


def _typical(views: Sequence[ReplicaView]) -> float:
    """The mean prefill rate of those that are measured; of all, as believed at first, if none is. Summed exactly: the
    order of replicas must not show."""
    rates = [view.speed.prefill_tokens_per_s for view in views if view.speed.learned]
    rates = rates or [view.speed.prefill_tokens_per_s for view in views]
    return fsum(rates) / len(rates)


PLUGIN = Plugin("headroom", Headroom, HeadroomConfig)
