"""How many requests any gateway could have served well: an upper bound by linear programming.

Every schedule that a fleet can follow, with the future known, is a feasible point of the programme; its optimum is
therefore at least the number of good requests of any policy. What it keeps of the engine, per kind of replica and
bucket of time, in amounts that may be fractions:

    requests   each is served well at most once; its prompt between arrival and TTFT limit, its output from its earliest
               first token until the TTFT limit plus TPOT for each further token
    prefixes   what several prompts begin with is computed at least once on each kind where one of them is served well,
               between the first arrival and the last TTFT limit of those that have it
    time       steps + contexts read + attention in prompts <= time; steps in which somebody decodes are told from those
               of prompts alone, and take at least the largest of the lines under the step model (`ideal.Line`), in
               numbers of steps, tokens decoded and prompt tokens
    memory     contexts read, less what may be shared, <= decoding steps * pool
    batches    decoded <= decoding steps * max_num_seqs; all tokens <= steps * max_num_batched_tokens
    TPOT       in any span of time, decoded * slope <= decoding steps * (TPOT - base) for those served well within it: a
               step of R of them takes at least base + slope R, their mean step at most TPOT, so
               sum R (base + slope R) <= TPOT sum R, and sum R^2 >= (sum R)^2 / steps. Base and slope are a line's, the
               slope with the contexts of the shortest of their prompts, so the row is written for all of them and for
               the longer ones.

What it gives away: replicas of a kind share all they have, their caches too; requests may be split between kinds;
windows begin and end with buckets; prompt and output are not tied to each other; who is served badly costs nothing;
shared prefixes take no memory. A step that lies across two buckets counts in each by its share of time, so nothing is
lost there.
"""

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from headway.sim.ideal import Demands, Floats, Line, ReplicaKind, work
from headway.sim.programme import Programme

_SPARE = 1e-6
"""The solver's tolerance, per request: added to its optimum, so that rounding cannot make the bound too low."""

_TOUCH = 1e-9
"""Of a bucket a window may have less than this share without having any: less than the solver's tolerance."""

BUCKETS = 400
"""So many are told apart, unless a quarter of a second is longer."""

_LEAST_BUCKET_S = 0.25
_BLOCKS_PER_WINDOW = 8
_LONGER = (0.0, 0.5, 0.8)
"""Quantiles of the prompts' lengths from which on the TPOT rows are written."""

Windows = dict[tuple[int, int], list[int]]
"""Indices (of requests or nodes) by the first and last bucket, or block, of their time."""

Placed = dict[int, list[int]]
"""Variables by bucket or block."""


@dataclass(frozen=True)
class Bound:
    """`good`: no schedule serves more requests well. `relaxed`: the optimum itself. Sizes of the programme."""

    good: int
    relaxed: float
    variables: int
    constraints: int


@dataclass(frozen=True)
class Grid:
    """`count` buckets of `width` seconds from `begin` on; `spread` of them are a block (`count` is a multiple)."""

    begin: float
    width: float
    count: int
    spread: int

    def buckets(self, first_s: float, last_s: float) -> tuple[int, int]:
        """The first and last bucket of which a window has some time."""
        first = max(0, int((first_s - self.begin) / self.width + _TOUCH))
        last = math.ceil((last_s - self.begin) / self.width - _TOUCH) - 1
        return first, max(first, min(self.count - 1, last))

    def blocks(self, first_s: float, last_s: float) -> tuple[int, int]:
        """The first and last block."""
        first, last = self.buckets(first_s, last_s)
        return first // self.spread, last // self.spread


def lp_goodput_bound(
    demands: Demands, kinds: Sequence[ReplicaKind], bucket_s: float = 0.0, spread: int = 0, buckets: int = BUCKETS
) -> Bound:
    """The bound. Prompts are placed in buckets of `bucket_s` seconds (0: as many as `buckets`, each of a quarter of a
    second or more), outputs in blocks of `spread` buckets (0: an eighth of the mean window): finer is tighter as
    a rule, and slower.

    However coarse, it stays a bound: a schedule that fits into two buckets fits into the one that both are, whose
    time, steps and windows are theirs together."""
    if not len(demands) or not kinds:
        return Bound(0, 0.0, 0, 0)
    grid, programme = _grid(demands, bucket_s, spread, buckets), Programme()
    served = [_Fleet(programme, demands, kind, grid).served for kind in kinds]
    for choices in zip(*served, strict=True):
        open_ = [variable for variable in choices if variable >= 0]
        if len(open_) > 1:
            programme.at_most(1.0, [(variable, 1.0) for variable in open_])
    relaxed = programme.maximum()
    good = min(len(demands), math.floor(relaxed + _SPARE * len(demands)))
    return Bound(good, relaxed, programme.variables, programme.constraints)


def _grid(demands: Demands, bucket_s: float, spread: int, buckets: int) -> Grid:
    until = demands.until_s
    begin, end = float(demands.arrival_s.min()), float(until.max())
    width = bucket_s or max(_LEAST_BUCKET_S, (end - begin) / buckets)
    window = float((until - demands.arrival_s).mean())
    spread = spread or max(1, int(window / _BLOCKS_PER_WINDOW / width))
    return Grid(begin, width, spread * (int((end - begin) / width / spread) + 1), spread)


class _Fleet:
    """The variables and rows of one kind of replica.

    `served`: per request the variable "served well here", -1 if it cannot be. Amounts lie in buckets (prompts) and
    blocks (outputs): requests of one window share their variables, which loses nothing.
    """

    def __init__(self, programme: Programme, demands: Demands, kind: ReplicaKind, grid: Grid) -> None:
        self._programme, self._demands, self._kind, self._grid = programme, demands, kind, grid
        self._work = least = work(demands, kind)
        self.served = [programme.variable(1.0, 1.0) if able else -1 for able in least.able]
        self._able = [i for i, variable in enumerate(self.served) if variable >= 0]
        self._mixed = [_Steps(programme, kind.mixed) for _ in range(grid.count)]
        self._alone = [_Steps(programme, kind.alone) for _ in range(grid.count)]
        prompts, outputs = self._prompt_windows(), self._output_windows()
        self._computed = self._place(prompts, least.computed, self.served, defaultdict(list))
        self._pairs = self._place(prompts, least.pairs_s, self.served, defaultdict(list))
        self._add_prefixes()
        self._decoded = self._place(outputs, least.decoded, self.served, defaultdict(list))
        self._reading = self._place(outputs, kind.per_token_s * least.read, self.served, defaultdict(list))
        held = least.held if kind.kv_tokens else np.zeros(0)
        self._held = self._place(outputs, held, self.served, defaultdict(list))
        for bucket in range(grid.count):
            self._limit_bucket(bucket)
        for block in range(grid.count // grid.spread):
            self._limit_block(block)
        self._limit_pace(outputs)

    def _prompt_windows(self) -> Windows:
        """Requests by the buckets in which their prompt is computed."""
        last = self._demands.arrival_s + self._demands.ttft_s
        windows = defaultdict(list)
        for i in self._able:
            windows[self._grid.buckets(float(self._work.begins_s[i]), float(last[i]))].append(i)
        return windows

    def _output_windows(self) -> Windows:
        """Requests by the blocks in which they decode."""
        until, windows = self._demands.until_s, defaultdict(list)
        for i in self._able:
            if self._work.decoded[i]:
                windows[self._grid.blocks(float(self._work.first_s[i]), float(until[i]))].append(i)
        return windows

    def _add_prefixes(self) -> None:
        """A node is computed as far as any request that goes through it is served."""
        shared = self._demands.prefixes
        if shared is None or not len(shared.parent):
            return
        programme = self._programme
        nodes = [programme.variable(1.0) for _ in shared.parent]
        for node, above in enumerate(shared.parent):
            if above >= 0:
                programme.at_most(0.0, [(nodes[node], 1.0), (nodes[above], -1.0)])
        for i in self._able:
            if shared.node[i] >= 0:
                programme.at_most(0.0, [(self.served[i], 1.0), (nodes[shared.node[i]], -1.0)])
        first, last = shared.spans(self._demands.arrival_s, self._demands.arrival_s + self._demands.ttft_s)
        windows = defaultdict(list)
        for node in range(len(nodes)):
            windows[self._grid.buckets(float(first[node]), float(last[node]))].append(node)
        self._place(windows, shared.tokens, nodes, self._computed)
        pairs_s = self._kind.pair_s * shared.tokens * (shared.before + shared.tokens / 2.0)
        self._place(windows, pairs_s, nodes, self._pairs)

    def _place(self, windows: Windows, amounts: Floats, extents: Sequence[int], placed: Placed) -> Placed:
        """Amounts per bucket or block, as variables: over a window they sum to amounts times extents."""
        if not amounts.any():
            return placed
        for (first, last), members in windows.items():
            parts = []
            for place in range(first, last + 1):
                variable = self._programme.variable()
                placed[place].append(variable)
                parts.append((variable, -1.0))
            self._programme.equal(0.0, parts + [(extents[i], float(amounts[i])) for i in members])
        return placed

    def _limit_bucket(self, bucket: int) -> None:
        """The time for prompts, whatever is decoded."""
        mixed, alone = self._mixed[bucket], self._alone[bucket]
        self._programme.equal(
            0.0, [(v, 1.0) for v in self._computed[bucket]] + [(mixed.tokens, -1.0), (alone.tokens, -1.0)]
        )
        time = [(mixed.seconds, 1.0), (alone.seconds, 1.0)] + [(v, 1.0) for v in self._pairs[bucket]]
        self._programme.at_most(self._kind.count * self._grid.width, time)

    def _limit_block(self, block: int) -> None:
        """Time, batches and memory for prompts and outputs together."""
        kind, programme, spread = self._kind, self._programme, self._grid.spread
        buckets = range(block * spread, (block + 1) * spread)
        mixed, alone = [self._mixed[t] for t in buckets], [self._alone[t] for t in buckets]
        decoded, seconds = self._decoded[block], programme.variable()
        for line in kind.mixed:
            row = [(v, line.per_request_s) for v in decoded] + [(seconds, -1.0)]
            row += [(s.tokens, line.per_prompt_token_s) for s in mixed] + [(s.count, line.per_step_s) for s in mixed]
            programme.at_most(0.0, row)
        time = [(seconds, 1.0)] + [(s.seconds, 1.0) for s in alone] + [(v, 1.0) for v in self._reading[block]]
        time += [(v, 1.0) for t in buckets for v in self._pairs[t]]
        programme.at_most(kind.count * self._grid.width * spread, time)
        decoding = [s.count for s in mixed]
        self._within([s.tokens for s in mixed] + decoded, decoding, kind.max_num_batched_tokens)
        self._within([s.tokens for s in alone], [s.count for s in alone], kind.max_num_batched_tokens)
        self._within(decoded, decoding, kind.max_num_seqs)
        if kind.kv_tokens:
            self._within(self._held[block], decoding, kind.kv_tokens)

    def _within(self, amounts: list[int], steps: list[int], most: float) -> None:
        """Amounts that one step can only have so much of."""
        self._programme.at_most(0.0, [(v, 1.0) for v in amounts] + [(v, -float(most)) for v in steps])

    def _limit_pace(self, windows: Windows) -> None:
        """The TPOT rows, for spans of 1, 2, 4 ... blocks that overlap by half."""
        blocks = self._grid.count // self._grid.spread
        length = 1
        while True:
            for first in range(0, blocks, max(1, length // 2)):
                last = min(first + length, blocks) - 1
                inside = [i for (b, e), them in windows.items() if first <= b and e <= last for i in them]
                if inside:
                    self._limit_span(first, last, inside)
            if length >= blocks:
                return
            length *= 2

    def _limit_span(self, first: int, last: int, inside: list[int]) -> None:
        kind, spread, prompts = self._kind, self._grid.spread, self._demands.prompt[inside]
        steps = [s.count for s in self._mixed[first * spread : (last + 1) * spread]]
        for quantile in _LONGER:
            least = float(np.quantile(prompts, quantile, method="higher"))
            those = [i for i, prompt in zip(inside, prompts, strict=True) if prompt >= least]
            pace_s = float(self._work.pace_s[those].max())
            ratio = max(_steps_per_token(line, pace_s, kind.per_token_s * least) for line in kind.mixed)
            if ratio > 0.0:
                row = [(self.served[i], float(self._work.decoded[i]) * ratio) for i in those]
                self._programme.at_most(0.0, row + [(v, -1.0) for v in steps])


class _Steps:
    """The steps of one sort in one bucket: how many, their prompt tokens, their seconds (but for reading contexts)."""

    def __init__(self, programme: Programme, lines: Sequence[Line]) -> None:
        self.count, self.tokens, self.seconds = (programme.variable() for _ in range(3))
        for line in lines:
            row = [(self.count, line.per_step_s), (self.tokens, line.per_prompt_token_s), (self.seconds, -1.0)]
            programme.at_most(0.0, row)


def _steps_per_token(line: Line, pace_s: float, reading_s: float) -> float:
    """How many steps each token decoded takes at least, where the mean step of everyone is at most `pace_s`."""
    slack = pace_s - line.per_step_s
    return (line.per_request_s + reading_s) / slack if slack > 0.0 and line.per_step_s >= 0.0 else 0.0
