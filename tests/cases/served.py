"""Headway put together by its own wiring, before scripted engines: as a process (`headway serve`), for memory, files
and signals; or within the test (`open_app`), with sources, observation and admin port.

What lives here: starting it, looking at it from outside, and its books at the end. Bare gateways are `house`'s.
"""

import asyncio
import functools
import inspect
import json
import os
import signal
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from headway.compose.build import App, build_gateway
from headway.compose.settings import Settings
from tests.cases.house import until
from tests.compose.processes import Process, running
from tests.harness import accounts, scripts
from tests.harness.client import Answer, RawClient
from tests.harness.engine import Script, ScriptedEngine

TICKS = os.sysconf("SC_CLK_TCK")


class Served:
    """A running `headway serve`. `engines[0]`, `[1]` ... are its replicas; all of them serve the model `m`."""

    def __init__(self, process: Process, engines: list[ScriptedEngine]) -> None:
        self.process = process
        self.engines = engines
        self.port = 0
        self.admin_port = 0
        self.admin_token = ""

    @property
    def engine(self) -> ScriptedEngine:
        """The first engine."""
        return self.engines[0]

    @property
    def alive(self) -> bool:
        """Whether the process runs."""
        return self.process.popen.poll() is None

    def client(self) -> RawClient:
        """A fresh connection to the data port, to be entered."""
        return RawClient(self.port)

    async def ask(self, body: object, path: str = "/v1/chat/completions", **options: Any) -> Answer:
        """One request on a connection of its own."""
        async with self.client() as client:
            return await client.ask(path, body, **options)

    async def admin(self, path: str, method: str = "GET", body: object = None) -> Answer:
        """One request to the admin port."""
        async with RawClient(self.admin_port) as client:
            owner = {"Authorization": f"Bearer {self.admin_token}"} if self.admin_token else {}
            return await client.ask(path, body, method=method, headers={"Host": "localhost", **owner})

    async def page(self) -> bytes:
        """The metrics page."""
        return (await self.admin("/metrics")).body

    async def views(self) -> list[dict[str, Any]]:
        """Every replica as the brain sees it."""
        views: list[dict[str, Any]] = (await self.admin("/fleet")).json["fleet"]["views"]
        return views

    async def usable(self, replicas: int, seconds: float = 15.0) -> None:
        """Wait until so many replicas are in rotation."""
        async with asyncio.timeout(seconds):
            while [view["breaker"] for view in await self.views()].count("closed") != replicas:  # noqa: ASYNC110
                await asyncio.sleep(0.02)

    def memory_bytes(self, peak: bool = False) -> int:
        """Resident memory, now or at its highest."""
        return self._status("VmHWM" if peak else "VmRSS") * 1024

    def cpu_s(self) -> float:
        """CPU time used so far."""
        fields = self._proc("stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    def files(self) -> int:
        """Open file descriptors."""
        return len(list(self._proc("fd").iterdir()))

    def signal(self, number: signal.Signals = signal.SIGTERM) -> None:
        """Send a signal."""
        self.process.popen.send_signal(number)

    async def ended(self, seconds: float) -> int:
        """Wait for the end of the process: its exit code."""
        await until(lambda: not self.alive, seconds)
        return int(self.process.popen.returncode)

    def _status(self, name: str) -> int:
        line = next(line for line in self._proc("status").read_text().splitlines() if line.startswith(name))
        return int(line.split()[1])

    def _proc(self, name: str) -> Path:
        return Path(f"/proc/{self.process.popen.pid}/{name}")


@asynccontextmanager
async def serving(
    folder: Path,
    engine_scripts: tuple[Script, ...] = (),
    settings: Mapping[str, Any] | None = None,
    urls: tuple[str, ...] = (),
    detected: bool = False,
) -> AsyncIterator[Served]:
    """Serve an engine per script, and what listens at `urls`. At the end the books are in order, and SIGTERM ends it.

    Engines are known to be vLLM's with the model `m`, unless they are to be `detected`. They are not warmed up unless
    the settings say so: a script answers whatever it is asked, even if that takes a minute.
    """
    engines = [ScriptedEngine(script, scripts.vllm_paths()) for script in engine_scripts]
    for engine in engines:
        await engine.start()
    known: dict[str, str] = {} if detected else {"engine": "vllm", "model": "m"}
    replicas = [{"url": url, **known} for url in (*(engine.url for engine in engines), *urls)]
    whole: dict[str, Any] = {"listen": {"port": 0}, "admin": {"port": 0}, "replicas": replicas, **(settings or {})}
    whole["observe"] = {"warm_up": False, **whole.get("observe", {})}
    (folder / "headway.yaml").write_text(json.dumps(whole))
    with running(folder, "serve", "serve", "--config", str(folder / "headway.yaml")) as process:
        served = Served(process, engines)
        served.admin_token = whole["admin"].get("token", "")
        ports = await asyncio.to_thread(lambda: process.ports)
        served.port, served.admin_port = ports["port"], ports["admin_port"]
        try:
            await served.usable(len(replicas))
            yield served
            if served.alive:
                await accounts.balanced_within(served.page, 3.0)
                served.signal()
                assert await served.ended(10.0) == 0
        finally:
            process.end()
            for engine in engines:
                await engine.stop()
    assert "Traceback" not in process.log.read_text(), process.log.read_text()[-4000:]


@asynccontextmanager
async def open_app(*engines: ScriptedEngine, **settings: Any) -> AsyncIterator[App]:
    """A whole gateway in this process, its admin port and observation included. At the end the books are in order."""
    replicas = [{"url": engine.url, "engine": "vllm", "model": "m"} for engine in engines]
    usual = {"listen": {"port": 0}, "admin": {"port": 0}, "observe": {"interval_s": 0.02}, "replicas": replicas}
    app = build_gateway(Settings.model_validate({**usual, **settings}))
    await app.start()

    async def page() -> bytes:
        return app.telemetry.render(app.gateway.snapshot())

    try:
        await until(lambda: [v.breaker.value for v in app.gateway.snapshot().views].count("closed") == len(engines))
        yield app
        await accounts.balanced_within(page)
    finally:
        await app.stop(drain_s=0.0)


def served_case(
    *engine_scripts: Script, settings: Mapping[str, Any] | None = None
) -> Callable[[Callable[..., Awaitable[None]]], Callable[..., None]]:
    """Make a test of a coroutine `(served, **parametrised)`: it runs before a process of its own."""

    def decorate(scene: Callable[..., Awaitable[None]]) -> Callable[..., None]:
        @functools.wraps(scene)
        def test(run: Callable[[Awaitable[None]], None], tmp_path: Path, **parameters: Any) -> None:
            async def whole() -> None:
                async with serving(tmp_path, engine_scripts, settings) as served:
                    await scene(served, **parameters)

            run(whole())

        return keeps_books(test, scene)

    return decorate


def process_case(scene: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """Make a test of a coroutine `(folder, **parametrised)` that calls `serving` itself."""

    @functools.wraps(scene)
    def test(run: Callable[[Awaitable[None]], None], tmp_path: Path, **parameters: Any) -> None:
        run(scene(tmp_path, **parameters))

    return keeps_books(test, scene)


def keeps_books(test: Callable[..., None], scene: Callable[..., Any]) -> Callable[..., None]:
    """Give a test the fixtures it needs beside what its scene is parametrised with."""
    signature = inspect.signature(scene)
    names = ["run", "tmp_path", *list(signature.parameters)[1:]]
    parameters = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in names]
    test.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    test.checks_books = True  # type: ignore[attr-defined]
    return test


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
