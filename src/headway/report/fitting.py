"""Tables that fit: whole in files and pipes, and on a narrow terminal whole columns fewer instead of cut figures."""

from collections.abc import Callable, Collection, Sequence

from rich.console import Console
from rich.table import Table

_ENDLESS = 10_000

Build = Callable[[Collection[str]], Table]
"""Makes a table without the columns named."""


def paper(console: Console) -> Console:
    """Where to print: the terminal itself, or a file as wide as anything needs."""
    return console if console.is_terminal else Console(file=console.file, width=_ENDLESS)


def fitted(width: int, build: Build, dispensable: Sequence[str]) -> tuple[Table, Collection[str]]:
    """The table with as few of the dispensable columns left out, the first first, as `width` characters ask for."""
    endless = Console(width=_ENDLESS)
    for number in range(len(dispensable) + 1):
        table = build(dispensable[:number])
        if endless.measure(table).maximum <= width:
            break
    return table, dispensable[:number]
