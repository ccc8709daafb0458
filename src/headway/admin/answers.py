"""What the admin API answers where no other room has a value for it. The OpenAPI page shows these types."""

import msgspec

from headway.core.commands import Moved
from headway.core.ids import ReplicaId, RequestId
from headway.core.replica import ReplicaSpec
from headway.core.snapshot import Emptying, FleetSnapshot
from headway.core.view import Breaker
from headway.telemetry.forecasts import Summary


class Health(msgspec.Struct, frozen=True):
    """The process answers."""

    status: str
    version: str


class Ready(msgspec.Struct, frozen=True):
    """Whether new clients are welcome; `reason` says why not."""

    ready: bool
    reason: str


class Fleet(msgspec.Struct, frozen=True):
    """Everything at one moment. `unready`: as `Ready.reason`; `requests`: the accounts; `forecasts`: how wrong they
    were of late, by model and quantity."""

    version: str
    unready: str
    requests: dict[str, int]
    forecasts: dict[str, dict[str, Summary]]
    fleet: FleetSnapshot


class Recent(msgspec.Struct, frozen=True):
    """A decision of late; its explanation tells more."""

    id: RequestId
    chosen: ReplicaId
    attempt: int
    at: float


class Moves(msgspec.Struct, frozen=True):
    """Our id of a request, and every step of its moves."""

    id: str
    moves: tuple[Moved, ...]


class Registered(msgspec.Struct, frozen=True):
    """A replica, and whether it gets requests."""

    breaker: Breaker
    draining: bool
    replica: ReplicaSpec


class Draining(msgspec.Struct, frozen=True):
    """A replica that is drained, with what is to be expected of it, or not any more."""

    id: str
    draining: bool
    emptying: Emptying | None


class Fault(msgspec.Struct, frozen=True):
    """What is wrong; `code` is the status."""

    message: str
    code: int


class Failed(msgspec.Struct, frozen=True):
    """Every answer of a status from 400 on, where a route does not say otherwise."""

    error: Fault
