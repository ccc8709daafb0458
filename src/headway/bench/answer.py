"""Reads answers of an OpenAI endpoint: streams piece by piece with their times, whole bodies, and error bodies.

Written apart from the gateway's scanner on purpose: the bench checks what the gateway relays, so they share no code.
What they share is the list of refusals that are shed, for both keep the same books.
A stream is complete only with a finish_reason and [DONE]; anything else is an error with a word for it.
"""

import msgspec

from headway.core.commands import SHED
from headway.workload.accounts import Kind


class _Delta(msgspec.Struct):
    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: object = None


class _Choice(msgspec.Struct):
    delta: _Delta | None = None
    message: object = None
    text: str | None = None
    finish_reason: str | None = None


class _Details(msgspec.Struct):
    cached_tokens: int | None = None


class Usage(msgspec.Struct):
    """A usage report; 0 where it says nothing."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    prompt_tokens_details: _Details | None = None

    @property
    def cached_tokens(self) -> int:
        """Prompt tokens that came from the engine's prefix cache."""
        return (self.prompt_tokens_details.cached_tokens or 0) if self.prompt_tokens_details else 0


class _Error(msgspec.Struct):
    reason: object = None
    code: object = None
    type: object = None


class _Chunk(msgspec.Struct):
    choices: list[_Choice] = []
    usage: Usage | None = None
    error: object = None
    code: object = None


_CHUNK = msgspec.json.Decoder(_Chunk)


class Stream:
    """One SSE answer. Feed it bytes as they come; ask `error` at the end ("" means complete)."""

    def __init__(self) -> None:
        self.piece_times: list[float] = []
        self.usage = Usage()
        self._tail = b""
        self._data: list[bytes] = []
        self._finish = ""
        self._done = False
        self._error = ""

    @property
    def error(self) -> str:
        """Why this is no complete answer, as a short word."""
        if self._error:
            return self._error
        return "" if self._finish and self._done else "truncated"

    def feed(self, data: bytes, at: float) -> None:
        """Take bytes that arrived at `at`, cut anywhere."""
        *lines, self._tail = (self._tail + data).split(b"\n") if self._tail else data.split(b"\n")
        for line in lines:
            if line.startswith(b"data:"):
                self._data.append(line[5:].strip())
            elif self._data and line in (b"", b"\r"):
                self._event(b"\n".join(self._data), at)
                self._data.clear()

    def _event(self, data: bytes, at: float) -> None:
        if data == b"[DONE]":
            self._done = True
            return
        try:
            chunk = _CHUNK.decode(data)
        except msgspec.MsgspecError:
            self._error = self._error or "bad_event"
            return
        if chunk.error is not None:
            self._error = self._error or f"in_band_{_word(chunk.error)}"
        if chunk.usage is not None:
            self.usage = chunk.usage
        shown = 0
        for choice in chunk.choices:
            shown += self._choice(choice)
        if shown:
            self.piece_times.append(at)

    def _choice(self, choice: _Choice) -> bool:
        """Note how the choice ended; True when the event brought something to show."""
        if choice.finish_reason:
            self._finish = choice.finish_reason
            if choice.finish_reason in ("abort", "error"):
                self._error = self._error or f"finish_{choice.finish_reason}"
        delta = choice.delta
        if delta is None:
            return bool(choice.text)
        return bool(delta.content or delta.reasoning_content or delta.reasoning or delta.tool_calls)


def whole(body: bytes) -> tuple[str, Usage]:
    """The error word ("" if none) and the usage of a non-streamed 200."""
    try:
        answer = _CHUNK.decode(body)
    except msgspec.MsgspecError:
        return "bad_body", Usage()
    usage = answer.usage or Usage()
    if answer.error is not None:
        return f"in_band_{_word(answer.error)}", usage
    if not answer.choices or not all(choice.finish_reason for choice in answer.choices):
        return "truncated", usage
    ends = {choice.finish_reason for choice in answer.choices} & {"abort", "error"}
    return (f"finish_{ends.pop()}" if ends else ""), usage


def refused(status: int, body: bytes) -> tuple[Kind, str]:
    """The account and the error word of an answer whose status is not 200."""
    word = _word_of_body(body)
    if (status, word) in SHED:
        return "shed", word
    kind: Kind = "client_error" if 400 <= status < 500 else "server_error"
    return kind, f"{status} {word}" if word else str(status)


def _word_of_body(body: bytes) -> str:
    try:
        answer = _CHUNK.decode(body)
    except msgspec.MsgspecError:
        return ""
    return _word(answer.error) if answer.error is not None else _clean(answer.code)


def _word(error: object) -> str:
    """A short word for an error object: its reason (ours has one in band), else its code, else its type."""
    try:
        known = msgspec.convert(error, _Error)
    except msgspec.ValidationError:
        return "error"
    return _clean(known.reason) or _clean(known.code) or _clean(known.type) or "error"


def _clean(value: object) -> str:
    return str(value)[:40] if value is not None and value != "" else ""
