"""When a replica that gets nothing new will be empty: as it is, and with those who can go on elsewhere moved away.

Both follow from the law of output lengths. Left alone, it is empty when the last of its requests has ended: the mean of
the largest remainder, of remainders taken as independent, at the pace of its steps now. With moves, one leaves at a
time while the others go on and may end by themselves; who cannot move stays to the end. What lives here: that
arithmetic. What must not: which requests move, and where to (rebalance).
"""

from collections.abc import Sequence
from itertools import pairwise
from math import ceil, prod

from headway.core.entry import Entry
from headway.core.ids import ReplicaId
from headway.core.length import LengthModel
from headway.core.snapshot import Emptying

AHEAD: tuple[int, ...] = tuple(sorted({0, *(ceil(4.0 * 1.2**k) for k in range(56))}))
"""Tokens ahead at which laws are looked at: up to some 90,000, a fifth further each time."""

FEW = 0.5
"""So few requests, on average, are nobody."""


def expected(
    lengths: LengthModel,
    replica_id: ReplicaId,
    stay: Sequence[Entry],
    go: Sequence[Entry],
    step_s: float,
    move_s: float,
) -> Emptying:
    """When a replica is empty whose steps take `step_s`, if one of those who `go` leaves every `move_s`."""
    staying = [_alive(lengths, entry) for entry in stay]
    going = [_alive(lengths, entry) for entry in go]
    waiting_s = step_s * _longest([*staying, *going])
    moving_s = max(step_s * _longest(staying), step_s * _gone(going, step_s / move_s))
    return Emptying(replica_id, len(stay) + len(go), len(go), min(moving_s, waiting_s), waiting_s)


def _alive(lengths: LengthModel, entry: Entry) -> Sequence[float]:
    """P(still running after so many more tokens)."""
    if not entry.generates:
        return [1.0] + [0.0] * (len(AHEAD) - 1)
    request, n = entry.request, entry.sequences
    name = lengths.closest(request.model, lengths.names(request))
    limit = (entry.base + entry.limit) // n if entry.limit else 0
    return lengths.survival(name, (entry.base + entry.generated) // n, limit, AHEAD, request.min_output_tokens)


def _longest(alive: list[Sequence[float]]) -> float:
    """The mean of the largest remainder, in tokens."""
    left = [1.0 - prod(1.0 - one[k] for one in alive) for k in range(len(AHEAD))]
    places = pairwise(zip(AHEAD, left, strict=True))
    return sum((far - near) * (more + less) / 2.0 for (near, more), (far, less) in places)


def _gone(alive: list[Sequence[float]], leave: float) -> float:
    """After how many tokens nobody is left, if `leave` of them leave with each."""
    before, left_before = 0, float(len(alive))
    for k, ahead in enumerate(AHEAD):
        left = sum(one[k] for one in alive) - leave * ahead
        if left <= FEW:
            share = (left_before - FEW) / (left_before - left) if left_before > FEW else 0.0
            return before + (ahead - before) * share
        before, left_before = ahead, left
    return float(AHEAD[-1])
