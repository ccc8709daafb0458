"""How much a fleet can do: requests per second that an engine works off while more are always waiting.

Load 1.0 of a fleet is the sum of this over its replicas, on the same workload. It is the engine's own backlog
throughput, first come first served, preemptions and prefix hits included; no policy has a part in it.
"""

import math
from collections.abc import Sequence

from headway.perfmodel.decoding import Job
from headway.perfmodel.jump import JumpEngine
from headway.sim.prompt import Prompt
from headway.sim.scenario import PoolSpec, Scenario
from headway.sim.truth import engine_config, step_model
from headway.workload.request import Request

SAMPLE = 3000
"""Requests measured with; the throughput of the middle 80 % of ends counts."""


def backlog_rps(pool: PoolSpec, requests: Sequence[Request], prompts: Sequence[Prompt]) -> float:
    """Requests per second of one replica of a pool on the first of these requests, all there from the beginning.

    Those whose prompt is too long for it are left out. Raises ValueError if none is left.
    """
    engine = JumpEngine(engine_config(pool), step_model(pool))
    fitting = [(r, p) for r, p in zip(requests, prompts, strict=True) if p.tokens < engine.capacity_tokens][:SAMPLE]
    if not fitting:
        raise ValueError(f"no request of this workload fits into {engine.capacity_tokens} tokens of KV cache")
    for request, prompt in fitting:
        engine.add(Job("", prompt.tokens, request.output_tokens, prompt.pieces, 0.0), 0.0)
    ends: list[float] = []
    while engine.ends < math.inf:
        at = engine.ends
        ends += [at] * len(engine.complete().finished)
    first, last = len(ends) // 10, len(ends) - 1 - len(ends) // 10
    return (last - first) / (ends[last] - ends[first]) if ends[last] > ends[first] else len(ends) / ends[-1]


def fleet_rps(scenario: Scenario, requests: Sequence[Request], prompts: Sequence[Prompt]) -> float:
    """Load 1.0 of a whole fleet (requests/s). Truth is not perturbed here: load means the same for every seed."""
    return sum(pool.count * backlog_rps(pool, requests, prompts) for pool in scenario.pools)
