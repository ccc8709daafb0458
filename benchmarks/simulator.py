"""How fast the simulator is: simulated requests per second of one core, by policy, and what a decision costs.

    python benchmarks/simulator.py --data DIR          # Azure conversation on 8 replicas; 64 replicas; Mooncake's hour

CPU time of this process counts (other load does not), the least of --rounds runs. Capacity and prompts are worked out
before. DIR holds the traces (docs/workloads.md names the public sources).
"""

import argparse
import time
from pathlib import Path

import numpy as np
from missing import said

from headway.compose.simulate import contenders
from headway.compose.traces import open_workload
from headway.sim.prompt import prompts
from headway.sim.run import play
from headway.sim.scenario import PoolSpec, Scenario, Truth
from headway.sim.sweep import Sweep, arrivals, prepared

CONVERSATION = "azure_llm_2023_conv.csv.gz"
MOONCAKE = "mooncake_fast25_conversation.jsonl.gz"


def measure(
    data: Path, trace: str, replicas: int, policy: str, load: float, seconds: float, rounds: int
) -> tuple[int, float, float]:
    """Requests, simulated requests per CPU second, and microseconds of the brain per request."""
    pool = PoolSpec(replicas, "llama-3.1-8b", "a100-80gb")
    scenario = Scenario((pool,), Truth(perturb=0.2))
    workload = open_workload(str(data / trace), np.random.default_rng(0))
    sweep = prepared(Sweep(scenario, workload, contenders([policy]), (load,), 1, seconds))
    drawn = arrivals(sweep, 0, 0)
    known = prompts(drawn.requests)
    best, brain_us = 0.0, 0.0
    for _ in range(rounds):
        began = time.process_time()
        _, brain_s = play(scenario, drawn.requests, sweep.contenders[0].make_brain, 0, known)
        speed = len(known) / (time.process_time() - began)
        if speed > best:
            best, brain_us = speed, brain_s / len(known) * 1e6
    return len(known), best, brain_us


def main() -> None:
    """Print a table of all cases."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    print("| trace | replicas | policy | load | requests | requests per CPU second | brain us per request |")
    print("|---|---|---|---|---|---|---|")
    for trace, replicas, policy, load, seconds in (
        (CONVERSATION, 8, "round_robin", 0.85, 300.0),
        (CONVERSATION, 8, "headroom", 0.85, 300.0),
        (CONVERSATION, 64, "headroom", 0.85, 60.0),
        (MOONCAKE, 8, "headroom", 0.85, 0.0),
    ):
        count, speed, brain_us = measure(options.data, trace, replicas, policy, load, seconds, options.rounds)
        name = trace.split(".")[0]
        print(f"| {name} | {replicas} | {policy} | {load:g} | {count:,} | {speed:,.0f} | {brain_us:.0f} |", flush=True)


if __name__ == "__main__":
    said(main)
