"""Terminal tables of simulated runs."""

import io

import msgspec
import pytest
from rich.console import Console
from rich.table import Table

from headway.report.board import Board
from headway.report.simulation import notes, points, show, tables
from headway.workload.paired import Interval
from headway.workload.results import RunResult
from tests.report.simulated import run, sweep


def results(seeds: int = 5, **kind: tuple) -> list[RunResult]:  # type: ignore[type-arg]
    return [r.result for r in sweep(seeds=seeds, **kind)]  # type: ignore[arg-type]


def printed(of: list[RunResult], width: int = 0) -> str:
    console = Console(file=io.StringIO(), width=width or 80, force_terminal=bool(width), color_system=None)
    show(console, of)
    return console.file.getvalue()  # type: ignore[attr-defined,no-any-return]


def column(table: Table, title: str) -> list[str]:
    return next(list(c.cells) for c in table.columns if str(c.header).replace("\n", " ") == title)  # type: ignore[arg-type]


def test_every_table_of_clients_shows_late_shed_and_the_longest_wait() -> None:
    clients = tables(results())[::2]
    assert len(clients) == 4
    for table in clients:
        for title in ("good", "goodput", "late", "shed", "longest wait"):
            assert len(column(table, title)) == 5


def test_a_difference_is_given_with_its_interval_and_colour() -> None:
    table = tables(results(loads=(1.0,)))[0]
    assert column(table, "points above round_robin")[-1] == "-"
    assert column(table, "points above round_robin")[0].startswith("+4")
    assert "bold green" in column(table, "good")[0]
    assert "[" not in column(table, "good")[-1]


def test_a_worse_figure_is_red() -> None:
    table = tables(results(loads=(1.0,)), reference="headroom")[0]
    assert "red" in column(table, "good")[-1]
    assert "green" in column(table, "longest wait")[-1]


def test_a_file_gets_every_column_and_a_narrow_terminal_whole_ones() -> None:
    whole = printed(results(loads=(0.85,)))
    for word in ("failed", "Jain", "[+40.", "load 0.85: 7,650 requests, 6.38/s offered"):
        assert word in whole
    narrow = printed(results(loads=(0.85,)), 80)
    assert "…" not in narrow
    assert max(map(len, narrow.splitlines())) <= 80
    for word in ("late", "shed", "longest", "columns need a wider terminal"):
        assert word in narrow


def test_few_seeds_are_called_few() -> None:
    assert any("5 seeds are few" in note for note in notes(Board(results(5))))
    assert not any("few" in note for note in notes(Board(results(10, loads=(0.5,)))))
    assert "luck" in notes(Board(results(1)))[0]


def test_one_policy_alone_is_compared_with_nothing() -> None:
    titles = [str(c.header) for c in tables(results(policies=("headroom",)))[0].columns]
    assert "times" not in titles
    assert not any("above" in title for title in titles)


def test_moves_and_urgent_requests_have_columns_where_there_were_any() -> None:
    plain = results(policies=("headroom",), loads=(0.5,), seeds=1)
    moved = [
        msgspec.structs.replace(plain[0], moves=45, evictions=9, urgent=90, urgent_ttft_p99_s=0.25, stall_p99_s=0.03)
    ]
    got, took = tables(moved)
    assert column(got, "urgent TTFT p99") == ["250 ms"]
    assert (column(took, "moved"), column(took, "evicted"), column(took, "stall p99")) == (
        ["1 %"],
        ["0.2 %"],
        ["30 ms"],
    )
    for before, now in zip(tables(plain), (got, took), strict=True):
        assert len(before.columns) < len(now.columns)


def test_points() -> None:
    assert points(Interval(0.123, 0.101, 0.1451)) == r"+12.3 \[+10.1, +14.5]"
    assert points(Interval(-0.02)) == "-2.0"


def test_an_unknown_reference_is_refused() -> None:
    with pytest.raises(ValueError, match="no run of the reference policy 'nobody'; there are headroom"):
        tables(results(), "nobody")


def test_points_that_did_not_run_are_left_out() -> None:
    some = [run("headroom", 0.5, 0).result, run("round_robin", 0.7, 0).result]
    assert [table.row_count for table in tables(some)] == [1, 1, 1, 1]
