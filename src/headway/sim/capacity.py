"""How much a fleet can do: requests per second that an engine works off while more are always waiting.

Load 1.0 of a fleet is the sum of this over its replicas, on the same workload. It is the engine's own backlog
throughput, first come first served, preemptions and prefix hits included, or what its HTTP server lets through where
that is less; no policy has a part in it.

A workload of few requests is repeated, every time with prefixes of its own, until most of them have to wait: requests
that all run at once would show how an engine empties, not what it works off.
"""

import itertools
import math
from collections.abc import Iterator, Sequence

import numpy as np

from headway.perfmodel.decoding import Job
from headway.perfmodel.jump import JumpEngine
from headway.sim.prompt import Prompt, prompts
from headway.sim.scenario import PoolSpec, Scenario, Truth
from headway.sim.truth import engine_config, step_model
from headway.workload.request import Request
from headway.workload.scaling import copies

SAMPLE = 3000
"""Requests measured with, at least; the throughput of the middle 80 % of ends counts."""

DEPTH = 10
"""So many times the requests that ran at once are measured with, so that some wait at the end of the middle 80 %."""

Measured = tuple[Request, Prompt]


def backlog_rps(pool: PoolSpec, requests: Sequence[Request], truth: Truth | None = None) -> float:
    """Requests per second of one replica of a pool on these requests, all there from the beginning.

    Those whose prompt is too long for it are left out. Raises ValueError if none is left.
    """
    longest = JumpEngine(engine_config(pool), step_model(pool)).capacity_tokens
    fitting = list(itertools.islice((r for r in requests if r.prompt_tokens < longest), 2 * SAMPLE))
    if not fitting:
        raise ValueError(_nothing(requests, longest))
    endless = _repeated(fitting, truth or Truth())
    taken: list[Measured] = []
    wanted = SAMPLE
    while len(taken) < wanted:
        taken += itertools.islice(endless, wanted - len(taken))
        rate, together = _worked_off(pool, taken)
        wanted = DEPTH * together
    return min(rate, _admitted_rps(pool, taken))


def _nothing(requests: Sequence[Request], longest: int) -> str:
    if not requests:
        return "there are no requests in this workload"
    shortest = min(request.prompt_tokens for request in requests)
    return (
        f"no request of this workload fits into {longest:,} tokens of KV cache: the shortest prompt has {shortest:,}. "
        "Give a replica more (kv_tokens, max_model_len, GPUs) or make requests shorter (length_factor)"
    )


def _repeated(requests: Sequence[Request], truth: Truth) -> Iterator[Measured]:
    """The requests over and over, with their prompts."""
    for copy in copies(requests):
        for part in (copy[at : at + SAMPLE] for at in range(0, len(copy), SAMPLE)):
            yield from zip(part, prompts(part, 16, truth.bytes_per_token, truth.byte_noise), strict=True)


def _worked_off(pool: PoolSpec, jobs: Sequence[Measured]) -> tuple[float, int]:
    """Requests per second (0 where too many end at once to tell), and how many ran at once at most."""
    engine = JumpEngine(engine_config(pool), step_model(pool))
    for request, prompt in jobs:
        engine.add(Job("", prompt.tokens, request.output_tokens, prompt.pieces, 0.0), 0.0)
    ends: list[float] = []
    together = 0
    while engine.ends < math.inf:
        at = engine.ends
        together = max(together, len(engine.running))
        ends += [at] * len(engine.complete().finished)
    first, last = ends[len(ends) // 10], ends[len(ends) - 1 - len(ends) // 10]
    # Hundreds of equal requests end at one moment: those that end with the first are left out, those with the last not.
    count = int(np.searchsorted(ends, last, "right") - np.searchsorted(ends, first, "right"))
    return count / (last - first) if count else 0.0, together


def _admitted_rps(pool: PoolSpec, jobs: Sequence[Measured]) -> float:
    """Requests per second that get through the engine's HTTP server, which takes one after another. Short requests are
    more for it than for the engine."""
    busy_s = sum(pool.api.busy_s(prompt.tokens) for _, prompt in jobs)
    return len(jobs) / busy_s if busy_s else math.inf


def fleet_rps(scenario: Scenario, requests: Sequence[Request]) -> float:
    """Load 1.0 of a whole fleet (requests/s). Truth is not perturbed here: load means the same for every seed."""
    return sum(pool.count * backlog_rps(pool, requests, scenario.truth) for pool in scenario.pools)
