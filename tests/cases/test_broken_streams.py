"""Responses that break: family C of the cases, and F5 (cut at every byte).

What must hold: what was cut never looks complete. Before anything was given to the client it is a status of the right
class, after that an error inside the stream or a body that visibly stops.
"""

import time
from collections.abc import Callable

import openai
import pytest

from headway.core.constants import AdmissionConfig, BrainConfig, HealthConfig, SchedulerConfig
from headway.core.events import DrainAsked
from headway.core.ids import ReplicaId
from headway.gateway.config import GatewayConfig, Limits
from headway.runtime.clock import now
from tests.cases.house import SOAK, House, case, gather_bounded, official_stream, patience, until
from tests.harness import scripts
from tests.harness.client import Answer, RawClient, chat, request
from tests.harness.engine import Connection, Seen

FIVE = scripts.STREAM_HEAD + b"".join(scripts.chunk(scripts.token(f"t{i}")) for i in range(5))
ANSWER = scripts.response(b'{"choices":[{"message":{"content":"hi"},"finish_reason":"stop"}],"usage":{}}')
UNMOVED = BrainConfig(health=HealthConfig(failures=10_000, failure_rate=1.1))
RETRYABLE = {"upstream_error", "server_error"}


@pytest.mark.parametrize("how", ["rst", "fin"])
@case(scripts.stall(), moves=True)
async def test_a_stream_that_breaks_does_not_end_cleanly(house: House, how: str) -> None:
    """028: five events, then RST or a FIN without the last chunk: an error event, no [DONE], no end of the body."""
    house.engine.script = scripts.cut(FIVE, how)
    answer = await house.ask(chat(stream=True))
    assert answer.status == 200
    assert len(answer.events) == 6
    assert answer.failure["code"] == 502
    assert answer.failure["type"] in RETRYABLE
    assert answer.error
    assert not answer.done
    with pytest.raises(openai.APIError):
        await official_stream(house)
    await house.at_rest(started=2, server_error=2)
    assert {access.code for access in house.booked} == {"truncated"}


@case(
    scripts.stream(pieces=[scripts.sse({"error": {"code": 502, "message": "no"}, "choices": []}), scripts.DONE]),
    moves=True,
)
async def test_an_error_inside_a_stream_is_passed_on_and_counted(house: House) -> None:
    """029: the frame reaches the client as it is, the request counts as failed, the breaker hears of it."""
    answer = await house.ask(chat(stream=True))
    assert answer.body == scripts.sse({"error": {"code": 502, "message": "no"}, "choices": []}) + scripts.DONE
    await house.at_rest(server_error=1)
    for _ in range(2):
        await house.ask(chat(stream=True))
    await house.at_rest(server_error=3, ok=0)
    assert house.count("headway_attempts_total", outcome="in_band_error") == 3
    assert house.view().breaker == "open"


@case(scripts.stall(), scripts.stall(), moves=True)
async def test_one_status_line_whatever_breaks(house: House) -> None:
    """031: the first engine ends after [DONE] alone, the second after three events: one response, recorded as cut."""

    async def script(connection: Connection, seen: Seen) -> None:
        first = sum(len(engine.log.inference) for engine in house.engines) == 1
        tried = scripts.stream(pieces=[scripts.DONE]) if first else scripts.cut(FIVE[: FIVE.index(b"t3") - 40], "rst")
        await tried(connection, seen)

    for engine in house.engines:
        engine.script = script
    async with house.client() as client:
        await client.send(request(body=chat(stream=True)))
        received = await client.rest()
    assert received.count(b"HTTP/1.1") == 1
    assert b"[DONE]" not in received
    assert received.count(b'"content"') == 3
    await house.at_rest(started=1, server_error=1)
    assert [(access.attempts, access.code) for access in house.booked] == [(2, "truncated")]


CUTS: dict[str, tuple[bytes, bool]] = {
    "before_the_head": (b"", True),
    "after_the_head": (ANSWER[: ANSWER.index(b"\r\n\r\n") + 4], True),
    "within_the_body": (ANSWER[:-20], True),
    "stream_before_the_head": (b"", False),
    "stream_after_the_head": (scripts.STREAM_HEAD, False),
}


@pytest.mark.parametrize("where", CUTS)
@case(scripts.stall(), moves=True)
async def test_a_cut_is_never_the_clients_fault(house: House, where: str) -> None:
    """032 a, b: cut before or after the head (or within a JSON answer, which is held until it is whole): 502, of a
    type that clients try again. (A stream's head is held for a moment only, and a busy machine may miss that: then the
    stream says so.)"""
    data, plain = CUTS[where]
    house.engine.script = scripts.cut(data, "rst")
    answer = await house.ask(chat(not plain))
    if where == "stream_after_the_head" and answer.status == 200:
        assert b'"type":"upstream_error"' in answer.body
    else:
        assert answer.status == 502
        assert answer.json["error"]["type"] in RETRYABLE
    await house.at_rest(server_error=1)


@case(scripts.cut(scripts.STREAM_HEAD, "rst", after_s=0.1), moves=True)
async def test_a_cut_after_a_late_head_is_told_in_band(house: House) -> None:
    """032 b, when the head had to be passed on meanwhile: no second status line, an error event with a 5xx code."""
    answer = await house.ask(chat(stream=True))
    assert (answer.status, answer.failure["code"]) == (200, 502)
    assert answer.error
    await house.at_rest(server_error=1)


@case(scripts.cut(FIVE, "rst"), moves=True)
async def test_a_cut_within_a_stream_is_told_in_band(house: House) -> None:
    """032 c."""
    answer = await house.ask(chat(stream=True))
    assert (answer.status, answer.failure["code"]) == (200, 502)
    assert answer.failure["type"] in RETRYABLE
    await house.at_rest(server_error=1)


@case(
    scripts.stall(FIVE + scripts.chunk(scripts.token("", "stop", usage={"prompt_tokens": 4, "completion_tokens": 5}))),
    config=patience(idle_s=0.3),
    moves=True,
)
async def test_a_stream_that_forgets_its_end_is_ended(house: House) -> None:
    """034: a finish reason, then silence: cut at the idle bound; usage is recorded, nothing stays in flight."""
    began = time.perf_counter()
    answer = await house.ask(chat(stream=True))
    assert 0.15 < time.perf_counter() - began < 2.0
    assert not answer.done
    assert answer.error
    await house.at_rest(started=1)
    assert house.count("headway_output_tokens_total") == 5
    assert house.engine.log.running == 0


REFUSALS = {
    429: scripts.error(429, "slow down", headers=["Retry-After: 7"]),
    400: scripts.error(400, "too long"),
    503: scripts.error(503, "queue full", headers=["Retry-After: 3"]),
    500: scripts.error(500, "broken"),
}


@pytest.mark.parametrize("status", REFUSALS)
@case(scripts.stall(), moves=True)
async def test_an_error_before_the_first_byte_keeps_its_status(house: House, status: int) -> None:
    """035: a refusal of a streamed request is that refusal: its status, body, content type and Retry-After."""
    house.engine.script = REFUSALS[status]
    direct = await _direct(house)
    answer = await house.ask(chat(stream=True))
    assert (answer.status, answer.body) == (status, direct.body)
    for name in ("content-type", "retry-after"):
        assert answer.message.get(name) == direct.message.get(name)


async def _direct(house: House) -> Answer:
    """What the engine says without a gateway."""
    async with RawClient(house.engine.port) as client:
        return await client.ask(body=chat(stream=True))


LOCAL: dict[str, tuple[int, Callable[[], bytes]]] = {
    "no_such_path": (404, lambda: request("/v2/nothing", chat())),
    "no_such_model": (404, lambda: request(body=chat(model="alias-of-nothing"))),
    "wrong_method": (405, lambda: request("/v1/chat/completions", method="PUT", body=chat())),
    "bad_json": (400, lambda: request(body=b"{")),
    "too_large": (413, lambda: request(body=chat(content="x" * 5000))),
    "bad_head": (400, lambda: b"GET / HTTP/1.1\r\nbad\r\n\r\n"),
}


@pytest.mark.parametrize("why", LOCAL)
@case(
    scripts.answer(),
    config=GatewayConfig(port=0, limits=Limits(max_body_bytes=4096)),
    serves={"alias": "m"},
    moves=True,
)
async def test_our_own_refusals_are_nobodys_answer(house: House, why: str) -> None:
    """037: what we refuse ourselves counts for no replica and is not rewritten as an engine's answer would be."""
    status, make = LOCAL[why]
    async with house.client() as client:
        await client.send(make())
        answer = await client.answer()
    assert answer.status == status
    assert answer.json["error"]["type"] == "invalid_request_error"
    await house.at_rest(started=1, client_error=1)
    _no_replica_is_concerned(house)


@case(scripts.answer(), moves=True)
async def test_unavailable_is_nobodys_answer(house: House) -> None:
    """037: 503 because nobody can take it: ours, with Retry-After, and no attempt is counted."""
    house.gateway.post(DrainAsked(now(), ReplicaId("r0")))
    answer = await house.ask(chat())
    assert (answer.status, answer.json["error"]["type"]) == (503, "server_error")
    assert int(answer.message.get("retry-after")) >= 1
    await house.at_rest(started=1)
    _no_replica_is_concerned(house)


@case(
    scripts.stall(),
    brain=BrainConfig(admission=AdmissionConfig(max_queued=1), scheduler=SchedulerConfig(max_in_flight=1)),
    moves=True,
)
async def test_overload_is_nobodys_answer(house: House) -> None:
    """037: 503 because the queue is full: the same."""
    async with house.client() as runs, house.client() as waits:
        await runs.send(request(body=chat()))
        await house.engine.wait_for(lambda log: log.inference)
        await waits.send(request(body=chat()))
        await until(lambda: house.gateway.snapshot().queued == 1)
        answer = await house.ask(chat())
        assert (answer.status, answer.json["error"]["code"]) == (503, "queue_full")
        assert int(answer.message.get("retry-after")) >= 1
        assert house.count("headway_attempts_total") == 0
    await house.at_rest(started=3, client_closed=2, shed=1)


def _no_replica_is_concerned(house: House) -> None:
    assert house.count("headway_attempts_total") == 0
    assert house.count("headway_health_changes_total") == len(house.engines)  # each was found alive once
    assert not any(engine.log.inference for engine in house.engines)


JSON_CUT = scripts.response(b'{"choices":[{"message":{"content":"hi"},"finish_reason":"stop"}]}')
SHORT_STREAM = scripts.STREAM_HEAD + b"".join(
    map(scripts.chunk, [scripts.token("a"), scripts.token("b", "stop"), scripts.DONE])
)
CLOSED_STREAM = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n" + b"".join(
    [scripts.token("a"), scripts.token("b", "stop"), scripts.DONE]
)
RESPONSES = {"json": JSON_CUT, "chunked_stream": SHORT_STREAM + scripts.LAST_CHUNK, "stream_until_close": CLOSED_STREAM}


def verdict(name: str, answer: Answer) -> str:
    """What a client must take the answer for; a silent clean end is the one thing that fails."""
    if answer.status != 200:
        assert answer.status in (502, 503)
        assert answer.json["error"]["type"] in RETRYABLE
        assert not answer.error
        return "status"
    if name == "json":
        assert answer.error
        return "visibly cut"
    if b'"finish_reason":"stop"}]}' in answer.body and not answer.error and not answer.failure:
        return "complete"
    assert answer.error or answer.failure
    return "visibly cut"


@pytest.mark.slow
@pytest.mark.parametrize("late", [False, True], ids=["at_once", "after_the_head_has_passed"])
@pytest.mark.parametrize("how", ["fin", "rst"])
@pytest.mark.parametrize("name", RESPONSES)
@case(scripts.stall(), moves=True)
async def test_a_cut_anywhere_is_seen(house: House, name: str, how: str, late: bool) -> None:
    """F5: FIN and RST at every byte of head, body and stream: retryable status or visible cut, never a clean end."""
    response = RESPONSES[name]

    async def script(connection: Connection, seen: Seen) -> None:
        at = int(seen.request.get("x-cut"))
        await scripts.cut(response[:at], how, after_s=0.05 if late else 0.0)(connection, seen)

    house.engine.script = script
    offsets = range(0, len(response), 1 if SOAK else 2)
    asked = [house.ask(chat(name != "json"), headers={"X-Cut": str(at)}) for at in offsets]
    verdicts = dict(zip(offsets, (verdict(name, a) for a in await gather_bounded(40, asked)), strict=True))
    body_at = response.index(b"\r\n\r\n") + 4
    assert {verdicts[at] for at in offsets if at < body_at} == {"status"}
    if name == "stream_until_close" and how == "fin":  # without framing a finish reason is all that tells the end
        finished = body_at + len(scripts.token("a") + scripts.token("b", "stop")) - 2
        assert {at for at in offsets if verdicts[at] == "complete"} == {at for at in offsets if at >= finished}
    else:
        assert "complete" not in verdicts.values()
    await house.at_rest()
    booked_ok = sum(access.account == "ok" for access in house.booked)
    assert booked_ok == sum(seen == "complete" for seen in verdicts.values())


@case(scripts.stall(), scripts.stall(), brain=UNMOVED, moves=True)
async def test_a_cut_before_the_client_has_anything_is_tried_elsewhere(house: House) -> None:
    """F5, with a second replica: whatever is cut before the first content is served by it, and nobody notices."""
    response = RESPONSES["chunked_stream"]
    content_at = response.index(b"data:")
    served = set[str]()

    async def script(connection: Connection, seen: Seen) -> None:
        number = seen.request.get("x-number")
        again, _ = number in served, served.add(number)
        cut = scripts.cut(response[: int(number) % content_at], ("fin", "rst")[int(number) % 2])
        await (scripts.raw(response) if again else cut)(connection, seen)

    for engine in house.engines:
        engine.script = script
    for number in range(0, 2 * content_at, 9):
        answer = await house.ask(chat(stream=True), headers={"X-Number": str(number)})
        assert (answer.status, answer.error, answer.done) == (200, "", True)
    await house.at_rest(server_error=0, client_error=0, shed=0)
    assert {access.attempts for access in house.booked} == {2}
