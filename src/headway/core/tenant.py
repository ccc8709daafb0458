"""Whose requests they are and how important: a tenant's limits, as plain values. Keys and secrets never come here."""

import enum

import msgspec


class Tier(enum.IntEnum):
    """How important a request is; the higher goes first. What is below STANDARD may be shed."""

    LOW = -1
    STANDARD = 0
    HIGH = 1
    CRITICAL = 2


class Tenant(msgspec.Struct, frozen=True, gc=False):
    """Limits of one tenant. 0 and empty mean that there is none.

    `tier` is that of its requests if they do not say; `max_tier` bounds what they may say. `weight`: its share of the
    tokens served while others want them too. `requests_per_s` and `tokens_per_s` (prompt and output tokens) refill
    buckets of `burst_s` seconds' worth; `max_concurrent` bounds its requests alive, held ones included. `kv_share` is
    the most of a pool's KV tokens that its requests in flight may be promised (1.0: all). `models` and `policies` are
    the names it may ask for. `deadline_s` is for requests that state none. `precision_floor` as in `RequestInfo`.
    """

    name: str
    tier: int = Tier.STANDARD
    max_tier: int = Tier.HIGH
    weight: float = 1.0
    requests_per_s: float = 0.0
    tokens_per_s: float = 0.0
    burst_s: float = 10.0
    max_concurrent: int = 0
    kv_share: float = 1.0
    models: tuple[str, ...] = ()
    policies: tuple[str, ...] = ()
    deadline_s: float = 0.0
    precision_floor: str = ""
