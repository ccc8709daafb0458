"""Requests that do not stream, and move all the same: the client gets one answer, as one replica says it."""

import asyncio
import json
import re
from typing import Any

import pytest

from headway.core.events import EvictionRefused
from headway.core.outcome import OutcomeKind
from headway.gateway.config import GatewayConfig, Moving, Timeouts
from tests.cases.house import House, case, until
from tests.cases.moves import PATIENT, QUEUE, move, obey, running, speak, wish
from tests.cases.test_migration import first, later, outcomes, results, some
from tests.harness import scripts
from tests.harness.client import Answer, request
from tests.harness.engine import Connection, Seen
from tests.harness.speaker import MODEL, WAYS, Trouble
from tests.wire.engine import CHAT, COMPLETIONS, whole

NOBODY = scripts.stream(1)
WHOLE = GatewayConfig(port=0, inject_usage="never", moving=Moving(plain=True))
HASTY_WHOLE = GatewayConfig(
    port=0, inject_usage="never", moving=Moving(plain=True, hold_s=0.5, warm_s=0.5),
    timeouts=Timeouts(idle_s=1.0, first_byte_s=1.5),
)  # fmt: skip
TWO: dict[str, Any] = {"config": WHOLE, "brain": PATIENT, "model": MODEL}
PACE_S = 0.002


def ask_for(path: str, **more: Any) -> dict[str, Any]:
    """A request that does not stream."""
    body = wish(path, **more)
    del body["stream"]
    return body


def alike(data: bytes) -> bytes:
    """An answer without its id."""
    return re.sub(rb'"id":"[^"]*"', b'"id":"x"', data, count=1)


def undisturbed(path: str, body: dict[str, Any]) -> bytes:
    return alike(whole(path, body))


async def asked(house: House, path: str = CHAT, **more: Any) -> tuple["asyncio.Future[Answer]", bytes]:
    """One that is being answered, and what its answer is to be."""
    body = ask_for(path, **more)
    future = asyncio.ensure_future(house.ask(body, path))
    await some(house)
    return future, undisturbed(path, body)


def same(answer: Answer, expected: bytes) -> None:
    """It is that answer, in one piece, with its length."""
    assert (answer.status, answer.error) == (200, "")
    assert alike(answer.body) == expected
    assert answer.message.get("content-type") == "application/json"
    assert int(answer.message.get("content-length")) == len(answer.body)


def streams(house: House) -> list[bool]:
    """Whether engines were asked to stream, by request."""
    bodies = [seen.request.body for engine in house.engines for seen in engine.log.inference
              if seen.request.path in (CHAT, COMPLETIONS)]  # fmt: skip
    return [bool(json.loads(body).get("stream")) for body in bodies]


@pytest.mark.parametrize("more", [{}, {"return_token_ids": True}, {"stop": ["e", "é"]}, {"stream": False}])
@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
@case(NOBODY, NOBODY, **TWO)
async def test_an_answer_is_the_engines_own(house: House, path: str, more: dict[str, Any]) -> None:
    """Byte for byte, though the engine streamed it; and the next request on the connection is served."""
    speak(house)
    body = ask_for(path, **more)
    async with house.client() as client:
        for _ in range(2):
            same(await client.ask(path, body), undisturbed(path, body))
    assert streams(house) == [True, True]
    assert [access.stream for access in house.booked] == [False, False]
    assert {access.output_tokens for access in house.booked} == {
        json.loads(whole(path, body))["usage"]["completion_tokens"]
    }


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
@case(NOBODY, NOBODY, **TWO)
async def test_an_answer_is_moved_there_and_back(house: House, path: str) -> None:
    speak(house, gap_s=PACE_S)
    future, expected = await asked(house, path)
    move(house, running(house))
    await until(lambda: "cut" in results(house))
    await asyncio.sleep(5 * PACE_S)
    move(house, running(house))
    same(await future, expected)
    assert results(house) == ["begun", "cut", "begun", "cut"]
    assert outcomes(house) == [OutcomeKind.MIGRATED, OutcomeKind.MIGRATED, OutcomeKind.OK]
    [access] = house.booked
    assert (access.account, access.attempts, access.output_tokens) == ("ok", 3, 60)
    assert house.count("headway_migration_gap_seconds_count") == 0, "its client noticed no gap"


@pytest.mark.parametrize("way", [way for way in WAYS if way != "hang"])
@case(NOBODY, NOBODY, **TWO)
async def test_an_answer_outlives_its_replica(house: House, way: str) -> None:
    speak(house, gap_s=0.0005, trouble=first(Trouble(3100, way)))
    body = ask_for(CHAT)
    same(await house.ask(body), undisturbed(CHAT, body))
    assert results(house) == ([] if way == "early" else ["failed_over"])


@pytest.mark.parametrize("way", [way for way in WAYS if way not in ("hang", "early")])
@case(NOBODY, NOBODY, **TWO)
async def test_an_answer_whose_engine_fails_behind_the_last_word_is_whole(house: House, way: str) -> None:
    speak(house, trouble=first(Trouble(-80, way)))
    body = ask_for(CHAT)
    answer = await house.ask(body)
    told, expected = json.loads(answer.body), json.loads(undisturbed(CHAT, body))
    for name in ("choices", "usage", "object", "model"):
        assert told[name] == expected[name]


@pytest.mark.parametrize("way", WAYS)
@case(NOBODY, NOBODY, config=HASTY_WHOLE, brain=PATIENT, model=MODEL)
async def test_a_target_that_fails_is_not_noticed(house: House, way: str) -> None:
    speak(house, gap_s=PACE_S, trouble=later(Trouble(0, way)))
    future, expected = await asked(house)
    move(house, running(house))
    same(await future, expected)
    assert results(house) == ["begun", "abandoned"]


@case(NOBODY, NOBODY, **TWO)
async def test_an_evicted_answer_goes_on_later(house: House) -> None:
    obey(house)
    speak(house, gap_s=PACE_S)
    future, expected = await asked(house)
    move(house, running(house), QUEUE)
    same(await future, expected)
    assert outcomes(house) == [OutcomeKind.EVICTED, OutcomeKind.OK]


PINNED: dict[str, dict[str, Any]] = {"seed": {"seed": 1}, "stream options": {"stream_options": {}}}


@pytest.mark.parametrize("why", PINNED)
@case(NOBODY, NOBODY, **TWO)
async def test_what_is_pinned_is_asked_for_as_it_was(house: House, why: str) -> None:
    """No stream, and what the engine says passes as it is."""
    speak(house)
    body = ask_for(CHAT, **PINNED[why])
    same(await house.ask(body), undisturbed(CHAT, body))
    assert streams(house) == [False]
    assert json.loads(house.engines[0].log.inference[0].request.body if house.engines[0].log.inference
                      else house.engines[1].log.inference[0].request.body) == body  # fmt: skip


@case(NOBODY, config=GatewayConfig(port=0, moving=Moving()), brain=PATIENT, model=MODEL)
async def test_it_is_off_unless_it_is_asked_for(house: House) -> None:
    speak(house)
    body = ask_for(CHAT)
    same(await house.ask(body), undisturbed(CHAT, body))
    assert streams(house) == [False]


def refuses(status: int) -> scripts.Script:
    return scripts.error(status, "not like this", headers=["Retry-After: 7"])


@pytest.mark.parametrize("status", [400, 404, 422, 429, 500, 503])
@case(NOBODY, config=WHOLE, model=MODEL)
async def test_a_refusal_is_the_engines_own(house: House, status: int) -> None:
    """Status, body and headers: a refusal is no stream."""
    house.engine.paths[CHAT] = refuses(status)
    answer = await house.ask(ask_for(CHAT))
    assert (answer.status, answer.json["error"]["message"]) == (status, "not like this")
    assert answer.message.get("retry-after") == "7"
    assert house.booked[0].account == ("client_error" if status < 500 else "server_error")


def says(*pieces: bytes) -> scripts.Script:
    return scripts.stream(pieces=list(pieces))


def piece(text: str, **more: Any) -> bytes:
    choice = {"index": 0, "delta": {"content": text}, "finish_reason": None, **more}
    return scripts.sse(
        {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": MODEL, "choices": [choice]}
    )


ERROR = {"error": {"message": "bad", "type": "BadRequestError", "code": 400}}


@pytest.mark.parametrize("before", [[], [piece("a")]])
@case(NOBODY, config=WHOLE, model=MODEL)
async def test_an_error_in_band_that_is_the_clients_becomes_its_status(house: House, before: list[bytes]) -> None:
    house.engine.paths[CHAT] = says(*before, scripts.sse(ERROR), scripts.DONE)
    answer = await house.ask(ask_for(CHAT))
    assert (answer.status, answer.json) == (400, ERROR)
    assert answer.message.get("content-type") == "application/json"
    await house.at_rest(client_error=1)


WRONG: dict[str, list[bytes]] = {
    "an error": [piece("a"), scripts.sse({"error": {"message": "dead", "code": 500}}), scripts.DONE],
    "an abort": [piece("a"), piece("", finish_reason="abort"), scripts.DONE],
    "no end": [piece("a")],
    "no finish reason": [piece("a"), scripts.DONE],
    "no JSON": [piece("a"), b"data: {\n\n", piece("", finish_reason="stop"), scripts.DONE],
    "nothing": [],
    "only done": [scripts.DONE],
}
"""Streams that nobody can go on with (they tell no ids), and that are no answer."""


@pytest.mark.parametrize("wrong", WRONG)
@case(NOBODY, config=WHOLE, model=MODEL)
async def test_what_is_no_answer_is_an_error_with_a_status(house: House, wrong: str) -> None:
    house.engine.paths[CHAT] = says(*WRONG[wrong])
    answer = await house.ask(ask_for(CHAT))
    assert answer.status in (502, 503)
    assert answer.json["error"]["type"] in ("upstream_error", "server_error")
    await house.at_rest(server_error=1)


@pytest.mark.parametrize("wrong", WRONG)
@case(NOBODY, NOBODY, **TWO)
async def test_what_is_no_answer_is_asked_for_elsewhere(house: House, wrong: str) -> None:
    """Nothing was given to the client, so all can begin again."""
    speak(house)
    for engine in house.engines:
        usual = engine.paths[CHAT]

        async def once(connection: Connection, seen: Seen, usual: scripts.Script = usual) -> None:
            begins = seen.request.get("x-request-id").endswith("-0")
            await (says(*WRONG[wrong]) if begins else usual)(connection, seen)

        engine.paths[CHAT] = once
    body = ask_for(CHAT)
    same(await house.ask(body), undisturbed(CHAT, body))
    assert house.booked[0].attempts == 2


@case(NOBODY, config=GatewayConfig(port=0, moving=Moving(plain=True, plain_bytes=64)), model=MODEL)
async def test_an_answer_that_is_too_long_to_keep_is_refused(house: House) -> None:
    house.engine.paths[CHAT] = scripts.stream(pieces=[piece("x" * 20)] * 400, gap_s=0.001)
    answer = await house.ask(ask_for(CHAT))
    assert (answer.status, answer.json["error"]["code"]) == (502, "answer_too_large")
    await house.engine.wait_for(lambda log: log.running == 0)
    await house.at_rest(server_error=1)


@pytest.mark.parametrize("moment", ["before", "gathering", "warming", "cutting", "moved"])
@case(NOBODY, NOBODY, **TWO)
async def test_a_client_that_leaves_closes_all(house: House, moment: str) -> None:
    speak(house, gap_s=0.02)
    async with house.client() as client:
        await client.send(request(CHAT, ask_for(CHAT)))
        if moment == "before":
            await until(lambda: any(engine.log.inference for engine in house.engines))
        else:
            await some(house, 1500)
        idle = next(engine for engine in house.engines if not engine.log.inference)
        if moment == "warming":
            idle.paths[COMPLETIONS] = scripts.stall()
        elif moment == "cutting":
            idle.paths["/detokenize"] = scripts.stall()
        if moment in ("warming", "cutting", "moved"):
            move(house, running(house))
            await until(lambda: "cut" in results(house) if moment == "moved" else idle.log.inference)
    await house.at_rest(started=1, client_closed=1)
    await until(lambda: all(engine.log.running == 0 for engine in house.engines))


@case(NOBODY, NOBODY, **TWO)
async def test_the_gateway_shuts_down_while_an_answer_is_gathered(house: House) -> None:
    speak(house, gap_s=PACE_S)
    future, _ = await asked(house)
    await house.gateway.stop(0.0)
    answer = await future
    assert (answer.status, answer.json["error"]["code"]) == (503, "shutting_down")
    assert outcomes(house) == [OutcomeKind.CANCELLED]


@case(NOBODY, NOBODY, **TWO)
async def test_pipelined_requests_are_answered_in_order(house: House) -> None:
    speak(house)
    bodies = [ask_for(CHAT, max_tokens=n) for n in (30, 5, 12)]
    async with house.client() as client:
        await client.send(b"".join(request(CHAT, body) for body in bodies))
        for body in bodies:
            same(await client.answer(), undisturbed(CHAT, body))


def refused(house: House) -> list[str]:
    return [event.attempt_id for event, _ in house.journal if isinstance(event, EvictionRefused)]


@pytest.mark.parametrize("stream", [True, False])
@case(NOBODY, NOBODY, **TWO)
async def test_an_eviction_that_cannot_be_is_over_at_once(house: House, stream: bool) -> None:
    """The stream turns out to be reasoning in the middle: nobody could go on with it, so it stays."""
    obey(house)
    go = asyncio.Event()

    async def script(connection: Connection, seen: Seen) -> None:
        await connection.send(scripts.STREAM_HEAD + scripts.chunk(piece("a", token_ids=[1], prompt_token_ids=[1])))
        thought = piece("").replace(b'"content":""', b'"reasoning":"hm"')
        await connection.send(scripts.chunk(thought))
        await go.wait()
        await connection.send(scripts.chunk(piece("b", finish_reason="stop") + scripts.DONE) + scripts.LAST_CHUNK)

    for engine in house.engines:
        engine.paths[CHAT] = script
    future = asyncio.ensure_future(house.ask(wish(CHAT) if stream else ask_for(CHAT)))
    await some(house, 300)
    await asyncio.sleep(0.08)  # the brain has heard of its first token
    move(house, running(house), QUEUE)
    assert len(refused(house)) == 1
    assert house.brain._migration.under_way == []
    go.set()
    answer = await future
    assert answer.status == 200
    if not stream:
        assert answer.json["choices"][0]["message"]["content"] == "ab"
        assert answer.json["choices"][0]["message"]["reasoning"] == "hm"
    assert results(house) == ["begun", "abandoned"]
