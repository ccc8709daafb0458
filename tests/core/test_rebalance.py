"""Which running requests move: each reason of the tree, each bound on moves, and what holds in any scene.

Scenes are far from every threshold, so that they hold while thresholds are tuned; where one is crossed on purpose, it
is read from the strategy.
"""

import math
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.core.commands import Abort, Command, Dispatch, Evict, Hold, Migrate, Moved, Reject, SetTimer
from headway.core.constants import AdmissionConfig, BrainConfig, MigrationConfig, SloConfig
from headway.core.demand import Demand
from headway.core.events import DrainAsked, EvictionRefused, MigrateAsked, ReplicasChanged, TenantsChanged, TimerFired
from headway.core.freeness import SCARCE
from headway.core.ids import AttemptId, ReplicaId, RequestId
from headway.core.outcome import OutcomeKind
from headway.core.plugin import Chance
from headway.core.rebalance import PLAIN_FULL, STRATEGIES, TIMER, URGENT_S
from headway.core.strain import Strain
from headway.core.tenant import Tenant, Tier
from headway.core.view import ReplicaView
from headway.core.worth import LASTING_S, SAFE_OVERFLOW
from tests.core.house import BY_HAND, House, entries, only, sent_to, spec

TPOT_S = SloConfig().tpot_s
BASE_S = 0.01
SLOW_S = 0.1
"""Everywhere: nobody could take over from anybody, and whoever runs has long to run."""


class Told:
    """Sends whoever comes where it is told to."""

    name = "told"
    parts: tuple[str, ...] = ()
    tolerance = 0.0

    def __init__(self, binds_late: bool) -> None:
        self.binds_late = binds_late
        self.on = ""

    def costs(
        self, demand: Demand, views: Sequence[ReplicaView], now: float, rng: Chance
    ) -> Sequence[tuple[float, ...]]:
        if self.on == "nowhere":
            return [(math.inf,) for _ in views]
        return [(0.0 if view.id == self.on else 1.0,) for view in views]


def speeds(per_request_s: float = 0.0, base_s: float = BASE_S) -> dict[str, float]:
    """A step takes so long, whatever the contexts are; 8,000 tokens are prefilled in a second."""
    return {
        "step_base_s": base_s,
        "step_per_request_s": per_request_s,
        "step_per_token_s": 0.0,
        "prefill_tokens_per_s": 8000.0,
    }


class Scene(House):
    """Replicas of 10,000 tokens each. Nothing waits for memory unless it is `held`; of the bounds on moves, only those
    hold that a test names."""

    def __init__(
        self,
        *names: str,
        held: bool = False,
        hold: bool = True,
        per_request_s: float = 0.0,
        base_s: float = BASE_S,
        **moves: object,
    ) -> None:
        bounds: dict[str, object] = {"cooldown_s": 0.0, "fleet_share": 1.0, "replay_share": 1.0, **moves}
        config = BrainConfig(
            memory=BY_HAND,
            admission=AdmissionConfig(pace=False, hold=hold),
            migration=MigrationConfig(enabled=True, **bounds),  # type: ignore[arg-type]
        )
        self.told = Told(held)
        super().__init__(self.told, config)
        self.features = speeds(per_request_s, base_s)
        self.join(*names)

    def join(self, *names: str, **facts: object) -> None:
        self.add(*names, **{"kv_capacity_tokens": 10_000, "features": self.features, **facts})

    def run(self, name: str, on: str, prompt: int = 100, tokens: int = 1, **facts: object) -> None:
        """A request that decodes there."""
        self.told.on = on
        facts.setdefault("resumable", True)
        assert sent_to(self.ask(name, prompt_tokens=prompt, **facts)) == on
        self.first(f"{name}-0")
        self.grow(**{f"{name}_0": tokens})

    def fill(self, on: str, count: int, prompt: int, **facts: object) -> list[str]:
        """So many that decode there."""
        names = [f"{on}{number:02d}" for number in range(count)]
        for name in names:
            self.run(name, on, prompt, **facts)
        return names

    def drain(self, name: str, draining: bool = True) -> list[Command]:
        return self.tell(DrainAsked(self.now, ReplicaId(name), draining))

    def tick(self, count: int = 1) -> list[Command]:
        """What the last of so many looks brings."""
        out: list[Command] = []
        for _ in range(count):
            out = self.wait(0.5).tell(TimerFired(self.now, TIMER))
        return out

    def cut(self, migrate: Migrate) -> None:
        """The body did it."""
        self.first(migrate.attempt_id)
        self.end(migrate.source, OutcomeKind.MIGRATED, committed=True, output_tokens=50)


def begun(commands: list[Command]) -> list[tuple[str, str, str]]:
    """Moves that were begun: why, from where, to where."""
    return [(m.reason, m.source, m.target) for m in entries(commands, Moved) if m.result == "begun"]


def crowded(*names: str, **facts: object) -> Scene:
    """The first replica is promised more than it has."""
    scene = Scene(*(names or ("a", "b")), **facts)  # type: ignore[arg-type]
    scene.fill("a", 11, 900)
    return scene


def slow(share: float, count: int = 10, **facts: object) -> Scene:
    """Steps of the first of two replicas take this share of the objective; the other has nothing to do."""
    scene = Scene("a", "b", per_request_s=(share * TPOT_S - BASE_S) / count, **facts)
    scene.fill("a", count, 100)
    return scene


def test_who_has_left_is_forgotten() -> None:
    scene = Scene("a")
    scene.run("r", "a")
    for number in range(20):
        name, model = f"b{number}", f"x{number}"
        scene.join(name, serves={"m": "m", model: "m"})
        scene.join(f"{name}-twin", serves={"m": "m", model: "m"})
        scene.wait(60.0).report(name, preemptions_total=1, kv_used_tokens=9000, running=1, waiting=0)
        scene.report("a", preemptions_total=1, kv_used_tokens=0, running=1, waiting=0)
        scene.tick()
        scene.tell(ReplicasChanged(scene.now, removed=(ReplicaId(name), ReplicaId(f"{name}-twin"))))
    scene.tick()
    rebalance = scene.brain._rebalance
    assert set(rebalance._preemptions) <= {"a"}
    assert set(rebalance._uneven) <= {"m"}
    assert set(rebalance._replay) <= {"m"}


# -- the reasons


class TestDrain:
    def test_a_replica_is_emptied(self) -> None:
        scene = Scene("a", "b")
        scene.run("r", "a")
        assert begun(scene.tick()) == []
        scene.drain("a")
        assert begun(scene.tick()) == [("drain", "a", "b")]

    def test_who_has_an_adapter_goes_where_it_is(self) -> None:
        """Replicas of the model that lack it are in the same pool, but would not know its name."""
        scene = Scene()
        scene.join("a", "c", serves={"m": "m", "x": "x"})
        scene.join("b")
        scene.wait(60.0)
        for name in "abc":
            scene.report(name, running=0, waiting=0, kv_used_tokens=0)
        scene.run("r", "a", model="x")
        scene.fill("c", 5, 100)
        scene.drain("a")
        (migrate,) = only(scene.tick(), Migrate)
        assert (migrate.replica_id, migrate.model) == ("c", "x")
        scene.end(migrate.attempt_id, OutcomeKind.CANCELLED)
        scene.drain("c")
        assert ("drain", "c", "b") in begun(scene.tick()), "those without one may go there"

    def test_an_adapter_that_is_unloaded_stops_nothing(self) -> None:
        """Nobody can take over what runs with it; everybody else goes."""
        scene = Scene()
        scene.join("a", "b", serves={"m": "m", "x": "x"})
        scene.run("r", "a", 900, model="x")
        scene.fill("a", 11, 900)
        scene.tell(
            ReplicasChanged(scene.now, tuple(spec(n, kv_capacity_tokens=10_000, features=scene.features) for n in "ab"))
        )
        (migrate,) = only(scene.tick(), Migrate)
        assert (migrate.reason, migrate.request_id != "r") == ("memory", True)
        scene.cut(migrate)
        scene.drain("a")
        moved = set()
        for _ in range(12):
            for migrate in only(scene.tick(), Migrate):
                moved.add(migrate.request_id)
                scene.cut(migrate)
        assert "r" not in moved
        assert scene.view("a").in_flight < 11

    def test_who_has_most_left_goes_first(self) -> None:
        scene = Scene("a", "b", fleet_share=0.0)
        for name, limit in (("short", 10), ("long", 1000), ("middle", 100)):
            scene.run(name, "a", max_output_tokens=limit)
        scene.drain("a")
        assert [migrate.request_id for migrate in only(scene.tick(), Migrate)] == ["long"]

    def test_nobody_goes_where_there_is_no_room(self) -> None:
        scene = Scene("a", "b")
        scene.run("r", "a", 3000)
        scene.fill("b", 10, 800)
        scene.drain("a")
        assert begun(scene.tick()) == []

    def test_what_is_pinned_stays(self) -> None:
        scene = Scene("a", "b")
        scene.run("r", "a", resumable=False)
        scene.drain("a")
        assert begun(scene.tick()) == []


class TestMemory:
    def test_a_pool_that_will_overflow_is_relieved(self) -> None:
        scene = crowded()
        (migrate,) = only(commands := scene.tick(), Migrate)
        assert begun(commands) == [("memory", "a", "b")]
        scene.cut(migrate)
        assert begun(scene.tick()) == [], "that was enough"

    def test_a_pool_that_has_room_is_not(self) -> None:
        scene = Scene("a", "b")
        scene.fill("a", 6, 900)
        assert begun(scene.tick()) == []

    def test_who_fits_nowhere_keeps_nobody_from_going(self) -> None:
        scene = Scene("a", "b")
        scene.run("huge", "a", 5000)
        scene.fill("a", 6, 850)
        scene.fill("b", 10, 500)
        (migrate,) = only(scene.tick(), Migrate)
        assert migrate.request_id != "huge"

    def test_what_others_hold_counts(self) -> None:
        scene = Scene("a", "b")
        scene.fill("a", 6, 900)
        scene.wait(0.1).report("a", kv_used_tokens=9950, running=12, waiting=0)
        assert begun(scene.tick()) == [("memory", "a", "b")]

    def test_a_reported_preemption_is_reason_enough(self) -> None:
        """Ten requests slow each other down, but not too much; and there is room."""
        scene = Scene("a", "b", per_request_s=0.002)
        scene.fill("a", 10, 100)
        for total, moves in ((3, []), (3, []), (4, [("memory", "a", "b")])):
            scene.wait(0.1).report("a", kv_used_tokens=1010, running=10, waiting=0, preemptions_total=total)
            assert begun(scene.tick()) == moves

    def test_a_preemption_is_forgotten_soon(self) -> None:
        scene = Scene("a", "b", per_request_s=0.002, fleet_share=0.0)
        scene.fill("a", 10, 100)
        moves = []
        for total in (3, *[4] * 9):
            scene.wait(0.1).report("a", kv_used_tokens=1010, running=10, waiting=0, preemptions_total=total)
            commands = scene.tick()
            moves.append(bool(begun(commands)))
            for migrate in only(commands, Migrate):
                scene.end(migrate.attempt_id, OutcomeKind.CANCELLED)
        assert moves[:3] == [False, True, True]
        assert moves[-3:] == [False, False, False]

    def test_where_nobody_has_room_somebody_must_wait(self) -> None:
        """An engine would preempt somebody anyway."""
        scene = Scene("a", "b")
        scene.run("matters", "a", 900, tier=Tier.HIGH)
        scene.run("late", "a", 900, tokens=5, tier=Tier.LOW)
        scene.run("young", "a", 900, tokens=1, tier=Tier.LOW)
        scene.fill("a", 8, 900)
        scene.fill("b", 10, 960)
        commands = scene.tick()
        assert begun(commands) == [("memory", "a", "")]
        assert [evict.attempt_id for evict in only(commands, Evict)] == ["young-0"]

    def test_what_is_critical_is_never_made_to_wait(self) -> None:
        scene = Scene("a", "b")
        scene.fill("a", 11, 900, tier=Tier.CRITICAL)
        scene.fill("b", 10, 960)
        assert only(scene.tick(), Evict) == []

    def test_nobody_is_made_to_wait_for_ever(self) -> None:
        scene = Scene("a", "b", evictions_max=0)
        scene.fill("a", 11, 900, tier=Tier.LOW)
        scene.fill("b", 10, 960)
        assert only(scene.tick(), Evict) == []

    def test_a_pool_of_unknown_size_never_overflows(self) -> None:
        scene = Scene()
        scene.join("a", "b", kv_capacity_tokens=0)
        scene.fill("a", 11, 90_000)
        assert begun(scene.tick(9)) == []


class TestLatency:
    def test_steps_that_miss_the_objective_where_others_keep_it(self) -> None:
        assert begun(slow(1.5, strategy="latency").tick()) == [("latency", "a", "b")]
        assert begun(slow(0.5, strategy="latency").tick()) == []
        assert begun(slow(1.5).tick()) == [], "by default a prefill is thought to cost others more"

    def test_where_all_are_slow_nobody_moves(self) -> None:
        scene = slow(1.5, strategy="latency")
        scene.fill("b", 9, 100)
        assert begun(scene.tick()) == []

    def test_who_gains_nothing_stays(self) -> None:
        """Its steps are slow whoever runs there."""
        scene = Scene(strategy="latency")
        scene.features = speeds(base_s=1.5 * TPOT_S)
        scene.join("a", gpu="old")
        scene.features = speeds()
        scene.join("b", gpu="new")
        scene.wait(60.0).fill("a", 10, 100)
        assert begun(scene.tick()) == []


class TestUrgent:
    """Somebody who matters waits, and fits nowhere."""

    @staticmethod
    def scene(**facts: object) -> Scene:
        """Room is left at each of three, and most at the first."""
        scene = Scene("a", "b", "c", held=True, **facts)
        scene.run("larger", "a", 2000)
        scene.run("large", "a", 1500)
        scene.fill("a", 10, 130)
        scene.fill("b", 10, 500)
        scene.fill("c", 10, 550)
        return scene

    @staticmethod
    def want(scene: Scene, prompt: int, tier: int = Tier.HIGH) -> None:
        assert only(scene.ask("urgent", prompt_tokens=prompt, max_output_tokens=20, tier=tier), Hold)

    def test_a_move_makes_room_if_there_is_room_in_all(self) -> None:
        scene = self.scene(evictions_max=0)
        self.want(scene, 6000)
        commands = scene.tick()
        assert begun(commands) == [("urgent", "a", "b")]
        (migrate,) = only(commands, Migrate)
        assert migrate.request_id == "large", "the least that is enough"
        scene.cut(migrate)
        assert scene.view("a").in_flight == 12, "it has gone there"

    def test_else_what_matters_less_must_wait(self) -> None:
        scene = Scene("a", "b", held=True)
        scene.run("low", "a", 4000, tier=Tier.LOW)
        scene.run("mine", "a", 3000)
        scene.fill("b", 9, 900)
        self.want(scene, 6000)
        commands = scene.tick()
        assert begun(commands) == [("urgent", "a", "")]
        assert [evict.attempt_id for evict in only(commands, Evict)] == ["low-0"]

    def test_all_who_make_room_go_at_once_and_no_more(self) -> None:
        """However many moves may be under way. Those who hold most, so that few are disturbed."""
        scene = Scene("a", "b", held=True, fleet_share=0.0)
        for number, prompt in enumerate((3000, 2500, 2000, 400, 300)):
            scene.run(f"low{number}", "a", prompt, tier=Tier.LOW)
        scene.run("mine", "a", 500)
        scene.fill("b", 9, 950)
        self.want(scene, 6500)
        assert [evict.attempt_id for evict in only(scene.tick(), Evict)] == ["low0-0", "low1-0"]

    def test_least_is_lost(self) -> None:
        scene = Scene("a", "b", held=True)
        for name, size in (("a", 3000), ("b", 1000)):
            scene.run(f"{name}-low", name, size, tier=Tier.LOW)
            scene.run(f"{name}-own", name, 8500 - size)
        self.want(scene, 2000)
        assert [evict.attempt_id for evict in only(scene.tick(), Evict)] == ["b-low-0"]

    def test_what_is_made_free_is_for_whom_it_was_made(self) -> None:
        scene = Scene("a", "b", held=True)
        scene.run("one", "a", 4500, tier=Tier.LOW)
        scene.run("two", "a", 4500, tier=Tier.LOW)
        scene.fill("b", 9, 950)  # less would be lost, but they matter more
        self.want(scene, 9000)
        evicts = only(scene.tick(), Evict)
        assert {evict.attempt_id for evict in evicts} == {"one-0", "two-0"}
        scene.told.on = "a"
        assert only(scene.ask("small", prompt_tokens=100), Hold), "there is room, but not for this one"
        out: list[Command] = []
        for evict in evicts:
            out += scene.end(evict.attempt_id, OutcomeKind.EVICTED, committed=True, output_tokens=5, resumable=True)
        assert only(out, Dispatch)[0].request_id == "urgent"

    def test_a_move_under_way_keeps_nobody_from_making_room(self) -> None:
        scene = Scene("a", "b", held=True)
        scene.run("moved", "a", 100)
        for number in range(3):
            scene.run(f"low{number}", "a", 3000, tier=Tier.LOW)
        scene.tell(MigrateAsked(scene.now, RequestId("moved"), ReplicaId("b")))
        scene.run("own", "b", 9000, tier=Tier.HIGH)
        self.want(scene, 2000)
        assert [evict.attempt_id for evict in only(scene.tick(), Evict)] == ["low0-0"]

    def test_it_is_looked_at_at_once(self) -> None:
        scene = Scene("a", "b", held=True)
        for name in ("a", "b"):
            scene.fill(name, 9, 950, tier=Tier.LOW)
        scene.tick()
        assert looks(scene.wait(0.2).ask("small", prompt_tokens=3000)) == []
        assert looks(scene.ask("urgent", prompt_tokens=3000, tier=Tier.HIGH)) == [scene.now]
        scene.tell(TimerFired(scene.now, TIMER))
        again = scene.ask("another", prompt_tokens=3000, tier=Tier.HIGH)
        assert looks(again) == [pytest.approx(scene.now + URGENT_S)], "but not all the time"

    def test_nobody_makes_room_for_an_equal(self) -> None:
        scene = Scene("a", "b", held=True)
        for name in ("a", "b"):
            scene.fill(name, 8, 900, tier=Tier.HIGH)
        self.want(scene, 6000)
        assert begun(scene.tick()) == []

    def test_what_is_not_so_important_waits_for_its_turn(self) -> None:
        scene = self.scene()
        self.want(scene, 6000, Tier.STANDARD)
        assert begun(scene.tick()) == []

    def test_who_fits_already_needs_no_help(self) -> None:
        """Its tenant has had its share: that is why it waits."""
        scene = self.scene()
        scene.tell(TenantsChanged(scene.now, (Tenant("t", kv_share=0.01),)))
        scene.run("own", "a", 200, tenant="t")
        assert only(scene.ask("urgent", prompt_tokens=200, tier=Tier.HIGH, tenant="t"), Hold)
        assert begun(scene.tick()) == []

    def test_nobody_gives_way_to_one_that_waits_for_its_share(self) -> None:
        """Its tenant has more than its share already: whatever room is made, it would not go."""
        scene = Scene("a", "b", held=True)
        scene.tell(TenantsChanged(scene.now, (Tenant("t", kv_share=0.10),)))
        scene.run("own", "a", 1900, tenant="t")
        scene.fill("a", 8, 900, tier=Tier.LOW)
        scene.fill("b", 10, 900, tier=Tier.LOW)
        for number in range(3):
            assert only(scene.ask(f"more{number}", prompt_tokens=1900, tier=Tier.HIGH, tenant="t"), Hold)
        assert begun(scene.tick()) == []
        assert scene.brain._admission.queues["m"].kept == ""
        self.want(scene, 1900)
        assert [move[0] for move in begun(scene.tick())] == ["urgent"] * 2, "behind them is one that will"

    @pytest.mark.parametrize("why", ["share", "fits", "helpless"])
    def test_the_first_that_cannot_be_helped_keeps_no_other_from_it(self, why: str) -> None:
        """They ask for the same replicas by different names."""
        scene = Scene(held=True)
        scene.join("a", "b", serves={"m": "m", "z": "m"})
        scene.tell(TenantsChanged(scene.now, (Tenant("t", kv_share=0.02),)))
        scene.run("own", "a", 300, tenant="t")
        scene.fill("a", 6, 900, tier=Tier.CRITICAL)
        for number in range(4):
            scene.run(f"low{number}", "a", 900, tier=Tier.LOW)
        scene.fill("b", 10, 900, tier=Tier.CRITICAL)
        facts = {"share": {"tenant": "t"}, "fits": {}, "helpless": {"prompt_tokens": 9000}}
        scene.told.on = "nowhere"
        assert only(scene.ask("first", tier=Tier.CRITICAL, **facts[why]), Hold)
        assert only(scene.ask("second", prompt_tokens=2000, model="z", tier=Tier.HIGH), Hold)
        evicts = only(scene.tick(), Evict)
        assert evicts != []
        assert {evict.attempt_id[:3] for evict in evicts} == {"low"}

    def test_room_is_made_where_it_can_be_used(self) -> None:
        """Less would be lost at `b`, which is not as precise as the request wants; `c` takes none as long."""
        scene = Scene(held=True)
        scene.join("a", precision="bf16")
        scene.join("b", precision="int4")
        scene.join("c", precision="bf16", max_model_tokens=1500)
        scene.wait(60.0)  # they are warm
        for name, low in (("a", 1200), ("b", 800), ("c", 800)):
            scene.fill(name, 6, 1200, tier=Tier.HIGH, precision_floor="any")
            scene.run(f"low-{name}", name, low, tier=Tier.LOW, precision_floor="any")
        facts = {"precision_floor": "bf16", "prompt_bytes": 20_000}
        assert only(scene.ask("urgent", prompt_tokens=2000, tier=Tier.HIGH, **facts), Hold)
        evicts = only(scene.tick(), Evict)
        assert evicts != []
        assert {evict.attempt_id[:5] for evict in evicts} == {"low-a"}

    def test_a_move_that_is_not_enough_is_not_made(self) -> None:
        scene = Scene("a", "b", "c", held=True)
        scene.fill("a", 10, 500)
        scene.fill("b", 10, 550)
        scene.fill("c", 10, 600)
        self.want(scene, 7000)
        commands = scene.tick()
        assert only(commands, Migrate) == []


class TestRecall:
    """Where requests go out without regard to memory, what an engine cannot let in comes back."""

    @staticmethod
    def scene(waiting: int = 3, hold: bool = False, **facts: object) -> Scene:
        """Six decode at the first, and three more wait in its engine; not all of them fit."""
        scene = Scene("a", "b", "c", held=True, hold=hold)
        scene.fill("a", 6, 1400)
        scene.told.on = "a"
        for name in ("old", "middle", "young"):
            scene.wait(0.01).ask(name, prompt_tokens=700, **{"resumable": True, **facts})
        scene.wait(0.1).report("a", kv_used_tokens=8400, running=6, waiting=waiting)
        return scene

    def test_those_who_came_last_wait_with_us(self) -> None:
        scene = self.scene()
        commands = scene.tick()
        assert [(abort.attempt_id, abort.reason) for abort in only(commands, Abort)] == [
            ("young-0", "recalled"),
            ("middle-0", "recalled"),
        ]
        told = entries(commands, Moved)
        assert [(each.result, each.reason, each.source) for each in told] == [("recalled", "memory", "a")] * 2

    def test_and_go_where_there_is_room(self) -> None:
        scene = self.scene()
        scene.tick()
        (sent,) = only(scene.end("young-0", OutcomeKind.CANCELLED), Dispatch)
        assert (sent.replica_id, sent.resumes) == ("b", False)

    def test_and_wait_if_there_is_none(self) -> None:
        scene = self.scene()
        scene.fill("b", 10, 950)
        scene.fill("c", 10, 950)
        scene.tick()
        assert only(scene.end("young-0", OutcomeKind.CANCELLED), Hold)
        scene.told.on = "b"
        assert only(scene.ask("next", prompt_tokens=700), Hold), "nobody takes the room from them"

    def test_and_go_back_once_there_is_room_if_nobody_else_is_there(self) -> None:
        scene = self.scene()
        scene.drain("b")
        scene.drain("c")
        scene.tick()
        commands = scene.end("young-0", OutcomeKind.CANCELLED)
        assert only(commands, Hold)
        assert only(commands, Reject) == only(commands, Dispatch) == []
        for name in ("a00", "a01", "a02", "a03"):
            commands += scene.end(f"{name}-0")
        assert sent_to(commands) == "a"

    def test_one_that_has_begun_after_all_stays_as_it_was(self) -> None:
        scene = self.scene()
        scene.tick()
        scene.first("young-0")
        ignored = scene.brain.ignored
        commands = scene.tell(EvictionRefused(scene.now, AttemptId("young-0")))
        assert [(each.result, each.reason) for each in entries(commands, Moved)] == [
            ("abandoned", "memory (it has begun)")
        ]
        assert scene.brain.ignored == ignored
        assert scene.tell(EvictionRefused(scene.now, AttemptId("young-0"))) == []
        assert scene.brain.ignored == ignored + 1, "once"
        asked = scene.tell(MigrateAsked(scene.now, RequestId("young"), ReplicaId("")))
        assert begun(asked) == [("operator", "a", "b")]

    @pytest.mark.parametrize(
        "facts",
        [{"waiting": 0}, {"hold": True}, {"resumable": False}, {"tier": Tier.HIGH}],
        ids=["nobody waits", "all were asked", "pinned", "urgent"],
    )
    def test_others_stay(self, facts: dict[str, object]) -> None:
        scene = self.scene(**facts)  # type: ignore[arg-type]
        assert only(scene.tick(), Abort) == []

    def test_nobody_is_sent_to_and_fro(self) -> None:
        scene = self.scene()
        for number in range(4):
            for abort in only(scene.tick(), Abort):
                scene.told.on = "a"
                scene.end(abort.attempt_id, OutcomeKind.CANCELLED)
                assert number < MigrationConfig().evictions_max
            scene.report("a", kv_used_tokens=8400, running=6, waiting=3)

    def test_a_dry_run_says_so(self) -> None:
        scene = self.scene()
        scene.brain._migration._config = MigrationConfig(enabled=True, dry_run=True)
        commands = scene.tick()
        assert only(commands, Abort) == []
        assert {told.result for told in entries(commands, Moved)} == {"planned"}

    def test_what_is_on_its_way_already_is_let_be(self) -> None:
        scene = self.scene()
        assert len(only(scene.tick(), Abort)) == 2
        assert only(scene.tick(), Abort) == []


class TestBalance:
    @staticmethod
    def scene(strategy: str, beyond: float) -> Scene:
        """One pool is this much fuller than the strategy allows, the other is empty. All have long to say."""
        used = STRATEGIES[strategy].gap + beyond
        scene = Scene("a", "b", base_s=SLOW_S, strategy=strategy)
        scene.fill("a", 10, round(1000 * used))
        return scene

    @pytest.mark.parametrize("strategy", [name for name, known in STRATEGIES.items() if known.gap < 1.0])
    def test_a_lasting_imbalance_is_mended(self, strategy: str) -> None:
        scene, ticks = self.scene(strategy, 0.05), STRATEGIES[strategy].ticks
        assert [begun(scene.tick()) for _ in range(ticks)] == [*[[]] * (ticks - 1), [("balance", "a", "b")]]
        assert begun(self.scene(strategy, -0.05).tick(3 * ticks)) == []

    def test_one_that_ends_meanwhile_is_not(self) -> None:
        scene, ticks = self.scene("latency", 0.05), STRATEGIES["latency"].ticks
        assert begun(scene.tick(ticks - 1)) == []
        scene.run("other", "b", 3000)
        assert begun(scene.tick()) == []
        scene.end("other-0")
        assert begun(scene.tick(ticks - 1)) == []
        assert begun(scene.tick()) == [("balance", "a", "b")]

    @pytest.mark.parametrize(("part", "moves"), [(0.43, True), (0.57, False)])
    def test_what_would_only_turn_it_round_stays(self, part: float, moves: bool) -> None:
        """Of what one holds more than the other, nearly half may move, but no more."""
        beyond = 10_000 * (STRATEGIES["balanced"].gap + 0.1)
        scene = Scene("a", "b", base_s=SLOW_S)
        scene.run("large", "a", round(part * beyond))
        scene.fill("a", 10, round((2000 + (1.0 - part) * beyond) / 10), resumable=False)
        scene.fill("b", 1, 2000)
        assert begun(scene.tick(STRATEGIES["balanced"].ticks)) == ([("balance", "a", "b")] if moves else [])

    def test_who_is_soon_done_stays(self) -> None:
        scene = Scene("a", "b", base_s=SLOW_S)
        scene.fill("a", 10, 500, max_output_tokens=round(0.9 * LASTING_S / SLOW_S))
        assert begun(scene.tick(9)) == []

    def test_while_others_wait_nobody_moves(self) -> None:
        scene = self.scene("balanced", 0.3)
        scene.tell(TenantsChanged(scene.now, (Tenant("t", kv_share=0.01),)))
        scene.run("own", "b", 200, tenant="t")
        assert only(scene.ask("held", tenant="t"), Hold)
        assert begun(scene.tick()) == []
        scene.end("own-0")
        scene.first("held-0")
        assert begun(scene.tick()) == [("balance", "a", "b")]

    def test_to_the_emptiest(self) -> None:
        scene = Scene("a", "b", "c", base_s=SLOW_S)
        scene.fill("a", 10, 600)
        scene.fill("b", 1, 1000)
        scene.run("r", "c", 2000)
        assert begun(scene.tick()) == [("balance", "a", "b")]

    def test_not_to_one_that_has_prompts_to_prefill(self) -> None:
        scene = Scene("a", "b", "c", base_s=SLOW_S)
        scene.fill("a", 10, 600)
        scene.run("r", "c", 2000)
        scene.told.on = "b"
        scene.ask("prompt", prompt_tokens=300)
        assert begun(scene.tick()) == [("balance", "a", "c")]

    def test_fullness_is_of_its_own_pool(self) -> None:
        scene = Scene(base_s=SLOW_S)
        scene.join("a", kv_capacity_tokens=40_000)
        scene.join("b")
        scene.wait(60.0).fill("a", 10, 400)
        scene.fill("b", 1, 900)
        assert begun(scene.tick(9)) == [], "4,000 of 40,000 are as much as 900 of 10,000"


class TestPlain:
    @staticmethod
    def scene(full: float, share: float, tier: int = Tier.LOW) -> Scene:
        scene = Scene("a", "b", per_request_s=(share * TPOT_S - BASE_S) / 10, strategy="plain")
        scene.fill("a", 10, round(1000 * full), tier=tier)
        return scene

    @pytest.mark.parametrize(
        ("full", "share", "tier", "evicts"),
        [
            (PLAIN_FULL + 0.05, STRATEGIES["plain"].slow + 0.1, Tier.LOW, True),
            (PLAIN_FULL - 0.05, STRATEGIES["plain"].slow + 0.1, Tier.LOW, False),
            (PLAIN_FULL + 0.05, STRATEGIES["plain"].slow - 0.1, Tier.LOW, False),
            (PLAIN_FULL + 0.05, STRATEGIES["plain"].slow + 0.1, Tier.STANDARD, False),
        ],
    )
    def test_what_matters_least_goes_where_it_is_full_and_slow(
        self, full: float, share: float, tier: int, evicts: bool
    ) -> None:
        commands = self.scene(full, share, tier).tick()
        assert begun(commands) == ([("plain", "a", "")] if evicts else [])

    def test_all_else_is_left_alone(self) -> None:
        scene = self.scene(0.8, 3.0)
        assert begun(scene.tick(9)) == []
        scene.drain("a")
        assert begun(scene.tick()) != [], "but for what is asked for"


class TestFreeness:
    """As Llumnix: by how many tokens each may still say."""

    @staticmethod
    def scene(prompt: int, on_b: int = 0, **facts: object) -> Scene:
        scene = Scene("a", "b", strategy="freeness")
        scene.fill("a", 9, prompt, **facts)
        scene.run("short", "a", prompt - 50, **facts)
        scene.fill("b", on_b, 990)
        return scene

    @pytest.mark.parametrize(("spare", "moves"), [(-20, True), (20, False)])
    def test_the_shortest_goes_where_each_has_hardly_room_to_grow(self, spare: int, moves: bool) -> None:
        scene = self.scene(1000 - round(SCARCE) + 5 - spare)
        commands = scene.tick()
        assert begun(commands) == ([("balance", "a", "b")] if moves else [])
        assert [migrate.request_id for migrate in only(commands, Migrate)] == (["short"] if moves else [])

    def test_nobody_goes_where_it_would_be_as_scarce(self) -> None:
        assert begun(self.scene(990, on_b=9).tick()) == []

    def test_who_may_not_move_stays(self) -> None:
        assert begun(self.scene(990, resumable=False).tick()) == []

    def test_a_pool_of_unknown_size_is_neither(self) -> None:
        scene = Scene(strategy="freeness")
        scene.join("a", "b", kv_capacity_tokens=0)
        scene.fill("a", 11, 9000)
        assert begun(scene.tick()) == []


@pytest.mark.parametrize("strategy", [name for name, known in STRATEGIES.items() if known.slow < math.inf])
@pytest.mark.parametrize("side", [0.95, 1.05])
def test_strategies_differ_in_what_is_too_slow(strategy: str, side: float) -> None:
    known = STRATEGIES[strategy]
    moves = begun(slow(known.slow * side, strategy=strategy).tick())
    assert moves == ([("latency", "a", "b")] if side > 1.0 and known.spare else [])


@pytest.mark.parametrize("side", [0.95, 1.05])
def test_and_in_who_may_take_over(side: float) -> None:
    known = STRATEGIES["latency"]
    scene = slow(known.slow * 1.5, strategy="latency")
    scene.tell(ReplicasChanged(scene.now, removed=(ReplicaId("b"),)))
    scene.features = speeds(base_s=known.spare * side * TPOT_S)
    scene.join("b", gpu="other")
    scene.wait(60.0)
    assert bool(begun(scene.tick())) is (side < 1.0)


def test_the_first_reason_decides() -> None:
    """Its memory overflows and its steps are slow, but another one is to be emptied."""
    scene = Scene("a", "b", "c", per_request_s=0.01)
    scene.fill("a", 11, 900)
    scene.run("r", "c")
    scene.drain("c")
    assert {why for why, _, _ in begun(scene.tick())} == {"drain"}
    scene.drain("c", draining=False)
    scene.end("r-0", OutcomeKind.MIGRATED, committed=True)
    assert begun(scene.tick())[0][0] == "memory"


# -- the bounds


def test_one_leaves_a_replica_at_a_time() -> None:
    scene = crowded("a", "b", "c", "d")
    (migrate,) = only(scene.tick(), Migrate)
    assert begun(scene.tick()) == [], "it is still under way"
    scene.end(migrate.attempt_id, OutcomeKind.CANCELLED)
    assert len(begun(scene.tick())) == 1


def test_one_comes_to_a_replica_at_a_time() -> None:
    scene = crowded("a", "b", "c")
    scene.fill("b", 11, 900)
    assert [target for _, _, target in begun(scene.tick())].count("c") == 1


@pytest.mark.parametrize(("replicas", "share", "most"), [(16, 0.125, 2), (16, 0.25, 4), (8, 0.01, 1)])
def test_a_share_of_the_fleet_moves_at_once(replicas: int, share: float, most: int) -> None:
    names = [f"r{number:02d}" for number in range(replicas)]
    scene = Scene(*names, fleet_share=share, per_request_s=0.0)
    full = names[: replicas // 2]
    for name in full:
        scene.fill(name, 11, 900)
    commands = scene.tick()
    assert len(begun(commands)) == most
    assert begun(scene.tick()) == [], "they are still under way"
    scene.cut(only(commands, Migrate)[0])
    assert len(begun(scene.tick())) == 1


def shuttle(scene: Scene, *away: str) -> list[str]:
    """The one request flees from these, one after the other. Returns which of them it really left."""
    left = []
    for name in away:
        scene.drain(name)
        for migrate in only(scene.tick(), Migrate):
            scene.cut(migrate)
            left.append(name)
        scene.drain(name, draining=False)
    return left


def test_who_moved_stays_for_a_while() -> None:
    scene = Scene("a", "b", cooldown_s=10.0, moves_max=9)
    scene.run("r", "a", max_output_tokens=10_000)
    assert shuttle(scene, "a", "b") == ["a"]
    scene.wait(10.0)
    assert shuttle(scene, "b") == ["b"]


def test_who_moved_often_stays_for_good() -> None:
    scene = Scene("a", "b", moves_max=2)
    scene.run("r", "a", max_output_tokens=10_000)
    assert shuttle(scene, "a", "b", "a", "b") == ["a", "b"]


class TestReplay:
    """What is generated once is prefilled again by every move: that may cost a share of the fleet's prefill only."""

    @staticmethod
    def scene(share: float) -> Scene:
        scene = crowded("a", "b", "c", "d", replay_share=share)
        scene.fill("b", 11, 900)
        return scene

    def test_what_is_beyond_the_share_waits(self) -> None:
        assert len(begun(self.scene(1.0).tick())) == 2
        scene = self.scene(1e-6)
        assert len(begun(scene.tick())) == 1, "a full bucket lets one through, however large"
        assert begun(scene.tick(5)) == []

    def test_it_refills(self) -> None:
        scene = self.scene(0.001)
        (migrate,) = only(scene.tick(), Migrate)
        scene.cut(migrate)
        assert begun(scene.tick()) == []
        scene.wait(900 / (0.001 * 4 * 8000.0))
        assert len(begun(scene.tick())) == 1

    def test_draining_has_no_such_bound(self) -> None:
        scene = self.scene(1e-6)
        assert len(begun(scene.tick())) == 1
        scene.drain("b")
        assert {why for why, _, _ in begun(scene.tick())} == {"drain"}


def test_nothing_moves_while_a_replica_warms_up_but_from_one_that_is_emptied() -> None:
    scene = crowded()
    scene.join("c")
    assert scene.view("c").slow_start < 1.0
    assert begun(scene.tick()) == []
    scene.drain("b")
    scene.told.on = "b"
    assert begun(scene.tick()) == []
    scene.drain("b", draining=False)
    scene.run("r", "b")
    scene.drain("b")
    assert begun(scene.tick()) == [], "one that warms up takes nobody, and the other one is full"
    scene.end("a00-0")
    scene.end("a01-0")
    assert begun(scene.tick()) == [("drain", "b", "a")]


def test_and_when_it_is_warm_they_move() -> None:
    scene = crowded("a")
    scene.join("b")
    assert begun(scene.tick()) == []
    scene.wait(60.0)
    assert begun(scene.tick()) == [("memory", "a", "b")]


def test_who_is_nearly_done_stays() -> None:
    scene = Scene("a", "b")
    scene.fill("a", 11, 900, max_output_tokens=2)
    assert only(scene.tick(), Migrate) == []
    scene = Scene("a", "b", remaining=1000.0)
    scene.fill("a", 11, 900)
    assert only(scene.tick(), Migrate) == []


def test_a_move_must_be_worth_more_than_it_costs_by_a_margin() -> None:
    (plan,) = entries(crowded().tick(), Moved)
    gain = plan.benefit_s / plan.cost_s
    assert gain > MigrationConfig().margin
    assert begun(crowded(margin=0.9 * gain).tick()) != []
    assert only(crowded(margin=1.1 * gain).tick(), Migrate) == []


def test_those_who_are_held_pay_for_its_prefill_too() -> None:
    costs = []
    for held in (0, 8):
        scene = crowded()
        scene.tell(TenantsChanged(scene.now, (Tenant("t", kv_share=0.01),)))
        scene.run("own", "b", 200, tenant="t")
        assert [bool(only(scene.ask(f"h{n}", tenant="t"), Hold)) for n in range(held)] == [True] * held
        (told,) = entries(scene.tick(), Moved)
        costs.append(told.cost_s)
    assert costs[1] > costs[0]


def test_a_dry_run_says_what_it_would_do() -> None:
    scene = crowded(dry_run=True, cooldown_s=10.0)
    commands = scene.tick()
    assert [(m.result, m.reason, m.source, m.target) for m in entries(commands, Moved)] == [
        ("planned", "memory", "a", "b")
    ]
    assert only(commands, Migrate) == only(commands, Evict) == only(commands, Dispatch) == []
    before = {name: scene.view(name).in_flight for name in "ab"}
    assert before == {"a": 11, "b": 0}


def test_a_dry_run_evicts_nobody() -> None:
    scene = Scene("a", "b", dry_run=True)
    for name in ("a", "b"):
        scene.fill(name, 11, 900, tier=Tier.LOW)
    commands = scene.tick()
    assert {(m.result, m.target) for m in entries(commands, Moved)} == {("planned", "")}
    assert only(commands, Evict) == []


def looks(commands: list[Command]) -> list[float]:
    """When replicas will be compared."""
    return [command.at for command in only(commands, SetTimer) if command.timer == TIMER]


def test_nothing_is_looked_at_unless_it_is_switched_on() -> None:
    house = House()
    house.add("a", "b")
    assert looks(house.ask("r")) == []


def test_it_is_looked_at_while_something_runs() -> None:
    scene = Scene("a", "b")
    soon = MigrationConfig().tick_s
    assert looks(scene.ask("r")) == [soon]
    assert looks(scene.ask("s")) == [], "one is enough"
    assert looks(scene.tick()) == [scene.now + soon]
    scene.end("r-0")
    scene.end("s-0")
    assert looks(scene.tick()) == []
    assert looks(scene.ask("t")) == [scene.now + soon]


# -- where to


@pytest.mark.parametrize(
    "other", [{"version": "2"}, {"precision": "fp8"}, {"engine": "vllm"}, {"model": "m-instruct"}, {}]
)
def test_only_to_where_it_would_go_on_as_it_is(other: dict[str, str]) -> None:
    scene = Scene("a")
    scene.join("b", **other)
    scene.wait(600.0).run("r", "a")
    scene.drain("a")
    assert begun(scene.tick()) == ([] if other else [("drain", "a", "b")])


def test_aliases_of_a_model_are_looked_at_once() -> None:
    scene = Scene(dry_run=True, cooldown_s=10.0)
    scene.join("a", "b", serves={"m": "m", "alias": "m"})
    scene.fill("a", 11, 900)
    assert [told.result for told in entries(scene.tick(), Moved)] == ["planned"]


def test_one_replica_has_nobody_to_give_to() -> None:
    assert begun(crowded("a").tick()) == []


def test_who_has_the_prompt_cached_takes_it() -> None:
    scene = Scene("a", "b", "c")
    blocks = tuple(range(1, 9))
    facts = {"prompt": 1024, "prompt_bytes": 4096, "prefix_hashes": blocks}
    scene.run("seen", "c", **facts)
    scene.end("seen-0")
    scene.run("r", "a", **facts)
    scene.drain("a")
    commands = scene.tick()
    assert begun(commands) == [("drain", "a", "c")]
    (told,) = entries(commands, Moved)
    assert told.replayed_tokens < 300


class TestOperator:
    @staticmethod
    def ask(scene: Scene, target: str = "") -> list[Command]:
        return scene.tell(MigrateAsked(scene.now, RequestId("r"), ReplicaId(target)))

    def test_wishes_are_commands(self) -> None:
        scene = Scene("a", "b", "c")
        scene.run("r", "a")
        assert begun(self.ask(scene, "c")) == [("operator", "a", "c")]

    def test_without_a_wish_the_quickest_prefill_takes_it(self) -> None:
        scene = Scene("a", "b", "c")
        scene.run("r", "a")
        scene.told.on = "b"
        scene.ask("busy", prompt_tokens=5000)
        assert begun(self.ask(scene)) == [("operator", "a", "c")]

    @pytest.mark.parametrize("target", ["a", "d", "nobody"])
    def test_what_cannot_be_is_refused(self, target: str) -> None:
        scene = Scene("a", "b", "c")
        scene.join("d", precision="fp8")
        scene.wait(60.0).run("r", "a")
        (told,) = entries(self.ask(scene, target), Moved)
        why = "operator (it runs there)" if target == "a" else "operator (no other replica can go on with it)"
        assert (told.result, told.target, told.reason) == ("refused", target, why)

    def test_what_is_pinned_is_not_moved_for_them(self) -> None:
        scene = Scene("a", "b")
        scene.run("r", "a", resumable=False)
        (told,) = entries(self.ask(scene), Moved)
        assert (told.result, told.target) == ("refused", "")

    def test_nobody_takes_it_when_nobody_serves_its_model(self) -> None:
        scene = Scene("a", "b")
        scene.run("r", "a")
        scene.tell(ReplicasChanged(scene.now, removed=(ReplicaId("a"), ReplicaId("b"))))
        (told,) = entries(self.ask(scene), Moved)
        assert told.result == "refused"


# -- in any scene


requests = st.tuples(
    st.sampled_from("abcde"),
    st.integers(1, 2500),
    st.integers(1, 300),
    st.sampled_from(list(Tier)),
    st.booleans(),
)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(requests, min_size=1, max_size=40),
    st.sampled_from(sorted(STRATEGIES)),
    st.sampled_from([0.0, 0.001, 0.006]),
    st.sampled_from(["", "a", "bc"]),
    st.integers(1, 4),
)
@pytest.mark.slow
def test_no_move_breaks_a_bound(
    load: list[tuple[str, int, int, int, bool]], strategy: str, per_request_s: float, draining: str, rounds: int
) -> None:
    def play() -> list[list[Command]]:
        scene = Scene("a", "b", "c", "d", "e", strategy=strategy, per_request_s=per_request_s, fleet_share=0.4)
        for number, (on, prompt, tokens, tier, resumable) in enumerate(load):
            scene.run(f"q{number}", on, prompt, tokens, tier=tier, resumable=resumable)
        for name in draining:
            scene.drain(name)
        return [check(scene, scene.tick()) for _ in range(rounds)]

    def check(scene: Scene, commands: list[Command]) -> list[Command]:
        brain = scene.brain
        under_way = brain._migration.under_way
        assert len(under_way) <= 2
        targets = [move.target for move in under_way if move.target]
        assert len(set(targets)) == len(targets)
        for told in entries(commands, Moved):
            assert told.source != told.target
            info = brain._jobs[told.request_id].request
            assert info.resumable
            assert told.target not in draining or not told.target
            weighed = told.reason == "latency" or (told.reason == "memory" and told.target)
            if weighed and strategy != "freeness":
                assert told.benefit_s > MigrationConfig().margin * told.cost_s > 0.0
            if not told.target:
                assert info.tier < Tier.CRITICAL
        for move in under_way:
            if move.began_at == scene.now and move.target:
                brain._scheduler.refresh(scene.now, [])
                horizon_s = MigrationConfig().horizon_s
                there = Strain(brain._fleet, brain._fleet.replicas[move.target], horizon_s, scene.now)
                assert there.overflow() <= 2.0 * SAFE_OVERFLOW
        return commands

    assert play() == play()


class TestFound:
    """Defects that were found, and stay mended."""

    def test_a_stream_of_a_removed_replica_is_refused_to_an_operator(self) -> None:
        scene = Scene("a", "b", "c")
        scene.run("r", "a")
        scene.tell(ReplicasChanged(scene.now, removed=(ReplicaId("a"),)))
        commands = scene.tell(MigrateAsked(scene.now, RequestId("r"), ReplicaId("")))
        assert [moved.result for moved in entries(commands, Moved)] == ["refused"]

    def test_without_a_share_of_prefill_nothing_moves_for_memory(self) -> None:
        scene = Scene("a", "b", replay_share=0.0)
        for n in range(12):
            scene.run(f"r{n}", "a", 900, max_output_tokens=2000)
        assert only(scene.tell(TimerFired(scene.now, TIMER)), Migrate) == []

    def test_a_drain_spreads_over_those_who_have_least_to_do(self) -> None:
        scene = Scene("a", "b", "c", "d", per_request_s=0.01)
        for n in range(6):
            scene.run(f"r{n}", "a")
        scene.tell(DrainAsked(scene.now, ReplicaId("a")))
        targets = set()
        for _ in range(3):
            scene.wait(0.5)
            for migrate in only(scene.tell(TimerFired(scene.now, TIMER)), Migrate):
                targets.add(migrate.replica_id)
                scene.first(migrate.attempt_id)
                scene.end(migrate.source, OutcomeKind.MIGRATED, committed=True, output_tokens=2)
        assert targets == {"b", "c", "d"}

    def test_an_operator_moves_nothing_while_migration_is_off(self) -> None:
        scene = Scene("a", "b")
        scene.brain._rebalance._config = MigrationConfig(enabled=False)
        scene.run("r", "a")
        commands = scene.tell(MigrateAsked(scene.now, RequestId("r"), ReplicaId("b")))
        (moved,) = entries(commands, Moved)
        assert (moved.result, moved.reason) == ("refused", "operator (migration is off)")
