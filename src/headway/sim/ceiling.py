"""The upper bound of a scenario: what no gateway could beat on this fleet with these arrivals (`bounds`).

Built from the truth of the run (the same seed bends the same replicas), not from what the brain believes. Replicas of a
pool are taken together, as the fastest of them and by what the others do in its time. The jitter of single steps is
taken at its mean less 1 %: it averages over the dozens of steps of a request, and no policy can choose it. Faults are
left out: they only make a fleet slower.
"""

from collections.abc import Sequence
from itertools import groupby

import msgspec
import numpy as np

from headway.perfmodel.jump import Stepping
from headway.perfmodel.steptime import Batch
from headway.sim.bounds import BUCKETS, Bound, lp_goodput_bound
from headway.sim.ideal import Demands, ReplicaKind, kind_of
from headway.sim.prefixes import prefixes
from headway.sim.prompt import Prompt, prompts
from headway.sim.scenario import Scenario
from headway.sim.truth import Ground, grounds, step_model
from headway.workload.request import Request

_JITTER = 0.99

_PROBES = (
    Batch(1, 1000, 0, 0.0, 1),
    Batch(64, 60_000, 0, 0.0, 64),
    Batch(0, 0, 512, 0.0, 1),
    Batch(0, 0, 8192, 4e7, 1),
)
"""Steps that decode and steps that compute prompts: between them lies how much a truth is bent."""


class _Paced:
    """A step model, all of whose steps take `pace` times as long."""

    def __init__(self, model: Stepping, pace: float) -> None:
        self._model = model
        self._pace = pace

    def step_s(self, batch: Batch) -> float:
        """Seconds of one step over this batch."""
        return self._pace * self._model.step_s(batch)


def ceiling(
    scenario: Scenario,
    requests: Sequence[Request],
    seed: int,
    known: Sequence[Prompt] | None = None,
    buckets: int = BUCKETS,
) -> Bound:
    """At most how many of the counted requests can be served well. `known`: prompts worked out before. `buckets`: into
    how many pieces time is cut; with fewer it stays a bound, looser as a rule and found much sooner."""
    truth = scenario.truth
    found = known or prompts(requests, 16, truth.bytes_per_token, truth.byte_noise)
    demands = _demands(scenario, requests, found)
    jitter = _JITTER if truth.step_jitter else 1.0
    pools = groupby(grounds(scenario, seed), key=lambda ground: id(ground.pool))
    return lp_goodput_bound(demands, [_together(list(pool), jitter) for _, pool in pools], buckets=buckets)


def _demands(scenario: Scenario, requests: Sequence[Request], found: Sequence[Prompt]) -> Demands:
    arrival = np.array([request.arrival_s for request in requests])
    prompt = np.array([known.tokens for known in found], dtype=np.float64)
    caching = any(pool.enable_prefix_caching for pool in scenario.pools)
    return Demands(
        arrival,
        prompt,
        np.array([request.output_tokens for request in requests], dtype=np.float64),
        scenario.slo.ttft_s + scenario.slo.ttft_per_prompt_token_s * prompt,
        np.full(len(requests), scenario.slo.tpot_s),
        prefixes([[(key, 16 * blocks) for key, blocks in known.pieces] for known in found]) if caching else None,
        arrival >= scenario.warmup_s,
    )


def _together(pool: list[Ground], jitter: float) -> ReplicaKind:
    """The replicas of a pool as one kind: the fastest, and so many of it as do what all of them can."""
    believed = step_model(pool[0].pool)
    paces = [min(ground.model.step_s(probe) / believed.step_s(probe) for probe in _PROBES) for ground in pool]
    fastest = min(paces)
    return _kind(pool[0], _Paced(believed, fastest), sum(fastest / pace for pace in paces), jitter)


def _kind(ground: Ground, model: Stepping, count: float, jitter: float) -> ReplicaKind:
    config, pool = ground.config, ground.pool
    kind = kind_of(_Paced(model, jitter), count, config.max_num_seqs, config.max_num_batched_tokens)
    return msgspec.structs.replace(
        kind,
        delay_s=pool.api.base_s + pool.api.serial_s,
        delay_s_per_token=pool.api.per_token_s,
        kv_tokens=config.kv_blocks * config.block_size,
        longest=config.max_model_len,
    )
