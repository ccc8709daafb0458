"""What a move costs whom, and where there is room for one."""

import pytest

from headway.core.commands import Command
from headway.core.entry import Entry
from headway.core.pool import Pool
from headway.core.worth import LASTING_S, SAFE_OVERFLOW, Worth, holds, step_s
from tests.core.test_rebalance import SLOW_S, Scene


def parts(scene: Scene, name: str = "r-0") -> tuple[Worth, Pool, Entry]:
    brain = scene.brain
    brain._scheduler.refresh(scene.now, [])
    entry: Entry = brain._fleet.ledger.entries[name]  # type: ignore[index]
    return brain._rebalance._worth, brain._scheduler.pools["m"], entry


def room(scene: Scene) -> list[str]:
    worth, pool, entry = parts(scene)
    return [view.spec.id for view in worth.roomy(pool, entry, scene.now)]


def scene(prompt: int = 500, **facts: object) -> Scene:
    found = Scene("a", "b", "c", **facts)  # type: ignore[arg-type]
    found.run("r", "a", prompt)
    return found


def test_what_it_holds_is_what_it_would_cost() -> None:
    worth, pool, entry = parts(scene())
    assert holds(entry) == 501
    (view, _) = worth.targets(pool, entry)
    assert worth.replayed(entry, view) == 501
    assert step_s(view) == pytest.approx(0.01)


def test_room_is_where_nothing_overflows_and_nobody_is_prefilled() -> None:
    assert room(scene()) == ["b", "c"]
    full = scene(3000)
    full.fill("b", 10, 800)
    assert room(full) == ["c"]
    full.told.on = "c"
    out: list[Command] = full.ask("prompt", prompt_tokens=100)
    assert out
    assert room(full) == []


def test_who_is_to_leave_at_any_price_goes_there_all_the_same() -> None:
    busy = scene()
    for name in ("b", "c"):
        busy.told.on = name
        busy.ask(f"to-{name}", prompt_tokens=100 if name == "b" else 5000)
    worth, pool, entry = parts(busy)
    assert room(busy) == []
    target = worth.cheapest(pool, entry, busy.now)
    assert target is not None
    assert target.spec.id == "b", "it would be done there sooner"


@pytest.mark.parametrize(("share", "lasts"), [(0.9, False), (9.0, True)])
def test_what_lasts_has_long_to_say(share: float, lasts: bool) -> None:
    found = Scene("a", "b", base_s=SLOW_S)
    found.run("r", "a", max_output_tokens=round(share * LASTING_S / SLOW_S))
    worth, pool, entry = parts(found)
    (view,) = worth.targets(pool, entry)
    assert worth.lasts(entry, view) is lasts


def test_a_target_stays_safe() -> None:
    found = scene(2500)
    found.fill("b", 7, 1000)
    worth, pool, entry = parts(found)
    strains = {view.spec.id: worth.strain(found.brain._fleet.replicas[view.spec.id], 0.0) for view in pool.candidates}
    assert strains["b"].overflow(more=entry.share) > SAFE_OVERFLOW > strains["c"].overflow(more=entry.share)
    assert room(found) == ["c"]
