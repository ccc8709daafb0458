"""Session affinity: what it does to goodput and prefix hits, under several policies, with memory to spare and without.

    python benchmarks/affinity.py --seeds 3 [--data DIR] [--only chat,agents] [--forms off,ring]

DIR holds the Claude Code sessions (docs/workloads.md says where they are from); without it that point is left out. A
form is `off`, `ring` (the ring decides, unless the replica has too much to do) or `ring:N` (only if the policy's cost
there is at most N times the least). docs/decisions/0011 has the table.
"""

import argparse
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import numpy as np

from headway.compose.simulate import MakeBrain
from headway.compose.traces import open_workload
from headway.core.constants import AffinityConfig, BrainConfig
from headway.sim import sweep
from headway.sim.scenario import PoolSpec, Scenario, Truth
from headway.workload.results import RunResult
from headway.workload.sources import Options

POLICIES = ("headroom", "lmetric", "cache_aware", "least_connections", "round_robin")
FORMS = ("off", "ring:1", "ring:2", "ring:4", "ring")


class Point(msgspec.Struct, frozen=True):
    """A workload on eight A100; `kv_tokens` of 0 is what an A100 has (about 400,000)."""

    name: str
    workload: str
    loads: tuple[float, ...]
    kv_tokens: int = 0
    duration_s: float = 180.0


POINTS = (
    Point("chat", "chat", (0.5, 0.75)),
    Point("chat-scarce", "chat", (0.5, 0.9), 40_000),
    Point("agents", "agents", (0.5, 0.8)),
    Point("agents-scarce", "agents", (0.5, 0.9), 120_000),
    Point("claude-code", "claude_code_weka_sample.jsonl.gz", (0.5, 0.8), duration_s=300.0),
)


def contender(policy: str, form: str) -> sweep.Contender:
    """One policy with one form of affinity."""
    if form == "off":
        affinity = AffinityConfig(enabled=False)
    else:
        affinity = AffinityConfig(yields=float(form.partition(":")[2] or "inf"))
    return sweep.Contender(f"{policy} {form}", MakeBrain(policy, BrainConfig(affinity=affinity)))


def measured(point: Point, options: argparse.Namespace) -> list[RunResult]:
    """Every policy in every form, under the same arrivals."""
    trace = options.data / point.workload if point.workload.endswith(".gz") else point.workload
    load = open_workload(str(trace), np.random.default_rng(0), Options(length_factor=0.125))
    names = [contender(policy, form) for policy in options.policies for form in options.forms]
    pool = PoolSpec(count=8, gpu="a100-80gb", kv_tokens=point.kv_tokens)
    scenario = Scenario(pools=(pool,), truth=Truth(perturb=0.2), warmup_s=30.0)
    loads = tuple(options.loads) or point.loads
    plan = sweep.Sweep(scenario, load, tuple(names), loads, options.seeds, point.duration_s)
    return [run.result for run in sweep.run(plan, options.jobs)]


def table(point: Point, results: Sequence[RunResult]) -> Iterator[str]:
    """Markdown: means over the seeds, and the range of the share served well."""
    yield f"\n{point.name}\n"
    yield "| load | policy | affinity | served well | (range) | prefix hits | TTFT p50 | TTFT p99 | TPOT p99 |"
    yield "|---|---|---|---|---|---|---|---|---|"
    for key in dict.fromkeys((result.load, result.policy) for result in results):
        runs = [result for result in results if (result.load, result.policy) == key]
        good = [run.good_share for run in runs]
        figures = [
            np.mean([getattr(run, name) for run in runs])
            for name in ("prefix_hit_rate", "ttft_p50_s", "ttft_p99_s", "tpot_p99_s")
        ]
        policy, _, form = key[1].partition(" ")
        yield (
            f"| {key[0]:g} | {policy} | {form} | {np.mean(good):.3f} | {min(good):.3f} to {max(good):.3f} "
            f"| {figures[0]:.3f} | {figures[1]:.2f} s | {figures[2]:.2f} s | {figures[3] * 1000:.0f} ms |"
        )


def main() -> None:
    """Run the points that are asked for and print their tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder of the traces")
    parser.add_argument("--only", type=lambda text: text.split(","), default=())
    parser.add_argument("--policies", type=lambda text: text.split(","), default=POLICIES)
    parser.add_argument("--forms", type=lambda text: text.split(","), default=FORMS)
    parser.add_argument("--loads", type=lambda text: [float(each) for each in text.split(",")], default=())
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    began = time.time()
    for point in POINTS:
        if options.only and point.name not in options.only:
            continue
        if not point.workload.endswith(".gz") or options.data:
            print("\n".join(table(point, measured(point, options))), flush=True)
    print(f"\n{time.time() - began:.0f} s")


if __name__ == "__main__":
    main()
