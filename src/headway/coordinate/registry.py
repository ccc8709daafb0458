"""All replicas there are, from all sources, each registration under an id of its own.

Registering a URL again gives a new id (`host:port`, `host:port#2`, ...), so that late news of the old registration
cannot touch the new one. A replica that a source lists again with new facts keeps its id.
"""

from collections.abc import Sequence
from urllib.parse import urlsplit

import msgspec

from headway.core.ids import ReplicaId
from headway.core.replica import ReplicaSpec


class Change(msgspec.Struct, frozen=True):
    """What a publication changed, ready for ReplicasChanged. Empty if nothing."""

    upserted: tuple[ReplicaSpec, ...] = ()
    removed: tuple[ReplicaId, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.upserted or self.removed)


class Registry:
    """Reconciles full lists per source. A URL listed by two sources belongs to the first one."""

    def __init__(self) -> None:
        self._current: dict[str, tuple[str, ReplicaSpec]] = {}  # url -> (source, spec)
        self._taken: dict[str, dict[str, ReplicaSpec]] = {}  # source -> url -> what was taken over from it
        self._generations: dict[str, int] = {}

    def specs(self) -> tuple[ReplicaSpec, ...]:
        """Every replica, in order of registration."""
        return tuple(spec for _, spec in self._current.values())

    def find(self, replica_id: ReplicaId) -> ReplicaSpec | None:
        """A current registration by its id."""
        return next((spec for _, spec in self._current.values() if spec.id == replica_id), None)

    def publish(self, source: str, specs: Sequence[ReplicaSpec]) -> Change:
        """Take over the full list of one source. What it only repeats is no news: it does not undo what was learnt of a
        replica meanwhile, nor bring back one that was removed."""
        wanted = {spec.url: spec for spec in specs}
        removed = [url for url, (owner, _) in self._current.items() if owner == source and url not in wanted]
        gone = tuple(self._current.pop(url)[1].id for url in removed)
        taken = {url: spec for url, spec in self._taken.get(source, {}).items() if wanted.get(url) == spec}
        upserted = tuple(filter(None, [self._put(source, spec) for url, spec in wanted.items() if url not in taken]))
        owned = {url: spec for url, spec in wanted.items() if self._current.get(url, ("",))[0] == source}
        self._taken[source] = taken | owned
        return Change(upserted, gone)

    def add(self, source: str, spec: ReplicaSpec) -> Change:
        """Register one replica beside the others of its source; anew, under a new id, if its URL is there already."""
        old = self._current.pop(spec.url, None)
        added = self._put(source, spec)
        return Change((added,) if added else (), (old[1].id,) if old else ())

    def replace(self, spec: ReplicaSpec) -> Change:
        """New facts about a registered replica, found by its id; its source stays. Empty if it is not there."""
        known = self.find(spec.id)
        if known is None or known == spec:
            return Change()
        self._current[known.url] = (self._current[known.url][0], spec)
        return Change((spec,))

    def remove(self, replica_id: ReplicaId) -> Change:
        """Forget one registration. Empty if it is not there."""
        spec = self.find(replica_id)
        if spec is None:
            return Change()
        del self._current[spec.url]
        return Change(removed=(replica_id,))

    def _put(self, source: str, spec: ReplicaSpec) -> ReplicaSpec | None:
        owner, known = self._current.get(spec.url, (source, None))
        if owner != source:
            return None
        fresh = msgspec.structs.replace(spec, id=known.id if known else self._mint(spec.url))
        if fresh == known:
            return None
        self._current[spec.url] = (source, fresh)
        return fresh

    def _mint(self, url: str) -> ReplicaId:
        name = replica_name(url)
        generation = self._generations[name] = self._generations.get(name, 0) + 1
        return ReplicaId(name if generation == 1 else f"{name}#{generation}")


def replica_name(url: str) -> str:
    """The readable part of an id: host, port and path of the URL."""
    parts = urlsplit(url)
    return parts.netloc + parts.path
