"""What requests take on replicas at best: the least work of each, and who could be served well if it were alone.

Constants and arrays for `bounds`; nothing is scheduled here. Every figure errs on the side of the fast replica: a bound
by constants that are too slow is none.
"""

import itertools
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
import numpy as np
from numpy.typing import NDArray

from headway.perfmodel.jump import Stepping
from headway.perfmodel.steptime import Batch
from headway.sim.prefixes import Prefixes

Floats = NDArray[np.float64]

_GRACE = 1e-9
"""Rounding must not make a request impossible that just meets its limit (s)."""

_SAFE = 0.999
"""Step times are asked for on a grid; between its points they are taken to be at least this share of the line."""

_JUMP = 2.0
"""So many times what a token more takes on average between two points of the grid is a jump."""

_PROMPT_STEPS = (1, 64, 256, 1024, 4096)
_BATCHES = (1, 8, 32, 128)


class Line(msgspec.Struct, frozen=True):
    """A plane that no step is below: seconds >= per_request * decoding + per_prompt_token * tokens + per_step."""

    per_request_s: float
    per_prompt_token_s: float
    per_step_s: float


class ReplicaKind(msgspec.Struct, frozen=True):
    """Replicas of one speed, `count` of them. (Not whole where somewhat unequal ones are taken together, by what they
    do in the time of one.)

    A step takes at least the largest of its lines, `mixed` if somebody decodes, `alone` if only prompts are computed;
    and `per_token_s` for each token of the contexts of those who decode, `pair_s` for each query-key pair inside the
    prompts. Before its engine hears of it a request takes `delay_s`, and more by its prompt. `kv_tokens` 0: memory
    never binds; `longest` 0: nor does the length of one sequence.
    """

    count: float
    mixed: tuple[Line, ...]
    alone: tuple[Line, ...]
    per_token_s: float
    pair_s: float = 0.0
    delay_s: float = 0.0
    delay_s_per_token: float = 0.0
    kv_tokens: int = 0
    longest: int = 0
    max_num_seqs: int = 256
    max_num_batched_tokens: int = 8192


def kind_of(model: Stepping, count: float, max_num_seqs: int, max_num_batched_tokens: int) -> ReplicaKind:
    """The lines under a step model, by asking it. Other sizes and delays are for the caller to add."""
    requests = np.unique(np.geomspace(1, max_num_seqs, 40).astype(int))
    tokens = np.unique(np.append(0, np.geomspace(1, max_num_batched_tokens, 120).astype(int)))
    grid = tokens.tolist()
    jumps = [t for r in (0, *requests.tolist()) for t in _before_jumps(model, r, grid)]
    tokens = np.unique(np.append(tokens, np.array(jumps, dtype=int)))
    seconds = np.array([[_seconds(model, r, t) for t in tokens.tolist()] for r in requests.tolist()])
    lonely = np.array([[_seconds(model, 0, t) for t in tokens[1:].tolist()]])
    far = 1 << 20
    read = [model.step_s(Batch(1, far, t, 0.0, 1)) - model.step_s(Batch(1, 0, t, 0.0, 1)) for t in (0, 1)]
    pairs = [model.step_s(Batch(r, 0, 1, far, 1)) - model.step_s(Batch(r, 0, 1, 0.0, 1)) for r in (0, 1)]
    return ReplicaKind(
        count=count,
        mixed=_under(requests, tokens, seconds),
        alone=_under(np.zeros(1, dtype=int), tokens[1:], lonely),
        per_token_s=min(read) / far,
        pair_s=min(pairs) / far,
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=max_num_batched_tokens,
    )


def _seconds(model: Stepping, requests: int, tokens: int) -> float:
    return model.step_s(Batch(requests, 0, tokens, 0.0, requests + (tokens > 0)))


def _before_jumps(model: Stepping, requests: int, grid: Sequence[int]) -> list[int]:
    """The most prompt tokens before step times jump (beyond the largest CUDA graph, say), between points of the grid.
    Nothing else there is as cheap for what it does, so a line that must not be above it has to know it."""
    found = []
    for low, high in itertools.pairwise(grid):
        if high - low < 2 or (not low and not requests):
            continue
        begin, end = _seconds(model, requests, low), _seconds(model, requests, high)
        usual = (end - begin) / (high - low)
        while high - low > 1:
            middle = (low + high) // 2
            there = _seconds(model, requests, middle)
            if (there - begin) * (high - middle) > (end - there) * (middle - low):
                high, end = middle, there
            else:
                low, begin = middle, there
        if end - begin > _JUMP * usual:
            found.append(low)
    return found


def _under(requests: NDArray[np.int_], tokens: NDArray[np.int_], seconds: Floats) -> tuple[Line, ...]:
    """Lines under a table of step times that touch it: with the slopes of its lower envelopes at a few places."""
    lines = []
    for batch in [b for b in _BATCHES if b <= requests[-1]] or [0]:
        row = int(np.searchsorted(requests, batch))
        for step in _PROMPT_STEPS:
            column = min(int(np.searchsorted(tokens, step)), len(tokens) - 1)
            a = _slope(requests, seconds[:, column], row)
            b = _slope(tokens, seconds[row], column)
            rest = (seconds - a * requests[:, None] - b * tokens[None, :]).min()
            lines.append(Line(_SAFE * a, _SAFE * b, float(rest * (_SAFE if rest > 0.0 else 1.0))))
    return tuple(dict.fromkeys(lines))


def _slope(places: NDArray[np.int_], values: Floats, at: int) -> float:
    """Of the lower convex envelope from a place on (up to it, at the end); 0 where there is one place only. Lines with
    the slope of the curve itself would lie far below what is beyond a jump."""
    if len(places) < 2:
        return 0.0
    corners = _corners(places.tolist(), values.tolist())
    right = min(bisect_right(corners, at), len(corners) - 1)
    one, two = corners[right - 1], corners[right]
    return max(0.0, float((values[two] - values[one]) / (places[two] - places[one])))


def _corners(places: Sequence[int], values: Sequence[float]) -> list[int]:
    """Indices of the points that the lower convex envelope goes through."""
    found: list[int] = []
    for k, (place, value) in enumerate(zip(places, values, strict=True)):
        while len(found) > 1:
            one, two = found[-2:]
            rise = (values[two] - values[one]) * (place - places[one])
            if rise < (value - values[one]) * (places[two] - places[one]):
                break
            found.pop()
        found.append(k)
    return found


@dataclass(frozen=True)
class Demands:
    """What is asked for: arrays with one entry per request.

    `arrival_s`; `prompt`, `output` tokens (at least 1 each); `ttft_s`, `tpot_s`: limits; `prefixes`: what prompts share
    where engines cache it, None where they do not; `counted`: whether it matters that a request is served well (all, if
    None); who does not matter may still have brought a prefix into the caches.
    """

    arrival_s: Floats
    prompt: Floats
    output: Floats
    ttft_s: Floats
    tpot_s: Floats
    prefixes: Prefixes | None = None
    counted: NDArray[np.bool_] | None = None

    def __len__(self) -> int:
        return len(self.arrival_s)

    @property
    def until_s(self) -> Floats:
        """When a request that is served well has ended at the latest."""
        return self.arrival_s + self.ttft_s + self.tpot_s * (self.output - 1.0)


@dataclass(frozen=True)
class Work:
    """What each request takes on one kind of replica, and whether it could be served well there if it were alone.

    `begins_s`: when its prompt can be begun; `first_s`: its earliest first token; `decoded`: tokens after it; `read`:
    context tokens read by those; `held`: the same, less what may be shared; `computed`: prompt tokens that nobody else
    has; `pairs_s`: seconds of attention for those; `pace_s`: mean seconds it may take per token decoded.
    """

    able: NDArray[np.bool_]
    begins_s: Floats
    first_s: Floats
    decoded: Floats
    read: Floats
    held: Floats
    computed: Floats
    pairs_s: Floats
    pace_s: Floats


def work(demands: Demands, kind: ReplicaKind) -> Work:
    """The least work of every request. An engine ends an answer where there is no more room, and so it is here."""
    prompt, output = demands.prompt, demands.output
    most = min((limit for limit in (kind.kv_tokens, kind.longest) if limit), default=np.inf)
    decoded = np.maximum(0.0, np.minimum(output, most - prompt) - 1.0)
    pace_s = demands.tpot_s * (output - 1.0) / np.maximum(1.0, decoded)
    shared = demands.prefixes.shared() if demands.prefixes is not None else np.zeros(len(demands))
    shared = np.minimum(shared, prompt - 1.0)
    computed = prompt - shared
    pairs_s = kind.pair_s * computed * (shared + computed / 2.0)
    begins_s = demands.arrival_s + kind.delay_s + kind.delay_s_per_token * prompt
    first_s = begins_s + _alone_s(kind, computed) + pairs_s
    grown = decoded * (decoded - 1.0) / 2.0
    step_s = max(line.per_request_s + line.per_step_s for line in kind.mixed)
    steps_s = step_s + kind.per_token_s * (prompt + np.maximum(0.0, decoded - 1.0) / 2.0)
    able = (most - prompt >= 1.0) & (first_s <= demands.arrival_s + demands.ttft_s + _GRACE)
    able &= (decoded == 0.0) | (steps_s <= pace_s + _GRACE)
    if demands.counted is not None:
        able &= demands.counted
    read, held = prompt * decoded + grown, computed * decoded + grown
    return Work(able, begins_s, first_s, decoded, read, held, computed, pairs_s, pace_s)


def _alone_s(kind: ReplicaKind, tokens: Floats) -> Floats:
    """Least seconds to compute so many prompt tokens, in whatever steps: each is above the lower of any two lines."""
    fewest = np.ceil(tokens / kind.max_num_batched_tokens)
    least = np.zeros(len(tokens))
    for alone, mixed in itertools.product(kind.alone, kind.mixed):
        per_token_s = min(alone.per_prompt_token_s, mixed.per_prompt_token_s)
        per_step_s = min(alone.per_step_s, mixed.per_step_s)
        if per_step_s >= 0.0:  # else more steps could bring it down
            least = np.maximum(least, per_token_s * tokens + per_step_s * fewest)
    return least
