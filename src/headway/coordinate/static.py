"""Replicas listed in the settings. What the list leaves open is asked of the engine, again and again until it answers.

An entry that names its engine and model is published at once; others when they were detected, so that a URL where
nobody listens yet costs no client an error. What the settings state always wins over what detection found.
"""

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec
import structlog

from headway.coordinate.base import Detect, Publish
from headway.coordinate.registry import replica_name
from headway.core.ids import ReplicaId
from headway.core.replica import ReplicaSpec

log = structlog.get_logger(__name__)

AUTO = "auto"
RETRY_S = 2.0


class Entry(msgspec.Struct, frozen=True):
    """One replica as the settings state it; see ReplicaSpec for the fields. `auto`, empty and 0: to be found out.

    `serves` are further names for clients (name -> the engine's name). `metrics` None: as detected.
    """

    url: str
    engine: str = AUTO
    model: str = ""
    serves: dict[str, str] = {}
    labels: dict[str, str] = {}
    weight: float = 1.0
    version: str = ""
    precision: str = ""
    role: str = "both"
    gpu: str = ""
    gpu_count: int = 1
    kv_capacity_tokens: int = 0
    max_model_tokens: int = 0
    max_num_seqs: int = 0
    metrics: bool | None = None
    features: dict[str, float] = {}
    kv_domain: str = ""

    @property
    def complete(self) -> bool:
        """Whether the replica can be used before it was detected."""
        return self.engine != AUTO and bool(self.model)


NOT_DETECTED = ("weight", "version", "role", "gpu", "gpu_count", "features", "kv_domain")
"""Known from the settings only."""
DETECTED = ("model", "precision", "kv_capacity_tokens", "max_model_tokens", "max_num_seqs")
"""Taken from detection where the settings are empty."""


class Static:
    """The source for a list of entries. URLs must have passed `validate.replica_url`."""

    name = "static"

    def __init__(self, entries: Sequence[Entry], detect: Detect, retry_s: float = RETRY_S) -> None:
        self._entries = tuple(entries)
        self._detect = detect
        self._retry_s = retry_s
        self._found: dict[str, ReplicaSpec] = {}

    async def run(self, publish: Publish) -> None:
        """See Source. Returns once every entry was detected."""
        self._publish(publish)
        said: dict[str, str] = {}
        while missing := [entry for entry in self._entries if entry.url not in self._found]:
            for entry, got in zip(missing, await asyncio.gather(*map(self._look, missing)), strict=True):
                if isinstance(got, ReplicaSpec):
                    self._found[entry.url] = got
                    tell_unlisted(entry, got)
                elif said.get(entry.url) != str(got):
                    said[entry.url] = str(got)
                    log.warning("a replica was not detected yet", url=entry.url, reason=str(got))
            self._publish(publish)
            if len(self._found) < len(self._entries):
                await asyncio.sleep(self._retry_s)

    async def _look(self, entry: Entry) -> object:
        return await self._detect(entry.url)

    def _publish(self, publish: Publish) -> None:
        publish([merged(e, self._found.get(e.url)) for e in self._entries if e.complete or e.url in self._found])


def unlisted(entry: Entry, found: ReplicaSpec) -> tuple[str, ...]:
    """Names the entry has for models that the engine does not list; none where it lists nothing. Ollama knows
    `name:latest` as `name`."""
    stated = {*filter(None, [entry.model]), *entry.serves.values()} if found.serves else set()
    return tuple(sorted(name for name in stated if not {name, f"{name}:latest"} & found.serves.keys()))


def tell_unlisted(entry: Entry, found: ReplicaSpec) -> None:
    """One warning if there are any. Not an error: some engines answer to any name."""
    if names := unlisted(entry, found):
        words = "a model that is stated for a replica is not one it lists: requests for it may be refused there"
        log.warning(words, url=entry.url, stated=names, listed=sorted(found.serves))


def merged(entry: Entry, found: ReplicaSpec | None) -> ReplicaSpec:
    """The spec of an entry: what it states, over what was found, over the defaults."""
    base = found or ReplicaSpec(id=ReplicaId(replica_name(entry.url)), url=entry.url)
    values: dict[str, Any] = {field: getattr(entry, field) for field in NOT_DETECTED}
    values |= {field: stated for field in DETECTED if (stated := getattr(entry, field))}
    if entry.engine not in (AUTO, base.engine):
        values |= {"engine": entry.engine, "metrics": True}  # what another dialect says of its load report is no news
    if entry.metrics is not None:
        values["metrics"] = entry.metrics
    model = entry.model or base.model
    own = {model: model} if model else {}
    return msgspec.structs.replace(
        base, **values, labels={**base.labels, **entry.labels}, serves={**base.serves, **own, **entry.serves}
    )
