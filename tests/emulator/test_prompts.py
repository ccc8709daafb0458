"""The chat template, and what is no prompt."""

from typing import Any

import pytest

from headway.emulator.errors import Refusal
from headway.emulator.prompts import Renderer, check_ids
from headway.perfmodel.text import decode
from headway.perfmodel.vocabulary import SIZE

RENDERER = Renderer(2048)
HELLO: list[dict[str, Any]] = [{"role": "user", "content": "hello"}]


def rendered(**fields: Any) -> str:
    ids = RENDERER.chat(fields)
    assert not isinstance(ids, Refusal)
    return decode(ids)


def test_a_conversation_ends_with_the_assistants_turn_opened() -> None:
    assert rendered(messages=HELLO) == "<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n"
    assert rendered(messages=HELLO, add_generation_prompt=False) == "<|im_start|>user\nhello<|im_end|>\n"


def test_the_last_message_can_be_left_open() -> None:
    messages = [*HELLO, {"role": "assistant", "content": "well"}]
    text = rendered(messages=messages, continue_final_message=True, add_generation_prompt=False)
    assert text == "<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\nwell"


def test_but_not_with_another_turn_opened_after_it() -> None:
    refusal = RENDERER.chat({"messages": HELLO, "continue_final_message": True})
    assert isinstance(refusal, Refusal)
    assert "Cannot set both" in refusal.message


def test_parts_of_text_are_joined_and_missing_content_is_empty() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    assert "a\nb" in rendered(messages=[{"role": "user", "content": parts}])
    assert rendered(messages=[{"role": "tool"}]).startswith("<|im_start|>tool\n<|im_end|>")


@pytest.mark.parametrize("message", ["x", {"role": "user", "content": [{"type": "image_url"}]}])
def test_what_is_no_text_is_refused(message: Any) -> None:
    assert isinstance(RENDERER.chat({"messages": [message]}), Refusal)


@pytest.mark.parametrize("prompt", [None, "", [], [[]], [""], {"a": 1}, [1, "x"], [-1], [SIZE], [["x"]]])
def test_what_is_no_prompt_is_refused(prompt: Any) -> None:
    assert isinstance(RENDERER.completions(prompt), Refusal)


def test_one_or_several_prompts_as_text_or_ids() -> None:
    ids = RENDERER.tokenizer.encode("hello")
    assert RENDERER.completions("hello") == [ids]
    assert RENDERER.completions(["hello", "hello"]) == [ids, ids]
    assert RENDERER.completions([5, 6]) == [[5, 6]]
    assert RENDERER.completions([[5], [6]]) == [[5], [6]]


def test_ids_are_checked() -> None:
    assert check_ids([0, SIZE - 1]) is None
    refusal = check_ids([SIZE])
    assert refusal is not None
    assert refusal.message == f"Token id {SIZE} is out of vocabulary"
