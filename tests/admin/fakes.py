"""A gateway that only remembers what it was asked."""

from headway.admin.control import Added, NewReplica, Refused
from headway.core.ids import ReplicaId
from headway.core.snapshot import FleetSnapshot
from tests.telemetry.values import snapshot, view


class FakeControl:
    """Knows the replicas "a" and "b/v1"."""

    def __init__(self, fleet: FleetSnapshot | None = None) -> None:
        self.fleet = fleet if fleet is not None else snapshot(view("a"), view("b/v1"))
        self.draining = False
        self.added: list[NewReplica] = []
        self.removed: list[str] = []
        self.names: dict[str, str] = {}
        self.drained: list[tuple[str, bool]] = []
        self.moved: list[tuple[str, str]] = []

    def snapshot(self) -> FleetSnapshot:
        return self.fleet

    async def add(self, replica: NewReplica) -> Added | Refused:
        if "169.254" in replica.url:
            return Refused("url: link-local")
        self.added.append(replica)
        return Added("c", replica.url)

    async def remove(self, replica_id: ReplicaId) -> bool:
        self.removed.append(replica_id)
        return replica_id in {view.spec.id for view in self.fleet.views}

    def drain(self, replica_id: ReplicaId, draining: bool) -> bool:
        self.drained.append((replica_id, draining))
        return replica_id in {view.spec.id for view in self.fleet.views}

    def running(self, name: str) -> str:
        return self.names.get(name, "")

    def migrate(self, request_id: str, replica_id: ReplicaId) -> str:
        self.moved.append((request_id, replica_id))
        running = {"r1": "r1", "the-clients-own": "r1"}
        return running.get(request_id, "")
