"""What live migration is worth, in the simulator: memory, urgency, maintenance, survival (docs/migration.md).

    python benchmarks/moving.py --data DIR                             # everything, 6 seeds
    python benchmarks/moving.py --data DIR --only pressure --points conv-8-tight r1-70b --seeds 4

Scenes: `pressure` (points of docs/RESULTS.md, with and without the memory hold, without and with moves, and a
Llumnix-like baseline), `urgent` (5 % of requests of tier high), `full` (long urgent prompts where pools are full of low
tiers), `balance` (moves for balance from several imbalances on), `drain` (one of four replicas is emptied), `death`
(one of four crashes). DIR holds the traces (docs/workloads.md). All variants of a scene run under the same arrivals,
seed by seed; brackets are 95 % intervals of paired differences.
"""

import argparse
import concurrent.futures
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import numpy as np
from missing import said
from moving_tables import Found, death_table, drain_table, full_table, goals_table, pressure_table, urgent_table
from points import POINTS, Point
from results import FILES

from headway.compose.simulate import MakeBrain
from headway.compose.traces import open_workload
from headway.core.commands import Command, Dispatch, Migrate, Moved, Record
from headway.core.constants import AdmissionConfig, BrainConfig, MigrationConfig, SloConfig
from headway.core.events import AttemptFinished, DrainAsked, Event, FirstToken, RequestArrived
from headway.core.ids import AttemptId, ReplicaId, RequestId
from headway.core.rebalance import STRATEGIES, Strategy
from headway.core.tenant import Tier
from headway.sim import sweep
from headway.sim.run import simulate
from headway.sim.scenario import Fault, RequestClass, tiers
from headway.workload.request import Request, Segment
from headway.workload.results import RunResult

PRESSED = ("conv-8-tight", "conv-16-over", "conv-8-mixed", "r1-8-tight", "r1-70b")
URGENT = ("conv-8-tight", "r1-8-tight", "r1-70b")
BALANCED = ("conv-8-tight", "r1-8-tight", "r1-70b")
HALFWAY = 0.5
"""When a replica is drained or dies, as a share of the run."""

URGENT_SHARE = 0.05

FULL_LOAD, FULL_KV, FULL_TOKENS, FULL_OUTPUT = 1.3, 60_000, 240, 200
"""Pools full of low tiers: more than the fleet can do on pools of this many tokens, and so many tokens of urgent
prompts per request."""

FULL_PROMPTS = (8_000, 16_000)
"""How long urgent prompts are: there are half as many of those that are twice as long."""

BALANCED_STRATEGY = STRATEGIES["balanced"]

GAPS = (0.4, 0.25, 0.15)
"""Imbalances from which on requests are moved."""

FIRST = ReplicaId("r000")


class Variant(msgspec.Struct, frozen=True):
    """What is compared: a policy, whether it may hold requests for memory, and a strategy of moves ("": none), maybe
    with another threshold for imbalance."""

    name: str
    policy: str = "headroom"
    hold: bool = True
    strategy: str = ""
    gap: float = 0.0


WITH_HOLD = (Variant("hold"), Variant("hold, moves", strategy="balanced"))
WITHOUT_HOLD = (Variant("no hold", hold=False), Variant("no hold, moves", hold=False, strategy="balanced"))
LLUMNIX = (
    Variant("freeness", "freeness", hold=False),
    Variant("freeness, moves", "freeness", hold=False, strategy="freeness"),
)


BALANCING = (
    Variant("hold"),
    *(Variant(f"moves from {gap:.2f} on", strategy="balanced", gap=gap) for gap in GAPS),
)


class Scene(msgspec.Struct, frozen=True):
    """A point, and what is done to it. `drain`: the first replica is emptied halfway; `full`: urgent requests have
    prompts of so many tokens."""

    point: Point
    variants: tuple[Variant, ...]
    classes: tuple[RequestClass, ...] = ()
    crash: bool = False
    drain: bool = False
    full: int = 0


class Watched:
    """A brain; what a drain of one of its replicas takes, how long streams stand still when theirs dies (and how long
    all others would take at least to compute what it had); of those that are urgent, from a moment on, their TTFTs, and
    how long they were held."""

    def __init__(self, make: MakeBrain, seed: int, drain_at: float, name: ReplicaId, warmup_s: float = 0.0) -> None:
        self._brain = make(seed)
        self._drain_at, self._name = drain_at, name
        self._there: set[AttemptId] = set()
        self._lost: dict[RequestId, float] = {}
        self._warmup_s = warmup_s
        self._urgent: dict[RequestId, float] = {}
        self._replayed = 0
        self.empty_at = -1.0
        self.forecast_s = 0.0
        self.gaps: list[float] = []
        self.urgent: list[float] = []
        self.held: list[float] = []
        self.bound_s = 0.0

    def handle(self, event: Event) -> list[Command]:
        """As the brain does; when it is time, it is told to drain first."""
        commands: list[Command] = []
        if event.at >= self._drain_at:
            self._drain_at = float("inf")
            commands += self._brain.handle(DrainAsked(event.at, self._name, True))
            (emptying,) = self._brain.snapshot(event.at).emptying
            self.forecast_s = emptying.moving_s
        self._note(event)
        commands += self._brain.handle(event)
        for command in commands:
            if isinstance(command, Dispatch | Migrate) and command.replica_id == self._name:
                self._there.add(command.attempt_id)
            if isinstance(command, Dispatch) and command.request_id in self._urgent:
                self.held.append(event.at - self._urgent[command.request_id])
            if isinstance(command, Record) and isinstance(command.entry, Moved):
                self._note_move(command.entry)
        return commands

    def _note_move(self, entry: Moved) -> None:
        if entry.result == "failed_over":
            views = [view for view in self._brain.snapshot(entry.at).views if view.spec.id != self._name]
            self._replayed += entry.replayed_tokens
            self.bound_s = self._replayed / sum(view.speed.prefill_tokens_per_s for view in views)

    def _note(self, event: Event) -> None:
        if isinstance(event, RequestArrived):
            if event.request.tier >= Tier.HIGH and event.at >= self._warmup_s:
                self._urgent[event.request.id] = event.at
        elif isinstance(event, FirstToken):
            came = self._urgent.pop(_request(event.attempt_id), None)
            if came is not None:
                self.urgent.append(event.at - came)
            lost = self._lost.pop(_request(event.attempt_id), None)
            if lost is not None:
                self.gaps.append(event.at - lost)
        elif isinstance(event, AttemptFinished):
            if event.outcome.resumable:
                self._lost[_request(event.attempt_id)] = event.at
            if event.attempt_id in self._there:
                self._there.remove(event.attempt_id)
                if not self._there:
                    self.empty_at = event.at


def _request(attempt: AttemptId) -> RequestId:
    return RequestId(attempt.rpartition("-")[0])


def main() -> None:
    """Run what is asked for and print its tables."""
    options = _parser().parse_args()
    scenes: dict[str, Callable[[argparse.Namespace], None]] = {
        "pressure": _pressure,
        "urgent": _urgent,
        "full": _full,
        "balance": _balance,
        "drain": _drain,
        "death": _death,
    }
    for name in options.only or scenes:
        scenes[name](options)


def _pressure(options: argparse.Namespace) -> None:
    found: dict[str, dict[str, list[Found]]] = {}
    for point in _points(options, PRESSED):
        found[point.name] = _measured(Scene(point, WITH_HOLD + WITHOUT_HOLD + LLUMNIX), options)
        print(pressure_table(point.name, found[point.name]), flush=True)
    pairs = [tuple(variant.name for variant in pair) for pair in (WITH_HOLD, WITHOUT_HOLD, LLUMNIX)]
    print(goals_table(found, pairs), flush=True)


def _urgent(options: argparse.Namespace) -> None:
    classes = (RequestClass(URGENT_SHARE, Tier.HIGH),)
    scenes = [(point.name, Scene(point, WITH_HOLD, classes)) for point in _points(options, URGENT)]
    print(urgent_table({name: _measured(scene, options) for name, scene in scenes}), flush=True)


def _full(options: argparse.Namespace) -> None:
    """One point, the same pools made small."""
    (point,) = _points(options, ("r1-8-tight",))
    pools = tuple(msgspec.structs.replace(pool, kv_tokens=FULL_KV) for pool in point.pools)
    point = msgspec.structs.replace(point, pools=pools, load=FULL_LOAD)
    for prompt in FULL_PROMPTS:
        share = FULL_TOKENS / prompt
        classes = (RequestClass(share, Tier.HIGH), RequestClass(1.0 - share, Tier.LOW))
        scene = Scene(point, WITH_HOLD + WITHOUT_HOLD, classes, full=prompt)
        print(full_table(f"Urgent prompts of {prompt:,} tokens", _measured(scene, options)), flush=True)


def _balance(options: argparse.Namespace) -> None:
    for point in _points(options, BALANCED):
        print(pressure_table(point.name, _measured(Scene(point, BALANCING), options)), flush=True)


def _drain(options: argparse.Namespace) -> None:
    print(drain_table({p.name: _measured(Scene(p, WITH_HOLD, drain=True), options) for p in _fours(options)}))


def _death(options: argparse.Namespace) -> None:
    print(death_table({p.name: _measured(Scene(p, WITH_HOLD, crash=True), options) for p in _fours(options)}))


def _points(options: argparse.Namespace, names: Sequence[str]) -> list[Point]:
    known = {point.name: point for point in POINTS}
    return [known[name] for name in names if not options.points or name in options.points]


def _fours(options: argparse.Namespace) -> list[Point]:
    """Four replicas of chat and of reasoning, at a load that three of them can bear."""
    return [msgspec.structs.replace(point, load=0.6) for point in _points(options, ("conv-4", "r1-70b"))]


def _measured(scene: Scene, options: argparse.Namespace) -> dict[str, list[Found]]:
    """Every variant of a scene, seed by seed."""
    file, reading = FILES[scene.point.trace]
    workload = open_workload(str(options.data / file), np.random.default_rng(0), reading)
    point = msgspec.structs.replace(scene.point, duration_s=options.seconds or scene.point.duration_s)
    scene = msgspec.structs.replace(scene, point=point)
    plan = sweep.prepared(
        sweep.Sweep(point.scenario, workload, (), (options.load or point.load,), options.seeds, point.duration_s)
    )
    cells = [(variant, seed) for seed in range(options.seeds) for variant in scene.variants]
    found: dict[str, list[Found]] = {variant.name: [] for variant in scene.variants}
    began = time.monotonic()
    with concurrent.futures.ProcessPoolExecutor(options.jobs) as pool:
        runs = pool.map(_run, [plan] * len(cells), [scene] * len(cells), *zip(*cells, strict=True))
        for done, ((variant, seed), run) in enumerate(zip(cells, runs, strict=True), start=1):
            found[variant.name].append(run)
            took = time.monotonic() - began
            line = f"{took:5.0f} s  {point.name} {done}/{len(cells)}  {variant.name}, seed {seed}"
            print(f"{line}: good {run.result.good_share:.4f}", file=sys.stderr, flush=True)
    return found


def _run(plan: sweep.Sweep, scene: Scene, variant: Variant, seed: int) -> Found:
    """One run."""
    point = scene.point
    at = HALFWAY * point.duration_s
    scenario = msgspec.structs.replace(
        plan.scenario,
        classes=scene.classes,
        moves=bool(variant.strategy),
        faults=(Fault(at, 0, "crash", point.duration_s),) if scene.crash else (),
    )
    watched: list[Watched] = []

    def make(number: int) -> Watched:
        drain_at = at if scene.drain else float("inf")
        watched.append(Watched(_brain(point, variant), number, drain_at, FIRST, scenario.warmup_s))
        return watched[-1]

    drawn = sweep.arrivals(plan, 0, seed)
    if scene.full:
        longer = _lengthened(drawn.requests, tiers(scene.classes, len(drawn.requests), seed), scene.full)
        drawn = msgspec.structs.replace(drawn, requests=longer)
    result: RunResult = simulate(scenario, drawn, make, variant.name, plan.loads[0], seed).result
    brain = watched[0]
    empty_s = brain.empty_at - at if scene.drain else 0.0
    return Found(
        result, empty_s, brain.forecast_s, tuple(brain.gaps), brain.bound_s, tuple(brain.urgent), tuple(brain.held)
    )


def _lengthened(requests: Sequence[Request], of_tier: Sequence[int], prompt: int) -> list[Request]:
    """The same, but those of a high tier have long prompts of their own, and short answers."""
    return [
        msgspec.structs.replace(request, segments=(Segment(1_000_000_000 + number, prompt),), output_tokens=FULL_OUTPUT)
        if tier >= Tier.HIGH
        else request
        for number, (request, tier) in enumerate(zip(requests, of_tier, strict=True))
    ]


def _brain(point: Point, variant: Variant) -> MakeBrain:
    slo = SloConfig(point.slo.ttft_s, point.slo.ttft_per_prompt_token_s, point.slo.tpot_s)
    config = BrainConfig(slo=slo, admission=AdmissionConfig(hold=variant.hold))
    STRATEGIES["balanced"] = _balanced(variant.gap) if variant.gap else BALANCED_STRATEGY
    if variant.strategy:
        moves = MigrationConfig(enabled=True, strategy=variant.strategy)
        config = msgspec.structs.replace(config, migration=moves)
    return MakeBrain(variant.policy, config)


def _balanced(gap: float) -> Strategy:
    known = BALANCED_STRATEGY
    return Strategy(known.slow, known.spare, gap, known.ticks, known.overflow)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of the traces")
    parser.add_argument("--only", nargs="*", choices=("pressure", "urgent", "full", "balance", "drain", "death"))
    parser.add_argument("--points", nargs="*", help="names of points, instead of all of a scene")
    parser.add_argument("--load", type=float, help="another load than the point's own, to look around")
    parser.add_argument("--seconds", type=float, help="of arrivals, instead of the point's own")
    parser.add_argument("--seeds", type=int, default=6)
    parser.add_argument("--jobs", type=int, default=2)
    return parser


if __name__ == "__main__":
    said(main)
