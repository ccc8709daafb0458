"""Bodies for the target: what changes, what stays, what cannot be."""

import json
from typing import Any

import pytest

from headway.wire import resume_body
from headway.wire.resume_body import Ask, LimitReached, Limits, Stops, Unresumable, Wants
from tests.wire.engine import CHAT, COMPLETIONS

SAY = {"model": "m", "messages": [{"role": "user", "content": "hé"}]}
ONCE = {"model": "m", "prompt": "Once"}
CONTEXT = Limits(context=100)


def raw(**fields: Any) -> bytes:
    return json.dumps(fields, ensure_ascii=False).encode()


def read(ask: Ask) -> dict[str, Any]:
    return dict(json.loads(ask.body))


class TestIds:
    def test_a_chat_becomes_a_completion(self) -> None:
        body = raw(**SAY, max_completion_tokens=9, max_tokens=4, temperature=0.5, logprobs=False, tool_choice="auto")
        ask = resume_body.by_ids(body, [1, 2], [3], Limits())
        assert ask.path == COMPLETIONS
        assert read(ask) == {
            "model": "m",
            "temperature": 0.5,
            "max_tokens": 8,
            "prompt": [1, 2, 3],
            "stream": True,
            "stream_options": {"include_usage": True},
            "return_token_ids": True,
        }

    def test_what_is_kept_keeps_its_bytes(self) -> None:
        body = b'{"prompt":"x","seed" : 90071992547409931,"stop":["\\u00e9"],"x":1.50,"max_tokens":5,"x":1.5e0}'
        ask = resume_body.by_ids(body, [1], [], Limits())
        assert b'"seed":90071992547409931' in ask.body
        assert b'"stop":["\\u00e9"]' in ask.body
        assert b'"x":1.5e0' in ask.body
        assert ask.body.count(b'"x"') == 1

    def test_limits_shrink(self) -> None:
        ask = resume_body.by_ids(raw(**ONCE, max_tokens=10, min_tokens=4), [1], [7, 8, 9], Limits())
        assert (read(ask)["max_tokens"], read(ask)["min_tokens"]) == (7, 1)
        ask = resume_body.by_ids(raw(**ONCE, max_tokens=10, min_tokens=2), [1], [7, 8, 9], Limits())
        assert read(ask)["min_tokens"] == 0

    @pytest.mark.parametrize(
        ("body", "limits", "left"),
        [
            (raw(**SAY), CONTEXT, 100 - 2 - 3),
            (raw(**ONCE), Limits(100, 16), 13),
            (raw(**SAY, max_tokens="12"), CONTEXT, 9),
            (raw(**SAY, max_tokens=0).replace(b": 0", b": 1.2e1"), CONTEXT, 9),
            (raw(**SAY, max_tokens=12.5), CONTEXT, 9),
            (raw(**SAY, max_tokens=None), CONTEXT, 95),
        ],
    )
    def test_the_limit_nobody_named_is_the_engines(self, body: bytes, limits: Limits, left: int) -> None:
        assert read(resume_body.by_ids(body, [1, 2], [3, 4, 5], limits))["max_tokens"] == left

    def test_an_engine_without_a_limit_needs_none(self) -> None:
        assert "max_tokens" not in read(resume_body.by_ids(raw(**ONCE), [1], [2], Limits()))

    def test_nothing_left_is_said(self) -> None:
        with pytest.raises(LimitReached):
            resume_body.by_ids(raw(**ONCE, max_tokens=2), [1], [2, 3], Limits())

    def test_the_target_tells_only_what_is_wanted(self) -> None:
        options = {"continuous_usage_stats": True}
        ask = resume_body.by_ids(raw(**ONCE, stream_options=options), [1], [], Limits(), Wants(ids=False, usage=False))
        assert read(ask)["stream_options"] == options
        assert "return_token_ids" not in read(ask)
        both = resume_body.by_ids(raw(**ONCE, stream_options=options), [1], [], Limits(), more={"id_slot": 3})
        assert read(both)["stream_options"] == {**options, "include_usage": True}
        assert read(both)["id_slot"] == 3


class TestText:
    def test_rendered_prompt_and_what_was_said(self) -> None:
        ask = resume_body.by_text(raw(**SAY, max_tokens=9), "<user>hé<assistant>", "wörld", 3, Limits())
        assert (ask.path, read(ask)["prompt"], read(ask)["max_tokens"]) == (
            COMPLETIONS,
            "<user>hé<assistant>wörld",
            6,
        )

    def test_a_prompt_of_ids_takes_ids(self) -> None:
        assert read(resume_body.by_text(raw(prompt=[5]), [5], [6, 7], 2, Limits()))["prompt"] == [5, 6, 7]
        with pytest.raises(Unresumable):
            resume_body.by_text(raw(prompt=[5]), [5], "x", 2, Limits())

    def test_a_limit_that_depends_on_an_unknown_prompt(self) -> None:
        with pytest.raises(Unresumable, match="unknown"):
            resume_body.by_text(raw(**SAY), "x", "y", 2, CONTEXT)


class TestMessage:
    def test_the_answer_becomes_the_last_message(self) -> None:
        ask = resume_body.by_message(raw(**SAY), "wörld", 3, CONTEXT)
        made = read(ask)
        assert ask.path == CHAT
        assert made["messages"] == [*SAY["messages"], {"role": "assistant", "content": "wörld"}]
        assert (made["add_generation_prompt"], made["continue_final_message"]) == (False, True)
        assert "max_tokens" not in made

    def test_an_answer_the_client_began_goes_on(self) -> None:
        begun = [*SAY["messages"], {"role": "assistant", "content": "Hel", "name": "a"}]
        body = raw(model="m", messages=begun, continue_final_message=True, add_generation_prompt=False)
        made = read(resume_body.by_message(body, "lo", 1, Limits()))
        assert made["messages"][-1] == {"role": "assistant", "content": "Hello", "name": "a"}
        assert len(made["messages"]) == 2


@pytest.mark.parametrize(
    ("fields", "stops"),
    [
        ({}, Stops()),
        ({"stop": "x", "temperature": 0}, Stops(("x",), greedy=True)),
        ({"stop": ["x", "", "yz"], "include_stop_str_in_output": True}, Stops(("x", "yz"), shown=True)),
        ({"stop": [5]}, Stops()),
        ({"stop": None, "top_k": 1}, Stops(greedy=True)),
    ],
)
def test_stop_strings(fields: dict[str, Any], stops: Stops) -> None:
    assert resume_body.stops(raw(**fields)) == stops


def test_how_far_stop_strings_reach() -> None:
    assert (Stops().reach, Stops(("abc", "x")).reach) == (0, 2)
    cases = [Stops(("abc",), shown, greedy) for shown in (False, True) for greedy in (False, True)]
    assert [(one.hold, one.back) for one in cases] == [(2, 0), (0, 0), (0, 0), (0, 2)]
    assert [one.again for one in cases] == [False, True, False, True]


def test_prompts() -> None:
    assert resume_body.prompt_of(raw(prompt="x")) == "x"
    assert resume_body.prompt_of(raw(prompt=[1, 2])) == [1, 2]
    assert resume_body.prompt_of(raw(prompt=["x"])) is None
    assert resume_body.prompt_of(raw(messages=[])) is None


def test_rendering_takes_what_a_template_reads() -> None:
    body = raw(**SAY, chat_template_kwargs={"thinking": False}, max_tokens=4)
    assert json.loads(resume_body.rendering(body)) == {**SAY, "chat_template_kwargs": {"thinking": False}}


def test_fields_that_are_set() -> None:
    body = raw(a=1, b=None, c=0.0, d=1.3)
    assert resume_body.first_set(body, ("a", "b", "c", "x")) == ""
    assert resume_body.first_set(body, ("a", "d")) == "d"
    assert resume_body.has(body, "b")
    assert resume_body.limit_of(raw(max_tokens=4), 0, Limits()) == 4
