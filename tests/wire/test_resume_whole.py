"""Streams put together into the answer that the engine gives at once: recorded ones, and an emulated engine's."""

import json
from pathlib import Path
from typing import Any

import pytest

from headway.engines import forms
from headway.wire.openai import scan
from headway.wire.resume_whole import Form, Whole, streaming_edits
from headway.wire.splice import splice
from tests.wire.engine import CHAT, COMPLETIONS, framed, stream
from tests.wire.engine import whole as at_once

RECORDED: dict[str, tuple[str, str, Form, tuple[str, ...]]] = {
    "vllm chat": ("vllm/chat-stream-usage", "vllm/chat-nonstream", forms.VLLM_CHAT, ()),
    "vllm completion": (
        "vllm/completions-stream-ids", "vllm/completions-nonstream-ids", forms.VLLM_COMPLETION, (),
    ),
    "llama.cpp chat": (
        "llama.cpp/chat-stream-usage", "llama.cpp/chat-nonstream", forms.LLAMA_CHAT, ("timings", "usage"),
    ),
    "llama.cpp completion": (
        "llama.cpp/v1-completions-stream", "llama.cpp/v1-completions-ids", forms.LLAMA_COMPLETION, ("timings",),
    ),
    "sglang chat": ("sglang/chat-stream-usage", "sglang/chat-nonstream", forms.SGLANG_CHAT, ("metadata",)),
    "sglang completion": (
        "sglang/completions-stream", "sglang/completions-ids", forms.SGLANG_COMPLETION, ("metadata",),
    ),
}  # fmt: skip
"""Stream, answer in one piece, form, and what of the answer no stream tells, or differs from run to run."""


def put_together(data: bytes, form: Form, size: int = 0) -> bytes:
    whole = Whole()
    for at in range(0, len(data), size or len(data)):
        whole.feed(data[at : at + (size or len(data))])
    assert (whole.complete, whole.unreadable, whole.error) == (True, False, b"")
    return whole.answer(form)


def skeleton(value: Any) -> Any:
    """The keys of an answer, in order, without what they hold."""
    if isinstance(value, dict):
        return [(name, skeleton(inner)) for name, inner in value.items()]
    return [skeleton(inner) for inner in value] if isinstance(value, list) and value[:1] != [142] else None


@pytest.mark.parametrize("which", RECORDED)
def test_recorded_streams_become_answers_of_the_recorded_shape(shared: Path, which: str) -> None:
    """Where stream and answer were recorded of the same request, they are the same answer, too."""
    told, answered, form, beside = RECORDED[which]
    folder = shared / "fixtures"
    made = json.loads(put_together((folder / f"{told}.body").read_bytes(), form))
    expected = json.loads((folder / f"{answered}.body").read_bytes())
    ask, other = (json.loads((folder / f"{name}.req").read_bytes()) for name in (told, answered))
    for name in beside:
        made.pop(name, None)
        expected.pop(name)
    if {k: v for k, v in ask.items() if k not in ("stream", "stream_options", "return_token_ids")} == other:
        other = {**other, "same": True}
    assert [name for name, _ in skeleton(made)] == [name for name, _ in skeleton(expected)]
    assert skeleton(made["choices"]) == skeleton(expected["choices"])
    if "same" in other or which == "vllm completion":
        for answer in (made, expected):
            answer |= {"id": "x", "created": 0}
        assert made == expected


WISHES: dict[str, dict[str, Any]] = {
    "plain": {}, "few": {"max_tokens": 1}, "ids": {"return_token_ids": True}, "stopped": {"stop": ["a", " "]},
    "shown": {"stop": ["e"], "include_stop_str_in_output": True}, "long": {"max_tokens": 90, "ignore_eos": True},
}  # fmt: skip


@pytest.mark.parametrize("size", [0, 1, 77])
@pytest.mark.parametrize("wish", WISHES)
@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
def test_an_emulated_engine_says_the_same_at_once(path: str, wish: str, size: int) -> None:
    """Byte for byte, in pieces of any size."""
    prompt = {"messages": [{"role": "user", "content": "привет 🙂"}]} if path == CHAT else {"prompt": "Once"}
    body = {"max_tokens": 40, **prompt, **WISHES[wish]}
    raw = json.dumps({"model": "tiny", **body}).encode()
    edits = streaming_edits(raw)
    assert edits is not None
    form = forms.VLLM_CHAT if path == CHAT else forms.VLLM_COMPLETION
    assert put_together(framed(stream(path, splice(raw, edits))), form, size) == at_once(path, body)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b'{"model":"m"}', b'{"stream":true,"stream_options":{"include_usage":true},"model":"m"}'),
        (b'{"stream": false,"model":"m"}', b'{"stream_options":{"include_usage":true},"stream": true,"model":"m"}'),
        (b'{"stream":null,"stream_options":null}', b'{"stream":true,"stream_options":{"include_usage":true}}'),
        (b'{"stream":false,"stream":false,"stream_options":null}',
         b'{"stream":true,"stream":true,"stream_options":{"include_usage":true}}'),
    ],
)  # fmt: skip
def test_a_body_is_made_to_stream(body: bytes, expected: bytes) -> None:
    edits = streaming_edits(body)
    assert edits is not None
    assert splice(body, edits) == expected


def test_a_body_that_speaks_of_streams_itself_is_left_alone() -> None:
    assert streaming_edits(b'{"model":"m","stream_options":{}}') is None
    assert streaming_edits(b"{" + b",".join(b'"%d":1' % n for n in range(5000)) + b"}") is None


def test_an_edited_body_asks_for_the_usage() -> None:
    body = b'{"model":"m","messages":[]}'
    parsed = scan(splice(body, streaming_edits(body) or []), CHAT)
    assert (parsed.stream, parsed.include_usage) == (True, True)  # type: ignore[union-attr]


def event(**said: Any) -> bytes:
    return b"data: " + json.dumps(said).encode() + b"\n\n"


def chat(delta: dict[str, Any], index: int = 0, **more: Any) -> bytes:
    return event(object="chat.completion.chunk", choices=[{"index": index, "delta": delta, **more}])


def test_several_choices_logprobs_and_what_nobody_knows() -> None:
    """Choices come in their order, lists grow, unknown fields are kept with the last thing they said."""
    whole = Whole()
    whole.feed(chat({"role": "assistant"}, 1) + chat({"content": "b", "new": 1}, 1, logprobs={"content": [1]}))
    whole.feed(chat({"content": "a"}, 0, finish_reason="stop") + chat({"content": "c"}, 1, logprobs={"content": [2]}))
    assert not whole.complete
    whole.feed(chat({}, 1, finish_reason="length", logprobs=None) + event(choices=[], usage={"n": 1}, extra={"a": 1}))
    assert whole.complete
    made = json.loads(whole.answer(Form()))
    assert made["choices"] == [
        {"index": 0, "finish_reason": "stop", "message": {"content": "a"}},
        {"index": 1, "logprobs": {"content": [1, 2]}, "finish_reason": "length",
         "message": {"role": "assistant", "new": 1, "content": "bc"}},
    ]  # fmt: skip
    assert (made["object"], made["usage"], made["extra"]) == ("chat.completion", {"n": 1}, {"a": 1})


def test_tool_calls_reasoning_and_refusals() -> None:
    calls = [
        [{"index": 1, "id": "y", "type": "function", "function": {"name": "g", "arguments": ""}}],
        [{"index": 0, "id": "x", "type": "function", "function": {"name": "f"}}],
        [{"index": 0, "function": {"arguments": '{"a"'}}, {"index": 1, "id": None, "function": {"arguments": "{}"}}],
        [{"index": 0, "function": {"arguments": ":1}"}}],
    ]
    told = [
        chat({"reasoning": "hm"}),
        chat({"reasoning": "m", "refusal": "no"}),
        *[chat({"tool_calls": c}) for c in calls],
    ]
    made = json.loads(put_together(b"".join(told) + chat({"content": ""}, finish_reason="tool_calls"), Form()))
    [choice] = made["choices"]
    assert choice["message"] == {
        "reasoning": "hmm", "refusal": "no", "content": None,
        "tool_calls": [
            {"id": "x", "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}},
            {"id": "y", "type": "function", "function": {"name": "g", "arguments": "{}"}},
        ],
    }  # fmt: skip


def test_errors_and_what_is_no_event() -> None:
    whole = Whole()
    whole.feed(b": comment\n\n" + chat({"content": "a"}) + event(error={"code": 400}) + b"data: [DONE]\n\n")
    assert (json.loads(whole.error), whole.complete, whole.unreadable) == ({"error": {"code": 400}}, False, False)
    for wrong in (b"data: {\n\n", event(no=1), event(choices=[1])):
        whole = Whole()
        whole.feed(wrong)
        assert whole.unreadable


def test_size_grows_with_what_is_kept() -> None:
    whole = Whole()
    whole.feed(chat({"content": "a" * 100}) + chat({"tool_calls": [{"index": 0, "function": {"arguments": "b" * 50}}]}))
    assert whole.size == 150
    whole.feed(chat({}, token_ids=[1, 2]) + chat({}, token_ids=[3]))
    assert whole.size > 155


def test_a_stream_that_ends_without_a_blank_line() -> None:
    whole = Whole()
    whole.feed(chat({"content": "a"}) + chat({"content": "b"}, finish_reason="stop").rstrip())
    assert json.loads(whole.answer(Form()))["choices"][0]["message"]["content"] == "ab"
