"""The least that a Python proxy can cost here: uvloop, and nothing of HTTP but where a response ends.

    python benchmarks/bare.py PORT BACKEND_PORT BACKEND_PORT

No parsing, no choice, no limits, no accounts, no errors: one read and one write in each direction. What Headway needs
above it is Headway's own; what it needs itself is the kernel's and the event loop's. It relies on what `load` and
`backend` send (a request in one piece; answers that end with a brace or with the last chunk), so it serves nobody else.
"""

import asyncio
import gc
import sys
from itertools import cycle

import uvloop


class Upstream(asyncio.Protocol):
    """One connection to a backend, and the client that it serves now."""

    def __init__(self, idle: list["Upstream"]) -> None:
        self.idle = idle
        self.client: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: asyncio.Transport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        if self.client is not None:
            self.client.write(data)
        if data.endswith((b"}", b"0\r\n\r\n")):
            self.idle.append(self)


class Client(asyncio.Protocol):
    """One client."""

    def __init__(self, idle: list[Upstream], ports: "cycle[int]") -> None:
        self.idle, self.ports = idle, ports
        self.tasks: set[asyncio.Task[None]] = set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: asyncio.Transport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        if self.idle:
            self.send(self.idle.pop(), data)
        else:
            task = asyncio.get_running_loop().create_task(self.connect(data))
            self.tasks.add(task)
            task.add_done_callback(self.tasks.discard)

    async def connect(self, data: bytes) -> None:
        loop = asyncio.get_running_loop()
        _, upstream = await loop.create_connection(lambda: Upstream(self.idle), "127.0.0.1", next(self.ports))
        self.send(upstream, data)

    def send(self, upstream: Upstream, data: bytes) -> None:
        upstream.client = self.transport
        upstream.transport.write(data)


async def main(port: int, backends: list[int]) -> None:
    idle: list[Upstream] = []
    ports = cycle(backends)
    await asyncio.get_running_loop().create_server(lambda: Client(idle, ports), "127.0.0.1", port, backlog=1024)
    gc.collect()
    gc.freeze()
    await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(main(int(sys.argv[1]), [int(backend) for backend in sys.argv[2:]]))
