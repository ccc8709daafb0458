"""Request bodies of the inference APIs: one pass finds what routing needs, and where to splice.

What lives here: reading a client's JSON body. What must not: deciding anything about it, or changing it (`splice`).

One C pass (msgspec) validates the whole body strictly and hands out the fields of interest as raw views. Decisions that
keep the model routed and the model the engine sees the same:

- Twice the same key: the last one counts, as for Python's json, pydantic and nlohmann::json; an edit changes them all.
- NaN and Infinity, a byte order mark, lone surrogates, invalid UTF-8, raw control characters, nesting beyond about
  800: 400. They are no JSON (RFC 8259), and some engines die of a lone surrogate in a prompt.
- Numbers of any size, duplicate and unknown keys, spacing and escapes: pass untouched.
- `stream` is true, false or null (= absent). Engines disagree about "true" and 1, so those are 400.
- `model` is a string. Under /v1/, where something is generated, it must be there; elsewhere it may be missing.
"""

import codecs
import re
from typing import Final

import msgspec
import xxhash
from msgspec import Raw
from msgspec.structs import astuple

from headway.wire import form
from headway.wire.body import MAX_MODEL_CHARS, Body, BodyError, bad_model
from headway.wire.fields import ABSENT, COMMON, NOTHING, PATHS, PINS, SELDOM, AnyFields, Fields, pins
from headway.wire.form import multipart
from headway.wire.media import measure
from headway.wire.numbers import whole
from headway.wire.prefix import chain
from headway.wire.resume_pins import API, CHOICES, PINNED, ZERO_MEANS_OFF
from headway.wire.shapes import Named, StreamOptions
from headway.wire.spans import TooManyKeys, top_level
from headway.wire.splice import Edit, Octets, splice

__all__ = ["Body", "BodyError", "Edit", "model_edits", "multipart", "scan", "splice"]

MAX_SESSION_BYTES: Final = 256
"""Longer session keys are replaced by their hash: they are kept in tables."""

UTF8_PIECE_BYTES: Final = 16 * 1024
"""Small enough for the nearest cache, as text four bytes wide."""

SAFE_DEPTH: Final = 600
"""A body with no more brackets than this cannot be nested too deeply."""

SPARSE: Final = 32
"""Whether there are fewer brackets of a kind is found in a tenth of the time that counting takes."""

FEW_BYTES: Final = 64 * 1024
"""A copy of so few costs less than to find brackets one by one."""

SPARE_DEPTH: Final = 128
"""Later looks at a body are taken further down the call stack, of which the decoder's nesting is part (CPython before
3.12 counts both together): what is accepted here must not be too deep there, in the midst of a dispatch."""

_DECODERS: Final[dict[str, msgspec.json.Decoder[AnyFields]]] = {
    path: msgspec.json.Decoder(kind) for path, kind in PATHS.items()
}
_OTHER: Final[msgspec.json.Decoder[AnyFields]] = msgspec.json.Decoder(Fields)
_ANYTHING: Final = msgspec.json.Decoder(Raw)
_UNREADABLE: Final = (msgspec.DecodeError, RecursionError)
_WHERE: Final = re.compile(r"`\$\.(\w+)")
_ZERO: Final = frozenset({b"0", b"0.0"})
_UNSET: Final = frozenset({b"null", b"false", b"[]", b"{}", b'""', b'"none"', b'{"type":"text"}'})

_STREAM_OPTIONS: Final = msgspec.json.Decoder(StreamOptions | None)
_SESSION: Final = msgspec.json.Decoder(str | Named | None)


def scan(body: Octets, path: str, block_bytes: int = 512) -> Body | BodyError:
    """Read a JSON body sent to `path` (no query, no replica prefix). Takes about 6 us for 2 kB, 2 ms for 1 MB."""
    try:
        fields = _DECODERS.get(path, _OTHER).decode(body)
        if not body.isascii():
            _check_utf8(body)
        if len(body) > 2 * SAFE_DEPTH:
            _check_depth(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        return _refusal(error)
    model = fields.model
    if not model or len(model) > MAX_MODEL_CHARS:
        refused = bad_model(model, fields.generates and path.startswith("/v1/"))
        if refused is not None:
            return refused
    return _body(body, fields, block_bytes)


def model_edits(body: Octets, info: Body, name: str, content_type: str = "") -> list[Edit] | BodyError:
    """Edits that make the engine see `name` as the model: every top-level `model`, should it be there twice.

    Costs a second look at the body: call it only when the name differs from `info.model`. `content_type` is needed for
    form data only.
    """
    if info.form:
        return form.model_edits(body, content_type, name)
    try:
        spans = top_level(body)
    except TooManyKeys as error:
        return BodyError(400, "invalid_json", f"the body has {error}")
    value = msgspec.json.encode(name)
    return [(start, end, value) for key, start, end in spans if key == "model"]


def _body(body: Octets, fields: AnyFields, block_bytes: int) -> Body:
    values, kind = astuple(fields), type(fields)
    plain = values.count(ABSENT) - COMMON[kind](values).count(ABSENT) == SELDOM[kind]
    model = fields.model or ""
    prompts = fields.prompts()
    text = bytes(prompts[0])
    media_tokens, media_bytes = measure(text)
    length = len(text) - media_bytes
    heads = NOTHING if plain else _present(fields.heads())
    if heads or len(prompts) > 1:
        length += sum(len(memoryview(raw)) for raw in (*prompts[1:], *heads))
    tokens, count = (0, 1) if text.startswith((b'"', b"[{")) else _token_ids(text)
    sequences = count if plain else count * _sequences(fields.counts())
    stream, generates = fields.stream, fields.generates
    if stream is None:
        stream = fields.streams_by_default
    include_usage, usage_edit = _usage(body, fields) if stream else (None, None)
    limit = _first_positive(fields.limits())
    return Body(
        model,
        stream,
        max(0, length),
        tokens,
        media_tokens,
        limit,
        sequences,
        chain(text, block_bytes, [model.encode(), *map(bytes, heads)]) if generates else (),
        "" if plain else _session(fields.sessions()),
        include_usage,
        usage_edit,
        generates,
        _pinned(fields, sequences, plain),
        xxhash.xxh3_64_intdigest(body),
        0 if plain else _priority(fields.priority),
        min_output_tokens=0 if plain else _least(fields, limit),
    )


def _sparse(body: Octets, bracket: bytes) -> bool:
    """Whether it occurs less than SPARSE times. Most bodies are text with few brackets, and finding skips what is none,
    while counting looks at every byte."""
    if len(body) <= FEW_BYTES:
        return len(body) - len(body.replace(bracket, b"", SPARSE)) < SPARSE
    at = -1
    for _ in range(SPARSE):
        at = body.find(bracket, at + 1)
        if at < 0:
            return True
    return False


def _check_utf8(body: Octets) -> None:
    """Raises UnicodeDecodeError. In pieces, because making one string of megabytes takes twice as long."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        for at in range(0, len(body), UTF8_PIECE_BYTES):
            decoder.decode(body[at : at + UTF8_PIECE_BYTES])
        decoder.decode(b"", True)
    except UnicodeDecodeError:
        body.decode()  # the same error, with the place in the whole
        raise


def _check_depth(body: Octets) -> None:
    """Raises RecursionError unless this much can be nested further down the call stack, too."""
    if _sparse(body, b"[") and _sparse(body, b"{"):
        return
    if body.count(b"[") + body.count(b"{") > SAFE_DEPTH:
        _ANYTHING.decode(b"[" * SPARE_DEPTH + body + b"]" * SPARE_DEPTH)


def _refusal(error: Exception) -> BodyError:
    if isinstance(error, RecursionError):
        return BodyError(400, "invalid_json", "the body is nested too deeply")
    if isinstance(error, UnicodeDecodeError):
        return BodyError(400, "invalid_json", f"the body is not valid UTF-8 (byte {error.start})")
    if not isinstance(error, msgspec.ValidationError):
        return BodyError(400, "invalid_json", f"the body could not be parsed as JSON: {error}")
    where = _WHERE.search(str(error))
    return BodyError(400, "invalid_type", str(error), where[1] if where else None)


def _present(raws: tuple[Raw, ...]) -> tuple[Raw, ...]:
    return tuple(raw for raw in raws if raw is not ABSENT)


def _usage(body: Octets, fields: AnyFields) -> tuple[bool | None, Edit | None]:
    raw = fields.options()
    if raw is None:
        return None, None
    if raw is ABSENT:
        at = body.find(b"{") + 1
        return None, (at, at, b'"stream_options":{"include_usage":true},')
    try:
        options = _STREAM_OPTIONS.decode(raw)
    except _UNREADABLE:
        return None, None  # the engine refuses it in its own words
    if options is not None and options.include_usage is not None:
        return options.include_usage, None
    return None, _options_edit(body)


def _options_edit(body: Octets) -> Edit | None:
    """Turn usage on inside stream options that are null or do not mention it, keeping what else they say."""
    try:
        start, end = next((start, end) for key, start, end in reversed(top_level(body)) if key == "stream_options")
    except TooManyKeys:
        return None
    if body[start] != ord("{"):
        return start, end, b'{"include_usage":true}'
    rest = body[start + 1 : end - 1].strip()
    if b"include_usage" in rest:
        return None  # null, beside other options: leave it as it is
    return start + 1, start + 1, b'"include_usage":true' + (b"," if rest else b"")


def _token_ids(text: bytes) -> tuple[int, int]:
    """`(exact prompt tokens or 0, number of prompts)` of a string, ids, or a list of either."""
    inner = text[1:65].lstrip()
    if text[:1] != b"[" or not inner:
        return 0, 1
    if inner[:1].isdigit():
        return text.count(b",") + 1, 1
    return _batch(text) if inner[:1] in (b'"', b"[") else (0, 1)


def _batch(text: bytes) -> tuple[int, int]:
    """A list of lists of ids, or of strings: counted by what separates them, for there may be a million."""
    if text[1:65].lstrip().startswith(b"["):
        return text.count(b",") + 1 - text.count(b"[]"), text.count(b"[") - 1
    if b"\\" in text:
        text = text.replace(rb"\\", b"").replace(rb"\"", b"")
    return 0, text.count(b'"') // 2


def _integer(raw: Raw) -> int:
    """A whole number, 0 for anything else."""
    text = bytes(raw)
    return int(text) if text.isdigit() and len(text) < 16 else whole(text)


def _priority(raw: Raw) -> int:
    if raw is ABSENT:
        return 0
    text = bytes(raw)
    return -_integer(Raw(text[1:])) if text[:1] == b"-" else _integer(raw)


def _first_positive(raws: tuple[Raw, ...]) -> int:
    for raw in raws:
        if raw is not ABSENT and (value := _integer(raw)):
            return value
    return 0


def _least(fields: AnyFields, limit: int) -> int:
    """Output tokens below which nothing ends: whoever ignores the end of text runs into its limit."""
    least, endless = fields.least()
    if limit and endless is not ABSENT and bytes(endless) == b"true":
        return limit
    tokens = 0 if least is ABSENT else _integer(least)
    return min(tokens, limit) if limit else tokens


def _sequences(raws: tuple[Raw, ...]) -> int:
    most = 1
    for raw in raws:
        if raw is not ABSENT:
            most = max(most, _integer(raw))
    return most


def _pinned(fields: AnyFields, sequences: int, plain: bool) -> str:
    """Why the request cannot be continued elsewhere; nothing for most. `resume_pins` tells the reasons."""
    if not fields.replayable:
        return API
    if sequences != 1:
        return CHOICES
    if not plain:
        for name, raw in zip(PINS[type(fields)], pins(fields), strict=True):
            if (
                raw is ABSENT
                or (value := bytes(raw).replace(b" ", b"")) in _UNSET
                or (value in _ZERO and name in ZERO_MEANS_OFF)
            ):
                continue
            return PINNED[name]
    return ""


def _session(raws: tuple[Raw, ...]) -> str:
    for raw in raws:
        if raw is not ABSENT and (key := _session_key(raw)):
            return key if len(key) <= MAX_SESSION_BYTES else xxhash.xxh3_128_hexdigest(key.encode())
    return ""


def _session_key(raw: Raw) -> str:
    try:
        value = _SESSION.decode(raw)
    except _UNREADABLE:
        return ""
    return value if isinstance(value, str) else (value.id or value.user_id) if value else ""
