"""How much good service is lost when reports of engines are old: policies at three points, by the age of samples.

    make fast                                             # half the time
    python benchmarks/staleness.py --data DIR             # about 8 minutes of CPU
    python benchmarks/staleness.py --data DIR --only conv-8-tight --ages 0.5,5 --seeds 4

An age of A means: reports are A apart and A / 2 old when they come, so that what a decision rests on is A old on
average and 1.5 A at most. How old a report is when it comes is known (a gateway knows when it asked), but for what the
engine's gauges lag behind it, 20 ms; with `--untold` nothing is known of it. Arrivals, truths and noise are the same
for all ages and policies. DIR holds the traces (docs/workloads.md names the public sources).
"""

import argparse
import sys
import time
from pathlib import Path

import msgspec
import numpy as np
from missing import said
from points import POINTS, Point
from results import FILES

from headway.compose.simulate import contenders
from headway.compose.traces import open_workload
from headway.core.constants import BrainConfig, SloConfig
from headway.sim import sweep
from headway.sim.scenario import Scenario, Truth
from headway.workload.results import RunResult

AGES = (0.02, 0.1, 0.5, 1.0, 5.0)
POLICIES = ("headroom", "lmetric", "least_load", "weighted_score")
NAMES = ("conv-8-tight", "r1-8-tight", "mooncake-8")
PART = 0.5
"""Of a point's own duration: the finest reports cost more than the requests."""


def aged(point: Point, age_s: float, seconds: float, untold: bool) -> Scenario:
    """The point with reports of this age."""
    late = {"gauge_lag_s": age_s / 2} if untold else {"report_delay_s": age_s / 2}
    truth: Truth = msgspec.structs.replace(point.scenario.truth, scrape_interval_s=age_s, **late)
    return msgspec.structs.replace(point.scenario, truth=truth, warmup_s=seconds / 6)


def measured(point: Point, options: argparse.Namespace, began: float) -> dict[tuple[str, float], list[RunResult]]:
    """Results by policy and age."""
    name, reading = FILES[point.trace]
    load = open_workload(str(options.data / name), np.random.default_rng(0), reading)
    brain = BrainConfig(slo=SloConfig(point.slo.ttft_s, point.slo.ttft_per_prompt_token_s, point.slo.tpot_s))
    field = contenders(options.policies.split(","), brain)
    seconds = point.duration_s * PART
    found: dict[tuple[str, float], list[RunResult]] = {}
    capacity = 0.0
    for age in options.ages:
        scenario = aged(point, age, seconds, options.untold)
        plan = sweep.prepared(
            sweep.Sweep(scenario, load, field, (point.load,), options.seeds, seconds, capacity_rps=capacity)
        )
        capacity = plan.capacity_rps
        for run in sweep.run(plan, options.jobs):
            found.setdefault((run.result.policy, age), []).append(run.result)
        print(f"{time.time() - began:6.0f} s  {point.name}, {age:g} s", file=sys.stderr, flush=True)
    return found


def table(point: Point, found: dict[tuple[str, float], list[RunResult]], ages: list[float]) -> str:
    """Share of good requests by age, and what the oldest reports cost against the best."""
    head = " | ".join(f"{age:g} s" for age in ages)
    count = int(np.mean([result.requests for result in next(iter(found.values()))]))
    lines = [
        f"### {point.name}: {count:,} requests per seed",
        "",
        f"| policy | {head} | least - most, points | preempted, fresh -> old |",
        "|---" * (len(ages) + 3) + "|",
    ]
    for policy in dict.fromkeys(name for name, _ in found):
        shares = [float(np.mean([result.good_share for result in found[policy, age]])) for age in ages]
        ends = [np.mean([r.preempted / r.requests for r in found[policy, age]]) for age in (ages[0], ages[-1])]
        label = f"**{policy}**" if policy == "headroom" else policy
        cells = " | ".join(f"{share:.3f}" for share in shares)
        spread = 100 * (min(shares) - max(shares))
        lines.append(f"| {label} | {cells} | {spread:+.1f} | {ends[0]:.2%} -> {ends[1]:.2%} |")
    return "\n".join([*lines, ""])


def main() -> None:
    """Run what is asked for, print a table per point."""
    options = _parser().parse_args()
    began = time.time()
    for point in POINTS:
        if point.name in options.only:
            print(table(point, measured(point, options, began), options.ages), flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of the traces")
    parser.add_argument("--only", nargs="*", default=list(NAMES), help="names of points")
    parser.add_argument("--policies", default=",".join(POLICIES), help="comma-separated")
    parser.add_argument("--ages", type=lambda text: [float(part) for part in text.split(",")], default=list(AGES))
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--untold", action="store_true", help="the age of a report when it comes is not known")
    return parser


if __name__ == "__main__":
    said(main)
