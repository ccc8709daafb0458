"""What `headway serve` says before it serves; serving itself is tested in tests/compose/test_end_to_end.py."""

import gc
import io
import socket
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.console import Console

from headway.cli import serve
from headway.compose.load import validate
from headway.compose.source import parse
from headway.coordinate.local import Look
from headway.coordinate.static import Entry
from tests.cli.calling import call

Captured = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")


def test_a_wrong_file_is_explained(tmp_path: Path, capsys: Captured) -> None:
    file = tmp_path / "headway.yaml"
    file.write_text("listen:\n  prot: 1\n")
    assert call("serve", "--config", str(file)) == 1
    shown = capsys.readouterr().err
    assert f'{file}: line 2: listen.prot: unknown key; did you mean "port"?' in shown
    assert "headway check" in shown


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--replica", "ftp://a"], "replicas[0].url: only http"),
        (["--replica", "http://a", "--policy", "hedroom"], 'did you mean "headroom"?'),
        (["--replica", "http://a", "--host", "0.0.0.0", "--port", "99999"], "listen.port"),
        (["--replica", "http://a", "--log-level", "loud"], "logging.level"),
        (["--replica", "http://a", "--replica", "http://a/"], "listed twice"),
        (
            ["--replica", "http://a", "--port", "7000", "--admin-port", "7000"],
            "admin.port: 7000 is the port of clients",
        ),
        (["--replica", "http://a", "--host", "nosuch.invalid", "--admin-port", "0"], "nosuch.invalid (--host)"),
    ],
)
def test_wrong_flags_are_explained(flags: list[str], words: str, capsys: Captured) -> None:
    assert call("serve", *flags) == 1
    assert words in capsys.readouterr().err


def test_an_address_without_a_scheme_is_completed(capsys: Captured) -> None:
    assert call("serve", "--replica", "http://a", "--replica", "10.0.0.1:8000") == 2
    shown = capsys.readouterr().err
    assert "--replica 10.0.0.1:8000: " in shown
    assert "-> --replica http://10.0.0.1:8000" in shown


def test_finding_nobody_says_where_it_looked_and_what_to_do(monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    async def nobody(_plan: object) -> tuple[Look, ...]:
        return (Look(8000, ("vllm",), None, "refused"), Look(11434, ("ollama",), None, "refused"))

    monkeypatch.setattr(serve, "look_around", nobody)
    assert call("serve") == 1
    shown = capsys.readouterr().err
    assert "8000 (vllm), 11434 (ollama)" in shown
    assert "--replica http://HOST:PORT" in shown
    assert "headway emulate" in shown


@pytest.mark.parametrize("taken", ["--port", "--admin-port"])
def test_a_taken_port_is_explained_and_nothing_left_open(taken: str, capsys: Captured) -> None:
    other = "--admin-port" if taken == "--port" else "--port"
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = str(server.getsockname()[1])
        assert call("serve", "--replica", "http://127.0.0.1:1", taken, port, other, "0") == 1
    gc.collect()
    shown = capsys.readouterr().err
    assert "a port is taken" in shown
    assert "Unclosed" not in shown


def test_a_journal_that_cannot_be_written_is_explained(tmp_path: Path, capsys: Captured) -> None:
    file = tmp_path / "absent" / "journal"
    assert call("serve", "--replica", "http://127.0.0.1:1", "--journal", str(file)) == 1
    gc.collect()
    shown = capsys.readouterr().err
    assert f"cannot write the journal {file}: No such file or directory" in shown
    assert "Unclosed" not in shown


def test_what_was_opened_is_shown_as_addresses_to_connect_to() -> None:
    settings = validate(parse("listen: {host: '::1, 127.0.0.1'}\nadmin: {host: '::1'}\n", "f", {}))
    plan = SimpleNamespace(settings=settings, entries=[Entry("http://[fd00::7]:8000")])
    screen = Console(width=100, record=True, file=io.StringIO())
    screen.print(serve._opened(SimpleNamespace(plan=plan, port=44325, admin_port=9)))  # type: ignore[arg-type]
    shown = screen.export_text()
    for address in ("http://[::1]:44325/v1", "http://127.0.0.1:44325/v1", "http://[::1]:9", "http://[fd00::7]:8000"):
        assert address in shown
