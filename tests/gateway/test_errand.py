"""Small questions to an engine, and what becomes of them."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from headway.core.outcome import OutcomeKind
from headway.gateway.errand import Errand, Steps
from headway.gateway.head import RequestHead
from headway.wire.resume_body import Ask, Unresumable
from tests.gateway.fakes import Connection, Rig, answer, rig

Run = Callable[[Any], Any]
HEAD = RequestHead(b"POST /x HTTP/1.1", b"", b"1", b"", {})


def asking(r: Rig, steps: Steps[Any], said: list[Any]) -> Errand:
    pool = r.gateway.plane.pool
    target = next(iter(pool.targets.values()))
    failed = lambda kind, detail, error: said.append((kind, type(error)))  # noqa: E731
    return Errand(pool, target, HEAD, "r-1", steps, said.append, failed)


def two() -> Steps[bytes]:
    first = yield Ask("/a", b"1")
    second = yield Ask("/b", b"2")
    return first + second


def test_one_question_after_the_other(run: Run) -> None:
    async def script(connection: Connection) -> None:
        await connection.send(answer(b'"' + connection.head.split(b" ")[1] + connection.body + b'"'))

    async def main() -> None:
        async with rig(script) as r:
            said: list[Any] = []
            asking(r, two(), said).go()
            await r.until(lambda: bool(said))
            assert said == [b'"/a1""/b2"']
            assert b"X-Request-Id: r-1" in r.engines[0].requests[0]
            assert r.engines[0].connections == 1

    run(main())


@pytest.mark.parametrize(
    ("reply", "kind"),
    [("404 No", OutcomeKind.CLIENT_ERROR), ("500 No", OutcomeKind.SERVER_ERROR), ("", OutcomeKind.RESET)],
)
def test_no_answer(run: Run, reply: str, kind: OutcomeKind) -> None:
    async def script(connection: Connection) -> None:
        if reply:
            await connection.send(answer(status=reply))
        else:
            connection.reset()

    async def main() -> None:
        async with rig(script) as r:
            said: list[Any] = []
            asking(r, two(), said).go()
            await r.until(lambda: bool(said))
            assert said == [(kind, type(None))]

    run(main())


def test_nothing_to_ask(run: Run) -> None:
    def stuck() -> Steps[bytes]:
        raise Unresumable("why")
        yield Ask("/a", b"")

    async def main() -> None:
        async with rig(lambda connection: asyncio.sleep(0)) as r:
            said: list[Any] = []
            asking(r, stuck(), said).go()
            assert said == [(OutcomeKind.CANCELLED, Unresumable)]

    run(main())


def test_dropped_while_it_waits(run: Run) -> None:
    async def script(connection: Connection) -> None:
        await connection.gone(5)

    async def main() -> None:
        async with rig(script) as r:
            said: list[Any] = []
            errand = asking(r, two(), said)
            errand.go()
            await r.until(lambda: bool(r.engines[0].requests))
            errand.drop()
            await r.until(lambda: bool(r.engines[0].gone_at))
            assert said == []

    run(main())
