"""F16: two gateways behind haproxy, restarted one after the other under load: no client notices.

Whoever restarts them must wait for the balancer in front, not only for the gateway: a check that comes late (on a busy
machine it may take longer than the interval) would leave it with nobody. So must its checks have time to be answered.
"""

import asyncio
import json
import os
import shutil
import signal
import subprocess
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.cases.house import gather_bounded, rounds, until
from tests.cases.served import free_port, process_case
from tests.compose.processes import Process
from tests.harness import scripts
from tests.harness.client import RawClient, chat
from tests.harness.engine import ScriptedEngine

HAPROXY = shutil.which("haproxy", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
GRACE_S = 0.5
CONFIG = """
defaults
  mode http
  timeout connect 2s
  timeout client 30s
  timeout server 30s
  timeout check 2s
  option redispatch
frontend clients
  bind 127.0.0.1:{port}
  default_backend gateways
backend gateways
  option httpchk
  http-check send meth GET uri /readyz ver HTTP/1.1 hdr Host localhost
  default-server check inter 100ms fastinter 50ms downinter 100ms fall 1 rise 1
  server a 127.0.0.1:{a[0]} check port {a[1]}
  server b 127.0.0.1:{b[0]} check port {b[1]}
listen seen
  bind 127.0.0.1:{seen}
  stats enable
  stats uri /
"""


class Gateways:
    """Two gateways on fixed ports, and haproxy in front of them."""

    def __init__(self, folder: Path, engine: ScriptedEngine) -> None:
        self._folder = folder
        self._engine = engine
        self._processes: dict[str, Process] = {}
        self.ports = {name: (free_port(), free_port()) for name in ("a", "b")}
        self.port, self.seen = free_port(), free_port()

    def start(self, name: str) -> Process:
        """Start one, the settings are the same each time."""
        listen, admin = self.ports[name]
        settings: dict[str, Any] = {
            "listen": {"port": listen},
            "admin": {"port": admin},
            "timeouts": {"drain_s": 10, "drain_grace_s": GRACE_S},
            "replicas": [{"url": self._engine.url, "engine": "vllm", "model": "m"}],
        }
        file = self._folder / f"{name}.yaml"
        file.write_text(json.dumps(settings))
        (self._folder / f"{name}.ready").unlink(missing_ok=True)
        self._processes[name] = Process(self._folder, name, "serve", "--config", str(file))
        return self._processes[name]

    async def ready(self, name: str) -> None:
        """Wait until it has a replica in use."""
        await asyncio.to_thread(lambda: self._processes[name].ports)

        async def usable() -> bool:
            async with RawClient(self.ports[name][1]) as client:
                answer = await client.ask("/fleet", None, method="GET", headers={"Host": "localhost"})
            return [view["breaker"] for view in answer.json["fleet"]["views"]] == ["closed"]

        async with asyncio.timeout(20):
            while not await usable():  # noqa: ASYNC110
                await asyncio.sleep(0.05)

    async def up(self, name: str) -> None:
        """Wait until haproxy sends it clients."""

        async def seen() -> bool:
            async with RawClient(self.seen) as client:
                rows = (await client.ask("/;csv", None, method="GET")).body.decode().splitlines()
            return any(row.startswith(f"gateways,{name},") and ",UP," in row for row in rows)

        async with asyncio.timeout(20):
            while not await seen():  # noqa: ASYNC110
                await asyncio.sleep(0.05)

    async def restart(self, name: str) -> None:
        """SIGTERM, its end, and a new one."""
        process = self._processes[name]
        process.popen.send_signal(signal.SIGTERM)
        await until(lambda: process.popen.poll() is not None, 15.0)
        assert process.popen.returncode == 0
        self.start(name)
        await self.ready(name)
        await self.up(name)

    def end(self) -> None:
        """End them all."""
        for process in self._processes.values():
            process.end()


@asynccontextmanager
async def behind_haproxy(folder: Path) -> AsyncIterator[Gateways]:
    """Everything up and running."""
    assert HAPROXY is not None
    engine = ScriptedEngine(scripts.answer(), scripts.vllm_paths())
    await engine.start()
    gateways = Gateways(folder, engine)
    config = folder / "haproxy.cfg"
    config.write_text(CONFIG.format(port=gateways.port, seen=gateways.seen, **gateways.ports))
    try:
        for name in gateways.ports:
            gateways.start(name)
        for name in gateways.ports:
            await gateways.ready(name)
        quiet = subprocess.DEVNULL
        front = subprocess.Popen([HAPROXY, "-db", "-f", str(config)], stdout=quiet, stderr=quiet)  # noqa: ASYNC220
        try:
            await asyncio.sleep(0.5)  # until it listens; all count as up before their first checks
            for name in gateways.ports:
                await gateways.up(name)
            yield gateways
        finally:
            front.kill()
            front.wait(10)
    finally:
        gateways.end()
        await engine.stop()


@pytest.mark.slow
@pytest.mark.skipif(HAPROXY is None, reason="needs haproxy")
@process_case
async def test_a_rolling_restart_is_not_noticed(folder: Path) -> None:
    async with behind_haproxy(folder) as gateways:

        async def ask() -> str:
            async with RawClient(gateways.port) as client:
                answer = await client.ask(body=chat())
            return "" if answer.status == 200 else f"{answer.status} {answer.body[:200]!r}"

        async def restart_both() -> None:
            for name in gateways.ports:
                await gateways.restart(name)

        rolling = asyncio.ensure_future(restart_both())
        troubles: list[str] = []
        while not rolling.done() or len(troubles) < rounds(10_000, 500):
            troubles += await gather_bounded(8, [ask() for _ in range(100)])
        await rolling
    assert set(troubles) == {""}, Counter(troubles)
