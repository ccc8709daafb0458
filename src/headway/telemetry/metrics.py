"""Counters of requests, attempts and decisions, rendered as Prometheus text when a scrape asks.

The calls on the per-request path (`started`, `access`, `record`) only add plain numbers. Gauges of replicas are read
from the snapshot that the scrape hands in, so they are never stale.
"""

from collections.abc import Callable
from typing import Final

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest

from headway.core.commands import HealthChanged, LevelChanged, Moved, Recorded, Settled
from headway.core.decision import Decision
from headway.core.outcome import OutcomeKind
from headway.core.snapshot import FleetSnapshot
from headway.telemetry.access import ACCOUNTS, Access
from headway.telemetry.decisions import DecisionLog
from headway.telemetry.exposition import Page
from headway.telemetry.families import (
    attempt_metrics,
    build_info,
    counted,
    forecast_metrics,
    model_metrics,
    single,
    tenant_metrics,
)
from headway.telemetry.fleet import fleet_metrics
from headway.telemetry.forecasts import Forecasts
from headway.telemetry.health import HealthNews, tell_of_level
from headway.telemetry.moves import Moves
from headway.telemetry.tally import Counter, ModelTally, ReplicaTally, RequestTally, Table, TenantTally, others


class Telemetry:
    """Counts what the body and the brain report. One per process, used on one thread. `tenants` are those that get
    a label of their own; all others share one."""

    def __init__(
        self, decisions: DecisionLog | None = None, access_log: Callable[[Access], None] | None = None
    ) -> None:
        self.decisions = decisions if decisions is not None else DecisionLog()
        self.requests_started = 0
        self._news = HealthNews()
        self.decided = 0
        self._access_log = access_log
        self._models: Table[ModelTally] = Table(lambda _: ModelTally(), limit=256)
        self._requests: Table[RequestTally] = Table(self._request_tally, fold=_keep_account)
        self._replicas: Table[ReplicaTally] = Table(lambda _: ReplicaTally())
        self._exclusions: Table[Counter] = Table(lambda _: Counter(), limit=64)
        self._health: Table[Counter] = Table(lambda _: Counter())
        self._levels: Table[Counter] = Table(lambda _: Counter())
        self._sheds: Table[Counter] = Table(lambda _: Counter(), limit=64)
        self.forecasts = Forecasts()
        self.moves = Moves()
        self._tenants: Table[TenantTally] = Table(lambda _: TenantTally(), limit=256)
        self.tenants: frozenset[str] = frozenset()
        self._watched: list[tuple[str, str, str, Callable[[], float]]] = []
        self._process = CollectorRegistry(auto_describe=False)
        self._process.register(ProcessCollector(registry=None))

    def started(self) -> None:
        """A request's first byte arrived; exactly one `access` follows."""
        self.requests_started += 1

    def access(self, access: Access) -> None:
        """A request ended."""
        tally = self._requests[access.path, access.model, _STATUS.get(access.status, "other"), access.account]
        tally.value += 1
        if access.account == "shed":
            self._sheds[access.code,].value += 1
        tally.model.ended(access)
        if access.tenant:
            self._tenants[access.tenant if access.tenant in self.tenants else "other",].ended(access)
        if access.client_request_id:
            self.decisions.named((access.client_request_id, access.request_id))
        if self._access_log is not None:
            self._access_log(access)

    def record(self, entry: Recorded) -> None:
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
            self._news.tell(entry)
        elif type(entry) is LevelChanged:
            self._levels[entry.model, str(entry.level)].value += 1
            tell_of_level(entry)
        elif type(entry) is Moved:
            self.decisions.moved(entry)
            self.moves.moved(entry)

    def watch(self, name: str, documentation: str, read: Callable[[], float]) -> None:
        """Export a number that is read at each scrape; a counter if its name ends in `_total`, else a gauge."""
        kind = "counter" if name.endswith("_total") else "gauge"
        self._watched.append((name, kind, documentation, read))

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
        if snapshot is not None:
            known = {view.spec.id for view in snapshot.views}
            self._news.keep(known)
            for labels in [labels for labels in self._replicas if labels[0] not in known]:
                del self._replicas[labels]
        page = Page()
        self._fill(page, snapshot)
        own: bytes = generate_latest(self._process)
        return page.text() + own

    def _request_tally(self, labels: tuple[str, ...]) -> RequestTally:
        return RequestTally(self._models[labels[1],])

    def _settle(self, entry: Settled) -> None:
        tally = self._replicas[entry.replica_id,]
        kind = entry.outcome.kind
        if kind is OK:
            tally.ok += 1
        else:
            tally.others[kind] = tally.others.get(kind, 0) + 1
        self.forecasts.settled(entry)

    def _fill(self, page: Page, snapshot: FleetSnapshot | None) -> None:
        build_info(page)
        single(page, "headway_requests_started_total", "counter", "Requests received.", self.requests_started)
        counted(page, "headway_requests_total", "Requests ended.", REQUEST_LABELS, self._requests)
        single(page, "headway_decisions_total", "counter", "Routing decisions.", self.decided)
        counted(page, "headway_exclusions_total", "Replicas left out of decisions.", ("reason",), self._exclusions)
        counted(page, "headway_health_changes_total", "Breaker and panic changes.", ("replica", "state"), self._health)
        counted(page, "headway_level_changes_total", "Levels of degradation entered.", ("model", "level"), self._levels)
        counted(page, "headway_shed_requests_total", "Requests refused for overload.", ("reason",), self._sheds)
        model_metrics(page, self._models)
        tenant_metrics(page, self._tenants)
        attempt_metrics(page, self._replicas)
        forecast_metrics(page, self.forecasts)
        self.moves.fill(page)
        for name, kind, documentation, read in self._watched:
            single(page, name, kind, documentation, read())
        if snapshot is not None:
            fleet_metrics(page, snapshot)


OK: Final = OutcomeKind.OK  # by the class it takes 0.1 us to get at a member
REQUEST_LABELS: Final = ("path", "model", "status", "account")


def _keep_account(labels: tuple[str, ...]) -> tuple[str, ...]:
    return (*others(labels[:-1]), labels[-1])


def _status_labels() -> dict[int, str]:
    known = {200, 201, 204, 400, 401, 403, 404, 405, 408, 409, 413, 414, 415, 422, 424, 429, 431}
    known |= {499, 500, 501, 502, 503, 504, 505}
    return {0: "none"} | {code: str(code) if code in known else f"{code // 100}xx" for code in range(100, 600)}


_STATUS: Final = _status_labels()
"""Statuses that engines and Headway use; an engine that answers anything else is counted by class ("5xx")."""
