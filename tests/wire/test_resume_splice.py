"""Events of a continuation in the manner of the run the client began with, as real engines write them."""

import json
from pathlib import Path
from typing import Any

import pytest

from headway.wire.resume import Tape
from headway.wire.resume_cut import Cut
from headway.wire.resume_ids import Frames
from headway.wire.resume_splice import DONE, Manner, Splicer

LLAMA = ("chat-stream", "chat-stream-usage", "v1-completions-stream")
PLAIN = Manner()


def wire(*events: object) -> bytes:
    return b"".join(
        b"data: " + (event.encode() if isinstance(event, str) else json.dumps(event).encode()) + b"\n\n"
        for event in events
    )


def chat(text: str | None = None, finish: str | None = None, **more: Any) -> dict[str, Any]:
    delta = {"role": "assistant", "content": ""} if text is None else {"content": text}
    head = {"id": "a", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
    return {**head, "choices": [choice], **more}


def completion(text: str, finish: str | None = None, **more: Any) -> dict[str, Any]:
    choice = {"index": 0, "text": text, "logprobs": None, "finish_reason": finish, "stop_reason": None}
    return {"id": "b", "object": "text_completion", "created": 2, "model": "n", "choices": [choice], **more}


def begun(*events: dict[str, Any], manner: Manner = PLAIN, cut: Cut | None = None, prompt: int = 7) -> Splicer:
    tape = Tape()
    for event in events:
        tape.read(json.dumps(event).encode())
    return Splicer(tape, cut or tape.by_text(), manner, prompt)


def events(data: bytes) -> list[dict[str, Any]]:
    return [json.loads(event) for event in Frames().feed(data) if event != b"[DONE]"]


def test_a_completion_becomes_the_chat_it_was() -> None:
    splicer = begun(chat(), chat("a"))
    assert events(splicer.feed(wire(completion("b")))) == [chat("b")]
    ended = chat("", "length")
    ended["choices"][0]["stop_reason"] = None
    assert events(splicer.feed(wire(completion("", "length")))) == [ended]
    assert (splicer.feed(wire("[DONE]")), splicer.done) == (DONE, True)
    assert splicer.feed(wire("[DONE]")) == b""


def test_a_stop_across_the_cut_that_ends_within_the_one_the_engine_found() -> None:
    """The source held a newline back, for it may begin the stop; the target begins with a whole one of its own."""
    manner = Manner(stops=("\n\n",))
    splicer = begun(chat(), chat("foo"), manner=manner, cut=Cut(2, "foo\n", pending="\n"))
    last = completion("", "stop")
    last["choices"][0]["stop_reason"] = "\n\n"
    shown = splicer.feed(wire(last))
    assert [event["choices"][0]["delta"].get("content", "") for event in events(shown)] == [""]
    assert shown.endswith(DONE)
    assert splicer.finished


def test_an_end_without_a_reason_is_none() -> None:
    """The client would take half an answer for a whole one."""
    splicer = begun(chat(), chat("a"))
    assert events(splicer.feed(wire(completion("b")))) == [chat("b")]
    assert (splicer.feed(wire("[DONE]")), splicer.failed, splicer.done) == (b"", "unfinished", False)


def test_the_role_is_not_said_twice() -> None:
    splicer = begun(chat(), chat("a"))
    assert splicer.feed(wire(chat())) == b""
    assert events(splicer.feed(wire(chat("b", id="z")))) == [chat("b")]


@pytest.mark.parametrize(
    ("event", "word"),
    [
        ({"error": {"message": "x"}}, "error"),
        ({"error": {"message": "x"}, "choices": []}, "error"),
        (completion("", "abort"), "abort"),
        ("nonsense", "unreadable"),
        ({"choices": [{"index": 0}, {"index": 1}]}, "unreadable"),
        ({"choices": 5}, "error"),
    ],
)
def test_a_continuation_that_fails_is_not_shown(event: object, word: str) -> None:
    splicer = begun(chat(), chat("a"))
    assert splicer.feed(wire(event)) == b""
    assert splicer.failed == word
    assert splicer.feed(wire(completion("b"), "[DONE]")) == b""
    assert not splicer.done


def test_other_text_than_was_sent_is_not_shown() -> None:
    splicer = begun(chat(), chat("abc"), cut=Cut(1, "a", surplus="bc"))
    assert splicer.feed(wire(completion("b"))) == b""
    assert splicer.feed(wire(completion("x"))) == b""
    assert splicer.failed == "differs"


def test_other_ids_than_were_told_are_not_shown() -> None:
    told = {"choices": [{"index": 0, "text": "a", "finish_reason": None, "token_ids": [5]}], "id": "a"}
    open_character = {"choices": [{"index": 0, "text": "", "finish_reason": None, "token_ids": [6]}], "id": "a"}
    splicer = begun(told, open_character, manner=Manner(ids=True), cut=Cut(1, "a"))
    other = {"choices": [{"index": 0, "text": "b", "finish_reason": None, "token_ids": [9]}]}
    assert splicer.feed(wire(other)) == b""
    assert splicer.failed == "differs"


class TestUsage:
    """What one run would have told."""

    def test_not_without_being_asked(self) -> None:
        splicer = begun(chat(), chat("a"))
        assert splicer.feed(wire({**completion("b"), "choices": [], "usage": {"prompt_tokens": 8}})) == b""

    def test_the_prompt_is_the_clients_and_the_rest_was_generated(self) -> None:
        splicer = begun(chat(), chat("a"), manner=Manner(usage=True))
        usage = {"prompt_tokens": 8, "total_tokens": 10, "completion_tokens": 2}
        details = {"prompt_tokens_details": {"cached_tokens": 8}}
        [told] = events(splicer.feed(wire({**completion(""), "choices": [], "usage": usage | details})))
        assert told["usage"] == {
            "prompt_tokens": 7,
            "total_tokens": 10,
            "completion_tokens": 3,
            "prompt_tokens_details": {"cached_tokens": 7},
        }
        assert (told["id"], told["object"], told["choices"]) == ("a", "chat.completion.chunk", [])

    def test_a_prompt_of_unknown_length_is_what_is_left(self) -> None:
        splicer = begun(chat(), chat("a"), chat("b"), manner=Manner(usage=True), prompt=0)
        usage = {"prompt_tokens": 8, "total_tokens": 13, "completion_tokens": 5}
        [told] = events(splicer.feed(wire({**completion(""), "choices": [], "usage": usage})))
        assert told["usage"] == {"prompt_tokens": 6, "total_tokens": 13, "completion_tokens": 7}

    def test_it_never_runs_backwards(self) -> None:
        first = chat("a", usage={"prompt_tokens": 7, "total_tokens": 12, "completion_tokens": 5})
        splicer = begun(chat(), first, manner=Manner(usage=True, running_usage=True), cut=Cut(3, "a"))
        usage = {"prompt_tokens": 10, "total_tokens": 11, "completion_tokens": 1}
        [told] = events(splicer.feed(wire(completion("b", usage=usage))))
        assert told["usage"]["completion_tokens"] == 5


def test_ended_by_us() -> None:
    splicer = begun(chat(), chat("a"), manner=Manner(usage=True))
    said = splicer.finish("length")
    last, usage = events(said)
    assert last["choices"][0]["finish_reason"] == "length"
    assert last["choices"][0]["delta"] == {"content": ""}
    assert usage["usage"] == {"prompt_tokens": 7, "total_tokens": 8, "completion_tokens": 1}
    assert said.endswith(DONE)
    assert splicer.done


def test_ended_by_us_as_vllm_writes() -> None:
    said = chat("a")
    said["choices"][0]["token_ids"] = None
    [last] = events(begun(chat(), said).finish("stop"))
    assert list(last["choices"][0]) == ["index", "delta", "logprobs", "finish_reason", "stop_reason", "token_ids"]


def test_an_engine_that_ends_with_an_empty_delta() -> None:
    splicer = begun(chat(), chat("a"), manner=Manner(bare_finish=True))
    assert events(splicer.feed(wire(completion("", "stop"))))[0]["choices"][0]["delta"] == {}


def test_a_last_event_without_a_blank_line() -> None:
    splicer = begun(chat(), chat("a"))
    assert splicer.feed(wire(completion("b")).rstrip()) == b""
    assert events(splicer.end()) == [chat("b")]


@pytest.mark.shared
@pytest.mark.parametrize("name", LLAMA)
def test_recorded_streams_of_llamacpp_keep_their_manner(shared: Path, name: str) -> None:
    """The rest of a stream, said by a completion of another run, is what the recording says, byte by byte."""
    recorded = Frames().feed((shared / "fixtures/llama.cpp" / f"{name}.body").read_bytes())
    is_chat = name.startswith("chat")
    usage = name != "chat-stream"
    for place in range(1 + is_chat, len(recorded) - 3):
        tape = Tape()
        for event in recorded[:place]:
            tape.read(event)
        splicer = Splicer(tape, tape.by_text(), Manner(usage=usage, bare_finish=True), 20 if is_chat else 2)
        got = b"".join(splicer.feed(b"data: " + told + b"\n\n") for told in _continuation(recorded, place, tape))
        assert got == b"".join(b"data: " + event + b"\n\n" for event in recorded[place:])


def _continuation(recorded: list[bytes], place: int, tape: Tape) -> list[bytes]:
    """The rest as llama.cpp's completions write it: other names, and the usage with the finish reason."""
    made: list[dict[str, Any]] = []
    for event in recorded[place:-1]:
        chunk = json.loads(event)
        if chunk["choices"]:
            choice = chunk["choices"][0]
            text = choice.get("text", choice.get("delta", {}).get("content", ""))
            finish = choice["finish_reason"]
            said = [{"text": text, "index": 0, "logprobs": None, "finish_reason": finish}]
            made.append({**chunk, "choices": said, "id": "other", "object": "text_completion"})
        for key in ("usage", "timings"):
            if key in chunk:
                made[-1][key] = chunk[key]
    if usage := made[-1].get("usage"):
        usage["prompt_tokens"] += tape.generated
        usage["completion_tokens"] -= tape.generated
    return [json.dumps(one).encode() for one in made] + [b"[DONE]"]


@pytest.mark.shared
def test_a_recorded_chat_of_sglang_continued_by_a_chat(shared: Path) -> None:
    """Its role comes again and is left out; its last delta has no text and keeps that."""
    recorded = Frames().feed((shared / "fixtures/sglang/chat-stream-usage.body").read_bytes())
    other = [event.replace(b'"id":"2ab', b'"id":"other') for event in recorded]
    for place in range(2, len(recorded) - 3):
        tape = Tape()
        for event in recorded[:place]:
            tape.read(event)
        splicer = Splicer(tape, tape.by_text(), Manner(usage=True), 19)
        usage = json.loads(other[-2])
        usage["usage"]["prompt_tokens"] += tape.generated
        usage["usage"]["completion_tokens"] -= tape.generated
        rest = [other[0], *other[place:-2], json.dumps(usage).encode(), b"[DONE]"]
        got = b"".join(splicer.feed(b"data: " + event + b"\n\n") for event in rest)
        assert got == b"".join(b"data: " + event + b"\n\n" for event in recorded[place:])
