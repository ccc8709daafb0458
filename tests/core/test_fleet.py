"""Reports are compared with the ledger, never taken at their word; views tell the result."""

import math

import pytest

from headway.core.commands import Command
from headway.core.constants import FleetConfig
from headway.core.entry import Entry
from headway.core.fleet import Fleet
from headway.core.ids import AttemptId, ReplicaId
from headway.core.memory import HORIZONS
from headway.core.outcome import Outcome, OutcomeKind
from headway.core.replica import LoadSample
from headway.core.standing import Replica
from headway.core.view import Breaker, ReplicaView
from tests.core.house import BY_HAND, demand, outlook, request, spec
from tests.interpreted import interpreted

A = ReplicaId("a")
OUTLOOK = outlook(1.0)


class Yard:
    """A fleet of one replica, and its clock."""

    def __init__(self, config: FleetConfig | None = None, **facts: object) -> None:
        self.fleet = Fleet(config, BY_HAND)
        self.now = 10.0
        self.out: list[Command] = []
        self.replica: Replica = self.fleet.upsert(spec("a", **facts), self.now, False, self.out)
        self.epoch = 0

    def open(self, name: str, prompt: int = 100, hit: int = 0, stream: bool = True, **facts: object) -> Entry:
        asked = request(name, stream=stream, **facts)
        part = OUTLOOK.share(float(prompt))
        entry = Entry(AttemptId(name), asked, A, prompt, hit, hit, 50, 0, part, self.now, self.now, 0.1, demand(asked))
        self.fleet.opened(self.replica, entry, self.now)
        return entry

    def first(self, name: str) -> None:
        entry = self.fleet.ledger.first_token(AttemptId(name), self.now)
        assert entry is not None
        self.fleet.first_token(entry, self.now)

    def grow(self, name: str, count: int) -> None:
        for replica_id in self.fleet.ledger.progress([(AttemptId(name), count)], self.now):
            self.fleet.progressed(replica_id, self.now)

    def settle(self, name: str, outcome: Outcome | None = None) -> None:
        entry = self.fleet.ledger.settle(AttemptId(name), self.now)
        assert entry is not None
        self.fleet.settled(entry, outcome or Outcome(OutcomeKind.OK, 200), self.now)

    def report(self, **gauges: object) -> bool:
        self.epoch += 1
        gauges.setdefault("taken_at", self.now)
        gauges.setdefault("epoch", self.epoch)
        return self.fleet.sample(LoadSample(A, **gauges), self.now) is not None  # type: ignore[arg-type]

    @property
    def view(self) -> ReplicaView:
        self.fleet.take_changed(self.now)
        assert self.replica.view is not None
        return self.replica.view


def test_without_reports_the_ledger_alone_is_used() -> None:
    yard = Yard(metrics=False)
    view = yard.view
    assert (view.sample, view.sample_age_s, view.stale) == (None, -1.0, True)
    assert (view.kv_capacity_tokens, view.headroom_tokens, view.headroom_sigma) == (0, math.inf, 0.0)
    yard.open("r-0", prompt=100, hit=40)
    assert (yard.view.in_flight, yard.view.running, yard.view.prefill_backlog_tokens) == (1, 1.0, 60.0)
    yard.first("r-0")
    assert (yard.view.kv_used_tokens, yard.view.prefill_backlog_tokens) == (100.0, 0.0)
    assert yard.view.growth_tokens_per_s > 0.0
    yard.settle("r-0")
    assert (yard.view.kv_used_tokens, yard.view.in_flight, yard.view.growth_tokens_per_s) == (0.0, 0, 0.0)


def test_a_configured_pool_gives_headroom_without_reports() -> None:
    yard = Yard(metrics=False, kv_capacity_tokens=1000)
    yard.open("r-0", prompt=100)
    assert yard.view.headroom_tokens == pytest.approx(990.0 - 100.0)


def test_a_report_of_our_own_load_adds_nothing() -> None:
    yard = Yard()
    yard.open("r-0", prompt=100)
    yard.first("r-0")
    yard.now += 1.0
    yard.report(kv_capacity_tokens=1000, kv_used_tokens=100, running=1, waiting=0)
    view = yard.view
    assert (view.kv_used_tokens, view.running, view.waiting, view.stale) == (100.0, 1.0, 0.0, False)
    assert (view.kv_capacity_tokens, view.sample_age_s) == (1000, 0.0)


def test_what_others_use_is_added_and_kept_between_reports() -> None:
    yard = Yard()
    yard.open("r-0", prompt=100)
    yard.first("r-0")
    yard.now += 0.1
    yard.report(kv_capacity_tokens=1000, kv_used_tokens=400, running=3, waiting=0)
    yard.open("s-0", prompt=50)
    yard.first("s-0")
    view = yard.view
    assert (view.kv_used_tokens, view.running) == (450.0, 4.0)
    assert view.dispatched_tokens == 50.0
    yard.settle("r-0")
    assert (yard.view.kv_used_tokens, yard.view.running) == (350.0, 3.0)


def test_a_report_is_compared_with_what_was_true_when_it_was_asked_for() -> None:
    """Two requests started while the report was under way: they are not in it, and not subtracted either."""
    yard = Yard()
    asked_at = yard.now
    yard.now += 0.05
    for name in ("r-0", "s-0"):
        yard.open(name, prompt=100)
        yard.first(name)
    yard.now += 0.05
    yard.report(taken_at=asked_at, kv_capacity_tokens=1000, kv_used_tokens=0, running=0, waiting=0)
    view = yard.view
    assert (view.kv_used_tokens, view.running, view.dispatched_tokens) == (200.0, 2.0, 200.0)


def test_gauges_stuck_at_zero_are_not_believed() -> None:
    """vLLM reports zeros for up to 18 s after a cold start."""
    yard = Yard()
    for name in ("r-0", "s-0"):
        yard.open(name, prompt=100)
        yard.first(name)
    for _ in range(8):
        yard.now += 0.5
        yard.report(kv_capacity_tokens=1000, kv_used_tokens=0, running=0, waiting=0)
    view = yard.view
    assert view.running == 2.0
    assert view.kv_used_tokens == 200.0


def test_shared_prefixes_are_counted_once_as_far_as_they_can_be_shared() -> None:
    yard = Yard()
    for name in ("r-0", "s-0"):
        yard.open(name, prompt=100, hit=80)
        yard.first(name)
    yard.now += 0.1
    yard.report(kv_capacity_tokens=1000, kv_used_tokens=120, running=2, waiting=0)
    assert yard.view.kv_used_tokens == 120.0
    assert yard.view.context_tokens == 200.0, "attention still reads both"
    yard.settle("r-0")
    assert yard.view.kv_used_tokens == 20.0, "80 tokens of it are at most shared"


def test_a_prefill_under_way_is_not_foreign() -> None:
    yard = Yard()
    yard.open("r-0", prompt=500)
    yard.now += 0.1
    yard.report(kv_capacity_tokens=1000, kv_used_tokens=300, running=1, waiting=0)
    assert yard.view.kv_used_tokens == 0.0
    assert yard.view.prefill_backlog_tokens == 500.0


def test_missing_gauges_keep_the_last_value() -> None:
    yard = Yard()
    yard.report(kv_capacity_tokens=1000, kv_used_tokens=400, running=4, waiting=2, max_num_seqs=8)
    yard.now += 0.5
    yard.report(running=3)
    view = yard.view
    assert (view.kv_capacity_tokens, view.kv_used_tokens, view.max_num_seqs) == (1000, 400.0, 8)
    assert (view.running, view.waiting) == (3.0, 2.0)
    assert view.sample is not None
    assert (view.sample.kv_used_tokens, view.sample.running) == (400, 3)
    yard.now += 0.5
    yard.report(waiting=1)
    assert (yard.view.running, yard.view.waiting) == (3.0, 1.0)


def test_a_report_that_says_everything_stands_alone() -> None:
    yard = Yard()
    yard.report(kv_capacity_tokens=1000, kv_used_tokens=400, running=4, waiting=2)
    yard.now += 0.5
    names = [
        name for name in LoadSample.__struct_fields__ if name not in ("replica_id", "taken_at", "epoch", "partial")
    ]
    yard.report(**dict.fromkeys(names, 1) | {"interval_s": 0.5})
    assert yard.view.sample is not None
    assert {getattr(yard.view.sample, name) for name in names} == {1, 0.5}


def test_a_fraction_is_multiplied_by_the_known_pool() -> None:
    yard = Yard()
    yard.report(kv_usage=0.5)
    assert yard.view.kv_used_tokens == 0.0, "half of an unknown pool is unknown"
    yard.now += 0.5
    yard.report(kv_capacity_tokens=1000)
    for _ in range(3):
        yard.now += 0.1
        yard.report(kv_usage=0.5, partial=True, epoch=0)
    assert yard.view.kv_used_tokens == 500.0


def test_outdated_reports_are_dropped() -> None:
    yard = Yard()
    assert yard.report(running=1, epoch=5)
    yard.now += 0.1
    assert not yard.report(running=9, epoch=5)
    assert not yard.report(running=9, epoch=4)
    assert not yard.report(running=9, epoch=6, taken_at=yard.now - 1.0)
    assert yard.report(running=2, epoch=0, partial=True), "response headers have no epoch"
    assert yard.view.running == 2.0
    yard.now += 5.0
    assert yard.report(running=3, epoch=1), "after a long silence the engine has restarted"
    assert not yard.fleet.sample(LoadSample(ReplicaId("nobody"), yard.now), yard.now)


def test_stale_reports_degrade_to_counting() -> None:
    yard = Yard()
    yard.report(kv_capacity_tokens=1000, kv_used_tokens=900, running=9, waiting=3)
    assert yard.view.waiting == 3.0
    yard.now += FleetConfig().stale_after_s
    view = yard.view
    assert view.stale
    assert (view.running, view.waiting, view.kv_used_tokens) == (0.0, 0.0, 0.0)
    assert view.kv_capacity_tokens == 1000, "the pool's size does not age"


def test_reports_of_an_engine_that_is_asked_rarely_hold_for_longer() -> None:
    yard = Yard()
    for _ in range(3):
        yard.report(kv_capacity_tokens=1000, kv_used_tokens=900, running=9, waiting=3, interval_s=4.0)
        yard.now += 4.0 * 1.5
        assert not yard.view.stale
        assert yard.view.kv_used_tokens == 900.0
    yard.now += 4.0 * 1.01
    assert yard.view.stale
    yard.report(running=9, interval_s=0.5)
    yard.now += FleetConfig().stale_after_s
    assert yard.view.stale


def test_a_view_may_be_older_than_the_last_report() -> None:
    """Events are stamped when they happen and may wait their turn: a variance must not become negative for that."""
    yard = Yard()
    yard.report(kv_capacity_tokens=1000, kv_used_tokens=900, running=9, taken_at=yard.now + 5.0)
    view = yard.view
    assert (view.stale, view.sample_age_s, view.headroom_sigma) == (False, 0.0, 0.0)


def test_frozen_gauges_are_noticed_while_tokens_flow() -> None:
    yard = Yard()
    yard.open("r-0")
    yard.first("r-0")
    for i in range(12):
        yard.now += 0.5
        yard.grow("r-0", 15 * (i + 1))
        yard.report(kv_capacity_tokens=1000, kv_used_tokens=500, running=5, waiting=0)
    assert yard.view.stale
    assert yard.view.running == 1.0
    yard.now += 0.5
    yard.report(kv_capacity_tokens=1000, kv_used_tokens=501, running=5, waiting=0)
    assert not yard.view.stale


def test_an_engine_at_rest_is_not_frozen_although_its_last_bytes_came_late() -> None:
    """A vLLM whose server process lags behind its core reports the end before its streams show it."""
    yard = Yard()
    yard.open("r-0")
    yard.first("r-0")
    rest = {"kv_capacity_tokens": 1000, "kv_used_tokens": 0, "running": 0, "generated_tokens_total": 300}
    yard.report(**rest)
    yard.now += 0.1
    yard.grow("r-0", 300)
    yard.settle("r-0")
    for _ in range(12):
        yard.now += 0.5
        yard.report(**rest)
    assert not yard.view.stale


@pytest.mark.parametrize("gauges", [{"kv_used_tokens": 500}, {"running": 1}])
def test_steady_gauges_without_flow_are_believed(gauges: dict[str, int]) -> None:
    yard = Yard()
    if "running" in gauges:  # a count of requests may stay the same while tokens flow
        yard.open("r-0")
        yard.first("r-0")
    for i in range(12):
        yard.now += 0.5
        if "running" in gauges:
            yard.grow("r-0", 15 * (i + 1))
        yard.report(kv_capacity_tokens=1000, **gauges)
    assert not yard.view.stale


def test_engine_queue_and_seats() -> None:
    yard = Yard(max_num_seqs=2)
    yard.report(running=2, waiting=1)
    yard.now += 0.1
    yard.open("r-0")
    assert (yard.view.running, yard.view.waiting) == (2.0, 2.0)
    yard.first("r-0")
    assert yard.view.running >= 1.0
    yard.settle("r-0")
    assert (yard.view.running, yard.view.waiting) == (2.0, 1.0)


def test_the_queue_never_goes_below_zero() -> None:
    yard = Yard()
    for name in ("r-0", "s-0", "t-0"):
        yard.open(name)
    yard.now += 0.1
    yard.report(running=2, waiting=1)
    for name in ("r-0", "s-0", "t-0"):
        yard.settle(name)
    assert (yard.view.running, yard.view.waiting) == (0.0, 0.0)


def test_seats_are_learned_where_nobody_tells() -> None:
    yard = Yard()
    yard.report(running=7, waiting=0)
    assert yard.view.max_num_seqs == 0
    yard.now += 0.5
    yard.report(running=5, waiting=2)
    assert yard.view.max_num_seqs == 5
    yard.now += 0.5
    yard.report(running=6, waiting=2)
    assert yard.view.max_num_seqs == 6


def test_new_facts_replace_old_ones() -> None:
    yard = Yard(kv_capacity_tokens=500)
    yard.fleet.upsert(spec("a", kv_capacity_tokens=700, max_num_seqs=3), yard.now, False, yard.out)
    assert (yard.view.kv_capacity_tokens, yard.view.max_num_seqs) == (700, 3)
    yard.fleet.upsert(spec("a"), yard.now, False, yard.out)
    assert yard.view.kv_capacity_tokens == 700, "what was learned is not forgotten"


def test_sleep_is_seen() -> None:
    yard = Yard()
    assert not yard.view.sleeping
    yard.report(sleep_level=1, running=0)
    assert yard.view.sleeping
    yard.now += 0.5
    yard.report(sleep_level=0)
    assert not yard.view.sleeping


def test_building_a_view_changes_nothing() -> None:
    yard = Yard()
    yard.report(kv_capacity_tokens=1000, kv_used_tokens=10, running=1, waiting=0)
    kept = yard.view
    expires = yard.replica.expires
    later = yard.fleet.viewing.build(yard.replica, yard.now + 100.0)
    assert later.stale
    assert yard.replica.view is kept
    assert yard.replica.expires == expires
    assert yard.fleet.take_changed(yard.now) == []


def test_only_what_changed_is_rebuilt() -> None:
    yard = Yard()
    other = yard.fleet.upsert(spec("b"), yard.now, False, yard.out)
    assert yard.fleet.take_changed(yard.now) == [yard.replica, other]
    before = other.view
    yard.open("r-0")
    yard.fleet.touch(yard.replica)
    assert yard.fleet.take_changed(yard.now) == [yard.replica]
    assert other.view is before


def test_views_expire_when_a_ramp_or_an_avoidance_goes_on() -> None:
    yard = Yard()
    yard.replica.health.probe_succeeded(yard.now, yard.out)
    yard.replica.health.ramp_from = yard.now
    yard.fleet.touch(yard.replica)
    assert yard.view.slow_start == 0.1
    yard.now += 5.0
    assert yard.view.slow_start == 0.5
    yard.replica.health.ramp_from = None
    yard.replica.health.avoid_until = yard.now + 1.0
    yard.fleet.touch(yard.replica)
    assert yard.view.breaker is Breaker.CLOSED
    assert yard.replica.expires == yard.now + 1.0


def test_the_forecast_grows_when_outputs_do() -> None:
    yard = Yard(metrics=False, kv_capacity_tokens=100_000)
    yard.open("r-0", prompt=100)
    yard.first("r-0")
    yard.now += 1.0
    yard.grow("r-0", 3000)
    assert yard.view.peak_mean >= 3100.0
    assert yard.view.reserved_tokens > 0.0, "whoever outlives the forecast is expected to go on"
    assert yard.view.output_left_mean == yard.view.reserved_tokens


def test_what_nobody_asks_for_is_not_forecast_again() -> None:
    """Policies that read no forecast see what was expected at dispatch; what has been generated counts all the same."""
    yard = Yard(metrics=False, kv_capacity_tokens=100_000)
    yard.fleet = Fleet(foresees=False)
    yard.replica = yard.fleet.upsert(spec("a", kv_capacity_tokens=100_000), yard.now, False, yard.out)
    yard.open("r-0", prompt=100)
    yard.first("r-0")
    before = yard.view.peak_mean
    yard.now += 1.0
    yard.grow("r-0", 3000)
    assert yard.view.peak_mean == before
    assert yard.view.context_tokens == 3100.0


def test_an_answer_in_one_piece_is_presumed_to_progress() -> None:
    yard = Yard()
    yard.open("r-0", prompt=100, stream=False)
    yard.open("e-0", prompt=100, stream=False, generates=False)
    yard.now += 0.05
    yard.report(running=1)
    assert yard.view.prefill_backlog_tokens == 200.0
    yard.now += 0.5
    yard.report(running=1)
    view = yard.view
    assert view.prefill_backlog_tokens == 100.0
    assert 100.0 < view.context_tokens <= 150.0
    yard.now += 0.6
    yard.report(running=1)
    yard.now += 60.0
    yard.report(running=1)
    assert yard.view.context_tokens < 1000.0, "never more than was expected"
    yard.settle("r-0")
    yard.settle("e-0")
    assert yard.view.context_tokens == 0.0


def test_a_forecast_is_rebuilt_without_reports_and_between_those_that_come_seldom() -> None:
    yard = Yard()
    yard.open("r-0")
    yard.first("r-0")

    def moment(after: float) -> float:
        yard.now += after
        yard.grow("r-0", int(yard.now * 10.0))
        return yard.replica.rebuilt_at

    assert moment(0.6) == yard.now, "no report has ever come"
    yard.now += 0.6
    assert yard.report(interval_s=5.0)
    told_at = yard.now
    assert moment(0.6) == told_at, "a report may come any moment"
    assert moment(0.6) == yard.now, "none did"
    assert moment(0.4) == yard.now - 0.4, "just now"


def test_step_times_are_learned_from_progress() -> None:
    yard = Yard()
    for name in ("r-0", "s-0"):
        yard.open(name, prompt=1)
        yard.first(name)
    for i in range(400):
        yard.now += 0.05
        yard.grow("r-0", i + 1)
        yard.grow("s-0", i + 1)
    yard.fleet.rebuild(yard.replica, yard.now)
    assert yard.view.speed.step_s(2.0, yard.view.context_tokens) == pytest.approx(0.05, rel=0.2)


def test_prefill_rates_are_learned_from_first_tokens() -> None:
    yard = Yard()
    for i in range(60):
        yard.open(f"r{i}-0", prompt=2000)
        yard.now += 1.0
        yard.first(f"r{i}-0")
        yard.settle(f"r{i}-0")
    yard.fleet.rebuild(yard.replica, yard.now)
    assert yard.view.speed.prefill_tokens_per_s == pytest.approx(2000.0, rel=0.4)


def test_a_pause_is_not_a_slow_step() -> None:
    yard = Yard()
    yard.open("r-0", prompt=1)
    yard.first("r-0")
    for i in range(100):
        yard.now += 0.05
        yard.grow("r-0", i + 1)
    yard.settle("r-0")
    learned = yard.fleet.speed.speed(yard.replica.spec)
    yard.now += 100.0
    yard.open("s-0", prompt=1)
    yard.first("s-0")
    yard.now += 0.3
    yard.grow("s-0", 6)
    after = yard.fleet.speed.speed(yard.replica.spec)
    assert after.step_s(1, 50) == pytest.approx(learned.step_s(1, 50), rel=0.1)


@interpreted
def test_lengths_and_cache_are_learned_from_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    yard = Yard()
    seen: list[tuple[object, ...]] = []
    monkeypatch.setattr(yard.fleet.length, "observe_prompt", lambda r, n: seen.append(("prompt", r.id, n)))
    monkeypatch.setattr(yard.fleet.length, "observe_output", lambda m, n, c: seen.append(("output", n, c)))
    monkeypatch.setattr(yard.fleet.prefix, "correct", lambda i, p, c: seen.append(("cache", p, c)))

    def ended(name: str, kind: OutcomeKind, **facts: object) -> list[tuple[object, ...]]:
        seen.clear()
        yard.open(name, hit=30, sequences=2)
        yard.settle(name, Outcome(kind, **facts))  # type: ignore[arg-type]
        return list(seen)

    assert ended("r-0", OutcomeKind.OK, prompt_tokens=90, output_tokens=40) == [
        ("prompt", "r-0", 90),
        ("output", 20, False),
    ], "no word of the cache yet: zero means that the engine does not report it"
    assert ended("s-0", OutcomeKind.OK, prompt_tokens=90, output_tokens=40, cached_tokens=16)[-1] == ("cache", 30, 16)
    assert ended("t-0", OutcomeKind.OK, prompt_tokens=90)[-1] == ("cache", 30, 0), "now a zero is a zero"
    assert ended("u-0", OutcomeKind.CLIENT_CLOSED, output_tokens=7) == [("output", 3, True)]
    assert ended("v-0", OutcomeKind.OK, output_tokens=8, hit_limit=True) == [("output", 4, True)]
    assert ended("w-0", OutcomeKind.RESET) == []


def test_a_removed_replica_keeps_its_account_until_all_is_settled() -> None:
    yard = Yard()
    yard.open("r-0")
    assert [e.attempt_id for e in yard.fleet.remove(A)] == ["r-0"]
    assert yard.fleet.remove(A) == []
    yard.first("r-0")
    yard.now += 1.0
    yard.grow("r-0", 5)
    yard.settle("r-0")
    assert not yard.fleet.ledger.accounts
    assert yard.fleet.take_changed(yard.now) == [] or A not in yard.fleet.replicas


@interpreted
def test_forecasts_of_new_outputs_are_remembered_for_a_moment_only(monkeypatch: pytest.MonkeyPatch) -> None:
    yard = Yard(FleetConfig(outlooks=2))
    calls: list[int] = []
    true = yard.fleet.length.forecast
    monkeypatch.setattr(
        yard.fleet.length, "forecast", lambda model, limit, least: calls.append(limit) or true(model, limit)
    )
    for _ in range(3):
        yard.fleet.expect(request("r"), 0, {}, yard.now)
    assert calls == [0]
    yard.now += 1.0
    for limit in (0, 10, 20, 10):
        yard.fleet.expect(request("r", max_output_tokens=limit), 0, {}, yard.now)
    assert calls == [0, 0, 10, 20, 10], "bounded"


def test_nothing_is_learned_from_an_output_that_had_no_choice() -> None:
    yard = Yard()
    before = yard.fleet.length.forecast("m", 0)
    for number, (generated, least) in enumerate([(700, 700), (300, 700), (5, 5)]):
        yard.open(str(number), min_output_tokens=least)
        yard.settle(str(number), Outcome(OutcomeKind.OK, 200, output_tokens=generated))
    assert yard.fleet.length.forecast("m", 0) == before
    yard.open("free", min_output_tokens=5)
    yard.settle("free", Outcome(OutcomeKind.OK, 200, output_tokens=900))
    assert yard.fleet.length.forecast("m", 0) != before


def test_who_ignores_the_end_of_text_says_exactly_what_is_allowed() -> None:
    yard = Yard()
    demand = yard.fleet.expect(request("r", max_output_tokens=700, min_output_tokens=700), 0, {}, 10.0).demand
    assert (demand.output_mean, demand.output_sigma) == (700.0, 0.0)
    assert (demand.output_low, demand.output_middle, demand.output_high) == (700, 700, 700)
    capped = request("r", max_output_tokens=100, min_output_tokens=700)
    assert yard.fleet.expect(capped, 0, {}, 10.0).demand.output_high == 100, "by a burst, for example"


@pytest.mark.parametrize(
    ("asked", "context", "limit"),
    [(0, 0, 0), (50, 0, 50), (0, 1000, 896), (900, 1000, 900), (901, 1000, 896), (50, 1000, 50), (9, 101, 1)],
)
def test_the_output_limit_is_what_client_and_context_allow(asked: int, context: int, limit: int) -> None:
    demand = Yard().fleet.expect(request("r", max_output_tokens=asked), context, {}, 10.0).demand
    assert demand.output_limit == limit
    assert demand.output_mean <= (limit or math.inf) + 1e-9


def test_several_sequences_are_expected_to_be_several_times_as_long() -> None:
    fleet = Yard().fleet
    one = fleet.expect(request("r", max_output_tokens=50), 0, {}, 10.0)
    three = fleet.expect(request("r", max_output_tokens=50, sequences=3), 0, {}, 10.0)
    assert three.demand.output_mean == 3 * one.demand.output_mean
    assert three.demand.output_limit == 150
    assert three.part.peak > one.part.peak


def test_hits_are_tokens_below_the_whole_prompt() -> None:
    fleet = Yard().fleet
    asked = request("r", prompt_tokens=1000, prompt_bytes=4096, prefix_hashes=tuple(range(1, 9)))
    assert fleet.matches(request("x")) == {}
    fleet.prefix.insert(A, asked.prefix_hashes)
    matches = fleet.matches(asked)
    assert matches == {A: 8}
    demand = fleet.expect(asked, 0, matches, 10.0).demand
    assert 0 < demand.hit(A) <= 999
    assert fleet.unscaled_hit(asked, 1000, 4) == 500
    assert fleet.unscaled_hit(asked, 1000, 0) == 0


def test_embeddings_hold_their_prompt_and_are_gone() -> None:
    expected = Yard().fleet.expect(request("r", generates=False), 0, {}, 10.0)
    assert (expected.demand.output_mean, expected.demand.output_limit) == (0.0, 0)
    assert expected.part.mean[1:] == (0.0,) * len(HORIZONS[1:])
