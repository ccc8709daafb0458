"""Which replicas there are: sources publish lists, operators add and remove, and everybody who cares is told.

The brain hears ReplicasChanged, the observer gets the list to watch. Aliases of the settings are put into each spec
here, so that no other room knows where a model's names come from.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import msgspec
import structlog

from headway.admin import Added, Refused
from headway.admin.control import NewReplica
from headway.compose.priors import features
from headway.coordinate.registry import Change, Registry
from headway.coordinate.static import AUTO, DETECTED, RETRY_S, Entry, merged, tell_unlisted
from headway.coordinate.validate import Refused as BadUrl
from headway.coordinate.validate import leads_to, replica_url
from headway.core.events import Event, ReplicasChanged
from headway.core.ids import ReplicaId
from headway.core.precision import of_model
from headway.core.replica import ReplicaSpec
from headway.engines.cards import names
from headway.runtime.clock import now

log = structlog.get_logger(__name__)

ADMIN = "admin"
"""Source of what operators registered; static and local never take those away."""

SLOWEST_S = 30.0
"""An engine that is looked at again and does not say what it is, is asked less and less often, but as often as this."""

Detect = Callable[[str], Awaitable[Any]]


class Fleet:
    """The one registry of this process. `watch` gets every spec after each change; `post` reaches the brain.
    `entries` is what the settings state of replicas, `own` are the addresses and ports that this process has bound."""

    def __init__(
        self,
        post: Callable[[Event], None],
        watch: Callable[[Sequence[ReplicaSpec]], None],
        detect: Detect,
        aliases: Mapping[str, Sequence[str]],
        engines: Collection[str],
        entries: Iterable[Entry] = (),
        own: Callable[[], Iterable[tuple[str, int]]] = tuple,
        retry_s: float = RETRY_S,
    ) -> None:
        self._registry = Registry()
        self._post = post
        self._watch = watch
        self._detect = detect
        self._aliases = aliases
        self._engines = engines
        self._stated = {entry.url: entry for entry in entries}
        self._own = own
        self._listed: dict[ReplicaId, frozenset[str]] = {}
        self._retry_s = retry_s
        self._looks: dict[ReplicaId, object] = {}  # the latest look that is under way

    def specs(self) -> tuple[ReplicaSpec, ...]:
        """Every registered replica."""
        return self._registry.specs()

    def publisher(self, source: str) -> Callable[[Sequence[ReplicaSpec]], None]:
        """Where a source publishes its full list."""
        return lambda specs: self._apply(self._registry.publish(source, [self._named(spec) for spec in specs]))

    def new_cards(self, replica_id: ReplicaId, cards: list[dict[str, Any]]) -> None:
        """An engine lists other models than before (an adapter came or went): it serves those from now on."""
        spec = self._registry.find(replica_id)
        if spec is None:
            return
        listed = {name: name for name in names(cards)}
        gone = self._listed.get(replica_id, frozenset()) - listed.keys()
        self._listed[replica_id] = frozenset(listed)
        kept = {name: own for name, own in spec.serves.items() if own not in gone}
        self._apply(self._registry.replace(self._named(msgspec.structs.replace(spec, serves={**kept, **listed}))))

    async def look_again(self, replica_id: ReplicaId) -> None:
        """An engine may be another than before: what was found out about it may be different now, what was stated is
        not. It is asked until it says what it is, is removed, or has to be looked at once more."""
        spec, look, wait_s = self._registry.find(replica_id), object(), self._retry_s
        if spec is None:
            return
        self._looks[replica_id] = look
        while not isinstance(found := await self._detect(spec.url), ReplicaSpec):
            await asyncio.sleep(wait_s)
            wait_s = min(2.0 * wait_s, SLOWEST_S)
            if self._looks.get(replica_id) is not look:
                return
        spec = self._registry.find(replica_id)
        if spec is not None and self._looks.get(replica_id) is look:
            del self._looks[replica_id]
            self._renew(spec, found)

    def _renew(self, spec: ReplicaSpec, found: ReplicaSpec) -> None:
        """Which names it serves is told by its cards. Of the same model, what is not said now was not to be had at the
        moment: it stays as it was."""
        now_is = merged(self._stated.get(spec.url, Entry(spec.url)), found)
        values: dict[str, Any] = {"id": spec.id, "serves": spec.serves}
        if now_is.model == spec.model:
            values |= {field: getattr(spec, field) for field in DETECTED if not getattr(now_is, field)}
            values["labels"] = {**spec.labels, **now_is.labels}
        self._apply(self._registry.replace(self._named(msgspec.structs.replace(now_is, **values))))

    async def add(self, wanted: NewReplica) -> Added | Refused:
        """Register what an operator asked for, detecting what was left open."""
        url = replica_url(wanted.url)
        if isinstance(url, BadUrl):
            return Refused(f"url: {url.reason}")
        if any(leads_to(url, *bound) for bound in self._own()):
            return Refused(f"url: {url} is this gateway's own address: requests would go round")
        if wanted.engine != AUTO and wanted.engine not in self._engines:
            return Refused(f"engine: there are {', '.join(sorted(self._engines))}")
        entry = Entry(**{**msgspec.structs.asdict(wanted), "url": url})
        found = await self._detect(url)
        if not isinstance(found, ReplicaSpec) and not entry.complete:
            return Refused(f"{found}; to register it all the same, state engine and model")
        if isinstance(found, ReplicaSpec):
            tell_unlisted(entry, found)
        spec = self._named(merged(entry, found if isinstance(found, ReplicaSpec) else None))
        self._stated[url] = entry
        change = self._registry.add(ADMIN, spec)
        self._apply(change)
        return Added(change.upserted[0].id if change.upserted else "", url)

    def remove(self, replica_id: ReplicaId) -> bool:
        """Forget a replica; False when it is unknown."""
        change = self._registry.remove(replica_id)
        self._apply(change)
        return bool(change)

    def knows(self, replica_id: ReplicaId) -> bool:
        """Whether a replica of that id is registered."""
        return self._registry.find(replica_id) is not None

    def _apply(self, change: Change) -> None:
        if not change:
            return
        for spec in change.upserted:
            log.info(
                "replica registered", replica=spec.id, url=spec.url, engine=spec.engine, models=sorted(spec.serves)
            )
        for replica_id in change.removed:
            log.info("replica removed", replica=replica_id)
            self._listed.pop(replica_id, None)
            self._looks.pop(replica_id, None)
        self._post(ReplicasChanged(now(), change.upserted, change.removed))
        self._watch(self._registry.specs())

    def _named(self, spec: ReplicaSpec) -> ReplicaSpec:
        """The spec with its precision (the model's name may tell), priors of its speed, and every alias that leads to
        something it serves, with the place this has among the variants of that name."""
        serves, variants = dict(spec.serves), {}
        for alias, targets in self._aliases.items():
            place = next((place for place, name in enumerate(targets) if name in spec.serves), None)
            if place is not None:
                serves[alias] = spec.serves[targets[place]]
                variants[alias] = place
        precise = msgspec.structs.replace(spec, precision=spec.precision or of_model(spec.model))
        return msgspec.structs.replace(precise, serves=serves, variants=variants, features=features(precise))
