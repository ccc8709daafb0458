"""When a dead replica's engine is to be restarted: not at once, and ever more seldom if that does not help.

What lives here: since when each replica is dead, and how often it was restarted. What must not: who is dead (`health`),
and how an engine is restarted (a body's hook, if the operator gave one).
"""

import math
from collections.abc import Container

from headway.core.commands import Command, Restart
from headway.core.constants import RestartConfig
from headway.core.entries import Outage
from headway.core.ids import ReplicaId


class Restarts:
    """The outages of all replicas, each kept for a while after it is over."""

    def __init__(self, config: RestartConfig | None = None) -> None:
        self._config = config or RestartConfig()
        self._outages: dict[ReplicaId, Outage] = {}

    def __len__(self) -> int:
        return len(self._outages)

    def look(self, replica_id: ReplicaId, dead: str, at: float, out: list[Command]) -> float:
        """What must be done about a replica that is dead for a reason (or well, if that is empty). Returns when (s) to
        look again; infinite: not before it changes."""
        if not self._config.enabled:
            return math.inf
        outage = self._outages.get(replica_id)
        if not dead:
            if outage is not None and outage.over_at == math.inf:
                outage.over_at = at
            return math.inf
        if outage is None or at - outage.over_at >= self._config.forgive_s:
            outage = self._outages[replica_id] = Outage(at + self._config.after_s)
        elif outage.over_at <= at:  # again, soon after: it has not become more patient than it was
            outage.over_at = math.inf
            outage.due = max(outage.due, at + self._config.after_s)
        if at >= outage.due:
            out.append(Restart(replica_id, dead))
            outage.due = at + self._pause_s(outage.restarts)
            outage.restarts += 1
        return outage.due

    def keep(self, replicas: Container[ReplicaId]) -> None:
        """Forget all others."""
        for gone in [name for name in self._outages if name not in replicas]:
            del self._outages[gone]

    def _pause_s(self, restarts: int) -> float:
        config = self._config
        return min(config.every_s * config.backoff ** min(restarts, 64), config.every_max_s)
