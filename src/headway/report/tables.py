"""Tables of finished runs, from summaries of `workload.stats`."""

from collections.abc import Callable, Sequence

from rich import box
from rich.markup import escape
from rich.table import Table

from headway.report.figures import NOTHING, count, rate, seconds, share
from headway.workload.accounts import KINDS, Accounts
from headway.workload.outline import Outline
from headway.workload.stats import Spread, Summary

_COLUMNS = ("mean", "p50", "p90", "p95", "p99", "max")
_SPREADS: tuple[tuple[str, str], ...] = (
    ("ttft", "TTFT"),
    ("itl", "ITL"),
    ("tpot", "TPOT"),
    ("e2e", "E2E"),
)


def latency_table(summary: Summary) -> Table:
    """Percentiles (nearest rank) of the four latencies of requests that ended ok."""
    table = Table(box=box.SIMPLE_HEAD, title="latency of requests that ended ok", title_justify="left")
    table.add_column("")
    for name in (*_COLUMNS, "n"):
        table.add_column(name, justify="right")
    for field, title in _SPREADS:
        spread: Spread = getattr(summary, field)
        table.add_row(title, *(seconds(getattr(spread, name)) for name in _COLUMNS), count(spread.count))
    return table


def totals_table(summary: Summary) -> Table:
    """Goodput, throughput, accounts and errors by kind."""
    table = Table(box=box.SIMPLE_HEAD, show_header=False)
    table.add_column(style="bold")
    table.add_column()
    table.add_row(
        "goodput", f"{rate(summary.goodput_rps)} ({share(summary.goodput_share)} of requests met {summary.slo})"
    )
    table.add_row("requests", f"{rate(summary.request_rps)} over {seconds(summary.window_s)}")
    table.add_row("output", rate(summary.output_tokens_per_s, " tokens/s"))
    cached = share(summary.cached_tokens / summary.prompt_tokens) if summary.cached_tokens else "none"
    table.add_row("prompt", f"{count(summary.prompt_tokens)} tokens, {cached} of them reported as cached")
    table.add_row("accounts", accounts_line(summary.accounts))
    for error, times in summary.errors.items():
        kind, _, word = error.partition(":")
        table.add_row(f"  {kind}", escape(f"{count(times)} x {word}"))
    if summary.capped:
        table.add_row("kept back", f"{count(summary.capped)} waited for the concurrency cap; their wait is counted")
    return table


def accounts_line(accounts: Accounts) -> str:
    """started = ok + ..., kinds that did not happen left out, with a word if it does not add up."""
    happened = [kind for kind in KINDS if kind == "ok" or getattr(accounts, kind)]
    ends = " + ".join(f"{count(getattr(accounts, kind))} {kind}" for kind in happened)
    return f"{count(accounts.started)} started = {ends}{'' if accounts.balanced else '  (DOES NOT BALANCE)'}"


def outline_line(outline: Outline) -> str:
    """A workload in one line."""
    sessions = f" in {count(outline.sessions)} sessions" if outline.sessions else ""
    return (
        f"{count(outline.requests)} requests{sessions}, {rate(outline.rate_rps)}; "
        f"prompt p50 {count(outline.prompt_p50)}, p90 {count(outline.prompt_p90)} tokens; "
        f"output p50 {count(outline.output_p50)}, p90 {count(outline.output_p90)}; "
        f"{share(outline.reusable)} of prompt tokens repeat an earlier prefix"
    )


Cell = Callable[[Summary], float | None]
_COMPARED: tuple[tuple[str, Cell, Callable[[float | None], str], bool], ...] = (
    ("goodput", lambda s: s.goodput_rps, rate, True),
    ("met\nSLOs", lambda s: s.goodput_share, share, True),
    ("TTFT\np50", lambda s: s.ttft.p50, seconds, False),
    ("TTFT\np99", lambda s: s.ttft.p99, seconds, False),
    ("TPOT\np50", lambda s: s.tpot.p50, seconds, False),
    ("cached", lambda s: s.cached_tokens / s.prompt_tokens if s.prompt_tokens else None, share, True),
    ("not\nok", lambda s: s.accounts.started - s.accounts.ok, count, False),
)


def comparison_table(runs: Sequence[tuple[str, Summary]]) -> Table:
    """Policies side by side on one workload; the best value of each column is bold when they differ."""
    table = Table(
        box=box.SIMPLE_HEAD,
        title="the same workload under each policy",
        title_justify="left",
        show_edge=False,
        padding=(0, 1, 0, 0),
    )
    table.add_column("policy", no_wrap=True)
    for name, _, _, _ in _COMPARED:
        table.add_column(name, justify="right", no_wrap=True)
    bests = [_best([read(summary) for _, summary in runs], high) for _, read, _, high in _COMPARED]
    for policy, summary in runs:
        cells = []
        for (_, read, write, _), best in zip(_COMPARED, bests, strict=True):
            value = read(summary)
            text = NOTHING if value is None else write(value)
            cells.append(f"[bold green]{text}[/]" if value is not None and value == best else text)
        table.add_row(escape(policy), *cells)
    return table


def _best(values: Sequence[float | None], high: bool) -> float | None:
    known = [value for value in values if value is not None]
    if len(set(known)) < 2:
        return None
    return max(known) if high else min(known)
