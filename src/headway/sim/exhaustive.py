"""The best of all plans of a tiny instance, by trying every one: what no policy can beat.

A plan says for each request where it goes, when it is sent and in which order. What a plan is worth, the caller knows.
"""

import itertools
import math
from collections.abc import Callable, Iterator, Sequence

import msgspec

MOST_PLANS = 200_000


class Plan(msgspec.Struct, frozen=True):
    """Per request: the replica, -1 for a refusal, and the seconds it is held. `order`: requests as they are sent where
    they are sent at the same moment."""

    replicas: tuple[int, ...]
    held_s: tuple[float, ...]
    order: tuple[int, ...]


class Best(msgspec.Struct, frozen=True):
    """`good` requests are served well by `plan`, and no more by any of the `plans` tried."""

    good: int
    plan: Plan
    plans: int


def exhaustive(
    requests: int,
    replicas: int,
    evaluate: Callable[[Plan], int],
    holds: Sequence[float] = (0.0,),
    orders: bool = False,
) -> Best:
    """Try every assignment of requests to replicas or to nobody, every choice of `holds` (s) and, if asked, every
    order. Ends early where all are served well. Raises ValueError if there are too many plans."""
    count = (replicas * len(holds) + 1) ** requests * (math.factorial(requests) if orders else 1)
    if count > MOST_PLANS:
        raise ValueError(f"{count} plans are too many to try, the limit is {MOST_PLANS}")
    good, best, tried = -1, None, 0
    for plan in _plans(requests, replicas, holds, orders):
        worth = evaluate(plan)
        tried += 1
        if worth > good:
            good, best = worth, plan
        if good == requests:
            break
    assert best is not None, "to refuse everybody is a plan"
    return Best(good, best, tried)


def _plans(requests: int, replicas: int, holds: Sequence[float], orders: bool) -> Iterator[Plan]:
    choices = [(replica, hold) for replica in range(replicas) for hold in holds] + [(-1, 0.0)]
    every = itertools.permutations(range(requests)) if orders else [tuple(range(requests))]
    for order in every:
        for chosen in itertools.product(choices, repeat=requests):
            yield Plan(tuple(c[0] for c in chosen), tuple(c[1] for c in chosen), order)
