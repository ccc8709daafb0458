"""What the brain asks a body to do. Plain values, performed in order."""

from typing import Final

import msgspec

from headway.core.decision import Decision
from headway.core.ids import AttemptId, ReplicaId, RequestId
from headway.core.outcome import Outcome


class Dispatch(msgspec.Struct, frozen=True, tag=True, gc=False):
    """Send the request to this replica. `model` is the name the engine knows; the body splices it if it differs.

    `max_tokens` caps what the client asked for (0: it does not), `logprobs` False takes them out: what a burst costs
    clients. `disclosed` are response headers (name, value) that say what was changed about the request. `resumes`: it
    goes on from what the client was given already.
    """

    request_id: RequestId
    attempt_id: AttemptId
    replica_id: ReplicaId
    model: str
    max_tokens: int = 0
    logprobs: bool = True
    disclosed: tuple[tuple[str, str], ...] = ()
    resumes: bool = False


class Migrate(msgspec.Struct, frozen=True, tag=True, gc=False):
    """Move a running request: make the target ready while the source goes on, then let the client have the target's
    continuation of exactly what it was given, and end the source (AttemptFinished, MIGRATED). The target is an attempt
    like others: FirstToken when its continuation begins, AttemptFinished when it ends. If it fails before the cut, or
    the source ends first, nothing has happened to the client: the target ends as CANCELLED or by its own failure.

    Where engines hand over their KV themselves, the body may do that instead (break before make): the source ends as
    MIGRATED first, and the target counts before it has begun. For that choice: `held_tokens` are those that the source
    holds, `replay_s` the seconds that the target needs to compute what it does not hold.
    """

    request_id: RequestId
    source: AttemptId
    attempt_id: AttemptId
    replica_id: ReplicaId
    model: str
    reason: str
    held_tokens: int = 0
    replay_s: float = 0.0


class Evict(msgspec.Struct, frozen=True, tag=True, gc=False):
    """Take a running request away from its engine and keep what the client was given: AttemptFinished (EVICTED,
    resumable), and a Dispatch that resumes it follows when there is room. Or EvictionRefused, if it cannot."""

    attempt_id: AttemptId
    reason: str


class Hold(msgspec.Struct, frozen=True, tag=True, gc=False):
    """Keep the request; a Dispatch or Reject follows. `position` counts from 1; `wait_s` is how long it may take, 0
    while nothing is known of the pace. A body asks later for both by `Brain.prospects`."""

    request_id: RequestId
    position: int
    wait_s: float = 0.0


class Reject(msgspec.Struct, frozen=True, tag=True, gc=False):
    """Answer the client with our own error. `shed` tells overload (accounted as shed) from a bad request.

    `code` is a stable word for machines (`model_not_found`, `unknown_policy`, `policy_not_allowed`,
    `context_length_exceeded`, `precision_unavailable`, `rate_limit_exceeded`, `concurrency_limit`, `queue_full`,
    `queue_timeout`, `wait_too_long`, `shed`, `new_sessions_refused`, `no_replica`, `upstream_failed`, `quarantined`,
    `deadline`); `retry_after_s` is 0 when no header is to be sent.
    """

    request_id: RequestId
    status: int
    code: str
    message: str
    retry_after_s: float = 0.0
    shed: bool = False


SHED: Final = frozenset({
    (503, "queue_full"), (503, "queue_timeout"), (503, "wait_too_long"), (503, "shed"), (503, "new_sessions_refused"),
    (503, "overloaded"), (503, "shutting_down"), (429, "deadline"), (504, "deadline"),
})  # fmt: skip
"""Status and code of every refusal that is accounted as shed, those of the gateway itself included: clients, who see
no more of it, tell overload from failure by them. (`no_replica` is a failure: nothing is left to be overloaded.)"""


class Relay(msgspec.Struct, frozen=True, tag=True, gc=False):
    """Give the client what this (already settled) attempt's engine answered: there will be no retry."""

    request_id: RequestId
    attempt_id: AttemptId


class Abort(msgspec.Struct, frozen=True, tag=True, gc=False):
    """Cut an attempt that is in flight, for it waits in vain. The body ends it, posting AttemptFinished as for any
    other end. `reason`: "replica_gone" (its process is), "replica_removed" (by the operator), "replica_asleep",
    "recalled" (it waits in an engine for memory; EvictionRefused follows if its client has heard of it already)."""

    attempt_id: AttemptId
    reason: str


class SetTimer(msgspec.Struct, frozen=True, tag=True, gc=False):
    """Post TimerFired(timer) at `at`. Setting a timer of the same name again moves it."""

    timer: str
    at: float


class Probe(msgspec.Struct, frozen=True, tag=True, gc=False):
    """Probe the health of this replica now and post ProbeSucceeded or ProbeFailed."""

    replica_id: ReplicaId


class Restart(msgspec.Struct, frozen=True, tag=True, gc=False):
    """Have the operator's hook restart this replica's engine, if there is one: `reason` says what befell it."""

    replica_id: ReplicaId
    reason: str


class WarmUp(msgspec.Struct, frozen=True, tag=True, gc=False):
    """Let this replica's engine generate one token before clients use it, then post ProbeSucceeded or ProbeFailed."""

    replica_id: ReplicaId


class LevelChanged(msgspec.Struct, frozen=True, tag=True, gc=False):
    """A model's pool degrades or recovers: its level (0 to 4), whether a burst is on, and the saturation behind it."""

    at: float
    model: str
    level: int
    burst: bool
    saturation: float


class Moved(msgspec.Struct, frozen=True, tag=True, gc=False):
    """What became of a move of a running request. `result`: "planned" (dry run), "begun", "cut", "abandoned" (`reason`
    says by whom), "failed_over", "evicted", "recalled" (before it had begun; if it had, "abandoned" follows),
    "resumed", "refused". `replayed_tokens` had to be prefilled again; `benefit_s` and `cost_s` are what was expected of
    it (request-seconds)."""

    at: float
    request_id: RequestId
    source: ReplicaId
    target: ReplicaId
    reason: str
    result: str
    replayed_tokens: int = 0
    took_s: float = 0.0
    benefit_s: float = 0.0
    cost_s: float = 0.0


class Settled(msgspec.Struct, frozen=True, tag=True, gc=False):
    """What really happened to an attempt, beside what was forecast: the forecast's error is a metric.

    `ttft_s` is None when no content arrived. Forecasts of the output are its mean, the interval that is to hold nine in
    ten, and its middle (0 where nothing is generated); `output_tokens` is what really came, by the engine's word or
    ours, whichever is more. `forecast_prompt_tokens` is beside the engine's count in `outcome`.
    """

    at: float
    request_id: RequestId
    attempt_id: AttemptId
    replica_id: ReplicaId
    outcome: Outcome
    ttft_s: float | None
    forecast_ttft_s: float
    forecast_output_tokens: float
    forecast_output_low: int = 0
    forecast_output_middle: int = 0
    forecast_output_high: int = 0
    output_tokens: int = 0
    model: str = ""
    forecast_prompt_tokens: int = 0


class HealthChanged(msgspec.Struct, frozen=True, tag=True, gc=False):
    """A replica's breaker moved, it was ejected or taken back, or the fleet entered or left panic (id empty)."""

    at: float
    replica_id: ReplicaId
    state: str
    reason: str


Recorded = Decision | Settled | HealthChanged | LevelChanged | Moved


class Record(msgspec.Struct, frozen=True, tag=True, gc=False):
    """Something worth keeping: for metrics, logs and explain."""

    entry: Recorded


Command = Dispatch | Migrate | Evict | Hold | Reject | Relay | Abort | SetTimer | Probe | Restart | WarmUp | Record
