"""Seconds to drain by polled load, as SMG counts them."""

import random

import pytest

from headway.core.ids import ReplicaId
from headway.core.replica import LoadSample
from headway.core.view import ReplicaView
from headway.policies.least_load import LeastLoad, LeastLoadConfig
from tests.policies.fleet import demand, view

A = ReplicaId("a")


def at(time: float, name: str = "a", dispatched: float = 0.0, in_flight: int = 0, **gauges: object) -> ReplicaView:
    """A view whose report was taken at `time`."""
    sample = LoadSample(ReplicaId(name), time, **gauges)  # type: ignore[arg-type]
    return view(name, sample=sample, dispatched_tokens=dispatched, in_flight=in_flight)


def rows(policy: LeastLoad, now: float, *views: ReplicaView) -> list[tuple[float, ...]]:
    return list(policy.costs(demand(), views, now, random.Random(0)))


def test_waiting_requests_drain_at_the_default_rate() -> None:
    policy = LeastLoad(LeastLoadConfig())
    for moment, said in ((0.0, 0), (10.0, 5000)):
        (row,) = rows(policy, moment, at(moment, waiting=4, generated_tokens_total=said))
        assert row[1] == pytest.approx(4 * 1024 / 2000)


def test_a_live_rate_is_taken_if_wanted() -> None:
    policy = LeastLoad(LeastLoadConfig(live_throughput=True))
    (row,) = rows(policy, 0.0, at(0.0, waiting=4, generated_tokens_total=0))
    assert row == pytest.approx((4 * 1024 / 2000, 4 * 1024 / 2000, 0.0))
    (row,) = rows(policy, 10.0, at(10.0, waiting=4, generated_tokens_total=5000))
    assert row[1] == pytest.approx(4 * 1024 / 500)
    (row,) = rows(policy, 20.0, at(20.0, waiting=4, generated_tokens_total=5000))
    assert row[1] == pytest.approx(4 * 1024 / 2000), "an idle engine shows no rate"


def test_the_barrier_is_k_over_1_minus_k() -> None:
    (half,) = rows(LeastLoad(LeastLoadConfig()), 0.0, at(0.0, kv_usage=0.5))
    assert half == pytest.approx((0.15, 0.0, 0.15))
    (full,) = rows(LeastLoad(LeastLoadConfig()), 0.0, at(0.0, kv_usage=1.0))
    assert full[2] == pytest.approx(0.15 * 999)


def test_reports_between_polls_are_not_looked_at() -> None:
    policy = LeastLoad(LeastLoadConfig())
    rows(policy, 0.0, at(0.0, waiting=0))
    assert rows(policy, 9.0, at(9.0, waiting=50))[0][1] == 0.0
    assert rows(policy, 10.0, at(9.9, waiting=50))[0][1] > 0.0
    eager = LeastLoad(LeastLoadConfig(poll_interval_s=0.0))
    rows(eager, 0.0, at(0.0, waiting=0))
    assert rows(eager, 0.5, at(0.5, waiting=50))[0][1] > 0.0


def test_what_was_sent_since_the_poll_counts_until_the_next() -> None:
    policy = LeastLoad(LeastLoadConfig())
    old = at(0.0)
    rows(policy, 0.0, old)
    policy.sent(demand(3000), A, 1.0)
    policy.ended(demand(3000).request, A)
    assert rows(policy, 2.0, old)[0][1] == pytest.approx(3000 / 2000)
    assert rows(policy, 10.0, at(9.5))[0][1] == 0.0


def test_what_was_sent_while_the_report_travelled_counts() -> None:
    assert rows(LeastLoad(LeastLoadConfig()), 0.5, at(0.0, dispatched=2000.0))[0][1] == pytest.approx(1.0)


def test_who_does_not_report_is_as_good_as_the_best_plus_its_own() -> None:
    policy = LeastLoad(LeastLoadConfig())
    silent = view("c", sample_age_s=-1.0, stale=True, in_flight=2)
    costs = [row[0] for row in rows(policy, 0.0, at(0.0, "a", waiting=9), at(0.0, "b", waiting=1), silent)]
    assert costs[1] < costs[2] < costs[0]
    assert costs[2] == pytest.approx(costs[1] + 2 * 1024 / 2000)


def test_where_nobody_reports_requests_in_flight_decide() -> None:
    dark = [view(name, sample_age_s=-1.0, stale=True, in_flight=n) for name, n in (("a", 5), ("b", 2))]
    assert [row[0] for row in rows(LeastLoad(LeastLoadConfig()), 0.0, *dark)] == [5.0, 2.0]


def test_a_stale_report_is_no_report_and_a_new_one_starts_afresh() -> None:
    policy = LeastLoad(LeastLoadConfig())
    rows(policy, 0.0, at(0.0, waiting=9))
    policy.sent(demand(3000), A, 0.0)
    assert rows(policy, 1.0, view("a", stale=True, in_flight=3))[0] == (3.0, 0.0, 0.0)
    assert rows(policy, 2.0, at(2.0, waiting=1))[0][1] == pytest.approx(1024 / 2000)
