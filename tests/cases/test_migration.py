"""Requests that are moved while they run, over sockets: what a client gets is what one undisturbed replica says."""

import asyncio

import pytest

from tests.cases.house import House, case, until
from tests.cases.moves import MOVABLE, PATIENT, move, plain, running, speak, undisturbed, wish
from tests.harness import scripts
from tests.harness.speaker import MODEL
from tests.wire.engine import CHAT, COMPLETIONS


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
@case(scripts.stream(1), scripts.stream(1), config=MOVABLE, brain=PATIENT, model=MODEL)
async def test_a_stream_is_moved(house: House, path: str) -> None:
    speak(house, gap_s=0.003)
    body = wish(path, stream_options={"include_usage": True})
    asked = asyncio.ensure_future(house.ask(body, path))
    await until(lambda: sum(seen.wrote for e in house.engines for seen in e.log.inference) > 2000)
    move(house, running(house))
    answer = await asked
    assert answer.error == ""
    assert plain(answer.body) == undisturbed(path, body)
    assert [len(engine.log.inference) > 0 for engine in house.engines] == [True, True]
    assert house.count("headway_attempts_total", outcome="migrated") == 1
