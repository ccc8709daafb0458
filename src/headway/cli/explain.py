"""`headway explain`: asks a running gateway's admin port why a request went where, and prints it as a table."""

import urllib.parse
from typing import Annotated, Any

import typer
from rich import box
from rich.markup import escape
from rich.table import Table

from headway.cli import adminport
from headway.cli.console import out


def command(
    request_id: Annotated[str, typer.Argument(help="The x-request-id of its answer: the client's own, or ours.")],
    admin: Annotated[str, typer.Option(help="Address of the admin port.")] = adminport.DEFAULT,
    as_json: Annotated[bool, typer.Option("--json", help="Print the answer as it is.")] = False,
) -> None:
    """Show why a request went where it went. A token is read from HEADWAY_ADMIN_TOKEN."""
    path = f"/requests/{urllib.parse.quote(request_id, safe='')}/explain"
    steps = {404: f"curl {admin}/requests lists those that are kept"}
    explanation = adminport.ask(admin, path, steps=steps)
    if as_json:
        out.print_json(data=explanation)
        return
    for attempt in explanation["attempts"]:
        _show(attempt["decision"], attempt["settled"])
    if explanation.get("pinned"):
        out.print(f"[dim]it stays where it is sent: {escape(explanation['pinned'])} (docs/migration.md)[/]")
    if explanation.get("moves"):
        _show_moves(explanation["moves"], explanation["settled"])


def _show(decision: dict[str, Any], settled: dict[str, Any] | None) -> None:
    title = escape(f"{decision['request_id']}  attempt {decision['attempt']}  policy {decision['policy']}")
    table = Table("", title=title, title_justify="left", box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0))
    table.add_column("replica", no_wrap=True)
    for column in ("cost", *map(escape, decision["parts"]), "headroom", "sample\nage"):
        table.add_column(column, justify="right")
    for candidate in decision["candidates"]:
        chosen = candidate["replica_id"] == decision["chosen"]
        table.add_row(
            "->" if chosen else "",
            escape(candidate["replica_id"]),
            *(_number(cost) for cost in candidate["costs"]),
            _number(candidate["headroom_tokens"], ".0f"),
            f"{candidate['sample_age_s']:.2f} s" if candidate["sample_age_s"] >= 0 else "none",
            style="bold green" if chosen else None,
        )
    out.print(table)
    how = (
        "its session keeps to it" if decision.get("kept") else "the lowest cost is chosen, by chance among nearly equal"
    )
    out.print(f"[dim]{how}; headroom in tokens[/]")
    if decision["exclusions"]:
        reasons = ", ".join(f"{count} {reason}" for reason, count in decision["exclusions"].items())
        out.print(escape(f"excluded: {reasons}"))
    out.print(f"held for {decision['queued_s']:.3f} s")
    out.print(_outcome(decision["forecast"], settled))


def _show_moves(moves: list[dict[str, Any]], others: list[dict[str, Any]]) -> None:
    """Steps of moves, and what became of attempts that moves began."""
    worth = {name: f"{name}\ns" for name in ("benefit", "cost") if any(move[f"{name}_s"] for move in moves)}
    table = Table(title="moved while it ran", title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.show_edge = False
    for column in ("move", "from", "to"):
        table.add_column(column, no_wrap=True)
    for column in ("tokens\nread", "took\ns", *worth.values()):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("why")
    for move in moves:
        seconds = (_number(move[f"{name}_s"] or None) for name in ("took", *worth))
        words = map(escape, (move["result"], move["source"], move["target"] or "the queue"))
        table.add_row(*words, _number(move["replayed_tokens"]), *seconds, escape(move["reason"]))
    out.print(table)
    for settled in others:
        outcome = settled["outcome"]
        why = f", {outcome['detail']}" if outcome.get("detail") else ""
        out.print(escape(f"{settled['attempt_id']} at {settled['replica_id']}: {outcome['kind']}{why}"))


def _outcome(forecast: dict[str, Any], settled: dict[str, Any] | None) -> Table:
    table = Table("", "forecast", "real", box=box.SIMPLE_HEAD, show_edge=False)
    outcome = settled["outcome"] if settled else {}
    table.add_row("prompt tokens", _number(forecast["prompt_tokens"]), _number(outcome.get("prompt_tokens")))
    table.add_row("cached tokens", _number(forecast["cached_tokens"]), _number(outcome.get("cached_tokens")))
    table.add_row("output tokens", _number(forecast["output_tokens"]), _number(outcome.get("output_tokens")))
    table.add_row("output class", escape(forecast.get("output_class") or "-"), "")
    table.add_row("TTFT (s)", _number(forecast["ttft_s"]), _number(settled["ttft_s"] if settled else None))
    table.add_row("outcome", "", escape(f"{outcome['kind']} {outcome['status']}") if settled else "still in flight")
    return table


def _number(value: float | None, digits: str = ".3g") -> str:
    return "-" if value is None else f"{value:,{digits}}" if isinstance(value, float) else f"{value:,}"
