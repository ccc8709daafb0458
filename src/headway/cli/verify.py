"""`headway verify`: replays a journal; every command must come again as it was recorded."""

import difflib
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from headway.cli.console import err, fail, out
from headway.compose.recipe import replay
from headway.compose.registry import PluginError, find
from headway.compose.source import SettingsError
from headway.wire.journal import Gap, JournalError, Mismatch, decode_entry, encode

REFRESH_EVERY = 500
COLUMNS = (TextColumn("replaying"), BarColumn(), TextColumn("{task.fields[lines]:,} lines"), TimeRemainingColumn())


def command(
    file: Annotated[Path, typer.Argument(help="Journal that `headway serve --journal FILE` wrote.")],
) -> None:
    """Replay a journal and reproduce every decision. Exits 1 at the first command that differs, and where lines are
    missing in between; a journal that ends early, within a line too, is one of fewer events."""
    try:
        with Progress(*COLUMNS, console=err, transient=True, disable=not err.is_terminal) as progress:
            task = progress.add_task("", total=file.stat().st_size, lines=0)
            lines = _Lines(file, progress, task)
            mismatch = replay(lines, find())
    except OSError as error:
        fail(f"{file}: {error.strerror}")
    except Gap as error:
        fail(f"{file}: {error}", "the lines before it were reproduced; what follows cannot be without them")
    except (JournalError, SettingsError, PluginError, msgspec.DecodeError) as error:
        fail(f"{file}: {error}", "a journal is replayed by the version of Headway that wrote it")
    if mismatch is not None:
        _show(mismatch)
        raise typer.Exit(1)
    events = max(0, lines.count - 1 - lines.torn)
    out.print(f"[bold green]reproduced[/] {events:,} events, every command the same", highlight=False)
    if lines.torn:
        out.print("the last line is cut off and was left out: its writer was ended there, or is still writing")


class _Lines:
    """The file's lines; reports progress as they are read."""

    def __init__(self, file: Path, progress: Progress, task: TaskID) -> None:
        self.count = 0
        self._unended = b""
        self._file = file
        self._progress = progress
        self._task = task

    @property
    def torn(self) -> bool:
        """Whether the last line was cut off before its end."""
        try:
            return bool(self._unended and not decode_entry(self._unended))
        except JournalError:
            return True

    def __iter__(self) -> Iterator[bytes]:
        with self._file.open("rb") as lines:
            position = 0
            for line in lines:
                self.count += 1
                position += len(line)
                if self.count % REFRESH_EVERY == 0:
                    self._progress.update(self._task, completed=position, lines=self.count)
                self._unended = b"" if line.endswith(b"\n") else line
                yield line


def _show(mismatch: Mismatch) -> None:
    err.print(f"[bold red]different[/] at line {mismatch.line}; every line before it was the same. The event:")
    err.print(_pretty(encode(mismatch.event).decode()), highlight=False, markup=False)
    recorded, replayed = _pretty(mismatch.recorded).splitlines(), _pretty(mismatch.replayed).splitlines()
    for line in difflib.unified_diff(recorded, replayed, "recorded", "replayed", lineterm=""):
        style = {"+": "green", "-": "red"}.get(line[:1], "")
        err.print(line, style=style, highlight=False, markup=False)


def _pretty(line: str) -> str:
    return msgspec.json.format(line, indent=2)
