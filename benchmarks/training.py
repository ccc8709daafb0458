"""What a compiled build is to be quick at: done once by one that counts its branches (`make fast`, decision 7).

    python benchmarks/training.py

A gateway passes on plain answers and streams; then fleets are simulated, with and without pressure, and with moves.
Counts are written when a process ends, so the gateway has to end by itself.
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import peers
import uvloop
from load import Load, wait_ready
from processes import free_port

from headway.compose.simulate import contenders
from headway.compose.traces import open_workload
from headway.sim.prompt import prompts
from headway.sim.run import play
from headway.sim.scenario import PoolSpec, Scenario, Truth
from headway.sim.sweep import Sweep, arrivals, prepared
from headway.workload.sources import Options

HERE = Path(__file__).resolve().parent
ROUNDS = 3


def gateway(backends: list[int]) -> None:
    """One gateway, from its start to its end. Raises SystemExit if it did not answer, or did not end well."""
    port = free_port()
    command, extra = peers.headway(port, backends, Path(tempfile.gettempdir()))
    process = subprocess.Popen(command, env={**os.environ, **extra}, stdout=subprocess.DEVNULL)
    try:
        wait_ready(port, process, "headway")
        for _ in range(ROUNDS):
            for load in (Load(port, 3_000, 32, False), Load(port, 150, 16, True)):
                uvloop.run(load.run())
                if load.broken:
                    raise SystemExit(f"{load.broken} of {load.total} requests failed")
    finally:
        process.terminate()
        if process.wait(60):
            raise SystemExit(f"the gateway ended with {process.returncode}")


def simulation(policy: str, load: float, moves: bool) -> int:
    """One fleet under one policy. Returns how many requests there were."""
    scenario = Scenario((PoolSpec(8, "llama-3.1-8b", "a100-40gb"),), Truth(perturb=0.2), moves=moves)
    workload = open_workload("chat", np.random.default_rng(0), Options(span_s=120.0))
    sweep = prepared(Sweep(scenario, workload, contenders([policy]), (load,), 1, 120.0))
    drawn = arrivals(sweep, 0, 0)
    play(scenario, drawn.requests, sweep.contenders[0].make_brain, 0, prompts(drawn.requests))
    return len(drawn.requests)


def main() -> None:
    began = time.monotonic()
    backends = [free_port(), free_port()]
    server = subprocess.Popen([sys.executable, str(HERE / "backend.py"), *map(str, backends)], stdout=subprocess.PIPE)
    try:
        wait_ready(backends[0], server, "the backends")
        print("a gateway ...", flush=True)
        gateway(backends)
    finally:
        server.terminate()
        server.wait()
    for policy, load, moves in (("round_robin", 0.85, False), ("headroom", 0.85, False), ("headroom", 1.1, True)):
        print(f"a fleet: {policy} at a load of {load:g} ...", flush=True)
        print(f"  {simulation(policy, load, moves):,} requests")
    print(f"{time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
