"""A continuous-batching engine, step by step: who runs, who waits, who has to give its memory back.

It behaves like vLLM V1's scheduler. There is no prefill phase and no decode phase: every sequence has tokens that are
not yet computed, and each step spends a budget of tokens on them, running sequences first, in the order they were let
in. A running sequence that finds no free block takes those of the last one let in, which starts over later
(preemption by recomputation). Waiting ones follow first come, first served, while budget, places and blocks last.
Under the priority policy the lowest number goes first, the earlier of two equal ones, and the last in that order pays.

No clock: the caller says what time it is and is told how long the step takes. Memory is in `blocks`, speed in
`steptime`, what a sequence says in `tokens`.
"""

import bisect
from collections import deque

import msgspec

from headway.perfmodel.blocks import BlockPool
from headway.perfmodel.sequence import Request, Sequence
from headway.perfmodel.steptime import Batch, StepModel


class EngineConfig(msgspec.Struct, frozen=True):
    """Sizes. `kv_blocks` of `block_size` tokens; `max_model_len` bounds prompt and output together.

    `scheduling_policy`: "fcfs", or "priority" (vLLM's --scheduling-policy).
    """

    kv_blocks: int
    block_size: int = 16
    max_num_seqs: int = 256
    max_num_batched_tokens: int = 2048
    max_model_len: int = 8192
    enable_prefix_caching: bool = True
    scheduling_policy: str = "fcfs"


class StepResult(msgspec.Struct, frozen=True, gc=False):
    """One step. Tokens become visible `duration_s` after the time it was given.

    `outputs`: every sequence that said a token, with the token; those that ended by it are in `finished` too.
    `batch_tokens`: tokens computed, prompts and decodes together.
    """

    duration_s: float
    outputs: list[tuple[Sequence, int]]
    finished: list[Sequence]
    preempted: list[Sequence]
    batch_tokens: int


class EngineStats(msgspec.Struct, frozen=True):
    """Gauges now, and totals since the start (tokens). Hits and queries count each request once, at its admission."""

    running: int
    waiting: int
    kv_blocks: int
    kv_blocks_used: int
    kv_blocks_cached: int
    preemptions_total: int
    prefix_queries_total: int
    prefix_hits_total: int
    prompt_tokens_total: int
    generation_tokens_total: int
    steps_total: int
    sleep_level: int
    paused: bool

    @property
    def kv_usage(self) -> float:
        """Used fraction of the pool, 0..1."""
        return self.kv_blocks_used / self.kv_blocks


class Engine:
    """One engine. `slowdown` stretches every step; it may be changed between steps."""

    def __init__(self, config: EngineConfig, model: StepModel) -> None:
        self.config = config
        self.model = model
        self.pool = BlockPool(config.kv_blocks)
        self.waiting: deque[Sequence] = deque()
        self.running: list[Sequence] = []
        self.slowdown = 1.0
        self.sleep_level = 0
        self.paused = False
        self._by_priority = config.scheduling_policy == "priority"
        self._sequences: dict[str, Sequence] = {}
        self._preemptions = self._queries = self._hits = self._prompts = self._generated = self._steps = 0

    @property
    def capacity_tokens(self) -> int:
        """Tokens that one sequence may reach: the pool or the model's context, whichever is less."""
        return min(self.config.kv_blocks * self.config.block_size, self.config.max_model_len)

    @property
    def busy(self) -> bool:
        """Whether a step would do something."""
        return bool(self.running or self.waiting) and not self.sleep_level and not self.paused

    def add(self, request: Request, now: float) -> Sequence:
        """Queue a request. Raises ValueError if its prompt can never fit, is empty, or its id is in use."""
        room = self.capacity_tokens - len(request.prompt)
        if not request.prompt or room < 1:
            raise ValueError(f"a prompt of {len(request.prompt)} tokens does not fit into {self.capacity_tokens}")
        if request.id in self._sequences:
            raise ValueError(f"request {request.id!r} is already here")
        limit = min(request.output_tokens or request.max_tokens, room)
        sequence = Sequence(request, self.config.block_size, limit, now)
        self._sequences[request.id] = sequence
        if self._by_priority:
            bisect.insort(self.waiting, sequence, key=_rank)
        else:
            self.waiting.append(sequence)
        return sequence

    def abort(self, request_id: str) -> bool:
        """Drop a request wherever it is; False if it is not here (any more)."""
        sequence = self._sequences.pop(request_id, None)
        if sequence is None:
            return False
        sequence.finish = "abort"
        (self.running if sequence in self.running else self.waiting).remove(sequence)
        self._release(sequence)
        return True

    def step(self, now: float) -> StepResult:
        """Schedule one batch at `now` and compute it."""
        if not self.busy:
            return StepResult(0.0, [], [], [], 0)
        preempted: list[Sequence] = []
        work = self._schedule_running(preempted)
        if not preempted:
            self._admit(work, now)
        batch = self._batch(work)
        duration = self.model.step_s(batch) * self.slowdown
        outputs = self._compute(work, now + duration)
        finished = [sequence for sequence, _token in outputs if sequence.finish]
        if finished:
            self._retire(finished)
        self._steps += 1
        return StepResult(duration, outputs, finished, preempted, batch.decode_tokens + batch.prefill_tokens)

    def sleep(self, level: int) -> None:
        """Stop stepping and give the cache away; what is queued or running waits until `wake`."""
        self.sleep_level = level
        for sequence in reversed(self.running):
            self._preempt(sequence)
        self.running.clear()
        self.pool.forget_all()

    def wake(self) -> None:
        """Step again."""
        self.sleep_level = 0

    def stats(self) -> EngineStats:
        """Gauges and totals. An engine that sleeps or is paused reports nothing running or waiting, as vLLM does."""
        still = bool(self.sleep_level or self.paused)
        return EngineStats(
            running=0 if still else len(self.running),
            waiting=0 if still else len(self.waiting),
            kv_blocks=self.pool.count,
            kv_blocks_used=self.pool.used,
            kv_blocks_cached=self.pool.cached,
            preemptions_total=self._preemptions,
            prefix_queries_total=self._queries,
            prefix_hits_total=self._hits,
            prompt_tokens_total=self._prompts,
            generation_tokens_total=self._generated,
            steps_total=self._steps,
            sleep_level=self.sleep_level,
            paused=self.paused,
        )

    def _schedule_running(self, preempted: list[Sequence]) -> list[tuple[Sequence, int]]:
        """Give running sequences their tokens, in order; the last one (by priority, if so) pays for missing blocks."""
        budget = self.config.max_num_batched_tokens
        size = self.config.block_size
        work: list[tuple[Sequence, int]] = []
        index = 0
        while index < len(self.running) and budget > 0:
            sequence = self.running[index]
            count = min(sequence.length - sequence.computed, budget)
            missing = -(-(sequence.computed + count) // size) - len(sequence.blocks)
            if missing > 0:
                while missing > self.pool.free:
                    victim = self._victim()
                    preempted.append(self._preempt(self.running.pop(victim)))
                    if preempted[-1] is sequence:
                        return work
                    if victim < index:  # it had its tokens for this step already
                        budget += work.pop(victim)[1]
                        index -= 1
                sequence.blocks += self.pool.allocate(missing)
            work.append((sequence, count))
            budget -= count
            index += 1
        return work

    def _victim(self) -> int:
        """Index of the running sequence that gives way."""
        if self._by_priority:
            return max(range(len(self.running)), key=lambda index: _rank(self.running[index]))
        return len(self.running) - 1

    def _admit(self, work: list[tuple[Sequence, int]], now: float) -> None:
        """Let waiting sequences in while tokens, places and blocks last; as in vLLM the whole prompt must find room."""
        budget = self.config.max_num_batched_tokens - sum(count for _sequence, count in work)
        size = self.config.block_size
        pool = self.pool
        while self.waiting and budget > 0 and len(self.running) < self.config.max_num_seqs:
            sequence = self.waiting[0]
            known = (
                pool.find(sequence.keys[: (sequence.length - 1) // size]) if self.config.enable_prefix_caching else []
            )
            cached = len(known) * size
            if -(-sequence.length // size) - len(known) > pool.free - pool.idle(known):
                return
            count = min(sequence.length - cached, budget)
            pool.share(known)
            sequence.blocks = known + pool.allocate(-(-(cached + count) // size) - len(known))
            sequence.computed = cached
            self._note_admission(sequence, cached, now)
            self.running.append(self.waiting.popleft())
            work.append((sequence, count))
            budget -= count

    def _note_admission(self, sequence: Sequence, cached: int, now: float) -> None:
        if sequence.started < 0:
            sequence.started = now
            sequence.cached = cached
            self._queries += sequence.prompt_length
            self._hits += cached
            self._prompts += sequence.prompt_length

    def _batch(self, work: list[tuple[Sequence, int]]) -> Batch:
        decodes = context = prefill = 0
        pairs = 0.0
        for sequence, count in work:
            if count == 1 and sequence.computed >= sequence.prompt_length:
                decodes += 1
                context += sequence.length
            else:
                prefill += count
                pairs += count * (sequence.computed + count / 2)
        return Batch(decodes, context, prefill, pairs, len(work))

    def _compute(self, work: list[tuple[Sequence, int]], end: float) -> list[tuple[Sequence, int]]:
        """Advance every scheduled sequence; those that are computed to their end say a token."""
        size = self.config.block_size
        caching = self.config.enable_prefix_caching
        outputs = []
        for sequence, count in work:
            before = sequence.computed
            sequence.computed = after = before + count
            if caching and after // size > before // size:
                for index in range(before // size, after // size):
                    self.pool.name(sequence.blocks[index], sequence.keys[index])
            if after == sequence.length:
                outputs.append((sequence, sequence.generate(size)))
                if sequence.first_token < 0:
                    sequence.first_token = end
                sequence.last_token = end
        self._generated += len(outputs)
        return outputs

    def _retire(self, finished: list[Sequence]) -> None:
        self.running = [sequence for sequence in self.running if not sequence.finish]
        for sequence in finished:
            del self._sequences[sequence.id]
            self._release(sequence)

    def _preempt(self, sequence: Sequence) -> Sequence:
        """Take all memory back; the sequence goes to the head of the queue (or to its rank in it) and is computed anew.
        No token is lost."""
        self._release(sequence)
        sequence.computed = 0
        sequence.preemptions += 1
        self._preemptions += 1
        if self._by_priority:
            bisect.insort_left(self.waiting, sequence, key=_rank)
        else:
            self.waiting.appendleft(sequence)
        return sequence

    def _release(self, sequence: Sequence) -> None:
        self.pool.release(sequence.blocks)
        sequence.blocks = []


def _rank(sequence: Sequence) -> tuple[int, float]:
    """Order under the priority policy, first to last."""
    return sequence.request.priority, sequence.arrived
