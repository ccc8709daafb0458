"""What observation knows about itself, for the admin page and for gauges of telemetry."""

import msgspec

from headway.core.ids import ReplicaId


class ReplicaStatus(msgspec.Struct, frozen=True):
    """One replica as observed. `sample_age_s` is None before the first report, or if the engine has none.

    `missing` are gauges the last report lacked; `error` is why the last scrape gave nothing, empty if it did;
    `health` is "unknown", "ok" or the reason of the last failed probe. `boots` counts starts of the engine seen.
    """

    id: ReplicaId
    url: str
    engine: str
    sample_age_s: float | None
    interval_s: float
    scrape_ms: float
    scrapes: int
    failures: int
    error: str
    missing: tuple[str, ...]
    frozen: bool
    boots: int
    rejections_total: int | None
    health: str
    probes: int


class ObserverCounts(msgspec.Struct, frozen=True):
    """Totals over the life of the observer, and what is wrong now (`missing_gauges`, `frozen`, `stale`: replicas or
    gauges now; a replica is stale when it has a load report and the last sample is older than six intervals)."""

    replicas: int
    scrapes_total: int
    scrape_failures_total: int
    probes_total: int
    probe_failures_total: int
    alarms_total: int
    missing_gauges: int
    frozen: int
    stale: int
