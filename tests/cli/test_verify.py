from pathlib import Path

import pytest

from tests.cli.calling import call
from tests.compose.test_recipe import lines, recipe

Captured = pytest.CaptureFixture[str]


def written(folder: Path, content: bytes) -> str:
    (folder / "j").write_bytes(content)
    return str(folder / "j")


def test_a_journal_is_reproduced(tmp_path: Path, capsys: Captured) -> None:
    assert call("verify", written(tmp_path, b"".join(lines(recipe())))) == 0
    assert "reproduced 62 events" in capsys.readouterr().out


def test_a_last_line_that_was_cut_off_is_left_out(tmp_path: Path) -> None:
    assert call("verify", written(tmp_path, b"".join(lines(recipe()))[:-5])) == 0


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
