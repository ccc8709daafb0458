"""Connections that are kept open and say nothing (L5)."""

import asyncio
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from headway.gateway.config import GatewayConfig, Limits
from tests.cases.house import SOAK, House, case, rounds, until
from tests.harness import scripts
from tests.harness.client import chat, request

CROWD = """
import socket, sys
port, count = int(sys.argv[1]), int(sys.argv[2])
data = sys.stdin.buffer.readline().decode("unicode_escape").rstrip("\\n").encode("latin-1")
socks = []
for _ in range(count):
    sock = socket.create_connection(("127.0.0.1", port))
    sock.sendall(data)
    socks.append(sock)
    assert sock.recv(65536).startswith(b"HTTP/1.1 200"), "not served"
print("ready", flush=True)
sys.stdin.buffer.readline()
"""
"""A process of its own, so that the crowd's descriptors are not the gateway's: each connection was used once."""

LIMITS = Limits(keepalive_timeout_s=20.0 if SOAK else 2.0)


@asynccontextmanager
async def crowd(house: House, count: int) -> AsyncIterator[None]:
    """So many idle keep-alive connections."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", CROWD, str(house.gateway.port), str(count), stdin=-1, stdout=-1
    )
    assert process.stdin is not None
    assert process.stdout is not None
    data = request(body=chat())
    process.stdin.write(data.decode("latin-1").encode("unicode_escape") + b"\n")
    try:
        assert await process.stdout.readline() == b"ready\n"
        yield
    finally:
        process.stdin.write(b"\n")
        process.stdin.close()
        await process.wait()


async def p99_s(house: House, count: int) -> float:
    """What the slowest but one in a hundred of plain requests takes, one after the other."""
    took = []
    async with house.client() as client:
        for _ in range(count):
            began = time.perf_counter()
            assert (await client.ask(body=chat())).status == 200
            took.append(time.perf_counter() - began)
    return sorted(took)[int(count * 0.99) - 1]


@pytest.mark.slow
@case(scripts.answer(), config=GatewayConfig(port=0, limits=LIMITS))
async def test_a_crowd_of_idle_connections_is_harmless(house: House) -> None:
    """L5: 10,000 of them (here 1,000): nobody else waits for that, no work is done for them, and they end in time."""
    count = rounds(10_000, 1_000)
    alone = await p99_s(house, 300)
    async with crowd(house, count):
        assert len(house.gateway.plane.connections) >= count
        assert await p99_s(house, 300) < alone + (0.01 if SOAK else 0.2)
        began, cpu = time.perf_counter(), time.process_time()
        await asyncio.sleep(0.5)
        assert time.process_time() - cpu < 0.1 * (time.perf_counter() - began)
        await until(lambda: len(house.gateway.plane.connections) == 0, LIMITS.keepalive_timeout_s + 5.0)
    await house.at_rest(started=600 + count, ok=600 + count)
