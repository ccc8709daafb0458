"""What must hold for any bytes whatever: one function per codec, silent when it holds, raising when it does not.

Used by the fuzz runner and by the tests that replay the kept corpus.
"""

import json
from collections.abc import Callable, Iterator

import xxhash

from headway.wire.answers import answer_of
from headway.wire.fields import PATHS
from headway.wire.openai import Body, BodyError, model_edits, multipart, scan, splice
from headway.wire.promtext import read
from headway.wire.sse import Scanner, UsageStripper

_SEEN = ("events", "tokens", "done", "finished", "aborted", "hit_limit", "error", "usage", "unreadable")
_NAMES = frozenset({"m", "vllm:kv_cache_usage_perc", "m_total"})
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


TARGETS: dict[str, Callable[[bytes], None]] = {
    "body": body,
    "form": form,
    "stream": stream,
    "metrics": metrics,
    "answer": answer,
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
