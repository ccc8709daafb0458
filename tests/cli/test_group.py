import os
import re
import subprocess
import sys

import pytest

from headway import __version__
from headway.cli import COMMANDS, load
from tests.cli.calling import call
from tests.interpreted import COMPILED

HEAVY = ("pydantic", "aiohttp", "numpy", "starlette", "uvloop", "headway.gateway", "headway.core", "headway.compose")


def test_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("--help") == 0
    shown = capsys.readouterr().out
    for name in COMMANDS:
        assert name in shown


def test_help_is_quick_because_it_imports_no_room() -> None:
    code = (
        "import sys\nfrom tests.cli.calling import call\ncall('--help')\n"
        f"print([m for m in {HEAVY!r} if m in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=True)
    assert done.stderr.strip() == "[]"


@pytest.mark.slow
@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize("columns", ["80", "100", "120"])
def test_help_cuts_no_flag(
    name: str, columns: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    assert call(name, "--help") == 0
    shown = capsys.readouterr().out
    assert "--help" in shown
    assert not re.findall(r"--[\w-]*…", shown)


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("--version") == 0
    form = "compiled" if COMPILED else "pure Python"
    assert capsys.readouterr().out == f"headway {__version__} ({form})\n"


def test_without_arguments_help_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert call() == 2
    captured = capsys.readouterr()
    assert "serve" in captured.out + captured.err


def test_an_unknown_command_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("srve") == 2
    assert "srve" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_can_be_loaded(name: str) -> None:
    command = load(name)
    assert command.name == name
    for parameter in command.params:
        assert getattr(parameter, "help", None), f"{name} {parameter.name} is not described"


def test_closed_standard_streams_do_not_give_their_numbers_to_sockets() -> None:
    reading, writing = os.pipe()
    code = (
        "import os, socket\nfrom headway.cli import hold_standard_descriptors\nhold_standard_descriptors()\n"
        "assert socket.socket().fileno() > 2\n"
        f"os.write({writing}, b'held')"
    )
    try:
        subprocess.run(
            ["sh", "-c", 'exec "$0" -c "$1" <&- >&- 2>&-', sys.executable, code],
            pass_fds=(writing,),
            timeout=30,
            check=True,
        )
        assert os.read(reading, 10) == b"held"
    finally:
        for descriptor in (reading, writing):
            os.close(descriptor)
