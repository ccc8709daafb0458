"""`headway plan`: how many replicas each policy needs for the same service. The search is `sim.sizing`."""

from collections.abc import Iterator
from typing import Annotated, Any

import msgspec
import typer
from rich.markup import escape

from headway.cli import simulate_options as opt
from headway.cli.console import err, out
from headway.cli.scenario_words import workload_words
from headway.cli.simulate import friendly, nothing
from headway.compose.simulation import Simulation, at_size, misfits, overlaid, read_simulation, sized
from headway.report.figures import rate as per_second
from headway.report.figures import share
from headway.report.sizing import FleetSize, show
from headway.sim.sizing import Search
from headway.sim.sweep import Sweep
from headway.sim.sweep import run as run_all
from headway.workload.results import RunResult

_SIZE = "Size"

Rate = Annotated[
    float, typer.Option(help="Requests/s to be served; 0: the workload's own.", min=0.0, max=1e6, rich_help_panel=_SIZE)
]
Target = Annotated[
    float, typer.Option(help="Share of requests to be served well.", min=0.01, max=1.0, rich_help_panel=_SIZE)
]
MaxReplicas = Annotated[int, typer.Option(help="Give up beyond this many replicas.", min=1, rich_help_panel=_SIZE)]
Price = Annotated[
    float,
    typer.Option(
        help="Price of a GPU-hour, for costs; prices differ too much to assume one.",
        min=0.0,
        max=1e6,
        rich_help_panel=_SIZE,
    ),
]

Tried = dict[tuple[str, int], tuple[RunResult, ...]]


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
    rate: Rate = 0.0,
    target: Target = 0.95,
    max_replicas: MaxReplicas = 64,
    price: Price = 0.0,
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
    policy: opt.Policy = None,
    seeds: opt.Seeds = None,
    jobs: opt.Jobs = 0,
    as_json: opt.Json = False,
) -> None:
    """Find the smallest fleet that serves a workload well, under each policy, and what it costs."""
    flags = dict(locals())
    with friendly():
        asked = overlaid(read_simulation(scenario) if scenario else None, *opt.changes(flags))
        made, each_rps = sized(asked, rate)
        sizes = list(_sizes(asked, made, each_rps, target, max_replicas, jobs))
    if as_json:
        typer.echo(msgspec.json.encode([plain(size, price) for size in sizes]).decode())
        return
    _show(asked, made, each_rps, target, sizes, price)


def _show(asked: Simulation, made: Sweep, each_rps: float, target: float, sizes: list[FleetSize], price: float) -> None:
    pool = asked.pools[0]
    lines: tuple[str, ...] = (
        workload_words(made),
        f"{per_second(made.capacity_rps)} to serve, {share(target)} of it within {asked.slo}",
        f"one replica ({pool.model} on {pool.gpu}) works off {per_second(each_rps)} with a backlog",
    )
    if lost := misfits(made):
        lines += (f"{share(lost)} of the requests have prompts that no replica has room for: they fail everywhere",)
    for line in lines:
        out.print(f"[dim]{escape(line)}[/]", highlight=False, soft_wrap=True)
    out.print()
    show(out, sizes, price)


def _sizes(asked: Simulation, made: Sweep, each_rps: float, target: float, most: int, jobs: int) -> Iterator[FleetSize]:
    """The answer of each policy. Policies that want the same number tried share one sweep."""
    first = round(made.capacity_rps / each_rps)
    searches = {name: Search(target, first, most) for name in asked.policies}
    tried: Tried = {}
    while wanted := {name: size for name, search in searches.items() if (size := search.next()) is not None}:
        for replicas in sorted(set(wanted.values())):
            names = [name for name, size in wanted.items() if size == replicas]
            _try(at_size(made, replicas, names), replicas, jobs, searches, tried)
    for name, search in searches.items():
        enough = search.enough
        below = {trial.replicas: trial.good_share for trial in search.trials}
        yield FleetSize(
            policy=name,
            replicas=enough,
            gpus=asked.pools[0].tensor_parallel_size,
            most=most,
            results=tried[name, enough] if enough else (),
            one_fewer=below.get(enough - 1) if enough else None,
        )


def _try(made: Sweep, replicas: int, jobs: int, searches: dict[str, Search], tried: Tried) -> None:
    """Run some policies on so many replicas and tell their searches."""
    names = [contender.name for contender in made.contenders]
    label = f"{replicas} replicas: {', '.join(names)}"
    with err.status(escape(label)) if err.is_terminal else nothing():
        runs = [run.result for run in run_all(made, jobs)]
    for name in names:
        mine = tuple(run for run in runs if run.policy == name)
        tried[name, replicas] = mine
        searches[name].told(replicas, sum(run.good_share for run in mine) / len(mine))


def plain(size: FleetSize, price: float) -> dict[str, Any]:
    """One policy's answer as plain values; None where the search found none."""
    found = size.replicas is not None
    return {
        "policy": size.policy,
        "replicas": size.replicas,
        "gpus": size.replicas * size.gpus if size.replicas is not None else None,
        "good_share": size.mean("good_share") if found else None,
        "good_share_with_one_fewer": size.one_fewer,
        "gpu_hours_per_1k_good": size.gpu_hours if found else None,
        "cost_per_1k_good": size.cost(price) if found and price else None,
        "runs": msgspec.to_builtins(size.results),
    }
