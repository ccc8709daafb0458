from pathlib import Path

import pytest

from headway.compose.journal import JournalWriter
from headway.compose.registry import find
from tests.cli.calling import call
from tests.compose.test_recipe import events, lines, recipe

Captured = pytest.CaptureFixture[str]


def written(folder: Path, content: bytes) -> str:
    (folder / "j").write_bytes(content)
    return str(folder / "j")


def test_a_journal_is_reproduced(tmp_path: Path, capsys: Captured) -> None:
    assert call("verify", written(tmp_path, b"".join(lines(recipe())))) == 0
    assert "reproduced 62 events" in capsys.readouterr().out


@pytest.mark.parametrize(("cut", "events", "told"), [(0, 62, False), (1, 62, False), (2, 61, True), (5, 61, True)])
def test_a_last_line_that_was_cut_off_is_left_out_and_told(
    tmp_path: Path, capsys: Captured, cut: int, events: int, told: bool
) -> None:
    journal = b"".join(lines(recipe()))
    assert call("verify", written(tmp_path, journal[: len(journal) - cut])) == 0
    shown = capsys.readouterr().out
    assert f"reproduced {events} events" in shown
    assert ("the last line is cut off" in shown) is told


def test_lines_that_are_missing_are_told(tmp_path: Path, capsys: Captured) -> None:
    writer = JournalWriter(tmp_path / "j", recipe().header())
    brain = recipe().brain(find())
    for event in events():
        writer(event, brain.handle(event))
    writer.close()
    assert call("verify", str(tmp_path / "j")) == 0
    whole = (tmp_path / "j").read_bytes().splitlines(keepends=True)
    assert call("verify", written(tmp_path, b"".join(whole[:-3] + whole[-2:]))) == 1
    assert f"line {len(whole) - 2}: here should be entry 60 and is 61" in capsys.readouterr().err


def test_the_first_difference_is_shown(tmp_path: Path, capsys: Captured) -> None:
    content = b"".join(lines(recipe())).replace(b'"chosen":"a"', b'"chosen":"z"', 1)
    assert call("verify", written(tmp_path, content)) == 1
    shown = capsys.readouterr().err
    assert "--- recorded" in shown
    assert '"chosen": "z"' in shown
    assert "RequestArrived" in shown


@pytest.mark.parametrize("content", [b"", b"hello\n", b'{"version":99}\n', b"\x00" * 100])
def test_what_is_no_journal_is_refused(tmp_path: Path, capsys: Captured, content: bytes) -> None:
    assert call("verify", written(tmp_path, content)) == 1
    assert "error" in capsys.readouterr().err


def test_a_file_that_is_not_there(tmp_path: Path, capsys: Captured) -> None:
    assert call("verify", str(tmp_path / "absent")) == 1
    assert "No such file" in capsys.readouterr().err
