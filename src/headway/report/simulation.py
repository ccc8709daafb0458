"""Terminal tables of simulated runs: per load, what clients got under each policy and what it took.

Late, shed and the longest wait always stand beside goodput, so that goodput cannot be bought by starving.
"""

from collections.abc import Collection, Sequence
from functools import partial

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from headway.report.board import Board
from headway.report.figures import NOTHING
from headway.report.fitting import fitted, paper
from headway.report.measures import GOOD, Group, Measure
from headway.workload.paired import Interval
from headway.workload.results import RunResult

_NEVER = {"e2e_p50_s", "e2e_p99_s", "preempted", "queue_p99_s"}
"""Only in JSON and HTML: a terminal has room for what decides."""

_DISPENSABLE: dict[Group, tuple[str, ...]] = {
    "what clients got": ("failed", "times", "goodput_rps", "tpot_p50_s", "ttft_p50_s", "interval", "points"),
    "what it took": ("fairness", "recomputed_tokens", "replayed_tokens", "decision_us"),
}
"""What a narrow terminal goes without, the first first. Never late, shed and the longest wait."""

_COLOURS = {1: "green", -1: "red"}


def show(console: Console, results: Sequence[RunResult], reference: str = "") -> None:
    """Print everything: whole into files and pipes, and on a terminal as many columns as it has room for.

    Raises ValueError when the reference policy did not run.
    """
    board, sheet = Board(results, reference), paper(console)
    left_out: set[str] = set()
    for load in board.loads:
        sheet.print(f"\n[bold]{_heading(board, load)}[/]", highlight=False)
        for group, dispensable in _DISPENSABLE.items():
            build = partial(_table, board, load, group)
            table, missing = fitted(sheet.width, build, dispensable)
            sheet.print(table)
            left_out |= set(missing)
    for line in notes(board):
        sheet.print(f"[dim]{escape(line)}[/]", highlight=False)
    if left_out:
        sheet.print(f"[dim]{len(left_out)} columns need a wider terminal; --json and --html have all[/]")


def tables(results: Sequence[RunResult], reference: str = "") -> list[Table]:
    """Two tables per load. Raises ValueError when the reference policy did not run."""
    board = Board(results, reference)
    return [_table(board, load, group, ()) for load in board.loads for group in _DISPENSABLE]


def notes(board: Board) -> list[str]:
    """What a reader must know to read the tables."""
    colours = f"green, red: surely better, worse than {board.reference}; bold: the best"
    if board.seeds == 1:
        return ["one seed: differences may be luck; --seeds 10 tells"]
    lines = [f"means over {board.seeds} seeds; in brackets: 95 % interval of the difference, paired by seed", colours]
    if board.few_seeds:
        lines.append(f"{board.seeds} seeds are few, so the intervals are too narrow: --seeds 10 tells more")
    return lines


def _table(board: Board, load: float, group: Group, left_out: Collection[str]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0))
    table.add_column(group.replace("clients ", "clients\n"), no_wrap=True)
    shown = [
        measure for measure in board.measures if measure.group == group and measure.name not in (*_NEVER, *left_out)
    ]
    for measure in shown:
        table.add_column(measure.title, justify="right", no_wrap=True)
        for title in _comparisons(board, measure, left_out):
            table.add_column(escape(title), justify="right", no_wrap=True)
    bests = {measure.name: board.best(load, measure) for measure in shown}
    for policy in board.policies:
        if board.has(policy, load):
            cells = (_cells(board, policy, load, measure, bests[measure.name], left_out) for measure in shown)
            table.add_row(escape(policy), *(cell for of_measure in cells for cell in of_measure))
    return table


def _heading(board: Board, load: float) -> str:
    some = next(board.runs(policy, load)[0] for policy in board.policies if board.has(policy, load))
    offered = f", {some.requests / some.window_s:.3g}/s offered" if some.window_s else ""
    return f"load {load:g}: {some.requests:,} requests{offered}"


def _comparisons(board: Board, measure: Measure, left_out: Collection[str]) -> list[str]:
    """Titles of the columns beside a measure that compare it with the reference."""
    if measure is not GOOD or len(board.policies) == 1 or "points" in left_out:
        return []
    titles = [f"points above\n{board.reference}"]
    return titles if "times" in left_out else [*titles, "times"]


def _cells(
    board: Board, policy: str, load: float, measure: Measure, best: float | None, left_out: Collection[str]
) -> list[str]:
    cell = board.cell(policy, load, measure)
    text = measure.write(cell.mean)
    bold = cell.mean is not None and cell.mean == best
    style = " ".join(filter(None, ("bold" if bold else "", _COLOURS.get(cell.verdict, ""))))
    ratio = board.ratio(policy, load) if policy != board.reference else None
    beside = (
        NOTHING if cell.difference is None else points(cell.difference, "interval" not in left_out),
        NOTHING if ratio is None else f"{ratio:.2f}",
    )
    return [f"[{style}]{text}[/]" if style else text, *beside[: len(_comparisons(board, measure, left_out))]]


def points(difference: Interval, with_interval: bool = True) -> str:
    """+12.3 [+10.1, +14.5], in percentage points."""
    text = f"{difference.mean * 100:+.1f}"
    if not with_interval or difference.low is None or difference.high is None:
        return text
    return rf"{text} \[{difference.low * 100:+.1f}, {difference.high * 100:+.1f}]"
