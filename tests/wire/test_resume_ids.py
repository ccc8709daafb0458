"""Ids asked for and taken out: what is left is what the engine sends without the extra field."""

import json
from typing import Any

import pytest

from headway.wire.resume import Tape
from headway.wire.resume_ids import MAX_HELD_BYTES, Frames, IdStripper, ids_edit
from headway.wire.splice import splice
from headway.wire.sse import Scanner
from tests.wire.engine import CHAT, COMPLETIONS, framed, stream


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
@pytest.mark.parametrize("size", [1, 13, 10_000])
def test_the_client_gets_what_it_would_have_got(path: str, size: int) -> None:
    asked = {"messages": [{"role": "user", "content": "x"}]} if path == CHAT else {"prompt": "x"}
    body: dict[str, Any] = {**asked, "model": "tiny", "stream": True, "max_tokens": 12}
    plain = json.dumps(body).encode()
    edit = ids_edit(plain)
    assert edit is not None
    data = framed(stream(path, splice(plain, [edit])))
    tape = Tape()
    strip = IdStripper(tape)
    assert b"".join([strip.feed(data[at : at + size]) for at in range(0, len(data), size)]) == framed(
        stream(path, plain)
    )
    assert len(tape.ids) == 12
    assert tape.prompt_ids


def test_a_client_that_asks_for_ids_itself_is_left_alone() -> None:
    assert ids_edit(b'{"prompt":"x","return_token_ids": true}') is None


@pytest.mark.parametrize("word", [b"false", b"null"])
def test_a_client_that_wants_none_does_not_see_that_we_do(word: bytes) -> None:
    body = b'{"return_token_ids": ' + word + b',"prompt":"say \\"return_token_ids\\":true"}'
    edit = ids_edit(body)
    assert edit is not None
    assert splice(body, [edit]) == body.replace(word, b"true", 1)


def test_a_client_that_wants_ids_keeps_them() -> None:
    data = b'data: {"choices":[{"text":"a","token_ids":[5]}]}\n\n'
    tape = Tape()
    assert IdStripper(tape, strip=False).feed(data) == data
    assert tape.ids == [5]


def test_words_in_a_text_are_no_ids() -> None:
    text = json.dumps('say "token_ids":[1,2] and "prompt_token_ids":[3]')
    data = b'data: {"choices":[{"text":%s,"token_ids":[5]}]}\n\n' % text.encode()
    assert IdStripper(Tape()).feed(data) == data.replace(b"[5]", b"null")


def test_an_event_without_its_end_counts_at_the_end() -> None:
    tape = Tape()
    strip = IdStripper(tape)
    assert strip.feed(b'data: {"choices":[{"text":"a","token_ids":[5]}]}') == b""
    assert strip.end() == b'data: {"choices":[{"text":"a","token_ids":null}]}'
    assert (tape.text, tape.ids) == ("a", [5])


def test_an_endless_event_is_passed_on_and_pins() -> None:
    tape = Tape()
    strip = IdStripper(tape)
    assert len(strip.feed(b"data: " + b"x" * MAX_HELD_BYTES)) == MAX_HELD_BYTES + 6
    assert tape.pinned == "unreadable"


@pytest.mark.parametrize("end", [b"\n\n", b"\r\n\r\n", b"\r\r"])
def test_frames(end: bytes) -> None:
    frames = Frames()
    line = end[: len(end) // 2]
    data = b": ping" + end + b"data: a" + line + b"data:b" + end + b"event: x" + end + b"data: c"
    got = [said for at in range(len(data)) for said in frames.feed(data[at : at + 1])]
    assert got == [b"a\nb"]
    assert (frames.end(), frames.end()) == ([b"c"], [])


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
@pytest.mark.parametrize("more", [{}, {"stream_options": {"include_usage": True, "continuous_usage_stats": True}}])
def test_events_known_by_sight_are_heard_as_if_they_were_read(path: str, more: dict[str, Any]) -> None:
    """The same stream, event by event, and in pieces that no event is alone in."""
    said = {"messages": [{"role": "user", "content": "你好 🙂"}]} if path == CHAT else {"prompt": "Once"}
    data = framed(stream(path, {**said, "max_tokens": 90, "return_token_ids": True, **more}))
    quick, slow = IdStripper(Tape()), IdStripper(Tape())
    client = b"".join([quick.feed(event + b"\n\n") for event in data.split(b"\n\n")[:-1]])
    assert client == slow.feed(data)
    for name in Tape.__slots__:
        assert name == "_parts" or name == "_text" or getattr(quick.tape, name) == getattr(slow.tape, name), name
    assert quick.tape.text == slow.tape.text
    glance, read = Scanner(), Scanner()
    for event in data.split(b"\n\n")[:-1]:
        glance.feed(event + b"\n\n")
    read.feed(data)
    assert (glance.tokens, glance.events, glance.done, glance.finished) == (
        read.tokens, read.events, read.done, read.finished,
    )  # fmt: skip
