"""Contracts of what can be added: a policy here; dialects in engines/base, discovery sources in coordinate.

`PLUGIN = Plugin(name, factory, Config)` at the end of a module makes it known; third parties use the entry-point
group `headway.plugins`. A Config is a msgspec Struct: core knows no settings library.
"""

from collections.abc import Callable, Sequence
from typing import Any, Protocol, runtime_checkable

import msgspec

from headway.core.demand import Demand
from headway.core.ids import ReplicaId
from headway.core.request import RequestInfo
from headway.core.view import ReplicaView


class Chance(Protocol):
    """The seeded generator a body hands in (random.Random fits). core itself never makes one."""

    def random(self) -> float:
        """A float in [0, 1)."""
        ...


class Policy(Protocol):
    """Ranks the replicas that may take a request. It never sees excluded ones and never chooses: the scheduler does.

    `parts` names the entries of each cost tuple after the first, for explanations.
    `tolerance` is the relative distance from the lowest cost within which candidates count as equal; the scheduler
    then picks one by chance (0.0: exact ties only), so that a herd does not follow one snapshot.
    `binds_late`: the policy's requests may be held until their forecast peak fits (the memory hold).
    A policy that reads no forecast of a view (headroom, peak, reserved tokens, output left) may say so by an attribute
    `foresees` that is false: those figures are then as of the dispatches, which is cheaper.
    One whose costs account for what is cached where says so by an attribute `minds_prefixes` that is true: a session
    then keeps to its replica only while that costs little more than elsewhere. For others the ring of sessions decides.
    """

    name: str
    parts: tuple[str, ...]
    tolerance: float
    binds_late: bool

    def costs(
        self, demand: Demand, views: Sequence[ReplicaView], now: float, rng: Chance
    ) -> Sequence[tuple[float, ...]]:
        """One tuple per view, in order: the cost (lower is better, inf = never) and then its parts.

        `views` is never empty, belongs to one model, is sorted by replica id and must not be changed. State that a
        policy keeps must be per model (`demand.request.model`).
        """
        ...


@runtime_checkable
class Tracker(Protocol):
    """What a policy also is if it keeps accounts of its own, as routers do that have no ledger.

    A ranking need not lead to a dispatch (the request may be held), so such accounts are kept here and not in `costs`.
    """

    def sent(self, demand: Demand, replica: ReplicaId, now: float) -> None:
        """An attempt was dispatched."""
        ...

    def ended(self, request: RequestInfo, replica: ReplicaId) -> None:
        """That attempt ended, however it did. Once for each `sent`."""
        ...


class NoConfig(msgspec.Struct, frozen=True):
    """Settings of a plugin that has none."""


class Plugin(msgspec.Struct, frozen=True):
    """A thing that can be added by one file. `factory(config)` makes it."""

    name: str
    factory: Callable[[Any], Any]
    config: type[msgspec.Struct] = NoConfig
