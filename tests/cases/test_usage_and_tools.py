"""Usage reports and tool calls: family D of the cases.

What must hold: what Headway asks engines for its own accounts stays invisible, and deltas pass untouched.
"""

import asyncio
import json
from typing import Any

import openai
import pytest

from headway.gateway.config import GatewayConfig
from tests.cases.house import House, case, movable, moving, open_house
from tests.harness import scripts
from tests.harness.client import Answer, chat
from tests.harness.engine import Connection, Seen

USAGE = {"prompt_tokens": 11, "completion_tokens": 5, "total_tokens": 16}
REPORT = scripts.sse({"id": "c", "choices": [], "usage": USAGE})
TOKENS = [scripts.token(f"t{i}", "stop" if i == 4 else None) for i in range(5)]


async def as_vllm(connection: Connection, seen: Seen) -> None:
    """Reports usage at the end exactly if asked to, as vLLM does."""
    options = json.loads(seen.request.body).get("stream_options") or {}
    report = [REPORT] if options.get("include_usage") else []
    await scripts.stream(pieces=[*TOKENS, *report, scripts.DONE])(connection, seen)


NOT_ASKED = {"silent": None, "empty": {}, "false": {"include_usage": False}, "null": {"include_usage": None}}


@pytest.mark.parametrize("options", NOT_ASKED)
@pytest.mark.parametrize("setting", ["learn", "always", "never"])
@pytest.mark.parametrize("moves", [False, True], ids=["", "moves"])
@case()
async def test_a_usage_report_nobody_asked_for_is_not_seen(
    outer: House, moves: bool, setting: str, options: str
) -> None:
    """038: no chunk without choices for a client that did not ask, or said no; accounts have the usage if we asked."""
    said = NOT_ASKED[options]
    body = chat(stream=True) if said is None else chat(stream=True, stream_options=said)
    config = GatewayConfig(port=0, inject_usage=setting)
    async with open_house(
        as_vllm, config=movable(config) if moves else config, brain=moving() if moves else None
    ) as house:
        answer = await house.ask(body)
        asked = json.loads(house.engine.log.inference[0].request.body).get("stream_options") == {"include_usage": True}
    assert answer.body == b"".join([*TOKENS, scripts.DONE])
    assert asked is (setting != "never" and options in ("silent", "empty"))
    assert house.booked[0].prompt_tokens == (11 if asked else 0)
    assert house.booked[0].output_tokens == 5


@case(as_vllm, config=GatewayConfig(port=0, inject_usage="always"), moves=True)
async def test_a_usage_report_that_was_asked_for_is_untouched(house: House) -> None:
    """038: exactly one, with no choices, before [DONE], byte for byte."""
    for options in ({"include_usage": True}, {"include_usage": True, "continuous_usage_stats": False}):
        answer = await house.ask(chat(stream=True, stream_options=options))
        assert answer.body == b"".join([*TOKENS, REPORT, scripts.DONE])
        assert answer.events[-2].json["choices"] == []


def delta(*calls: dict[str, object], finish: str | None = None) -> bytes:
    """One event of tool-call deltas."""
    choice = {"index": 0, "delta": {"tool_calls": calls}, "finish_reason": finish}
    return scripts.sse({"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]})


def begin(index: int) -> dict[str, object]:
    return {
        "index": index,
        "id": f"call_{index}",
        "type": "function",
        "function": {"name": f"f{index}", "arguments": ""},
    }


def more(index: int, text: str, **fields: object) -> dict[str, object]:
    return {"index": index, **fields, "function": {"arguments": text}}


PIECES = [more(0, text, **({} if n % 2 else {"id": None})) for n, text in enumerate('{"a":"0123456"}')]
ONE_CALL = [delta(begin(0)), *map(delta, PIECES), delta(finish="tool_calls"), scripts.DONE]
ARGUMENTS = '{"city": "Zürich", "n": 17}'
THREE_CALLS = [
    *[delta(begin(index)) for index in range(3)],
    *[delta(more(index, c)) for c in ARGUMENTS for index in (2, 0, 1)],
    delta(finish="tool_calls"),
    scripts.DONE,
]


def calls_of(answer: Answer) -> dict[int, dict[str, Any]]:
    """The tool calls that an accumulator makes of a stream's deltas."""
    calls: dict[int, dict[str, Any]] = {}
    for event in answer.events[:-1]:
        for piece in event.json["choices"][0]["delta"]["tool_calls"]:
            call = calls.setdefault(piece["index"], {"id": None, "name": None, "arguments": ""})
            call["id"] = piece.get("id") or call["id"]
            call["name"] = piece["function"].get("name") or call["name"]
            call["arguments"] += piece["function"]["arguments"]
    return calls


@case(scripts.stream(pieces=ONE_CALL), moves=True)
async def test_deltas_without_an_id_pass(house: House) -> None:
    """040: one delta with id and name, then 15 that have only an index (id null or missing)."""
    answer = await house.ask(chat(stream=True))
    assert answer.body == b"".join(ONE_CALL)
    assert calls_of(answer) == {0: {"id": "call_0", "name": "f0", "arguments": '{"a":"0123456"}'}}
    assert house.booked[0].output_tokens == 16


@pytest.mark.parametrize("cut", ["events", "one_write", "bytes"])
@case(scripts.stall(), moves=True)
async def test_parallel_calls_keep_what_belongs_to_each(house: House, cut: str) -> None:
    """041: three calls interleaved, in single and in split writes; the official client rebuilds all three."""
    whole = b"".join(THREE_CALLS)
    size = {"events": 0, "one_write": len(whole), "bytes": 11}[cut]
    pieces = [whole[at : at + size] for at in range(0, len(whole), size)] if size else THREE_CALLS
    house.engine.script = scripts.stream(pieces=pieces)
    answer = await house.ask(chat(stream=True))
    assert answer.body == whole
    expected = {n: {"id": f"call_{n}", "name": f"f{n}", "arguments": ARGUMENTS} for n in range(3)}
    assert calls_of(answer) == expected
    assert await official_calls(house) == [(f"call_{n}", f"f{n}", ARGUMENTS) for n in range(3)]


async def official_calls(house: House) -> list[tuple[str, str, str]]:
    """What the official client's own accumulator makes of a stream."""

    def read_all() -> list[tuple[str, str, str]]:
        with (
            openai.OpenAI(base_url=f"http://127.0.0.1:{house.gateway.port}/v1", api_key="x", max_retries=0) as client,
            client.chat.completions.stream(model="m", messages=[{"role": "user", "content": "hi"}]) as stream,
        ):
            calls = stream.get_final_completion().choices[0].message.tool_calls or []
            return [(call.id, call.function.name, call.function.arguments) for call in calls if call.type == "function"]

    return await asyncio.to_thread(read_all)
