"""Counters of requests, attempts and decisions, rendered as Prometheus text when a scrape asks.

The calls on the per-request path (`started`, `access`, `record`) only add plain numbers; prometheus_client is used
for the text alone. Gauges of replicas are read from the snapshot that the scrape hands in, so they are never stale.
"""

from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry, PlatformCollector, ProcessCollector, generate_latest
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from headway.core.commands import HealthChanged, Settled
from headway.core.outcome import OutcomeKind
from headway.core.view import Decision, FleetSnapshot
from headway.telemetry.access import ACCOUNTS, Access
from headway.telemetry.decisions import DecisionLog
from headway.telemetry.families import build_info, counted, gauge, model_metrics, replica_metrics, single
from headway.telemetry.fleet import fleet_metrics
from headway.telemetry.tally import Counter, ModelTally, ReplicaTally, RequestTally, Table, others


class Telemetry:
    """Counts what the body and the brain report. One per process, used on one thread."""

    def __init__(
        self, decisions: DecisionLog | None = None, access_log: Callable[[Access], None] | None = None
    ) -> None:
        self.decisions = decisions if decisions is not None else DecisionLog()
        self.requests_started = 0
        self.decided = 0
        self._access_log = access_log
        self._models: Table[ModelTally] = Table(lambda _: ModelTally(), limit=256)
        self._requests: Table[RequestTally] = Table(self._request_tally, fold=_keep_account)
        self._replicas: Table[ReplicaTally] = Table(lambda _: ReplicaTally())
        self._exclusions: Table[Counter] = Table(lambda _: Counter(), limit=64)
        self._health: Table[Counter] = Table(lambda _: Counter())
        self._alarms: Table[Counter] = Table(lambda _: Counter())
        self._watched: list[tuple[str, str, Callable[[], float]]] = []
        self._snapshot: FleetSnapshot | None = None
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(ProcessCollector(registry=None))
        self._registry.register(PlatformCollector(registry=None))
        self._registry.register(_Families(self._families))

    def started(self) -> None:
        """A request's first byte arrived; exactly one `access` follows."""
        self.requests_started += 1

    def access(self, access: Access) -> None:
        """A request ended."""
        tally = self._requests[access.path, access.model, _STATUS.get(access.status, "other"), access.account]
        tally.value += 1
        model = tally.model
        model.duration.observe(access.duration_s)
        model.bytes_in += access.bytes_in
        model.bytes_out += access.bytes_out
        if access.attempts:
            model.attempted(access)
        if self._access_log is not None:
            self._access_log(access)

    def record(self, entry: Decision | Settled | HealthChanged) -> None:
        """The brain recorded something."""
        if type(entry) is Decision:
            self.decisions.decided(entry)
            self.decided += 1
            if entry.exclusions:
                for reason, count in entry.exclusions.items():
                    self._exclusions[reason,].value += count
        elif type(entry) is Settled:
            self.decisions.settled(entry)
            self._settle(entry)
        elif type(entry) is HealthChanged:
            self._health[entry.replica_id, entry.state].value += 1

    def alarm(self, kind: str, replica: str = "") -> None:
        """Something is wrong that an operator should see (a missing gauge, a frozen page). `kind` is a stable word."""
        self._alarms[kind, replica].value += 1

    def watch(self, name: str, documentation: str, read: Callable[[], float]) -> None:
        """Export a gauge that is read at each scrape."""
        self._watched.append((name, documentation, read))

    @property
    def accounts(self) -> dict[str, int]:
        """How many ended requests are booked under each account."""
        sums: dict[str, int] = dict.fromkeys(ACCOUNTS, 0)
        for labels, tally in self._requests.items():
            sums[labels[3]] += tally.value
        return sums

    @property
    def balanced(self) -> bool:
        """Whether every request that was started is booked: true whenever nothing is in flight."""
        return self.requests_started == sum(self.accounts.values())

    def render(self, snapshot: FleetSnapshot | None = None) -> bytes:
        """The page for a Prometheus scrape (text format 0.0.4). Tallies of replicas that left are dropped."""
        self._snapshot = snapshot
        if snapshot is not None:
            known = {view.spec.id for view in snapshot.views}
            for labels in [labels for labels in self._replicas if labels[0] not in known]:
                del self._replicas[labels]
        page: bytes = generate_latest(self._registry)
        return page

    def _request_tally(self, labels: tuple[str, ...]) -> RequestTally:
        return RequestTally(self._models[labels[1],])

    def _settle(self, entry: Settled) -> None:
        tally = self._replicas[entry.replica_id,]
        outcome = entry.outcome
        if outcome.kind is OutcomeKind.OK:
            tally.ok += 1
        else:
            tally.others[outcome.kind] = tally.others.get(outcome.kind, 0) + 1
        if entry.ttft_s is not None and entry.forecast_ttft_s > 0.0:
            tally.ttft_ratio.observe(entry.ttft_s / entry.forecast_ttft_s)
        if outcome.output_tokens and entry.forecast_output_tokens > 0.0:
            tally.output_ratio.observe(outcome.output_tokens / entry.forecast_output_tokens)

    def _families(self) -> Iterator[Metric]:
        yield build_info()
        yield single("headway_requests_started", "Requests received.", self.requests_started)
        yield counted("headway_requests", "Requests ended.", ("path", "model", "status", "account"), self._requests)
        yield single("headway_decisions", "Routing decisions.", self.decided)
        yield counted("headway_exclusions", "Replicas excluded from decisions.", ("reason",), self._exclusions)
        yield counted("headway_health_changes", "Breaker and panic changes.", ("replica", "state"), self._health)
        yield counted("headway_alarms", "Load reports that cannot be trusted.", ("kind", "replica"), self._alarms)
        yield from model_metrics(self._models)
        yield from replica_metrics(self._replicas)
        for name, documentation, read in self._watched:
            yield gauge(name, documentation, read())
        if self._snapshot is not None:
            yield from fleet_metrics(self._snapshot)


class _Families(Collector):
    """Lets prometheus_client call back for the families."""

    def __init__(self, families: Callable[[], Iterator[Metric]]) -> None:
        self._families = families

    def collect(self) -> Iterator[Metric]:
        return self._families()


def _keep_account(labels: tuple[str, ...]) -> tuple[str, ...]:
    return (*others(labels[:-1]), labels[-1])


def _status_labels() -> dict[int, str]:
    known = {200, 201, 204, 400, 401, 403, 404, 405, 408, 409, 413, 414, 415, 422, 424, 429, 431}
    known |= {499, 500, 501, 502, 503, 504, 505}
    return {0: "none"} | {code: str(code) if code in known else f"{code // 100}xx" for code in range(100, 600)}


_STATUS = _status_labels()
"""Statuses that engines and Headway use; an engine that answers anything else is counted by class ("5xx")."""
