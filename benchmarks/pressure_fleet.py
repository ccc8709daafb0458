"""A gateway and emulated replicas, each a process of its own, for the pressure runs; and replicas that refuse.

What lives here: starting them, setting faults, and what they count (preemptions, refusals, how far their clocks lag).
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from headway.bench.processes import Child, Children
from headway.runtime.http import Answer, Client, client
from headway.wire.promtext import read

START_S = 60.0
ACCOUNTS = ("ok", "client_error", "server_error", "client_closed", "shed")


class Engine(msgspec.Struct, frozen=True):
    """What to emulate. `rps` is what one such engine can do of the usual mix, measured by the scenario `capacity`."""

    model: str
    gpu: str
    kv_tokens: int
    rps: float


SMALL = Engine("llama-3.1-8b", "a10-24gb", 4096, 4.5)
"""A step of about 30 ms, so that three of them cost two cores little, and memory for about fourteen requests, so that
memory is what runs out."""


class Running(msgspec.Struct, frozen=True):
    """A replica that runs."""

    url: str
    control: str
    child: Child


class Refuser:
    """A replica in this process that takes everything in an instant, or refuses it with a status while `refusing`."""

    def __init__(self, status: int, headers: str = "") -> None:
        self.status, self.headers = status, headers
        self.refusing = False
        self.asked = 0
        self.url = ""
        self._writers: set[asyncio.StreamWriter] = set()

    async def start(self) -> None:
        """Listen."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).lower()
                at = head.find(b"content-length:")
                if at >= 0:
                    await reader.readexactly(int(head[at + 15 :].split(b"\r\n", 1)[0]))
                writer.write(self._answer(head.startswith(b"post")))
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self._writers.discard(writer)
            writer.close()

    def _answer(self, posted: bool) -> bytes:
        if not posted:
            return b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}"
        self.asked += 1
        if self.refusing:
            said = json.dumps({"error": {"message": "busy", "type": "Error", "param": None, "code": self.status}})
            return (
                f"HTTP/1.1 {self.status} Busy\r\ncontent-type: application/json\r\n{self.headers}"
                f"content-length: {len(said)}\r\n\r\n{said}"
            ).encode()
        chunk = {"choices": [{"index": 0, "delta": {"content": "a"}, "finish_reason": "stop"}]}
        said = f"data: {json.dumps(chunk, separators=(',', ':'))}\n\ndata: [DONE]\n\n"
        head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
        return f"{head}{len(said):x}\r\n{said}\r\n0\r\n\r\n".encode()

    async def stop(self) -> None:
        """Listen no more, and let nobody hang."""
        self._server.close()
        for writer in tuple(self._writers):
            writer.transport.abort()
        while self._writers:  # noqa: ASYNC110 each leaves by itself, within a few turns of the loop
            await asyncio.sleep(0)


class Fleet:
    """Everything that runs."""

    def __init__(self, port: int, admin: str, replicas: list[Running], http: Client) -> None:
        self.port, self.admin, self.replicas, self._http = port, admin, replicas, http
        self._lost: list[float] = []
        self._lost_at = 0.0

    async def get(self, url: str) -> bytes:
        """A page, b"" if it does not come."""
        got = await self._http.fetch(url, timeout_s=5.0)
        return got.body if isinstance(got, Answer) and got.status == 200 else b""

    async def state(self) -> dict[str, Any]:
        """What the admin API says of the fleet."""
        page = await self.get(f"{self.admin}/fleet")
        return dict(json.loads(page)["fleet"]) if page else {}

    async def accounts(self) -> dict[str, int]:
        """How the gateway booked what was started, and what it still holds."""
        names = ("headway_requests_started_total", "headway_requests_total")
        held = ("headway_in_flight_attempts", "headway_queued_requests", "headway_replica_reserved_tokens")
        samples = read(await self.get(f"{self.admin}/metrics"), frozenset((*names, *held)))
        books = dict.fromkeys(ACCOUNTS, 0)
        for labels, value in samples.get(names[1], []):
            books[labels["account"]] += int(value)
        books["started"] = sum(int(value) for _, value in samples.get(names[0], []))
        books["held"] = sum(int(value) for name in held for _, value in samples.get(name, []))
        return books

    async def counted(self, name: str) -> float:
        """The sum of a counter over all replicas, as they tell it themselves."""
        pages = await asyncio.gather(*(self.get(f"{each.url}/metrics") for each in self.replicas))
        return sum(value for page in pages for _, value in read(page, frozenset((name,))).get(name, []))

    async def fault(self, number: int, **fault: Any) -> None:
        """Have a fault strike one replica."""
        await self._http.fetch(
            f"{self.replicas[number].control}/faults", method="POST", body=json.dumps(fault).encode()
        )

    async def heal(self, number: int) -> None:
        """Undo the faults of one replica."""
        await self._http.fetch(f"{self.replicas[number].control}/faults", method="DELETE")

    async def watch_clocks(self) -> None:
        """From here on lag counts."""
        self._lost, self._lost_at = await self._losses(), time.perf_counter()

    async def lag(self) -> float:
        """The share of time since `watch_clocks` that the slowest replica's clock lost: the machine was too busy."""
        lost = await self._losses()
        span = time.perf_counter() - self._lost_at
        return max((now - then for now, then in zip(lost, self._lost, strict=True)), default=0.0) / span

    async def _losses(self) -> list[float]:
        pages = await asyncio.gather(*(self.get(f"{each.control}/state") for each in self.replicas))
        return [float(json.loads(page)["clock_lost_s"]) if page else 0.0 for page in pages]


@asynccontextmanager
async def fleet(
    folder: Path, engines: tuple[Engine, ...], settings: Mapping[str, Any], others: tuple[Refuser, ...] = ()
) -> AsyncIterator[Fleet]:
    """Start engines and a gateway with these settings before them and the `others`; leaving it ends every process."""
    async with client() as http, Children(folder) as children:
        ready = [folder / f"r{number}.ready" for number in range(len(engines))]
        started = [_emulate(children, engine, path) for engine, path in zip(engines, ready, strict=True)]
        running = []
        for child, path in zip(started, ready, strict=True):
            ports = await _ports(path, children)
            running.append(
                Running(f"http://127.0.0.1:{ports['port']}", f"http://127.0.0.1:{ports['control_port']}", child)
            )
        known = {"engine": "vllm", "model": "m", "metrics": False}
        replicas = [{"url": each.url} for each in running] + [{"url": each.url, **known} for each in others]
        whole = {
            "listen": {"port": 0},
            "admin": {"port": 0},
            "logging": {"access": False, "level": "warning"},
            "replicas": replicas,
            **settings,
        }
        (folder / "headway.yaml").write_text(json.dumps(whole))
        path = folder / "serve.ready"
        path.unlink(missing_ok=True)
        config = str(folder / "headway.yaml")
        children.start("gateway", "serve", "--config", config, "--ready-file", str(path), "--exit-with-parent")
        ports = await _ports(path, children)
        made = Fleet(ports["port"], f"http://127.0.0.1:{ports['admin_port']}", running, http)
        await _usable(made, len(replicas))
        yield made


def _emulate(children: Children, engine: Engine, ready: Path) -> Child:
    ready.unlink(missing_ok=True)
    options = {
        "--model": engine.model,
        "--gpu": engine.gpu,
        "--kv-tokens": str(engine.kv_tokens),
        "--served-model-name": "m",
        "--port": "0",
        "--ready-file": str(ready),
        "--log-level": "warning",
    }
    return children.start(
        ready.stem, "emulate", *[word for pair in options.items() for word in pair], "--exit-with-parent"
    )


async def _ports(path: Path, children: Children) -> dict[str, int]:
    """What a process writes once it listens."""
    async with asyncio.timeout(START_S):
        while not (written := _written(path)):
            children.check()
            await asyncio.sleep(0.05)
    return written


def _written(path: Path) -> dict[str, int]:
    return dict(json.loads(path.read_text())) if path.exists() else {}


async def _usable(fleet: Fleet, count: int) -> None:
    """Wait until so many replicas are in rotation."""
    async with asyncio.timeout(START_S):
        while True:
            views = (await fleet.state()).get("views", [])
            if [view["breaker"] for view in views].count("closed") == count:
                return
            await asyncio.sleep(0.05)
