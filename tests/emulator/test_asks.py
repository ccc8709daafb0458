"""A body becomes an Ask, or the refusal that vLLM would give."""

import json
from typing import Any

import pytest

from headway.emulator import asks
from headway.emulator.asks import Ask
from headway.emulator.errors import Refusal
from headway.emulator.prompts import Renderer

RENDERER = Renderer(100)


def ask(chat: bool = False, **fields: Any) -> Ask | Refusal:
    fields = {"messages": [{"role": "user", "content": "hi"}], **fields} if chat else {"prompt": "hello", **fields}
    return asks.read(json.dumps(fields).encode(), chat, "tiny", RENDERER)


def good(chat: bool = False, **fields: Any) -> Ask:
    answer = ask(chat, **fields)
    assert isinstance(answer, Ask), answer
    return answer


def refused(chat: bool = False, **fields: Any) -> Refusal:
    answer = ask(chat, **fields)
    assert isinstance(answer, Refusal)
    return answer


def test_defaults() -> None:
    completion, chat = good(), good(chat=True)
    assert completion.max_tokens == 16
    assert chat.max_tokens == 100 - len(chat.prompts[0])
    assert (chat.n, chat.stop, chat.stream, chat.skip_special) == (1, (), False, True)


def test_limits_in_either_spelling() -> None:
    assert good(chat=True, max_completion_tokens=7).max_tokens == 7
    assert good(chat=True, max_tokens=8).max_tokens == 8


def test_everything_that_steers() -> None:
    one = good(
        stop="x",
        stop_token_ids=[5],
        n=2,
        min_tokens=3,
        ignore_eos=True,
        include_stop_str_in_output=True,
        skip_special_tokens=False,
        stream=True,
        stream_options={"include_usage": True, "continuous_usage_stats": True},
        return_token_ids=True,
        echo=True,
        cache_salt="s",
        model=None,
    )
    assert (one.stop, one.stop_token_ids, one.n, one.min_tokens) == (("x",), frozenset({5}), 2, 3)
    assert one.ignore_eos
    assert one.include_stop
    assert not one.skip_special
    assert one.stream
    assert one.include_usage
    assert one.continuous_usage
    assert one.return_token_ids
    assert one.echo
    assert one.salt == "s"


def test_usage_in_streams_only() -> None:
    assert not good(stream_options={"include_usage": True}).include_usage


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"model": "other"}, "The model `other` does not exist"),
        ({"max_tokens": 0}, "max_tokens must be at least 1, got 0"),
        ({"max_tokens": 101}, "cannot be greater than max_model_len=100"),
        ({"max_tokens": 100}, "for a total of 10"),
        ({"prompt": [5] * 100}, "your prompt contains 100 input tokens"),
        ({"min_tokens": 20}, "min_tokens must be less than or equal to max_tokens=16, got 20."),
        ({"min_tokens": -1}, "min_tokens must be greater than or equal to 0"),
        ({"temperature": -0.5}, "temperature must be non-negative, got -0.5"),
        ({"n": 0}, "n must be between 1 and 128"),
        ({"n": 129}, "n must be between 1 and 128"),
        ({"stop": ["a", 1]}, "stop must be a string or a list"),
        ({"stop": ["a"] * 17}, "stop must be a string or a list"),
        ({"stop": [""]}, "stop cannot contain an empty string"),
        ({"tools": [{}], "tool_choice": "required"}, "The emulator does not call tools"),
        ({"prompt": "x" * 1601}, "your prompt contains 1601 characters (more than 1600 characters"),
        ({"prompt": ["hello", ""]}, "Either prompt or prompt_embeds must be provided"),
    ],
)
def test_refusals(fields: dict[str, Any], text: str) -> None:
    assert text in refused(**fields).message


def test_chat_refusals() -> None:
    assert "empty conversation" in refused(chat=True, messages=[]).message
    assert "characters" in refused(chat=True, messages=[{"role": "user", "content": "x" * 1601}]).message


def test_tools_can_be_declined() -> None:
    assert good(chat=True, tools=[{}], tool_choice="none").n == 1
