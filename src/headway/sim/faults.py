"""What befalls replicas, in virtual time: they crash, get slow or report nothing; and a gateway's probes of them.

A replica is what its active faults make of it, so faults may overlap: each ends by itself. What clients lose with a
replica is the driver's affair.
"""

import random
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

from headway.core.ids import ReplicaId
from headway.sim.replica import SimReplica
from headway.sim.scenario import Fault, Scenario

_SPREAD: Final = 0.1
"""Fraction of the interval by which a gateway's probes are early or late (observe/prober)."""


class World(Protocol):
    """What the driver does for faults."""

    def later(self, delay: float, act: Callable[[float, Any], None], what: Any) -> None:
        """Do something after a while."""
        ...

    def crash(self, replica: SimReplica) -> None:
        """A replica loses all that it has, and its clients with it."""
        ...

    def wake(self, replica: SimReplica) -> None:
        """Its engine's next event may be at another time now."""
        ...

    def probe(self, name: ReplicaId) -> None:
        """Ask whether it lives, and tell the brain."""
        ...


class Faults:
    """All faults of a run, under way and to come."""

    def __init__(self, world: World, scenario: Scenario, seed: int) -> None:
        self._world = world
        self._scenario = scenario
        self._active: dict[ReplicaId, list[Fault]] = {}
        self._probed: set[ReplicaId] = set()
        self._chance = random.Random(f"probes {seed}")

    def begin(self, replicas: Sequence[SimReplica]) -> None:
        """Have each come in its time."""
        for fault in self._scenario.faults:
            self._world.later(fault.at_s, self._strike, (fault, replicas[fault.replica]))

    def _strike(self, at: float, what: tuple[Fault, SimReplica]) -> None:
        fault, replica = what
        self._active.setdefault(replica.id, []).append(fault)
        if fault.kind == "crash":
            self._world.crash(replica)
        self._apply(replica, at)
        self._world.later(fault.duration_s, self._mend, what)

    def _mend(self, at: float, what: tuple[Fault, SimReplica]) -> None:
        fault, replica = what
        self._active[replica.id].remove(fault)
        self._apply(replica, at)
        if fault.kind == "crash" and replica.id not in self._probed:
            self._probed.add(replica.id)
            self._world.later(self._chance.uniform(0.0, self._scenario.truth.probe_interval_s), self._probe, replica.id)

    def _apply(self, replica: SimReplica, at: float) -> None:
        """Make of it what its faults say; of several that slow it down the worst counts."""
        active = self._active[replica.id]
        replica.silent = any(fault.kind == "silent" for fault in active)
        if not replica.alive and all(fault.kind != "crash" for fault in active):
            replica.restart()
        factor = max((fault.factor for fault in active if fault.kind == "slow"), default=1.0)
        if factor != replica.factor:
            replica.slow(factor, at)
            self._world.wake(replica)

    def _probe(self, at: float, name: ReplicaId) -> None:
        """The gateway's own rhythm, from the end of a crash on: until then reports that fail tell as much."""
        self._world.probe(name)
        wait_s = self._scenario.truth.probe_interval_s * self._chance.uniform(1.0 - _SPREAD, 1.0 + _SPREAD)
        self._world.later(wait_s, self._probe, name)
