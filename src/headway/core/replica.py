"""A serving engine as configured or discovered (`ReplicaSpec`), and one report of its load (`LoadSample`)."""

from collections.abc import Collection

import msgspec

from headway.core.ids import ReplicaId


class ReplicaSpec(msgspec.Struct, frozen=True):
    """One registered replica. Replaced as a whole when discovery learns more.

    `serves` maps the model names clients may use to the name this engine knows (identity without aliases). `variants`:
    of names that stand for several variants, which place this replica's has among them, 0 for the most wanted.
    `max_model_tokens` is the longest context the engine accepts, 0 if unknown. `kv_capacity_tokens` is a configured
    or discovered size of the KV pool for engines that do not report it, 0 if unknown. `metrics` is False when the
    engine has no load report, so that the absence of samples is not an alarm.
    `features` carries what a roofline knows about this kind of replica (prefill_tokens_per_s, step_base_s,
    step_per_request_s, step_per_token_s): priors for the learned speeds. core does not know perfmodel. `kv_domain`:
    replicas of one name can hand a run's KV over to each other, "" if it can to none.
    """

    id: ReplicaId
    url: str
    engine: str = "openai"
    model: str = ""
    version: str = ""
    precision: str = ""
    role: str = "both"
    gpu: str = ""
    gpu_count: int = 1
    labels: dict[str, str] = {}
    weight: float = 1.0
    serves: dict[str, str] = {}
    max_model_tokens: int = 0
    kv_capacity_tokens: int = 0
    max_num_seqs: int = 0
    metrics: bool = True
    features: dict[str, float] = {}
    variants: dict[str, int] = {}
    kv_domain: str = ""

    @property
    def kind(self) -> str:
        """Replicas of one kind are expected to run at the same speed; learned coefficients shrink towards its mean."""
        return f"{self.model}|{self.version}|{self.precision}|{self.gpu}x{self.gpu_count}"

    @property
    def names(self) -> Collection[str]:
        """What clients may call what runs here."""
        return self.serves or (self.model,)

    @property
    def make(self) -> tuple[str, str, str, str]:
        """What began on one replica goes on as it is only on replicas that have the same."""
        return self.model, self.version, self.precision, self.engine


class LoadSample(msgspec.Struct, frozen=True):
    """One load report of a replica. `None` means that the engine did not say: it is never read as zero.

    `taken_at` is our monotonic clock at the moment the report was requested (not when the answer arrived: requests
    sent in between may or may not be counted in it, and it is safer to count them twice than not at all).
    `epoch` grows with each report of one boot of the engine. `partial` reports (a response header) carry a few
    fields only and leave the others of the last full report standing. `kv_usage` is the used fraction (0..1) of the
    pool where an engine reports it without the pool's size: used tokens are then `kv_usage` times the size known
    otherwise (an earlier report, or the spec). `interval_s`: when the next report is asked for, after this one; slow
    engines are asked less often, and their reports hold for longer. `boot`: which start of the engine, as counted by
    whoever watches it: a larger one is another process.
    """

    replica_id: ReplicaId
    taken_at: float
    epoch: int = 0
    kv_capacity_tokens: int | None = None
    kv_used_tokens: int | None = None
    running: int | None = None
    waiting: int | None = None
    preemptions_total: int | None = None
    max_num_seqs: int | None = None
    prefix_hits_total: int | None = None
    prefix_queries_total: int | None = None
    generated_tokens_total: int | None = None
    prompt_tokens_total: int | None = None
    sleep_level: int | None = None
    device_free_bytes: int | None = None
    device_total_bytes: int | None = None
    partial: bool = False
    kv_usage: float | None = None
    interval_s: float | None = None
    boot: int | None = None
