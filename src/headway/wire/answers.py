"""What a finished, unstreamed answer says: token usage and how it ended. Pure reading; answers are never changed.

Words of several APIs for the same thing: OpenAI chat and completions (`usage.prompt_tokens`), Responses and Anthropic
messages (`usage.input_tokens`), llama.cpp's own (`tokens_evaluated`), SGLang's own (`meta_info`).
"""

import json
from typing import Final

import msgspec
from msgspec import Raw

from headway.wire.shapes import RawUsage, ReasonKind, WholeAnswer
from headway.wire.usage import Answer, Usage

LIMIT_WORDS: Final = frozenset({"length", "max_tokens", "max_output_tokens", "limit"})
"""Finish reasons that mean the token limit: OpenAI, Anthropic, Responses, llama.cpp."""


_ANSWER: Final = msgspec.json.Decoder(WholeAnswer)
_REASON: Final = msgspec.json.Decoder(str | ReasonKind | None)


def answer_of(body: bytes) -> Answer:
    """Read a JSON answer of any of the APIs above. Never raises: what cannot be read was not said."""
    try:
        answer = _ANSWER.decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return Answer(malformed=bool(body) and not _is_json(body))
    aborted = hit_limit = False
    for choice in answer.choices or ():
        reason = choice.finish_reason
        aborted = aborted or reason == "abort"
        hit_limit = hit_limit or reason in LIMIT_WORDS
    if answer.stop_reason or answer.stop_type or answer.incomplete_details or answer.meta_info:
        reasons = _other_reasons(answer)
        aborted = aborted or "abort" in reasons
        hit_limit = hit_limit or not LIMIT_WORDS.isdisjoint(reasons)
    usage = answer.usage
    return Answer(_other_usage(answer) if usage is None else usage_of(usage), aborted, hit_limit)


def usage_of(raw: RawUsage) -> Usage:
    """The same in one set of words. Anthropic counts cached tokens apart from `input_tokens`: added here."""
    details = raw.prompt_tokens_details or raw.input_tokens_details
    cached = (details.cached_tokens if details is not None else None) or raw.cached_tokens or 0
    prompt, completion, read = raw.prompt_tokens, raw.completion_tokens, raw.cache_read_input_tokens
    if prompt is None:
        prompt = raw.input_tokens or 0
    if read:
        cached = read
        prompt += read
    if completion is None:
        completion = raw.output_tokens or 0
    return counted(prompt, cached, completion)


def counted(prompt: int, cached: int, completion: int) -> Usage:
    """Counts as an engine tells them; none is below zero, whatever it says."""
    return Usage(max(0, prompt), max(0, cached), max(0, completion))


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
    except (msgspec.DecodeError, RecursionError):
        return ""
    return (value.type if isinstance(value, ReasonKind) else value) or ""


def _other_usage(answer: WholeAnswer) -> Usage | None:
    if answer.meta_info is not None:
        return usage_of(answer.meta_info)
    if answer.tokens_predicted is None:
        return None
    return counted(answer.tokens_evaluated or 0, 0, answer.tokens_predicted)


def _other_reasons(answer: WholeAnswer) -> set[str]:
    reasons = {answer.stop_reason or answer.stop_type or ""}
    if answer.incomplete_details is not None:
        reasons.add(answer.incomplete_details.reason or "")
    if answer.meta_info is not None:
        reasons.add(reason_of(answer.meta_info.finish_reason))
    return reasons
