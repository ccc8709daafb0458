"""F19: no file descriptors, a full disk for logs, closed streams: health answers, no busy loop, recovery by itself."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.compose.processes import get, until

pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform != "linux", reason="reads /proc, uses /dev/full")]

TICKS = os.sysconf("SC_CLK_TCK")


class Serve:
    """`headway serve` started by a shell, so that limits and streams can be spoilt first."""

    def __init__(self, folder: Path, script: str) -> None:
        self.ready = folder / "ready"
        flags = "--replica http://127.0.0.1:1 --port 0 --admin-port 0"
        line = script.replace("SERVE", f"exec {sys.executable} -m headway serve {flags} --ready-file {self.ready}")
        self.popen = subprocess.Popen(["sh", "-c", line], stdin=subprocess.DEVNULL)

    def ports(self) -> dict[str, int]:
        until(self.ready.exists, 20)
        ports: dict[str, int] = json.loads(self.ready.read_text())
        return ports

    def cpu_s(self) -> float:
        fields = Path(f"/proc/{self.popen.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS


@contextmanager
def serving(folder: Path, script: str) -> Iterator[Serve]:
    serve = Serve(folder, script)
    try:
        yield serve
    finally:
        serve.popen.kill()
        serve.popen.wait(10)


@pytest.mark.parametrize("script", ["SERVE 2>/dev/full", "SERVE 2>&-", "SERVE >&- 2>&- <&-"])
def test_spoilt_streams_change_nothing(tmp_path: Path, script: str) -> None:
    with serving(tmp_path, script) as serve:
        _use(serve.ports())
        serve.popen.terminate()
        assert serve.popen.wait(10) == 0


def test_a_reader_that_went_away_changes_nothing(tmp_path: Path) -> None:
    with serving(tmp_path, "SERVE 2>&1 | head -c 1 >/dev/null; sleep 30") as serve:
        ports = serve.ports()
        _use(ports)
        os.kill(ports["pid"], signal.SIGTERM)
        until(lambda: not Path(f"/proc/{ports['pid']}").exists())


def _use(ports: dict[str, int]) -> None:
    for number in range(20):
        assert get(f"http://127.0.0.1:{ports['port']}/v1/models", headers={"x-request-id": f"n{number}"})[0] == 200
    assert get(f"http://127.0.0.1:{ports['admin_port']}/healthz")[0] == 200


def test_no_file_descriptors_left(tmp_path: Path) -> None:
    with serving(tmp_path, "ulimit -n 64; SERVE 2>/dev/null") as serve:
        ports = serve.ports()
        address = ("127.0.0.1", ports["port"])
        hogs = [socket.create_connection(address) for _ in range(100)]
        time.sleep(0.3)
        before = serve.cpu_s()
        time.sleep(1.0)
        assert serve.cpu_s() - before < 0.4, "a busy loop"
        assert get(f"http://127.0.0.1:{ports['admin_port']}/healthz")[0] == 200
        for hog in hogs:
            hog.close()
        until(lambda: get(f"http://127.0.0.1:{ports['admin_port']}/healthz")[0] == 200, 5)
        assert get(f"http://127.0.0.1:{ports['port']}/v1/models")[0] == 200


@pytest.mark.parametrize("command", ["serve --replica http://127.0.0.1:1 --admin-port 0", "emulate"])
def test_a_ready_file_that_cannot_be_written_is_named_and_nothing_is_left_open(command: str, tmp_path: Path) -> None:
    ready = tmp_path / "nowhere" / "ready"
    line = [sys.executable, "-m", "headway", *command.split(), "--port", "0", "--ready-file", str(ready)]
    ended = subprocess.run(line, capture_output=True, text=True, timeout=30, check=False)
    assert ended.returncode == 1
    assert f"cannot write {ready}" in ended.stderr.replace("\n", "")
    assert "Unclosed" not in ended.stderr
    assert "Traceback" not in ended.stderr
