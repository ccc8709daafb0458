"""The figures of the HTML report: headline tiles and the table of everything, as markup."""

from collections.abc import Iterator
from html import escape

from headway.report.board import Board, Cell
from headway.report.figures import share
from headway.report.measures import GOOD, MEASURES, Measure, portion
from headway.report.plots import Styles
from headway.report.simulation import points

_BY_NAME = {measure.name: measure for measure in MEASURES}
_VERDICTS = {1: "better", -1: "worse", 0: ""}


def tiles(board: Board, load: float) -> str:
    """The load in a few big figures: the best policy against the reference."""
    there = [policy for policy in board.policies if board.has(policy, load)]
    best = max(there, key=lambda policy: board.mean(policy, load, GOOD) or 0.0)
    rest = [(_mean(board, best, load, "good_share"), f"of requests served well by {best}, the most here")]
    if best != board.reference and board.has(board.reference, load):
        rest += list(_against(board, best, load))
    late, shed, longest = (_mean(board, best, load, name) for name in ("late", "shed", "longest_wait_s"))
    rest.append((longest, f"longest wait under {best}; {late} late, {shed} shed"))
    cards = (f'<div class="card tile"><b>{escape(big)}</b><span>{escape(small)}</span></div>' for big, small in rest)
    return f'<div class="tiles">{"".join(cards)}</div>'


def _against(board: Board, best: str, load: float) -> Iterator[tuple[str, str]]:
    other = board.reference
    ratio, difference = board.ratio(best, load), board.difference(best, load, GOOD)
    if ratio is not None and difference is not None:
        points_text = points(difference).replace("\\", "")
        yield f"{ratio:.2f} ×", f"as many as {other} ({_mean(board, other, load, 'good_share')}): {points_text} points"
    mine, theirs = (board.mean(policy, load, _BY_NAME["gpu_hours_per_1k_good"]) for policy in (best, other))
    if mine is not None and theirs:
        saved = round((1 - mine / theirs) * 100)
        sign = "−" if saved > 0 else "+" if saved < 0 else ""
        yield f"{sign}{abs(saved)} %", f"GPU-hours per good request against {other}"
    lost = [_mean(board, policy, load, "preempted") for policy in (best, other)]
    yield lost[0], f"of requests preempted; {other} {lost[1]}"


def _mean(board: Board, policy: str, load: float, name: str) -> str:
    measure = _BY_NAME[name]
    return measure.write(board.mean(policy, load, measure))


def figures_table(board: Board, load: float, styles: Styles) -> str:
    """Every measure of every policy, with the paired difference to the reference below it."""
    policies = [policy for policy in board.policies if board.has(policy, load)]
    heads = "".join(f'<th class="{styles[policy]}" scope="col">{escape(policy)}</th>' for policy in policies)
    rows = []
    group = ""
    for measure in board.measures:
        if measure.group != group:
            group = measure.group
            rows.append(f'<tr class="group"><th colspan="{len(policies) + 1}">{group}</th></tr>')
        rows.append(_row(board, load, measure, policies, styles))
    caption = f"<th>difference to {escape(board.reference)} below each figure</th>"
    body = f"<thead><tr>{caption}{heads}</tr></thead><tbody>{''.join(rows)}</tbody>"
    return f'<div class="card scroll"><table>{body}</table></div>'


def _row(board: Board, load: float, measure: Measure, policies: list[str], styles: Styles) -> str:
    best = board.best(load, measure)
    cells = []
    for policy in policies:
        cell = board.cell(policy, load, measure)
        lead = "best" if cell.mean is not None and cell.mean == best else ""
        style = " ".join((styles[policy], _VERDICTS[cell.verdict], lead))
        cells.append(f'<td class="{style}">{escape(measure.write(cell.mean))}{_difference(cell, measure)}</td>')
    title = measure.title.replace("-\n", "").replace("\n", " ")
    return f'<tr><th scope="row">{escape(title)}<small>{escape(measure.about)}</small></th>{"".join(cells)}</tr>'


def _difference(cell: Cell, measure: Measure) -> str:
    """The change, and the interval it lies in."""
    change = cell.difference
    if change is None:
        return ""
    if measure.write in (portion, share):
        text = points(change).replace("\\", "") + " pts"
    else:
        text = signed(change.mean, measure)
        if change.low is not None and change.high is not None:
            text += f" [{signed(change.low, measure)}, {signed(change.high, measure)}]"
    return f"<small>{escape(text)}</small>"


def signed(value: float, measure: Measure) -> str:
    """+12 ms, −3 %"""
    return ("−" if value < 0 else "+") + measure.write(abs(value))
