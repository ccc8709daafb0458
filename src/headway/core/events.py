"""What a body tells the brain. `at` is monotonic seconds; events are handed over in the order they happened."""

import msgspec

from headway.core.ids import AttemptId, ReplicaId, RequestId
from headway.core.outcome import Outcome
from headway.core.replica import LoadSample, ReplicaSpec
from headway.core.request import RequestInfo
from headway.core.tenant import Tenant


class RequestArrived(msgspec.Struct, frozen=True, tag=True, gc=False):
    """A request was read, authenticated and understood. The answer is Dispatch, Hold or Reject."""

    at: float
    request: RequestInfo


class RequestCancelled(msgspec.Struct, frozen=True, tag=True, gc=False):
    """The client went away while the request was held. (In flight, the body ends the attempt instead.)"""

    at: float
    request_id: RequestId


class FirstToken(msgspec.Struct, frozen=True, tag=True, gc=False):
    """The first content of an attempt's response arrived: its prefill is done."""

    at: float
    attempt_id: AttemptId


class Progress(msgspec.Struct, frozen=True, tag=True):
    """Tokens generated so far, per attempt that advanced since the last tick. One event per tick for all."""

    at: float
    counts: list[tuple[AttemptId, int]]


class AttemptFinished(msgspec.Struct, frozen=True, tag=True, gc=False):
    """An attempt ended, however. Settles its reservation. The answer is Dispatch (retry), Relay, Reject or nothing.

    A body posts this exactly once for each Dispatch. When `outcome.committed` is False and the kind is not OK,
    CLIENT_ERROR or CLIENT_CLOSED the brain answers: Dispatch of another attempt, or Relay (give the client what the
    engine said), or Reject (nothing to relay).
    """

    at: float
    attempt_id: AttemptId
    outcome: Outcome


class ReplicasChanged(msgspec.Struct, frozen=True, tag=True):
    """Replicas were added or replaced (same id: new facts about it), or removed."""

    at: float
    upserted: tuple[ReplicaSpec, ...] = ()
    removed: tuple[ReplicaId, ...] = ()


class SampleTaken(msgspec.Struct, frozen=True, tag=True):
    """A load report arrived."""

    at: float
    sample: LoadSample


class ProbeSucceeded(msgspec.Struct, frozen=True, tag=True, gc=False):
    """A health probe was answered well."""

    at: float
    replica_id: ReplicaId


class ProbeFailed(msgspec.Struct, frozen=True, tag=True, gc=False):
    """A health probe failed. `refused` means nobody listens there any more: evidence about open streams too."""

    at: float
    replica_id: ReplicaId
    reason: str = ""
    refused: bool = False


class TimerFired(msgspec.Struct, frozen=True, tag=True, gc=False):
    """A timer set by SetTimer is due. Unknown or outdated timers are ignored."""

    at: float
    timer: str


class DrainAsked(msgspec.Struct, frozen=True, tag=True, gc=False):
    """An operator wants no new requests on a replica, or wants them again."""

    at: float
    replica_id: ReplicaId
    draining: bool = True


class MigrateAsked(msgspec.Struct, frozen=True, tag=True, gc=False):
    """An operator wants a running request moved; to this replica, or to the best one if it is empty."""

    at: float
    request_id: RequestId
    replica_id: ReplicaId


class EvictionRefused(msgspec.Struct, frozen=True, tag=True, gc=False):
    """An Evict cannot be performed: the attempt has ended, or what its client was given cannot be continued. Or a
    recall came too late. It stays where it is."""

    at: float
    attempt_id: AttemptId


class TenantsChanged(msgspec.Struct, frozen=True, tag=True):
    """All tenants there are now, with their limits. Accounts of those that stay are kept."""

    at: float
    tenants: tuple[Tenant, ...] = ()


Event = (
    RequestArrived
    | RequestCancelled
    | FirstToken
    | Progress
    | AttemptFinished
    | ReplicasChanged
    | SampleTaken
    | ProbeSucceeded
    | ProbeFailed
    | TimerFired
    | DrainAsked
    | TenantsChanged
    | MigrateAsked
    | EvictionRefused
)
