"""Everything at once: clients that do anything, before engines that do anything. The seed of a failure is printed.

Nothing is expected of a single request. What must hold: the process lives, its log has no traceback, and when all is
over the books are in order and nothing is held (`served` sees to that).
"""

import asyncio
import random
import time
from contextlib import suppress

import pytest

from tests.cases.house import SEED, rounds
from tests.cases.served import Served, served_case
from tests.harness import scripts
from tests.harness.client import RawClient, chat, request
from tests.harness.engine import Connection, Script, Seen
from tests.harness.http1 import Malformed

BITS = [scripts.chunk(bytes([byte])) for byte in b"".join(scripts.events(2))]
ABORT = scripts.chunk(scripts.token("a") + scripts.token("", "abort"))
BEGUN = scripts.STREAM_HEAD + scripts.chunk(scripts.token("a"))
DEEDS: list[Script] = [
    scripts.answer(),
    scripts.answer(after_s=0.02),
    scripts.stream(5),
    scripts.stream(20, gap_s=0.01),
    scripts.cut(b"", "rst"),
    scripts.cut(scripts.STREAM_HEAD, "fin"),
    scripts.cut(BEGUN, "rst", 0.01),
    scripts.error(400),
    scripts.error(500),
    scripts.error(503, headers=["retry-after: 1"]),
    scripts.raw(b"garbage\r\n\r\n"),
    scripts.raw(scripts.response(b"<html>")),
    scripts.then_close(scripts.answer()),
    scripts.then_close(scripts.stream(3), "rst"),
    scripts.timed([(0.0, scripts.STREAM_HEAD), (0.05, ABORT)]),
    scripts.raw(scripts.STREAM_HEAD, *BITS, scripts.LAST_CHUNK),
]


def anything(seed: int) -> Script:
    """An engine that does anything."""
    chance = random.Random(seed)

    async def script(connection: Connection, seen: Seen) -> None:
        await chance.choice(DEEDS)(connection, seen)

    return script


def some_bytes(chance: random.Random) -> bytes:
    """A request, several, a part of one, or a spoilt one."""
    size = chance.choice([1, 100, 5_000, 200_000])
    options = {"stream_options": {"include_usage": chance.random() < 0.5}} if chance.random() < 0.2 else {}
    data = request(body=chat(chance.random() < 0.5, "x" * size, n=chance.getrandbits(30), **options))
    kind = chance.randrange(10)
    if kind < 2:
        return data * (kind + 2)
    if kind == 2:
        return request("/v1/models", method=chance.choice(["GET", "HEAD", "DELETE"])) + data
    if kind == 3:
        return data[: chance.randrange(len(data))]
    if kind == 4:
        at = chance.randrange(len(data))
        return data[:at] + bytes([chance.randrange(256)]) + data[at + 1 :]
    return data


async def visit(client: RawClient, chance: random.Random) -> None:
    """Some requests on one connection, and some way of leaving it."""
    for _ in range(chance.randrange(1, 6)):
        data = some_bytes(chance)
        cut = chance.randrange(len(data) + 1)
        await client.send(data[:cut], data[cut:], gap_s=chance.choice([0, 0, 0.01]))
        match chance.randrange(6):
            case 0 | 1 as how:
                await asyncio.sleep(chance.random() * 0.05)
                (client.rst if how else client.close)()
                return
            case 2:
                client.half_close()
                await client.rest(3.0)
                return
            case _:
                await client.answer(timeout_s=1.0)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(SEED, SEED + rounds(20, 1)))
@served_case(*map(anything, range(3)), settings={"limits": {"head_timeout_s": 1, "body_timeout_s": 1}})
async def test_a_storm_leaves_the_books_in_order(served: Served, seed: int) -> None:
    """Thousands of connections, 60 at a time."""
    end = time.monotonic() + rounds(20, 4)
    files, memory = served.files(), served.memory_bytes()

    async def visitor(number: int) -> int:
        visits = 0
        while time.monotonic() < end:
            visits += 1
            with suppress(OSError, TimeoutError, Malformed, ValueError):  # left in the middle, by either side
                async with served.client() as client:
                    await visit(client, random.Random(f"{seed}.{number}.{visits}"))
        return visits

    assert sum(await asyncio.gather(*map(visitor, range(60)))) > 100
    await asyncio.sleep(1.2)  # the timeouts of those who left something behind
    assert served.alive
    assert served.files() < files + 70
    assert served.memory_bytes() - memory < 64 * 2**20
