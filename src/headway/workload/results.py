"""What a simulated run is boiled down to: figures for tables and JSON (`RunResult`), curves for plots (`RunDetail`).

Only shapes live here; they are filled by `sim` and shown by `report`. Seconds, tokens, fractions 0..1.
"""

from collections.abc import Sequence

import msgspec


class RunResult(msgspec.Struct, frozen=True):
    """One policy x load x seed.

    `good` requests met both SLOs; `goodput_rps` is them per second of `window_s` (the simulated time in which requests
    that count may come). `late` were served but missed an SLO, `shed` were refused by us, `failed` are the rest. TTFT,
    TPOT and E2E are of requests that ended ok. Whatever there was nothing to measure of is None: the quantiles where
    nobody was served, the price of a good request where none was. `longest_wait_s` and `queue_p99_s`: from arrival to
    dispatch. `preempted` counts requests preempted at least once, `preemptions` all times. `kv_usage_std` is the mean
    over time of the standard deviation of KV use across replicas. `fairness` is Jain's index of output tokens per
    replica (by capacity). `decision_us`: mean CPU time of the brain per request. `kv_gap_p95`: the fullest pool's use
    less the emptiest's, 95 % quantile over the time in which requests come. `urgent`: requests of a high or critical
    tier. `moves`, `failovers`, `evictions` of running requests that were made, `abandoned` ones, tokens prefilled again
    for them, and what clients noticed of a move.
    """

    policy: str
    load: float
    seed: int
    requests: int
    good: int
    late: int
    shed: int
    failed: int
    window_s: float
    goodput_rps: float
    ttft_p50_s: float | None
    ttft_p99_s: float | None
    tpot_p50_s: float | None
    tpot_p99_s: float | None
    e2e_p50_s: float | None
    e2e_p99_s: float | None
    queue_p99_s: float | None
    longest_wait_s: float | None
    preempted: int
    preemptions: int
    recomputed_tokens: int
    kv_usage_std: float | None
    prefix_hit_rate: float | None
    fairness: float | None
    gpu_hours_per_1k_good: float | None
    decision_us: float
    kv_gap_p95: float | None = None
    urgent: int = 0
    urgent_good: int = 0
    urgent_ttft_p99_s: float | None = None
    moves: int = 0
    failovers: int = 0
    evictions: int = 0
    abandoned: int = 0
    replayed_tokens: int = 0
    stall_p99_s: float | None = None

    @property
    def good_share(self) -> float:
        """Good requests among all."""
        return self.good / self.requests if self.requests else 0.0


def mean(results: Sequence[RunResult], field: str) -> float | None:
    """A figure's mean over runs. None where one of them has none: what is left would be the mean of the better runs."""
    values = [getattr(result, field) for result in results]
    return sum(values) / len(values) if values and None not in values else None


class RunDetail(msgspec.Struct, frozen=True):
    """Curves of one run.

    `times` (s) at which the fleet was looked at; `kv_usage[replica][time]`, `running[replica][time]`,
    `waiting[replica][time]` (in the engine), `queued[time]` (held by us), `preemptions[time]` (fleet, since the start).
    `ttft_s`, `tpot_s`: 201 evenly spaced quantiles (0, 0.5 %, ... 100 %). Mean seconds a request spent `held` by us,
    `waiting` in an engine's queue, in `prefill`, in `decode`.
    """

    replicas: tuple[str, ...]
    times: tuple[float, ...]
    kv_usage: tuple[tuple[float, ...], ...]
    running: tuple[tuple[int, ...], ...]
    waiting: tuple[tuple[int, ...], ...]
    queued: tuple[int, ...]
    preemptions: tuple[int, ...]
    ttft_s: tuple[float, ...]
    tpot_s: tuple[float, ...]
    held_s: float
    waiting_s: float
    prefill_s: float
    decode_s: float


class Run(msgspec.Struct, frozen=True):
    """Figures, and curves where they were asked for."""

    result: RunResult
    detail: RunDetail | None = None
