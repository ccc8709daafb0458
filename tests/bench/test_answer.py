"""Reading answers: pieces and their times, and a word for each way of not being complete."""

import itertools
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.bench.answer import Stream, refused, whole
from headway.core.commands import SHED
from tests.bench.scripted import DONE, GOOD, USAGE, event, piece

BODY = b"".join(GOOD[1:])  # type: ignore[arg-type]


def read(data: bytes) -> Stream:
    stream = Stream()
    stream.feed(data, 1.0)
    return stream


def test_a_good_stream() -> None:
    stream = read(BODY)
    assert stream.error == ""
    assert stream.piece_times == [1.0, 1.0, 1.0]
    assert (stream.usage.prompt_tokens, stream.usage.completion_tokens, stream.usage.cached_tokens) == (40, 3, 16)


@given(st.lists(st.integers(0, len(BODY)), max_size=12), st.booleans())
def test_cuts_anywhere_change_nothing(cuts: list[int], crlf: bool) -> None:
    data = BODY.replace(b"\n", b"\r\n") if crlf else BODY
    stream = Stream()
    bounds = [0, *sorted(cuts), len(data)]
    for start, end in itertools.pairwise(bounds):
        stream.feed(data[start:end], float(start))
    assert stream.error == ""
    assert len(stream.piece_times) == 3
    assert stream.usage.completion_tokens == 3


@pytest.mark.parametrize(
    ("data", "word"),
    [
        (b"", "truncated"),
        (piece("a"), "truncated"),
        (piece("a", "stop"), "truncated"),
        (piece("a") + DONE, "truncated"),
        (piece("a", "stop") + b"data: [DONE]", "truncated"),  # the event never ended
        (piece("a", "abort") + DONE, "finish_abort"),
        (piece("a") + b"data: {nonsense\n\n" + piece("b", "stop") + DONE, "bad_event"),
        (
            piece("a") + event(error={"message": "m", "code": 502, "reason": "upstream_failed"}),
            "in_band_upstream_failed",
        ),
        (piece("a") + event(error={"message": "m", "type": "x", "code": None}), "in_band_x"),
        (piece("a") + event(error="text") + piece("b", "stop") + DONE, "in_band_error"),
    ],
)
def test_incomplete_streams(data: bytes, word: str) -> None:
    assert read(data).error == word


def test_comments_names_and_empty_lines_are_passed_over() -> None:
    assert read(b": hello\n\nevent: x\nid: 3\n" + piece("a", "stop") + b"\n\n" + DONE).error == ""


@pytest.mark.parametrize(
    "delta", [{"content": "x"}, {"reasoning_content": "x"}, {"reasoning": "x"}, {"tool_calls": [{"index": 0}]}]
)
def test_what_counts_as_a_piece(delta: dict) -> None:
    assert len(read(event(choices=[{"delta": delta}])).piece_times) == 1


def test_completions_text_is_a_piece_and_an_empty_one_is_not() -> None:
    assert len(read(event(choices=[{"text": "x"}])).piece_times) == 1
    assert read(event(choices=[{"text": ""}])).piece_times == []
    assert read(USAGE).piece_times == []


@pytest.mark.parametrize(
    ("body", "word"),
    [
        ({"choices": [{"message": {}, "finish_reason": "stop"}], "usage": {"prompt_tokens": 3}}, ""),
        ({"choices": [{"text": "x", "finish_reason": "length"}], "usage": None}, ""),
        ({"choices": []}, "truncated"),
        ({"choices": [{"finish_reason": None}]}, "truncated"),
        ({"choices": [{"finish_reason": "abort"}]}, "finish_abort"),
        ({"error": {"code": 500}}, "in_band_500"),
        ([], "bad_body"),
    ],
)
def test_whole_answers(body: object, word: str) -> None:
    assert whole(json.dumps(body).encode())[0] == word


@pytest.mark.parametrize(
    ("status", "code", "kind", "word"),
    [
        *((status, code, "shed", code) for status, code in sorted(SHED)),
        (503, "no_replica", "server_error", "503 no_replica"),  # a failure in the gateway's books
        (504, "upstream_failed", "server_error", "504 upstream_failed"),
        (429, "rate_limit_exceeded", "client_error", "429 rate_limit_exceeded"),
        (503, 503, "server_error", "503 503"),  # an engine's own, relayed
        (429, None, "client_error", "429 x_error"),
        (404, "model_not_found", "client_error", "404 model_not_found"),
        (500, "queue_full", "server_error", "500 queue_full"),
        (301, None, "server_error", "301 x_error"),
    ],
)
def test_refusals(status: int, code: object, kind: str, word: str) -> None:
    body = json.dumps({"error": {"message": "m", "type": "x_error", "code": code}}).encode()
    assert refused(status, body) == (kind, word)


def test_error_pages_that_are_no_json() -> None:
    assert refused(502, b"<html>") == ("server_error", "502")
    assert refused(400, b'{"code": 40301, "message": "old shape"}') == ("client_error", "400 40301")
    assert refused(400, b'{"error": "words"}') == ("client_error", "400 error")


@pytest.mark.shared
@pytest.mark.parametrize("engine", ["vllm", "sglang", "llama.cpp"])
def test_recorded_streams_of_real_engines_are_complete(shared: Path, engine: str) -> None:
    stream = read((shared / "fixtures" / engine / "chat-stream-usage.body").read_bytes())
    assert stream.error == ""
    assert stream.piece_times
    assert stream.usage.completion_tokens >= len(stream.piece_times) - 1
