"""`headway demo`: shows the comparison while it runs and sums it up. What runs is `bench.demo`."""

import asyncio
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated

import msgspec
import typer
import uvloop
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from headway.bench.demo import MAX_TOKENS, SCENARIO, DemoPlan, Display, PolicyRun, run_policy, workload
from headway.bench.local_fleet import NotReady
from headway.bench.plan import Progress
from headway.bench.processes import ChildDied
from headway.bench.watch import Glance
from headway.cli.console import err, fail, out
from headway.compose.load import near
from headway.compose.registry import PluginError, find
from headway.report.figures import seconds, share
from headway.report.live import FleetMeter, FleetRow, fleet_table, plain_line
from headway.report.tables import accounts_line, comparison_table, outline_line
from headway.workload.accounts import Accounts
from headway.workload.outline import outline
from headway.workload.request import Request
from headway.workload.stats import Slo

LAG_LIMIT = 0.1
PLAIN_EVERY_S = 5.0
INTERRUPTED = 130


def command(
    seconds_each: Annotated[float, typer.Option("--seconds", help="Seconds of load per policy.", min=1.0)] = 25.0,
    policy: Annotated[list[str] | None, typer.Option(help="Policy to compare; repeat for several.")] = None,
    rate: Annotated[float, typer.Option(help="Requests per second.", min=0.1)] = DemoPlan().rate,
    seed: Annotated[int, typer.Option(help="Another seed, another workload.", min=0)] = DemoPlan().seed,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
) -> None:
    """Four emulated replicas of two GPU kinds, the gateway in front, one chat workload under each policy."""
    plan = DemoPlan(seconds_each, tuple(policy or DemoPlan().policies), rate, seed)
    _check(plan.policies)
    console = err if as_json else out
    try:
        runs = uvloop.run(_interruptible(plan, console))
    except (NotReady, ChildDied) as error:
        fail(str(error))
    except (KeyboardInterrupt, asyncio.CancelledError):
        err.print("interrupted: every process was ended")
        raise typer.Exit(INTERRUPTED) from None
    if as_json:
        typer.echo(msgspec.json.encode(plain(runs)).decode())
    else:
        _sum_up(runs)
    _warn_of_lag(runs)
    raise typer.Exit(0 if all(run.accounted for run in runs) else 1)


def _check(policies: Sequence[str]) -> None:
    """End before anything is started if a policy does not exist."""
    try:
        known = find().policies
    except PluginError as error:
        fail(str(error), "repair or uninstall that package")
    for name in policies:
        if name not in known:
            fail(f"no policy is named {name!r}{near(name, known)}", "`headway check --list` names them all")


def plain(runs: Sequence[PolicyRun]) -> dict[str, object]:
    """The comparison as one object; requests are summed over the policies."""
    total = sum((run.result.accounts for run in runs), Accounts())
    return {
        "requests": msgspec.to_builtins(total),
        "policies": [
            {
                "name": run.policy,
                "goodput_rps": run.result.summary.goodput_rps,
                "ttft_p50_s": run.result.summary.ttft.p50,
                "ttft_p99_s": run.result.summary.ttft.p99,
                "tpot_p50_s": run.result.summary.tpot.p50,
            }
            for run in runs
        ],
        "balanced": all(run.accounted for run in runs),
    }


async def _interruptible(plan: DemoPlan, console: Console) -> list[PolicyRun]:
    """The runs, cancelled in order by SIGTERM and a closed terminal as by Ctrl-C."""
    task = asyncio.current_task()
    assert task is not None
    for number in (signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    requests = workload(plan)
    _introduce(plan, requests, console)
    runs = []
    for place, policy in enumerate(plan.policies, 1):
        with _display(console, f"{policy} ({place} of {len(plan.policies)})", plan) as display:
            runs.append(await run_policy(plan, policy, requests, display))
    return runs


def _introduce(plan: DemoPlan, requests: Sequence[Request], console: Console) -> None:
    console.print(SCENARIO, highlight=False)
    console.print(
        f"[dim]workload  {outline_line(outline(requests))}; clients state max_tokens {MAX_TOKENS}[/]", highlight=False
    )
    console.print(f"[dim]SLOs      {Slo()}[/]", highlight=False)


@contextmanager
def _display(console: Console, title: str, plan: DemoPlan) -> Iterator[Display]:
    """A live table on a terminal, a line now and then elsewhere."""
    if not console.is_terminal:
        yield _Lines(console, title)
        return
    with Live(console=console, refresh_per_second=4, transient=True) as live:
        yield _Screen(live, title, plan)


class _Lines(Display):
    """For logs and pipes."""

    def __init__(self, console: Console, title: str) -> None:
        self._console, self._title = console, title
        self._meter = FleetMeter()
        self._next_s = 0.0
        self._elapsed_s = 0.0

    def stage(self, policy: str, text: str) -> None:
        self._console.print(f"{self._title}: {text}", highlight=False, markup=False)

    def progress(self, progress: Progress) -> None:
        self._elapsed_s = progress.elapsed_s

    def glance(self, glance: Glance) -> None:
        if self._elapsed_s >= self._next_s:
            self._next_s = self._elapsed_s + PLAIN_EVERY_S
            line = plain_line(_rows(self._meter, glance))
            self._console.print(f"  {self._elapsed_s:5.1f} s  {line}", highlight=False, markup=False, soft_wrap=True)


class _Screen(Display):
    """For terminals: the fleet, a bar, the accounts so far."""

    def __init__(self, live: Live, title: str, plan: DemoPlan) -> None:
        self._live, self._title, self._plan = live, title, plan
        self._meter = FleetMeter()
        self._rows: list[FleetRow] = []
        self._held = 0
        self._stage = ""
        self._progress: Progress | None = None

    def stage(self, policy: str, text: str) -> None:
        self._stage = text
        self._draw()

    def progress(self, progress: Progress) -> None:
        self._progress = progress
        self._draw()

    def glance(self, glance: Glance) -> None:
        self._rows = _rows(self._meter, glance)
        self._held = glance.fleet["fleet"]["queued"]
        self._draw()

    def _draw(self) -> None:
        parts: list[RenderableType] = [Text.assemble("\n", (self._title, "bold"), f"  {self._stage}")]
        if self._rows:
            parts.append(fleet_table(self._rows))
        if self._progress is not None:
            parts.append(self._bar(self._progress))
        self._live.update(Group(*parts))

    def _bar(self, progress: Progress) -> Table:
        total_s = self._plan.seconds * self._plan.fleet.time_scale
        elapsed_s = min(total_s, max(0.0, progress.elapsed_s))
        held = f", {self._held} held by the gateway" if self._held else ""
        lines = Table.grid(padding=(0, 2))
        lines.add_row(
            ProgressBar(total=total_s, completed=elapsed_s, width=24),
            f"{progress.started} sent, {progress.in_flight} open{held}, {progress.accounts.ok} ok, "
            f"{progress.finished - progress.accounts.ok} not ok",
        )
        return lines


def _rows(meter: FleetMeter, glance: Glance) -> list[FleetRow]:
    """The glance's replicas by name, so that they keep their places from policy to policy."""
    rows = sorted(meter.rows(glance.fleet), key=lambda row: row.name)
    return [msgspec.structs.replace(row, ttft_s=glance.ttft_s.get(row.name)) for row in rows]


def _sum_up(runs: Sequence[PolicyRun]) -> None:
    out.print(comparison_table([(run.policy, run.result.summary) for run in runs]))
    for run in runs:
        agree = (
            "the gateway counted the same" if run.accounted else f"[red]the gateway: {accounts_line(run.gateway)}[/]"
        )
        out.print(f"[dim]{escape(run.policy)}: {accounts_line(run.result.accounts)}; {agree}[/]", highlight=False)

    out.print("[dim]compare others: --policy NAME, repeatable (headway check --list names them)[/]", highlight=False)


def _warn_of_lag(runs: Sequence[PolicyRun]) -> None:
    """Say so when this machine was too slow for figures to be trusted."""
    worst = max((run.worst_lag for run in runs), default=0.0)
    if worst > LAG_LIMIT:
        err.print(
            f"[yellow]warning[/] an emulator's clock was {share(worst)} late: this machine is too busy for the figures"
        )
    late = max((run.result.client.late_p99_s for run in runs if run.result.client.suspect), default=0.0)
    if late:
        err.print(
            f"[yellow]warning[/] requests left {seconds(late)} late (p99): this machine is too busy for the figures"
        )
