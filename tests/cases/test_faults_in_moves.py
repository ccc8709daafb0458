"""Families C, D and M of the cases, and F5 to F7, while a request is being moved.

(The cases with moves enabled but nothing to move are where the cases are: tests marked `moves`. Failing targets, dead
replicas and the rest of F6: `test_migration.py`.)
"""

import asyncio
import json
import re
import time
from typing import Any

import pytest

from headway.core.events import DrainAsked
from headway.core.ids import ReplicaId
from headway.gateway.config import GatewayConfig, Moving
from headway.runtime.clock import now
from tests.cases.house import SOAK, House, case, gather_bounded, movable, moving, open_house, until
from tests.cases.moves import PATIENT, QUEUE, move, obey, plain, running, speak, undisturbed, wish
from tests.cases.test_migration import results, some
from tests.cases.test_whole_answers import alike, ask_for
from tests.cases.test_whole_answers import undisturbed as undisturbed_whole
from tests.harness import chaos, scripts
from tests.harness.client import request
from tests.harness.engine import Connection, Script, ScriptedEngine, Seen
from tests.harness.speaker import MODEL, Trouble, said
from tests.wire.engine import CHAT, COMPLETIONS
from tests.wire.test_resume_exact import seen as made_of

NOBODY = scripts.stream(1)
MOVABLE = GatewayConfig(port=0, inject_usage="never", moving=Moving(plain=True))
TWO: dict[str, Any] = {"config": MOVABLE, "brain": PATIENT, "model": MODEL}
PACE_S = 0.003


def is_warm_up(seen: Seen) -> bool:
    return json.loads(seen.request.body).get("max_tokens") == 1


def but_for_warm_ups(other: Script, usual: Script) -> Script:
    """A target that reads what there is, and then does something else than to go on."""

    async def script(connection: Connection, seen: Seen) -> None:
        await (usual if is_warm_up(seen) else other)(connection, seen)

    return script


def idle(house: House) -> ScriptedEngine:
    return next(engine for engine in house.engines if not engine.log.inference)


# F7.

PHASES = ("warming", "asking", "cutting", "moved", "held", "resuming asking", "resuming")


async def reach(house: House, phase: str) -> None:
    """The request that runs is in this phase of a move."""
    target = idle(house)
    if phase == "warming":
        target.paths[COMPLETIONS] = scripts.stall()
    elif phase in ("asking", "resuming asking"):
        target.paths["/detokenize"] = scripts.stall()
    elif phase in ("cutting", "resuming"):
        target.paths[COMPLETIONS] = but_for_warm_ups(scripts.stall(), target.paths[COMPLETIONS])
    if phase == "held":
        for name in ("r0", "r1"):
            house.gateway.post(DrainAsked(now(), ReplicaId(name)))
        move(house, running(house), QUEUE)
        await until(lambda: house.gateway.snapshot().queued == 1)
    elif phase.startswith("resuming"):
        for connection in [c for engine in house.engines if engine is not target for c in list(engine.connections)]:
            connection.rst()
    else:
        move(house, running(house))
    wanted = {"cutting": 3, "resuming": 2, "moved": 3, "held": 0}.get(phase, 1 + (phase == "asking"))
    await until(lambda: len(target.log.inference) >= wanted, describe=lambda: target.log.hits)
    if phase == "moved":
        await until(lambda: "cut" in results(house))


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
@pytest.mark.parametrize("leave", chaos.LEAVES)
@pytest.mark.parametrize("phase", PHASES)
@case(NOBODY, NOBODY, **TWO)
async def test_leaving_in_every_phase_of_a_move(house: House, phase: str, leave: str, stream: bool) -> None:
    """F7: whatever is open towards engines is closed at once, nothing is held, and the next client is served."""
    obey(house)
    speak(house, gap_s=PACE_S)
    async with house.client() as client:
        await client.send(request(CHAT, wish(CHAT) if stream else ask_for(CHAT)))
        await some(house, 1500)
        await reach(house, phase)
        left = time.perf_counter()
        await chaos.LEAVES[leave](client)
        await until(lambda: all(engine.log.running == 0 for engine in house.engines))
        assert time.perf_counter() - left < 1.0
        await house.at_rest(started=1, client_closed=1)
    for name in ("r0", "r1"):
        house.gateway.post(DrainAsked(now(), ReplicaId(name), False))
    speak(house)
    body = wish(CHAT)
    assert plain((await house.ask(body)).body) == undisturbed(CHAT, body)


# F5.


def cut_of(seen: Seen) -> Trouble | None:
    """Where the request says that the first, or the second, of its attempts is to be cut."""
    if not seen.request.get("x-cut"):
        return None
    who, at, way = seen.request.get("x-cut").split()
    hit = seen.request.get("x-request-id").endswith({"source": "-0", "target": "-1"}[who])
    return Trouble(int(at), way) if hit else None


def unsigned(data: bytes) -> bytes:
    """Without the fingerprint of the engine, which nobody tells where we say the end ourselves."""
    return re.sub(rb',"system_fingerprint":(?:"[^"]*"|null)', b"", data)


class Orders:
    """Moves each request once, as soon as it has said something and there is a target that takes nobody else."""

    def __init__(self, house: House) -> None:
        self.house = house
        self.moved: set[str] = set()

    def sent(self, seen: Seen) -> None:
        name = seen.request.get("x-request-id")
        if name.endswith("-0") and seen.wrote > 700 and name not in self.moved:
            request_id: Any = name.removesuffix("-0")
            move(self.house, request_id)
            job = self.house.brain._jobs.get(request_id)
            if job is not None and job.tries.made > 1:
                self.moved.add(name)


@pytest.mark.slow
@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
@pytest.mark.parametrize("way", ["rst", "fin"])
@pytest.mark.parametrize("who", ["source", "target"])
@case(NOBODY, NOBODY, NOBODY, NOBODY, **TWO)
async def test_a_cut_anywhere_in_a_move_is_not_noticed(house: House, who: str, way: str, stream: bool) -> None:
    """F5: at every byte of the source's stream, and of the target's. The other one, or a third attempt, goes on."""
    orders = Orders(house)
    speak(house, trouble=cut_of, gap_s=0.001, sent=orders.sent)
    body = wish(COMPLETIONS, max_tokens=12) if stream else ask_for(COMPLETIONS, max_tokens=12)
    expected = unsigned(undisturbed(COMPLETIONS, body) if stream else undisturbed_whole(COMPLETIONS, body))
    longest = len(undisturbed(COMPLETIONS, wish(COMPLETIONS, max_tokens=12)))
    offsets = range(0, longest, 1 if SOAK else 41)

    async def one(at: int) -> None:
        answer = await house.ask(body, COMPLETIONS, headers={"X-Cut": f"{who} {at} {way}"})
        assert unsigned(plain(answer.body) if stream else alike(answer.body)) == expected, (at, answer.error)

    await gather_bounded(3, [one(at) for at in offsets])
    assert results(house).count("begun") > len(offsets) / 4
    assert results(house).count("failed_over") > len(offsets) / 12


@pytest.mark.parametrize("way", ["rst", "fin", "error"])
@pytest.mark.parametrize("left", [1, 2, 3, 60, 1000], ids="{} bytes left".format)
@case(NOBODY, NOBODY, **TWO)
async def test_a_first_event_that_is_cut_is_asked_for_again_in_full(house: House, left: int, way: str) -> None:
    """It began, so the head is out; nothing of it could be shown; the other engine gets all that the client sent.
    (Whole lines were let through to a filter that waits for the end of the event, and what the client had sent was let
    go.)"""

    def trouble(seen: Seen) -> Trouble | None:
        event = said(seen.request.path, bytes(seen.request.body), "r0-1-1").index(b"\n\n") + 2
        return Trouble(max(0, event - left), way) if first(seen) else None

    speak(house, trouble=trouble, piece=lambda: 10**6, gap_s=0.03)
    body = wish(COMPLETIONS, max_tokens=3)
    answer = await house.ask(body, COMPLETIONS)
    assert unsigned(plain(answer.body)) == unsigned(undisturbed(COMPLETIONS, body)), answer.error
    bodies = [json.loads(seen.request.body) for engine in house.engines for seen in engine.log.inference]
    assert bodies == [{**body, "return_token_ids": True}] * 2
    await house.at_rest(started=1, ok=1)


def first(seen: Seen) -> bool:
    return str(seen.request.get("x-request-id")).endswith("-0")


# Family C.


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
@pytest.mark.parametrize("way", ["rst", "fin", "error", "abort", "last"])
@case(NOBODY, NOBODY, config=MOVABLE, brain=moving(), model=MODEL)
async def test_what_breaks_again_and_again_does_not_end_cleanly(house: House, way: str, stream: bool) -> None:
    """028, 029, 032, with a request that would go on: two replicas lost are enough, then it is an error."""
    speak(house, trouble=lambda _: Trouble(900, way), gap_s=PACE_S)
    body = wish(CHAT) if stream else ask_for(CHAT)
    answer = await house.ask(body)
    if stream:
        assert answer.failure["code"] in (502, 503)
        assert not answer.done
        told = plain(answer.body).rpartition(b"data: ")[0].rstrip(b"\n")
        assert undisturbed(CHAT, body).startswith(told)
    else:
        assert answer.status in (502, 503)
        assert answer.json["error"]["type"] in ("upstream_error", "server_error")
        assert answer.error == ""
    await house.at_rest(started=1, server_error=1)


@case(NOBODY, NOBODY, **TWO)
async def test_one_status_line_whatever_breaks(house: House) -> None:
    """031: a retry before anything was said, then a death, then another: one response."""
    seen_before: set[str] = set()

    def trouble(seen: Seen) -> Trouble | None:
        number = seen.request.get("x-request-id")[-1]
        fresh = number not in seen_before and not is_warm_up(seen)
        seen_before.add(number)
        return (
            {"0": Trouble(0, "rst"), "1": Trouble(2000, "rst"), "2": Trouble(700, "fin")}.get(number) if fresh else None
        )

    speak(house, trouble=trouble)
    async with house.client() as client:
        await client.send(request(CHAT, wish(CHAT), headers={"Connection": "close"}))
        received = await client.rest()
    assert received.count(b"HTTP/1.1") == 1
    assert received.count(b"[DONE]") == 1
    assert house.booked[0].attempts == 4


# Family D.

OPTIONS: dict[str, dict[str, Any]] = {
    "silent": {},
    "empty": {"stream_options": {}},
    "false": {"stream_options": {"include_usage": False}},
    "true": {"stream_options": {"include_usage": True}},
    "running": {"stream_options": {"include_usage": True, "continuous_usage_stats": True}},
}


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("setting", ["always", "never"])
@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
@case()
async def test_usage_across_a_move(outer: House, path: str, setting: str, options: str) -> None:
    """038: exactly what was asked for, with the numbers of one run, whatever we ask engines for ourselves."""
    config = movable(GatewayConfig(port=0, inject_usage=setting))
    async with open_house(NOBODY, NOBODY, config=config, brain=PATIENT, model=MODEL) as house:
        speak(house, gap_s=PACE_S)
        body = wish(path, **OPTIONS[options])
        asked = asyncio.ensure_future(house.ask(body, path))
        await some(house)
        move(house, running(house))
        answer = await asked
    assert results(house) == ["begun", "cut"]
    assert plain(answer.body) == undisturbed(path, body)
    assert house.booked[0].output_tokens == 60


TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]


@pytest.mark.parametrize("asked", [True, False])
@case(NOBODY, NOBODY, **TWO)
async def test_tool_calls_are_not_moved_and_pass_untouched(house: House, asked: bool) -> None:
    """040, 041: whether the request speaks of tools or the stream does so by itself."""
    call = {"index": 0, "id": "x", "type": "function", "function": {"name": "f", "arguments": ""}}
    more = {"index": 0, "function": {"arguments": "{}"}}
    ids = {"prompt_token_ids": [1], "token_ids": [2]}
    pieces = [
        scripts.sse(
            {"id": "c", "choices": [{"index": 0, "delta": {"tool_calls": [one]}, "finish_reason": end, **also}]}
        )
        for one, end, also in ((call, None, ids), (more, None, {}), (more, "tool_calls", {}))
    ]
    for engine in house.engines:
        engine.paths[CHAT] = scripts.stream(pieces=[*pieces, scripts.DONE], gap_s=0.03)
    future = asyncio.ensure_future(house.ask(wish(CHAT, **({"tools": TOOLS} if asked else {}))))
    await some(house, 100)
    await asyncio.sleep(0.01)
    move(house, running(house))
    answer = await future
    told = b"".join([*pieces, scripts.DONE])
    stripped = told.replace(b"[1]", b"null").replace(b"[2]", b"null")
    assert answer.body == (told if asked else stripped)
    assert "cut" not in results(house)


# Family M: a move's warm-up is to its target what a prefill is to a decoder.


@pytest.mark.parametrize("status", [400, 500, 503])
@case(NOBODY, NOBODY, **TWO)
async def test_a_warm_up_that_fails_is_awaited_and_counted(house: House, status: int) -> None:
    """148: against the target, and the client is served; the next order tries again."""
    speak(house, gap_s=PACE_S)
    asked = asyncio.ensure_future(house.ask(wish(CHAT)))
    await some(house)
    target = idle(house)
    usual = target.paths[COMPLETIONS]
    target.paths[COMPLETIONS] = scripts.error(status, "no room for this")
    move(house, running(house))
    await until(lambda: results(house) == ["begun", "abandoned"])
    name = "client_error" if status == 400 else "server_error"
    assert house.count("headway_attempts_total", outcome=name) == 1
    target.paths[COMPLETIONS] = usual
    await asyncio.sleep(5 * PACE_S)
    move(house, running(house))
    answer = await asked
    assert plain(answer.body) == undisturbed(CHAT, wish(CHAT))
    assert results(house) == ["begun", "abandoned", "begun", "cut"]


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
@case(NOBODY, NOBODY, **TWO)
async def test_a_continuation_that_is_refused_says_why(house: House, stream: bool) -> None:
    """149: nobody is left but one that finds fault with the continuation: its status is told."""
    speak(house, gap_s=PACE_S)
    asked = asyncio.ensure_future(house.ask(wish(CHAT) if stream else ask_for(CHAT)))
    await some(house)
    for engine in house.engines:
        engine.paths[COMPLETIONS] = scripts.error(400, "too long")
        for connection in list(engine.connections):
            connection.rst()
    answer = await asked
    failure = answer.failure if stream else answer.json["error"]
    assert answer.status == (200 if stream else 502)
    assert "it answered 400" in failure["message"] or "400" in failure["message"]
    await house.at_rest(server_error=1)


@case(NOBODY, NOBODY, **TWO)
async def test_a_warm_up_is_a_request_that_strict_engines_take(house: House) -> None:
    """151: one token, no least, no stream options; the continuation has the client's own wishes, less what was said."""
    speak(house, gap_s=PACE_S)
    body = wish(CHAT, min_tokens=50, stop=["never said"], stream_options={"include_usage": True})
    asked = asyncio.ensure_future(house.ask(body))
    await some(house)
    target = idle(house)
    move(house, running(house))
    got, expected = made_of(plain((await asked).body)), made_of(undisturbed(CHAT, body))
    assert [got[name] for name in ("text", "ends", "usage")] == [expected[name] for name in ("text", "ends", "usage")]
    told = [json.loads(seen.request.body) for seen in target.log.inference if seen.request.path == COMPLETIONS]
    warm_up, going_on = told
    assert (warm_up["max_tokens"], warm_up["min_tokens"]) == (1, 0)
    said = 60 - going_on["max_tokens"]
    assert (going_on["min_tokens"], going_on["stop"]) == (max(0, 50 - said), ["never said"])
    assert said > 0


@pytest.mark.parametrize("pinned", [{"n": 2}, {"logprobs": True}, {"seed": 1}])
@case(scripts.stream(8, gap_s=0.02), scripts.stream(8, gap_s=0.02), config=MOVABLE, brain=PATIENT)
async def test_what_a_warm_up_could_not_say_is_not_warmed(house: House, pinned: dict[str, Any]) -> None:
    asked = asyncio.ensure_future(house.ask({**wish(CHAT, **pinned), "model": "m"}))
    await some(house, 200)
    move(house, running(house))
    answer = await asked
    assert answer.done
    assert sum(len(engine.log.inference) for engine in house.engines) == 1
