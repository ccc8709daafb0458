"""What a burst takes from a request: a cap on its output, and logprobs off. Offsets only, as with every edit.

What lives here: which fields of which API say these things. What must not: when a request is to be rewritten (the
brain), or telling the client (`gateway.headers`).

Only top-level fields, and the one object in which some APIs keep their limits. A field that is there twice is changed
twice. A limit that is stated but is no number is left for the engine to refuse in its own words.
"""

from typing import Final

import msgspec

from headway.wire.body import BodyError
from headway.wire.spans import TooManyKeys, top_level
from headway.wire.splice import Edit, Octets

Spans = list[tuple[str, int, int]]
UNSTATED_COMPLETION_TOKENS: Final = 16
"""What OpenAI's /v1/completions generates when no limit is stated; vLLM, SGLang and TensorRT-LLM keep to it."""


class Limit(msgspec.Struct, frozen=True, gc=False):
    """How one API says how much may be generated.

    `names` are limits, `floors` what must not exceed them. `insert` is the name to state a limit by. `unstated`: what
    is generated at most when none is stated, 0 if there is no end. `inside`: the field in which all that is kept.
    """

    names: tuple[str, ...]
    insert: str
    unstated: int = 0
    inside: str = ""
    floors: tuple[str, ...] = ("min_tokens",)


_CHAT = Limit(("max_tokens", "max_completion_tokens"), "max_tokens")  # every engine knows the older name
_LLAMA = Limit(("n_predict", "max_tokens"), "n_predict")
_OLLAMA = Limit(("num_predict",), "num_predict", inside="options")
LIMITS: Final[dict[str, Limit]] = {
    "/v1/chat/completions": _CHAT,
    "/v1/completions": Limit(("max_tokens", "n_predict"), "max_tokens", UNSTATED_COMPLETION_TOKENS),
    "/completion": _LLAMA,
    "/completions": _LLAMA,
    "/infill": _LLAMA,
    "/v1/responses": Limit(("max_output_tokens",), "max_output_tokens"),
    "/v1/messages": Limit(("max_tokens",), ""),  # it must be stated there: engines refuse if it is not
    "/generate": Limit(("max_new_tokens",), "max_new_tokens", 128, "sampling_params", ("min_new_tokens",)),
    "/inference/v1/generate": Limit(("max_tokens",), "max_tokens", 16, "sampling_params"),
    "/api/chat": _OLLAMA,
    "/api/generate": _OLLAMA,
}
_CHAT_LOGPROBS: Final = {"logprobs": b"false", "top_logprobs": b"null", "prompt_logprobs": b"null", "n_probs": b"0"}
_TEXT_LOGPROBS: Final = {"logprobs": b"null", "prompt_logprobs": b"null", "n_probs": b"0"}
LOGPROBS: Final[dict[str, dict[str, bytes]]] = {
    "/v1/chat/completions": _CHAT_LOGPROBS,
    "/v1/completions": _TEXT_LOGPROBS,
    "/completion": _TEXT_LOGPROBS,
    "/completions": _TEXT_LOGPROBS,
    "/infill": _TEXT_LOGPROBS,
    "/v1/responses": {"top_logprobs": b"null"},
    "/generate": {"return_logprob": b"false"},
    "/api/chat": _CHAT_LOGPROBS,
    "/api/generate": _CHAT_LOGPROBS,
}
"""Field -> what means "none" there. A null `top_logprobs` is one that was never sent, to every engine."""

_OFF: Final = frozenset((b"null", b"false", b"0"))


def cap_edits(body: Octets, path: str, cap: int, endless: bool = False) -> list[Edit] | BodyError:
    """Edits after which at most `cap` tokens are generated for a body sent to `path`. A stated limit of `cap` or less
    is left alone, and nothing is ever raised. `endless`: the engine knows no limit of its own where none is stated.
    """
    limit = LIMITS.get(path)
    if limit is None:
        return []
    spans = _spans(body)
    if not isinstance(spans, list) or not limit.inside:
        return spans if isinstance(spans, BodyError) else _capped(body, spans, limit, cap, endless, body.find(b"{") + 1)
    edits: list[Edit] = []
    found = [(start, end) for key, start, end in spans if key == limit.inside]
    if not found or bytes(body[found[-1][0] : found[-1][1]]) == b"null":
        return _stated_outside(body, spans, limit, cap)
    for start, end in found:
        if body[start] != ord("{"):
            continue  # SGLang takes a list of them for a batch, and null counts as nothing
        inner = _spans(body[start:end])
        if isinstance(inner, BodyError):
            return inner
        inner = [(key, start + first, start + last) for key, first, last in inner]
        edits += _capped(body, inner, limit, cap, endless, start + 1)
    return edits


def logprobs_edits(body: Octets, path: str) -> list[Edit] | BodyError:
    """Edits after which no logprobs are asked for. Nothing is said where the client said nothing."""
    replaced = LOGPROBS.get(path)
    if replaced is None:
        return []
    spans = _spans(body)
    if isinstance(spans, BodyError):
        return spans
    return [
        (start, end, replaced[key])
        for key, start, end in spans
        if key in replaced and bytes(body[start:end]) not in _OFF
    ]


def _spans(body: Octets) -> Spans | BodyError:
    try:
        return top_level(body)
    except TooManyKeys as error:
        return BodyError(400, "invalid_json", f"the body has {error}")


def _capped(
    body: Octets, spans: Spans, limit: Limit, cap: int, endless: bool, at: int
) -> list[Edit]:  # fmt: skip
    """Edits of one object: lower what is too high; if nothing is stated, state it (at `at`: behind the bracket)."""
    digits = b"%d" % cap
    stated = {
        key: bytes(body[start:end]) != b"null" for key, start, end in spans if key in limit.names
    }  # the last counts
    watched = (*limit.names, *limit.floors)
    edits = [(start, end, digits) for key, start, end in spans if key in watched and _exceeds(body[start:end], cap)]
    if any(stated.values()) or not _must_state(limit, cap, endless):
        return edits
    nulls = [(start, end, digits) for key, start, end in spans if key == limit.insert and body[start:end] == b"null"]
    if nulls:
        return edits + nulls
    more = b"," if spans else b""
    return [*edits, (at, at, b'"%b":%d%b' % (limit.insert.encode(), cap, more))]


def _stated_outside(body: Octets, spans: Spans, limit: Limit, cap: int) -> list[Edit]:
    """There is no object for limits yet (or null): write one."""
    if not _must_state(limit, cap, False):
        return []
    value = b'{"%b":%d}' % (limit.insert.encode(), cap)
    nulls = [(start, end, value) for key, start, end in spans if key == limit.inside and body[start:end] == b"null"]
    if nulls:
        return nulls
    at = body.find(b"{") + 1
    return [(at, at, b'"%b":%b%b' % (limit.inside.encode(), value, b"," if spans else b""))]


def _must_state(limit: Limit, cap: int, endless: bool) -> bool:
    return bool(limit.insert) and (not limit.unstated or endless or cap < limit.unstated)


def _exceeds(raw: Octets, cap: int) -> bool:
    """Whether it is a number above the cap, or below zero, which means "no limit" to llama.cpp and Ollama. Also "300"
    and 300.0, which lax validators take."""
    text = bytes(raw).strip(b'"')
    try:
        value = float(text)
    except ValueError:
        return False
    return value > cap or value < 0
