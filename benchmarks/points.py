"""The yardstick: twelve named points (trace x fleet x GPU mix x load x pressure) at which policies are compared.

Chosen to span five traces, 4, 8 and 16 replicas, equal and mixed GPUs, with and without KV pressure, low and high load.
Pressure means KV pools smaller than the card would give (`kv_tokens`), as where a model shares its GPU. Truth is bent by
20 % per replica everywhere. Why each is here is in its `why`.
"""

import msgspec

from headway.sim.scenario import PoolSpec, Scenario, Truth

BENT = Truth(perturb=0.2)


class Point(msgspec.Struct, frozen=True):
    """One point. `duration_s` of arrivals per seed, the first `warmup_s` not counted."""

    name: str
    why: str
    trace: str
    pools: tuple[PoolSpec, ...]
    load: float
    duration_s: float
    warmup_s: float = 60.0
    pressure: bool = False
    decode_bound: bool = False
    """Few or no shared prefixes, so that memory and decoding are what is scarce."""

    @property
    def scenario(self) -> Scenario:
        """The fleet, bent."""
        return Scenario(self.pools, BENT, warmup_s=self.warmup_s)

    @property
    def mixed(self) -> bool:
        """Whether GPUs differ."""
        return len({pool.gpu for pool in self.pools}) > 1


def _a100(count: int, kv_tokens: int = 0) -> tuple[PoolSpec, ...]:
    return (PoolSpec(count, "llama-3.1-8b", "a100-80gb", kv_tokens=kv_tokens),)


def _mixed(kv: tuple[int, int, int] = (0, 0, 0), each: tuple[int, int, int] = (2, 4, 2)) -> tuple[PoolSpec, ...]:
    gpus = ("h100-80gb", "a100-80gb", "l40s-48gb")
    return tuple(PoolSpec(n, "llama-3.1-8b", gpu, kv_tokens=k) for n, gpu, k in zip(each, gpus, kv, strict=True))


def _large(count: int, kv_tokens: int) -> tuple[PoolSpec, ...]:
    return (PoolSpec(count, "llama-3.1-70b", "h100-80gb", 4, kv_tokens=kv_tokens),)


POINTS: tuple[Point, ...] = (
    Point("conv-8", "chat, memory to spare", "azure-conv", _a100(8), 0.85, 300.0),
    Point(
        "conv-8-tight", "chat, KV memory is what is scarce", "azure-conv", _a100(8, 60_000), 0.85, 300.0, pressure=True
    ),
    Point(
        "conv-8-tight-full",
        "the same, as much as the fleet can do",
        "azure-conv",
        _a100(8, 60_000),
        1.0,
        300.0,
        pressure=True,
    ),
    Point("conv-16-over", "more than the fleet can do", "azure-conv", _a100(16, 60_000), 1.1, 180.0, pressure=True),
    Point(
        "conv-8-mixed", "three kinds of GPU", "azure-conv", _mixed((90_000, 60_000, 40_000)), 0.85, 240.0, pressure=True
    ),
    Point("code-4", "long prompts, short answers, bursts", "azure-code", _a100(4), 0.7, 600.0),
    Point("mooncake-8", "long prompts that share prefixes", "mooncake", _a100(8), 1.0, 900.0),
    Point("mooncake-8-tight", "the same with little cache", "mooncake", _a100(8, 200_000), 1.0, 900.0, pressure=True),
    Point("mooncake-8-mixed", "prefixes and three kinds of GPU", "mooncake", _mixed(), 0.85, 600.0),
    Point("r1-8-tight", "reasoning: long answers", "deepseek-r1", _a100(8, 120_000), 1.0, 900.0, pressure=True),
    Point("r1-70b", "a large model on four GPUs each", "deepseek-r1", _large(4, 160_000), 1.0, 900.0, pressure=True),
    Point("agents-16", "sessions of coding agents", "claude-code", _a100(16), 0.5, 600.0),
)
