"""How commands speak: tables on standard output, errors on standard error that say what to do next."""

from typing import NoReturn

import typer
from rich.console import Console
from rich.markup import escape

out = Console()
err = Console(stderr=True)


def fail(message: str, *next_steps: str, code: int = 1) -> NoReturn:
    """Say what is wrong and what to do about it, and end the command."""
    err.print(f"[bold red]error[/] {escape(message)}", highlight=False, soft_wrap=True)
    for step in next_steps:
        err.print(f"  [dim]->[/] {escape(step)}", highlight=False, soft_wrap=True)
    raise typer.Exit(code)
