"""What is simulated, as plain values: the fleet, what its truth is, what befalls it, what counts as good.

The truth of a replica may differ from what the brain is told (`Truth.perturb`), so that learning is tested and no
decision rests on the model it is judged by. Seconds, tokens, fractions.
"""

import random
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import Literal

import msgspec

from headway.perfmodel.service import ApiCost, Jitter
from headway.workload.stats import Slo

FaultKind = Literal["crash", "slow", "silent"]


class PoolSpec(msgspec.Struct, frozen=True):
    """`count` equal replicas. Names are those of the catalogue; sizes of 0 come from the memory model and the engine's
    own defaults. `api`: what the engine's HTTP server adds to a TTFT."""

    count: int = 4
    model: str = "llama-3.1-8b"
    gpu: str = "h100-80gb"
    tensor_parallel_size: int = 1
    dtype: str = "auto"
    kv_tokens: int = 0
    max_num_seqs: int = 256
    max_num_batched_tokens: int = 0
    max_model_len: int = 0
    enable_prefix_caching: bool = True
    api: ApiCost = ApiCost()


class Truth(msgspec.Struct, frozen=True):
    """How reality departs from the model, and how late the brain hears of it.

    `perturb`: decode and prefill speed of each replica are multiplied by factors drawn evenly from 1 +- perturb.
    `step_jitter`: deviation of the logarithm of step times (1 % was measured). `scrape_interval_s`, `scrape_jitter`
    (fraction of it): when reports are asked for. `report_delay_s`: on their way to the brain, which it knows;
    `gauge_lag_s`: how old what they say is already, which it does not. `bytes_per_token` and its `byte_noise`
    (deviation of the logarithm, per piece of a prompt): the brain sees bytes, not tokens. `probe_interval_s`: how often
    a replica that crashed is asked whether it is back.
    """

    perturb: float = 0.0
    step_jitter: float = Jitter().relative
    scrape_interval_s: float = 0.5
    scrape_jitter: float = 0.1
    report_delay_s: float = 0.0
    gauge_lag_s: float = 0.02
    bytes_per_token: float = 4.2
    byte_noise: float = 0.15
    probe_interval_s: float = 5.0


class Fault(msgspec.Struct, frozen=True):
    """At `at_s` a replica (by its number in the fleet) crashes, gets `factor` times slower, or reports nothing, for
    `duration_s`. Several may befall one at a time."""

    at_s: float
    replica: int
    kind: FaultKind = "crash"
    duration_s: float = 60.0
    factor: float = 4.0


class RequestClass(msgspec.Struct, frozen=True):
    """A share of all requests, drawn by chance, that are of this tier (-1 low, 0 standard, 1 high, 2 critical)."""

    share: float
    tier: int


def tiers(classes: Sequence[RequestClass], count: int, seed: int) -> list[int]:
    """The tier of each of so many requests; equal seeds, equal tiers. What no class takes is standard."""
    if not classes:
        return [0] * count
    chance = random.Random(f"tiers {seed}")
    bounds = list(accumulate(each.share for each in classes))
    ranks = [each.tier for each in classes] + [0]
    return [ranks[bisect_right(bounds, chance.random())] for _ in range(count)]


class Scenario(msgspec.Struct, frozen=True):
    """A fleet, its truth, its faults and what is wanted of it.

    Requests that arrive before `warmup_s` are served but not counted. `progress_s`: how often streams report progress
    to the brain. `precision_floor`: the least precision that clients take, as they say it; by default the best there
    is. `clairvoyant`: the brain knows true output lengths and has fresh reports (a bound, not a policy). `classes`: how
    important requests are. `moves`: running requests may be moved, and outlive their replica, if the brain has it so.
    """

    pools: tuple[PoolSpec, ...] = (PoolSpec(),)
    truth: Truth = Truth()
    slo: Slo = Slo()
    faults: tuple[Fault, ...] = ()
    warmup_s: float = 0.0
    progress_s: float = 0.25
    clairvoyant: bool = False
    precision_floor: str = ""
    classes: tuple[RequestClass, ...] = ()
    moves: bool = False

    @property
    def replicas(self) -> int:
        """Replicas in all pools."""
        return sum(pool.count for pool in self.pools)

    @property
    def gpus(self) -> int:
        """GPUs in all pools."""
        return sum(pool.count * pool.tensor_parallel_size for pool in self.pools)


MODEL = "served"
"""The one model name clients ask for; each replica serves it."""
