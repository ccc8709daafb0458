"""When a drained replica will be empty: arithmetic by laws that are known, and what the fleet shows of it."""

import pytest

from headway.core.constants import AdmissionConfig, BrainConfig, MigrationConfig
from headway.core.emptying import AHEAD, expected
from headway.core.entry import Entry
from headway.core.events import DrainAsked, MigrateAsked
from headway.core.ids import ReplicaId, RequestId
from headway.core.length import LengthModel
from headway.core.snapshot import Emptying
from headway.core.worth import STALL_S
from tests.core.house import FewestInFlight, House

A = ReplicaId("a")


def ready(**settings: object) -> House:
    migration = MigrationConfig(**{"enabled": True, **settings})  # type: ignore[arg-type]
    house = House(
        FewestInFlight(binds_late=True), BrainConfig(admission=AdmissionConfig(pace=False), migration=migration)
    )
    house.add("a", "b", kv_capacity_tokens=100_000)
    house.tell(DrainAsked(house.now, ReplicaId("b")))
    return house


def running(house: House, count: int, tokens: int = 50, **facts: object) -> list[Entry]:
    """So many requests at a, each of which ends exactly at its limit."""
    facts = {"resumable": True, "max_output_tokens": 1050, "min_output_tokens": 1050, **facts}
    for number in range(count):
        house.ask(f"r{number}", **facts)
        house.first(f"r{number}-0")
        house.grow(**{f"r{number}_0": tokens})
    return list(house.brain._fleet.replicas[A].account.entries.values())


def shown(house: House, name: str = "a") -> Emptying | None:
    found = house.brain.snapshot(house.now).emptying
    return next((one for one in found if one.replica_id == name), None)


def forecast(stay: list[Entry], go: list[Entry], house: House, step_s: float = 0.02, move_s: float = 0.5) -> Emptying:
    return expected(house.brain._fleet.length, A, stay, go, step_s, move_s)


def test_the_longest_that_stays_decides() -> None:
    """1,000 tokens of 20 ms are left to each; the law is looked at every fifth further."""
    house = ready()
    entries = running(house, 6)
    told = forecast(entries, [], house)
    assert (told.requests, told.movable) == (6, 0)
    assert told.waiting_s == pytest.approx(20.0, rel=0.1)
    assert told.moving_s == told.waiting_s


def test_those_that_move_leave_one_by_one() -> None:
    house = ready()
    entries = running(house, 6)
    told = forecast([], entries, house)
    assert (told.movable, told.moving_s) == (6, pytest.approx(5.5 * 0.5))
    assert told.waiting_s == pytest.approx(20.0, rel=0.1)
    assert forecast(entries[:1], entries[1:], house).moving_s == pytest.approx(20.0, rel=0.1), "one cannot move"


def test_moves_that_take_longer_than_all_need_change_nothing() -> None:
    house = ready()
    told = forecast([], running(house, 6), house, move_s=60.0)
    assert told.moving_s == told.waiting_s


def test_moves_that_never_end_are_bounded_by_what_is_looked_at() -> None:
    house = ready()
    entries = running(house, 2, max_output_tokens=200_000, min_output_tokens=200_000)
    assert forecast([], entries, house, move_s=1e9).moving_s == AHEAD[-1] * 0.02


def test_of_several_the_last_is_later_than_each() -> None:
    """Where lengths are not known, the longest of many is longer than the mean of one."""
    house = ready()
    entries = running(house, 8, tokens=5, min_output_tokens=0, max_output_tokens=4000)
    one, all_of_them = forecast(entries[:1], [], house), forecast(entries, [], house)
    assert all_of_them.waiting_s > 1.5 * one.waiting_s
    mean, _ = LengthModel().left("m", 5, 4000)
    assert one.waiting_s == pytest.approx(0.02 * mean, rel=0.05)
    assert forecast([], entries, house, move_s=0.1).moving_s < 0.8


def test_nobody_is_there() -> None:
    assert forecast([], [], ready()) == Emptying(A, 0, 0, 0.0, 0.0)


def test_what_generates_nothing_is_gone_soon() -> None:
    house = ready()
    entries = running(house, 2, generates=False, resumable=False)
    assert forecast(entries, [], house).waiting_s < 0.1


@pytest.mark.parametrize(("settings", "movable"), [({}, 4), ({"enabled": False}, 0), ({"dry_run": True}, 0)])
def test_the_fleet_shows_it_of_those_that_are_drained(settings: dict[str, object], movable: int) -> None:
    house = ready(**settings)
    running(house, 4)
    house.ask("pinned", pinned="seed", max_output_tokens=100)
    assert shown(house) is None
    house.tell(DrainAsked(house.now, A))
    assert shown(house, "b") == Emptying(ReplicaId("b"), 0, 0, 0.0, 0.0)
    told = shown(house)
    assert told is not None
    assert (told.requests, told.movable) == (5, 0), "b is drained, too"
    house.tell(DrainAsked(house.now, ReplicaId("b"), False))
    house.wait(60.0).report("b", running=0, waiting=0, kv_used_tokens=0)
    house.brain._scheduler.refresh(house.now, [])
    told = shown(house)
    assert told is not None
    assert (told.requests, told.movable) == (5, movable)
    assert told.moving_s <= told.waiting_s


def test_a_move_that_takes_long_is_waited_for() -> None:
    """A prompt of 20,000 tokens takes the target seconds: nobody leaves before."""
    house = ready()
    running(house, 3, prompt_tokens=20_000)
    house.tell(DrainAsked(house.now, ReplicaId("b"), False))
    house.wait(60.0).report("b", running=0, waiting=0, kv_used_tokens=0)
    house.tell(DrainAsked(house.now, A))
    house.tell(MigrateAsked(house.now, RequestId("r0"), ReplicaId("")))
    told = shown(house)
    assert told is not None
    least = 20_000 / house.view("b").speed.prefill_tokens_per_s + STALL_S
    assert (told.movable, told.moving_s > 2.5 * least) == (3, True)


def test_its_model_is_gone() -> None:
    house = ready()
    running(house, 1)
    house.tell(DrainAsked(house.now, A))
    house.brain._scheduler.pools.clear()
    told = shown(house)
    assert told is not None
    assert (told.requests, told.movable) == (1, 0)
