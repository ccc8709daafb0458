"""Which requests are served, by an allowlist. Whatever is not named here does not exist: engines' own control paths
(sleep, flush, abort, adapters, metrics) are thereby out of reach, however they are spelt.

A path is compared as it was sent: percent signs, doubled slashes and dot segments match nothing.
"""

import enum
import re
from collections.abc import Iterable

import msgspec

CONTROL = frozenset(
    ("/v1/load_lora_adapter", "/v1/unload_lora_adapter", "/v1/loads", "/v1/start_profile", "/v1/stop_profile")
)
"""Control paths of engines that lie below an allowed prefix."""

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


UNMATCHED = "unmatched"
_READ = ("GET", "HEAD")
_MODELS = Route(Kind.MODELS, "/v1/models", _READ)
_MODEL = Route(Kind.MODEL, "/v1/models/{id}", _READ)
_HEALTH = Route(Kind.HEALTH, "/health", _READ)


class Routes:
    """The allowlist. An entry ending in a slash allows everything below it, others allow themselves."""

    def __init__(self, paths: Iterable[str]) -> None:
        post = ("POST",)
        paths = tuple(paths)
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
        if path.lower() in CONTROL or _SAFE.fullmatch(path) is None:
            return None
        for prefix in self._prefixes:
            if path.startswith(prefix):
                return self._below[prefix]
        return None
