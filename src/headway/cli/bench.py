"""`headway bench`: makes a workload from arguments, runs it, prints what came of it. The load is the bench room's."""

import asyncio
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import typer
import uvloop
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar

from headway.bench import BenchPlan, BenchResult, Progress, run
from headway.bench.plan import Watch
from headway.bench.runner import BenchError
from headway.cli import bench_options as opt
from headway.cli.console import err, fail, out
from headway.compose.traces import open_workload
from headway.report.figures import seconds, share
from headway.report.tables import latency_table, outline_line, totals_table
from headway.workload.chat import CHAT, DOCUMENTS, ChatSpec, generate
from headway.workload.columns import TraceError
from headway.workload.outline import outline
from headway.workload.request import Request
from headway.workload.scaling import scale, window
from headway.workload.sources import Options
from headway.workload.stats import Slo

DEFAULT_RATE = 2.0
DEFAULT_DURATION_S = 30.0
FEW = 0.8  # of the requests asked for, below which the reason is given
_SHAPES = {opt.Mix.CHAT: (CHAT,), opt.Mix.DOCUMENTS: (DOCUMENTS,), opt.Mix.BOTH: (CHAT, DOCUMENTS)}
_SLO = Slo()


def command(
    url: opt.Url = "http://127.0.0.1:8800",
    model: opt.Model = "",
    api_key: opt.ApiKey = "",
    endpoint: opt.Route = opt.Endpoint.CHAT,
    rate: opt.Rate = 0.0,
    duration: opt.Duration = 0.0,
    mix: opt.Shapes = opt.Mix.CHAT,
    burstiness: opt.Burstiness = 1.0,
    longest: opt.Longest = 8192,
    trace: opt.Trace = None,
    columns: opt.Columns = "",
    seed: opt.Seed = 0,
    stream: opt.Stream = True,
    exact_output: opt.ExactOutput = True,
    max_tokens: opt.MaxTokens = 0,
    max_concurrency: opt.MaxConcurrency = 0,
    patience: opt.Patience = 60.0,
    time_scale: opt.TimeScale = 1.0,
    warmup: opt.Warmup = 0.0,
    slo_ttft: opt.SloTtft = _SLO.ttft_s,
    slo_ttft_per_token: opt.SloPerToken = _SLO.ttft_per_prompt_token_s,
    slo_tpot: opt.SloTpot = _SLO.tpot_s,
    as_json: opt.Json = False,
    records: opt.Records = None,
) -> None:
    """Put open-loop load on an OpenAI endpoint and measure it as its clients see it."""
    rng = np.random.default_rng(seed)
    if trace is None:
        duration = duration or DEFAULT_DURATION_S
        spec = ChatSpec(rate or DEFAULT_RATE, duration, _SHAPES[mix], burstiness, longest)
        workload = generate(spec, rng)
        _note_rate(spec, len(workload))
    else:
        workload = _replayed(trace, columns, rate, duration, longest, rng)
    slo = Slo(slo_ttft, slo_ttft_per_token, slo_tpot)
    who = {"url": url, "model": model, "api_key": api_key, "max_concurrency": max_concurrency}
    how = {"endpoint": endpoint.value, "stream": stream, "exact_output": exact_output, "max_tokens": max_tokens}
    when = {"duration_s": duration, "warmup_s": warmup, "patience_s": patience, "time_scale": time_scale}
    settings: dict[str, Any] = who | how | when
    finish(BenchPlan(requests=workload, slo=slo, seed=seed, **settings), as_json, records)


def finish(plan: BenchPlan, as_json: bool, records: Path | None) -> None:
    """Run the plan and print it; exit 1 when nothing succeeded or the accounts do not balance."""
    try:
        if records is not None:
            records.write_bytes(b"")  # an hour of load is not lost for a folder that is not there
    except OSError as error:
        fail(f"--records {records}: {error.strerror}")
    try:
        result = uvloop.run(_measured(plan))
    except BenchError as error:
        fail(str(error))
    if records is not None:
        records.write_bytes(b"".join(msgspec.json.encode(record) + b"\n" for record in result.records))
    if as_json:
        typer.echo(msgspec.json.encode(_plain(plan, result)).decode())
    else:
        _show(plan, result)
    raise typer.Exit(0 if result.accounts.balanced and result.accounts.ok else 1)


def _note_rate(spec: ChatSpec, requests: int) -> None:
    """Say why a generated workload has fewer requests than was asked for, if it has."""
    real = requests / spec.duration_s
    if real < FEW * spec.rate:
        why = f"sessions end before --longest ({spec.max_tokens} tokens), and turns due after --duration are left out"
        err.print(f"[yellow]note[/] {real:.3g} requests/s, not {spec.rate:g}: {why}", highlight=False, soft_wrap=True)


async def _measured(plan: BenchPlan) -> BenchResult:
    """The run, with a bar on standard error; Ctrl-C ends it early and its figures are still printed."""
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGINT, stop.set)
    with progress_bar(len(plan.due())) as watch:
        return await run(plan, watch, stop)


@contextmanager
def progress_bar(total: int) -> Iterator[Watch]:
    """A bar of finished requests; nothing where standard error is no terminal."""
    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("requests, {task.description}"), TimeElapsedColumn())
    with Bar(*columns, console=err, transient=True, disable=not err.is_terminal) as bar:
        task = bar.add_task("", total=total)

        def watch(progress: Progress) -> None:
            failed = progress.finished - progress.accounts.ok
            text = f"{progress.in_flight} in flight" + (f", [yellow]{failed} not ok[/]" if failed else "")
            bar.update(task, completed=progress.finished, description=text)

        yield watch


def _replayed(
    path: Path, columns: str, rate: float, duration_s: float, longest: int, rng: np.random.Generator
) -> list[Request]:
    """The trace's requests of the wanted span, scaled to the wanted rate by whole sessions."""
    try:
        load = open_workload(str(path), rng, Options(columns=columns, longest=longest))
    except TraceError as error:
        fail(str(error), "docs/workloads.md lists the formats that need no --columns")
    if duration_s:
        load = window(load, 0.0, min(duration_s, load.span_s))
    if rate and load.requests:
        load = scale(load, rate / load.rate_rps, rng)
    err.print(*load.how, sep="\n", style="dim", highlight=False, markup=False)
    return list(load.requests)


def _plain(plan: BenchPlan, result: BenchResult) -> dict[str, Any]:
    """The result as plain values, without the single records."""
    plain: dict[str, Any] = msgspec.to_builtins(result)
    del plain["records"]
    return {"url": plan.base, "workload": msgspec.to_builtins(outline(plan.due())), **plain}


def _show(plan: BenchPlan, result: BenchResult) -> None:
    out.print(f"{plan.base}  model {result.model}", highlight=False, markup=False)
    out.print(outline_line(outline(plan.due())), highlight=False)
    if plan.time_scale != 1:
        out.print(f"time scale {plan.time_scale:g}: all times are the server's, {plan.time_scale:g} x real time")
    out.print(latency_table(result.summary))
    out.print(totals_table(result.summary))
    client = result.client
    line = f"client: {share(client.cpu_share)} of a core, requests left {seconds(client.late_p99_s)} late (p99)"
    out.print(f"[yellow]{line}: the client may have been the bottleneck[/]" if client.suspect else f"[dim]{line}[/]")
