"""What must hold for any bytes whatever: one function per codec, silent when it holds, raising when it does not.

Used by the fuzz runner and by the tests that replay the kept corpus.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator

import xxhash

from headway.gateway.framing import BadFraming, ChunkedBody, EngineChunks, TooLarge
from headway.gateway.head import HeadReader, Refusal, RequestHead
from headway.wire.answers import answer_of
from headway.wire.fields import PATHS
from headway.wire.openai import Body, BodyError, model_edits, multipart, scan, splice
from headway.wire.promtext import read
from headway.wire.sse import Scanner, UsageStripper

_SEEN = ("events", "tokens", "done", "finished", "aborted", "hit_limit", "error", "usage", "unreadable")
_NAMES = frozenset({"m", "vllm:kv_cache_usage_perc", "m_total"})
_HOP = rb"content-length|transfer-encoding|connection|keep-alive|upgrade"
_FRAMING = re.compile(rb"(?im)^(" + _HOP + rb")[ \t]*:")
_FRAMING_OR_HOST = re.compile(rb"(?im)^(" + _HOP + rb"|host|te)[ \t]*:")
_BARE = re.compile(rb"(?<!\r)\n|\r(?!\n)|\x00")
_FORM = "multipart/form-data; boundary=b"


def body(data: bytes) -> None:
    """What is accepted is what Python's json reads, the model is its model, and renaming changes only that."""
    for path in (*PATHS, "/v1/embeddings"):
        info = scan(data, path)
        if isinstance(info, BodyError):
            assert info.status == 400
            continue
        said = json.loads(data)
        assert (said.get("model") or "") == info.model
        assert info.prompt_bytes <= len(data)
        if info.usage_edit is not None:
            assert json.loads(splice(data, [info.usage_edit]))["stream_options"]["include_usage"] is True
        edits = model_edits(data, info, 'n"\\')
        if isinstance(edits, list):
            assert json.loads(splice(data, edits)) == ({**said, "model": 'n"\\'} if "model" in said else said)


def form(data: bytes) -> None:
    """A model that was read lies in the form and can be replaced."""
    info = multipart(data, _FORM)
    if isinstance(info, Body):
        edits = model_edits(data, info, "renamed", _FORM)
        assert isinstance(edits, list)
        again = multipart(splice(data, edits), _FORM)
        assert isinstance(again, Body)
        assert again.model == "renamed"


def stream(data: bytes) -> None:
    """However a stream is cut, the same is seen; the stripper loses nothing but usage events."""
    whole = _scanned([data])
    assert _scanned(_pieces(data)) == whole
    stripper = UsageStripper()
    left = b"".join([*map(stripper.feed, _pieces(data)), stripper.end()])
    assert left == data if b'"usage"' not in data else len(left) <= len(data)


def metrics(data: bytes) -> None:
    """Any page can be read, and reading it twice gives the same."""
    samples = read(data, _NAMES)
    assert repr(samples) == repr(read(data, _NAMES))
    assert set(samples) <= _NAMES


def answer(data: bytes) -> None:
    """Any answer can be read; counts are not negative."""
    usage = answer_of(data).usage
    assert usage is None or min(usage.prompt_tokens, usage.cached_tokens, usage.completion_tokens) >= 0


def head(data: bytes) -> None:
    """A head is refused or understood, the same whether it was seen before or not; nothing of what passes on can frame
    a message, name a host or end a line in any other way."""
    data = data.partition(b"\r\n\r\n")[0] + b"\r\n\r\n"
    reader = HeadReader()
    asked, length = reader.request(data)
    assert length >= 0
    if isinstance(asked, RequestHead):
        assert not (asked.chunked and length)
        assert not _FRAMING_OR_HOST.search(asked.rest)
        assert _BARE.search(asked.rest) is None
        assert _understood(reader.request(data)) == _understood((asked, length))
    said, length = reader.response(data)
    if said is not None:
        assert not _FRAMING.search(said.lead)
        assert _BARE.search(said.lead) is None
        again, same = reader.response(data)
        assert again is not None
        assert (again.lead, again.fields, same) == (said.lead, said.fields, length)


def _understood(read: tuple[RequestHead | Refusal, int]) -> object:
    asked, length = read
    assert isinstance(asked, RequestHead)
    return asked.method, asked.target, asked.rest, asked.fields, asked.chunked, asked.keep_alive, length


def chunks(data: bytes) -> None:
    """However a chunked body is cut, the same is read of it; where llhttp, too, sees a body it is the same one. (It is
    stricter with chunk extensions, which end with us: what is sent on has a length.)"""
    ours = _unchunked([data])
    assert _unchunked(_pieces(data)) == ours
    if isinstance(ours, tuple):
        body, surplus = ours
        checked = EngineChunks()
        try:
            assert checked.feed(data[: len(data) - len(surplus)]) == body
        except BadFraming:
            return
        assert checked.complete
        assert not checked.surplus


def _unchunked(pieces: Iterable[bytes]) -> tuple[bytes, bytes] | str:
    """The body and what lies behind it, or why there is none."""
    body, surplus = ChunkedBody(4096), None
    try:
        for piece in pieces:
            surplus = body.feed(piece) if surplus is None else surplus + piece
    except (BadFraming, TooLarge):
        return "refused"
    return "unfinished" if surplus is None else (bytes(body.take()), surplus)


TARGETS: dict[str, Callable[[bytes], None]] = {
    "body": body,
    "form": form,
    "stream": stream,
    "metrics": metrics,
    "answer": answer,
    "head": head,
    "chunks": chunks,
}


def _scanned(pieces: Iterator[bytes] | list[bytes]) -> list[object]:
    scanner = Scanner()
    for piece in pieces:
        scanner.feed(piece)
    scanner.end()
    assert scanner.at_boundary
    return [getattr(scanner, name) for name in _SEEN]


def _pieces(data: bytes) -> Iterator[bytes]:
    """Cut by a rule that depends on the data alone, so that a finding can be replayed."""
    at, chance = 0, xxhash.xxh3_64_intdigest(data)
    while at < len(data):
        chance = xxhash.xxh3_64_intdigest(b"", chance)
        size = 1 + chance % (4 if chance & 64 else 97)
        yield data[at : at + size]
        at += size
