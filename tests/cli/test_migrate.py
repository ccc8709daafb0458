import json
import socket
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from typing import Any

import pytest

from tests.cli.calling import call

MOVE = {"result": "begun", "source": "a", "target": "b", "reason": "operator", "replayed_tokens": 70}


class Admin(BaseHTTPRequestHandler):
    """Moves r1, which takes two looks, does not move r2, refuses r3, plans r5, begins r6 and r7 in vain, and has a
    replica that empties a little with each look."""

    asked: list[tuple[str, Any]]
    left: int
    forecast: Any

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        type(self).asked.append((self.path, body))
        answers: dict[str, tuple[int, Any]] = {
            "/requests/r1/migrate": (200, {"id": "r1", "moves": [MOVE]}),
            "/requests/r2/migrate": (200, {"id": "r2", "moves": []}),
            "/requests/r3/migrate": (409, {"id": "r3", "moves": [{**MOVE, "result": "refused", "reason": "no other"}]}),
            "/requests/r5/migrate": (200, {"id": "r5", "moves": [{**MOVE, "result": "planned"}]}),
            "/requests/r6/migrate": (200, {"id": "r6", "moves": [MOVE]}),
            "/requests/r7/migrate": (200, {"id": "r7", "moves": [MOVE]}),
            "/replicas/a%2Fv1/drain": (200, {"emptying": type(self).forecast}),
            "/replicas/a%2Fv1/undrain": (200, {}),
            "/replicas/%5Bfd00%3A%3A7%5D%3A8000%2F%5B%2Fx%5D/drain": (200, {"emptying": None}),
        }
        self._answer(*answers.get(self.path, (404, {"error": {"message": "no such replica", "code": 404}})))

    def do_GET(self) -> None:
        type(self).left -= 1
        ends = {"/requests/r1/explain": "cut", "/requests/r6/explain": "abandoned"}
        if self.path.endswith("/explain"):
            result = ends.get(self.path, "begun") if type(self).left < 2 else "begun"
            reason = "operator (target: cancelled, the target was late)"
            self._answer(200, {"moves": [MOVE, {**MOVE, "result": result, "reason": reason, "took_s": 0.25}]})
            return
        view = {"spec": {"id": "a/v1"}, "in_flight": max(0, type(self).left)}
        self._answer(200, {"fleet": {"views": [view]}})

    def _answer(self, status: int, value: Any) -> None:
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@pytest.mark.parametrize(("says", "told"), [(None, "Connection refused"), (b"nonsense\n", "no HTTP")])
def test_what_is_no_admin_port_is_told_in_words(
    says: bytes | None, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]

        def speak() -> None:
            peer, _ = listener.accept()
            with peer:
                peer.recv(65536)
                peer.sendall(says or b"")

        thread = Thread(target=speak)
        if says is None:
            listener.close()
        else:
            thread.start()
        assert call("drain", "a", "--admin", f"http://127.0.0.1:{port}") == 1
        if says is not None:
            thread.join()
    said = capsys.readouterr().err
    assert "is `headway serve` running there?" in said
    assert told in said
    assert "urlopen" not in said


@pytest.fixture
def admin(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("COLUMNS", "160")
    monkeypatch.setattr("headway.cli.drain.POLL_S", 0.001)
    monkeypatch.setattr("headway.cli.migrate.POLL_S", 0.001)
    Admin.asked, Admin.left, Admin.forecast = [], 3, None
    server = HTTPServer(("127.0.0.1", 0), Admin)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_request_is_moved_where_it_is_to_go(admin: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("migrate", "r1", "--to", "b", "--admin", admin) == 0
    assert Admin.asked == [("/requests/r1/migrate", {"to": "b"})]
    assert "from a to b, 70 tokens to be read in 0.25 s" in capsys.readouterr().out
    assert Admin.left == 1, "it looked until it was known what became of it"


def test_patience_with_a_move_ends(admin: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("migrate", "r7", "--timeout-s", "0.01", "--admin", admin) == 0
    assert "from a to b, 70 tokens to be read, still under way" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("request_id", "words"),
    [
        ("r2", "does not move"), ("r3", "no other"), ("r4", "only what runs"), ("r5", "migration.dry_run is set"),
        ("r6", "stays: target: cancelled, the target was late"),
    ],
)  # fmt: skip
def test_a_request_that_stays(admin: str, request_id: str, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("migrate", request_id, "--admin", admin) == 1
    assert words in capsys.readouterr().err


def test_a_replica_is_drained_and_waited_for(admin: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("drain", "a/v1", "--wait", "--admin", admin) == 0
    assert Admin.asked == [("/replicas/a%2Fv1/drain", {})]
    assert "a/v1 is empty after" in capsys.readouterr().out


def test_a_replicas_id_is_no_markup(admin: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("drain", "[fd00::7]:8000/[/x]", "--wait", "--admin", admin) == 0
    shown = capsys.readouterr().out
    assert "[fd00::7]:8000/[/x] gets no new requests" in shown
    assert "[fd00::7]:8000/[/x] is empty after" in shown


@pytest.mark.parametrize(
    ("forecast", "words"),
    [
        (
            (18, 17, 3.5, 48.0),
            "18 requests run there, 17 can move: it should be empty in about 3.5 s; without moves in ",
        ),
        ((2, 0, 48.0, 48.0), "2 requests run there, none of which can move: it should be empty in about 48.0 s"),
        ((0, 0, 0.0, 0.0), "nothing runs there"),
    ],
)
def test_a_drain_tells_how_long_it_should_take(
    forecast: tuple[int, int, float, float], words: str, admin: str, capsys: pytest.CaptureFixture[str]
) -> None:
    names = ("requests", "movable", "moving_s", "waiting_s")
    Admin.forecast = dict(zip(names, forecast, strict=True))
    assert call("drain", "a/v1", "--wait", "--admin", admin) == 0
    said = capsys.readouterr().out
    assert words in said
    assert f"(forecast: {forecast[2]:.1f} s)" in said


def test_patience_ends(admin: str, capsys: pytest.CaptureFixture[str]) -> None:
    Admin.left = 10**6
    assert call("drain", "a/v1", "--wait", "--timeout-s", "0.01", "--admin", admin) == 1
    shown = capsys.readouterr().err
    assert "requests still run on a/v1" in shown
    assert "--undo" in shown


def test_a_drain_is_undone(admin: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("drain", "a/v1", "--undo", "--wait", "--admin", admin) == 0
    assert Admin.asked == [("/replicas/a%2Fv1/undrain", {})]
    assert "gets requests again" in capsys.readouterr().out


def test_an_unknown_replica(admin: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("drain", "b", "--admin", admin) == 1
    shown = capsys.readouterr().err
    assert "answered 404: no such replica" in shown
    assert f"curl {admin}/replicas" in shown


@pytest.mark.parametrize("address", ["127.0.0.1:1", "http://127.0.0.1:1"])
def test_no_gateway_there(address: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("drain", "a", "--admin", address) == 1
    assert "error" in capsys.readouterr().err
