"""The goals under pressure, in short: whole processes, emulated engines, real HTTP (`benchmarks/pressure.py --short`).

What is exact is asked for exactly. Figures of seconds are small samples, so they get room here and no machine that is
too busy is judged by them; docs/pressure.md has those of the full size.
"""

import os
import sys
from pathlib import Path

import pytest

from tests.cases.served import process_case

AT_LENGTH = pytest.mark.skipif(not os.environ.get("HEADWAY_SOAK"), reason="half a minute each: `make soak`")

BENCHMARKS = str(Path(__file__).resolve().parents[2] / "benchmarks")
sys.path.insert(0, BENCHMARKS)
from pressure import MOST_LAG  # noqa: E402
from pressure_scenes import SCENES, Result, Stage  # noqa: E402

sys.path.remove(BENCHMARKS)

EXACT = frozenset(
    {
        "unaccounted",
        "broken",
        "most that waited",
        "refused as the queue was full",
        "held ones who were told their place",
        "highest place told",
        "lists of places with a gap",
        "attempts at replicas for each",
        "critical ones not served",
        "answers that never ended",
    }
)
"""Whatever the machine does besides, these goals hold."""


async def figures(scene: str, folder: Path, **bounds: tuple[float, float]) -> dict[str, Result]:
    """Play a scene. Exact goals are met, and what `bounds` names (blanks as _) lies within, unless clocks lagged."""
    found = await SCENES[scene](Stage(folder, short=True))
    shown = "\n".join(f"{each.what}: {each.value:.4g} {each.unit} {each.goal} (lag {each.lag:.0%})" for each in found)
    assert all(each.met for each in found if each.what in EXACT), shown
    by_name = {each.what: each for each in found}
    for name, (least, most) in bounds.items():
        figure = by_name[name.replace("_", " ")]
        assert least <= figure.value <= most or figure.lag > MOST_LAG, shown
    return by_name


@AT_LENGTH
@pytest.mark.slow
@process_case
async def test_overload_costs_no_goodput_and_refusals_come_at_once(folder: Path) -> None:
    await figures(
        "overload",
        folder,
        goodput_at_5_over_its_peak=(0.75, 3.0),
        refused_at_once=(0.3, 0.9),
        refusals_p50=(0.0, 20.0),
    )


@AT_LENGTH
@pytest.mark.slow
@process_case
async def test_soon_after_an_overload_service_is_as_it_was(folder: Path) -> None:
    await figures("after", folder, **{"good, from 2 s on, over those before": (0.7, 1.5)})


@pytest.mark.slow
@pytest.mark.parametrize("what", ["depth", "bytes"])
@process_case
async def test_bounds_of_the_queue_are_exact(folder: Path, what: str) -> None:
    await figures(what, folder, waits_that_ended_at_the_bound=(1, 1000), furthest_from_the_bound=(0.0, 500.0))


@AT_LENGTH
@pytest.mark.slow
@process_case
async def test_a_tenant_that_wants_ten_times_as_much_gets_no_more(folder: Path) -> None:
    await figures("tenants", folder, **{"tokens of the one that wants ten times as much, over its share": (0.7, 1.4)})


@pytest.mark.slow
@process_case
async def test_a_flood_of_low_priority_does_not_reach_what_is_critical(folder: Path) -> None:
    await figures("critical", folder, p99_in_the_flood_over_p99_alone=(0.0, 3.0))


@pytest.mark.slow
@pytest.mark.parametrize("status", [503, 429])
@process_case
async def test_refusals_of_a_whole_fleet_are_not_multiplied(folder: Path, status: int) -> None:
    found = await figures(f"refusals-{status}", folder, **{"last one not served, after they are well": (0.0, 3.0)})
    assert found["requests that came meanwhile"].value > 10


@AT_LENGTH
@pytest.mark.slow
@process_case
async def test_who_comes_back_when_told_to_is_admitted(folder: Path) -> None:
    found = await figures("retry-after", folder, of_these_admitted=(0.8, 1.0))
    assert found["first retries after the overload"].value >= 5


@AT_LENGTH
@pytest.mark.slow
@process_case
async def test_what_is_held_until_it_fits_is_not_preempted(folder: Path) -> None:
    """One in the first second, when nothing is known of the engines, is in the short run more than the goal allows."""
    await figures("preemptions-headroom", folder, preempted_of_requests=(0.0, 0.03))


@AT_LENGTH
@pytest.mark.slow
@process_case
async def test_a_replica_that_hangs_in_an_overload_keeps_nobody_waiting(folder: Path) -> None:
    await figures("faults", folder, longest_without_a_word=(0.0, 10.0))
