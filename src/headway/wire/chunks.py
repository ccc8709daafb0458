"""The meaning of one streamed event's JSON: tokens, usage, errors, ends. Framing of events is `sse`.

What counts as content (a token): a delta with a content, reasoning or tool part, even with empty text, because engines
send one event per token also when it is only half a character; but not the opening event, which names the role and
says nothing. Token ids, running counts and usage reports are believed over counted events.
"""

from typing import Final

import msgspec
from msgspec import Raw

from headway.wire.answers import LIMIT_WORDS, counted, reason_of, usage_of
from headway.wire.shapes import (
    ABSENT,
    Choice,
    Chunk,
    Delta,
    Error,
    Message,
    Other,
    RawUsage,
    Response,
    Stop,
)
from headway.wire.usage import Usage

NULL: Final = b"null"


_CHUNK: Final = msgspec.json.Decoder(Chunk)
_OTHER: Final = msgspec.json.Decoder(Other)
_USAGE: Final = msgspec.json.Decoder(RawUsage | None)
_MESSAGE: Final = msgspec.json.Decoder(Message)
_STOP: Final = msgspec.json.Decoder(Stop)
_ERROR: Final = msgspec.json.Decoder(Error | str | None)
_UNREADABLE: Final = (msgspec.DecodeError, RecursionError, UnicodeDecodeError)
_ENDS: Final = frozenset({"message_stop", "response.completed", "response.incomplete", "response.failed"})
_STATUS_OF: Final = {
    b'"invalid_request_error"': 400, b'"BadRequestError"': 400, b'"rate_limit_error"': 429, b'"overloaded_error"': 503,
}  # fmt: skip
"""What OpenAI, vLLM and Anthropic call errors whose status is not said, as the JSON they are written in."""


class Tally:
    """What a stream has said so far. `read` takes the data of one event.

    `tokens` content tokens; `done` `[DONE]` was seen; `finished` a finish reason was seen; `aborted` it was "abort";
    `hit_limit` it was the token limit; `error` the message of an in-band error; `error_status` the status it would have
    as a response, 0 if that was not said; `usage` the last report; `unreadable` events that were not the JSON of any
    API known here.
    """

    __slots__ = (
        "aborted", "done", "error", "error_status", "finished", "hit_limit", "tokens", "unreadable", "usage",
    )  # fmt: skip

    def __init__(self) -> None:
        self.tokens = 0
        self.done = False
        self.finished = False
        self.aborted = False
        self.hit_limit = False
        self.error: str | None = None
        self.error_status = 0
        self.usage: Usage | None = None
        self.unreadable = 0

    @property
    def silent(self) -> bool:
        """Whether nothing was said but tokens."""
        return not (self.done or self.finished or self.unreadable) and self.error is None and self.usage is None

    def read(self, data: bytes) -> None:
        """Take in one event."""
        if data == b"[DONE]":
            self.done = True
            return
        try:
            chunk = _CHUNK.decode(data)
            if chunk.choices is None:
                self._other(data)
            else:
                for choice in chunk.choices:
                    self._choice(choice)
        except _UNREADABLE:
            self.unreadable += 1
            return
        if chunk.error is not ABSENT:
            self._error(chunk.error)
        if chunk.usage is not ABSENT:
            self._raw_usage(chunk.usage)

    def _choice(self, choice: Choice) -> None:
        if choice.token_ids is not None:
            self.tokens += len(choice.token_ids)
        elif choice.text is not ABSENT or (choice.delta is not None and _has_content(choice.delta)):
            self.tokens += 1
        if choice.finish_reason is not None:
            self._finish(choice.finish_reason)

    def _finish(self, reason: str) -> None:
        self.finished = True
        if reason == "abort":
            self.aborted = True
        elif reason in LIMIT_WORDS:
            self.hit_limit = True

    def _other(self, data: bytes) -> None:
        event = _OTHER.decode(data)
        kind = event.type
        if kind == "content_block_delta" or (kind.startswith("response.") and kind.endswith(".delta")):
            self.tokens += 1
        elif kind in _ENDS:
            self.finished = True
        if event.object == "error" or kind == "error":
            self._error(event.message)
            self.error_status = _status(event.code, ABSENT)
        if event.response is not None:
            self._response(event.response)
        if kind == "message_start":
            self._report(_MESSAGE.decode(event.message).usage)
        elif kind == "message_delta" and (reason := _STOP.decode(event.delta).stop_reason) is not None:
            self._finish(reason)
        self._native(event)

    def _native(self, event: Other) -> None:
        if event.meta_info is not None:
            self._report(event.meta_info)
            if reason := reason_of(event.meta_info.finish_reason):
                self._finish(reason)
        if event.tokens_predicted is not None:
            self._take(counted(event.tokens_evaluated, 0, event.tokens_predicted))
            if event.stop:
                self._finish(event.stop_type)

    def _response(self, response: Response) -> None:
        self._report(response.usage)
        if bytes(response.error) not in (b"", NULL):
            self._error(response.error)
        if b"max_output_tokens" in bytes(response.incomplete_details):
            self.hit_limit = True

    def _error(self, raw: Raw) -> None:
        try:
            value = _ERROR.decode(raw) if raw is not ABSENT else "error"
        except _UNREADABLE:
            value = "error"
        if value is not None:
            self.error = (value if isinstance(value, str) else value.message) or "error"
            self.error_status = 0 if isinstance(value, str) else _status(value.code, value.type)

    def _raw_usage(self, raw: Raw) -> None:
        try:
            self._report(_USAGE.decode(raw))
        except _UNREADABLE:
            self.unreadable += 1

    def _report(self, report: RawUsage | None) -> None:
        if report is not None:
            self._take(usage_of(report))

    def _take(self, usage: Usage) -> None:
        before = self.usage
        if before is not None and not usage.prompt_tokens:  # Anthropic tells the prompt at the start only
            usage = Usage(before.prompt_tokens, before.cached_tokens, usage.completion_tokens)
        self.usage = usage
        self.tokens = max(self.tokens, usage.completion_tokens)


def _status(code: Raw, kind: Raw) -> int:
    """The HTTP status an error stands for, 0 if it does not say."""
    digits = bytes(code).strip(b'"')
    return int(digits) if len(digits) == 3 and digits.isdigit() else _STATUS_OF.get(bytes(kind), 0)


def _has_content(delta: Delta) -> bool:
    if delta.content is not None and (delta.content or delta.role is ABSENT):
        return True
    for raw in (delta.tool_calls, delta.reasoning, delta.reasoning_content, delta.function_call):
        if raw is not ABSENT and bytes(raw) not in (NULL, b"[]"):
            return True
    return False
