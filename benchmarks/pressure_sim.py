"""Under pressure, in the simulator: 8 replicas with little KV memory, tiers, tenants, up to five times the load.

    make fast                                                          # half the time
    python benchmarks/pressure_sim.py --data DIR                       # about 7 minutes of CPU
    python benchmarks/pressure_sim.py --data DIR --loads 3 --seeds 1 --policies headroom,kv_cost

Every policy gets the same arrivals, tiers, tenants, truths and noise. 5 % of the requests are critical and 30 % low; of
eleven, ten belong to the tenant that floods and one to another of the same weight. Baselines run as published: without
our queue, our levels and our reserve. The other tables of docs/RESULTS.md know one tenant and one tier; this is where
those matter. DIR holds the traces (docs/workloads.md names the public sources).
"""

import argparse
import math
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from missing import said
from numpy.typing import NDArray
from points import BENT, POINTS

from headway.compose.simulate import contender
from headway.compose.traces import open_workload
from headway.core.constants import AdmissionConfig, BrainConfig
from headway.core.tenant import Tier
from headway.sim.columns import OK, SHED, Columns
from headway.sim.prompt import prompts
from headway.sim.run import play
from headway.sim.scenario import RequestClass, Scenario
from headway.sim.sweep import Contender, Sweep, arrivals, prepared
from headway.workload.request import Request

TRACE = "azure_llm_2023_conv.csv.gz"
CLASSES = (RequestClass(0.05, Tier.CRITICAL), RequestClass(0.3, Tier.LOW))
FLOOD, OTHER = "flood", "other"
FLOOD_SHARE = 10 / 11
RESERVED = 0.25
OURS = "headroom"
BASELINES = ("kv_cost", "cache_aware", "least_load", "blend_322", "round_robin")
UNLOADED = 0.2
UNLOADED_S = 240.0
HEAD = (
    "| policy | good/s | good | critical: good | critical: TTFT p99 s | x unloaded | TTFT p99 s | late | shed | "
    "shed of low | preempted | longest wait s | standard, good: flood / other | output tokens: flood / other |"
)


class Outcome(msgspec.Struct, frozen=True):
    """Counted requests of one run, one value each."""

    good: NDArray[np.bool_]
    fate: NDArray[np.int64]
    ttft: NDArray[np.float64]
    held: NDArray[np.float64]
    preempted: NDArray[np.int64]
    tier: NDArray[np.int64]
    flood: NDArray[np.bool_]
    output: NDArray[np.int64]
    window_s: float


def peopled(requests: Sequence[Request], seed: int) -> list[Request]:
    """The same requests, each of one of the two tenants by chance."""
    chance = np.random.default_rng([seed, 1011])
    flooding = chance.random(len(requests)) < FLOOD_SHARE
    return [
        msgspec.structs.replace(request, tenant=FLOOD if floods else OTHER)
        for request, floods in zip(requests, flooding, strict=True)
    ]


def outcome(columns: Columns, scenario: Scenario, requests: Sequence[Request]) -> Outcome:
    """What became of those that came after the warm-up. `good` is what it is in the other tables."""
    arrival = np.array(columns.arrival)
    kept = arrival >= scenario.warmup_s
    first, last, output = np.array(columns.first), np.array(columns.last), np.array(columns.output)
    fate, slo = np.array(columns.fate), scenario.slo
    ttft = first - arrival
    tpot = (last - first) / np.maximum(1, output - 1)
    with np.errstate(invalid="ignore"):
        timely = ttft <= slo.ttft_s + slo.ttft_per_prompt_token_s * np.array(columns.prompt)
        good = (fate == OK) & timely & ((output <= 1) | (tpot <= slo.tpot_s))
    flood = np.array([request.tenant == FLOOD for request in requests])
    held = np.array(columns.dispatch) - arrival
    return Outcome(
        good[kept],
        fate[kept],
        ttft[kept],
        held[kept],
        np.array(columns.preempted)[kept],
        np.array(columns.tier)[kept],
        flood[kept],
        output[kept],
        float(arrival[-1] - scenario.warmup_s),
    )


def entrants(names: Sequence[str]) -> list[Contender]:
    """Ours with and without a reserve; baselines with nothing of ours."""
    found = []
    for name in names:
        if name == OURS:
            found.append(contender(OURS))
            reserving = BrainConfig(admission=AdmissionConfig(reserved=RESERVED))
            found.append(msgspec.structs.replace(contender(OURS, reserving), name=f"{OURS}, reserved {RESERVED:.0%}"))
        else:
            found.append(contender(name))
    return found


def measured(plan: Sweep, field: Sequence[Contender], began: float, seeds: int) -> dict[str, list[Outcome]]:
    """Every contender at the load of a plan, seed by seed."""
    found: dict[str, list[Outcome]] = {each.name: [] for each in field}
    for seed in range(seeds):
        requests = peopled(arrivals(plan, 0, seed).requests, seed)
        truth = plan.scenario.truth
        known = prompts(requests, 16, truth.bytes_per_token, truth.byte_noise)
        for each in field:
            columns, _ = play(plan.scenario, requests, each.make_brain, seed, known)
            found[each.name].append(outcome(columns, plan.scenario, requests))
            text = f"{time.time() - began:6.0f} s  load {plan.loads[0]:g}, seed {seed}, {each.name}"
            print(text, file=sys.stderr, flush=True)
    return found


def row(name: str, runs: Sequence[Outcome], unloaded: dict[str, float]) -> str:
    """One line: all seeds together."""

    def joined(field: str) -> NDArray[Any]:
        return np.concatenate([getattr(run, field) for run in runs])

    good, fate, ttft, tier = joined("good"), joined("fate"), joined("ttft"), joined("tier")
    flood, output, held = joined("flood"), joined("output"), joined("held")
    critical, low, standard = tier >= Tier.HIGH, tier < Tier.STANDARD, tier == Tier.STANDARD
    ok = fate == OK
    urgent = rank(ttft[critical & ok], 0.99)
    alone = unloaded.get(name, math.nan)
    tokens = output[ok & flood].sum() / max(1, output[ok & ~flood].sum())
    cells = (
        f"**{name}**" if name.startswith(OURS) else name,
        f"{sum(run.good.sum() for run in runs) / sum(run.window_s for run in runs):.1f}",
        f"{good.mean():.3f}",
        f"{good[critical].mean():.3f}",
        f"{urgent:.2f}",
        f"{urgent / alone:.1f}" if alone == alone else "",
        f"{rank(ttft[ok], 0.99):.1f}",
        f"{(ok & ~good).mean():.1%}",
        f"{(fate == SHED).mean():.1%}",
        f"{(fate == SHED)[low].mean():.1%}",
        f"{(joined('preempted') > 0).mean():.2%}",
        f"{np.nanmax(held):.1f}",
        f"{good[standard & flood].mean():.3f} / {good[standard & ~flood].mean():.3f}",
        f"{tokens:.1f} : 1",
    )
    return f"| {' | '.join(cells)} |"


def rank(values: NDArray[np.float64], q: float) -> float:
    """The nearest rank, 0 of nothing."""
    return float(np.sort(values)[max(0, math.ceil(q * len(values) - 1e-9) - 1)]) if len(values) else 0.0


def table(load: float, found: dict[str, list[Outcome]], unloaded: dict[str, float]) -> str:
    """Markdown of one load."""
    counted = sum(len(run.good) for run in next(iter(found.values())))
    lines = [f"### Load {load:g}: {counted:,} requests", "", HEAD, "|---" * (HEAD.count("|") - 1) + "|"]
    return "\n".join([*lines, *(row(name, runs, unloaded) for name, runs in found.items()), ""])


def main() -> None:
    """Run what is asked for, print a table per load."""
    options = _parser().parse_args()
    point = next(point for point in POINTS if point.name == "conv-8-tight")
    workload = open_workload(str(options.data / TRACE), np.random.default_rng(0))
    field = entrants(options.policies.split(","))
    began = time.time()
    unloaded: dict[str, float] = {}
    capacity = 0.0
    for load in (UNLOADED, *options.loads):
        seconds = UNLOADED_S if load == UNLOADED else options.seconds
        scenario = Scenario(point.pools, BENT, point.slo, warmup_s=seconds / 6, classes=CLASSES)
        plan = prepared(Sweep(scenario, workload, tuple(field), (load,), 1, seconds, False, capacity))
        capacity = plan.capacity_rps
        found = measured(plan, field, began, options.seeds)
        if load == UNLOADED:
            for name, runs in found.items():
                served = [run.ttft[(run.tier >= Tier.HIGH) & (run.fate == OK)] for run in runs]
                unloaded[name] = rank(np.concatenate(served), 0.99)
        print(table(load, found, unloaded), flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of the traces")
    parser.add_argument("--policies", default=",".join((OURS, *BASELINES)), help="comma-separated")
    parser.add_argument(
        "--loads", type=lambda text: [float(part) for part in text.split(",")], default=[1.0, 1.5, 3.0, 5.0]
    )
    parser.add_argument("--seconds", type=float, default=60.0, help="of arrivals; the first sixth is not counted")
    parser.add_argument("--seeds", type=int, default=3)
    return parser


if __name__ == "__main__":
    said(main)
