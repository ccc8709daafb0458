"""The usage of one call, divided among those who shared it.

What lives here: how many tokens each is told. What must not: the bodies and replies themselves (`batches`).

Parts add up to what the engine reported. They are exact where the engine lists tokens, by ids or in logprobs, or where
token ids were sent; and for choices that ended at the limit, which have as many as that. The rest is an estimate, in
proportion to the text, and never above the limit. A list is believed only if it adds up.
"""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from msgspec import Raw

Value = Raw | bytes
"""JSON as it was written, or as it is to be."""

Values = dict[str, Value]


class _Logprobs(msgspec.Struct, gc=False):
    tokens: list[Raw] | None = None
    content: list[Raw] | None = None


_IDS = msgspec.json.Decoder(list[int] | None)
_LOGPROBS = msgspec.json.Decoder(_Logprobs | None)
_USAGE = msgspec.json.Decoder(dict[str, Any] | None)


def usages(raw: Value, riders: Sequence[Sequence[int]], entries: Sequence[Values], limit: int) -> list[bytes]:
    """What each is told of the usage; whatever is no number, everybody is told. `riders`: how long the inputs of each
    are, in tokens or in bytes; `entries`: one for each input, in order; `limit`: tokens that each may have, 0 if
    unknown. Raises msgspec.DecodeError if it is no usage."""
    usage = _USAGE.decode(raw)
    if usage is None:
        return [bytes(raw)] * len(riders)
    read, spoken = _number(usage.get("prompt_tokens")), _number(usage.get("completion_tokens"))
    inputs = [weight for rider in riders for weight in rider]
    prompts = _summed(_prompts(read, inputs, entries) if read else inputs, riders)
    outputs = _summed(_outputs(spoken, entries, limit) if spoken else [0] * len(entries), riders)
    both = [prompt + output for prompt, output in zip(prompts, outputs, strict=True)]
    told: list[dict[str, Any]] = [{} for _ in riders]
    for key, value in usage.items():
        weights = both if key == "total_tokens" else outputs if key.startswith(("completion", "output")) else prompts
        for own, share in zip(told, _divided(value, weights), strict=True):
            own[key] = share
    return [msgspec.json.encode(own) for own in told]


def shares(total: int, weights: Sequence[int]) -> list[int]:
    """`total` in whole numbers, in proportion to `weights` (largest remainder, the first of equals), exactly in sum."""
    if total < 0:
        return [total for _ in weights]
    whole = sum(weights)
    if not whole:
        weights, whole = [1] * len(weights), len(weights)
    parts = [total * weight // whole for weight in weights]
    rest = sorted(range(len(weights)), key=lambda i: (-(total * weights[i] % whole), i))
    for i in rest[: total - sum(parts)]:
        parts[i] += 1
    return parts


def bounded(total: int, weights: Sequence[int], most: int) -> list[int]:
    """Like `shares`, but none above `most`, as long as they can be."""
    parts, rest = shares(total, weights), total
    open_ = list(range(len(weights)))
    while most * len(weights) >= total and max(parts, default=0) > most:
        for i in [i for i in open_ if parts[i] >= most]:
            parts[i] = most
            rest -= most
            open_.remove(i)
        for i, share in zip(open_, shares(rest, [weights[i] for i in open_]), strict=True):
            parts[i] = share
    return parts


def _prompts(total: int, weights: Sequence[int], entries: Sequence[Values]) -> list[int]:
    """Tokens of each input."""
    return _listed(total, entries, lambda entry: _ids(entry, "prompt_token_ids")) or shares(total, weights)


def _outputs(total: int, entries: Sequence[Values], limit: int) -> list[int]:
    """Tokens of each choice."""
    listed = _listed(total, entries, lambda entry: _ids(entry, "token_ids")) or _listed(total, entries, _logprobs)
    if listed is not None:
        return listed
    texts = [len(bytes(entry.get("text", b""))) for entry in entries]
    full = [bytes(entry.get("finish_reason", b"")) == b'"length"' for entry in entries]
    rest = total - limit * sum(full)
    others = [text for text, ended in zip(texts, full, strict=True) if not ended]
    if not limit or not 0 <= rest <= limit * len(others):
        return bounded(total, texts, limit or total)  # some ended for want of context, or the limit is another
    parts = iter(bounded(rest, others, limit))
    return [limit if ended else next(parts) for ended in full]


def _listed(total: int, entries: Sequence[Values], count: Callable[[Values], int | None]) -> list[int] | None:
    """Counts of all entries, None unless all tell theirs, and they add up."""
    counts = [count(entry) for entry in entries]
    found = [each for each in counts if each is not None]
    return found if len(found) == len(counts) and sum(found) == total else None


def _ids(entry: Values, key: str) -> int | None:
    """How many ids are listed."""
    try:
        ids = _IDS.decode(entry.get(key, b"null"))
    except (msgspec.DecodeError, RecursionError):
        return None
    return None if ids is None else len(ids)


def _logprobs(entry: Values) -> int | None:
    """How many tokens a choice lists in its logprobs (OpenAI's, or llama.cpp's)."""
    try:
        logprobs = _LOGPROBS.decode(entry.get("logprobs", b"null"))
    except (msgspec.DecodeError, RecursionError):
        return None
    if logprobs is None:
        return None
    listed = logprobs.tokens if logprobs.tokens is not None else logprobs.content
    return None if listed is None else len(listed)


def _summed(counts: Sequence[int], riders: Sequence[Sequence[int]]) -> list[int]:
    """Counts of inputs as those of riders."""
    found, at = [], 0
    for rider in riders:
        found.append(sum(counts[at : at + len(rider)]))
        at += len(rider)
    return found


def _divided(value: Any, weights: list[int]) -> list[Any]:
    if isinstance(value, dict):
        columns = {key: _divided(inner, weights) for key, inner in value.items()}
        return [{key: column[i] for key, column in columns.items()} for i in range(len(weights))]
    if isinstance(value, int) and not isinstance(value, bool):
        return list(shares(value, weights))
    return [value] * len(weights)


def _number(value: Any) -> int:
    return value if isinstance(value, int) else 0
