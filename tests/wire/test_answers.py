"""Usage and endings of unstreamed answers, from recordings and odd ones."""

from pathlib import Path

import pytest

from headway.wire.answers import answer_of
from headway.wire.usage import Answer, Usage

RECORDED = [
    ("vllm/chat-nonstream", Usage(23, 0, 12), True),
    ("vllm/completions-nonstream-ids", Usage(3, 0, 12), True),
    ("vllm/other-apis/messages", Usage(20, 0, 30), False),
    ("vllm/other-apis/responses", Usage(20, 0, 30), False),
    ("vllm/scale-out/generate", Usage(10, 0, 8), True),
    ("llama.cpp/chat-nonstream", Usage(20, 0, 30), False),
    ("llama.cpp/tools-required-nonstream", Usage(177, 176, 73), False),
    ("llama.cpp/completion-nonstream", Usage(10, 0, 12), True),
    ("sglang/chat-nonstream", Usage(20, 0, 30), False),
    ("sglang/generate", Usage(10, 9, 8), True),
    ("transformers-serve/chat-nonstream", Usage(19, 0, 60), True),
]


@pytest.mark.parametrize(("name", "usage", "hit_limit"), RECORDED)
def test_recorded_answers(shared: Path, name: str, usage: Usage, hit_limit: bool) -> None:
    body = (shared / "fixtures" / f"{name}.body").read_bytes()
    assert answer_of(body) == Answer(usage, False, hit_limit)


def test_a_recorded_abort(shared: Path) -> None:
    body = (shared / "fixtures/vllm/dev/chat-nonstream-aborted.body").read_bytes()
    assert answer_of(body).aborted


def test_embeddings_have_no_completion() -> None:
    assert answer_of(b'{"data":[],"usage":{"prompt_tokens":5,"total_tokens":5}}').usage == Usage(5, 0, 0)


def test_anthropic_counts_cached_tokens_apart() -> None:
    body = b'{"stop_reason":"max_tokens","usage":{"input_tokens":5,"output_tokens":2,"cache_read_input_tokens":90}}'
    assert answer_of(body) == Answer(Usage(95, 90, 2), False, True)


def test_an_incomplete_response_hit_its_limit() -> None:
    body = b'{"incomplete_details":{"reason":"max_output_tokens"},"usage":{"input_tokens":5,"output_tokens":2}}'
    assert answer_of(body) == Answer(Usage(5, 0, 2), False, True)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b'{"usage":5}',
        b'{"usage":{"prompt_tokens":"x"}}',
        b"[" * 100_000,  # too deep to tell
        b'{"a":NaN,"b":-Infinity}',
        b'{"a":"\\ud800"}',
        b'{"error":{"message":"no"}}',
    ],
)
def test_what_cannot_be_read_was_not_said(body: bytes) -> None:
    assert answer_of(body) == Answer()


@pytest.mark.parametrize("body", [b"<html>", b'{"choices":[', b'{"choices":"\xff"}', b"{}{}", b"\x1f\x8b\x08"])
def test_what_is_no_json_is_told_apart(body: bytes) -> None:
    assert answer_of(body) == Answer(malformed=True)


def test_negative_counts_are_none() -> None:
    assert answer_of(b'{"usage":{"prompt_tokens":-5,"completion_tokens":-1}}').usage == Usage(0, 0, 0)


def test_an_odd_finish_reason_object_is_no_reason() -> None:
    body = b'{"meta_info":{"prompt_tokens":1,"completion_tokens":1,"finish_reason":[1]}}'
    assert answer_of(body) == Answer(Usage(1, 0, 1), False, False)
