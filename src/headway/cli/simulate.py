"""`headway simulate`: reads what to simulate, shows the runs as they end, prints or writes what came of it."""

import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from headway.cli import simulate_options as opt
from headway.cli.console import err, fail, out
from headway.cli.scenario_words import fleet_words, scenario_words
from headway.compose.simulation import Simulation, overlaid, read_simulation, sweep
from headway.compose.source import SettingsError
from headway.report.html import Story, page
from headway.report.simulation import show
from headway.sim.sweep import Cell, Sweep
from headway.sim.sweep import run as run_all
from headway.workload.results import Run

INTERRUPTED = 130

Replicas = Annotated[int | None, opt.option(help="Replicas.", panel=opt.FLEET, default=4, min=1)]
Load = Annotated[
    str | None,
    opt.option(help="Multiples of what the fleet can work off, by comma.", panel=opt.RUNS, default=0.9),
]
Reference = Annotated[
    str | None,
    opt.option(help="Policy to compare with; else round_robin, or the first.", panel=opt.RUNS),
]
Html = Annotated[Path | None, opt.option(help="Write a self-contained report here.", panel=opt.OUTPUT)]


def command(
    scenario: opt.Scenario = None,
    trace: opt.Trace = None,
    trace_format: opt.TraceFormat = None,
    columns: opt.Columns = None,
    generate: opt.Generate = None,
    longest: opt.Longest = None,
    length_factor: opt.LengthFactor = None,
    tenant: opt.Tenant = None,
    duration: opt.Duration = None,
    warmup: opt.Warmup = None,
    replicas: Replicas = None,
    model: opt.Model = None,
    gpu: opt.Gpu = None,
    kv_tokens: opt.KvTokens = None,
    tensor_parallel_size: opt.TensorParallel = None,
    dtype: opt.Dtype = None,
    max_num_seqs: opt.MaxNumSeqs = None,
    perturb: opt.Perturb = None,
    sample_age: opt.SampleAge = None,
    slo_ttft: opt.SloTtft = None,
    slo_ttft_per_token: opt.SloPerToken = None,
    slo_tpot: opt.SloTpot = None,
    load: Load = None,
    policy: opt.Policy = None,
    seeds: opt.Seeds = None,
    reference: Reference = None,
    jobs: opt.Jobs = 0,
    as_json: opt.Json = False,
    html: Html = None,
) -> None:
    """Simulate a fleet under several policies, on the same arrivals, in virtual time, with the gateway's own brain."""
    flags = dict(locals())
    with friendly():
        asked = overlaid(read_simulation(scenario) if scenario else None, *opt.changes(flags))
        if html is not None:
            _must_be_writable(html)
        runs, made = measured(asked, jobs, detail=html is not None)
        if html is not None:
            html.write_text(page(runs, _story(asked, made)), encoding="utf-8")
    if as_json:
        typer.echo(msgspec.json.encode([run.result for run in runs]).decode())
    else:
        _show(asked, made, runs)
    if html is not None:
        err.print(f"report written to {html}", highlight=False, markup=False)


def _must_be_writable(path: Path) -> None:
    """Raises OSError for an address that cannot be written: now, not after an hour. What is not there, is not there
    then either, because many things may go wrong until there is a report."""
    new = not (path.is_symlink() or path.exists())
    path.open("a").close()
    if new:
        path.unlink()


def _show(asked: Simulation, made: Sweep, runs: Sequence[Run]) -> None:
    for word, sentence in scenario_words(asked, made):
        out.print(f"[dim]{word:<10}{escape(sentence)}[/]", highlight=False, soft_wrap=True)
    show(out, [run.result for run in runs], asked.reference)


def measured(asked: Simulation, jobs: int, detail: bool) -> tuple[list[Run], Sweep]:
    """All runs, with a bar on standard error, and the sweep they belong to."""
    with err.status("measuring what the fleet can do") if err.is_terminal else nothing():
        made = sweep(asked, detail)
    with progress_bar(made.runs) as bar:

        def tell(cell: Cell, run: Run) -> None:
            name, load = made.contenders[cell.contender].name, made.loads[cell.load]
            bar(escape(f"{name}, load {load:g}, seed {cell.seed}: {run.result.good_share:.1%} good"))

        return run_all(made, jobs, tell), made


@contextmanager
def progress_bar(total: int) -> Iterator[Any]:
    """A function to be called with a few words when a run has ended; draws only where standard error is a terminal."""
    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn(compact=True))
    shown = (*columns, TextColumn("[dim]{task.description}[/]"))
    with Bar(*shown, console=err, transient=True, disable=not err.is_terminal) as bar:
        task = bar.add_task("", total=total)

        def ended(words: str) -> None:
            bar.update(task, advance=1, description=words)

        yield ended


@contextmanager
def friendly() -> Iterator[None]:
    """Turn what people get wrong into a sentence, and an interruption into an end."""
    try:
        yield
    except SettingsError as error:
        fail(str(error), "docs/simulator.md lists what a scenario file may say")
    except (ValueError, OSError) as error:  # traces, names, sizes, files: the message says which
        fail(str(error))
    except KeyboardInterrupt:
        err.print("interrupted: nothing was kept")
        raise typer.Exit(INTERRUPTED) from None


@contextmanager
def nothing() -> Iterator[None]:
    """In place of a live display where there is no terminal."""
    yield


def _story(asked: Simulation, made: Sweep) -> Story:
    title = f"{fleet_words(asked)} under {made.workload.name}"
    command = shlex.join(("headway", *sys.argv[1:]))
    return Story(title, tuple(scenario_words(asked, made)), command, asked.slo, asked.reference)
