"""Every constant of the brain in one place: one Struct of settings for each room of core.

Only numbers and what they mean live here; what is done with them lives in the room of the same name. They are apart
from it also because `make fast` compiles the rooms, and a Struct in compiled code loses its options.
"""

from typing import Annotated

import msgspec

Count = Annotated[int, msgspec.Meta(ge=0)]
Amount = Annotated[float, msgspec.Meta(ge=0)]
AtLeastOne = Annotated[int, msgspec.Meta(ge=1)]
Positive = Annotated[float, msgspec.Meta(gt=0)]
"""What settings may say. The last two are what something is divided by, or looked at again after."""


class LedgerConfig(msgspec.Struct, frozen=True):
    """Constants of the ledger.

    `log_entries` bounds the memory of recent changes per replica; it must cover the flight time of a load report
    (2,048 changes are two seconds at 1,000 changes a second on one replica).
    """

    log_entries: Count = 2048


class MemoryConfig(msgspec.Struct, frozen=True):
    """Constants of the memory forecast.

    `spare`: fraction of the pool never promised (rho; watermarks of engines are about 1 %). `block_tokens`: size of a
    KV block (16 is vLLM's default; half a block is lost per sequence on average). `z`: deviations kept clear when
    judging whether a request fits (97.7 % one-sided; algorithms suggest 1.6 to 2.5).
    """

    spare: Amount = 0.02
    block_tokens: AtLeastOne = 16
    z: Amount = 2.75


class LengthConfig(msgspec.Struct, frozen=True):
    """Constants of the length model. `output_mean` is the mean (tokens) of the exponential law believed at first.

    `miss`: the share of outputs that intervals are to miss; `miss_step`: how fast they adapt. `group_outputs`: outputs
    of a template or tenant from which it has a law of its own; below, it would hardly differ (4 of 54 observations).
    `template_memory`: so many prompts decide what a chat template adds, none by more than `template_step` tokens off.
    """

    bytes_per_token: Positive = 4.0  # English on vocabularies of 100k and more
    max_bytes_per_token: Amount = 32.0  # JSON-escaped Cyrillic or Chinese reaches 24
    prior_prompt_tokens: Positive = 500.0  # weight of the prior ratio: one ordinary prompt outweighs it
    prompt_weight_tokens: Amount = 4096.0  # no single prompt weighs more
    output_mean: Positive = 256.0
    bins: AtLeastOne = 64
    growth: Amount = 1.2  # width ratio of bins: 64 of them reach 300 k tokens
    shrink: Amount = 50.0
    memory: Amount = 10_000.0  # observations after which the past is halved, so that drift is followed
    max_models: AtLeastOne = 256  # the least recently observed is dropped: model names come from outside
    max_limits: Count = 512  # cached forecasts per law
    miss: Amount = 0.1
    miss_step: Amount = 0.01
    group_outputs: Count = 4
    max_groups: AtLeastOne = 512  # about 15 kB each
    max_seen: Count = 4096
    template_memory: Count = 50
    template_step: Amount = 64.0


class PrefixConfig(msgspec.Struct, frozen=True):
    """Constants of the prefix index. Whoever hashes prompts takes `block_bytes` from here."""

    block_bytes: Count = 512
    max_blocks: Count = 16_384  # per replica: 8 MiB of text, about 2 M tokens, more than a KV pool usually holds
    max_bytes: Count = 64 * 1024 * 1024
    trust_tokens: Amount = 4096.0  # weight of the initial trust of 1
    trust_memory: Amount = 0.98  # per correction: the last fifty count
    decoded: Count = 1024  # cached sets of replicas


class SpeedConfig(msgspec.Struct, frozen=True):
    """Priors and constants of the speed model. The priors resemble an 8B model on one data-centre GPU."""

    step_base_s: Amount = 0.010
    step_per_request_s: Amount = 0.00005
    step_per_token_s: Amount = 2e-8
    prefill_overhead_s: Amount = 0.005
    prefill_tokens_per_s: Positive = 8000.0
    forget: Amount = 0.98  # per observation of a replica: the last fifty count
    forget_kind: Amount = 0.998
    shrink: Amount = 20.0  # pseudo-observations taken from the kind
    prior: Amount = 4.0  # pseudo-observations per coefficient taken from the prior
    outlier: Amount = 3.0  # an observation counts as at most this multiple (at least this fraction) of the expected
    surprises: Count = 4  # outliers of one sign in a row that are news (times the replicas, for a kind)
    alike: Amount = 1.5  # a replica this close to its kind leans on it as it is, an odder one on a multiple of it
    same: Amount = 1.05  # a replica this close to its kind is taken for equal: who is chosen among equals is chance
    enough: Count = 4  # observations of a kind from which its speeds count as learned
    max_kinds: AtLeastOne = 64


class HealthConfig(msgspec.Struct, frozen=True):
    """Constants of health.

    `failures`: consecutive ones that open (Envoy's and HAProxy's habit is 3 to 5). `window`, `window_min`,
    `failure_rate`: of the last outcomes, how many must be there and have failed to open. `probe_failures`: failed
    probes in a row. `open_s` doubles (`backoff`) up to `open_max_s` and falls back after `forgive_s` of health.
    `avoid_s`: backpressure without Retry-After; `avoid_max_s` bounds what an engine may ask. `slow_start_s` and
    `slow_start_floor`: ramp of the share of capacity after a return; `wake_start_s`: how long it takes after a sleep,
    which cost the engine its cache and its warm kernels. `warm_up`: whether engines generate a token for us before they
    do so for clients; `warm_up_timeout_s`: until nothing more is expected of one (a body gives up earlier);
    `warm_up_tries`: failed ones after which a replica is used without. `silent_s`: a stream that said something this
    recently is alive although its port refuses connections.
    """

    failures: Count = 3
    window: AtLeastOne = 20
    window_min: Count = 10
    failure_rate: Amount = 0.5
    probe_failures: Count = 3
    open_s: Amount = 2.0
    backoff: Amount = 2.0
    open_max_s: Amount = 60.0
    forgive_s: Amount = 60.0
    probe_timeout_s: Amount = 10.0
    pending_probe_s: Amount = 1.0
    avoid_s: Amount = 1.0
    avoid_max_s: Amount = 5.0
    slow_start_s: Amount = 10.0
    slow_start_floor: Amount = 0.1
    wake_start_s: Amount = 30.0
    warm_up: bool = False
    warm_up_timeout_s: Amount = 60.0
    warm_up_tries: Count = 3
    silent_s: Amount = 0.5


class RetryConfig(msgspec.Struct, frozen=True):
    """Constants of retries.

    `ratio`, `floor`: retries in flight are at most `max(floor, ratio * active requests)`. `attempts`: counted tries of
    one request. `tries`: all tries, free ones included (attempt ids have one digit). `kills`: replicas a request may
    take down before it is quarantined for `quarantine_s`; `suspects` bounds the memory of such requests.
    """

    ratio: Amount = 0.2
    floor: Count = 3
    attempts: Count = 2
    tries: Count = 5
    kills: Count = 2
    quarantine_s: Amount = 300.0
    suspects: Count = 1024


class FleetConfig(msgspec.Struct, frozen=True):
    """Constants of the fleet.

    `stale_after_s`: five scrape intervals of 0.5 s. A replica that is asked less often gets `stale_intervals` of its
    own: the time to the next answer (1.5 with jitter and its slowness) and one failure. `rebuild_s`: pace of rebuilding
    a replica's forecast. `frozen_samples`, `frozen_tokens`: so many reports without any change while our own load moved
    by so much mean that the gauges are stuck. `drift_tokens2_per_s`: variance that a report gains with age (100 tokens
    after a second). `sweep_s`: how often views are checked for the passing of time. `outlooks`: how many forecasts of
    new requests are remembered (for `rebuild_s`, per model and output limit). `step_window_s`: shortest window a step
    time is learned from. `prefill_tokens`: shortest prefill worth learning from (below it, latency hides the rate).
    `answer_window_s`: shortest window over which answers in one piece are gathered, each of at least `answer_tokens`
    (uncached prompt and output); `told_s`: for how long what streams told of a replica's speeds goes before them. An
    answer that takes `overdue` times as long as nine in ten do tells that its replica is slow before it comes: it is as
    far off as a surprise must be.
    """

    stale_after_s: Amount = 2.5
    stale_intervals: Amount = 2.5
    rebuild_s: Amount = 0.5
    frozen_samples: Count = 5
    frozen_tokens: Count = 64
    drift_tokens2_per_s: Amount = 1e4
    sweep_s: Amount = 0.1
    ramp_refresh_s: Amount = 0.25
    outlooks: Count = 1024
    step_window_s: Amount = 1.0
    answer_window_s: Amount = 0.5
    answer_tokens: Count = 64
    told_s: Amount = 1.5
    overdue: Amount = 3.0
    step_filling: Amount = 0.7
    prefill_tokens: Count = 64


class SloConfig(msgspec.Struct, frozen=True):
    """Service objectives of a request. The first token may take longer the longer the prompt is."""

    ttft_s: Amount = 1.0
    ttft_per_prompt_token_s: Amount = 0.00025
    tpot_s: Amount = 0.05

    def ttft_limit_s(self, prompt_tokens: int) -> float:
        """Seconds a prompt of this length may wait for its first token."""
        return self.ttft_s + self.ttft_per_prompt_token_s * prompt_tokens


class AdmissionConfig(msgspec.Struct, frozen=True):
    """Constants of admission.

    `hold`, `order`, `pace`: whether requests wait for memory, go by what can still be met, and are paced; for policies
    that bind late, or for `every_policy` (so that others can be compared behind the same queue).
    `max_queued`, `queue_timeout_s`: bounds of each model's queue; SDKs give up after minutes, people much earlier.
    `bypass_max`: times a head that does not fit is overtaken before a replica is kept for it, `urgent_bypass` if it is
    of a high tier. `late_bypass`: times the first of those who missed their objective is overtaken before it goes
    first. `scan`: how far behind the head one looks for somebody who fits.
    `lag_quantile`: so many first tokens take less, beyond their own prefill, than is allowed for; learned in steps of
    `lag_step` of it (of `lag_least_s` at least), and a share `lag_most` of a request's slack at most.
    `late_spare`: the share of every pool that those who missed their objective leave to those who can still keep it. A
    backlog would keep every pool full, and whoever comes after an overload would wait for room as in it.
    `rise_s`: whoever has waited so long counts as one tier higher (0: never). `max_queued_bytes`: bodies of all who
    wait, in all queues. `retry_after_max_s` bounds what clients are told (a
    low bound calls them all back at once, into the next overload); `retry_share`: the share of the pace that is
    promised to those who come back (the rest is for those who come first).
    `hopeless`: whoever is expected to wait this many times longer than it may is refused at once, or let go early (0:
    never); nothing is expected of what was watched for less than `watch_s`. `lost_s`: whoever is not served, as it may
    not wait (any longer), counts for saturation as one who waits for so long, or for `queue_timeout_s` if that is
    longer: a short bound on the wait must not hide an overload.
    `reserved`: the share of every model's replicas that is kept for what is critical. Whole replicas, and of one more
    the rest of the share as a part of its KV pool.
    """

    hold: bool = True
    order: bool = True
    pace: bool = True
    every_policy: bool = False
    max_queued: Count = 512
    queue_timeout_s: Amount = 30.0
    bypass_max: Count = 32
    urgent_bypass: Count = 4
    late_bypass: Count = 256
    scan: Count = 32
    lag_quantile: Amount = 0.9
    lag_step: Amount = 0.1
    lag_least_s: Amount = 0.2
    lag_most: Amount = 0.3
    rise_s: Amount = 10.0
    max_queued_bytes: Count = 128 * 1024 * 1024
    retry_after_max_s: Amount = 900.0
    retry_share: Amount = 0.3
    late_spare: Amount = 0.15
    hopeless: Amount = 1.5
    watch_s: Amount = 5.0
    lost_s: Amount = 15.0
    reserved: Amount = 0.0


class PaceConfig(msgspec.Struct, frozen=True):
    """Constants of the pacing of prefill.

    `target`: share of the TPOT objective that is aimed at. `burst_s`: seconds of prefill that may be saved up.
    `least`: share of its time that a replica may always spend on prefill. `cached`: share of a prompt from which it
    goes unpaced. `give_up`, `resume`: prompt tokens that come, as a multiple of what the pace lets through, beyond
    which it is given up and below which it is taken up again; judged every `judge_s` from the last `memory_s`.
    `longest_s`: seconds of the prefill of the prompt that a prompt token is in, on average, beyond which it is no use
    (a long prefill cannot be spread over time).
    """

    target: Amount = 0.95
    burst_s: Amount = 0.25
    least: Amount = 0.05
    cached: Amount = 0.5
    give_up: Amount = 4.0
    resume: Amount = 2.0
    judge_s: Amount = 0.5
    memory_s: Positive = 30.0
    longest_s: Amount = 0.8


class SchedulerConfig(msgspec.Struct, frozen=True):
    """Constants of the choice.

    `max_in_flight`: attempts one replica may have, 0 for no limit. `slow_start_requests`: what a warming replica of
    unknown capacity may have at most when warm (a fraction of it until then); `slow_start_seats`: sequences presumed to
    run at once on one that does not say, of which it may have the same fraction as of its pool: a large pool must not
    draw a crowd of small requests. `panic`: share of ejected replicas above
    which they are used. `candidates`: how many a Decision remembers. `considered`: of more candidates than this only so
    many, drawn by chance, and the `warmest` ones are ranked (0: always all). The best of 256 drawn at random is as good
    as the best of 1,000 for every purpose (Mitzenmacher: even two choices come close), and costs a quarter.
    `rollout_per_minute`: the share of a model's dispatches that a new version gets at once and again each minute (0:
    all, at once); versions that come within `rollout_grace_s` of the first are not new.
    """

    max_in_flight: Count = 0
    slow_start_requests: Count = 32
    slow_start_seats: Count = 128
    panic: Amount = 0.5
    candidates: AtLeastOne = 8
    considered: Count = 256
    warmest: Count = 32
    rollout_per_minute: Amount = 0.05
    rollout_grace_s: Amount = 5.0


class AffinityConfig(msgspec.Struct, frozen=True):
    """Constants of session affinity.

    `enabled`: whether requests that name a session keep to its replica. `points`: a replica's places on the ring (with
    200, shares differ by about 7 %). `spill`, `resume`: used share of a KV pool above which a replica gives sessions to
    the next one, and below which it takes them back. A request is easy for a replica of whose pool, with it, `easy_kv`
    are used at most, where it and all prefill before it take `easy_prefill_s` at most, and steps then take
    `easy_step_s` (a quarter and a half of the usual objectives); where speeds are not known, if there are fewer than
    `spare` requests instead. Easy ones stay. For others, `bound`: times the
    mean number of requests from which on a replica gives sessions away, if it has `spare`; and under a policy that
    knows where prefixes are, `yields`: how many times the least cost the session's replica may cost (0: any).
    """

    enabled: bool = True
    points: Count = 200
    spill: Amount = 0.85
    resume: Amount = 0.75
    bound: Amount = 1.25
    spare: Count = 8
    easy_kv: Amount = 0.7
    easy_prefill_s: Amount = 0.25
    easy_step_s: Amount = 0.025
    yields: Amount = 2.0


class SessionsConfig(msgspec.Struct, frozen=True):
    """Constants of the memory of sessions: how long one counts as known, how many there are (about 200 bytes each),
    and the share of them that one tenant may have."""

    ttl_s: Amount = 1800.0
    max_entries: Count = 65_536
    tenant_share: Amount = 0.5


class DegradeConfig(msgspec.Struct, frozen=True):
    """Constants of degradation.

    `levels`: whether anything follows from saturation; it is measured anyway. `wait_s`: an expected wait that counts as
    full saturation. `memory_z`: deviations above the mean of the forecast peak (95 % one-sided). `memory_most`: what a
    full pool counts as where requests are held until they fit: there it is what the hold is for, and no distress.
    `bounds`: at or above the second new sessions are refused (level 1), at or above the third what is below STANDARD
    (level 2); either ends below the bound before it. `window_s`: seconds that saturation is the median of. `dwell_s`:
    least time between two moves. `shed_from`: saturation from which what is below STANDARD is shed by chance, all of
    it at 1. `open_share`: share of open breakers from which the fallback is used (level 4). `fallbacks`: model ->
    model that takes its requests then. `tick_s`: how often a pool is looked at.
    """

    levels: bool = True
    wait_s: Positive = 5.0
    memory_z: Amount = 1.645
    memory_most: Amount = 0.8
    bounds: tuple[float, float, float] = (0.85, 0.9, 0.95)
    window_s: AtLeastOne = 5
    dwell_s: Amount = 5.0
    shed_from: Amount = 0.8
    open_share: Amount = 0.5
    fallbacks: dict[str, str] = {}
    tick_s: Positive = 1.0


class BurstConfig(msgspec.Struct, frozen=True):
    """Constants of bursts.

    `curbs`: whether a burst costs clients anything: at most `max_tokens` of output each, and no logprobs. A burst is at
    least `least` requests within `fast_s` seconds, at `enter` times the usual rate; it ends below `leave` times that.
    What is usual is learned over `slow_s`, and believed after `history_s`. `dwell_s`: least time between two moves.
    """

    curbs: bool = False
    max_tokens: Count = 256
    fast_s: AtLeastOne = 5
    slow_s: Positive = 60.0
    history_s: Amount = 15.0
    least: Count = 20
    enter: Amount = 3.0
    leave: Amount = 1.5
    dwell_s: Amount = 5.0


class RestartConfig(msgspec.Struct, frozen=True):
    """Constants of restarts. A replica that is dead for `after_s` is to be restarted, if there is a hook (`enabled`);
    if it stays dead again after `every_s`, which grows by `backoff` each time up to `every_max_s`. After `forgive_s`
    of health the past is forgotten."""

    enabled: bool = False
    after_s: Amount = 30.0
    every_s: Amount = 300.0
    backoff: Amount = 2.0
    every_max_s: Amount = 3600.0
    forgive_s: Amount = 600.0


class MigrationConfig(msgspec.Struct, frozen=True):
    """Constants of moving running requests (algorithms, section 7).

    `enabled`: whether it is done at all; `dry_run`: only say what would be done. `strategy`: a set of thresholds by
    name (`core.rebalance.STRATEGIES`). `tick_s`: how often replicas are compared. `horizon_s`, `overflow`: a pool that
    will overflow within so many seconds with more than this probability is relieved. `margin`: benefit over cost.
    `remaining`: a request is moved only if what it has still to do takes this many times the move. `cooldown_s`,
    `moves_max`: of one request. `fleet_share`: moves under way at once, as a share of the replicas (one at least).
    `replay_share`: of the fleet's prefill rate that moves may use. `evictions_max`: of one request. `failovers_max`:
    times a request goes on elsewhere after its replica died in the middle (a poison must not go round).
    """

    enabled: bool = False
    dry_run: bool = False
    strategy: str = "balanced"
    tick_s: Positive = 0.5
    horizon_s: Amount = 5.0
    overflow: Amount = 0.2
    margin: Amount = 1.3
    remaining: Amount = 3.0
    cooldown_s: Amount = 10.0
    moves_max: Count = 2
    fleet_share: Amount = 0.125
    replay_share: Amount = 0.05
    evictions_max: Count = 2
    failovers_max: Count = 2


class BrainConfig(msgspec.Struct, frozen=True):
    """Every constant of the brain; each is explained where it belongs."""

    ledger: LedgerConfig = LedgerConfig()
    memory: MemoryConfig = MemoryConfig()
    length: LengthConfig = LengthConfig()
    prefix: PrefixConfig = PrefixConfig()
    speed: SpeedConfig = SpeedConfig()
    health: HealthConfig = HealthConfig()
    retry: RetryConfig = RetryConfig()
    fleet: FleetConfig = FleetConfig()
    slo: SloConfig = SloConfig()
    admission: AdmissionConfig = AdmissionConfig()
    pace: PaceConfig = PaceConfig()
    scheduler: SchedulerConfig = SchedulerConfig()
    affinity: AffinityConfig = AffinityConfig()
    sessions: SessionsConfig = SessionsConfig()
    degrade: DegradeConfig = DegradeConfig()
    burst: BurstConfig = BurstConfig()
    restart: RestartConfig = RestartConfig()
    migration: MigrationConfig = MigrationConfig()
