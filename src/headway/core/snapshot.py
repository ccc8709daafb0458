"""The whole fleet at one moment, for those who look at it from outside: the admin API, metrics and reports."""

from typing import Final

import msgspec

from headway.core.ids import ReplicaId, RequestId
from headway.core.outcome import OUTCOME, Outcome
from headway.core.view import SPEED, VIEW, ReplicaView, Speed

SHOWN: Final[dict[type, tuple[str, ...]]] = {ReplicaView: VIEW, Speed: SPEED, Outcome: OUTCOME}


def shown(value: object) -> dict[str, object]:
    """What is no Struct, as encoders can write it: a view, a speed, an outcome. Raises NotImplementedError for anything
    else."""
    names = SHOWN.get(type(value))
    if names is None:
        raise NotImplementedError(f"nothing is known of how to show a {type(value).__name__}")
    return {name: getattr(value, name) for name in names}


class KvError(msgspec.Struct, frozen=True, gc=False):
    """How wrong forecasts of a replica's KV pool were of late, as fractions of the pool: of its use at the moment of
    each load report (`now`), and of what had been forecast for it `ahead_s` before (`ahead`). Medians and 99th
    percentiles of so many `reports` and `forecasts`."""

    replica_id: ReplicaId
    reports: int
    now_p50: float
    now_p99: float
    forecasts: int
    ahead_p50: float
    ahead_p99: float
    ahead_s: float


class PoolState(msgspec.Struct, frozen=True, gc=False):
    """How one model fares: requests `queued` and the wait a new one must expect, its level of degradation (0 to 4),
    whether a burst is on, and its saturation now (1.0: full)."""

    model: str
    queued: int
    level: int
    burst: bool
    saturation: float
    expected_wait_s: float


class HeldState(msgspec.Struct, frozen=True, gc=False):
    """One request that waits: its `position` in its queue (from 1), how long it has waited, and how long it may still
    (0 while unknown)."""

    request_id: RequestId
    model: str
    tenant: str
    tier: int
    position: int
    waited_s: float
    expected_wait_s: float


class TenantState(msgspec.Struct, frozen=True, gc=False):
    """What one tenant has: requests alive and KV tokens promised to them."""

    name: str
    alive: int
    promised_tokens: float


class Emptying(msgspec.Struct, frozen=True, gc=False):
    """A replica that is drained: the `requests` that run there, and how many of them can go on elsewhere (`movable`).
    Seconds until it is empty, as is to be expected: `moving_s` as things are, `waiting_s` if none moved."""

    replica_id: ReplicaId
    requests: int
    movable: int
    moving_s: float
    waiting_s: float


class FleetSnapshot(msgspec.Struct, frozen=True):
    """Every view at one moment, for the admin API and reports. `kv_errors`: of replicas that report their pool's
    use; `held`: the first of those who wait; `emptying`: of those that are drained."""

    as_of: float
    policy: str
    queued: int
    in_flight: int
    panic: bool
    views: tuple[ReplicaView, ...]
    kv_errors: tuple[KvError, ...] = ()
    pools: tuple[PoolState, ...] = ()
    held: tuple[HeldState, ...] = ()
    tenants: tuple[TenantState, ...] = ()
    emptying: tuple[Emptying, ...] = ()
