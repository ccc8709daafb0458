"""What the admin port may do with the running gateway, as `admin.Control` asks for it."""

from typing import Protocol

from headway.admin import Added, Refused
from headway.admin.control import NewReplica
from headway.compose.fleet import Fleet
from headway.core.events import DrainAsked, Event, MigrateAsked
from headway.core.ids import ReplicaId, RequestId
from headway.core.snapshot import FleetSnapshot
from headway.runtime.clock import now


class Body(Protocol):
    """The part of the gateway that is needed here."""

    def post(self, event: Event) -> None: ...
    def snapshot(self) -> FleetSnapshot: ...
    def running(self, name: str) -> RequestId | None: ...


class Running(Protocol):
    """The part of the App that is needed here."""

    draining: bool
    fleet: Fleet

    @property
    def gateway(self) -> Body: ...


class AppControl:
    """`admin.Control` over a running App."""

    def __init__(self, app: Running) -> None:
        self._app = app

    def snapshot(self) -> FleetSnapshot:
        """Every view now."""
        return self._app.gateway.snapshot()

    @property
    def draining(self) -> bool:
        """Whether the process is on its way out."""
        return self._app.draining

    async def add(self, replica: NewReplica) -> Added | Refused:
        """Register a replica."""
        return await self._app.fleet.add(replica)

    async def remove(self, replica_id: ReplicaId) -> bool:
        """Forget a replica."""
        return self._app.fleet.remove(replica_id)

    def drain(self, replica_id: ReplicaId, draining: bool) -> bool:
        """Stop, or resume, sending new requests to a replica."""
        if not self._app.fleet.knows(replica_id):
            return False
        self._app.gateway.post(DrainAsked(now(), replica_id, draining))
        return True

    def running(self, name: str) -> str:
        """Our id of a running request."""
        return self._app.gateway.running(name) or ""

    def migrate(self, request_id: str, replica_id: ReplicaId) -> str:
        """Move a running request."""
        running = self._app.gateway.running(request_id)
        if running is None:
            return ""
        self._app.gateway.post(MigrateAsked(now(), running, replica_id))
        return running
