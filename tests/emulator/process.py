"""Emulators as tests want them: a process on free ports, stopped by its pid; or an engine in the test's own loop."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from headway.emulator import EmulatorConfig

PROGRAM = (
    "import sys, msgspec; from headway.emulator import EmulatorConfig, serve; "
    "serve(msgspec.json.decode(sys.argv[1], type=EmulatorConfig))"
)
START_S = 20.0


class EmulatorProcess:
    """One running emulator. `url` is the API's, `control` the fault endpoint's."""

    def __init__(self, process: subprocess.Popen[bytes], ports: dict[str, int]) -> None:
        self.process = process
        self.pid = process.pid
        self.port = ports["port"]
        self.url = f"http://127.0.0.1:{ports['port']}"
        self.control = f"http://127.0.0.1:{ports['control_port']}"

    def fault(self, kind: str, **options: Any) -> None:
        """Make something go wrong."""
        call(f"{self.control}/faults", {"kind": kind, **options})

    def heal(self) -> None:
        """Undo the faults that last."""
        call(f"{self.control}/faults", method="DELETE")

    def state(self) -> dict[str, Any]:
        """What the engine holds now."""
        return dict(call(f"{self.control}/state"))

    def wait_for(self, **wanted: Any) -> dict[str, Any]:
        """Wait until the state says so; AssertionError after 5 s."""
        until = time.monotonic() + 5
        while time.monotonic() < until:
            state = self.state()
            if all(state[name] == value for name, value in wanted.items()):
                return state
            time.sleep(0.01)
        raise AssertionError(f"never {wanted}, but {state}")

    def stop(self, number: int = signal.SIGTERM, patience_s: float = 5.0) -> int:
        """Send a signal and wait; killed if it does not go. The exit code."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, number)
        try:
            return self.process.wait(patience_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()


def call(url: str, body: object = None, method: str | None = None) -> Any:
    """One small JSON exchange."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"content-type": "application/json"}, method=method)
    with urllib.request.urlopen(request, timeout=10) as answer:
        return json.loads(answer.read() or b"null")


@contextlib.contextmanager
def emulator(**settings: Any) -> Iterator[EmulatorProcess]:
    """Start an emulator on free ports (fast by default), and stop it at the end."""
    defaults = {"port": 0, "control_port": 0, "time_scale": 20.0, "exit_with_parent": True, "max_model_len": 4096}
    with tempfile.TemporaryDirectory() as folder:
        ready = Path(folder) / "ready.json"
        config = EmulatorConfig(**{**defaults, **settings, "ready_file": str(ready)})
        process = subprocess.Popen([sys.executable, "-c", PROGRAM, msgspec.json.encode(config).decode()])
        running = None
        try:
            running = EmulatorProcess(process, wait_for_ports(process, ready))
            yield running
        finally:
            running.stop() if running else process.kill()
            process.wait()


def wait_for_ports(process: subprocess.Popen[bytes], ready: Path) -> dict[str, int]:
    """The ports, once the process listens."""
    until = time.monotonic() + START_S
    while time.monotonic() < until:
        if ready.exists():
            return dict(json.loads(ready.read_bytes()))
        assert process.poll() is None, f"the emulator ended with {process.returncode}"
        time.sleep(0.01)
    process.kill()
    raise AssertionError("the emulator did not start")
