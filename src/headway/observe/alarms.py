"""Saying once that something is missing, not with each scrape. An alarm is raised again only after a new boot."""

from collections.abc import Callable

import structlog

from headway.core.ids import ReplicaId
from headway.runtime import clock

log = structlog.get_logger(__name__)


AGAIN_S = 60.0
"""A condition that comes and goes is logged this often at most; each time counts."""


class Alarms:
    """The alarms of one replica."""

    def __init__(self, replica_id: ReplicaId, now: Callable[[], float] = clock.now) -> None:
        self._id = replica_id
        self._now = now
        self._raised: set[str] = set()
        self._logged: dict[str, float] = {}
        self.total = 0

    def check(self, missing: tuple[str, ...]) -> None:
        """Log those of these gauges that were not reported as missing before."""
        for gauge in missing:
            if self._new(f"gauge {gauge}"):
                log.warning("a gauge is missing and is not read as zero", replica=self._id, gauge=gauge)

    def trouble(self, what: str, detail: str = "") -> None:
        """Log a condition of the whole report once."""
        if not self._new(what):
            return
        at = self._now()
        if at - self._logged.get(what, -AGAIN_S) >= AGAIN_S:
            self._logged[what] = at
            log.warning(what, replica=self._id, detail=detail)

    def over(self, what: str) -> None:
        """A condition ended: the next time it is news again."""
        self._raised.discard(what)

    def forget(self) -> None:
        """A new boot: everything is news again."""
        self._raised.clear()
        self._logged.clear()

    def _new(self, what: str) -> bool:
        if what in self._raised:
            return False
        self._raised.add(what)
        self.total += 1
        return True
