import math

from prometheus_client.parser import text_string_to_metric_families

from headway.core.commands import HealthChanged, LevelChanged
from headway.core.ids import ReplicaId
from headway.core.outcome import OutcomeKind
from headway.core.replica import LoadSample
from headway.core.snapshot import FleetSnapshot, PoolState
from headway.core.view import Breaker
from headway.telemetry import Access, Telemetry
from tests.telemetry.values import access, decision, settled, snapshot, view

Series = dict[tuple[str, frozenset[tuple[str, str]]], float]


def series(telemetry: Telemetry, fleet: FleetSnapshot | None = None) -> Series:
    page = telemetry.render(fleet).decode()
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
    }


def at(name: str, **labels: str) -> tuple[str, frozenset[tuple[str, str]]]:
    return name, frozenset(labels.items())


def test_accounts_balance() -> None:
    telemetry = Telemetry()
    for account in ("ok", "client_error", "server_error", "client_closed", "shed"):
        telemetry.started()
        assert not telemetry.balanced
        telemetry.access(access(account=account))
    assert telemetry.balanced
    assert telemetry.accounts == dict.fromkeys(telemetry.accounts, 1)


def test_a_request_is_counted_once_everywhere() -> None:
    telemetry = Telemetry()
    telemetry.started()
    telemetry.record(decision(exclusions={"stale": 2}))
    telemetry.record(settled())
    telemetry.access(access(attempts=2))
    got = series(telemetry)
    labels = {"path": "/v1/chat/completions", "model": "m", "status": "200", "account": "ok"}
    assert got[at("headway_requests_started_total")] == 1
    assert got[at("headway_requests_total", **labels)] == 1
    assert got[at("headway_decisions_total")] == 1
    assert got[at("headway_exclusions_total", reason="stale")] == 2
    assert got[at("headway_attempts_total", replica="a", outcome="ok")] == 1
    assert got[at("headway_retries_total", model="m")] == 1
    assert got[at("headway_output_tokens_total", model="m")] == 10
    assert got[at("headway_time_to_first_token_seconds_bucket", model="m", le="0.025")] == 1
    assert got[at("headway_request_duration_seconds_sum", model="m")] == 0.3
    assert got[at("headway_ttft_forecast_ratio_bucket", le="1.1")] == 0
    assert got[at("headway_ttft_forecast_ratio_bucket", le="1.25")] == 1


def test_refused_requests_have_no_tokens_and_no_ttft() -> None:
    telemetry = Telemetry()
    telemetry.access(access(attempts=0, ttft_s=None, account="shed", status=503, code="queue_full"))
    got = series(telemetry)
    assert got[at("headway_time_to_first_token_seconds_count", model="m")] == 0
    assert got[at("headway_output_tokens_total", model="m")] == 0
    assert got[at("headway_request_duration_seconds_count", model="m")] == 1


def test_health_changes() -> None:
    telemetry = Telemetry()
    telemetry.record(HealthChanged(1.0, ReplicaId("a"), "open", "5 failures"))
    got = series(telemetry)
    assert got[at("headway_health_changes_total", replica="a", state="open")] == 1


def test_outcomes_are_told_apart() -> None:
    telemetry = Telemetry()
    telemetry.record(settled(kind=OutcomeKind.RESET))
    telemetry.record(settled(kind=OutcomeKind.RESET))
    telemetry.record(settled(kind=OutcomeKind.OK))
    got = series(telemetry)
    assert got[at("headway_attempts_total", replica="a", outcome="reset")] == 2
    assert got[at("headway_attempts_total", replica="a", outcome="ok")] == 1


def test_tenants_of_the_settings_have_a_label_and_others_share_one() -> None:
    telemetry = Telemetry()
    telemetry.tenants = frozenset({"ann"})
    for tenant, account in (("ann", "ok"), ("ann", "ok"), ("ann", "shed"), ("new", "ok"), ("newer", "ok"), ("", "ok")):
        telemetry.access(access(tenant=tenant, account=account))
    got = {key: value for key, value in series(telemetry).items() if key[0].startswith("headway_tenant")}
    assert got == {
        at("headway_tenant_requests_total", tenant="ann", account="ok"): 2,
        at("headway_tenant_requests_total", tenant="ann", account="shed"): 1,
        at("headway_tenant_requests_total", tenant="other", account="ok"): 2,
        at("headway_tenant_tokens_total", tenant="ann", kind="prompt"): 300,
        at("headway_tenant_tokens_total", tenant="ann", kind="output"): 30,
        at("headway_tenant_tokens_total", tenant="other", kind="prompt"): 200,
        at("headway_tenant_tokens_total", tenant="other", kind="output"): 20,
    }


def test_series_stay_bounded_whatever_clients_and_engines_do() -> None:
    """B10, cases 127 and 128: even if the folding of names upstream of us failed."""
    telemetry = Telemetry()
    for number in range(3000):
        telemetry.access(access(model=f"m{number}", path=f"/{number}", status=number % 1000))
        telemetry.record(settled(replica=f"a{number}"))
    size = len(telemetry.render())
    for number in range(3000, 8_000):
        telemetry.access(access(model=f"m{number}", path=f"/{number}", status=number % 1000))
        telemetry.record(settled(replica=f"a{number}"))
    assert len(telemetry.render()) < size * 1.05
    assert sum(telemetry.accounts.values()) == 8_000


def test_odd_statuses_fold_into_classes() -> None:
    telemetry = Telemetry()
    for status in range(1000):
        telemetry.access(access(status=status))
    statuses = {dict(labels)["status"] for name, labels in series(telemetry) if name == "headway_requests_total"}
    assert len(statuses) < 35
    assert {"200", "503", "2xx", "5xx", "other", "none"} <= statuses


def test_models_say_how_they_fare() -> None:
    telemetry = Telemetry()
    for level in (2, 1, 2, 0):
        telemetry.record(LevelChanged(1.0, "m", level, False, 0.9))
    for code in ("shed", "queue_full", "shed"):
        telemetry.access(access(account="shed", status=503, code=code))
    telemetry.access(access(account="server_error", status=503, code="no_replica"))
    pools = (PoolState("m", 3, 2, True, 0.97, 4.85), PoolState("n", 0, 0, False, 0.1, 0.0))
    got = series(telemetry, snapshot(view("a"), pools=pools))
    assert got[at("headway_degradation_level", model="m")] == 2
    assert got[at("headway_burst", model="m")] == 1
    assert got[at("headway_saturation_ratio", model="m")] == 0.97
    assert got[at("headway_expected_wait_seconds", model="m")] == 4.85
    assert got[at("headway_model_queued_requests", model="m")] == 3
    assert got[at("headway_degradation_level", model="n")] == 0
    assert got[at("headway_level_changes_total", model="m", level="2")] == 2
    assert got[at("headway_shed_requests_total", reason="shed")] == 2
    assert got[at("headway_shed_requests_total", reason="queue_full")] == 1
    assert at("headway_shed_requests_total", reason="no_replica") not in got


def test_gauges_of_replicas_come_from_the_snapshot() -> None:
    sample = LoadSample(ReplicaId("a"), 9.7, running=2, preemptions_total=7)
    got = series(Telemetry(), snapshot(view("a", sample), view("b", breaker=Breaker.OPEN, stale=True), panic=True))
    assert got[at("headway_replica_headroom_tokens", replica="a")] == 90_000
    assert got[at("headway_replica_in_flight", replica="a")] == 2
    assert got[at("headway_replica_sample_age_seconds", replica="a")] == 0.3
    assert got[at("headway_replica_preemptions_total", replica="a")] == 7
    assert got[at("headway_replica_breaker", replica="b", state="open")] == 1
    assert got[at("headway_replica_breaker", replica="b", state="closed")] == 0
    assert got[at("headway_stale_endpoints")] == 1
    assert got[at("headway_panic")] == 1
    assert got[at("headway_queued_requests")] == 3


def test_what_an_engine_does_not_say_is_absent_and_not_zero() -> None:
    got = series(Telemetry(), snapshot(view("a", kv_capacity_tokens=0)))
    names = {name for name, labels in got if ("replica", "a") in labels}
    assert "headway_replica_sample_age_seconds" not in names
    assert "headway_replica_kv_capacity_tokens" not in names
    assert "headway_replica_preemptions_total" not in names


def test_tallies_of_replicas_that_left_are_dropped() -> None:
    telemetry = Telemetry()
    telemetry.record(settled(replica="gone"))
    telemetry.record(settled(replica="a"))
    got = series(telemetry, snapshot(view("a")))
    assert {dict(labels)["replica"] for name, labels in got if name == "headway_attempts_total"} == {"a"}


def test_watched_gauges_are_read_at_the_scrape() -> None:
    telemetry = Telemetry()
    value = [1.0]
    telemetry.watch("headway_open_connections", "Connections.", lambda: value[0])
    assert series(telemetry)[at("headway_open_connections")] == 1.0
    value[0] = 5.0
    assert series(telemetry)[at("headway_open_connections")] == 5.0


def test_watched_totals_are_counters() -> None:
    telemetry = Telemetry()
    telemetry.watch("headway_scrapes_total", "Load reports asked for.", lambda: 5)
    assert "# TYPE headway_scrapes_total counter" in telemetry.render().decode()


def test_process_metrics_are_there() -> None:
    got = series(Telemetry())
    assert got[at("process_open_fds")] > 0
    assert not math.isnan(got[at("process_resident_memory_bytes")])


def test_the_access_log_gets_every_request() -> None:
    seen: list[Access] = []
    telemetry = Telemetry(access_log=seen.append)
    one = access()
    telemetry.access(one)
    assert seen == [one]
