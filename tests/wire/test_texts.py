"""The texts of prompts: all that is text, nothing that is not, and what counts as the whole prompt."""

import msgspec
import pytest

from headway.wire.texts import Texts, texts

CHAT = "/v1/chat/completions"


def of(path: str = CHAT, **body: object) -> Texts | None:
    return texts(msgspec.json.encode({"model": "m", **body}), path)


def test_a_single_completion_prompt_is_whole() -> None:
    assert of("/v1/completions", prompt="größe") == Texts(("größe".encode(),), whole=True)


@pytest.mark.parametrize(
    "more",
    [{"truncate_prompt_tokens": 5}, {"add_special_tokens": False}, {"suffix": "end"}, {"prompt_embeds": "AAAA"}],
)
def test_what_changes_its_tokens_makes_it_inexact(more: dict[str, object]) -> None:
    assert of("/v1/completions", prompt="text", **more) == Texts((b"text",))


def test_null_changes_nothing() -> None:
    assert of("/v1/completions", prompt="text", suffix=None) == Texts((b"text",), whole=True)


def test_several_prompts_are_not_whole() -> None:
    assert of("/v1/completions", prompt=["a", "b"]) == Texts((b"a", b"b"))


@pytest.mark.parametrize("prompt", [[1, 2, 3], [[1], [2]], "", None, 7, {"a": 1}])
def test_prompts_that_are_no_text(prompt: object) -> None:
    assert of("/v1/completions", prompt=prompt) is None


def test_messages_with_all_kinds_of_content() -> None:
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    found = of(
        messages=[
            {"role": "system", "content": "be brief"},
            {"role": "user", "content": [{"type": "text", "text": "what is this"}, image, "bare"]},
            {"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "f", "arguments": "{}"}}, {}]},
            {"role": "tool", "content": "42"},
        ],
        tools=[{"type": "function"}],
    )
    parts = (b'[{"type":"function"}]', b"be brief", b"what is this", b"bare", b"f {}", b"42")
    assert found == Texts(parts, messages=4)


def test_anthropic_and_responses() -> None:
    system = [{"type": "text", "text": "s"}]
    asked = [{"role": "user", "content": [{"type": "text", "text": "u"}]}]
    assert of("/v1/messages", system=system, messages=asked) == Texts((b"s", b"u"), 2)
    assert of("/v1/responses", instructions="i", input="u") == Texts((b"i", b"u"), 2)
    items = [{"type": "function_call", "arguments": "{1}"}, {"type": "function_call_output", "output": "o"}]
    assert of("/v1/responses", input=items) == Texts((b"{1}", b"o"), 2)


@pytest.mark.parametrize("messages", [None, [], "text", [{"content": 7}], [["x"]]])
def test_messages_that_are_none(messages: object) -> None:
    assert of(messages=messages) is None


def test_other_paths_are_not_read() -> None:
    assert of("/v1/embeddings", input="text") is None
