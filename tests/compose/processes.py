"""`headway` commands as processes of their own, for end-to-end tests. Every process is ended by whoever started it."""

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

START_S = 30.0


class Process:
    """One running command; `ports` is what it wrote into its ready file."""

    def __init__(self, folder: Path, name: str, *arguments: str, environ: dict[str, str] | None = None) -> None:
        self.ready_file = folder / f"{name}.ready"
        self.log = folder / f"{name}.log"
        with self.log.open("wb") as output:
            self.popen = subprocess.Popen(
                [sys.executable, "-m", "headway", *arguments, "--ready-file", str(self.ready_file)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, **(environ or {})},
            )

    @property
    def ports(self) -> dict[str, int]:
        def written() -> bool:
            assert self.popen.poll() is None, self.log.read_text()
            return self.ready_file.exists()

        until(written, START_S)
        ports: dict[str, int] = json.loads(self.ready_file.read_text())
        return ports

    def url(self, port: str = "port") -> str:
        return f"http://127.0.0.1:{self.ports[port]}"

    def stop(self, number: signal.Signals = signal.SIGTERM, wait_s: float = 10.0) -> int:
        self.popen.send_signal(number)
        return self.popen.wait(wait_s)

    def end(self) -> None:
        if self.popen.poll() is None:
            self.popen.kill()
        self.popen.wait(10)


@contextmanager
def running(folder: Path, name: str, *arguments: str, environ: dict[str, str] | None = None) -> Iterator[Process]:
    """Start a command and make sure that it is gone afterwards."""
    process = Process(folder, name, *arguments, environ=environ)
    try:
        yield process
    finally:
        process.end()


def until(condition: Callable[[], Any], seconds: float = 10.0) -> None:
    """Wait for a condition."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "did not happen in time"
        time.sleep(0.02)


def get(url: str, method: str = "GET", body: Any = None, headers: dict[str, str] | None = None) -> tuple[int, Any]:
    """Status and decoded body of an exchange; bytes if it is no JSON."""
    data = json.dumps(body).encode() if body is not None else None
    request = urllib.request.Request(url, data=data, method=method, headers=headers or {})
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            status, content = answer.status, answer.read()
    except urllib.error.HTTPError as error:
        status, content = error.code, error.read()
    try:
        return status, json.loads(content)
    except ValueError:
        return status, content


def command(*arguments: str, environ: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    return subprocess.run(
        [sys.executable, "-m", "headway", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        stdin=subprocess.DEVNULL,
        env={**os.environ, "COLUMNS": "200", **(environ or {})},
    )
