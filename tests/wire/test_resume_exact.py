"""Streams cut at every event and continued on an emulated engine: to the client, one seamless stream."""

import json
import os
import random
from typing import Any

import pytest

from headway.wire import resume_body
from headway.wire.resume import Tape
from headway.wire.resume_body import Limits, Wants
from headway.wire.resume_cut import Cut
from headway.wire.resume_ids import IdStripper, ids_edit
from headway.wire.resume_splice import Manner, Splicer
from headway.wire.splice import splice
from tests.wire.engine import CHAT, COMPLETIONS, CONTEXT, RENDERER, detokenise, framed, stream

SOAK = os.environ.get("HEADWAY_SOAK") == "1"
SAY = {"messages": [{"role": "user", "content": "скажи привет, 你好 🙂"}], "max_tokens": 60}
ONCE = {"prompt": "Once upon a time", "max_tokens": 60}
USAGE = {"stream_options": {"include_usage": True}}
BEYOND: dict[str, dict[str, Any]] = {
    CHAT: {"messages": [{"role": "user", "content": "story 27"}], "ignore_eos": True, "max_tokens": 95},
    COMPLETIONS: {"prompt": "Once 90", "ignore_eos": True, "max_tokens": 60},
}
"""Answers with three ends in them, which are ignored."""

RUNNING = {"stream_options": {"include_usage": True, "continuous_usage_stats": True}}


class Run:
    """One request whose stream is cut, as often as wanted, and continued by token ids."""

    def __init__(self, path: str, body: dict[str, Any], strip: bool = True) -> None:
        self.path = path
        self.body = json.dumps({"model": "tiny", "stream": True, **body}).encode()
        edit = ids_edit(self.body)
        self.asked = splice(self.body, [edit]) if edit else self.body
        self.tape = Tape()
        self.cuts: list[Cut] = []
        self._in = IdStripper(self.tape, strip and edit is not None)
        options = body.get("stream_options") or {}
        self.stops = resume_body.stops(self.body)
        self.manner = Manner(
            usage=bool(options.get("include_usage")),
            running_usage=bool(options.get("continuous_usage_stats")),
            ids=edit is None,
            stops=self.stops.strings,
            stop_shown=self.stops.shown,
        )

    def begin(self, events: list[bytes]) -> bytes:
        return self._in.feed(framed(events))

    def cut(self) -> tuple[Splicer, list[bytes]]:
        cut = self.tape.replay_prefix(detokenise, self.stops.hold, self.stops.back, self.stops.lags)
        self.cuts.append(cut)
        limits = Limits(CONTEXT, 0 if self.path == CHAT else 16)
        assert self.tape.prompt_ids is not None
        wants = Wants(usage=False)
        ask = resume_body.by_ids(self.body, self.tape.prompt_ids, self.tape.ids[: cut.count], limits, wants)
        return Splicer(self.tape, cut, self.manner), stream(ask.path, ask.body, "two")


def seen(data: bytes) -> dict[str, Any]:
    """What a client makes of a stream."""
    events = [event.removeprefix(b"data: ") for event in data.split(b"\n\n")[:-1]]
    assert events.count(b"[DONE]") == 1
    assert events.pop() == b"[DONE]"
    chunks = [json.loads(event) for event in events]
    choices = [chunk["choices"][0] for chunk in chunks if chunk["choices"]]
    running = [chunk["usage"]["completion_tokens"] for chunk in chunks if chunk.get("usage")]
    assert running == sorted(running)
    return {
        "text": "".join(choice.get("text") or choice.get("delta", {}).get("content") or "" for choice in choices),
        "ids": [one for choice in choices for one in choice.get("token_ids") or []],
        "roles": sum("role" in choice.get("delta", {}) for choice in choices),
        "ends": [(choice["finish_reason"], choice.get("stop_reason")) for choice in choices if choice["finish_reason"]],
        "usage": chunks[-1].get("usage"),
        "heads": {(chunk["id"], chunk["object"], chunk["created"], chunk["model"]) for chunk in chunks},
        "shapes": {tuple(chunk) for chunk in chunks} | {tuple(choice) for choice in choices},
        "end_shape": (tuple(choices[-1]), tuple(chunks[-1])),
    }


def check(path: str, body: dict[str, Any]) -> int:
    """Cut at each event; everything a client can see is as in the undisturbed run. The number of cuts."""
    run = Run(path, body)
    whole, source = stream(path, run.body), stream(path, run.asked)
    expected = seen(framed(whole))
    shapes = expected.pop("shapes")
    cuts = 0
    for place in range(1, len(source)):
        run = Run(path, body)
        client = run.begin(source[:place])
        if run.tape.ended:
            break
        splicer, rest = run.cut()
        client += splicer.feed(framed(rest))
        assert (splicer.failed, splicer.done, splicer.finished) == ("", True, True), place
        got = seen(client)
        if splicer.cut_short:
            assert not run.stops.greedy
            usage, held = got["usage"], expected["usage"]["completion_tokens"]
            assert held <= usage["completion_tokens"] <= held + run.stops.reach  # the engine was ahead of its text
            got["usage"] = expected["usage"]
            # nobody has told us the fingerprint that an engine writes at the end
            got["shapes"], got["end_shape"] = shapes, expected["end_shape"]
        assert got.pop("shapes") <= shapes, place
        assert got == expected, place
        cuts += 1
    return cuts


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
@pytest.mark.parametrize(
    "more",
    [{}, USAGE, RUNNING, {"min_tokens": 50}, {"return_token_ids": True}, {"max_tokens": 9}],
)
def test_every_cut(path: str, more: dict[str, Any]) -> None:
    assert check(path, {**(SAY if path == CHAT else ONCE), **more}) > 7


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
def test_streams_without_stop_strings_have_the_same_bytes(path: str) -> None:
    body = {**(SAY if path == CHAT else ONCE), **USAGE}
    source = stream(path, Run(path, body).asked)
    for place in range(2, len(source) - 3):
        run = Run(path, body)
        client = run.begin(source[:place])
        splicer, rest = run.cut()
        assert client + splicer.feed(framed(rest)) == framed(stream(path, run.body)), place


@pytest.mark.parametrize("temperature", [0, 1])
@pytest.mark.parametrize("shown", [False, True])
@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
def test_stop_strings_wherever_they_lie(path: str, shown: bool, temperature: int) -> None:
    """Strings of several lengths taken from the answer itself: some lie across every cut."""
    body = dict(SAY if path == CHAT else ONCE)
    text = seen(framed(stream(path, Run(path, body).body)))["text"]
    rng = random.Random(5)
    for length in (2, 5, 17, 40)[: None if SOAK else 3]:
        start = rng.randrange(30, 90)
        stop = text[start : start + length]
        wish = {"stop": [stop, "never said"], "include_stop_str_in_output": shown, "temperature": temperature}
        check(path, {**body, **wish, **RUNNING})


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
@pytest.mark.parametrize("more", [{}, USAGE, RUNNING, {"return_token_ids": True}])
def test_ends_that_are_ignored(path: str, more: dict[str, Any]) -> None:
    """The stream says nothing of them, whatever the engine spells when asked."""
    events = stream(path, Run(path, BEYOND[path]).asked)
    assert sum(b'"token_ids":[0]' in event for event in events) == 3
    assert check(path, {**BEYOND[path], **more}) > 50


@pytest.mark.parametrize("temperature", [0, 1])
@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
def test_ends_that_are_ignored_and_stop_strings(path: str, temperature: int) -> None:
    text = seen(framed(stream(path, Run(path, BEYOND[path]).body)))["text"]
    for stop in (["never said", "nor this, which is longer"], [text[-40:-35]]):
        check(path, {**BEYOND[path], **RUNNING, "stop": stop, "temperature": temperature})


@pytest.mark.parametrize("stop", [[], ["never said"]])
@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
def test_an_end_that_is_ignored_is_no_reason_to_say_all_again(path: str, stop: list[str]) -> None:
    """At each cut less is said again than a character has bytes, and than was held back."""
    run = Run(path, {**BEYOND[path], "stop": stop, "temperature": 1})
    for event in stream(path, run.asked)[:-3]:
        run.begin([event])
        if run.tape.text:
            cut = run.tape.replay_prefix(detokenise, run.stops.hold, lags=run.stops.lags)
            assert (len(run.tape.ids) - cut.count < 4, cut.surplus) == (True, "")


def test_an_answer_that_ends_by_itself_and_has_no_limit() -> None:
    body = {"messages": [{"role": "user", "content": "hello"}]}
    assert check(CHAT, body) > 20


def test_a_completion_without_a_limit_has_the_engines() -> None:
    assert check(COMPLETIONS, {"prompt": "Once upon a time"}) == 15


@pytest.mark.parametrize("chunk", [1, 7, 1000])
def test_pieces_of_any_size(chunk: int) -> None:
    body = {**SAY, **USAGE}
    run = Run(CHAT, body)
    source = framed(stream(CHAT, run.asked)[:9])
    client = b"".join([run._in.feed(source[at : at + chunk]) for at in range(0, len(source), chunk)])
    splicer, rest = run.cut()
    more = framed(rest)
    client += b"".join([splicer.feed(more[at : at + chunk]) for at in range(0, len(more), chunk)])
    assert client == framed(stream(CHAT, run.body))


def test_moved_again_and_again() -> None:
    """Each replica says a few tokens, then the next takes over."""
    rng = random.Random(3)
    for number in range(200 if SOAK else 20):
        path = (CHAT, COMPLETIONS)[number % 2]
        body = {**(SAY if path == CHAT else ONCE), **(RUNNING, USAGE, {})[number % 3], "max_tokens": 40 + number % 5}
        run = Run(path, body)
        client = run.begin(stream(path, run.asked)[: rng.randrange(1, 9)])
        while not run.tape.ended:
            splicer, rest = run.cut()
            client += splicer.feed(framed(rest[: rng.randrange(1, 12)]))
        if not splicer.done:
            client += splicer.feed(framed(rest[len(rest) - 2 + (not run.manner.usage) :]))
        expected, got = seen(framed(stream(path, run.body))), seen(client)
        assert got["text"] == expected["text"]
        assert (got["ends"], got["usage"], got["roles"]) == (expected["ends"], expected["usage"], expected["roles"])


def test_by_message_where_text_splits_as_it_was_said() -> None:
    """A chat continued as a chat (SGLang's way): the role comes again, and the head is another's."""
    body = {**SAY, **USAGE, "max_tokens": 40}
    run = Run(CHAT, body)
    events = stream(CHAT, run.body)
    expected, cuts = seen(framed(events)), 0
    ids = Tape()
    IdStripper(ids).feed(framed(stream(CHAT, run.asked)))
    for place in range(2, len(events) - 4):
        tape = Tape()
        client = IdStripper(tape).feed(framed(events[:place]))
        if RENDERER.tokenizer.encode(tape.text) != ids.ids[: place - 1]:
            continue
        cuts += 1
        ask = resume_body.by_message(run.body, tape.text, place - 1, Limits())
        splicer = Splicer(tape, tape.by_text(), run.manner, len(ids.prompt_ids or ()))
        assert seen(client + splicer.feed(framed(stream(ask.path, ask.body, "two")))) == expected, place
    assert cuts > 5
