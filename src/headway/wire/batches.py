"""Several requests in one body, and the one reply taken apart again: embeddings, and completions of one prompt each.

What lives here: which bytes of a body are its inputs, and which bytes of a reply are whose. What must not: who rides
with whom, and when (`gateway.batching`), and how usage is divided (`batch_usage`). Every value but the inputs, their
places in the reply, the id and the usage passes byte for byte; a reply that is not shaped as it should be is not taken
apart at all. The id gets a number behind it, so that no two clients are told the same one.

An engine that tells token ids on request (vLLM's `return_token_ids`) may be asked for them: then usage is exact. What
it would not have said otherwise is taken out again.
"""

from collections.abc import Sequence
from typing import Final

import msgspec

from headway.wire.batch_usage import Values, usages
from headway.wire.rewrites import LIMITS
from headway.wire.spans import TooManyKeys, top_level
from headway.wire.splice import Octets

FIELDS: Final = {"/v1/embeddings": ("input", "data"), "/v1/completions": ("prompt", "choices")}
"""Path -> where a body has its inputs, and a reply one entry for each."""


class Part(msgspec.Struct, frozen=True, gc=False):
    """One request. `before` and `after` surround its inputs; `items` are these, as JSON, and `weights` how long they
    are: tokens if they are lists of `ids`, else bytes. `limit`: tokens that each may get, -1 where none is stated, 0 if
    it is not clear. `silent`: it says nothing about token ids."""

    before: bytes
    after: bytes
    items: tuple[bytes, ...]
    weights: tuple[int, ...]
    ids: bool
    limit: int = -1
    silent: bool = True


_LIST = msgspec.json.Decoder(list[msgspec.Raw])
_IDS = msgspec.json.Decoder(list[int])
_LIMIT = msgspec.json.Decoder(int)
_OBJECT: msgspec.json.Decoder[Values] = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ASKED: Final = "return_token_ids"
_TOLD: Final = ("token_ids", "prompt_token_ids")
_OFF: Final = (b"null", b"false")


def part_of(body: bytes, path: str) -> Part | None:
    """How a body could be one of several, None if it could not. It was accepted by `openai.scan` before."""
    try:
        spans = top_level(body)
    except TooManyKeys:
        return None
    field, text = FIELDS[path][0], path == "/v1/completions"
    found = [(start, end) for key, start, end in spans if key == field]
    if len(found) != 1 or any(key == "echo" and body[start:end] not in _OFF for key, start, end in spans):
        return None
    start, end = found[0]
    items, ids = _inputs(body[start:end])
    if not items or (text and len(items) > 1):
        return None
    weights = tuple(len(_IDS.decode(item)) if ids else len(item) for item in items)
    limit = _limit([body[start:end] for key, start, end in spans if text and key in LIMITS[path].names])
    return Part(body[:start], body[end:], items, weights, ids, limit, all(key != _ASKED for key, _, _ in spans))


def merged(parts: Sequence[Part], asking: bool = False) -> bytes:
    """One body for requests that differ in their inputs only. `asking` for token ids, if they say nothing of them."""
    items, first = b",".join(item for part in parts for item in part.items), parts[0]
    before = first.before
    if asking and first.silent:
        before = before.replace(b"{", b'{"%b":true,' % _ASKED.encode(), 1)
    return b"%b[%b]%b" % (before, items, first.after)


def split(reply: bytes, path: str, parts: Sequence[Part], asked: bool = False, unstated: int = 0) -> list[bytes] | None:
    """The reply to `merged(parts, asked)` as one reply for each; None if it is not that. `unstated`: tokens that each
    gets at most if they state no limit, 0 if that is not known. A few passes in C over all of it."""
    field = FIELDS[path][1]
    try:
        whole = _OBJECT.decode(reply)
        entries = _in_order(_LIST.decode(whole[field]))
        if len(entries) != sum(len(part.items) for part in parts):
            return None
        limit = unstated if parts[0].limit < 0 else parts[0].limit
        told = usages(whole["usage"], [part.weights for part in parts], entries, limit) if "usage" in whole else []
    except (KeyError, ValueError, msgspec.DecodeError, RecursionError):
        return None
    if asked and parts[0].silent:
        entries = [entry | {key: b"null" for key in _TOLD if key in entry} for entry in entries]
    replies, at = [], 0
    for number, part in enumerate(parts):
        own = entries[at : at + len(part.items)]
        at += len(own)
        changed: Values = {field: b"[%b]" % b",".join(_placed(entry, place) for place, entry in enumerate(own))}
        if told:
            changed["usage"] = told[number]
        replies.append(_written(whole | _named(whole, number) | changed))
    return replies


def _limit(stated: Sequence[Octets]) -> int:
    """The one limit that is stated: see Part."""
    numbers = {bytes(raw) for raw in stated if raw != b"null"}
    try:
        return _LIMIT.decode(numbers.pop()) if len(numbers) == 1 else -1 if not numbers else 0
    except msgspec.DecodeError:
        return 0


def _named(whole: Values, number: int) -> Values:
    """The id of one of them."""
    raw = bytes(whole.get("id", b""))
    return {"id": b'%b-%d"' % (raw[:-1], number)} if raw.startswith(b'"') else {}


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


def _in_order(raws: list[msgspec.Raw]) -> list[Values]:
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
