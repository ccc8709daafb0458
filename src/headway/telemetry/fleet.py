"""Gauges of the fleet, made from one snapshot at the moment of a scrape. Nothing here is kept."""

from collections.abc import Callable, Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from headway.core.replica import LoadSample
from headway.core.view import Breaker, FleetSnapshot, ReplicaView

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
    ("headroom_tokens", "Capacity less the forecast peak of all that was promised.", lambda v: v.headroom_tokens),
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
    ("preemptions", "Preemptions reported by the engine.", lambda v: _of(v.sample, "preemptions_total")),
    (
        "generated_tokens",
        "Tokens generated, as reported by the engine.",
        lambda v: _of(v.sample, "generated_tokens_total"),
    ),
    (
        "prefix_hits",
        "Prompt tokens found in the engine's prefix cache.",
        lambda v: _of(v.sample, "prefix_hits_total"),
    ),
    ("prefix_queries", "Prompt tokens looked up in it.", lambda v: _of(v.sample, "prefix_queries_total")),
)


def fleet_metrics(snapshot: FleetSnapshot) -> Iterator[Metric]:
    """Families for everything the snapshot knows. A value the engine did not report is absent, never zero."""
    yield GaugeMetricFamily("headway_replicas", "Registered replicas.", value=len(snapshot.views))
    yield GaugeMetricFamily("headway_queued_requests", "Requests held by Headway.", value=snapshot.queued)
    yield GaugeMetricFamily("headway_in_flight_attempts", "Unsettled attempts.", value=snapshot.in_flight)
    yield GaugeMetricFamily(
        "headway_panic", "1 when too many replicas are ejected to respect it.", value=snapshot.panic
    )
    stale = sum(view.stale for view in snapshot.views)
    yield GaugeMetricFamily("headway_stale_endpoints", "Replicas whose load report is too old.", value=stale)
    yield _info(snapshot)
    yield _breakers(snapshot)
    for name, documentation, read in GAUGES:
        gauge = GaugeMetricFamily(f"headway_replica_{name}", documentation, labels=("replica",))
        yield _fill(gauge, snapshot, read)
    for name, documentation, read in COUNTERS:
        counter = CounterMetricFamily(f"headway_replica_{name}", documentation, labels=("replica",))
        yield _fill(counter, snapshot, read)


def _fill(family: GaugeMetricFamily | CounterMetricFamily, snapshot: FleetSnapshot, read: Read) -> Metric:
    for view in snapshot.views:
        value = read(view)
        if value is not None:
            family.add_metric((view.spec.id,), value)
    return family


def _info(snapshot: FleetSnapshot) -> Metric:
    labels = ("replica", "url", "engine", "model", "version", "precision", "gpu")
    info = GaugeMetricFamily("headway_replica_info", "What is known about a replica.", labels=labels)
    for view in snapshot.views:
        spec = view.spec
        info.add_metric((spec.id, spec.url, spec.engine, spec.model, spec.version, spec.precision, spec.gpu), 1)
    return info


def _breakers(snapshot: FleetSnapshot) -> Metric:
    family = GaugeMetricFamily("headway_replica_breaker", "1 for the breaker's state.", labels=("replica", "state"))
    for view in snapshot.views:
        for state in Breaker:
            family.add_metric((view.spec.id, state.value), float(view.breaker is state))
    return family
