"""Tiny fleets of real engine models, and what a plan is worth there: the yardstick of the bounds."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from headway.perfmodel import catalogue
from headway.perfmodel.engine import EngineConfig
from headway.perfmodel.jump import Job, JumpEngine
from headway.perfmodel.steptime import StepModel
from headway.sim.exhaustive import Plan
from headway.sim.ideal import Demands, ReplicaKind, kind_of
from headway.sim.prefixes import prefixes

FAST = StepModel(catalogue.model("llama-3.1-8b"), catalogue.gpu("h100-80gb"))
SLOW = StepModel(catalogue.model("llama-3.1-8b"), catalogue.gpu("l4-24gb"))


@dataclass(frozen=True)
class Ask:
    """A request: pieces of its prompt as (key, blocks of 16 tokens), and a rest of its own."""

    arrival_s: float
    output: int
    rest: int = 100
    pieces: tuple[tuple[int, int], ...] = ()
    ttft_s: float = 1.0
    tpot_s: float = 0.05

    @property
    def prompt(self) -> int:
        return self.rest + 16 * sum(blocks for _, blocks in self.pieces)


@dataclass(frozen=True)
class Fleet:
    """Replicas, by their step models; all have `blocks` KV blocks."""

    models: tuple[StepModel, ...] = (FAST, FAST)
    blocks: int = 4000
    max_num_seqs: int = 64
    batched: int = 2048
    caching: bool = True

    @property
    def kinds(self) -> list[ReplicaKind]:
        models = dict.fromkeys(self.models)
        kinds = [kind_of(model, self.models.count(model), self.max_num_seqs, self.batched) for model in models]
        return [msgspec.structs.replace(kind, kv_tokens=16 * self.blocks) for kind in kinds]

    def engine(self, model: StepModel) -> JumpEngine:
        config = EngineConfig(self.blocks, 16, self.max_num_seqs, self.batched, 10**6, self.caching)
        return JumpEngine(config, model)

    def good(self, asks: Sequence[Ask], plan: Plan) -> int:
        """How many are served well."""
        return sum(self._serve(asks, plan, k) for k in range(len(self.models)))

    def _serve(self, asks: Sequence[Ask], plan: Plan, replica: int) -> int:
        engine, jobs = self.engine(self.models[replica]), {}
        mine = [i for i in plan.order if plan.replicas[i] == replica]
        for i in sorted(mine, key=lambda i: asks[i].arrival_s + plan.held_s[i]):  # stable: plan.order among equals
            ask, at = asks[i], asks[i].arrival_s + plan.held_s[i]
            while engine.ends <= at:
                engine.complete()
            if ask.prompt >= engine.capacity_tokens:
                continue
            jobs[i] = Job(str(i), ask.prompt, ask.output, ask.pieces, at)
            engine.add(jobs[i], at)
        while engine.ends < math.inf:
            engine.complete()
        return sum(_well(asks[i], job) for i, job in jobs.items())


def _well(ask: Ask, job: Job) -> bool:
    if job.first_token - ask.arrival_s > ask.ttft_s:
        return False
    return ask.output < 2 or (job.last_token - job.first_token) / (ask.output - 1) <= ask.tpot_s


def demands(asks: Sequence[Ask], caching: bool = True) -> Demands:
    """The same requests as arrays."""
    chained = [_chained(ask) for ask in asks]
    columns = [(a.arrival_s, a.prompt, a.output, a.ttft_s, a.tpot_s) for a in asks]
    arrays = np.array(columns, dtype=np.float64).T
    return Demands(*arrays, prefixes(chained) if caching else None)


def _chained(ask: Ask) -> list[tuple[int, int]]:
    return [(key, 16 * blocks) for key, blocks in ask.pieces]
