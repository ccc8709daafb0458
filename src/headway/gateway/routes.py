"""Which requests are served, by an allowlist. Whatever is not named here does not exist: engines' own control paths
(sleep, flush, abort, adapters, metrics) are thereby out of reach, however they are spelt; the usual ones are whatever
the list says, for a prefix may be wider than whoever wrote it thought.

A path is compared as it was sent: percent signs, doubled slashes and dot segments match nothing.
"""

import enum
import re
from collections.abc import Iterable
from urllib.parse import unquote

import msgspec

_CONTROL = re.compile(
    "/(?:"
    + "|".join((
        "(?:is_)?sleep(?:ing)?|wake_up|(?:is_)?paused?|resume|slow_down|exit|shutdown",
        "(?:pause|continue)_generation|abort_requests?|(?:open|close)_session|collective_rpc|freeze_gc",
        r"(?:reset|flush|clear)_\w{1,64}|hicache|(?:release|resume)_memory\w{0,64}",
        r"\w{0,64}weights?(?:_\w{1,64})?|\w{0,64}lora[_-]adapters?\w{0,64}|\w{0,64}scal(?:e|ing)_elastic_ep",
        r"(?:start|stop|dump)_(?:profile|expert_\w{1,64})|(?:configure_)?logging|(?:set|get)_(?:internal|trace)_\w{1,64}",
        "(?:get_)?(?:loads?|server_info|world_size)|(?:perf_)?metrics|kv_cache_events|health_generate",
        "models/(?:un)?load|repository",
        "slots|props|cors-proxy|(?:system|cuda)sharedmemory|api/(?:pull|push|create|copy|delete|blobs|tags|ps)",
    ))
    + ")(?:/|$)",
    re.IGNORECASE,
)  # fmt: skip
"""Segments that only control paths of engines have: vLLM, SGLang, TensorRT-LLM and Triton, llama.cpp, Ollama. Anywhere
in a path, for an engine may stand behind a prefix of its own."""

LONGEST_CHARS = 256
"""Of a path below a prefix: no engine has a longer one, and looking at it must not take long."""

_SAFE = re.compile(r"/(?:[A-Za-z0-9_\-]+(?:\.[A-Za-z0-9_\-]+)*/)*[A-Za-z0-9_\-]+(?:\.[A-Za-z0-9_\-]+)*")
KNOWN_V1 = frozenset(
    f"/v1/{name}"
    for name in (
        "chat/completions", "completions", "responses", "messages", "messages/count_tokens", "embeddings", "rerank",
        "score", "pooling", "classify", "moderations", "tokenize", "detokenize", "audio/transcriptions",
        "audio/translations", "audio/speech", "images/generations", "images/edits",
    )
)  # fmt: skip
"""Paths that get a label of their own in metrics; others below /v1/ share one."""


class Kind(enum.Enum):
    """Who answers."""

    INFERENCE = "inference"
    MODELS = "models"
    MODEL = "model"
    HEALTH = "health"


class Route(msgspec.Struct, frozen=True, gc=False):
    """Where a request goes. `template` is a name for metrics and logs that clients cannot vary."""

    kind: Kind
    template: str
    methods: tuple[str, ...]


def is_control(path: str) -> bool:
    """Whether a path, percent signs decoded, is or leads below a control path of some engine."""
    return _CONTROL.search(unquote(path)) is not None


UNMATCHED = "unmatched"
_READ = ("GET", "HEAD")
_MODELS = Route(Kind.MODELS, "/v1/models", _READ)
_MODEL = Route(Kind.MODEL, "/v1/models/{id}", _READ)
_HEALTH = Route(Kind.HEALTH, "/health", _READ)


class Routes:
    """The allowlist. An entry ending in a slash allows everything below it, others allow themselves."""

    def __init__(self, paths: Iterable[str]) -> None:
        post = ("POST",)
        paths = tuple(path for path in paths if not is_control(path))
        self._prefixes = tuple(path for path in paths if path.endswith("/"))
        self._exact = {path: Route(Kind.INFERENCE, path, post) for path in paths if not path.endswith("/")}
        for prefix in self._prefixes:
            known = {path: Route(Kind.INFERENCE, path, post) for path in KNOWN_V1 if path.startswith(prefix)}
            self._exact = known | self._exact
        self._below = {prefix: Route(Kind.INFERENCE, prefix + "*", post) for prefix in self._prefixes}
        self._exact |= {"/v1/models": _MODELS, "/health": _HEALTH}

    def find(self, path: str) -> Route | None:
        """The route of a path, None if it is not served."""
        route = self._exact.get(path)
        if route is not None:
            return route
        if path.startswith("/v1/models/") and len(path) > len("/v1/models/"):
            return _MODEL
        if len(path) > LONGEST_CHARS or _SAFE.fullmatch(path) is None or is_control(path):
            return None
        for prefix in self._prefixes:
            if path.startswith(prefix):
                return self._below[prefix]
        return None
