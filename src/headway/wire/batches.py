"""Several requests in one body, and the one reply taken apart again: embeddings, and completions of one prompt each.

What lives here: which bytes of a body are its inputs, and which bytes of a reply are whose. What must not: who rides
with whom, and when (`gateway.batching`). Every value but the inputs, their places in the reply and the usage passes
byte for byte; a reply that is not shaped as it should be is not taken apart at all.

Usage is divided so that the parts add up to what the engine reported: prompt tokens in proportion to the prompts (exact
where token ids were sent), completion tokens to what each choice says of itself (ids or logprobs), else to its text.
"""

from collections.abc import Sequence
from typing import Any, Final

import msgspec
from msgspec import Raw

from headway.wire.spans import TooManyKeys, top_level

FIELDS: Final = {"/v1/embeddings": ("input", "data"), "/v1/completions": ("prompt", "choices")}
"""Path -> where a body has its inputs, and a reply one entry for each."""


class Part(msgspec.Struct, frozen=True, gc=False):
    """One request. `before` and `after` surround its inputs; `items` are these, as JSON, and `weights` how long they
    are: tokens if they are lists of `ids`, else bytes."""

    before: bytes
    after: bytes
    items: tuple[bytes, ...]
    weights: tuple[int, ...]
    ids: bool


class _Logprobs(msgspec.Struct, gc=False):
    tokens: list[Raw] | None = None
    content: list[Raw] | None = None


Value = Raw | bytes
"""JSON as it was written, or as it is to be."""

Values = dict[str, Value]

_LIST = msgspec.json.Decoder(list[Raw])
_IDS = msgspec.json.Decoder(list[int])
_IDS_OR_NONE = msgspec.json.Decoder(list[int] | None)
_LOGPROBS = msgspec.json.Decoder(_Logprobs | None)
_OBJECT: msgspec.json.Decoder[Values] = msgspec.json.Decoder(dict[str, Raw])
_USAGE = msgspec.json.Decoder(dict[str, Any] | None)


def part_of(body: bytes, path: str) -> Part | None:
    """How a body could be one of several, None if it could not. It was accepted by `openai.scan` before."""
    try:
        spans = [(start, end) for key, start, end in top_level(body) if key == FIELDS[path][0]]
    except TooManyKeys:
        return None
    if len(spans) != 1:
        return None
    start, end = spans[0]
    items, ids = _inputs(body[start:end])
    if not items or (path == "/v1/completions" and len(items) > 1):
        return None
    weights = tuple(len(_IDS.decode(item)) if ids else len(item) for item in items)
    return Part(body[:start], body[end:], items, weights, ids)


def merged(parts: Sequence[Part]) -> bytes:
    """One body for requests that differ in their inputs only."""
    items = b",".join(item for part in parts for item in part.items)
    return b"%b[%b]%b" % (parts[0].before, items, parts[0].after)


def split(reply: bytes, path: str, parts: Sequence[Part]) -> list[bytes] | None:
    """The reply to `merged(parts)` as one reply for each; None if it is not that. A few passes in C over all of it."""
    field = FIELDS[path][1]
    try:
        whole = _OBJECT.decode(reply)
        entries = _in_order(_LIST.decode(whole[field]))
        if len(entries) != sum(len(part.items) for part in parts):
            return None
        told = _usages(whole["usage"], parts, entries) if "usage" in whole else []
    except (KeyError, ValueError, msgspec.DecodeError, RecursionError):
        return None
    replies, at = [], 0
    for number, part in enumerate(parts):
        own = entries[at : at + len(part.items)]
        at += len(own)
        changed: Values = {field: b"[%b]" % b",".join(_placed(entry, place) for place, entry in enumerate(own))}
        if told:
            changed["usage"] = told[number]
        replies.append(_written(whole | changed))
    return replies


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


def _inputs(raw: bytes) -> tuple[tuple[bytes, ...], bool]:
    """(inputs, whether they are token ids) of a string, ids, or a list of either; nothing if it is something else."""
    if raw.startswith(b'"'):
        return (raw,), False
    if not raw.startswith(b"["):
        return (), False
    items = tuple(bytes(item) for item in _LIST.decode(raw))
    kinds = {item[:1] for item in items}
    if kinds == {b'"'}:
        return items, False
    if kinds == {b"["} and all(map(_are_ids, items)):
        return items, True
    return ((raw,), True) if items and _are_ids(raw) else ((), False)


def _are_ids(raw: bytes) -> bool:
    try:
        return bool(_IDS.decode(raw))
    except (msgspec.DecodeError, RecursionError):
        return False


def _in_order(raws: list[Raw]) -> list[Values]:
    """Entries by the place each names. Raises ValueError unless every place is taken once."""
    entries = [_OBJECT.decode(raw) for raw in raws]
    places = [int(bytes(entry["index"])) for entry in entries]
    if sorted(places) != list(range(len(entries))):
        raise ValueError("an entry is missing")
    return [entry for _, entry in sorted(zip(places, entries, strict=True), key=lambda pair: pair[0])]


def _placed(entry: Values, place: int) -> bytes:
    return _written(entry | {"index": b"%d" % place})


def _written(values: Values) -> bytes:
    """An object of values that are JSON already."""
    return b"{%b}" % b",".join(b"%b:%b" % (msgspec.json.encode(key), bytes(raw)) for key, raw in values.items())


def _usages(raw: Value, parts: Sequence[Part], entries: list[Values]) -> list[bytes]:
    """What each is told of the usage; whatever is no number, everybody is told."""
    usage = _USAGE.decode(raw)
    if usage is None:
        return [bytes(raw)] * len(parts)
    prompts = [sum(part.weights) for part in parts]
    prompts = shares(_number(usage.get("prompt_tokens")), prompts) if usage.get("prompt_tokens") else prompts
    spoken = _number(usage.get("completion_tokens"))
    outputs = shares(spoken, _spoken(parts, entries)) if spoken else [0] * len(parts)
    both = [prompt + output for prompt, output in zip(prompts, outputs, strict=True)]
    told: list[dict[str, Any]] = [{} for _ in parts]
    for key, value in usage.items():
        weights = both if key == "total_tokens" else outputs if key.startswith(("completion", "output")) else prompts
        for own, share in zip(told, _divided(value, weights), strict=True):
            own[key] = share
    return [msgspec.json.encode(own) for own in told]


def _divided(value: Any, weights: list[int]) -> list[Any]:
    if isinstance(value, dict):
        columns = {key: _divided(inner, weights) for key, inner in value.items()}
        return [{key: column[i] for key, column in columns.items()} for i in range(len(weights))]
    if isinstance(value, int) and not isinstance(value, bool):
        return list(shares(value, weights))
    return [value] * len(weights)


def _number(value: Any) -> int:
    return value if isinstance(value, int) else 0


def _spoken(parts: Sequence[Part], entries: list[Values]) -> list[int]:
    """How much each got back: tokens if all entries tell, else bytes of text."""
    counts = [_told_tokens(entry) for entry in entries]
    texts = [len(bytes(entry.get("text", b""))) for entry in entries]
    sizes = texts if None in counts else [count or 0 for count in counts]
    spoken, at = [], 0
    for part in parts:
        spoken.append(sum(sizes[at : at + len(part.items)]))
        at += len(part.items)
    return spoken


def _told_tokens(entry: Values) -> int | None:
    """How many tokens a choice lists, by its ids or in its logprobs (OpenAI's, or llama.cpp's)."""
    try:
        ids = _IDS_OR_NONE.decode(entry.get("token_ids", b"null"))
        logprobs = _LOGPROBS.decode(entry.get("logprobs", b"null"))
    except (msgspec.DecodeError, RecursionError):
        return None
    if ids is not None:
        return len(ids)
    if logprobs is None:
        return None
    listed = logprobs.tokens if logprobs.tokens is not None else logprobs.content
    return None if listed is None else len(listed)
