"""Session affinity: what it does to goodput and prefix hits, under several policies, with memory to spare and without.

    python benchmarks/affinity.py --seeds 3 [--data DIR] [--only chat,agents] [--forms off,on]

DIR holds the Claude Code sessions (docs/workloads.md says where they are from); without it that point is left out. A
form is `off`, `on` (by default) or `ring` (the ring decides unless the replica has too much to do, whatever
the policy knows of prefixes). `stays` is the share of requests, of those that follow another one of their session, that
went to the same replica as that one. docs/decisions/0010 has the table.
"""

import argparse
import concurrent.futures
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import numpy as np
from missing import said

from headway.compose.simulate import MakeBrain
from headway.compose.traces import open_workload
from headway.core.commands import Command, Dispatch
from headway.core.constants import AffinityConfig, BrainConfig
from headway.core.events import Event, RequestArrived
from headway.core.ids import ReplicaId, RequestId
from headway.sim import sweep
from headway.sim.run import simulate
from headway.sim.scenario import PoolSpec, Scenario, Truth
from headway.workload.results import RunResult, mean
from headway.workload.sources import Options

POLICIES = ("headroom", "lmetric", "least_connections", "round_robin")
FORMS: dict[str, AffinityConfig] = {
    "off": AffinityConfig(enabled=False),
    "on": AffinityConfig(),
    "ring": AffinityConfig(yields=0.0),
}

MINDFUL = ("headroom", "lmetric")
"""Those for which `ring` differs from `on`."""


class Point(msgspec.Struct, frozen=True):
    """A workload on eight A100; `kv_tokens` of 0 is what an A100 has (about 400,000)."""

    name: str
    workload: str
    loads: tuple[float, ...]
    kv_tokens: int = 0
    duration_s: float = 180.0


POINTS = (
    Point("chat", "chat", (0.25, 0.75)),
    Point("chat-scarce", "chat", (0.5, 0.9), 40_000),
    Point("agents", "agents", (0.25, 0.75)),
    Point("agents-scarce", "agents", (0.5, 0.9), 120_000),
    Point("claude-code", "claude_code_weka_sample.jsonl.gz", (0.5, 0.8), duration_s=300.0),
)


class Found(msgspec.Struct, frozen=True):
    """A run, and how many turns of sessions stayed where the one before was."""

    result: RunResult
    stays: float


class Watched:
    """A brain, and where sessions went."""

    def __init__(self, make: MakeBrain, seed: int) -> None:
        self._brain = make(seed)
        self._sessions: dict[RequestId, str] = {}
        self._last: dict[str, ReplicaId] = {}
        self.followed = self.stayed = 0

    def handle(self, event: Event) -> list[Command]:
        """As the brain does."""
        if type(event) is RequestArrived and event.request.session_key:
            self._sessions[event.request.id] = event.request.session_key
        commands = self._brain.handle(event)
        for command in commands:
            if type(command) is Dispatch and (session := self._sessions.get(command.request_id)):
                before = self._last.get(session)
                self.followed += before is not None
                self.stayed += before == command.replica_id
                self._last[session] = command.replica_id
        return commands


def brain_maker(policy: str, form: str) -> MakeBrain:
    """One policy with one form of affinity."""
    return MakeBrain(policy, BrainConfig(affinity=FORMS[form]))


def run(plan: sweep.Sweep, load: int, seed: int, policy: str, form: str) -> Found:
    """One run."""
    watched: list[Watched] = []

    def make(number: int) -> Watched:
        watched.append(Watched(brain_maker(policy, form), number))
        return watched[-1]

    drawn = sweep.arrivals(plan, load, seed)
    result = simulate(plan.scenario, drawn, make, f"{policy} {form}", plan.loads[load], seed).result
    return Found(result, watched[0].stayed / max(1, watched[0].followed))


def measured(point: Point, options: argparse.Namespace) -> Iterator[Found]:
    """Every policy in every form, under the same arrivals."""
    trace = options.data / point.workload if point.workload.endswith(".gz") else point.workload
    load = open_workload(str(trace), np.random.default_rng(0), Options(length_factor=0.125))
    pool = PoolSpec(count=8, gpu="a100-80gb", kv_tokens=point.kv_tokens)
    scenario = Scenario(pools=(pool,), truth=Truth(perturb=0.2), warmup_s=30.0)
    loads = tuple(options.loads) or point.loads
    plan = sweep.prepared(sweep.Sweep(scenario, load, (), loads, options.seeds, point.duration_s))
    cells = [
        (plan, at, seed, policy, form)
        for at in range(len(loads))
        for policy in options.policies
        for form in options.forms
        if form != "ring" or policy in MINDFUL
        for seed in range(options.seeds)
    ]
    with concurrent.futures.ProcessPoolExecutor(options.jobs) as pool_of_processes:
        yield from pool_of_processes.map(run, *zip(*cells, strict=True))


def table(point: Point, found: Sequence[Found]) -> Iterator[str]:
    """Markdown: means over the seeds, and the range of the share served well."""
    yield f"\n{point.name}\n"
    yield "| load | policy | affinity | served well | (range) | stays | prefix hits | TTFT p50 | TTFT p99 | TPOT p99 |"
    yield "|---|---|---|---|---|---|---|---|---|---|"
    for load, name in dict.fromkeys((each.result.load, each.result.policy) for each in found):
        cell = [each for each in found if (each.result.load, each.result.policy) == (load, name)]
        good = [each.result.good_share for each in cell]
        means = {
            field: _mean([each.result for each in cell], field)
            for field in ("prefix_hit_rate", "ttft_p50_s", "ttft_p99_s", "tpot_p99_s")
        }
        policy, _, form = name.partition(" ")
        yield (
            f"| {load:g} | {policy} | {form} | {np.mean(good):.3f} | {min(good):.3f} to {max(good):.3f} "
            f"| {np.mean([each.stays for each in cell]):.3f} | {means['prefix_hit_rate']:.3f} "
            f"| {means['ttft_p50_s']:.2f} s | {means['ttft_p99_s']:.2f} s | {means['tpot_p99_s'] * 1000:.0f} ms |"
        )


def _mean(results: Sequence[RunResult], field: str) -> float:
    """Over seeds; NaN where one of them had nothing to measure."""
    found = mean(results, field)
    return float("nan") if found is None else found


def main() -> None:
    """Run the points that are asked for and print their tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder of the traces")
    parser.add_argument("--only", type=lambda text: text.split(","), default=())
    parser.add_argument("--policies", type=lambda text: text.split(","), default=POLICIES)
    parser.add_argument("--forms", type=lambda text: text.split(","), default=tuple(FORMS))
    parser.add_argument("--loads", type=lambda text: [float(each) for each in text.split(",")], default=())
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    began = time.time()
    for point in POINTS:
        if options.only and point.name not in options.only:
            continue
        if not point.workload.endswith(".gz") or options.data:
            print("\n".join(table(point, list(measured(point, options)))), flush=True)
    print(f"\n{time.time() - began:.0f} s")


if __name__ == "__main__":
    said(main)
