"""The pictures: well-formed, of the right parts, and indifferent to runs that measured nothing."""

import re
import xml.etree.ElementTree as ElementTree

import msgspec
import pytest

from headway.report import plots
from headway.report.board import Board
from headway.report.figures import count
from headway.report.measures import GOOD, GOODPUT
from headway.workload.results import RunDetail
from tests.report.simulated import run, sweep

STYLES = {"headroom": "p0", "round_robin": "p1"}


def detail(policy: str = "headroom", **fields: object) -> RunDetail:
    made = run(policy, 0.85, 0).detail
    assert made is not None
    return msgspec.structs.replace(made, **fields)


def board(loads: tuple[float, ...] = (0.5, 0.85, 1.0), seeds: int = 3) -> Board:
    return Board([r.result for r in sweep(tuple(STYLES), loads, seeds)])


def marks(picture: str, kind: str) -> list[ElementTree.Element]:
    tree = ElementTree.fromstring(picture)
    return [element for element in tree.iter() if kind in (element.get("class") or "").split()]


def test_a_line_a_band_and_a_name_per_policy_against_load() -> None:
    picture = plots.against_load(board(), GOODPUT, STYLES, offered=True)
    assert len(marks(picture, "band")) == 2
    assert len(marks(picture, "line")) == 3  # with the arrivals
    assert len(marks(picture, "dot")) == 6
    assert [name.text for name in marks(picture, "name")] == list(STYLES)


def test_one_seed_has_no_bands() -> None:
    assert not marks(plots.against_load(board(seeds=1), GOOD, STYLES), "band")
    assert not marks(plots.at_load(board(seeds=1), GOOD, STYLES, 0.85), "whisker")


def test_bars_are_as_long_as_their_values() -> None:
    table = board()
    bars = marks(plots.at_load(table, GOOD, STYLES, 0.85), "bar")
    lengths = [float(bar.get("width") or 0) for bar in bars]
    shares = [table.cell(policy, 0.85, GOOD).mean for policy in STYLES]
    assert lengths[0] / lengths[1] == pytest.approx(shares[0] / shares[1], rel=0.01)
    assert len(marks(plots.at_load(table, GOODPUT, STYLES, 0.85), "whisker")) == 2


def test_a_distribution_has_its_objective_and_leaves_out_who_served_nobody() -> None:
    details = {"headroom": detail(), "round_robin": detail(ttft_s=())}
    picture = plots.distribution(details, "ttft_s", STYLES, 1.0, "TTFT")
    assert [line.get("class") for line in marks(picture, "line")] == ["line p0"]
    assert len(marks(picture, "limit")) == 1
    assert "SLO 1 s" in picture


def test_a_distribution_of_nothing_at_all_is_still_a_picture() -> None:
    picture = plots.distribution({"headroom": detail(tpot_s=())}, "tpot_s", STYLES, 0.05, "TPOT")
    assert "SLO 50 ms" in picture


def test_curves_over_time_are_thinned_and_keep_their_ends() -> None:
    times = [float(t) for t in range(5000)]
    picture = plots.over_time({"headroom": (times, times)}, STYLES, count, "preemptions")
    (line,) = marks(picture, "line")
    places = re.findall(r"[ML]([\d.]+) ([\d.]+)", line.get("d") or "")
    assert len(places) == 200
    assert float(places[-1][0]) == 540.0
    assert "time (min)" in picture


def test_nothing_over_no_time_is_still_a_picture() -> None:
    assert "time (s)" in plots.over_time({"headroom": ((0.0,), (0,))}, STYLES, count, "x")


def test_phases_add_up() -> None:
    picture = plots.phases({"headroom": detail(held_s=1.0, waiting_s=1.0, prefill_s=2.0, decode_s=4.0)}, STYLES)
    widths = [float(marks(picture, f"phase{n}")[0].get("width") or 0) for n in range(4)]
    assert widths[3] == pytest.approx(4 * widths[0], abs=0.3)
    assert marks(picture, "value")[0].text == "8 s"


def test_a_fleet_of_few_replicas_is_drawn_with_names_and_a_large_one_without() -> None:
    assert "r7" in plots.heat(detail(), "KV")
    many = run("headroom", 0.85, 0, replicas=64).detail
    assert many is not None
    assert "r63" not in plots.heat(many, "KV")


def test_imbalance_is_the_spread_across_replicas() -> None:
    two = detail(kv_usage=((0.0, 0.5), (1.0, 0.5)), waiting=((1, 2), (3, 4)))
    assert plots.imbalance(two) == [0.5, 0.0]
    assert plots.in_engines(two) == [4, 6]
