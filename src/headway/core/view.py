"""What policies see: one immutable view per replica, and the Decision that was taken from them."""

import enum

import msgspec

from headway.core.ids import ReplicaId, RequestId
from headway.core.replica import LoadSample, ReplicaSpec


class Breaker(enum.StrEnum):
    """State of a replica's breaker. half_open lets exactly one request through."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


class Speed(msgspec.Struct, frozen=True, gc=False):
    """Learned speed of a replica: `step = base + per_request*R + per_token*context` and prefill tokens/s.

    `learned` is False while both are priors only, so that a policy can fall back to counting.
    """

    step_base_s: float
    step_per_request_s: float
    step_per_token_s: float
    prefill_tokens_per_s: float
    learned: bool = False

    def step_s(self, running: float, context_tokens: float) -> float:
        """Seconds of one decode step with `running` sequences of `context_tokens` in total."""
        return self.step_base_s + self.step_per_request_s * running + self.step_per_token_s * context_tokens


class ReplicaView(msgspec.Struct, frozen=True, gc=False):
    """One replica at one moment, as the ledger corrects the last sample. All amounts in tokens.

    `kv_used_tokens`    U: the pool's use now (last sample plus what was sent and grown since, less what ended)
    `kv_capacity_tokens` K, 0 when unknown (the policy must then fall back to counting)
    `headroom_tokens`, `headroom_sigma`: K (less a spare) less the forecast peak of everything promised; mean and
    deviation; infinite and 0 when K is unknown
    `peak_mean`, `peak_var`: forecast peak of the running batch M and its variance
    `reserved_tokens`: output expected of everything in flight and not generated yet
    `prefill_backlog_tokens` P: uncached prompt tokens sent and not yet prefilled
    `in_flight` our unsettled attempts; `running` R, `waiting` W: engine's report corrected by what we sent since
    `context_tokens` Lambda: sum of the contexts of what runs
    `output_left_mean`: mean remaining output of what runs
    `dispatched_tokens`: prompt tokens sent since the last sample
    `growth_tokens_per_s`: how fast U grows by decoding
    `sample_age_s`: age of the last sample at `as_of`, -1 without any; `stale`: too old to trust
    `max_num_seqs`: the engine's limit on running sequences, 0 if unknown
    `slow_start`: 1.0 when warm, else the fraction of capacity it may get
    """

    spec: ReplicaSpec
    sample: LoadSample | None
    as_of: float
    sample_age_s: float
    stale: bool
    kv_capacity_tokens: int
    kv_used_tokens: float
    headroom_tokens: float
    headroom_sigma: float
    peak_mean: float
    peak_var: float
    reserved_tokens: float
    prefill_backlog_tokens: float
    dispatched_tokens: float
    growth_tokens_per_s: float
    in_flight: int
    running: float
    waiting: float
    context_tokens: float
    output_left_mean: float
    max_num_seqs: int
    speed: Speed
    breaker: Breaker
    slow_start: float
    draining: bool
    sleeping: bool

    @property
    def id(self) -> ReplicaId:
        """The replica's id."""
        return self.spec.id


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


class FleetSnapshot(msgspec.Struct, frozen=True):
    """Every view at one moment, for the admin API and reports. `kv_errors`: of replicas that report their pool's
    use; `held`: the first of those who wait."""

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


class Candidate(msgspec.Struct, frozen=True, gc=False):
    """One candidate of a decision: its cost (lower is better) and the parts, named by `Decision.parts`.

    `headroom_tokens` is None where the pool's size is unknown.
    """

    replica_id: ReplicaId
    costs: tuple[float, ...]
    headroom_tokens: float | None
    sample_age_s: float


class Forecast(msgspec.Struct, frozen=True, gc=False):
    """What was expected of a request at the chosen replica. Nine in ten outputs are to lie between `output_low` and
    `output_high`; `output_class` as `Demand` has it."""

    prompt_tokens: int
    cached_tokens: int
    output_tokens: float
    ttft_s: float
    peak_tokens: float
    output_low: int = 0
    output_high: int = 0
    output_class: str = ""


class Decision(msgspec.Struct, frozen=True, tag=True, gc=False):
    """Why one attempt went where it went. Settled later by `Settled` in commands.Record. `kept`: its session keeps to
    that replica, which need not be the one of the lowest cost."""

    request_id: RequestId
    at: float
    policy: str
    chosen: ReplicaId
    attempt: int
    candidates: tuple[Candidate, ...]
    parts: tuple[str, ...]
    exclusions: dict[str, int]
    forecast: Forecast
    queued_s: float = 0.0
    kept: bool = False
