"""`headway serve` in a process of its own, as a user runs it, with its admin port to look at."""

import json
import signal
import subprocess
import sys
import time
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.real.engines import free_port

EXECUTABLE = Path(sys.executable).with_name("headway")
SETTINGS = """\
listen: {{port: {port}}}
admin: {{port: {admin}}}
replicas: {replicas}
brain: {{health: {{slow_start_s: 1.0, open_max_s: 2.0}}}}  # the defaults are too long to wait for after each death
"""


@dataclass
class Headway:
    """A running gateway in front of some replicas."""

    replicas: list[str]
    log: Path
    port: int = field(default_factory=free_port)
    admin_port: int = field(default_factory=free_port)
    process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    @property
    def base_url(self) -> str:
        """What an OpenAI client is given."""
        return f"http://127.0.0.1:{self.port}/v1"

    def start(self) -> None:
        """Start it, without waiting."""
        settings = self.log.with_name("headway.yaml")
        settings.write_text(SETTINGS.format(port=self.port, admin=self.admin_port, replicas=json.dumps(self.replicas)))
        command = [str(EXECUTABLE), "serve", "--config", str(settings)]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log)

    def admin(self, path: str) -> Any:
        """A JSON answer of the admin API."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.admin_port}{path}", timeout=5) as answer:
            return json.load(answer)

    def views(self) -> list[dict[str, Any]]:
        """Every replica as the brain sees it."""
        views: list[dict[str, Any]] = self.admin("/fleet")["fleet"]["views"]
        return views

    def wait_until_usable(self, replicas: int, within_s: float = 30.0) -> None:
        """Return when so many replicas are registered, healthy, warm and freshly sampled."""
        deadline = time.monotonic() + within_s
        while time.monotonic() < deadline:
            assert self.process is not None
            assert self.process.poll() is None, self.log.read_text()
            try:
                views = self.views()
            except OSError:
                views = []
            if len(views) == replicas and all(_usable(view) for view in views):
                return
            time.sleep(0.05)
        raise AssertionError(f"not usable: {[(v['spec']['id'], v['breaker'], v['stale']) for v in self.views()]}")

    def accounts(self) -> dict[str, int]:
        """The requests of the process by how they ended, once none runs any more; `started` is their sum."""
        deadline = time.monotonic() + 10.0
        while time.monotonic() < deadline:
            fleet = self.admin("/fleet")
            requests: dict[str, int] = fleet["requests"]
            if requests["started"] == sum(count for kind, count in requests.items() if kind != "started"):
                snapshot = fleet["fleet"]
                assert snapshot["in_flight"] == snapshot["queued"] == 0
                assert all(view["in_flight"] == 0 and view["reserved_tokens"] == 0 for view in snapshot["views"])
                return requests
            time.sleep(0.02)
        raise AssertionError(f"the accounts do not balance: {self.admin('/fleet')['requests']}")

    def stop(self) -> int:
        """SIGTERM, and the exit status."""
        if self.process is None:
            return 0
        self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(40)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()


def _usable(view: dict[str, Any]) -> bool:
    return (
        view["breaker"] == "closed" and not view["stale"] and view["sample"] is not None and view["slow_start"] >= 1.0
    )
