"""The study's table fits a terminal; its picture needs matplotlib and says so."""

import io
import sys
from pathlib import Path

import pytest
from rich.console import Console

from headway.perfmodel.fragmentation import Outcome, study
from headway.report.fragmentation import NoMatplotlib, fragmentation_plot, fragmentation_view


def outcomes() -> list[Outcome]:
    return study([(300, 50), (900, 100), (40, 200)], 10_000, 200)


def test_the_table_fits_eighty_columns() -> None:
    console = Console(file=io.StringIO(), width=80)
    console.print(fragmentation_view(outcomes(), 400))
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    assert "…" not in text
    assert text.count("contiguous") == 6  # three lines of the table, three bars
    assert "400 of an allocator without loss" in " ".join(text.split())


@pytest.mark.slow
def test_the_picture(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    file = tmp_path / "study.svg"
    fragmentation_plot(outcomes(), 400, file)
    text = file.read_text()
    assert text.startswith("<?xml")
    assert "<svg" in text
    with pytest.raises(ValueError):
        fragmentation_plot(outcomes(), 400, tmp_path / "study.xyz")


def test_without_matplotlib(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(NoMatplotlib, match="needs matplotlib"):
        fragmentation_plot(outcomes(), 400, tmp_path / "study.svg")
