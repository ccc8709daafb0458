"""What rooms know of themselves, exported with the metrics: read at a scrape, never pushed."""

import asyncio
from collections.abc import Callable

from headway.compose.certificates import CertificateWatch
from headway.compose.clients import Clients, KeyWatch
from headway.gateway.batching import Batcher
from headway.gateway.plane import Plane
from headway.observe import Observer
from headway.telemetry import Telemetry

OBSERVED = (
    ("scrapes_total", "Load reports asked for."),
    ("scrape_failures_total", "Load reports that did not come or could not be read."),
    ("probes_total", "Health probes."),
    ("probe_failures_total", "Health probes that failed."),
    ("alarms_total", "Conditions of load reports worth a look, as logged."),
    ("missing_gauges", "Gauges that engines ought to report and do not."),
    ("frozen", "Replicas whose load report does not change any more."),
)


def watch_observer(telemetry: Telemetry, observer: Observer) -> None:
    """Counts of scrapes, probes and alarms."""
    for field, documentation in OBSERVED:
        telemetry.watch(f"headway_{field}", documentation, _field(observer, field))


def watch_plane(telemetry: Telemetry, plane: Plane) -> None:
    """Connections and memory of the data plane."""
    telemetry.watch("headway_client_connections", "Open client connections.", lambda: len(plane.connections))
    refused = "Client connections closed at once, because limits.max_connections were open."
    telemetry.watch("headway_connections_refused_total", refused, lambda: plane.turned_away)
    lost = "Requests the brain owed an answer: each is a fault of Headway's."
    telemetry.watch("headway_unanswered_requests_total", lost, lambda: plane.unanswered)
    telemetry.watch("headway_buffered_body_bytes", "Request bodies held in memory.", lambda: plane.body_bytes)
    if plane.batcher is not None:
        watch_batcher(telemetry, plane.batcher)
    telemetry.watch("headway_tasks", "Tasks of the event loop.", lambda: len(asyncio.all_tasks()))


def watch_batcher(telemetry: Telemetry, batcher: Batcher) -> None:
    """What micro-batching does."""
    telemetry.watch("headway_merged_calls_total", "Upstream calls for several requests.", lambda: batcher.calls)
    telemetry.watch("headway_merged_requests_total", "Requests in them.", lambda: batcher.riders)
    again = "Requests that were sent again by themselves, for their call came to nothing."
    telemetry.watch("headway_scattered_requests_total", again, lambda: batcher.scattered)


def watch_clients(telemetry: Telemetry, clients: Clients, watch: KeyWatch) -> None:
    """Keys in force, and files of keys that were not taken."""
    telemetry.watch("headway_api_keys", "API keys that are good.", lambda: clients.good_keys)
    failed = "Versions of the file of keys that could not be used; those read before stay good."
    telemetry.watch("headway_key_reload_failures_total", failed, lambda: watch.failures)


def watch_certificates(telemetry: Telemetry, watch: CertificateWatch) -> None:
    """Renewals that failed: a certificate that is not renewed will end."""
    failed = "Renewed certificates that could not be used; the ones from before stay in use."
    telemetry.watch("headway_certificate_reload_failures_total", failed, lambda: watch.failures)


def _field(observer: Observer, field: str) -> Callable[[], float]:
    return lambda: float(getattr(observer.counts(), field))
