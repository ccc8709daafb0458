"""`headway serve` in a process of its own, as a user runs it, with its admin port to look at."""

import json
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.real.engines import EnginePair, free_port

PATIENCE_S = 30.0  # processes were seen to wait 10 s for a processor where engines and others compete for two
EXECUTABLE = Path(sys.executable).with_name("headway")
SETTINGS = """\
listen: {{port: {port}}}
admin: {{port: {admin}}}
replicas: {replicas}
brain: {{health: {{slow_start_s: 1.0, open_max_s: 2.0}}}}  # the defaults are too long to wait for after each death
"""


@dataclass
class Headway:
    """A running gateway in front of some replicas. `more`: lines added to its settings; `kv_domain`: they share one."""

    replicas: list[str]
    log: Path
    more: str = ""
    kv_domain: str = ""
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
        replicas = [{"url": url, "kv_domain": self.kv_domain} for url in self.replicas]
        text = SETTINGS.format(port=self.port, admin=self.admin_port, replicas=json.dumps(replicas))
        settings.write_text(text + self.more)
        command = [str(EXECUTABLE), "serve", "--config", str(settings)]
        with self.log.open("ab") as log:
            # a session of its own, like the engines': Linux shares the processor fairly among sessions first
            self.process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)

    def admin(self, path: str, method: str = "GET") -> Any:
        """A JSON answer of the admin API."""
        return json.loads(self._admin(path, method))

    def metric(self, name: str, **labels: str) -> float:
        """The sum of a metric's series that carry these labels."""
        page = self._admin("/metrics").decode()
        wanted = [f'{label}="{value}"' for label, value in labels.items()]
        series = [line.rpartition(" ") for line in page.splitlines() if line.startswith((name + "{", name + " "))]
        return sum(float(value) for labelled, _, value in series if all(pair in labelled for pair in wanted))

    @contextmanager
    def only(self, url: str) -> Iterator[None]:
        """Within the block new requests go to this replica alone: the others drain."""
        others = [replica.removeprefix("http://") for replica in self.replicas if replica != url]
        try:
            for other in others:
                self.admin(f"/replicas/{other}/drain", "POST")
            yield
        finally:
            for other in others:
                self.admin(f"/replicas/{other}/undrain", "POST")

    def view(self, url: str) -> dict[str, Any]:
        """One replica as the brain sees it."""
        return next(view for view in self.views() if view["spec"]["url"] == url)

    def wait_for(self, true: Callable[[], bool], within_s: float = PATIENCE_S) -> float:
        """Seconds until something holds; fails, with every view, if it does not in time."""
        began = time.monotonic()
        while time.monotonic() - began < within_s:
            if true():
                return time.monotonic() - began
            time.sleep(0.02)
        raise AssertionError(f"not within {within_s} s: {self.views()}")

    def _admin(self, path: str, method: str = "GET") -> bytes:
        request = urllib.request.Request(f"http://127.0.0.1:{self.admin_port}{path}", method=method)
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
            return bytes(answer.read())

    def views(self) -> list[dict[str, Any]]:
        """Every replica as the brain sees it."""
        views: list[dict[str, Any]] = self.admin("/fleet")["fleet"]["views"]
        return views

    def wait_until_usable(self, replicas: int, within_s: float = 2 * PATIENCE_S) -> None:
        """Return when so many replicas are registered, healthy, awake, warm and freshly sampled."""
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
        deadline = time.monotonic() + PATIENCE_S
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


@contextmanager
def serving(pair: EnginePair, folder: Path) -> Iterator[Headway]:
    """Both engines and a gateway in front of them, started; all ended afterwards."""
    try:
        pair.revive()
        headway = Headway([engine.url for engine in pair.engines], folder / "log")
        headway.start()
        try:
            yield headway
        finally:
            status = headway.stop()
        assert status == 0, headway.log.read_text()[-2000:]
    finally:
        pair.end()


def _usable(view: dict[str, Any]) -> bool:
    idle_for_a_reason = view["stale"] or view["sleeping"] or view["draining"] or view["slow_start"] < 1.0
    return view["breaker"] == "closed" and view["sample"] is not None and not idle_for_a_reason
