"""The yardstick: twelve named points (trace x fleet x GPU mix x load x pressure) at which policies are compared.

Chosen to span five traces, 4, 8 and 16 replicas, equal and mixed GPUs, with and without KV pressure, loads .5 to 1.2.
Pressure means KV pools smaller than the card would give (`kv_tokens`), as where a model shares its GPU. Truth is bent
by 20 % per replica everywhere. Why each is here is in its `why`.
"""

import msgspec

from headway.sim.scenario import PoolSpec, Scenario, Truth
from headway.workload.stats import Slo

BENT = Truth(perturb=0.2)


class Point(msgspec.Struct, frozen=True):
    """One point. `duration_s` of arrivals per seed, of which the first sixth is not counted. `tight`: KV memory is what
    is scarce; `prefill`: prompts are what costs, not answers."""

    name: str
    why: str
    trace: str
    pools: tuple[PoolSpec, ...]
    load: float
    duration_s: float
    tight: bool = False
    prefill: bool = False
    slo: Slo = Slo()

    @property
    def scenario(self) -> Scenario:
        """The fleet, bent."""
        return Scenario(self.pools, BENT, self.slo, warmup_s=self.duration_s / 6)

    @property
    def mixed(self) -> bool:
        """Whether GPUs differ."""
        return len({pool.gpu for pool in self.pools}) > 1


def _a100(count: int, kv_tokens: int = 0) -> tuple[PoolSpec, ...]:
    return (PoolSpec(count, "llama-3.1-8b", "a100-80gb", kv_tokens=kv_tokens),)


def _mixed(h100_kv: int = 0, a100_kv: int = 0, l40s_kv: int = 0) -> tuple[PoolSpec, ...]:
    kinds = ((2, "h100-80gb", h100_kv), (4, "a100-80gb", a100_kv), (2, "l40s-48gb", l40s_kv))
    return tuple(PoolSpec(count, "llama-3.1-8b", gpu, kv_tokens=kv) for count, gpu, kv in kinds)


def _large(count: int, kv_tokens: int) -> tuple[PoolSpec, ...]:
    return (PoolSpec(count, "llama-3.1-70b", "h100-80gb", 4, kv_tokens=kv_tokens),)


LATER = Slo(tpot_s=0.2)
"""For completions of code: answers of a dozen tokens, of which most of the time per token is other people's prefill."""

POINTS: tuple[Point, ...] = (
    Point("conv-4", "chat at half load", "azure-conv", _a100(4), 0.5, 120.0),
    Point("conv-8", "chat, memory to spare", "azure-conv", _a100(8), 0.85, 90.0),
    Point("conv-8-tight", "chat, KV memory is scarce", "azure-conv", _a100(8, 60_000), 1.2, 120.0, tight=True),
    Point("conv-16-over", "more than the fleet can do", "azure-conv", _a100(16, 60_000), 1.2, 60.0, tight=True),
    Point(
        "conv-8-mixed",
        "three GPUs, little memory",
        "azure-conv",
        _mixed(90_000, 60_000, 40_000),
        1.15,
        100.0,
        tight=True,
    ),
    Point("code-4", "long prompts, short answers, bursts", "azure-code", _a100(4), 0.7, 300.0, prefill=True, slo=LATER),
    Point("mooncake-8", "long prompts, some shared", "mooncake", _a100(8), 0.85, 600.0, prefill=True),
    Point("mooncake-8-tight", "the same, little cache", "mooncake", _a100(8, 200_000), 0.85, 600.0, True, True),
    Point("mooncake-8-mixed", "the same on three GPUs", "mooncake", _mixed(), 0.85, 600.0, prefill=True),
    Point("r1-8-tight", "reasoning: long answers", "deepseek-r1", _a100(8, 120_000), 1.1, 240.0, tight=True),
    Point("r1-70b", "a large model on four GPUs each", "deepseek-r1", _large(4, 160_000), 1.0, 300.0, tight=True),
    Point("agents-16", "sessions of coding agents", "claude-code", _a100(16), 0.8, 500.0, prefill=True),
)
