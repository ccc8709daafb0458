"""Gauges of the fleet, made from one snapshot at the moment of a scrape. Nothing here is kept."""

from collections.abc import Callable

from headway.core.replica import LoadSample
from headway.core.snapshot import FleetSnapshot
from headway.core.view import Breaker, ReplicaView
from headway.telemetry.exposition import Page, label_text
from headway.telemetry.families import single

Read = Callable[[ReplicaView], float | None]


def _of(sample: LoadSample | None, field: str) -> int | None:
    value: int | None = getattr(sample, field, None)
    return value


GAUGES: tuple[tuple[str, str, Read], ...] = (
    ("kv_capacity_tokens", "Size of the KV pool; absent when unknown.", lambda v: v.kv_capacity_tokens or None),
    (
        "kv_used_tokens",
        "KV tokens in use: the last sample corrected for what was sent since.",
        lambda v: v.kv_used_tokens,
    ),
    (
        "headroom_tokens",
        "Capacity less the forecast peak of all that was promised.",
        lambda v: v.headroom_tokens if v.kv_capacity_tokens else None,
    ),
    ("headroom_sigma_tokens", "Standard deviation of the headroom.", lambda v: v.headroom_sigma),
    ("peak_tokens", "Forecast peak of the running batch.", lambda v: v.peak_mean),
    ("reserved_tokens", "Tokens reserved by unsettled attempts.", lambda v: v.reserved_tokens),
    (
        "prefill_backlog_tokens",
        "Uncached prompt tokens sent and not yet prefilled.",
        lambda v: v.prefill_backlog_tokens,
    ),
    ("in_flight", "Our unsettled attempts.", lambda v: v.in_flight),
    ("running", "Running requests: the engine's report corrected for what was sent since.", lambda v: v.running),
    ("waiting", "Requests waiting inside the engine.", lambda v: v.waiting),
    (
        "sample_age_seconds",
        "Age of the last load report; absent without any.",
        lambda v: None if v.sample is None else v.sample_age_s,
    ),
    ("sample_stale", "1 when the load report is too old to trust.", lambda v: v.stale),
    ("draining", "1 while no new requests are sent.", lambda v: v.draining),
    ("sleeping", "1 while the engine sleeps.", lambda v: v.sleeping),
    ("slow_start_ratio", "Fraction of its capacity that a warming replica may get.", lambda v: v.slow_start),
    ("device_free_bytes", "Free device memory, where reported.", lambda v: _of(v.sample, "device_free_bytes")),
    ("device_total_bytes", "Device memory, where reported.", lambda v: _of(v.sample, "device_total_bytes")),
)

COUNTERS: tuple[tuple[str, str, Read], ...] = (
    ("preemptions_total", "Preemptions reported by the engine.", lambda v: _of(v.sample, "preemptions_total")),
    (
        "generated_tokens_total",
        "Tokens generated, as reported by the engine.",
        lambda v: _of(v.sample, "generated_tokens_total"),
    ),
    (
        "prefix_hits_total",
        "Prompt tokens found in the engine's prefix cache.",
        lambda v: _of(v.sample, "prefix_hits_total"),
    ),
    ("prefix_queries_total", "Prompt tokens looked up in it.", lambda v: _of(v.sample, "prefix_queries_total")),
)


POOLS = (
    ("model_queued_requests", "Requests held for a model.", "queued"),
    ("expected_wait_seconds", "What a request that comes now must expect to wait.", "expected_wait_s"),
    ("saturation_ratio", "How near a model's pool is to distress; 1 is full.", "saturation"),
    ("degradation_level", "1 new sessions refused, 2 low priority shed, 3 a replica dead, 4 fallback.", "level"),
    ("burst", "1 while requests come much faster than they did.", "burst"),
)
"""Gauges per model, with the field of a PoolState each."""


def fleet_metrics(page: Page, snapshot: FleetSnapshot) -> None:
    """Everything the snapshot knows. A value that an engine did not report is absent, never zero."""
    stale = sum(view.stale for view in snapshot.views)
    single(page, "headway_replicas", "gauge", "Registered replicas.", len(snapshot.views))
    single(page, "headway_queued_requests", "gauge", "Requests held by Headway.", snapshot.queued)
    single(page, "headway_in_flight_attempts", "gauge", "Unsettled attempts.", snapshot.in_flight)
    single(page, "headway_panic", "gauge", "1 when too many replicas are ejected to respect it.", snapshot.panic)
    single(page, "headway_stale_endpoints", "gauge", "Replicas whose load report is too old.", stale)
    for name, documentation, field in POOLS:
        page.family(f"headway_{name}", "gauge", documentation)
        for pool in snapshot.pools:
            page.sample(getattr(pool, field), label_text(("model",), (pool.model,)))
    _info(page, snapshot)
    _breakers(page, snapshot)
    _kv_errors(page, snapshot)
    labels = [label_text(("replica",), (view.spec.id,)) for view in snapshot.views]
    for kind, table in (("gauge", GAUGES), ("counter", COUNTERS)):
        for name, documentation, read in table:
            page.family(f"headway_replica_{name}", kind, documentation)
            for view, label in zip(snapshot.views, labels, strict=True):
                value = read(view)
                if value is not None:
                    page.sample(value, label)


def _info(page: Page, snapshot: FleetSnapshot) -> None:
    labels = ("replica", "url", "engine", "model", "version", "precision", "gpu")
    page.family("headway_replica_info", "gauge", "What is known about a replica.")
    for view in snapshot.views:
        s = view.spec
        page.sample(1, label_text(labels, (s.id, s.url, s.engine, s.model, s.version, s.precision, s.gpu)))


def _kv_errors(page: Page, snapshot: FleetSnapshot) -> None:
    """`horizon`: what was forecast for the moment of a load report, or for so many seconds later."""
    page.family(
        "headway_kv_forecast_error_ratio", "gauge", "Error of the latest forecasts of a KV pool's use, over it."
    )
    names = ("replica", "horizon", "quantile")
    for error in snapshot.kv_errors:
        page.sample(error.now_p50, label_text(names, (error.replica_id, "now", "0.5")))
        page.sample(error.now_p99, label_text(names, (error.replica_id, "now", "0.99")))
        if error.forecasts:
            ahead = f"{error.ahead_s:g}s"
            page.sample(error.ahead_p50, label_text(names, (error.replica_id, ahead, "0.5")))
            page.sample(error.ahead_p99, label_text(names, (error.replica_id, ahead, "0.99")))


def _breakers(page: Page, snapshot: FleetSnapshot) -> None:
    page.family("headway_replica_breaker", "gauge", "1 for the state the breaker is in.")
    for view in snapshot.views:
        for state in Breaker:
            page.sample(view.breaker is state, label_text(("replica", "state"), (view.spec.id, state.value)))
