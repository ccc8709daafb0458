"""The answer in one piece that a stream amounts to: for clients that did not ask for a stream, though their engine was.

What lives here: the edits that make a request stream, and the answer put together from the events. What must not: when
this is done (`gateway`), and how an engine writes its answers (`engines`, which give it as a `Form`).

A stream leaves out what an answer in one piece spells out: fields that are null, and the order of the rest. The form
says both, as recorded; whatever it does not know is kept and comes last.
"""

from typing import Any, Final

import msgspec
from msgspec import UNSET

from headway.wire.resume_ids import Frames
from headway.wire.spans import TooManyKeys, top_level
from headway.wire.splice import Edit, Octets

Event = dict[str, Any]

_STREAM: Final = b"true"
_OPTIONS: Final = b'{"include_usage":true}'
_CHUNK_OBJECT: Final = "chat.completion.chunk"
_CHAT_OBJECT: Final = "chat.completion"
_GROWING: Final = frozenset({"content", "reasoning", "reasoning_content", "refusal", "text"})
"""Fields of a delta, or of a choice, whose pieces are joined."""

_CALL: Final[Event] = {"id": UNSET, "type": UNSET, "function": UNSET}
_LISTS: Final = frozenset({"logprobs", "token_ids"})
"""Fields of a choice that tell something of each token."""


class Form(msgspec.Struct, frozen=True):
    """How an engine writes an answer in one piece: the keys of each object in order, with what stands where the stream
    says nothing (UNSET: then it is left out). `details` are those of `usage.prompt_tokens_details`; `unsaid`: fields
    of events that no answer in one piece has."""

    answer: Event = {}
    choice: Event = {}
    message: Event = {}
    usage: Event = {}
    details: Event = {}
    unsaid: tuple[str, ...] = ()


def streaming_edits(body: Octets) -> list[Edit] | None:
    """Edits that make a body ask for a stream that ends with its usage. None if it speaks of stream options itself:
    engines refuse that where nothing streams, in their own words."""
    try:
        spans = top_level(body)
    except TooManyKeys:
        return None
    edits: list[Edit] = [(start, end, _STREAM) for key, start, end in spans if key == "stream"]
    options = [(start, end) for key, start, end in spans if key == "stream_options"]
    if any(bytes(body[start:end]) != b"null" for start, end in options):
        return None
    at = body.find(b"{") + 1
    more = b"" if edits else b'"stream":%b,' % _STREAM
    edits += [(start, end, _OPTIONS) for start, end in options]
    if not options:
        more += b'"stream_options":%b,' % _OPTIONS
    return [*edits, (at, at, more)] if more else edits


class Whole:
    """Feed it a stream as its client would have seen it; `answer` gives what an engine would have said at once.

    `size`: bytes of what it keeps, about; `error`: the data of an event that says an error; `unreadable`: something was
    no event of these APIs.
    """

    __slots__ = ("_choices", "_frames", "_top", "error", "size", "unreadable")

    def __init__(self) -> None:
        self._frames = Frames()
        self._top: Event = {}
        self._choices: dict[int, _Choice] = {}
        self.size = 0
        self.error = b""
        self.unreadable = False

    @property
    def complete(self) -> bool:
        """Whether every choice has said why it ended."""
        return bool(self._choices) and all(one.said.get("finish_reason") for one in self._choices.values())

    def feed(self, data: bytes) -> None:
        """The next piece."""
        for event in self._frames.feed(data):
            self._take(event)

    def answer(self, form: Form) -> bytes:
        """All of it, as one JSON text. What was not ended is given as far as it came."""
        for event in self._frames.end():
            self._take(event)
        told = {**self._top}
        if told.get("object") == _CHUNK_OBJECT:
            told["object"] = _CHAT_OBJECT
        told["choices"] = [self._choices[index].whole(form) for index in sorted(self._choices)]
        usage = told.get("usage")
        if isinstance(usage, dict):
            told["usage"] = _in_form(_detailed(usage, form), form.usage)
        for name in form.unsaid:
            told.pop(name, None)
        return msgspec.json.encode(_in_form(told, form.answer))

    def _take(self, data: bytes) -> None:
        if data == b"[DONE]":
            return
        try:
            event: Event = msgspec.json.decode(data)
            if event.get("error"):
                self.error = data
                return
            choices: list[Event] = event.pop("choices")
            _fill(self._top, event)
            for choice in choices:
                index = choice.get("index", 0)
                if index not in self._choices:
                    self._choices[index] = _Choice()
                self.size += self._choices[index].take(choice)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError, KeyError, TypeError, AttributeError):
            self.unreadable = True


class _Choice:
    """One sequence. `said`: what its last events said of it; texts are in pieces until the end."""

    __slots__ = ("_calls", "_chat", "_message", "_texts", "said")

    def __init__(self) -> None:
        self.said: Event = {}
        self._chat = False
        self._message: Event = {}
        self._texts: dict[str, list[str]] = {}
        self._calls: dict[int, Event] = {}

    def take(self, choice: Event) -> int:
        """One event's part of it. Returns about how many bytes are kept of that."""
        size = 0
        delta = choice.pop("delta", None)
        if isinstance(delta, dict):
            self._chat = True
            for call in delta.pop("tool_calls", None) or ():
                size += _grow_call(self._calls.setdefault(call.pop("index", 0), {}), call)
            size += self._grow(delta, self._message)
        for name in _LISTS.intersection(choice):
            size += _extend(self.said, name, choice.pop(name))
        return size + self._grow(choice, self.said)

    def whole(self, form: Form) -> Event:
        """The choice as an answer in one piece has it."""
        texts = {name: "".join(pieces) for name, pieces in self._texts.items()}
        if not self._chat:
            return _in_form({**self.said, **texts}, form.choice)
        message = {**self._message, **texts}
        if self._calls:
            calls = (self._calls[index] for index in sorted(self._calls))
            message["tool_calls"] = [_in_form(call, _CALL) for call in calls]
            message["content"] = message.get("content") or None
        return _in_form({**self.said, "message": _in_form(message, form.message)}, form.choice)

    def _grow(self, said: Event, into: Event) -> int:
        size = 0
        for name in _GROWING.intersection(said):
            text = said.pop(name)
            if isinstance(text, str):
                self._texts.setdefault(name, []).append(text)
                size += len(text)
            else:
                into.setdefault(name, text)
        _fill(into, said)
        return size


def _fill(into: Event, said: Event) -> None:
    """What was said last counts, null only where nothing else was."""
    for name, value in said.items():
        if value is not None or name not in into:
            into[name] = value


def _extend(into: Event, name: str, more: Any) -> int:
    """Lists grow, also those within an object (logprobs). Returns about how many bytes are new."""
    known = into.get(name)
    if more is None or known is None:
        into[name] = more if more is not None else known
        return len(repr(more)) if more else 0
    if isinstance(more, dict):
        for key, values in more.items():
            _extend(known, key, values)
    else:
        known += more
    return len(repr(more))


def _grow_call(call: Event, more: Event) -> int:
    """A tool call: its arguments come in pieces, the rest once."""
    function = call.setdefault("function", {}) if "function" in more else {}
    size = 0
    for name, value in (more.get("function") or {}).items():
        if name == "arguments" and isinstance(value, str):
            function[name] = function.get(name, "") + value
            size += len(value)
        elif value is not None:
            function[name] = value
    _fill(call, {name: value for name, value in more.items() if name != "function"})
    return size


def _detailed(usage: Event, form: Form) -> Event:
    details = usage.get("prompt_tokens_details")
    if isinstance(details, dict) and form.details:
        return {**usage, "prompt_tokens_details": _in_form(details, form.details)}
    return usage


def _in_form(said: Event, form: Event) -> Event:
    """The keys of the form in its order, then those it does not know."""
    known = {name: said.get(name, default) for name, default in form.items()}
    made = {name: value for name, value in known.items() if value is not UNSET}
    return made | {name: value for name, value in said.items() if name not in form}
