"""Runs side by side."""

import msgspec
import pytest

from headway.report.board import Board, choose_reference
from headway.report.measures import GOOD, MEASURES, portion
from headway.workload.results import RunResult
from tests.report.simulated import run


def results(policy: str, seeds: tuple[int, ...] = (0, 1, 2, 3), **fields: float) -> list[RunResult]:
    return [msgspec.structs.replace(run(policy, 0.85, seed, detail=False).result, **fields) for seed in seeds]


def measure(name: str):  # type: ignore[no-untyped-def]
    return next(m for m in MEASURES if m.name == name)


def test_verdicts_know_which_way_is_better() -> None:
    board = Board(
        [*results("a", ttft_p50_s=2.0, prefix_hit_rate=0.9), *results("b", ttft_p50_s=1.0, prefix_hit_rate=0.5)]
    )
    assert board.reference == "a"
    slower, fewer = (board.cell("b", 0.85, measure(name)) for name in ("ttft_p50_s", "prefix_hit_rate"))
    assert (slower.verdict, fewer.verdict) == (1, -1)
    assert slower.difference is not None
    assert slower.difference.mean == -1.0
    assert board.cell("a", 0.85, GOOD).difference is None


def test_a_figure_without_a_good_side_has_no_verdict_and_no_best() -> None:
    board = Board([*results("a", kv_usage_std=0.1), *results("b", kv_usage_std=0.2)])
    assert board.cell("b", 0.85, measure("kv_usage_std")).verdict == 0
    assert board.best(0.85, measure("kv_usage_std")) is None


def test_pairs_are_made_by_seed_whatever_the_order() -> None:
    mine, theirs = results("b"), results("a")
    straight, mixed = (Board([*theirs, *order]).difference("b", 0.85, GOOD) for order in (mine, mine[::-1]))
    assert straight == mixed


def test_seeds_without_a_partner_are_left_out_of_the_difference_only() -> None:
    board = Board([*results("a", (0, 1)), *results("b", (1, 2))])
    difference = board.difference("b", 0.85, GOOD)
    assert difference is not None
    (ours,), (other,) = results("b", (1,)), results("a", (1,))
    assert difference.mean == pytest.approx(ours.good_share - other.good_share)
    assert difference.low is None
    assert board.ratio("b", 0.85) == pytest.approx(ours.good_share / other.good_share)
    assert len(board.runs("b", 0.85)) == 2


def test_nothing_in_common_is_no_difference() -> None:
    board = Board([*results("a", (0,)), *results("b", (1,))])
    assert board.difference("b", 0.85, GOOD) is None
    assert board.ratio("b", 0.85) is None


def test_counts_are_shown_as_shares_of_requests() -> None:
    (one,) = results("a", (0,))
    assert measure("late").read(one) == one.late / one.requests
    assert measure("preemptions").read(one) == one.preemptions


def test_the_reference_is_round_robin_where_it_ran() -> None:
    assert choose_reference(["x", "round_robin"]) == "round_robin"
    assert choose_reference(["x", "y"]) == "x"
    assert Board([]).reference == ""


def test_equal_figures_have_no_best() -> None:
    assert (
        Board([*results("a", good=5), *results("b", good=5)]).best(0.85, measure("gpu_hours_per_1k_good")) is not None
    )
    assert Board([*results("a", failed=0), *results("b", failed=0)]).best(0.85, measure("failed")) is None


def test_all_is_said_of_all_only() -> None:
    assert [portion(value) for value in (1.0, 0.99996, 0.9995, 0.9312, 0.0, None)] == [
        *("100 %", "99.99 %", "99.95 %", "93.1 %", "0 %", "-")
    ]


def test_what_was_not_measured_is_neither_nought_nor_the_best() -> None:
    price, spoilt = measure("gpu_hours_per_1k_good"), {"good": 0, "gpu_hours_per_1k_good": None}
    board = Board([*results("a", **spoilt), *results("b")])
    cell = board.cell("a", 0.85, price)
    assert (cell.mean, cell.difference, cell.verdict) == (None, None, 0)
    assert board.best(0.85, price) == board.mean("b", 0.85, price)
    assert board.difference("b", 0.85, price) is None
    assert price.write(cell.mean) == "-"
    assert Board([*results("a", **spoilt), *results("b", **spoilt)]).best(0.85, price) is None


def test_one_seed_without_a_figure_takes_it_from_the_mean() -> None:
    """The mean of the others would be that of the better seeds."""
    price = measure("gpu_hours_per_1k_good")
    board = Board([*results("a", (0, 1)), *results("a", (2,), gpu_hours_per_1k_good=None), *results("b", (0, 1, 2))])
    assert board.mean("a", 0.85, price) is None
    with pytest.raises(ValueError, match="no values"):
        board.band("a", 0.85, price)
