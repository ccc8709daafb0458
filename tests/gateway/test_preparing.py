"""What is asked before a run goes on, by the way of its engine."""

import json
from collections.abc import Generator
from typing import Any

import pytest

from headway.engines import llamacpp, sglang, vllm
from headway.engines.continuation import Continuation, Way
from headway.gateway.preparing import Place, Score, ready, wants_running_usage, warm
from headway.wire import resume_body
from headway.wire.body import Body
from headway.wire.openai import scan
from headway.wire.resume import Tape
from headway.wire.resume_body import CHAT, COMPLETIONS, Ask, LimitReached, Unresumable
from headway.wire.resume_ids import IdStripper

CHAT_BODY = b'{"model":"m","stream":true,"max_tokens":9,"min_tokens":2,"messages":[{"role":"user","content":"hi"}]}'
ONCE = b'{"model":"m","stream":true,"max_tokens":9,"prompt":"Once"}'


def score(continuation: Continuation, path: str, body: bytes) -> Score:
    parsed = scan(body, path)
    assert isinstance(parsed, Body)
    return Score(path, body, parsed, continuation, continuation.way(path), resume_body.stops(body))


def heard(*texts: str, ids: bool = False, chat: bool = True) -> Tape:
    tape = Tape()
    strip = IdStripper(tape)
    for number, text in enumerate(texts):
        choice: dict[str, Any] = {"index": 0, "finish_reason": None}
        choice |= {"delta": {"content": text}} if chat else {"text": text}
        if ids:
            choice |= {"token_ids": [100 + number]} | ({"prompt_token_ids": [1, 2]} if not number else {})
        strip.feed(b"data: " + json.dumps({"choices": [choice]}).encode() + b"\n\n")
    return tape


def run(steps: Generator[Ask, bytes, Any], *answers: object) -> tuple[list[Ask], Any]:
    """What was asked, and what came of it."""
    asked: list[Ask] = []
    waiting = list(answers)
    try:
        asked.append(next(steps))
        while True:
            asked.append(steps.send(json.dumps(waiting.pop(0)).encode()))
    except StopIteration as end:
        return asked, end.value


def test_by_ids_the_target_tells_what_they_spell() -> None:
    tape = heard("a", "b", ids=True)
    asked, found = run(ready(score(vllm.CONTINUATION, CHAT, CHAT_BODY), tape, Place("m2", 99)), {"prompt": "ab"})
    assert [(ask.path, json.loads(ask.body)) for ask in asked] == [
        ("/detokenize", {"model": "m2", "tokens": [100, 101]})
    ]
    assert (found.cut.count, found.ask.path) == (2, COMPLETIONS)
    sent = json.loads(found.ask.body)
    assert (sent["prompt"], sent["model"], sent["max_tokens"], sent["min_tokens"]) == ([1, 2, 100, 101], "m2", 7, 0)


def test_a_warm_up_asks_for_one_token() -> None:
    tape = heard("a", "b", ids=True)
    [asked], said = run(warm(score(vllm.CONTINUATION, CHAT, CHAT_BODY), tape, Place("m")), {})
    sent = json.loads(asked.body)
    assert (said, sent["prompt"], sent["max_tokens"], sent["min_tokens"]) == (b"{}", [1, 2, 100, 101], 1, 0)


def test_by_text_the_prompt_is_rendered_once_and_tokens_are_counted() -> None:
    tape, it = heard("a", "b"), score(llamacpp.CONTINUATION, CHAT, CHAT_BODY)
    answers = ({"prompt": "<hi>"}, {"tokens": [1, 2, 3]}, {"tokens": [1, 2, 3, 4, 5]})
    asked, found = run(ready(it, tape, Place("m")), *answers)
    assert [ask.path for ask in asked] == ["/apply-template", "/tokenize", "/tokenize"]
    assert (found.cut.count, json.loads(found.ask.body)["prompt"], it.prompt_tokens) == (2, "<hi>ab", 3)
    asked, _ = run(warm(it, tape, Place("m")), {})
    assert [ask.path for ask in asked] == [COMPLETIONS]


def test_text_that_splits_into_fewer_tokens_stays() -> None:
    tape, it = heard("t", "h", chat=False), score(llamacpp.CONTINUATION, COMPLETIONS, ONCE)
    with pytest.raises(Unresumable, match="fewer tokens"):
        run(ready(it, tape, Place("m")), {"tokens": [1]}, {"tokens": [1, 2]})


def test_a_prompt_of_ids_is_continued_with_ids() -> None:
    body = ONCE.replace(b'"Once"', b"[7,8]")
    tape, it = heard("a", chat=False), score(llamacpp.CONTINUATION, COMPLETIONS, body)
    _, found = run(ready(it, tape, Place("m")), {"tokens": [9]}, {"tokens": [9]})
    assert json.loads(found.ask.body)["prompt"] == [7, 8, 9]
    [_, asked], _ = run(warm(it, tape, Place("m")), {"tokens": [9]}, {})
    assert json.loads(asked.body)["prompt"] == [7, 8, 9]


def test_by_message_the_answer_is_left_open() -> None:
    _, found = run(ready(score(sglang.CONTINUATION, CHAT, CHAT_BODY), heard("a"), Place("")), {"tokens": [9]})
    assert (found.ask.path, json.loads(found.ask.body)["messages"][-1]["content"]) == (CHAT, "a")


def test_nothing_is_left_to_say() -> None:
    tape = heard(*"abcdefghi", ids=True)
    with pytest.raises(LimitReached):
        run(ready(score(vllm.CONTINUATION, CHAT, CHAT_BODY), tape, Place("m")), {"prompt": "abcdefghi"})


def test_an_engine_that_does_not_tell_what_ids_spell() -> None:
    mute = Continuation(chat=Way.IDS)
    with pytest.raises(Unresumable):
        run(ready(score(mute, CHAT, CHAT_BODY), heard("a", ids=True), Place("m")))


@pytest.mark.parametrize(
    ("options", "wanted"),
    [("null", False), ("7", False), ("{}", False), ('{"continuous_usage_stats":true}', True)],
)
def test_running_usage(options: str, wanted: bool) -> None:
    assert wants_running_usage(f'{{"stream_options":{options}}}'.encode()) is wanted
