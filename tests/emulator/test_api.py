"""What the routes do besides having the recorded shape: keys, names, load reports, sleep, continued answers."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.perfmodel.text import decode
from tests.emulator.process import EmulatorProcess, emulator
from tests.emulator.wire import Got, exchange, get, hurried, opened, post

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"


def chat(text: str = "hello world", **fields: Any) -> dict[str, Any]:
    return {"model": "tiny", "messages": [{"role": "user", "content": text}], **fields}


def text_of(got: Got) -> str:
    """The text of a chat or completion, streamed or not."""
    events = got.events or [got.json]
    choices = [one["choices"][0] for one in events if one != "[DONE]" and one["choices"]]
    return "".join(
        one.get("text") or (one.get("delta") or one.get("message") or {}).get("content", "") for one in choices
    )


def ids_of(got: Got) -> list[int]:
    return [
        i for one in got.events if one != "[DONE]" for choice in one["choices"] for i in choice.get("token_ids") or []
    ]


def test_a_stream_and_an_answer_in_one_piece_say_the_same(tiny: EmulatorProcess) -> None:
    for path, body in ((CHAT, chat()), (COMPLETIONS, {"prompt": "once upon", "max_tokens": 50})):
        whole, stream = post(tiny.port, path, body), post(tiny.port, path, {**body, "stream": True})
        assert text_of(whole) == text_of(stream) != ""


def test_text_is_the_text_of_the_ids(tiny: EmulatorProcess) -> None:
    got = post(tiny.port, CHAT, chat("tell me more", stream=True, return_token_ids=True))
    assert text_of(got) == decode(ids_of(got), skip_special=True)
    assert got.events[-2]["choices"][0]["finish_reason"] == "stop"


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10_000), st.data())
def test_an_answer_cut_anywhere_is_continued_by_its_ids(
    tiny: EmulatorProcess, number: int, data: st.DataObject
) -> None:
    """Prompt and the first k tokens, replayed: exactly the rest comes, end of sequence included."""
    first = post(tiny.port, CHAT, chat(f"question {number}", stream=True, return_token_ids=True))
    prompt, said = first.events[0]["prompt_token_ids"], ids_of(first)
    cut = data.draw(st.integers(0, len(said) - 1))
    body = {
        "prompt": prompt + said[:cut],
        "max_tokens": 2048 - len(prompt) - cut,
        "stream": True,
        "return_token_ids": True,
    }
    assert ids_of(post(tiny.port, COMPLETIONS, body)) == said[cut:]


def test_an_answer_is_continued_by_its_text(tiny: EmulatorProcess) -> None:
    """continue_final_message: the same rest, where the text splits into the ids it was made of."""
    first = post(tiny.port, CHAT, chat("hello", max_tokens=4, return_token_ids=True)).json["choices"][0]
    messages = [{"role": "user", "content": "hello"}, {"role": "assistant", "content": first["message"]["content"]}]
    body = chat(messages=messages, continue_final_message=True, add_generation_prompt=False, max_tokens=20)
    rest = text_of(post(tiny.port, CHAT, body))
    ids = exchange(tiny.port, "POST", "/tokenize", {"prompt": first["message"]["content"]}).json["tokens"]
    assert ids == first["token_ids"], "choose another prompt: this answer does not split into its own ids"
    assert first["message"]["content"] + rest == text_of(post(tiny.port, CHAT, chat("hello", max_tokens=24)))


@pytest.mark.slow
def test_replicas_of_other_precision_and_hardware_say_the_same(tiny: EmulatorProcess) -> None:
    with emulator(
        served_model_name="tiny", gpu="l4-24gb", quantization="fp8", max_model_len=2048, time_scale=50
    ) as other:
        for number in range(5):
            body = chat(f"question {number}", return_token_ids=True)
            ours, theirs = (post(one.port, CHAT, body).json for one in (tiny, other))
            assert ours["choices"] == theirs["choices"]


def test_a_request_id_names_the_answer(tiny: EmulatorProcess) -> None:
    for path, body, word in ((CHAT, chat(max_tokens=2), "chatcmpl"), (COMPLETIONS, {"prompt": "x"}, "cmpl")):
        assert post(tiny.port, path, body, {"x-request-id": "abc-0"}).json["id"] == f"{word}-abc-0"


def test_two_requests_may_have_one_id(slow: EmulatorProcess) -> None:
    """vLLM makes its inner ids unique."""
    got = [post(slow.port, COMPLETIONS, {"prompt": "x", "max_tokens": 2}, {"x-request-id": "same"}) for _ in range(2)]
    assert [one.status for one in got] == [200, 200]


def test_several_prompts_and_choices(tiny: EmulatorProcess) -> None:
    body = {"prompt": ["hello", "good day"], "n": 2, "max_tokens": 5, "return_token_ids": True}
    whole = post(tiny.port, COMPLETIONS, body).json
    texts = [choice["text"] for choice in whole["choices"]]
    assert texts[0] == texts[1] != texts[2] == texts[3]
    assert [choice["index"] for choice in whole["choices"]] == [0, 1, 2, 3]
    assert whole["choices"][0]["prompt_token_ids"] != whole["choices"][2]["prompt_token_ids"]
    assert whole["usage"]["completion_tokens"] == 20
    stream = post(tiny.port, COMPLETIONS, {**body, "stream": True}).events[:-1]
    for index, text in enumerate(texts):
        assert "".join(c["text"] for event in stream for c in event["choices"] if c["index"] == index) == text


def test_a_stop_string_ends_an_answer(tiny: EmulatorProcess) -> None:
    whole = text_of(post(tiny.port, CHAT, chat(max_tokens=30)))
    stop = whole[20:25]
    for stream in (False, True):
        got = post(tiny.port, CHAT, chat(max_tokens=30, stop=[stop], stream=stream))
        assert text_of(got) == whole[: whole.index(stop)]
        end = (got.events[-2] if stream else got.json)["choices"][0]
        assert (end["finish_reason"], end["stop_reason"]) == ("stop", stop)
    tiny.wait_for(running=0, kv_blocks_used=0)


def test_the_engine_reports_its_load_in_a_header(tiny: EmulatorProcess) -> None:
    asked = {"endpoint-load-metrics-format": "TEXT"}
    got = post(tiny.port, CHAT, chat(max_tokens=2), asked)
    assert got.header("endpoint-load-metrics") == (
        "TEXT named_metrics.kv_cache_usage_perc=0.0, named_metrics.num_requests_waiting=0.0"
    )
    got = post(tiny.port, CHAT, chat(max_tokens=2), {"endpoint-load-metrics-format": "json"})
    report = got.header("endpoint-load-metrics") or ""
    assert json.loads(report.removeprefix("JSON "))["named_metrics"]["num_requests_waiting"] == 0
    assert post(tiny.port, CHAT, chat(max_tokens=2)).header("endpoint-load-metrics") is None


def test_tokenize_and_detokenize_are_inverse(tiny: EmulatorProcess) -> None:
    text = "Привет 你好 🙂 hello\n"
    ids = post(tiny.port, "/tokenize", {"prompt": text}).json["tokens"]
    assert post(tiny.port, "/detokenize", {"tokens": ids}).json == {"prompt": text}
    assert post(tiny.port, "/detokenize", {"tokens": [99999]}).status == 400
    assert post(tiny.port, "/detokenize", {}).status == 400
    assert post(tiny.port, "/tokenize", {"messages": []}).status == 400
    assert post(tiny.port, "/tokenize", b"{").status == 400
    assert post(tiny.port, "/tokenize", {"prompt": "x", "model": "other"}).status == 404


def test_the_ids_of_a_chat_are_those_of_tokenize(tiny: EmulatorProcess) -> None:
    ids = post(tiny.port, "/tokenize", chat()).json["tokens"]
    assert post(tiny.port, CHAT, chat(max_tokens=1, return_token_ids=True)).json["prompt_token_ids"] == ids


@pytest.mark.slow
def test_keys_guard_what_is_under_v1() -> None:
    with emulator(api_key="secret", dev_mode=False, enable_server_load_tracking=True) as one:
        assert get(one.port, "/v1/models").status == 401
        assert get(one.port, "/v1/models", {"authorization": "Bearer wrong"}).json == {"error": "Unauthorized"}
        assert get(one.port, "/v1/models", {"authorization": "Bearer secret"}).status == 200
        for path in ("/health", "/metrics", "/load"):
            assert get(one.port, path).status == 200
        assert exchange(one.port, "POST", "/sleep").status == 404  # no dev mode


def test_asleep_requests_hang_and_only_the_sleep_state_tells(slow: EmulatorProcess) -> None:
    assert exchange(slow.port, "POST", "/sleep?level=3").status == 400
    assert exchange(slow.port, "POST", "/sleep?level=2").json == {"status": "sleeping", "level": 2}
    try:
        assert get(slow.port, "/is_sleeping").json == {"is_sleeping": True}
        with pytest.raises(TimeoutError):
            hurried(slow.port, chat(max_tokens=2))
        page = get(slow.port, "/metrics").body.decode()
        assert 'sleep_state="discard_all"} 1.0' in page
        assert 'vllm:num_requests_waiting{engine="0",model_name="tiny"} 0.0' in page
        assert get(slow.port, "/health").status == 200
    finally:
        assert exchange(slow.port, "POST", "/wake_up").json == {"status": "awake", "tags": None}
    assert get(slow.port, "/is_sleeping").json == {"is_sleeping": False}
    assert post(slow.port, CHAT, chat(max_tokens=2)).status == 200


def test_a_pause_ends_what_runs_with_abort(slow: EmulatorProcess) -> None:
    try:
        with opened(slow.port, chat(max_tokens=500, ignore_eos=True, stream=True)) as answer:
            answer.read(1)
            assert exchange(slow.port, "POST", "/pause").json == {"status": "paused"}
            assert get(slow.port, "/is_paused").json == {"is_paused": True}
            events = [line for line in answer.read().decode().split("\n") if line.startswith("data: {")]
        assert json.loads(events[-1][6:])["choices"][0]["finish_reason"] == "abort"
    finally:
        assert exchange(slow.port, "POST", "/resume").json == {"status": "resumed"}


def test_the_prefix_cache_can_be_reset(tiny: EmulatorProcess) -> None:
    post(tiny.port, CHAT, chat("word " * 100, max_tokens=1))
    assert tiny.state()["kv_blocks_cached"] > 0
    assert exchange(tiny.port, "POST", "/reset_prefix_cache").json == {"success": True}
    assert tiny.state()["kv_blocks_cached"] == 0


@pytest.mark.slow
def test_cached_tokens_are_told_if_wanted() -> None:
    with emulator(enable_prompt_tokens_details=True) as one:
        body = {"prompt": [5] * 64, "max_tokens": 2}
        post(one.port, COMPLETIONS, body)
        usage = post(one.port, COMPLETIONS, body).json["usage"]
        assert usage["prompt_tokens_details"]["cached_tokens"] == 48
        body |= {"stream": True, "stream_options": {"include_usage": True}}
        last = post(one.port, COMPLETIONS, body).events[-2]
        assert last["usage"]["prompt_tokens_details"] == {"cached_tokens": 48, "created_cache_tokens": 0}
