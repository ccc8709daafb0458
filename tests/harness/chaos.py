"""Phases of a request times ways of leaving (F7), and cuts of a response at every byte (F5), as tables.

A phase says what the client sends, what the engine does with it, and how to know that the phase is reached. Phases with
`needs` want a set-up of the test's own: "hold" a gateway that holds the request, "blackhole" a replica whose address
swallows SYNs, "second" a second engine that a retry goes to.
"""

import itertools
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass

from tests.harness import scripts
from tests.harness.client import RawClient, chat, request
from tests.harness.engine import Script, ScriptedEngine

REQUEST = request(body=chat(stream=True))
HALF_BODY = REQUEST[:-10]
HALF_HEAD = REQUEST[: REQUEST.index(b"\r\n\r\n") - 5]
TOKENS = b"".join(scripts.chunk(piece) for piece in scripts.events(5)[:3])

Reached = Callable[[RawClient, ScriptedEngine], Awaitable[object]]


@dataclass(frozen=True)
class Phase:
    """One phase of a request in which a client may leave. `upstream`: the engine has a connection to lose by then."""

    name: str
    sends: bytes
    script: Callable[[], Script]
    reached: Reached
    upstream: bool = True
    needs: str = ""


async def _sent(client: RawClient, _: ScriptedEngine) -> None:
    await client.send(b"")


async def _at_engine(_: RawClient, engine: ScriptedEngine) -> None:
    await engine.wait_for(lambda log: log.inference)


async def _streaming(client: RawClient, _: ScriptedEngine) -> None:
    assert await client.read_events(3) == 3


async def _over(client: RawClient, _: ScriptedEngine) -> None:
    assert (await client.answer()).done


PHASES = (
    Phase("reading_head", HALF_HEAD, scripts.stall, _sent, upstream=False),
    Phase("reading_body", HALF_BODY, scripts.stall, _sent, upstream=False),
    Phase("queued", REQUEST, scripts.stall, _sent, upstream=False, needs="hold"),
    Phase("connecting", REQUEST, scripts.stall, _sent, upstream=False, needs="blackhole"),
    Phase("before_first_byte", REQUEST, scripts.stall, _at_engine),
    Phase("after_response_head", REQUEST, lambda: scripts.stall(scripts.STREAM_HEAD), _at_engine),
    Phase("mid_stream", REQUEST, lambda: scripts.stream(400, gap_s=0.02), _streaming),
    Phase("upstream_silent", REQUEST, lambda: scripts.stall(scripts.STREAM_HEAD + TOKENS), _streaming),
    Phase("during_retry", REQUEST, lambda: scripts.cut(b"", "rst"), _at_engine, needs="second"),
    Phase("after_last_byte", REQUEST, lambda: scripts.stream(5), _over, upstream=False),
)


async def _fin(client: RawClient) -> None:
    client.close()


async def _rst(client: RawClient) -> None:
    client.rst()


async def _half_close(client: RawClient) -> None:
    client.half_close()


LEAVES: dict[str, Callable[[RawClient], Awaitable[None]]] = {"fin": _fin, "rst": _rst, "half_close": _half_close}


def cases(needs: str = "") -> list[tuple[Phase, str]]:
    """Every phase of one set-up with every way of leaving; ids by `case_id`."""
    return [(phase, leave) for phase, leave in itertools.product(PHASES, LEAVES) if phase.needs == needs]


def case_id(value: object) -> str:
    """A readable test id."""
    return value.name if isinstance(value, Phase) else str(value)


def cuts(response: bytes, step: int = 1) -> Iterator[tuple[int, str]]:
    """Every place to cut a response short, by FIN and by RST. 0 is before the first byte."""
    return itertools.product(range(0, len(response), step), ("fin", "rst"))
