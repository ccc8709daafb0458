"""What the admin API may ask of the running gateway. compose implements it."""

from typing import Annotated, Protocol

import msgspec

from headway.core.ids import ReplicaId
from headway.core.snapshot import FleetSnapshot

Amount = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
"""0: unknown. At most what JSON readers in other languages can still tell from its neighbours."""

Word = Annotated[str, msgspec.Meta(max_length=512, pattern=r"^(?![\s\S]*[\x00-\x1f\x7f])")]
"""A name that is shown to people and becomes a label: no endless one, and none that moves a terminal's cursor. Model
names of requests have the same bound."""


class NewReplica(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A replica to register. `url` is enough; what is left out is detected."""

    url: str
    engine: Word = "auto"
    model: Word = ""
    serves: dict[Word, Word] = {}
    labels: dict[Word, Word] = {}
    weight: Annotated[float, msgspec.Meta(ge=1e-6, le=1e6)] = 1.0
    version: Word = ""
    precision: Word = ""
    gpu: Word = ""
    gpu_count: Annotated[int, msgspec.Meta(ge=1, le=2**20)] = 1
    kv_capacity_tokens: Amount = 0
    max_model_tokens: Amount = 0
    max_num_seqs: Amount = 0
    kv_domain: Word = ""


class Added(msgspec.Struct, frozen=True):
    """A replica was registered under this id, or waits until it answers (`id` empty)."""

    id: str
    url: str
    note: str = ""


class Refused(msgspec.Struct, frozen=True):
    """A registration was refused, and why."""

    reason: str


class Where(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where a request is to go on; empty: where it is cheapest."""

    to: str = ""


class Control(Protocol):
    """The running gateway, as operators see it."""

    def snapshot(self) -> FleetSnapshot:
        """Every view now."""
        ...

    @property
    def draining(self) -> bool:
        """Whether the process is on its way out."""
        ...

    async def add(self, replica: NewReplica) -> Added | Refused:
        """Register a replica."""
        ...

    async def remove(self, replica_id: ReplicaId) -> bool:
        """Forget a replica; False when there is none of that id."""
        ...

    def drain(self, replica_id: ReplicaId, draining: bool) -> bool:
        """Stop, or resume, sending new requests to a replica; False when there is none of that id."""
        ...

    def running(self, name: str) -> str:
        """Our id of a running request, by that or by the client's; empty when no such request runs."""
        ...

    def migrate(self, request_id: str, replica_id: ReplicaId) -> str:
        """Move a running request, named by our id or the client's, to a replica, or to the best one if it is empty.
        Our id of it, under which its explanation tells what becomes of it; empty when no such request runs."""
        ...
