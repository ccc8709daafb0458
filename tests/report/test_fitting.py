"""Tables that fit."""

import io
from collections.abc import Collection

from rich.console import Console
from rich.table import Table

from headway.report.fitting import fitted, paper

COLUMNS = ("alpha", "beta", "gamma")


def build(left_out: Collection[str]) -> Table:
    table = Table(*(name for name in COLUMNS if name not in left_out))
    table.add_row(*("x" * 10 for name in COLUMNS if name not in left_out))
    return table


def test_as_few_columns_as_needed_are_left_out() -> None:
    wide, nothing = fitted(100, build, ("gamma", "beta"))
    assert (len(wide.columns), tuple(nothing)) == (3, ())
    narrow, one = fitted(30, build, ("gamma", "beta"))
    assert (len(narrow.columns), tuple(one)) == (2, ("gamma",))


def test_what_is_indispensable_stays_however_narrow() -> None:
    table, missing = fitted(1, build, ("gamma",))
    assert (len(table.columns), tuple(missing)) == (2, ("gamma",))


def test_files_are_as_wide_as_anything_needs() -> None:
    assert paper(Console(file=io.StringIO(), width=80)).width > 1000
    terminal = Console(file=io.StringIO(), width=80, force_terminal=True)
    assert paper(terminal) is terminal
