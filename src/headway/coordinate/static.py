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
from headway.runtime.tasks import TaskSet

log = structlog.get_logger(__name__)

AUTO = "auto"
RETRY_S = 2.0
TOGETHER_S = 0.1
"""What is found within this time is published at once: whoever hears of it goes through the whole list."""
LOOKS = 64
"""Looks under way at a time. Each takes a connection per path that some dialect asks for, and descriptors are few."""


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
        self._specs = {entry.url: merged(entry, None) for entry in entries if entry.complete}
        self._missing = {entry.url for entry in entries}
        self._looks = asyncio.Semaphore(LOOKS)
        self._news = asyncio.Event()

    async def run(self, publish: Publish) -> None:
        """See Source. Returns once every entry was detected."""
        self._publish(publish)
        async with TaskSet() as tasks:
            for entry in self._entries:
                tasks.spawn(self._find(entry), f"look at {entry.url}")
            while self._missing or self._news.is_set():
                await self._news.wait()
                self._news.clear()
                self._publish(publish)
                await asyncio.sleep(TOGETHER_S if self._missing else 0.0)

    async def _find(self, entry: Entry) -> None:
        """Each by itself: one that never answers must not keep back the others."""
        said = ""
        while not isinstance(got := await self._look(entry.url), ReplicaSpec):
            if said != (said := str(got)):
                log.warning("a replica was not detected yet", url=entry.url, reason=said)
            await asyncio.sleep(self._retry_s)
        tell_unlisted(entry, got)
        self._specs[entry.url] = merged(entry, got)
        self._missing.discard(entry.url)
        self._news.set()

    async def _look(self, url: str) -> object:
        async with self._looks:
            return await self._detect(url)

    def _publish(self, publish: Publish) -> None:
        publish([self._specs[entry.url] for entry in self._entries if entry.url in self._specs])


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
