"""The fragmentation study as a table, as bars in the terminal, and as a picture (needs matplotlib)."""

from collections.abc import Sequence
from pathlib import Path

from rich import box
from rich.console import Group
from rich.table import Table
from rich.text import Text

from headway.perfmodel.fragmentation import Outcome
from headway.report.figures import bar, count

COLOURS = {"contiguous": "#d97706", "buddy": "#9333ea", "paged": "#0d9488"}
BAR = 30


class NoMatplotlib(RuntimeError):
    """The picture needs a library that is not installed."""


def fragmentation_view(outcomes: Sequence[Outcome], bound: int) -> Group:
    """A line per allocator and granularity; `bound`: requests of an allocator without loss."""
    return Group(_table(outcomes, bound), Text(), _bars(outcomes, bound))


def _table(outcomes: Sequence[Outcome], bound: int) -> Table:
    pool, steps = outcomes[0].pool_tokens, outcomes[0].steps
    title = f"a pool of {pool:,} tokens, {steps:,} steps, always a queue"
    table = Table(box=box.SIMPLE_HEAD, title=title, title_justify="left", show_edge=False, padding=(0, 1, 0, 0))
    table.add_column("allocator", no_wrap=True)
    for name in ("unit", "admitted", "lost", "used", "internal", "external", "largest", "p5"):
        table.add_column(name, justify="right", no_wrap=True)
    for one in outcomes:
        table.add_row(
            one.allocator,
            f"{one.granularity:,}",
            f"{one.admitted:,}",
            _percent(1 - one.admitted / bound if bound else 0.0),
            _percent(one.used),
            _percent(one.internal),
            _percent(one.external),
            count(one.largest_tokens),
            count(one.largest_low),
        )
    table.caption = (
        f"lost: admitted requests missing to the {bound:,} of an allocator without loss; used: of the pool, written; "
        "internal: held, not written; external: free, not in one piece; largest: free block, mean and 5th percentile"
    )
    table.caption_justify = "left"
    return table


def _percent(value: float) -> str:
    return f"{value * 100:.1f} %"


def _bars(outcomes: Sequence[Outcome], bound: int) -> Table:
    table = Table.grid(padding=(0, 1, 0, 0))
    for one in outcomes:
        style = COLOURS.get(one.allocator, "")
        table.add_row(
            one.allocator,
            f"{one.granularity:>5,}",
            Text(bar(one.admitted / bound if bound else None, BAR), style=style),
            f"{one.admitted:,}",
        )
    return table


def fragmentation_plot(outcomes: Sequence[Outcome], bound: int, path: Path) -> None:
    """Three panels over the granularity: admitted requests, where the pool went, the largest free block.

    The file's ending says what it is (.svg, .png, .pdf). Raises NoMatplotlib, or ValueError for another ending.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise NoMatplotlib("drawing needs matplotlib") from None
    figure = Figure(figsize=(12, 3.8), layout="constrained")
    admitted, lost, largest = figure.subplots(1, 3)
    units = sorted({one.granularity for one in outcomes})
    for name, colour in COLOURS.items():
        line = {one.granularity: one for one in outcomes if one.allocator == name}
        at = [unit for unit in units if unit in line]
        shown = [line[unit] for unit in at]
        admitted.plot(at, [one.admitted for one in shown], "o-", color=colour, label=name)
        lost.plot(at, [one.internal for one in shown], "o-", color=colour, label=f"{name}, internal")
        lost.plot(at, [one.external for one in shown], "s--", color=colour, label=f"{name}, external")
        largest.plot(at, [one.largest_tokens for one in shown], "o-", color=colour, label=name)
    admitted.axhline(bound, color="#6b7280", linestyle=":", label="without loss")
    for axes, title in ((admitted, "requests admitted"), (lost, "share lost"), (largest, "largest free block, tokens")):
        axes.set_xscale("log", base=2)
        axes.set_xticks(units, [f"{unit:,}" for unit in units])
        axes.set_ylim(bottom=0)
        axes.set(title=title, xlabel="granularity, tokens")
        axes.grid(alpha=0.3)
        axes.legend(frameon=False, fontsize=8)
    lost.set_ylim(0, 1.3)
    lost.legend(frameon=False, fontsize=8, ncols=3, loc="upper center")
    figure.savefig(path)
