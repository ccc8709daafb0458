"""Streams of a real engine, cut and continued on another, by what its dialect says; and what a client makes of them."""

import json
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec

from headway.engines.base import Dialect
from headway.engines.continuation import Given, Way
from headway.wire import resume_body
from headway.wire.body import Body
from headway.wire.openai import scan
from headway.wire.resume import Tape
from headway.wire.resume_body import Ask
from headway.wire.resume_cut import Cut
from headway.wire.resume_ids import Frames, IdStripper, ids_edit
from headway.wire.resume_splice import Splicer
from headway.wire.splice import splice
from tests.real.engines import Engine

CHAT, COMPLETIONS = resume_body.CHAT, resume_body.COMPLETIONS


def call(engine: Engine, ask: Ask) -> bytes:
    """One POST; its whole answer, a stream's, too."""
    return b"".join(pieces(engine, ask))


def pieces(engine: Engine, ask: Ask) -> Iterator[bytes]:
    """One POST; its answer as it comes. Leaving early closes the connection."""
    request = urllib.request.Request(engine.url + ask.path, ask.body, {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=120) as answer:
        while data := answer.read1(65536):
            yield data


@dataclass
class Move:
    """One request: its undisturbed stream, and any number of cuts of it.

    `events` of the undisturbed stream as the engine sends them to us; `expected`: what its client sees.
    """

    source: Engine
    target: Engine
    path: str
    fields: dict[str, Any]
    body: bytes = b""
    events: list[bytes] = field(default_factory=list)
    expected: dict[str, Any] = field(default_factory=dict)
    prompt: str | list[int] = ""
    prompt_tokens: int = 0
    heard: bytes = b""

    def __post_init__(self) -> None:
        self.body = json.dumps({"model": "tiny", "stream": True, **self.fields}, ensure_ascii=False).encode()
        parsed = scan(self.body, self.path)
        assert isinstance(parsed, Body)
        self.parsed = parsed
        self.dialect: Dialect = self.source.launcher.dialect
        self.manner = self.dialect.continuation
        assert self.manner.pinned(self.body, parsed, self.path) == ""
        self.running = b"continuous_usage_stats" in self.body
        self.way = self.manner.way(self.path)
        edit = ids_edit(self.body) if self.way is Way.IDS else None
        self.asked = splice(self.body, [edit]) if edit else self.body
        self.events = Frames().feed(call(self.source, Ask(self.path, self.asked)))
        strip = IdStripper(Tape())
        self.expected = seen(strip.feed(framed(self.events)))
        if self.way is Way.TEXT:
            self._render()

    def _render(self) -> None:
        words, own = self.manner.render, resume_body.prompt_of(self.body)
        assert words is not None
        self.prompt = own if own is not None else words.text(call(self.target, self.manner.render_ask(self.body)))
        self.prompt_tokens = self._count(str(self.prompt))

    def _count(self, text: str) -> int:
        words = self.manner.tokenise
        assert words is not None
        return len(words.ids(call(self.target, words.ask(text))))

    def detokenise(self, ids: list[int]) -> str:
        """The target's own words."""
        words = self.manner.detokenise
        assert words is not None
        return words.text(call(self.target, words.ask(list(ids), "tiny")))

    def cut(self, tape: Tape, stops: resume_body.Stops) -> Cut:
        """Where the target takes over."""
        if self.way is Way.IDS:
            return tape.replay_prefix(self.detokenise, stops.hold, stops.back, stops.lags)
        cut = tape.by_text(stops.again)
        return msgspec.structs.replace(cut, count=self._count(str(self.prompt) + cut.text) - self.prompt_tokens)

    def at(self, place: int, more: dict[str, object] | None = None) -> tuple[dict[str, Any], str] | None:
        """What the client sees of a stream cut after so many events, and why it failed; None past its end."""
        tape = Tape()
        strip = IdStripper(tape)
        client = strip.feed(framed(self.events[:place]))
        if tape.ended:
            return None
        stops = resume_body.stops(self.body)
        cut = self.cut(tape, stops)
        if self.way is Way.TEXT and tape.splits_otherwise(cut.count, bool(stops.strings)):
            return seen(client), "splits otherwise"
        given = Given(self.source.launcher.context_tokens, prompt=self.prompt, fields=more or {})
        splicer = Splicer(
            tape, cut, self.manner.manner(self.way, self.parsed, stops, running_usage=self.running), self.prompt_tokens
        )
        try:
            ask = self.manner.ask(self.way, self.body, tape, cut, given)
        except resume_body.LimitReached:
            return seen(client + splicer.finish("length")), ""
        self.heard = b""
        for data in pieces(self.target, ask):
            client += splicer.feed(data)
            self.heard += data
            if splicer.cut_short or splicer.failed:
                break
        return seen(client), splicer.failed

    @property
    def timings(self) -> dict[str, Any]:
        """What llama.cpp says at the end of the last continuation: how much of its prompt it had to compute, say."""
        rest = self.heard.partition(b'"timings":')[2]
        return dict(json.loads(rest[: rest.index(b"}") + 1]))

    def cuts(self, step: int = 1, first: int = 1) -> "Tally":
        """Cut after every `step` events."""
        tally = Tally()
        for place in range(first, len(self.events), step):
            got = self.at(place)
            if got is None:
                break
            tally.add(place, self.expected, *got)
        return tally


@dataclass
class Tally:
    """How often the client saw what it would have seen; `exceptions` says of each other cut where it parts. `refused`:
    cuts not made, because the text does not split into the tokens it was said in."""

    cuts: int = 0
    same: int = 0
    exceptions: list[str] = field(default_factory=list)
    leaks: int = 0
    refused: int = 0

    def add(self, place: int, expected: dict[str, Any], got: dict[str, Any], failed: str) -> None:
        """One more cut."""
        if failed == "splits otherwise":
            self.refused += 1
            return
        self.cuts += 1
        differing = [name for name in expected if got.get(name) != expected[name]]
        self.leaks += "user\n" in got["text"] or "<|im" in got["text"]
        if not differing and not failed:
            self.same += 1
            return
        where = next((n for n, (a, b) in enumerate(zip(got["text"], expected["text"], strict=False)) if a != b), -1)
        parts = {name: (got.get(name), expected[name]) for name in differing if name != "text"}
        texts = (got["text"][max(0, where - 8) : where + 8], expected["text"][max(0, where - 8) : where + 8])
        self.exceptions.append(f"after event {place}: {failed or differing} at {where}: {texts} {parts}")

    def __iadd__(self, other: "Tally") -> "Tally":
        self.cuts += other.cuts
        self.same += other.same
        self.leaks += other.leaks
        self.refused += other.refused
        self.exceptions += other.exceptions
        return self


def framed(events: list[bytes]) -> bytes:
    """The events as they are on the wire."""
    return b"".join([b"data: " + event + b"\n\n" for event in events])


def seen(data: bytes) -> dict[str, Any]:
    """What a client makes of a stream that may have been cut off."""
    events = Frames().feed(data)
    chunks = [json.loads(event) for event in events if event != b"[DONE]"]
    choices = [chunk["choices"][0] for chunk in chunks if chunk["choices"]]
    usage = chunks[-1].get("usage") or {}
    return {
        "text": "".join(choice.get("text") or choice.get("delta", {}).get("content") or "" for choice in choices),
        "ends": [(choice["finish_reason"], choice.get("stop_reason")) for choice in choices if choice["finish_reason"]],
        "usage": [usage.get(name) for name in ("prompt_tokens", "completion_tokens", "total_tokens")],
        "roles": sum("role" in choice.get("delta", {}) for choice in choices),
        "done": events.count(b"[DONE]"),
        "heads": len({(chunk["id"], chunk["object"], chunk["model"]) for chunk in chunks}),
        "last": [
            sorted({*chunk} - {"timings", "system_fingerprint"}) for chunk in chunks[-2:]
        ],  # not told if we end it
        "shapes": sorted({tuple(choice) for choice in choices}),
    }
