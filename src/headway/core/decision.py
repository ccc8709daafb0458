"""Why a request went where it went: a record for people and journals. Nothing is decided by it."""

import msgspec

from headway.core.ids import ReplicaId, RequestId


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
    that replica, which need not be the one of the lowest cost. `pinned`: why it could not move, in a word."""

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
    pinned: str = ""
