"""The smallest fleets side by side: what each policy needs for the same service, and what that costs."""

from collections.abc import Callable, Collection, Sequence
from functools import partial

import msgspec
import numpy as np
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from headway.report.board import USUAL_REFERENCE
from headway.report.figures import NOTHING, seconds, share
from headway.report.fitting import fitted, paper
from headway.report.measures import hours, portion
from headway.workload.results import RunResult, mean


class FleetSize(msgspec.Struct, frozen=True):
    """What one policy needs. `replicas` is None where even `most` were not enough; `gpus` are those of one replica.

    `results` are the runs at that size (one per seed), `one_fewer` is the share served well with a replica less.
    """

    policy: str
    replicas: int | None
    gpus: int
    most: int
    results: tuple[RunResult, ...]
    one_fewer: float | None = None

    @property
    def gpu_hours(self) -> float | None:
        """GPU-hours per 1,000 good requests, mean over seeds; None where none was good in one of them."""
        return self.mean("gpu_hours_per_1k_good")

    def cost(self, price: float) -> float | None:
        """The same in money, at a price per GPU-hour."""
        return None if self.gpu_hours is None else self.gpu_hours * price

    def mean(self, field: str) -> float | None:
        """A figure's mean over seeds; None without runs, or where one of them had nothing to measure."""
        return mean(self.results, field)

    def part(self, field: str) -> float:
        """The mean share of the requests of which something is a count."""
        return float(np.mean([getattr(run, field) / max(1, run.requests) for run in self.results]))

    @property
    def longest_wait_s(self) -> float | None:
        """Of all seeds; None where nobody was ever sent to a replica."""
        return max((run.longest_wait_s for run in self.results if run.longest_wait_s is not None), default=None)


Write = Callable[[FleetSize], str]

_COLUMNS: tuple[tuple[str, str, Write], ...] = (
    ("gpus", "GPUs", lambda size: str((size.replicas or 0) * size.gpus)),
    ("good", "good", lambda size: portion(size.mean("good_share"))),
    ("worst", "worst\nseed", lambda size: portion(min(run.good_share for run in size.results))),
    ("fewer", "with one\nfewer", lambda size: share(size.one_fewer)),
    ("ttft", "TTFT\np99", lambda size: seconds(size.mean("ttft_p99_s"))),
    ("late", "late", lambda size: share(size.part("late"))),
    ("shed", "shed", lambda size: share(size.part("shed"))),
    ("wait", "longest\nwait", lambda size: seconds(size.longest_wait_s)),
    ("hours", "GPU-h/\n1k good", lambda size: hours(size.gpu_hours)),
)
_DISPENSABLE = ("worst", "ttft", "gpus", "fewer")


def show(console: Console, sizes: Sequence[FleetSize], price: float = 0.0) -> None:
    """The table, as wide as there is room for, and a sentence per policy on what it saves."""
    sheet = paper(console)
    table, missing = fitted(sheet.width, partial(sizes_table, sizes, price), _DISPENSABLE)
    sheet.print(table)
    for line in savings(sizes, price):
        sheet.print(escape(line), highlight=False)
    if missing:
        sheet.print(f"[dim]{len(missing)} columns need a wider terminal; --json has all[/]")


def sizes_table(sizes: Sequence[FleetSize], price: float = 0.0, left_out: Collection[str] = ()) -> Table:
    """One row per policy; with a price per GPU-hour also its cost per 1,000 good requests."""
    columns = [column for column in _COLUMNS if column[0] not in left_out]
    if price:
        columns.append(("cost", "cost/\n1k good", lambda size: money(size.cost(price))))
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0))
    table.add_column("policy", no_wrap=True)
    for title in ("replicas", *(title for _, title, _ in columns)):
        table.add_column(title, justify="right", no_wrap=True)
    fewest = min((size.replicas for size in sizes if size.replicas), default=None)
    for size in sizes:
        if size.replicas is None:
            table.add_row(escape(size.policy), f"> {size.most}", *([NOTHING] * len(columns)))
            continue
        best = size.replicas == fewest and len(sizes) > 1
        number = f"[bold green]{size.replicas}[/]" if best else str(size.replicas)
        table.add_row(escape(size.policy), number, *(write(size) for _, _, write in columns))
    return table


def savings(sizes: Sequence[FleetSize], price: float = 0.0) -> list[str]:
    """What each policy saves against round robin, or the first policy; one sentence each."""
    known = {size.policy: size for size in sizes}
    base = known.get(USUAL_REFERENCE) or next(iter(sizes), None)
    return [_saving(size, base, price) for size in sizes if base is not None and size is not base]


def _saving(size: FleetSize, base: FleetSize, price: float) -> str:
    if size.replicas is None or base.replicas is None:
        loser = size if size.replicas is None else base
        return f"{size.policy} against {base.policy}: {loser.policy} needs more than {loser.most} replicas"
    fewer = (base.replicas - size.replicas) * size.gpus
    if not fewer:
        return f"{size.policy} needs as many GPUs as {base.policy}"
    change = f"saves {fewer} of {base.replicas * base.gpus} GPUs" if fewer > 0 else f"needs {-fewer} GPUs more"
    text = f"{size.policy} {change} against {base.policy}"
    return f"{text}: {money(abs(fewer) * price * 24)} a day" if price else text


def money(value: float | None) -> str:
    """0.0123, 1.23, 1,230: three digits; the currency is the price's."""
    if value is None:
        return NOTHING
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
