"""How wrong forecasts get when what they rest on changes: one condition after the other, against a simulator's truth.

    python benchmarks/robustness.py                       # all conditions, about four minutes on two cores
    python benchmarks/robustness.py --only chat,code --seeds 3
    python benchmarks/robustness.py --out docs/forecasts.md

Four replicas of an 8B model (speeds bent by a fifth) with small KV pools serve generated requests at four fifths of
what they work off, behind the default policy. The first fifth of each run is not counted; what drifts does so at its
middle, without notice. Errors of a pool's use are taken four times a second from the engine itself, not from its
reports, so that they are what decisions rest on; those of what was forecast 2 s before are taken at each load report.
"""

import argparse
import concurrent.futures
import itertools
import math
import resource
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np
from robustness_conditions import CONDITIONS, Condition

from headway.compose.simulate import contender
from headway.core.brain import Brain
from headway.core.commands import Command, Record, Settled
from headway.core.events import Event, Progress, SampleTaken
from headway.core.ids import AttemptId
from headway.perfmodel.decoding import Job
from headway.perfmodel.jump import Happened
from headway.sim import replica
from headway.sim.capacity import fleet_rps
from headway.sim.driver import Driver
from headway.sim.prompt import Prompt, prompts
from headway.sim.replica import SimReplica
from headway.sim.scenario import Scenario, Truth
from headway.sim.truth import Ground, grounds
from headway.workload.mixes import generated
from headway.workload.request import Request

MARK = "<!-- made by `python benchmarks/robustness.py --out docs/forecasts.md`; do not edit below -->\n"
SPAN_S = 240.0
SEEDS = 2
SAMPLE_S = 300.0
"""Seconds of a workload by which its fleet's throughput is measured."""


class Found(msgspec.Struct):
    """Errors of one or several runs. Of pools: fractions of the pool; of requests: fractions of the truth."""

    requests: int = 0
    preempted: int = 0
    kv_now: list[float] = []
    kv_ahead: list[float] = []
    prompt: list[float] = []
    output: list[float] = []
    inside: list[bool] = []
    ttft: list[float] = []

    def add(self, other: "Found") -> None:
        """Take in another run."""
        self.requests += other.requests
        self.preempted += other.preempted
        for name in ("kv_now", "kv_ahead", "prompt", "output", "inside", "ttft"):
            getattr(self, name).extend(getattr(other, name))

    def settled(self, entry: Settled) -> None:
        """One request's end beside what was forecast."""
        outcome = entry.outcome
        self.prompt.append(abs(entry.forecast_prompt_tokens / outcome.prompt_tokens - 1.0))
        self.output.append(abs(entry.forecast_output_tokens / entry.output_tokens - 1.0))
        self.inside.append(entry.forecast_output_low <= entry.output_tokens <= entry.forecast_output_high)
        if entry.ttft_s:
            self.ttft.append(abs(entry.forecast_ttft_s / entry.ttft_s - 1.0))


class Watch:
    """Looks at a brain from outside after each event, and at the engines it believes to know."""

    def __init__(self, brain: Brain, replicas: Sequence[SimReplica], from_s: float) -> None:
        self.found = Found()
        self._brain = brain
        self._replicas = {replica.id: replica for replica in replicas}
        self._from_s = from_s

    def __call__(self, event: Event, commands: list[Command]) -> None:
        """As a driver's journal."""
        if event.at < self._from_s:
            return
        if isinstance(event, Progress):
            for view in self._brain.snapshot(event.at).views:
                held = self._replicas[view.spec.id].kv_usage(event.at) * view.kv_capacity_tokens
                least, most = view.kv_used_tokens, view.kv_used_tokens + view.prefill_backlog_tokens
                self.found.kv_now.append(max(least - held, held - most, 0.0) / view.kv_capacity_tokens)
        elif isinstance(event, SampleTaken):
            gauges = self._brain._fleet.replicas[event.sample.replica_id].gauges
            self.found.kv_ahead += gauges.hindsight.ahead
            gauges.hindsight.ahead.clear()
        for command in commands:
            if isinstance(command, Record) and isinstance(command.entry, Settled) and command.entry.output_tokens:
                self.found.settled(command.entry)


COMPILED = not replica.__file__.endswith(".py")


class Shared(SimReplica):
    """A replica that others use besides us: their requests come, run and end without our hearing of it."""

    def __init__(self, ground: Ground, truth: Truth, seed: int, foreign: Sequence[Job]) -> None:
        super().__init__(ground, truth, seed)
        self._foreign = list(reversed(foreign))
        self._theirs = frozenset(job.id for job in foreign)

    @property
    def ends(self) -> float:
        """When its engine's next event is, or somebody else's next request."""
        return min(self.engine.ends, self._foreign[-1].arrived if self._foreign else math.inf)

    def complete(self) -> Happened:
        """`ends` has come."""
        if not self._foreign or self._foreign[-1].arrived > self.engine.ends:
            return super().complete()
        job = self._foreign.pop()
        self.engine.add(job, job.arrived)
        self.version += 1
        return Happened([])

    def progress(self, at: float) -> list[tuple[AttemptId, int]]:
        """Of ours only."""
        return [(attempt, count) for attempt, count in super().progress(at) if attempt not in self._theirs]


def run(condition: Condition, seed: int, span_s: float = SPAN_S) -> Found:
    """One run of a condition."""
    scenario = Scenario((condition.pool,), condition.truth)
    requests, known = _workload(condition, scenario, seed, span_s)
    chance = np.random.default_rng([seed, 7])
    theirs = chance.random(len(requests)) < condition.foreign
    ours = [(r, p) for r, p, foreign in zip(requests, known, theirs, strict=True) if not foreign]
    others = [(r, p) for r, p, foreign in zip(requests, known, theirs, strict=True) if foreign]
    replicas = _replicas(condition, scenario, seed, others)
    brain = contender("headroom").make_brain(seed)
    assert isinstance(brain, Brain)
    watch = Watch(brain, replicas, span_s / 5)
    asked, texts = [r for r, _ in ours], [p for _, p in ours]
    columns = Driver(brain, replicas, scenario, asked, texts, seed, watch).play()
    watch.found.requests = len(asked)
    watch.found.preempted = sum(count > 0 for count in columns.preempted)
    return watch.found


def _replicas(
    condition: Condition, scenario: Scenario, seed: int, others: Sequence[tuple[Request, Prompt]]
) -> list[SimReplica]:
    jobs = [Job(f"foreign-{k}", p.tokens, r.output_tokens, p.pieces, r.arrival_s) for k, (r, p) in enumerate(others)]
    found = grounds(scenario, seed)
    return [Shared(ground, condition.truth, seed, jobs[k :: len(found)]) for k, ground in enumerate(found)]


def _workload(
    condition: Condition, scenario: Scenario, seed: int, span_s: float
) -> tuple[Sequence[Request], Sequence[Prompt]]:
    """Requests at the condition's load, and their prompts as gateway and engine see them."""
    sample = generated(condition.mix, 8.0, SAMPLE_S, np.random.default_rng(0)).requests
    rate = condition.load * fleet_rps(scenario, sample)
    load = generated(condition.mix, rate, span_s, np.random.default_rng([seed, 20_260]))
    half = next((k for k, r in enumerate(load.requests) if r.arrival_s >= span_s / 2), len(load.requests))
    late = [_stretched(request, condition.drift) for request in load.requests[half:]]
    requests = [*load.requests[:half], *late]
    truth = condition.truth
    known = prompts(requests, 16, truth.bytes_per_token, truth.byte_noise)
    if condition.then_bytes:
        known[half:] = prompts(late, 16, condition.then_bytes, truth.byte_noise)
    return requests, known


def _stretched(request: Request, factor: float) -> Request:
    return msgspec.structs.replace(request, output_tokens=max(1, round(request.output_tokens * factor)))


def table(conditions: Sequence[Condition], found: dict[str, Found]) -> str:
    """Markdown: one row per condition."""
    lines = [
        "| condition | what is different | requests | KV now | KV 2 s ahead | preempted | prompt | output in interval "
        "| output | TTFT |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for one in conditions:
        f = found[one.name]
        cells = [one.name, one.about, f"{f.requests:,}", _pair(f.kv_now), _pair(f.kv_ahead)]
        cells += [f"{f.preempted / f.requests:.2%}", _pair(f.prompt), f"{np.mean(f.inside):.1%}"]
        lines.append("| " + " | ".join([*cells, _pair(f.output), _pair(f.ttft)]) + " |")
    return "\n".join(lines) + "\n"


def _pair(errors: Sequence[float]) -> str:
    """Median and 99 % bound."""
    if not errors:
        return "-"
    middle, bound = np.percentile(errors, (50, 99))
    return f"{middle:.1%} / {bound:.1%}" if bound < 10 else f"{middle:.1%} / {bound:.0f} x"


def main() -> None:
    """Run the conditions that are asked for and print or write their table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="names, separated by commas")
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--span", type=float, default=SPAN_S, help="seconds of arrivals per run")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--out", type=Path, help="replace the table of this page")
    options = parser.parse_args()
    if COMPILED:
        parser.error("engines that others use, too, are made of plain classes: `make pure` first")
    wanted = options.only.split(",") if options.only else []
    conditions = [one for one in CONDITIONS if not wanted or one.name in wanted]
    began = time.monotonic()
    shown = table(conditions, measure(conditions, options.seeds, options.span, options.jobs))
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = used.ru_utime + used.ru_stime
    took = f"\n{options.seeds} seeds, {options.span:g} s of arrivals each; {time.monotonic() - began:.0f} s in all, "
    took += f"{cpu_s:.0f} s of CPU.\n"
    print(shown + took)
    if options.out:
        notes = options.out.read_text().partition(MARK)[0]
        options.out.write_text(f"{notes}{MARK}\n{shown}{took}")


def measure(conditions: Sequence[Condition], seeds: int, span_s: float, jobs: int) -> dict[str, Found]:
    """All runs, in so many processes."""
    cells = list(itertools.product(conditions, range(seeds)))
    found = {one.name: Found() for one in conditions}
    with concurrent.futures.ProcessPoolExecutor(jobs) as pool:
        results = pool.map(run, *zip(*cells, strict=True), itertools.repeat(span_s))
        for (condition, _), result in zip(cells, results, strict=False):
            found[condition.name].add(result)
    return found


if __name__ == "__main__":
    main()
