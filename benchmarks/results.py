"""The yardstick: every policy at twelve named points, paired over seeds, with bounds beside them.

    make fast                                                          # half the time
    python benchmarks/results.py --data DIR --out docs/RESULTS.md      # all points, 10 seeds
    python benchmarks/results.py --data DIR --only conv-8 --seeds 2 --policies headroom,round_robin

DIR holds the traces: Azure LLM inference 2023, Mooncake FAST'25, ServeGen, Claude Code sessions (docs/workloads.md
names the public sources). Raw figures go to --json FILE, one object per point x policy x seed.
"""

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np
from points import POINTS, Point
from results_table import document, point_table

from headway.compose.simulate import contenders
from headway.compose.traces import open_workload
from headway.core.constants import BrainConfig, SloConfig
from headway.sim import sweep
from headway.sim.ceiling import ceiling
from headway.workload.request import Workload
from headway.workload.results import Run
from headway.workload.sources import Options

FILES: dict[str, tuple[str, Options]] = {
    "azure-conv": ("azure_llm_2023_conv.csv.gz", Options()),
    "azure-code": ("azure_llm_2023_code.csv.gz", Options()),
    "mooncake": ("mooncake_fast25_conversation.jsonl.gz", Options()),
    "deepseek-r1": ("servegen_rates_deepseek-r1.csv.gz", Options(span_s=3600.0)),
    "claude-code": ("claude_code_weka_sample.jsonl.gz", Options(length_factor=0.125)),
}
BASELINES = (
    "round_robin",
    "random",
    "least_connections",
    "least_tokens",
    "p2c",
    "weighted_score",
    "cache_aware",
    "kv_cost",
    "lmetric",
    "blend_322",
    "least_load",
)
OURS = "headroom"
BUFFERED = "predictive"
"""A policy of our own that was made with a queue: it stands with the baselines behind ours."""
BOUND = "clairvoyant"
NOTES = "\n## Notes\n"
"""What stands in the page from here on was written by hand, and is kept."""

BEHIND = 3
"""So many of the best baselines run again behind our queue."""


def main() -> None:
    """Run the points that are asked for and print or write their tables."""
    options = _parser().parse_args()
    points = [point for point in POINTS if not options.only or point.name in options.only]
    found: dict[str, list[Run]] = {}
    limits: dict[str, float] = {}
    began = time.time()
    for point in points:
        print(f"{time.time() - began:6.0f} s  {point.name} ...", file=sys.stderr, flush=True)
        found[point.name], limits[point.name] = _measure(point, options)
        print(point_table(point, found[point.name], OURS, limits[point.name]), flush=True)
        if options.json:  # after each point: a run of this length may be interrupted
            results = {name: [run.result for run in runs] for name, runs in found.items()}
            options.json.write_bytes(msgspec.json.encode(results))
    if options.out:
        notes = options.out.read_text().partition(NOTES)[2] if options.out.exists() else ""
        options.out.write_text(document(points, found, limits, OURS, BOUND, time.time() - began) + NOTES + notes)


def _measure(point: Point, options: argparse.Namespace) -> tuple[list[Run], float]:
    """Every policy as published, ours and the clairvoyant; then the best baselines again behind our queue. And the
    share of requests that a linear programme cannot exclude from being served well (first seed)."""
    load = _workload(point, options.data)
    names = tuple(options.policies.split(",")) if options.policies else (OURS, *BASELINES, BUFFERED, BOUND)
    objectives = SloConfig(point.slo.ttft_s, point.slo.ttft_per_prompt_token_s, point.slo.tpot_s)
    brain = BrainConfig(slo=objectives)
    plan = sweep.prepared(
        sweep.Sweep(
            point.scenario,
            load,
            contenders(names, brain),
            (options.load or point.load,),
            options.seeds,
            point.duration_s,
        )
    )
    runs = sweep.run(plan, options.jobs)
    if options.policies:
        return runs, 1.0
    shares = {name: np.mean([r.result.good_share for r in runs if r.result.policy == name]) for name in BASELINES}
    best = sorted(shares, key=lambda name: -shares[name])[:BEHIND]
    again = msgspec.structs.replace(plan, contenders=contenders([f"{name}+queue" for name in best], brain))
    return runs + sweep.run(again, options.jobs), _limit(point, plan, runs)


def _limit(point: Point, plan: sweep.Sweep, runs: Sequence[Run]) -> float:
    """The share of requests that a linear programme allows (first seed); NaN with three kinds of replicas, where it
    takes more than ten minutes."""
    if len(point.pools) > 2:
        return float("nan")
    counted = next(run.result.requests for run in runs if run.result.seed == 0)
    return ceiling(point.scenario, sweep.arrivals(plan, 0, 0).requests, 0).good / counted


def _workload(point: Point, data: Path) -> Workload:
    name, options = FILES[point.trace]
    return open_workload(str(data / name), np.random.default_rng(0), options)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of the traces")
    parser.add_argument("--only", nargs="*", help="names of points")
    parser.add_argument("--policies", help="comma-separated, instead of all")
    parser.add_argument("--load", type=float, help="another load than the point's own, to look around")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--jobs", type=int, default=0)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--out", type=Path)
    return parser


if __name__ == "__main__":
    main()
