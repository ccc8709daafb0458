import io
import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread

import msgspec
import pytest
from rich.console import Console

from headway.cli import explain
from headway.core.outcome import OutcomeKind
from headway.core.snapshot import shown
from headway.telemetry import DecisionLog
from tests.cli.calling import call
from tests.telemetry.values import decision, settled

TOKEN = "a-token"


class Admin(BaseHTTPRequestHandler):
    """Knows one request, and a token."""

    def do_GET(self) -> None:
        log = DecisionLog()
        log.decided(msgspec.structs.replace(decision("r1", exclusions={"breaker": 2}), pinned="seed"))
        log.settled(settled("r1", kind=OutcomeKind.OK))
        log.decided(msgspec.structs.replace(decision("r1", "b", 2), kept=True))
        known = self.path == "/requests/r1/explain"
        status = 401 if self.headers["authorization"] != f"Bearer {TOKEN}" else 200 if known else 404
        body = msgspec.json.encode(log.explain("r1"), enc_hook=shown) if status == 200 else b"{}"
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@pytest.fixture
def admin(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("COLUMNS", "160")
    monkeypatch.setenv("HEADWAY_ADMIN_TOKEN", TOKEN)
    server = HTTPServer(("127.0.0.1", 0), Admin)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_shows_every_attempt(admin: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("explain", "r1", "--admin", admin) == 0
    shown = capsys.readouterr().out
    for part in (
        "attempt 1",
        "attempt 2",
        "ttft",
        "output class",
        "the lowest cost is chosen",
        "its session keeps to it",
        "5,000",
        "excluded: 2 breaker",
        "ok 200",
        "still in flight",
        "it stays where it is sent: seed",
    ):
        assert part in shown


def test_addresses_are_whole_in_an_ordinary_terminal(admin: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(explain, "out", wide := Console(width=80, record=True, file=io.StringIO()))
    costs = (0.123456, 0.01, 0.2, 0.00312, 0.0, 12.5)
    replica = "10.0.0.11:30000"
    candidate = {"replica_id": replica, "costs": costs, "headroom_tokens": 123_456.7, "sample_age_s": 0.1}
    parts = ["ttft", "dec", "ext", "mem", "unc"]
    explain._show(
        {
            "request_id": "r", "attempt": 0, "policy": "headroom", "parts": parts, "candidates": [candidate] * 2,
            "chosen": replica, "exclusions": {}, "queued_s": 0.0,
            "forecast": {"prompt_tokens": 1, "cached_tokens": 0, "output_tokens": 2.5, "ttft_s": 0.1},
        },
        None,
    )  # fmt: skip
    shown = wide.export_text()
    assert shown.count(replica) == 2
    assert "0.00312" in shown
    assert "123,457" in shown


def test_ids_and_reasons_are_no_markup(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(explain, "out", wide := Console(width=160, record=True, file=io.StringIO()))
    replica, name = "[fd00::7]:8000", "[/red]x"
    candidate = {"replica_id": replica, "costs": (0.5, 0.1), "headroom_tokens": 1.0, "sample_age_s": 0.1}
    explain._show(
        {
            "request_id": name, "attempt": 0, "policy": "[p]", "parts": ["[q]"], "candidates": [candidate],
            "chosen": "", "exclusions": {"[/r]": 2}, "queued_s": 0.0,
            "forecast": {
                "prompt_tokens": 1, "cached_tokens": 0, "output_tokens": 2.5, "ttft_s": 0.1, "output_class": "[c]",
            },
        },
        None,
    )  # fmt: skip
    move = {"result": "[e]", "source": replica, "target": "[::1]:9", "reason": "[/w]", "replayed_tokens": 1,
            "took_s": 0.0, "benefit_s": 0.0, "cost_s": 0.0}  # fmt: skip
    explain._show_moves([move], [])
    shown = wide.export_text()
    for part in (replica, name, "policy [p]", "[q]", "2 [/r]", "[c]", "[e]", "[::1]:9", "[/w]"):
        assert part in shown


def test_json(admin: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("explain", "r1", "--admin", admin, "--json") == 0
    assert json.loads(capsys.readouterr().out)["request_id"] == "r1"


def test_moves_are_whole_in_an_ordinary_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(explain, "out", wide := Console(width=80, record=True, file=io.StringIO()))
    begun = {
        "result": "begun", "source": "10.0.0.11:30000", "target": "10.0.0.12:30000", "reason": "operator",
        "replayed_tokens": 1234, "took_s": 0.0, "benefit_s": 0.0, "cost_s": 0.0,
    }  # fmt: skip
    explain._show_moves([begun, {**begun, "result": "abandoned", "target": "", "took_s": 0.329}], [])
    shown = wide.export_text()
    for part in ("10.0.0.11:30000", "10.0.0.12:30000", "the queue", "abandoned", "1,234", "0.329"):
        assert part in shown
    assert "benefit" not in shown  # nobody weighed a move that was asked for
    late = {"attempt_id": "r-1", "replica_id": "b", "outcome": {"kind": "cancelled", "detail": "the target was late"}}
    explain._show_moves([{**begun, "benefit_s": 2.5}], [late])
    assert "r-1 at b: cancelled, the target was late" in wide.export_text(clear=False)
    assert "2.5" in wide.export_text()


def test_unknown_requests_and_wrong_tokens(
    admin: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert call("explain", "r/2", "--admin", admin) == 1
    shown = capsys.readouterr().err
    assert "answered 404\n" in shown  # its body is no error of ours, so there is nothing to repeat
    assert f"curl {admin}/requests" in shown
    monkeypatch.setenv("HEADWAY_ADMIN_TOKEN", "")
    assert call("explain", "r1", "--admin", admin) == 1
    assert "set HEADWAY_ADMIN_TOKEN" in capsys.readouterr().err


def test_nobody_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("explain", "r1", "--admin", "http://127.0.0.1:1") == 1
    assert "is `headway serve` running there?" in capsys.readouterr().err
    assert call("explain", "r1", "--admin", "file:///etc") == 1
    assert "no http address" in capsys.readouterr().err
