"""One replica in virtual time: its engine, what it reports of itself, and what faults do to it.

It knows attempts, not requests, and nothing of the brain. The driver asks when something happens next (`ends`).
"""

import math
import random
from typing import Final

from headway.core.ids import AttemptId
from headway.core.replica import LoadSample
from headway.perfmodel.decoding import Job
from headway.perfmodel.jump import Happened, JumpEngine
from headway.sim.scenario import Truth
from headway.sim.truth import Ground

_NOISE: Final = 509  # a prime: the same noise never meets the same step pattern twice


class SimReplica:
    """`version` changes whenever `ends` may have: an outdated wake-up is told by it."""

    def __init__(self, ground: Ground, truth: Truth, seed: int) -> None:
        self.ground = ground
        self.id = ground.spec.id
        self.version = 0
        self.alive = True
        self.silent = False
        self.factor = 1.0
        self.jobs: dict[AttemptId, Job] = {}
        self._truth = truth
        self._epoch = 0
        self._server_free = 0.0
        chance = random.Random(f"noise {seed} {self.id}")
        self._noise = [math.exp(chance.gauss(0.0, truth.step_jitter)) for _ in range(_NOISE)]
        self._at_noise = 0
        self._gone = (0, 0, 0, 0)  # preemptions, recomputed, queries, hits of engines that crashed
        self._said = 0  # tokens that they generated
        self.engine = JumpEngine(ground.config, ground.model)

    @property
    def ends(self) -> float:
        """When its engine's next event is, infinite when idle."""
        return self.engine.ends

    @property
    def totals(self) -> tuple[int, int, int, int]:
        """Preemptions, recomputed tokens, prompt tokens looked up in the prefix cache, and found there."""
        preemptions, recomputed, queries, hits = self._gone
        engine = self.engine
        return (
            preemptions + engine.preemptions,
            recomputed + engine.recomputed,
            queries + engine.queries,
            hits + engine.hits,
        )

    @property
    def generated(self) -> int:
        """Tokens it has generated, in all its lives."""
        return self._said + self.engine.generated

    def enters(self, prompt_tokens: int, at: float) -> float:
        """When a request sent now reaches the engine's queue: its server takes them one after another."""
        api = self.ground.pool.api
        self._server_free = max(self._server_free, at) + api.busy_s(prompt_tokens)
        return self._server_free + api.base_s

    def add(self, attempt: AttemptId, job: Job, at: float) -> None:
        """A request reaches the engine's queue. Raises ValueError if it can never fit."""
        self._draw()
        self.engine.add(job, at)
        self.jobs[attempt] = job
        self.version += 1

    def complete(self) -> Happened:
        """`ends` has come."""
        self._draw()
        happened = self.engine.complete()
        for job in happened.finished:
            self.jobs.pop(AttemptId(job.id), None)
        self.version += 1
        return happened

    def abort(self, attempt: AttemptId, at: float) -> None:
        """Stop an attempt; its memory is free from the end of the step on."""
        job = self.jobs.pop(attempt, None)
        if job is not None:
            self.engine.abort(job, at)
            self.version += 1

    def crash(self, at: float) -> dict[AttemptId, Job]:
        """Lose everything. Returns who was here."""
        lost, self.jobs = self.jobs, {}
        self._gone, self._said = self.totals, self._said + self.engine.generated_at(at)
        self.engine = JumpEngine(self.ground.config, self.ground.model)
        self.alive = False
        self.version += 1
        return lost

    def restart(self) -> None:
        """An empty engine answers again."""
        self.alive = True
        self._epoch = 0

    def slow(self, factor: float, at: float) -> None:
        """Be `factor` times as slow from the next step on."""
        self.factor = factor
        self._draw()
        self.engine.stretch(self.engine.pace, at)
        self.version += 1

    def progress(self, at: float) -> list[tuple[AttemptId, int]]:
        """Tokens said so far, of everyone who decodes."""
        step = self.engine.steps_at(at)
        return [(name, job.generated + step - job.since) for name, job in self.jobs.items() if job.since >= 0]

    def kv_usage(self, at: float) -> float:
        """Used fraction of the pool."""
        return self.engine.used_blocks(at) / self.engine.pool.count

    def report(self, at: float, taken_at: float) -> LoadSample:
        """What its metrics page says of the moment `at` when asked at `taken_at`."""
        engine, size = self.engine, self.ground.config.block_size
        self._epoch += 1
        preemptions, _, queries, hits = self.totals
        return LoadSample(
            self.id,
            taken_at,
            epoch=self._epoch,
            kv_capacity_tokens=engine.pool.count * size,
            kv_used_tokens=engine.used_blocks(at) * size,
            running=len(engine.running),
            waiting=len(engine.waiting),
            preemptions_total=preemptions,
            prefix_hits_total=hits,
            prefix_queries_total=queries,
            generated_tokens_total=engine.generated_at(at),
        )

    def _draw(self) -> None:
        self._at_noise = (self._at_noise + 1) % _NOISE
        self.engine.pace = self.factor * self._noise[self._at_noise]
