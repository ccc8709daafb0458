"""What a decision costs: microseconds per RequestArrived, and per whole life of a request, by fleet size and policy.

The brain is driven as a gateway drives it, with load in flight everywhere, load reports twice a second from every
replica and one Progress per 50 ms of virtual time. Only `handle(RequestArrived)` and `handle(AttemptFinished)` are
timed, in CPU time of the thread (neighbours on the machine do not count), with garbage collection as a gateway would
have it (on, survivors frozen).

    python benchmarks/decision.py --replicas 2 16 64 256 1000 --policies headroom round_robin --json
"""

import argparse
import gc
import importlib
import json
import random
import statistics
import time
from typing import Any

from headway.core.brain import Brain
from headway.core.commands import Dispatch
from headway.core.constants import BrainConfig
from headway.core.events import (
    AttemptFinished,
    FirstToken,
    ProbeSucceeded,
    Progress,
    ReplicasChanged,
    RequestArrived,
    SampleTaken,
)
from headway.core.ids import AttemptId, ReplicaId, RequestId
from headway.core.outcome import Outcome, OutcomeKind
from headway.core.replica import LoadSample, ReplicaSpec
from headway.core.request import RequestInfo

MODEL = "llama"
CAPACITY = 400_000
LOADED = 16
"""Streams in flight per replica."""

TICK_S = 0.05
SAMPLE_S = 0.5


class Fleet:
    """A brain and the fleet that it believes in."""

    def __init__(self, replicas: int, policy: str, seed: int) -> None:
        plugin = importlib.import_module(f"headway.policies.{policy}").PLUGIN
        self.rng = random.Random(seed)
        self.brain = Brain(BrainConfig(), plugin.factory(plugin.config()), random.Random(seed))
        self.ids = [ReplicaId(f"r{i:04d}") for i in range(replicas)]
        self.now = 0.0
        self.serial = 0
        self.open: dict[AttemptId, tuple[int, RequestInfo]] = {}
        self.placed: dict[AttemptId, ReplicaId] = {}
        specs = tuple(
            ReplicaSpec(
                i, f"http://{i}", "vllm", MODEL, serves={MODEL: MODEL}, max_model_tokens=32768, max_num_seqs=256
            )
            for i in self.ids
        )
        self.brain.handle(ReplicasChanged(self.now, specs))
        for replica in self.ids:
            self.brain.handle(ProbeSucceeded(self.now, replica))
        self.epoch = 0
        self.report(range(replicas))

    def report(self, which: Any) -> None:
        """Load reports of some replicas."""
        self.epoch += 1
        load: dict[ReplicaId, tuple[int, int]] = {}
        for attempt, replica in self.placed.items():
            count, tokens = load.get(replica, (0, 0))
            generated, request = self.open[attempt]
            load[replica] = (count + 1, tokens + request.prompt_bytes // 4 + generated)
        for index in which:
            replica = self.ids[index]
            running, used = load.get(replica, (0, 0))
            sample = LoadSample(replica, self.now - 0.002, self.epoch, CAPACITY, used, running, 0, 0, 256)
            self.brain.handle(SampleTaken(self.now, sample))

    def request(self) -> RequestInfo:
        """A chat turn: 2 kB of prompt, a quarter of them with a known prefix."""
        self.serial += 1
        chain = self.rng.randrange(64) if self.serial % 4 == 0 else self.serial + 1000
        hashes = tuple(hash((chain, block)) & (2**63 - 1) for block in range(4))
        size = self.rng.randrange(1000, 3000)
        return RequestInfo(
            RequestId(f"{self.serial:012d}"),
            MODEL,
            prompt_bytes=size,
            prefix_hashes=hashes,
            stream=True,
            fingerprint=self.serial,
        )

    def arrive(self) -> float:
        """One arrival. Returns its cost (s)."""
        request = self.request()
        event = RequestArrived(self.now, request)
        start = time.thread_time()
        commands = self.brain.handle(event)
        cost = time.thread_time() - start
        for command in commands:
            if isinstance(command, Dispatch):
                self.open[command.attempt_id] = (0, request)
                self.placed[command.attempt_id] = command.replica_id
                self.brain.handle(FirstToken(self.now + 0.01, command.attempt_id))
        return cost

    def finish(self) -> float:
        """The oldest attempt ends. Returns the cost of that (s)."""
        attempt = next(iter(self.open))
        generated, request = self.open.pop(attempt)
        del self.placed[attempt]
        prompt = request.prompt_bytes // 4
        outcome = Outcome(OutcomeKind.OK, 200, True, True, prompt, 0, max(1, generated))
        event = AttemptFinished(self.now, attempt, outcome)
        start = time.thread_time()
        self.brain.handle(event)
        return time.thread_time() - start

    def tick(self) -> None:
        """50 ms pass: everything in flight advances, a tenth of the fleet reports."""
        self.now += TICK_S
        counts = []
        for attempt, (generated, request) in self.open.items():
            self.open[attempt] = (generated + 3, request)
            counts.append((attempt, generated + 3))
        self.brain.handle(Progress(self.now, counts))
        turn = round(self.now / TICK_S) % round(SAMPLE_S / TICK_S)
        self.report(range(turn, len(self.ids), round(SAMPLE_S / TICK_S)))


def measure(replicas: int, policy: str, decisions: int, seed: int) -> dict[str, Any]:
    """Costs (µs) at one fleet size."""
    fleet = Fleet(replicas, policy, seed)
    per_tick = max(1, min(50, replicas))
    for i in range(LOADED * replicas):
        fleet.arrive()
        if i % per_tick == 0:
            fleet.now += TICK_S / 10
    arrivals: list[float] = []
    whole: list[float] = []
    gc.collect()
    gc.freeze()
    while len(arrivals) < decisions:
        fleet.tick()
        for _ in range(per_tick):
            fleet.now += TICK_S / per_tick / 2
            came = fleet.arrive()
            arrivals.append(came)
            whole.append(came + fleet.finish())
    gc.unfreeze()
    cuts, both = statistics.quantiles(arrivals, n=100), statistics.quantiles(whole, n=100)
    return {
        "policy": policy,
        "replicas": replicas,
        "decisions": len(arrivals),
        "arrive_p50_us": cuts[49] * 1e6,
        "arrive_p99_us": cuts[98] * 1e6,
        "life_p50_us": both[49] * 1e6,
        "life_p99_us": both[98] * 1e6,
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--replicas", type=int, nargs="+", default=[2, 16, 64, 256, 1000])
    parser.add_argument("--policies", nargs="+", default=["headroom", "least_tokens", "round_robin"])
    parser.add_argument("--decisions", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    rows = [measure(n, policy, args.decisions, args.seed) for policy in args.policies for n in args.replicas]
    if args.json:
        print(json.dumps(rows, indent=1))
        return
    print(f"{'policy':<14}{'replicas':>9}{'arrive p50':>12}{'p99':>9}{'life p50':>10}{'p99':>9}   (µs)")
    for row in rows:
        print(
            f"{row['policy']:<14}{row['replicas']:>9}{row['arrive_p50_us']:>12.1f}{row['arrive_p99_us']:>9.1f}"
            f"{row['life_p50_us']:>10.1f}{row['life_p99_us']:>9.1f}"
        )


if __name__ == "__main__":
    main()
