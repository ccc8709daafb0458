"""`headway verify`: replays a journal; every command must come again as it was recorded."""

import difflib
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from headway import __version__
from headway.cli.console import err, fail, out
from headway.compose.registry import PluginError, find
from headway.compose.replay import JournalError, Mismatch, Replay
from headway.compose.source import SettingsError

REFRESH_EVERY = 500


def command(
    file: Annotated[Path, typer.Argument(help="Journal that `headway serve --journal FILE` wrote.")],
) -> None:
    """Replay a journal and reproduce every decision. Exits 1 at the first command that differs."""
    try:
        replay = Replay(file, find())
        events, mismatch = _run(replay)
    except OSError as error:
        fail(f"{file}: {error.strerror}")
    except (JournalError, SettingsError, PluginError) as error:
        fail(f"{file}: {error}")
    if mismatch is None:
        out.print(f"[bold green]reproduced[/] {events:,} events, every command the same")
        return
    _show(mismatch, events)
    if replay.header.version != __version__:
        err.print(f"the journal was written by {replay.header.version}, this is {__version__}")
    raise typer.Exit(1)


def _run(replay: Replay) -> tuple[int, Mismatch | None]:
    events, mismatch = 0, None
    columns = (
        TextColumn("replaying"),
        BarColumn(),
        TextColumn("{task.fields[events]:,} events"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=err, transient=True) as progress:
        task = progress.add_task("", total=replay.size, events=0)
        for step in replay.steps():
            events, mismatch = step.events, step.mismatch
            if events % REFRESH_EVERY == 0:
                progress.update(task, completed=step.bytes_read, events=events)
    return events, mismatch


def _show(mismatch: Mismatch, events: int) -> None:
    err.print(f"[bold red]different[/] at line {mismatch.line}, after {events - 1:,} events that were the same")
    err.print("event:", highlight=False)
    err.print(_pretty(mismatch.event), highlight=False, markup=False)
    recorded, replayed = _pretty(mismatch.recorded).splitlines(), _pretty(mismatch.replayed).splitlines()
    for line in difflib.unified_diff(recorded, replayed, "recorded", "replayed", lineterm=""):
        style = {"+": "green", "-": "red"}.get(line[:1], "")
        err.print(line, style=style, highlight=False, markup=False)


def _pretty(line: bytes) -> str:
    return msgspec.json.format(line, indent=2).decode()
