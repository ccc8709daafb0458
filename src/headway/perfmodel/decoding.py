"""Those who decode in a jumping engine, in sums: how many, with how much context, when each ends or needs a block.

Everything is counted in steps of the engine. Whoever decodes says one token a step, so a sequence is described by the
step it began at; its next block and its end follow. Nothing is done per token.
"""

import heapq
from collections.abc import Sequence

from headway.perfmodel.nodes import Node


class Job:
    """A request in the engine. Times in seconds, -1 until they happen.

    `pieces`: (key, full blocks) of the prompt, in order, as far as it can be shared. `limit`: output tokens until it
    ends. `length`: prompt and generated tokens when it last changed its state; `computed`: those with a KV entry then.
    `since`: the step from which it decodes, one token a step (-1: it does not). `recomputed`: tokens computed again
    after preemptions. `nodes`: the pieces that it shares or could, of `shared` blocks in all; `own`: its other blocks.
    """

    __slots__ = (
        "arrived",
        "cached",
        "computed",
        "first_token",
        "generated",
        "id",
        "last_token",
        "length",
        "limit",
        "nodes",
        "own",
        "pieces",
        "preemptions",
        "prompt",
        "recomputed",
        "shared",
        "since",
        "started",
    )

    def __init__(self, id: str, prompt: int, limit: int, pieces: Sequence[tuple[int, int]], arrived: float) -> None:
        self.id = id
        self.prompt = self.length = prompt
        self.limit = limit
        self.pieces = pieces
        self.arrived = arrived
        self.generated = 0
        self.computed = 0
        self.cached = 0
        self.preemptions = 0
        self.recomputed = 0
        self.since = -1
        self.nodes: list[Node] = []
        self.shared = 0
        self.own = 0
        self.started = self.first_token = self.last_token = -1.0

    def tokens(self, step: int) -> int:
        """Output tokens after `step` steps of its engine."""
        return self.generated + step - self.since if self.since >= 0 else self.generated


class Decoding:
    """`count` sequences decode, of `context` tokens in all; `step` steps have been done."""

    __slots__ = ("_due", "_phases", "_pushed", "_size", "context", "count", "step")

    def __init__(self, block_size: int) -> None:
        self.count = 0
        self.context = 0
        self.step = 0
        self._size = block_size
        self._phases = [0] * (2 * block_size)  # how many need a block at step s, by s modulo the size of one; twice
        self._due: list[tuple[int, int, Job]] = []
        self._pushed = 0

    def start(self, job: Job) -> None:
        """It decodes from the next step on."""
        job.since = self.step
        self.count += 1
        self.context += job.length
        self._note(job, 1)
        self._pushed += 1
        heapq.heappush(self._due, (job.since + job.limit - job.generated, self._pushed, job))

    def stop(self, job: Job) -> None:
        """It does no longer: bring it up to date."""
        self._note(job, -1)
        ahead = self.step - job.since
        job.generated += ahead
        job.length += ahead
        job.computed = job.length - 1
        job.since = -1
        self.count -= 1
        self.context -= job.length
        job.own = -(-job.computed // self._size) - job.shared

    def _note(self, job: Job, change: int) -> None:
        """One more, or less, needs a block whenever its turn comes."""
        phase = (job.since - job.length + 1) % self._size
        self._phases[phase] += change
        self._phases[phase + self._size] += change

    def advance(self, steps: int) -> list[Job]:
        """So many steps were done. Returns those who said their last token in the last of them; they are stopped."""
        self.step += steps
        self.context += self.count * steps
        ended = []
        due, step = self._due, self.step
        while due and due[0][0] <= step:
            end, _, job = heapq.heappop(due)
            if _ends_at(job, end):
                self.stop(job)
                ended.append(job)
        return ended

    def due_in(self) -> int:
        """Steps until the next one ends. Somebody must decode."""
        due = self._due
        while not _ends_at(due[0][2], due[0][0]):
            heapq.heappop(due)
        return due[0][0] - self.step

    def needs_block(self, job: Job) -> bool:
        """Whether its next token begins a new block."""
        return (job.length - 1 + self.step - job.since) % self._size == 0

    def blocks_now(self) -> int:
        """Blocks that the next step needs."""
        return self._phases[self.step % self._size] if self.count else 0

    def blocks_for(self, steps: int) -> int:
        """Blocks that the next `steps` steps need."""
        size = self._size
        start, rest = self.step % size, steps % size
        return steps // size * self.count + sum(self._phases[start : start + rest])

    def steps_within(self, free: int) -> int:
        """Steps for which `free` blocks last (at least one: that one was looked at). Somebody must decode."""
        size, left = self._size, free % self.count
        steps, start = free // self.count * size, self.step % size
        for needed in self._phases[start : start + size]:
            left -= needed
            if left < 0:
                break
            steps += 1
        return max(1, steps)


def _ends_at(job: Job, step: int) -> bool:
    """Whether it still ends then: it may have been preempted, aborted, or begun again."""
    return job.since >= 0 and job.since + job.limit - job.generated == step
