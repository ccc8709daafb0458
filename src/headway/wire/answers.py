"""What a finished, unstreamed answer says: token usage and how it ended. Pure reading; answers are never changed.

Words of several APIs for the same thing: OpenAI chat and completions (`usage.prompt_tokens`), Responses and Anthropic
messages (`usage.input_tokens`), llama.cpp's own (`tokens_evaluated`), SGLang's own (`meta_info`).
"""

import json

import msgspec
from msgspec import Raw

LIMIT_WORDS = frozenset({"length", "max_tokens", "max_output_tokens", "limit"})
"""Finish reasons that mean the token limit: OpenAI, Anthropic, Responses, llama.cpp."""


class Usage(msgspec.Struct, frozen=True, gc=False):
    """Tokens of one answer, as the engine reported them. `cached_tokens` are part of `prompt_tokens`."""

    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0


class Answer(msgspec.Struct, frozen=True, gc=False):
    """`usage` is None when none was reported. `hit_limit`: ended by the token limit; `aborted`: by the engine.
    `malformed`: it is something, but no JSON, not even for readers that take NaN and Infinity."""

    usage: Usage | None = None
    aborted: bool = False
    hit_limit: bool = False
    malformed: bool = False


class _Details(msgspec.Struct, gc=False):
    cached_tokens: int | None = None


class RawUsage(msgspec.Struct, gc=False):
    """`usage` objects of all APIs at once, and SGLang's `meta_info`."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    prompt_tokens_details: _Details | None = None
    input_tokens_details: _Details | None = None
    finish_reason: Raw = Raw(b"")

    def usage(self) -> Usage:
        """The same in one set of words. Anthropic counts cached tokens apart from `input_tokens`: added here."""
        details = self.prompt_tokens_details or self.input_tokens_details
        cached = (details.cached_tokens if details else None) or self.cached_tokens or 0
        prompt = self.prompt_tokens if self.prompt_tokens is not None else self.input_tokens or 0
        if self.cache_read_input_tokens:
            cached = self.cache_read_input_tokens
            prompt += cached
        completion = self.completion_tokens if self.completion_tokens is not None else self.output_tokens or 0
        return Usage(max(0, prompt), max(0, cached), max(0, completion))


class _Choice(msgspec.Struct, gc=False):
    finish_reason: str | None = None


class _Incomplete(msgspec.Struct, gc=False):
    reason: str | None = None


class _Answer(msgspec.Struct, gc=False):
    usage: RawUsage | None = None
    choices: list[_Choice] | None = None
    stop_reason: str | None = None
    incomplete_details: _Incomplete | None = None
    meta_info: RawUsage | None = None
    tokens_evaluated: int | None = None
    tokens_predicted: int | None = None
    stop_type: str | None = None


class _Kind(msgspec.Struct, gc=False):
    type: str | None = None


_ANSWER = msgspec.json.Decoder(_Answer)
_REASON = msgspec.json.Decoder(str | _Kind | None)


def answer_of(body: bytes) -> Answer:
    """Read a JSON answer of any of the APIs above. Never raises: what cannot be read was not said."""
    try:
        answer = _ANSWER.decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return Answer(malformed=bool(body) and not _is_json(body))
    aborted = hit_limit = False
    for choice in answer.choices or ():
        aborted = aborted or choice.finish_reason == "abort"
        hit_limit = hit_limit or choice.finish_reason in LIMIT_WORDS
    if answer.stop_reason or answer.stop_type or answer.incomplete_details or answer.meta_info:
        reasons = _other_reasons(answer)
        aborted = aborted or "abort" in reasons
        hit_limit = hit_limit or not LIMIT_WORDS.isdisjoint(reasons)
    usage = answer.usage
    return Answer(_other_usage(answer) if usage is None else usage.usage(), aborted, hit_limit)


def _is_json(body: bytes) -> bool:
    try:
        json.loads(body)
    except ValueError:
        return False
    except RecursionError:
        pass
    return True


def reason_of(raw: Raw) -> str:
    """A finish reason, which SGLang wraps in an object; empty when there is none."""
    try:
        value = _REASON.decode(raw)
    except msgspec.DecodeError:
        return ""
    return (value.type if isinstance(value, _Kind) else value) or ""


def _other_usage(answer: _Answer) -> Usage | None:
    if answer.meta_info is not None:
        return answer.meta_info.usage()
    if answer.tokens_predicted is None:
        return None
    return Usage(answer.tokens_evaluated or 0, 0, answer.tokens_predicted)


def _other_reasons(answer: _Answer) -> set[str]:
    reasons = {answer.stop_reason or answer.stop_type or ""}
    if answer.incomplete_details is not None:
        reasons.add(answer.incomplete_details.reason or "")
    if answer.meta_info is not None:
        reasons.add(reason_of(answer.meta_info.finish_reason))
    return reasons
