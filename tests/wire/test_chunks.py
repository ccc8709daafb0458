"""What one event says, over the APIs and their oddities."""

from pathlib import Path

import pytest

from headway.wire.chunks import Tally
from headway.wire.usage import Usage
from tests.wire import streams


def tally(*events: str) -> Tally:
    said = Tally()
    for event in events:
        said.read(event.encode())
    return said


@pytest.mark.parametrize(
    ("event", "tokens"),
    [
        (streams.ROLE, 0),
        ('{"choices":[{"delta":{"role":"assistant","content":null}}]}', 0),
        ('{"choices":[{"delta":{"role":"assistant","content":"hi"}}]}', 1),
        ('{"choices":[{"delta":{"content":""}}]}', 1),
        ('{"choices":[{"delta":{"content":null}}]}', 0),
        ('{"choices":[{"delta":{}}]}', 0),
        ('{"choices":[{"delta":{"reasoning_content":null}}]}', 0),
        ('{"choices":[{"delta":{"reasoning_content":"hm"}}]}', 1),
        ('{"choices":[{"delta":{"reasoning":"hm","content":null}}]}', 1),
        ('{"choices":[{"delta":{"tool_calls":[]}}]}', 0),
        (streams.call("x"), 1),
        ('{"choices":[{"delta":{},"token_ids":[5]}]}', 1),
        ('{"choices":[{"delta":{"content":"abc"},"token_ids":[5,6,7]}]}', 3),
        ('{"choices":[{"delta":{"content":"a"},"token_ids":null}]}', 1),
        ('{"choices":[{"delta":{"content":""},"token_ids":[]}]}', 0),
        ('{"choices":[{"text":"a"}]}', 1),
        ('{"choices":[{"delta":{"content":"a"}},{"delta":{"content":"b"}}]}', 2),
        ('{"choices":[]}', 0),
        ('{"type":"content_block_delta","delta":{"type":"text_delta","text":"x"}}', 1),
        ('{"type":"response.output_text.delta","delta":"x"}', 1),
        ('{"type":"response.created","response":{"usage":null,"error":null}}', 0),
        ('{"type":"ping"}', 0),
    ],
)
def test_tokens_of_an_event(event: str, tokens: int) -> None:
    said = tally(event)
    assert (said.tokens, said.unreadable, said.error) == (tokens, 0, None)


@pytest.mark.parametrize(
    ("event", "finished", "aborted", "limit"),
    [
        (streams.token("", '"stop"'), True, False, False),
        (streams.token("", '"length"'), True, False, True),
        (streams.token("", '"abort"'), True, True, False),
        (
            '{"type":"message_delta","delta":{"stop_reason":"max_tokens"},"usage":{"output_tokens":1}}',
            True,
            False,
            True,
        ),
        ('{"type":"message_delta","delta":{"stop_reason":null}}', False, False, False),
        ('{"type":"message_stop"}', True, False, False),
        (
            '{"type":"response.incomplete","response":{"incomplete_details":{"reason":"max_output_tokens"}}}',
            True,
            False,
            True,
        ),
        ('{"text":"","meta_info":{"finish_reason":{"type":"abort"}}}', True, True, False),
        ('{"content":"","stop":true,"stop_type":"limit","tokens_predicted":2}', True, False, True),
    ],
)
def test_endings(event: str, finished: bool, aborted: bool, limit: bool) -> None:
    said = tally(event)
    assert (said.finished, said.aborted, said.hit_limit, said.done) == (finished, aborted, limit, False)


@pytest.mark.parametrize(
    ("event", "message"),
    [
        ('{"error":{"message":"m","code":502},"choices":[]}', "m"),
        ('{"error":{"code":502}}', "error"),
        ('{"error":"text"}', "text"),
        ('{"error":[1]}', "error"),
        ('{"error":null,"choices":[]}', None),
        ('{"object":"error","message":"flat","code":400}', "flat"),
        ('{"type":"error","error":{"type":"overloaded_error","message":"busy"}}', "busy"),
        ('{"type":"response.failed","response":{"error":{"message":"failed"}}}', "failed"),
        ('{"choices":[{"delta":{"content":"\\"error\\":{"}}]}', None),
    ],
)
def test_errors_in_band(event: str, message: str | None) -> None:
    assert tally(event).error == message


@pytest.mark.parametrize(
    ("event", "status"),
    [
        ('{"error":{"message":"m","code":400},"choices":[]}', 400),
        ('{"error":{"message":null,"code":"429"}}', 429),
        ('{"error":{"message":"m","type":"invalid_request_error","code":"context_length_exceeded"}}', 400),
        ('{"type":"error","error":{"type":"overloaded_error","message":"busy"}}', 503),
        ('{"object":"error","message":"flat","code":400}', 400),
        ('{"error":{"message":"m","code":"server_error"}}', 0),
        ('{"error":{"message":"m","code":4.5}}', 0),
        ('{"error":{"message":"m"}}', 0),
        ('{"error":"text"}', 0),
    ],
)
def test_errors_in_band_may_say_their_status(event: str, status: int) -> None:
    assert tally(event).error_status == status


def test_the_last_usage_counts_and_is_believed_over_events() -> None:
    said = tally(
        '{"choices":[{"delta":{"content":"a"}}],"usage":{"prompt_tokens":9,"completion_tokens":2}}',
        '{"choices":[{"delta":{"content":"a"}}],"usage":{"prompt_tokens":9,"completion_tokens":5}}',
    )
    assert (said.usage, said.tokens) == (Usage(9, 0, 5), 5)
    said.read(b'{"choices":[],"usage":null}')
    assert said.usage == Usage(9, 0, 5)


def test_anthropic_tells_the_prompt_only_at_the_start() -> None:
    said = tally(
        '{"type":"message_start","message":{"usage":{"input_tokens":7,"output_tokens":1}}}',
        '{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":4}}',
    )
    assert said.usage == Usage(7, 0, 4)


@pytest.mark.parametrize(
    "event",
    ["", "x", "[1]", '{"choices":5}', '{"choices":[{"finish_reason":1}]}', "[" * 100_000, '{"usage":5,"choices":[]}'],
)
def test_what_cannot_be_read_is_counted(event: str) -> None:
    assert tally(event).unreadable == 1


RECORDED = [
    ("vllm/chat-stream", 12, None, True),
    ("vllm/chat-stream-n2", 8, None, True),
    ("vllm/chat-stream-tokenids", 12, None, True),
    ("vllm/chat-stream-usage", 12, Usage(23, 0, 12), True),
    ("vllm/chat-stream-usage-continuous", 6, Usage(23, 0, 6), True),
    ("vllm/completions-stream-ids", 12, Usage(3, 0, 12), True),
    ("vllm/tools/auto-stream-forced", 60, None, True),
    ("vllm/tools/named-stream", 80, Usage(167, 160, 80), True),
    ("vllm/scale-out/generate-stream", 8, None, True),
    ("vllm/other-apis/messages-stream", 30, Usage(20, 0, 30), False),
    ("vllm/other-apis/responses-stream", 30, Usage(20, 0, 30), False),
    ("llama.cpp/chat-stream", 12, None, True),
    ("llama.cpp/chat-stream-usage", 30, Usage(20, 19, 30), True),
    ("llama.cpp/completion-stream", 12, Usage(10, 0, 12), False),
    ("sglang/chat-stream-usage", 30, Usage(19, 0, 30), True),
    ("sglang/generate-stream", 8, Usage(10, 9, 8), True),
    ("transformers-serve/chat-stream", 30, Usage(19, 0, 30), False),
]


def events_of(body: bytes) -> list[bytes]:
    lines = body.split(b"\n")
    return [line[6:] for line in lines if line.startswith(b"data: ")]


@pytest.mark.parametrize(("name", "tokens", "usage", "done"), RECORDED)
def test_recorded_streams(shared: Path, name: str, tokens: int, usage: Usage | None, done: bool) -> None:
    said = Tally()
    for event in events_of((shared / "fixtures" / f"{name}.body").read_bytes()):
        said.read(event)
    assert (said.tokens, said.usage, said.done, said.finished) == (tokens, usage, done, True)
    assert (said.aborted, said.error, said.unreadable) == (False, None, 0)


@pytest.mark.parametrize(
    ("name", "aborted", "error"),
    [
        ("vllm/dev/chat-stream-aborted-by-pause", True, None),
        ("vllm/dev/chat-stream-aborted-by-id", True, None),
        ("sglang/chat-stream-aborted", True, None),
        ("vllm/crash/chat-stream-engine-killed", False, "EngineCore encountered an issue"),
    ],
)
def test_recorded_bad_ends(shared: Path, name: str, aborted: bool, error: str | None) -> None:
    said = Tally()
    for event in events_of((shared / "fixtures" / f"{name}.body").read_bytes()):
        said.read(event)
    assert said.aborted is aborted
    assert (said.error or "").startswith(error or "")
    assert (said.error is None) == (error is None)
