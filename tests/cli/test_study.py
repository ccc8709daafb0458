import json
import sys
from pathlib import Path

import pytest

from tests.cli.calling import call

SHORT = ("study", "fragmentation", "--steps", "300", "--kv-tokens", "20000")


@pytest.mark.slow
def test_the_table_and_its_bars(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(*SHORT) == 0
    shown = capsys.readouterr().out
    assert "a pool of 20,000 tokens, 300 steps" in shown
    for word in ("contiguous", "buddy", "paged", "2,048", "█"):
        assert word in shown


def test_lengths_of_a_file(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "log.csv"
    lines = [f"2023-11-16 18:15:{second:02d}.0000000,{100 + second},{20 + second}" for second in range(50)]
    file.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n" + "\n".join(lines) + "\n")
    assert call(*SHORT, "--data", str(file), "--granularity", "16", "--json") == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["allocator"] for row in rows] == ["contiguous", "buddy", "paged"]
    assert {row["granularity"] for row in rows} == {16}
    assert rows[2]["admitted"] > 0
    assert rows[2]["lossless"] >= rows[2]["admitted"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--granularity", "32,none"), "--granularity '32,none' is no list"),
        (("--granularity", "0"), "32,512,2048"),
        (("--granularity", "32,30000"), "30,000 tokens per request are more than the pool's 20,000"),
        (("--seed", "-1"), "--seed"),
        (("--data", "nowhere.csv"), "--data: nowhere.csv"),
    ],
)
def test_errors_name_the_flag(capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], words: str) -> None:
    assert call(*SHORT, *arguments) == 2
    assert words in capsys.readouterr().err


def test_requests_larger_than_the_pool_are_explained(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "log.csv"
    file.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:00.0000000,9000,10\n")
    assert call("study", "fragmentation", "--data", str(file), "--kv-tokens", "2048") == 2
    assert "--kv-tokens: no request" in capsys.readouterr().err


def test_the_usual_granularities_are_those_that_fit(capsys: pytest.CaptureFixture[str]) -> None:
    """The smallest pool that may be asked for was refused for a granularity that nobody had asked for."""
    assert call("study", "fragmentation", "--kv-tokens", "1024", "--steps", "50", "--json") == 0
    assert {row["granularity"] for row in json.loads(capsys.readouterr().out)} == {32, 512}


def test_a_plot_needs_matplotlib(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert call(*SHORT, "--granularity", "512", "--plot", str(tmp_path / "x.svg")) == 1
    assert "pip install 'headway[sim]'" in capsys.readouterr().err
