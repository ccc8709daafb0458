"""Other constants for the baselines, tuned on workloads that docs/RESULTS.md does not report.

    python benchmarks/tuning.py [--seconds 240] [--seeds 2]

Prints the share of requests served well, per setting and workload, under KV pressure and a truth bent by 20 %; the best
mean of each policy is what `sim/tuned.py` holds. Workloads: generated chat, code and documents.
"""

import argparse
import sys

import msgspec
import numpy as np

from headway.compose.simulate import MakeBrain
from headway.compose.traces import open_workload
from headway.policies.blend_322 import BlendConfig
from headway.policies.cache_aware import CacheAwareConfig
from headway.policies.kv_cost import KvCostConfig
from headway.policies.least_load import LeastLoadConfig
from headway.sim import sweep
from headway.sim.scenario import PoolSpec, Scenario, Truth
from headway.workload.results import Run
from headway.workload.sources import Options

WORKLOADS = {
    "chat": (Options(rate=12.0, span_s=1800.0), 0.9),
    "code": (Options(rate=6.0, span_s=1800.0), 0.8),
    "documents": (Options(rate=6.0, span_s=1800.0), 0.8),
}
"""Generated mixes, how they are made, and the load."""

FLEET = Scenario((PoolSpec(4, gpu="a100-80gb", kv_tokens=80_000),), Truth(perturb=0.2), warmup_s=40.0)

GRID: dict[str, list[msgspec.Struct]] = {
    "cache_aware": [
        CacheAwareConfig(),
        CacheAwareConfig(low_match="shortest_queue"),
        CacheAwareConfig(balance_abs_threshold=8, balance_rel_threshold=1.2),
        CacheAwareConfig(balance_abs_threshold=8, balance_rel_threshold=1.2, low_match="shortest_queue"),
        CacheAwareConfig(0.6, 8, 1.2, "shortest_queue"),
    ],
    "kv_cost": [KvCostConfig(prefill_load_scale=scale) for scale in (0.5, 1.0, 2.0, 4.0)],
    "blend_322": [
        BlendConfig(queue=queue, kv=kv, prefix=prefix)
        for queue, kv, prefix in ((2, 2, 3), (2, 2, 1), (4, 1, 2), (1, 3, 3))
    ],
    "least_load": [
        *(LeastLoadConfig(weight, poll_interval_s=poll) for poll in (10.0, 0.0) for weight in (0.15, 0.6, 2.4)),
        LeastLoadConfig(live_throughput=True),
    ],
}


def main() -> None:
    """Print a table of all settings, the projects' own first."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=240.0)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--jobs", type=int, default=0)
    options = parser.parse_args()
    shares: dict[str, dict[str, float]] = {}
    for name in WORKLOADS:
        for setting, share in measured(name, options).items():
            shares.setdefault(setting, {})[name] = share
    print(f"| policy and setting | {' | '.join(WORKLOADS)} | mean |\n|---|{'---|' * (len(WORKLOADS) + 1)}")
    for setting, by_name in shares.items():
        values = [*by_name.values(), float(np.mean(list(by_name.values())))]
        print(f"| {setting} | {' | '.join(f'{value:.3f}' for value in values)} |")


def measured(name: str, options: argparse.Namespace) -> dict[str, float]:
    """The share served well of each setting on one workload, mean over seeds."""
    reading, load = WORKLOADS[name]
    workload = open_workload(name, np.random.default_rng(0), reading)
    contenders = tuple(
        sweep.Contender(label(config), MakeBrain(policy, options=msgspec.json.encode(config)))
        for policy, configs in GRID.items()
        for config in configs
    )
    plan = sweep.Sweep(FLEET, workload, contenders, (load,), options.seeds, options.seconds)
    shares: dict[str, list[float]] = {}
    done: list[sweep.Cell] = []

    def progress(cell: sweep.Cell, run: Run) -> None:
        done.append(cell)
        print(f"{name} {len(done)}/{plan.runs} {run.result.policy}: {run.result.good_share:.3f}", file=sys.stderr)

    for run in sweep.run(plan, options.jobs, progress):
        shares.setdefault(run.result.policy, []).append(run.result.good_share)
    return {setting: float(np.mean(values)) for setting, values in shares.items()}


def label(config: msgspec.Struct) -> str:
    """A setting by what differs from the project's defaults."""
    plain = type(config)()
    differs = [f for f in config.__struct_fields__ if getattr(config, f) != getattr(plain, f)]
    name = type(config).__name__.removesuffix("Config")
    return f"{name} {', '.join(f'{f}={getattr(config, f)}' for f in differs) or '(as published)'}"


if __name__ == "__main__":
    main()
