"""The yardstick: every policy at twelve named points, paired over seeds, with bounds beside them.

    make fast                                                          # half the time
    python benchmarks/results.py --data DIR --out docs/RESULTS.md      # all points, 10 seeds
    python benchmarks/results.py --data DIR --only conv-8 --seeds 2 --policies headroom,round_robin
    python benchmarks/results.py --data DIR --only conv-8-mixed mooncake-8-mixed --bounds

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
from missing import said
from points import POINTS, Point
from results_table import document, limit_words, point_table

from headway.compose.simulate import UnknownPolicy, contenders
from headway.compose.traces import open_workload
from headway.core.constants import BrainConfig, SloConfig
from headway.sim import sweep
from headway.sim.bounds import BUCKETS
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


FEW_BUCKETS = 64
"""Pieces of time for the bound of three kinds of replicas."""


def main() -> None:
    """Run the points that are asked for and print or write their tables."""
    parser = _parser()
    options = parser.parse_args()
    if options.out and options.policies:
        parser.error("--out writes the page of all policies: leave out --policies")
    points = [point for point in POINTS if not options.only or point.name in options.only]
    try:
        _bounds(points, options) if options.bounds else _tables(points, options)
    except UnknownPolicy as error:
        raise SystemExit(f"error: {error}") from None


def _bounds(points: Sequence[Point], options: argparse.Namespace) -> None:
    """The bounds alone, as they stand above the tables."""
    for point in points:
        began = time.time()
        plan = _plan(point, options, (BOUND,))
        print(f"{point.name}: {limit_words(_limit(point, plan))} ({time.time() - began:.0f} s)", flush=True)


def _tables(points: Sequence[Point], options: argparse.Namespace) -> None:
    found: dict[str, list[Run]] = {}
    limits: dict[str, float | None] = {}
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


def _measure(point: Point, options: argparse.Namespace) -> tuple[list[Run], float | None]:
    """Every policy as published, ours and the clairvoyant; then the best baselines again behind our queue. And the
    share of requests that a linear programme cannot exclude from being served well (first seed); None where only some
    policies are looked at."""
    names = tuple(options.policies.split(",")) if options.policies else (OURS, *BASELINES, BUFFERED, BOUND)
    plan = _plan(point, options, names)
    runs = sweep.run(plan, options.jobs)
    if options.policies:
        return runs, None
    shares = {name: np.mean([r.result.good_share for r in runs if r.result.policy == name]) for name in BASELINES}
    best = sorted(shares, key=lambda name: -shares[name])[:BEHIND]
    again = msgspec.structs.replace(plan, contenders=contenders([f"{name}+queue" for name in best], _brain(point)))
    return runs + sweep.run(again, options.jobs), _limit(point, plan)


def _plan(point: Point, options: argparse.Namespace, names: Sequence[str]) -> sweep.Sweep:
    load = (options.load or point.load,)
    who = contenders(names, _brain(point))
    made = sweep.Sweep(point.scenario, _workload(point, options.data), who, load, options.seeds, point.duration_s)
    return sweep.prepared(made)


def _brain(point: Point) -> BrainConfig:
    """The objectives that a gateway would be told."""
    return BrainConfig(slo=SloConfig(point.slo.ttft_s, point.slo.ttft_per_prompt_token_s, point.slo.tpot_s))


def _limit(point: Point, plan: sweep.Sweep) -> float:
    """The share of requests that a linear programme allows (first seed). With three kinds of replicas it has half as
    many variables again and takes far longer than ten minutes, so time is cut into fewer pieces there."""
    requests = sweep.arrivals(plan, 0, 0).requests
    counted = sum(request.arrival_s >= point.scenario.warmup_s for request in requests)
    buckets = BUCKETS if len(point.pools) < 3 else FEW_BUCKETS
    return ceiling(point.scenario, requests, 0, buckets=buckets).good / counted


def _workload(point: Point, data: Path) -> Workload:
    name, options = FILES[point.trace]
    return open_workload(str(data / name), np.random.default_rng(0), options)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of the traces")
    parser.add_argument("--only", nargs="*", choices=[p.name for p in POINTS], metavar="POINT", help="names of points")
    parser.add_argument("--policies", help="comma-separated, instead of all")
    parser.add_argument("--bounds", action="store_true", help="only the bounds, without any run")
    parser.add_argument("--load", type=float, help="another load than the point's own, to look around")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--jobs", type=int, default=0)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--out", type=Path)
    return parser


if __name__ == "__main__":
    said(main)
