"""The engine of `engine`, for simulations of whole fleets: it jumps over steps in which nothing happens.

Between two events (a request comes, ends, or finds no block) every decode step is like the one before, only with longer
contexts. Step times are affine in the context, so a run of k steps takes a sum in closed form, and finding the step in
which the next event falls is a quadratic equation. The cost is per event, not per token. Scheduling is the same as in
`engine`, step for step (a test compares them): running sequences first, in order, a budget of tokens per step, the last
one let in gives its memory back, first come first served while budget, places and blocks last.

Two things are simpler. Prefixes are shared by whole pieces of a prompt (`nodes`), and blocks of generated tokens are
not found again. Who decodes is kept in sums: their count, their contexts, and when each needs its next block.

No clock: the caller says when; `ends` says when something will have happened.
"""

import math
from collections import deque
from typing import Protocol

from headway.perfmodel.decoding import Decoding, Job
from headway.perfmodel.engine import EngineConfig
from headway.perfmodel.nodes import NodePool
from headway.perfmodel.steptime import Batch


class Stepping(Protocol):
    """What is needed of a step model: seconds of a step, affine in the context tokens of those that decode."""

    def step_s(self, batch: Batch) -> float:
        """Seconds of one step over this batch."""
        ...


class Happened:
    """What a finished plan brought about, all at its end."""

    __slots__ = ("aborted", "finished", "first", "preempted")

    def __init__(self, preempted: list[Job]) -> None:
        self.first: list[Job] = []
        self.finished: list[Job] = []
        self.aborted: list[Job] = []
        self.preempted = preempted


class JumpEngine:
    """One engine. `pace` stretches every step that begins from now on. `ends` is when the current plan ends (infinite
    when idle): call `complete` then. Between, `add` and `abort` may bring it forward."""

    def __init__(self, config: EngineConfig, model: Stepping) -> None:
        self.config = config
        self.model = model
        self.pool = NodePool(config.kv_blocks)
        self.waiting: deque[Job] = deque()
        self.running: dict[Job, None] = {}
        self.pace = 1.0
        self.ends = math.inf
        self.preemptions = self.recomputed = self.queries = self.hits = self.generated = 0
        self._size = config.block_size
        self._budget = config.max_num_batched_tokens
        self._decoding = Decoding(config.block_size)
        self._filling: list[Job] = []
        self._chunks: list[tuple[Job, int]] = []
        self._aborts: list[Job] = []
        self._preempted: list[Job] = []
        self._began = 0.0
        self._steps = 0  # of the plan; all decode, none prefills, if _chunks is empty
        self._a = self._b = 0.0  # a step of the plan takes a + b * context
        self._affine: dict[int, tuple[float, float]] = {}

    @property
    def capacity_tokens(self) -> int:
        """Tokens that one request may reach."""
        return min(self.config.kv_blocks * self._size, self.config.max_model_len)

    # -- from outside ------------------------------------------------------------------------------------------

    def add(self, job: Job, at: float) -> None:
        """Queue a request. Raises ValueError if it can never fit."""
        room = self.capacity_tokens - job.prompt
        if room < 1:
            raise ValueError(f"a prompt of {job.prompt} tokens does not fit into {self.capacity_tokens}")
        job.limit = min(job.limit, room)
        self.waiting.append(job)
        if self.ends == math.inf:
            self._plan(at)
        elif len(self.waiting) == 1:  # a head that is blocked stays so until the plan ends
            self._interrupt(at)

    def abort(self, job: Job, at: float) -> bool:
        """Drop a request; True if it is gone at once, else it will be among the aborted at the end of the step."""
        if job not in self.running:
            self.waiting.remove(job)
            return True
        self._aborts.append(job)
        self._interrupt(at)
        return False

    def complete(self) -> Happened:
        """The plan is over (`ends` has come): what happened. The next plan begins at once."""
        happened = Happened(self._preempted)
        at = self.ends
        self._decode(at, happened)
        self._fill(at, happened)
        for job in self._aborts:
            if job in self.running:
                self._leave(job)
            elif job in self.waiting:
                self.waiting.remove(job)
            else:
                continue
            happened.aborted.append(job)
        self._aborts.clear()
        self._plan(at)
        return happened

    def stretch(self, pace: float, at: float) -> None:
        """Another pace, from the next step on."""
        self.pace = pace
        if self.ends < math.inf:
            self._interrupt(at)

    # -- gauges ------------------------------------------------------------------------------------------------

    def steps_at(self, at: float) -> int:
        """The step that was the last to end at this moment of the current plan."""
        step = self._decoding.step
        if not self._steps or self._chunks:
            return step
        return step + min(self._steps, max(0, self._count(at - self._began)))

    def used_blocks(self, at: float) -> int:
        """Blocks that somebody references now."""
        used = self.pool.count - self.pool.free
        return (
            used + self._decoding.blocks_for(self.steps_at(at) - self._decoding.step)
            if self._steps and not self._chunks
            else used
        )

    def generated_at(self, at: float) -> int:
        """Tokens generated since the start."""
        return self.generated + self._decoding.count * (self.steps_at(at) - self._decoding.step)

    # -- a plan ------------------------------------------------------------------------------------------------

    def _plan(self, at: float) -> None:
        """Schedule one step, or as many as go by without an event."""
        self._began = at
        self._preempted = []
        self._chunks = []
        self._steps = 0
        if not self.running and not self.waiting:
            self.ends = math.inf
            return
        self._schedule_running()
        if not self._preempted and self.waiting:
            self._admit(at)
        if self._chunks:
            self._steps = 1
            self.ends = at + self._mixed_s()
        elif self._decoding.count:
            # after a preemption the next step looks at the queue again
            self._steps = (
                1 if self._preempted else min(self._decoding.due_in(), self._decoding.steps_within(self.pool.free))
            )
            self._a, self._b = self._coefficients()
            self.ends = at + self._span_s(self._steps)
        else:  # the last one preempted itself; what waits is looked at again at once
            self._admit(at)
            self._steps = 1
            self.ends = at + self._mixed_s() if self._chunks else math.inf

    def _schedule_running(self) -> None:
        """Chunks for those that prefill. Preempt from the end if blocks run out; else nothing is taken for decodes
        here: `complete` does, for all steps of the plan at once."""
        budget = self._budget - self._decoding.count
        free = self.pool.free - self._decoding.blocks_now()
        for job in self._filling:
            count = min(job.length - job.computed, budget)
            if count <= 0:
                break
            free -= max(0, self._missing(job, count))
            budget -= count
            self._chunks.append((job, count))
        if free >= 0:
            for job, count in self._chunks:
                self._hold(job, count)
        else:
            self._chunks.clear()
            self._schedule_scarce()

    def _schedule_scarce(self) -> None:
        """The same, sequence by sequence in their order, as someone will have to give way."""
        free, budget = self.pool.free, self._budget
        for job in list(self.running):
            if job not in self.running or budget <= 0:
                break
            decodes = job.since >= 0
            count = 1 if decodes else min(job.length - job.computed, budget)
            missing = int(self._decoding.needs_block(job)) if decodes else self._missing(job, count)
            while missing > free:
                victim = next(reversed(self.running))
                before = self.pool.free
                self._preempt(victim)
                free += self.pool.free - before
                if victim is job:
                    return
            free -= missing
            budget -= count
            if not decodes:
                self.pool.take(missing)
                job.own += missing
                self._chunks.append((job, count))

    def _admit(self, at: float) -> None:
        """Let waiting ones in while tokens, places and blocks last; the whole prompt must find room."""
        pool, size, config = self.pool, self._size, self.config
        budget = self._budget - self._decoding.count - sum([count for _job, count in self._chunks])
        need = self._decoding.blocks_now()
        while self.waiting and budget > 0 and len(self.running) < config.max_num_seqs:
            job = self.waiting[0]
            known = pool.find(job.pieces, (job.length - 1) // size) if config.enable_prefix_caching else []
            blocks = sum([node.blocks for node in known])
            if -(-job.length // size) - blocks > pool.free - need - pool.idle(known):
                return
            pool.share(known)
            job.nodes = known
            job.shared, job.own = blocks, 0
            job.computed = blocks * size
            self._note_admission(job, at)
            self.running[self.waiting.popleft()] = None
            self._filling.append(job)
            count = min(job.length - job.computed, budget)
            self._hold(job, count)
            self._chunks.append((job, count))
            budget -= count

    def _note_admission(self, job: Job, at: float) -> None:
        if job.started < 0.0:
            job.started = at
            job.cached = job.computed
            self.queries += job.prompt
            self.hits += job.cached
        else:
            again = job.length - job.computed
            job.recomputed += again
            self.recomputed += again

    def _missing(self, job: Job, count: int) -> int:
        """Blocks that the next `count` tokens of a prefill need."""
        return -(-(job.computed + count) // self._size) - job.own - job.shared

    def _hold(self, job: Job, count: int) -> None:
        missing = self._missing(job, count)
        if missing > 0:
            self.pool.take(missing)
            job.own += missing

    def _mixed_s(self) -> float:
        fill, pairs, single, context = 0, 0.0, self._decoding.count, self._decoding.context
        for job, count in self._chunks:
            if count == 1 and job.computed >= job.prompt:  # the rest of a recomputation, as cheap as a decode
                single += 1
                context += job.length
            else:
                fill += count
                pairs += count * (job.computed + count / 2)
        batch = Batch(single, context, fill, pairs, self._decoding.count + len(self._chunks))
        return self.model.step_s(batch) * self.pace

    def _coefficients(self) -> tuple[float, float]:
        """A step of those that decode takes a + b * context."""
        count = self._decoding.count
        found = self._affine.get(count)
        if found is None:
            base = self.model.step_s(Batch(count, 0, 0, 0.0, count))
            far = self.model.step_s(Batch(count, 1 << 20, 0, 0.0, count))
            found = self._affine[count] = (base, (far - base) / (1 << 20))
        return found[0] * self.pace, found[1] * self.pace

    def _span_s(self, steps: int) -> float:
        """Seconds of so many steps: each context grows by one token a step."""
        return steps * (self._a + self._b * (self._decoding.context + self._decoding.count * (steps - 1) / 2))

    def _count(self, elapsed: float) -> int:
        """Whole steps that have ended after so many seconds of a plan without prefill."""
        if elapsed <= 0.0:
            return 0
        half = self._b * self._decoding.count / 2
        linear = self._a + self._b * self._decoding.context - half
        if half > 0.0:
            count = int(2 * elapsed / (linear + math.sqrt(linear * linear + 4 * half * elapsed)))
        else:
            count = int(elapsed / linear)
        while self._span_s(count + 1) <= elapsed:
            count += 1
        while count and self._span_s(count) > elapsed:
            count -= 1
        return count

    def _interrupt(self, at: float) -> None:
        """End a run of decode steps with the step that is under way."""
        if self._chunks or self._steps <= 1 or self.ends == math.inf:
            return
        done = self._count(at - self._began)
        if done == 0 or self._began + self._span_s(done) < at:
            done += 1
        if done < self._steps:
            self._steps = done
            self.ends = self._began + self._span_s(done)

    # -- its end -----------------------------------------------------------------------------------------------

    def _decode(self, at: float, happened: Happened) -> None:
        """Those that decode have said one token a step."""
        decoding = self._decoding
        if not decoding.count:
            return
        blocks = decoding.blocks_for(self._steps)
        if blocks:
            self.pool.take(blocks)
        self.generated += decoding.count * self._steps
        for job in decoding.advance(self._steps):
            self._leave(job)
            job.last_token = at
            happened.finished.append(job)

    def _fill(self, at: float, happened: Happened) -> None:
        """Prompts have come nearer to their end; whoever arrived says its next token and decodes."""
        for job, count in self._chunks:
            job.computed += count
            self._name(job)
            if job.computed < job.length:
                continue
            self._filling.remove(job)
            job.length += 1
            job.generated += 1
            self.generated += 1
            job.last_token = at
            if job.first_token < 0.0:
                job.first_token = at
                happened.first.append(job)
            if job.generated >= job.limit:
                self._leave(job)
                happened.finished.append(job)
            else:
                self._decoding.start(job)

    def _name(self, job: Job) -> None:
        """Make the pieces of a prompt that are computed findable."""
        if not self.config.enable_prefix_caching:
            return
        index, end = len(job.nodes), job.shared * self._size
        while index < len(job.pieces):
            key, blocks = job.pieces[index]
            end += blocks * self._size
            if end > job.computed:
                return
            node = self.pool.name(key, blocks)
            if node is None:  # somebody else computed the same: what follows stays without a name, too
                return
            job.own -= blocks
            job.shared += blocks
            job.nodes.append(node)
            index += 1

    def _leave(self, job: Job) -> None:
        """It is over: everything goes back."""
        if job.since >= 0:
            self._decoding.stop(job)
        elif job in self._filling:
            self._filling.remove(job)
        del self.running[job]
        self.pool.release(job.nodes, job.own, self.config.enable_prefix_caching)
        job.nodes, job.shared, job.own = [], 0, 0

    def _preempt(self, job: Job) -> None:
        """Take its memory back; it starts over at the head of the queue. No token is lost."""
        self._leave(job)
        job.computed = 0
        job.preemptions += 1
        self.preemptions += 1
        self._preempted.append(job)
        self.waiting.appendleft(job)
