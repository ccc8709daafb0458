"""What policies see: one immutable view per replica.

Plain classes and not Structs, as `entries`: every policy reads a dozen attributes per candidate.
"""

import enum
from typing import Final, final

from headway.core.replica import LoadSample, ReplicaSpec


class Breaker(enum.StrEnum):
    """State of a replica's breaker. half_open lets exactly one request through."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


SPEED: Final = (
    "step_base_s", "step_per_request_s", "step_per_token_s", "prefill_tokens_per_s", "learned",
)  # fmt: skip
"""What there is of a `Speed`, in order: a compiled class does not tell."""


@final
class Speed:
    """Learned speed of a replica: `step = base + per_request*R + per_token*context` and prefill tokens/s.

    `learned` is False while both are priors only, so that a policy can fall back to counting.
    """

    __slots__ = SPEED

    def __init__(
        self,
        step_base_s: float,
        step_per_request_s: float,
        step_per_token_s: float,
        prefill_tokens_per_s: float,
        learned: bool = False,
    ) -> None:
        self.step_base_s: Final = step_base_s
        self.step_per_request_s: Final = step_per_request_s
        self.step_per_token_s: Final = step_per_token_s
        self.prefill_tokens_per_s: Final = prefill_tokens_per_s
        self.learned: Final = learned

    def step_s(self, running: float, context_tokens: float) -> float:
        """Seconds of one decode step with `running` sequences of `context_tokens` in total."""
        return self.step_base_s + self.step_per_request_s * running + self.step_per_token_s * context_tokens


VIEW: Final = (
    "spec", "sample", "as_of", "sample_age_s", "stale", "kv_capacity_tokens", "kv_used_tokens",
    "headroom_tokens", "headroom_sigma", "peak_mean", "peak_var", "reserved_tokens", "prefill_backlog_tokens",
    "dispatched_tokens", "growth_tokens_per_s", "in_flight", "running", "waiting", "context_tokens",
    "output_left_mean", "max_num_seqs", "speed", "breaker", "slow_start", "draining", "sleeping",
)  # fmt: skip
"""What there is of a `ReplicaView`, in order: a compiled class does not tell."""


@final
class ReplicaView:
    """One replica at one moment, as the ledger corrects the last sample. All amounts in tokens.

    `id` that of its `spec`, which is asked for most of all
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

    __slots__ = (*VIEW, "id")

    def __init__(
        self,
        spec: ReplicaSpec,
        sample: LoadSample | None,
        as_of: float,
        sample_age_s: float,
        stale: bool,
        kv_capacity_tokens: int,
        kv_used_tokens: float,
        headroom_tokens: float,
        headroom_sigma: float,
        peak_mean: float,
        peak_var: float,
        reserved_tokens: float,
        prefill_backlog_tokens: float,
        dispatched_tokens: float,
        growth_tokens_per_s: float,
        in_flight: int,
        running: float,
        waiting: float,
        context_tokens: float,
        output_left_mean: float,
        max_num_seqs: int,
        speed: Speed,
        breaker: Breaker,
        slow_start: float,
        draining: bool,
        sleeping: bool,
    ) -> None:
        self.spec: Final = spec
        self.id: Final = spec.id
        self.sample: Final = sample
        self.as_of: Final = as_of
        self.sample_age_s: Final = sample_age_s
        self.stale: Final = stale
        self.kv_capacity_tokens: Final = kv_capacity_tokens
        self.kv_used_tokens: Final = kv_used_tokens
        self.headroom_tokens: Final = headroom_tokens
        self.headroom_sigma: Final = headroom_sigma
        self.peak_mean: Final = peak_mean
        self.peak_var: Final = peak_var
        self.reserved_tokens: Final = reserved_tokens
        self.prefill_backlog_tokens: Final = prefill_backlog_tokens
        self.dispatched_tokens: Final = dispatched_tokens
        self.growth_tokens_per_s: Final = growth_tokens_per_s
        self.in_flight: Final = in_flight
        self.running: Final = running
        self.waiting: Final = waiting
        self.context_tokens: Final = context_tokens
        self.output_left_mean: Final = output_left_mean
        self.max_num_seqs: Final = max_num_seqs
        self.speed: Final = speed
        self.breaker: Final = breaker
        self.slow_start: Final = slow_start
        self.draining: Final = draining
        self.sleeping: Final = sleeping
