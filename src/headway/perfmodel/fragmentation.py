"""What fragmentation of KV memory costs in admitted requests: allocators x granularities on one list of requests.

An engine without a bottleneck other than memory: requests wait in one queue, in order, and the first is admitted as
soon as the allocator has room for it; every running sequence gains a token a step and leaves at its end. A paged
sequence that finds no page sends the youngest back to the head of the queue, to be computed anew; paged admission keeps
a hundredth of the pool free so that this stays rare (vLLM's watermark). Contiguous and buddy regions are made for the
final length, which no engine knows: they are flattered, and still lose.
"""

import heapq
from collections import deque
from collections.abc import Callable, Sequence

import msgspec

from headway.perfmodel.allocators import ALLOCATORS, Allocator

GRANULARITIES = (32, 512, 2048)
"""Tokens per request to the allocator."""

WATERMARK = 0.01
"""Share of the pool that paged admission leaves free."""

GROW, END = 0, 1


class Outcome(msgspec.Struct, frozen=True):
    """One allocator at one granularity over `steps` steps, shares 0..1 as means over time.

    `used`: tokens really written / pool. `internal`: held but not written / held. `external`: 1 - largest possible
    request / free. `largest_tokens`: the largest possible request on average and `largest_low` at the 5th percentile of
    samples. `admitted`: requests finished; `preempted`: sent back. `refused`: of the samples with a queue, those in
    which the total free memory would have held the first waiting request, but no single region did.
    """

    allocator: str
    granularity: int
    pool_tokens: int
    steps: int
    admitted: int
    preempted: int
    running: float
    used: float
    internal: float
    external: float
    refused: float
    largest_tokens: float
    largest_low: float


def study(
    lengths: Sequence[tuple[int, int]],
    pool_tokens: int,
    steps: int,
    granularities: Sequence[int] = GRANULARITIES,
) -> list[Outcome]:
    """All allocators at all granularities over `steps` steps on the same (prompt, output) lengths, repeated as needed.

    Requests of more than half the pool are left out for all. Raises ValueError when none is left.
    """
    kept = _kept(lengths, pool_tokens)
    if not kept:
        raise ValueError(f"no request of the list fits into half a pool of {pool_tokens:,} tokens")
    return [
        _Trial(name, make(pool_tokens, unit), unit, pool_tokens, kept).run(steps)
        for name, make in ALLOCATORS
        for unit in granularities
    ]


def lossless(lengths: Sequence[tuple[int, int]], pool_tokens: int, steps: int) -> int:
    """Requests of the list that an allocator without any loss would finish: each takes `prompt x output + output^2 / 2`
    of the pool's `pool x steps` token-steps."""
    kept = _kept(lengths, pool_tokens)
    left, count = float(pool_tokens) * steps, 0
    while kept and left > 0:
        prompt, output = kept[count % len(kept)]
        left -= prompt * output + output * output / 2
        count += 1
    return max(0, count - 1)


def _kept(lengths: Sequence[tuple[int, int]], pool_tokens: int) -> list[tuple[int, int]]:
    """Requests that fit into half the pool, which every allocator can hold at some time."""
    return [pair for pair in lengths if pair[0] > 0 and pair[1] > 0 and sum(pair) <= pool_tokens // 2]


class _Sample(msgspec.Struct, frozen=True, gc=False):
    span: int
    free: int
    largest: int
    written: float
    running: int
    scattered: bool


class _Sequence(msgspec.Struct):
    prompt: int
    output: int
    admitted_at: int = 0
    written: int = 0  # tokens when admitted: more than the prompt after a preemption

    @property
    def final(self) -> int:
        return self.prompt + self.output


class _Trial:
    """One allocator's run: a heap of (step, number, owner, what) for ends and page boundaries."""

    def __init__(
        self, name: str, allocator: Allocator, unit: int, pool: int, lengths: Sequence[tuple[int, int]]
    ) -> None:
        self.name, self.allocator, self.unit, self.pool, self.lengths = name, allocator, unit, pool, lengths
        self.paged = name == "paged"
        self.reserve = int(WATERMARK * pool) if self.paged else 0
        self.now = self.drawn = self.admitted = self.preempted = 0
        self.running: dict[int, _Sequence] = {}
        self.back: deque[_Sequence] = deque()
        self.events: list[tuple[int, int, int]] = []
        self.written = 0  # by all running sequences at `now`
        self.samples: list[_Sample] = []

    def run(self, steps: int) -> Outcome:
        """Admit, jump to the next event, sample in between."""
        owner = 0
        while self.now < steps:
            while self._admit(owner):
                owner += 1
            if not self.events:
                break
            until = min(steps, self.events[0][0])
            if until > self.now:
                self._sample(until - self.now)
                self.written += len(self.running) * (until - self.now)
                self.now = until
            while self.events and self.events[0][0] <= self.now < steps:
                _, key, what = heapq.heappop(self.events)
                self._happen(key, what)
        return self._outcome()

    def _first(self) -> _Sequence:
        if not self.back:
            prompt, output = self.lengths[self.drawn % len(self.lengths)]
            self.drawn += 1
            self.back.append(_Sequence(prompt, output, written=prompt))
        return self.back[0]

    def _admit(self, owner: int) -> bool:
        first = self._first()
        if self.running and self.allocator.free_tokens - first.written < self.reserve:
            return False
        if not self.allocator.hold(owner, first.written, first.final):
            return False
        self.back.popleft()
        first.admitted_at = self.now
        self.running[owner] = first
        self.written += first.written
        self._plan(owner, first)
        return True

    def _plan(self, owner: int, one: _Sequence) -> None:
        """The next page boundary or the end, whichever is first."""
        tokens = one.written + self.now - one.admitted_at
        end = one.admitted_at + one.final - one.written
        boundary = self.now + self.unit - (tokens - 1) % self.unit
        if self.paged and boundary < end:
            heapq.heappush(self.events, (boundary, owner, GROW))
        else:
            heapq.heappush(self.events, (end, owner, END))

    def _happen(self, owner: int, what: int) -> None:
        one = self.running.get(owner)
        if one is None:  # it was sent back meanwhile
            return
        if what == END:
            self._leave(owner)
            self.admitted += 1
            return
        while not self.allocator.grow(owner, one.written + self.now - one.admitted_at):
            youngest = next(reversed(self.running))
            victim = self._leave(youngest)
            victim.written = min(victim.final - 1, victim.written + self.now - victim.admitted_at)
            self.back.appendleft(victim)
            self.preempted += 1
            if youngest == owner:
                return
        self._plan(owner, one)

    def _leave(self, owner: int) -> _Sequence:
        one = self.running.pop(owner)
        self.allocator.drop(owner)
        self.written -= one.written + self.now - one.admitted_at
        return one

    def _sample(self, span: int) -> None:
        free, largest, running = self.allocator.free_tokens, self.allocator.largest_tokens, len(self.running)
        scattered = not self.paged and free >= self._first().final > largest
        self.samples.append(_Sample(span, free, largest, self.written + running * span / 2, running, scattered))

    def _outcome(self) -> Outcome:
        written, held = self._mean(lambda one: one.written), self._mean(lambda one: self.pool - one.free)
        return Outcome(
            allocator=self.name,
            granularity=self.unit,
            pool_tokens=self.pool,
            steps=self.now,
            admitted=self.admitted,
            preempted=self.preempted,
            running=self._mean(lambda one: one.running),
            used=written / self.pool,
            internal=max(0.0, 1 - written / held) if held else 0.0,
            external=self._mean(lambda one: 1 - one.largest / one.free if one.free else 0.0),
            refused=self._mean(lambda one: one.scattered),
            largest_tokens=self._mean(lambda one: one.largest),
            largest_low=_quantile(sorted((one.largest, one.span) for one in self.samples), 0.05),
        )

    def _mean(self, read: Callable[[_Sample], float]) -> float:
        """Over time."""
        total = sum(one.span for one in self.samples)
        return sum(read(one) * one.span for one in self.samples) / total if total else 0.0


def _quantile(weighted: Sequence[tuple[int, int]], share: float) -> float:
    """Of sorted (value, weight)."""
    bound, seen = share * sum(weight for _, weight in weighted), 0
    for value, weight in weighted:
        seen += weight
        if seen >= bound:
            return float(value)
    return 0.0
