"""Who is told where its request stands, when, and who never is."""

import asyncio
import re
from collections.abc import Callable
from typing import Any

import pytest

from headway.core.commands import Dispatch, Hold, Reject
from headway.core.events import RequestCancelled
from headway.core.ids import RequestId, attempt_id
from headway.gateway.config import GatewayConfig
from headway.gateway.hints import Hints
from headway.gateway.replies import early_hints
from tests.gateway.fakes import CHAT, JSON_ANSWER, Connection, Rig, always, answer, post, rig

Run = Callable[[Any], Any]
ASKING = "x-queue-hints: 1\r\n"
QUICK = GatewayConfig(port=0, hints_period_s=0.02)
STATUS = re.compile(rb"HTTP/1.1 ([0-9]{3})")
A, B = RequestId("a"), RequestId("b")


class Held:
    """Takes hints until it is held no longer."""

    def __init__(self) -> None:
        self.told: list[tuple[int, float]] = []
        self.held = True

    def hint(self, position: int, wait_s: float) -> bool:
        if self.held:
            self.told.append((position, wait_s))
        return self.held


def test_who_moves_is_told_and_who_is_gone_is_forgotten(run: Run) -> None:
    prospects: dict[str, tuple[int, float]] = {}

    async def main() -> None:
        hints, one, two = Hints(prospects.get, 0.01), Held(), Held()
        hints.add(A, one, 5, 9.0)
        hints.add(B, two, 6, 9.5)
        prospects.update({A: (5, 3.0), B: (2, 1.0)})
        await asyncio.sleep(0.05)
        assert (one.told, two.told) == ([(5, 9.0)], [(6, 9.5), (2, 1.0)])
        prospects.pop(A)
        two.held = False
        prospects[B] = (1, 0.5)
        await asyncio.sleep(0.05)
        assert not len(hints)
        assert two.told[-1] == (2, 1.0)
        hints.add(A, one, 1, 0.0)
        hints.stop()
        assert not len(hints)

    run(main())


def test_nobody_is_kept_who_cannot_be_told(run: Run) -> None:
    async def main() -> None:
        hints, held = Hints(lambda _: None, 0.01), Held()
        held.held = False
        hints.add(A, held, 1, 0.0)
        assert not len(hints)

    run(main())


def test_the_words() -> None:
    assert early_hints(3, 1.26) == b"HTTP/1.1 103 Early Hints\r\nx-queue-position: 3\r\nx-expected-wait-s: 1.3\r\n\r\n"
    assert early_hints(1, 0.0) == b"HTTP/1.1 103 Early Hints\r\nx-queue-position: 1\r\n\r\n"


def holding(r: Rig, position: int = 2, wait_s: float = 1.5) -> None:
    r.brain.arrived = lambda event: [Hold(event.request.id, position, wait_s)]


def let_go(r: Rig) -> None:
    """What the brain does with the request that it holds."""
    (request,) = r.gateway.plane.driver.exchanges
    r.brain.prospects.clear()
    r.brain.attempts[request] = 0
    r.gateway.plane.driver.exchanges[request].dispatch(
        Dispatch(request, attempt_id(request, 0), r.brain.replicas[0], "m")
    )


async def held(r: Rig) -> RequestId:
    await r.until(lambda: bool(r.gateway.plane.driver.exchanges))
    (request,) = r.gateway.plane.driver.exchanges
    return request


def test_a_client_that_asks_is_told_until_the_answer_comes(run: Run) -> None:
    async def main() -> None:
        async with rig(always, config=QUICK) as r:
            holding(r)
            asked = asyncio.create_task(r.ask(post(CHAT, lines=ASKING)))
            request = await held(r)
            for prospect in ((1, 0.4), (1, 0.2), (1, 0.1)):
                r.brain.prospects[request] = prospect
                await asyncio.sleep(0.05)
            let_go(r)
            response = await asked
            first, second, last = response.split(b"\r\n\r\n", 2)
            assert first == b"HTTP/1.1 103 Early Hints\r\nx-queue-position: 2\r\nx-expected-wait-s: 1.5"
            assert second == b"HTTP/1.1 103 Early Hints\r\nx-queue-position: 1\r\nx-expected-wait-s: 0.4"
            assert last.startswith(b"HTTP/1.1 200 OK")
            assert last.endswith(JSON_ANSWER)
            assert b"x-queue" not in last
            assert b"x-queue-hints" not in r.engines[0].requests[0].lower()
            await r.until(lambda: not len(r.gateway.plane.hints))

    run(main())


@pytest.mark.parametrize(
    "request_",
    [
        post(CHAT),
        post(CHAT, lines="x-queue-hints: 0\r\n"),
        post(CHAT, lines="x-queue-hints: \r\n"),
        post(CHAT, lines="x-queue-hints: 1\r\nx-queue-hints: 1\r\n"),
        post(CHAT, lines=ASKING).replace(b"HTTP/1.1", b"HTTP/1.0"),
    ],
)
def test_nobody_is_told_unasked_nor_by_http_1_0(run: Run, request_: bytes) -> None:
    async def main() -> None:
        async with rig(always, config=QUICK) as r:
            holding(r)
            asked = asyncio.create_task(r.ask(request_))
            request = await held(r)
            r.brain.prospects[request] = (1, 0.1)
            await asyncio.sleep(0.05)
            let_go(r)
            assert (await asked).startswith(b"HTTP/1.1 200 OK")

    run(main())


def test_the_header_has_the_name_that_is_set(run: Run) -> None:
    async def main() -> None:
        async with rig(always, config=GatewayConfig(port=0, hints_header="x-tell-me")) as r:
            for header, told in ((ASKING, False), ("x-tell-me: 1\r\n", True)):
                holding(r)
                asked = asyncio.create_task(r.ask(post(CHAT, lines=header)))
                await held(r)
                let_go(r)
                assert (await asked).startswith(b"HTTP/1.1 103") == told

    run(main())


def test_a_refusal_comes_after_the_hints(run: Run) -> None:
    async def main() -> None:
        async with rig(always, config=QUICK) as r:
            holding(r)
            asked = asyncio.create_task(r.ask(post(CHAT, lines=ASKING)))
            request = await held(r)
            exchange = r.gateway.plane.driver.exchanges[request]
            exchange.reject(Reject(request, 503, "queue_timeout", "no room", 2.0, shed=True))
            r.brain.prospects[request] = (1, 0.1)  # it is late: nothing may follow the response
            await asyncio.sleep(0.05)
            assert STATUS.findall(await asked) == [b"103", b"503"]

    run(main())


def test_a_client_that_leaves_is_forgotten(run: Run) -> None:
    async def main() -> None:
        async with rig(always, config=QUICK) as r:
            holding(r)
            _, writer = await r.client()
            writer.write(post(CHAT, lines=ASKING))
            request = await held(r)
            r.brain.prospects[request] = (1, 0.1)
            writer.close()
            await r.until(lambda: any(isinstance(event, RequestCancelled) for event in r.brain.events))
            r.brain.prospects[request] = (9, 0.1)
            await r.until(lambda: not len(r.gateway.plane.hints))
            assert r.balanced()

    run(main())


def test_a_client_that_does_not_read_is_not_buried(run: Run) -> None:
    async def main() -> None:
        async with rig(always, config=QUICK) as r:
            holding(r)
            asked = asyncio.create_task(r.ask(post(CHAT, lines=ASKING)))
            request = await held(r)
            (connection,) = r.gateway.plane.connections
            connection.pause_writing()
            for position in (5, 4, 3):
                r.brain.prospects[request] = (position, 0.1)
                await asyncio.sleep(0.03)
            connection.resume_writing()
            let_go(r)
            assert STATUS.findall(await asked) == [b"103", b"200"]

    run(main())


def test_pipelined_requests_are_told_each_in_its_turn(run: Run) -> None:
    async def main() -> None:
        async with rig(always, config=QUICK) as r:
            holding(r)
            asked = asyncio.create_task(r.ask(post(CHAT, lines=ASKING, close=False) + post(CHAT, lines=ASKING)))
            first = await held(r)
            let_go(r)
            await r.until(lambda: first not in r.gateway.plane.driver.exchanges)
            await held(r)
            let_go(r)
            assert STATUS.findall(await asked) == [b"103", b"200"] * 2

    run(main())


def test_a_request_that_runs_is_held_no_longer(run: Run) -> None:
    async def slow(connection: Connection) -> None:
        await asyncio.sleep(0.08)
        await connection.send(answer())

    async def main() -> None:
        async with rig(slow, config=QUICK) as r:
            holding(r)
            asked = asyncio.create_task(r.ask(post(CHAT, lines=ASKING)))
            request = await held(r)
            let_go(r)
            r.brain.prospects[request] = (1, 0.1)  # whatever the brain may think of it
            assert STATUS.findall(await asked) == [b"103", b"200"]

    run(main())
