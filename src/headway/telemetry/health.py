"""Log lines about replicas that leave and return, and models that degrade: the news an operator looks for first.

Probes and trials in between are steps on the way and told at debug only.
"""

from collections.abc import Set

import structlog

from headway.core.commands import HealthChanged, LevelChanged
from headway.core.degrade import Level
from headway.core.ids import ReplicaId

log = structlog.get_logger(__name__)

NEWS = {
    "open": ("warning", "replica taken out of use"),
    "closed": ("info", "replica in use"),
    "panic": ("warning", "most replicas are out of use: all that can be reached are used again"),
    "calm": ("info", "enough replicas are in use again"),
}
"""Level and words by the state that was entered."""


class HealthNews:
    """Tells of health, one line each. A replica that is out already and fails its next probe is no news."""

    def __init__(self) -> None:
        self._out: set[ReplicaId] = set()

    def tell(self, changed: HealthChanged) -> None:
        """One line."""
        level, words = NEWS.get(changed.state, ("debug", f"replica {changed.state}"))
        if changed.state == "open" and changed.replica_id in self._out:
            level, words = "debug", "replica still out of use"
        elif changed.state == "open":
            self._out.add(changed.replica_id)
        elif changed.state == "closed":
            self._out.discard(changed.replica_id)
        about = {"replica": changed.replica_id} if changed.replica_id else {}
        getattr(log, level)(words, **about, reason=changed.reason)

    def keep(self, known: Set[ReplicaId]) -> None:
        """Forget replicas that are registered no more."""
        self._out &= known


LEVELS = {
    Level.NORMAL: ("info", "model served as usual"),
    Level.NO_NEW_SESSIONS: ("warning", "model overloaded: new sessions are refused"),
    Level.SHEDDING: ("warning", "model overloaded: low priority is dropped"),
    Level.REPLICA_LOST: ("warning", "model served by fewer: a replica is dead"),
    Level.FALLBACK: ("warning", "half of the model's replicas are out of use"),
}
"""Severity and words by level of degradation."""


def tell_of_level(changed: LevelChanged) -> None:
    """One line."""
    severity, words = LEVELS[Level(changed.level)]
    saturation = round(changed.saturation, 3)
    getattr(log, severity)(words, model=changed.model, level=changed.level, burst=changed.burst, saturation=saturation)
