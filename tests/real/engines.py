"""Real engines in processes of their own, as the suite sees them: two alike, which can be killed and started again.

What differs between engines is in the launchers (`llama`, `vllm`); tests know only this module.
"""

import os
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path

from headway.core.ids import ReplicaId
from headway.core.replica import LoadSample
from headway.engines.base import Dialect


@dataclass
class Launcher:
    """How to start one kind of engine. `{port}` in the command is replaced. `slots` requests run at once.

    `long_tokens` take some seconds to generate. `go_on` is added to bodies of generations that must not end
    before their limit. `hears_plain_leave`: the engine stops a plain generation when its connection closes (all do
    for streams). `leave_s`: how soon it stops, on a busy machine.
    """

    dialect: Dialect
    model: str
    command: list[str]
    environment: dict[str, str]
    slots: int
    context_tokens: int
    start_s: float
    long_tokens: int = 6000
    go_on: dict[str, object] = field(default_factory=dict)
    hears_plain_leave: bool = True
    leave_s: float = 5.0


@dataclass
class Engine:
    """One engine process."""

    launcher: Launcher
    port: int
    log: Path
    process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def alive(self) -> bool:
        """Whether its process runs."""
        return self.process is not None and self.process.poll() is None

    def start(self) -> None:
        """Start it, without waiting for it; whatever is left of an earlier one is killed."""
        self.kill()
        command = [part.format(port=self.port) for part in self.launcher.command]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                env={**os.environ, **self.launcher.environment},
                start_new_session=True,
            )

    def wait_until_healthy(self) -> None:
        """Return when it answers its health path with 200; fail with the end of its log if it does not."""
        deadline = time.monotonic() + self.launcher.start_s
        while time.monotonic() < deadline and self.alive:
            if self.get(self.launcher.dialect.health_path) is not None:
                return
            time.sleep(0.02)
        raise AssertionError(f"{self.url} did not start: {self.log.read_text(errors='replace')[-2000:]}")

    def kill(self) -> None:
        """kill -9, its children included, and reap it."""
        if self.process is None:
            return
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()
        if self.process.stdin is not None:
            self.process.stdin.close()

    def get(self, path: str) -> bytes | None:
        """The body of a 200, else None."""
        try:
            with urllib.request.urlopen(self.url + path, timeout=30) as answer:
                return bytes(answer.read())
        except (urllib.error.URLError, OSError):
            return None

    def post(self, path: str) -> None:
        """Tell it to do something; it must answer 200."""
        request = urllib.request.Request(self.url + path, data=b"{}", method="POST")
        with urllib.request.urlopen(request, timeout=30) as answer:
            assert answer.status == 200

    def load(self) -> LoadSample:
        """Its own load report, now."""
        dialect = self.launcher.dialect
        answers = {poll.path: body for poll in dialect.polls if (body := self.get(poll.path)) is not None}
        return dialect.read(answers, ReplicaId("direct"), self.launcher.model, 0.0, 1).sample

    def wait_until_running(self, running: int, within_s: float = 15.0) -> float:
        """Seconds until so many requests run there; fails if they do not in time."""
        began = time.monotonic()
        while time.monotonic() - began < within_s:
            if self.load().running == running:
                return time.monotonic() - began
            time.sleep(0.01)
        raise AssertionError(f"{self.load().running} requests run at {self.url}, not {running}")


@dataclass
class EnginePair:
    """Two engines of one kind and model."""

    launcher: Launcher
    engines: list[Engine]

    @classmethod
    def make(cls, launcher: Launcher, folder: Path) -> "EnginePair":
        """Two engines on free ports, not started yet."""
        return cls(launcher, [Engine(launcher, free_port(), folder / f"engine-{n}.log") for n in range(2)])

    def revive(self) -> None:
        """Start those that do not run, and wait until both are healthy."""
        for engine in self.engines:
            if not engine.alive:
                engine.start()
        for engine in self.engines:
            engine.wait_until_healthy()

    def end(self) -> None:
        """Kill both."""
        for engine in self.engines:
            engine.kill()

    def wait_until_idle(self, within_s: float = 60.0) -> None:
        """Return when nothing runs on either."""
        for engine in self.engines:
            if engine.alive:
                engine.wait_until_running(0, within_s)


def free_port() -> int:
    """A port of loopback that nobody uses at the moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
