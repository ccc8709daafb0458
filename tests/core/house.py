"""A small house for tests of the brain: policies that do as they are told, and short words for events."""

import random
from collections.abc import Sequence
from typing import Self

import msgspec

from headway.core.brain import Brain
from headway.core.commands import SHED, Command, Dispatch, Record, Reject
from headway.core.constants import BrainConfig, MemoryConfig
from headway.core.decision import Decision
from headway.core.demand import Demand
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
from headway.core.memory import HORIZONS, Outlook
from headway.core.outcome import Outcome, OutcomeKind
from headway.core.plugin import Chance
from headway.core.replica import LoadSample, ReplicaSpec
from headway.core.request import RequestInfo
from headway.core.view import ReplicaView

BY_HAND = MemoryConfig(spare=0.01, z=2.0)
"""For figures that are worked out in a test: one percent of a pool is never promised, two deviations are kept clear."""


def outlook(*survival: float, sequences: int = 1) -> Outlook:
    """Survival at the first horizons; none lives to see the others."""
    return Outlook([*survival, *[0.0] * (len(HORIZONS) - len(survival))], sequences)


class FewestInFlight:
    """Cost = attempts in flight; remembers what it was shown."""

    name = "fewest"
    parts: tuple[str, ...] = ("in_flight",)
    tolerance = 0.0

    def __init__(self, binds_late: bool = False) -> None:
        self.binds_late = binds_late
        self.shown: list[tuple[ReplicaId, ...]] = []

    def costs(
        self, demand: Demand, views: Sequence[ReplicaView], now: float, rng: Chance
    ) -> Sequence[tuple[float, ...]]:
        self.shown.append(tuple(view.id for view in views))
        return [(float(view.in_flight), float(view.in_flight)) for view in views]


class Fixed:
    """Costs by replica, as told; absent is inf."""

    name = "fixed"
    parts: tuple[str, ...] = ()
    binds_late = False

    def __init__(self, costs: dict[str, float], tolerance: float = 0.0) -> None:
        self.table = costs
        self.tolerance = tolerance

    def costs(
        self, demand: Demand, views: Sequence[ReplicaView], now: float, rng: Chance
    ) -> Sequence[tuple[float, ...]]:
        return [(self.table.get(view.id, float("inf")),) for view in views]


class House:
    """A brain, its clock, and the commands it gave."""

    def __init__(self, policy: object | None = None, config: BrainConfig | None = None, seed: int = 1) -> None:
        self.policy = policy or FewestInFlight()
        self.brain = Brain(config or BrainConfig(), self.policy, random.Random(seed))  # type: ignore[arg-type]
        self.now = 0.0
        self.epoch = 0

    def tell(self, event: object) -> list[Command]:
        commands = self.brain.handle(event)  # type: ignore[arg-type]
        for said in commands:  # clients keep the same books, and see no more than status and code
            assert not isinstance(said, Reject) or said.shed is ((said.status, said.code) in SHED), said
        return commands

    def wait(self, seconds: float) -> Self:
        self.now += seconds
        return self

    def add(self, *names: str, probed: bool = True, **facts: object) -> list[Command]:
        """Add replicas of model "m" and let their probes succeed."""
        out = self.tell(ReplicasChanged(self.now, tuple(spec(name, **facts) for name in names)))
        if probed:
            for name in names:
                out += self.tell(ProbeSucceeded(self.now, ReplicaId(name)))
        return out

    def ask(self, name: str, **facts: object) -> list[Command]:
        return self.tell(RequestArrived(self.now, request(name, **facts)))

    def first(self, attempt: str) -> list[Command]:
        return self.tell(FirstToken(self.now, AttemptId(attempt)))

    def grow(self, **counts: int) -> list[Command]:
        pairs = [(AttemptId(name.replace("_", "-")), count) for name, count in counts.items()]
        return self.tell(Progress(self.now, pairs))

    def end(self, attempt: str, kind: OutcomeKind = OutcomeKind.OK, **facts: object) -> list[Command]:
        facts.setdefault("status", 200 if kind is OutcomeKind.OK else 0)
        facts.setdefault("committed", kind is OutcomeKind.OK)
        return self.tell(AttemptFinished(self.now, AttemptId(attempt), Outcome(kind, **facts)))  # type: ignore[arg-type]

    def report(self, name: str, **gauges: object) -> list[Command]:
        self.epoch += 1
        gauges.setdefault("taken_at", self.now)
        sample = LoadSample(ReplicaId(name), epoch=self.epoch, **gauges)  # type: ignore[arg-type]
        return self.tell(SampleTaken(self.now, sample))

    def view(self, name: str) -> ReplicaView:
        return next(view for view in self.brain.snapshot(self.now).views if view.id == name)


def spec(name: str, **facts: object) -> ReplicaSpec:
    facts.setdefault("model", "m")
    facts.setdefault("serves", {"m": "m"})
    return ReplicaSpec(ReplicaId(name), f"http://{name}", **facts)  # type: ignore[arg-type]


def request(name: str, **facts: object) -> RequestInfo:
    facts.setdefault("model", "m")
    facts.setdefault("prompt_tokens", 100)
    facts.setdefault("prompt_bytes", 400)
    facts.setdefault("stream", True)
    return RequestInfo(RequestId(name), **facts)  # type: ignore[arg-type]


def demand(
    asked: RequestInfo, prompt: int = 100, output: float = 50.0, hits: dict[ReplicaId, int] | None = None
) -> Demand:
    """What is believed of a request, without an interval."""
    return Demand(asked, prompt, output, 1.0, 0, hits or {})


def only(commands: list[Command], kind: type) -> list:  # type: ignore[type-arg]
    """The commands of one kind."""
    return [command for command in commands if isinstance(command, kind)]


def sent_to(commands: list[Command]) -> str | None:
    """The replica of the one Dispatch, None if there is none."""
    dispatches = only(commands, Dispatch)
    assert len(dispatches) <= 1
    return dispatches[0].replica_id if dispatches else None


def entries(commands: list[Command], kind: type[msgspec.Struct]) -> list:  # type: ignore[type-arg]
    """What was recorded of one kind."""
    return [c.entry for c in only(commands, Record) if isinstance(c.entry, kind)]


def decision(commands: list[Command]) -> Decision:
    (found,) = entries(commands, Decision)
    return found
