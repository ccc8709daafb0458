"""Replicas that join, wake, restart, carry a new version, drain or leave: nobody floods them, and nobody is lost."""

import itertools
import random
from collections import Counter

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.core.commands import Abort, Dispatch, Hold, WarmUp
from headway.core.constants import BrainConfig, HealthConfig, SchedulerConfig
from headway.core.events import DrainAsked, ProbeFailed, ProbeSucceeded, ReplicasChanged
from headway.core.ids import ReplicaId
from headway.core.outcome import OutcomeKind
from headway.policies import headroom
from tests.core.house import Fixed, House, decision, only, sent_to, spec

WARMING = BrainConfig(health=HealthConfig(warm_up=True))
ONE_EACH = BrainConfig(scheduler=SchedulerConfig(max_in_flight=1))


def versions(minutes: float = 10.0, **new: object) -> House:
    """The old version on two replicas that cost more than the new one on one, which has just come."""
    house = House(Fixed({"a": 5.0, "b": 5.0, "n": 1.0}))
    house.add("a", "b", version="1")
    house.wait(60.0 * minutes).add("n", version="2", **new)
    return house


def serve(house: House, count: int, gap_s: float = 0.0, prefix: str = "r", **facts: object) -> list[str | None]:
    """So many requests one after the other, each ended before the next."""
    went = []
    for number in range(count):
        house.wait(gap_s)
        went.append(sent_to(house.ask(f"{prefix}{number}", **facts)))
        if went[-1] is not None:
            house.end(f"{prefix}{number}-0")
    return went


# -- new versions ----------------------------------------------------------------------------------------------


def test_a_new_version_gets_five_percent_at_first() -> None:
    house = versions()
    assert serve(house, 400).count("n") == pytest.approx(20, abs=1)
    assert decision(house.ask("last")).exclusions.get("rollout") == 1


@pytest.mark.slow
def test_five_percent_of_all_whether_or_not_they_have_sessions() -> None:
    house = versions()
    went = [
        serve(house, 1, prefix=f"{number}-", session_key="" if number % 2 else f"session {number}")[0]
        for number in range(2000)
    ]
    assert went.count("n") == pytest.approx(100, abs=8)


def test_and_five_percent_more_each_minute_until_it_may_have_all() -> None:
    house = versions()
    serve(house, 1)
    house.wait(9 * 60.0)
    assert serve(house, 200, prefix="s").count("n") == pytest.approx(100, abs=1)
    house.wait(10 * 60.0)
    assert serve(house, 50, prefix="t").count("n") == 50


def test_no_session_goes_back_to_the_old_version() -> None:
    """Whoever has gone to the new one stays; and there are the more of them the longer it is there."""
    house = House(Fixed({"a": 1.0, "b": 1.0, "n": 1.0}, tolerance=0.1))
    house.add("a", "b", version="1")
    house.wait(600.0).add("n", version="2")
    at_new: list[set[int]] = []
    for minutes in (1.0, 4.0, 6.0, 12.0):
        house.wait(60.0 * minutes)
        went = [serve(house, 2, prefix=f"m{minutes:g}s{n}-", session_key=f"session {n}") for n in range(150)]
        assert all(first == second for first, second in went), "every turn of it goes to the same"
        at_new.append({n for n, (where, _) in enumerate(went) if where == "n"})
    for before, after in itertools.pairwise(at_new):
        assert before <= after
        assert len(before) < len(after)


def test_a_rollout_can_be_at_once() -> None:
    house = House(Fixed({"a": 5.0, "n": 1.0}), BrainConfig(scheduler=SchedulerConfig(rollout_per_minute=0.0)))
    house.add("a", version="1")
    house.wait(600.0).add("n", version="2")
    assert serve(house, 50).count("n") == 50


def test_the_new_version_serves_when_there_is_nobody_else() -> None:
    house = versions()
    for name in ("a", "b"):
        house.tell(DrainAsked(house.now, ReplicaId(name)))
    assert serve(house, 20) == ["n"] * 20


def test_the_new_version_serves_what_nobody_else_can() -> None:
    house = House(Fixed({"a": 5.0, "n": 9.0}))
    house.add("a", version="1", max_model_tokens=500)
    house.wait(600.0).add("n", version="2", max_model_tokens=5000)
    assert serve(house, 10, prompt_tokens=1000) == ["n"] * 10
    assert serve(house, 10, prefix="s") == ["a"] * 10


def test_who_waits_is_not_given_to_the_new_version_beyond_its_share() -> None:
    house = House(config=ONE_EACH)
    house.add("a", version="1")
    house.wait(600.0).add("n", version="2", probed=False)
    assert sent_to(house.ask("r1")) == "a"
    assert only(house.ask("r2"), Hold)
    out = house.tell(ProbeSucceeded(house.now, ReplicaId("n")))
    assert sent_to(out) == "n", "there is nobody else at the moment"
    assert only(house.ask("r3"), Hold)
    assert sent_to(house.end("r1-0")) == "a"


def test_a_retry_goes_to_the_new_version_if_the_old_one_was_tried() -> None:
    house = House(Fixed({"a": 1.0, "n": 9.0}))
    house.add("a", version="1")
    house.wait(600.0).add("n", version="2")
    house.ask("r1")
    assert sent_to(house.end("r1-0", OutcomeKind.CONNECT_FAILED)) == "n"


@settings(max_examples=25, deadline=None)
@given(
    steps=st.lists(st.tuples(st.floats(0.0, 40.0), st.sampled_from("anb")), min_size=20, max_size=120),
)
def test_whatever_policies_want_the_share_of_a_new_version_is_kept_to_one_request(
    steps: list[tuple[float, str]],
) -> None:
    policy = Fixed({"a": 1.0, "b": 1.0, "n": 1.0})
    house = House(policy)
    house.add("a", "b", version="1")
    house.wait(600.0).add("n", version="2")
    began, excess = house.now, 0.0
    for number, (gap, wanted) in enumerate(steps):
        policy.table = {"a": 5.0, "b": 5.0, "n": 5.0, wanted: 1.0}
        house.wait(gap)
        if not number:
            began = house.now
        share = min(1.0, 0.05 * (1.0 + (house.now - began) / 60.0))
        went = sent_to(house.ask(f"r{number}"))
        house.end(f"r{number}-0")
        excess = max(0.0, excess) + (went == "n") - share
        assert excess <= 1.0 + 1e-6


# -- cold engines ----------------------------------------------------------------------------------------------


def pool_of(house: House, *names: str, tokens: int = 10_000, **gauges: object) -> None:
    for name in names:
        house.report(name, kv_capacity_tokens=tokens, **gauges)


def test_an_engine_that_woke_takes_what_its_ramp_allows() -> None:
    house = House(Fixed({"a": 5.0, "b": 1.0}))
    house.add("a", "b")
    house.wait(100.0)
    pool_of(house, "a", "b", sleep_level=0)
    pool_of(house.wait(0.5), "b", sleep_level=1)
    assert sent_to(house.ask("r1")) == "a"
    pool_of(house.wait(0.5), "b", sleep_level=0)
    assert house.view("b").slow_start == pytest.approx(0.1)
    taken = Counter(sent_to(house.ask(f"s{n}", prompt_tokens=100)) for n in range(40))
    assert 1 <= taken["b"] <= 10, "a tenth of its pool: 1,000 tokens of 100 and more each"
    assert taken["a"] == 40 - taken["b"]
    pool_of(house.wait(15.0), "a", "b", sleep_level=0)
    assert house.view("b").slow_start == pytest.approx(0.5)
    pool_of(house.wait(16.0), "a", "b", sleep_level=0)
    assert house.view("b").slow_start == 1.0


@pytest.mark.parametrize(("seats", "taken"), [(0, 13), (50, 5)])
def test_a_large_pool_draws_no_crowd_of_small_requests(seats: int, taken: int) -> None:
    house = House(Fixed({"a": 5.0, "b": 1.0}))
    house.add("a", kv_capacity_tokens=10_000_000)
    house.wait(100.0).add("b", kv_capacity_tokens=10_000_000, max_num_seqs=seats)
    went = Counter(sent_to(house.ask(f"r{n}", prompt_tokens=5)) for n in range(40))
    assert went == {"b": taken, "a": 40 - taken}


def test_an_engine_that_woke_or_started_anew_has_an_empty_cache() -> None:
    hashes = tuple(range(20))
    for before, after in (({"sleep_level": 1}, {"sleep_level": 0}), ({"boot": 1}, {"boot": 2})):
        house = House()
        house.add("a")
        house.wait(10.0)
        facts = {"prompt_bytes": 20 * 512, "prompt_tokens": 2000, "prefix_hashes": hashes}
        house.ask("r1", **facts)
        house.end("r1-0")
        assert decision(house.ask("r2", **facts)).forecast.cached_tokens > 0
        pool_of(house, "a", **before)
        pool_of(house.wait(0.5), "a", **after)
        assert decision(house.ask("r3", **facts)).forecast.cached_tokens == 0


@pytest.mark.parametrize(
    "gauges", [({}, {"sleep_level": 0}), ({"boot": 2}, {"boot": 2}), ({"boot": 2}, {}), ({}, {"boot": 7})]
)
def test_nothing_happened_to_an_engine_that_says_the_same(gauges: tuple[dict[str, int], dict[str, int]]) -> None:
    house = House(config=WARMING)
    house.add("a", "b")
    for each in gauges:
        house.wait(0.5)
        assert only(house.report("a", running=0, **each), WarmUp) == []


def test_cold_engines_are_warmed_up_before_clients_use_them() -> None:
    house = House(Fixed({"a": 5.0, "b": 1.0}), WARMING)
    out = house.add("a", "b")
    assert [command.replica_id for command in only(out, WarmUp)] == ["a", "b"]
    house.tell(ProbeSucceeded(house.now, ReplicaId("a")))
    assert sent_to(house.ask("r1")) == "a"
    house.tell(ProbeSucceeded(house.now, ReplicaId("b")))
    assert sent_to(house.ask("r2")) == "b"
    house.wait(60.0).report("b", boot=1)
    out = house.wait(0.5).report("b", boot=2)
    assert [command.replica_id for command in only(out, WarmUp)] == ["b"]
    assert sent_to(house.ask("r3")) == "a", "it is not asked while it warms up"
    house.wait(2.0).tell(ProbeSucceeded(house.now, ReplicaId("b")))
    assert sent_to(house.ask("r4")) == "b"
    assert house.view("b").slow_start == pytest.approx(0.1)


def test_the_only_replica_is_used_while_it_warms_up() -> None:
    house = House(config=WARMING)
    house.add("a")
    assert sent_to(house.ask("r1")) == "a", "to wait for its warm-up is no better than to be it"


def test_a_request_that_was_served_is_warm_enough() -> None:
    house = House(config=WARMING)
    house.add("a")
    house.ask("r1")
    house.end("r1-0")
    assert house.view("a").breaker.value == "closed"


# -- many at once ----------------------------------------------------------------------------------------------


def test_forty_at_once_find_one_that_has_just_joined() -> None:
    policy = headroom.PLUGIN.factory(headroom.PLUGIN.config())
    house = House(policy)
    house.add("a", "b", "c", kv_capacity_tokens=100_000)
    house.wait(100.0)
    for number in range(60):
        house.ask(f"w{number}", prompt_tokens=400, prompt_bytes=1600)
    house.add("d", kv_capacity_tokens=100_000)
    taken = Counter(sent_to(house.ask(f"r{n}", prompt_tokens=400, prompt_bytes=1600)) for n in range(40))
    held = house.view("d")
    assert taken["d"] >= 1
    assert held.kv_used_tokens + held.prefill_backlog_tokens + held.reserved_tokens <= 0.1 * 100_000 + 1200
    assert taken["d"] < 20, "less than half, although it is empty and the others are not"


def test_one_that_only_refuses_does_no_harm_and_then_ramps() -> None:
    house = House(Fixed({"a": 5.0, "new": 1.0}))
    house.add("a")
    house.wait(100.0).add("new", probed=False)
    for _ in range(5):
        house.tell(ProbeFailed(house.wait(1.0).now, ReplicaId("new"), refused=True))
        assert set(serve(house, 8, prefix=f"t{house.now:g}-")) == {"a"}
    house.tell(ProbeSucceeded(house.now, ReplicaId("new")))
    assert house.view("new").slow_start == pytest.approx(0.1)
    at_once = Counter(sent_to(house.ask(f"r{n}")) for n in range(40))
    assert at_once["new"] == 4, "a tenth of 32 requests, rounded up"


def test_late_news_of_an_earlier_registration_touch_nobody() -> None:
    house = House()
    house.add("h:1")
    house.tell(ReplicasChanged(house.now, (spec("h:1#2"),), (ReplicaId("h:1"),)))
    house.tell(ProbeSucceeded(house.now, ReplicaId("h:1#2")))
    before = house.brain.ignored
    house.tell(ProbeFailed(house.now, ReplicaId("h:1"), refused=True))
    assert house.brain.ignored == before + 1
    assert house.view("h:1#2").breaker.value == "closed"
    assert sent_to(house.ask("r1")) == "h:1#2"


# -- drain and removal -----------------------------------------------------------------------------------------


def test_a_drained_replica_finishes_what_it_has_and_others_take_who_waits() -> None:
    house = House(config=ONE_EACH)
    house.add("a", "b")
    assert {sent_to(house.ask("r1")), sent_to(house.ask("r2"))} == {"a", "b"}
    assert only(house.ask("r3"), Hold)
    on_a, on_b = ("r1-0", "r2-0") if _where(house, "a") == "r1" else ("r2-0", "r1-0")
    out = house.tell(DrainAsked(house.now, ReplicaId("a")))
    assert only(out, Abort) == [], "streams go on"
    assert sent_to(house.end(on_a)) is None, "it takes no one any more"
    assert sent_to(house.end(on_b)) == "b"
    assert sent_to(house.tell(DrainAsked(house.now, ReplicaId("a"), draining=False))) is None
    assert sent_to(house.ask("r4")) == "a"


def _where(house: House, name: str) -> str:
    """The request that is in flight at a replica."""
    (entry,) = house.brain._fleet.replicas[ReplicaId(name)].account.entries.values()
    return entry.request.id


def test_who_waits_is_sent_when_a_drain_is_taken_back() -> None:
    house = House(config=ONE_EACH)
    house.add("a", "b")
    house.tell(DrainAsked(house.now, ReplicaId("b")))
    assert sent_to(house.ask("r1")) == "a"
    assert only(house.ask("r2"), Hold)
    assert sent_to(house.tell(DrainAsked(house.now, ReplicaId("b"), draining=False))) == "b"


def test_a_removed_replica_gives_its_requests_to_others() -> None:
    house = House(config=msgspec.structs.replace(ONE_EACH, scheduler=SchedulerConfig(max_in_flight=2)))
    house.add("a")
    assert [sent_to(house.ask(name)) for name in ("r1", "r2")] == ["a", "a"]
    assert only(house.ask("r3"), Hold)
    house.first("r1-0")
    out = house.add("b", probed=False) + house.tell(ProbeSucceeded(house.now, ReplicaId("b")))
    assert sent_to(out) == "b", "who waits goes where there is room"
    out = house.tell(ReplicasChanged(house.now, removed=(ReplicaId("a"),)))
    assert [abort.attempt_id for abort in only(out, Abort)] == ["r2-0"], "of the other its client has heard"
    assert sent_to(house.end("r2-0", OutcomeKind.CANCELLED)) == "b"
    assert only(house.ask("r4"), Hold)
    assert sent_to(house.end("r3-0")) == "b"


@pytest.mark.parametrize("seed", range(3))
def test_no_attempt_is_left_behind_by_any_order_of_joins_drains_and_removals(seed: int) -> None:
    chance = random.Random(seed)
    config = msgspec.structs.replace(ONE_EACH, scheduler=SchedulerConfig(max_in_flight=3))
    house = House(config=config)
    house.add("a", "b", "c", version="1")
    alive: set[str] = set()
    ended: Counter[str] = Counter()
    for number in range(400):
        house.wait(chance.random())
        kind = chance.random()
        name = chance.choice("abc")
        if kind < 0.5:
            out = house.ask(f"r{number}")
        elif kind < 0.6:
            out = house.tell(DrainAsked(house.now, ReplicaId(name), draining=chance.random() < 0.5))
        elif kind < 0.65:
            out = house.tell(ReplicasChanged(house.now, removed=(ReplicaId(name),)))
        elif kind < 0.75:
            out = house.add(name, version=chance.choice("12"))
        elif alive:
            attempt = chance.choice(sorted(alive))
            alive.discard(attempt)
            ended[attempt] += 1
            out = house.end(attempt)
        else:
            continue
        for abort in only(out, Abort):
            if abort.attempt_id in alive:
                alive.discard(abort.attempt_id)
                ended[abort.attempt_id] += 1
                out = out + house.end(abort.attempt_id, OutcomeKind.CANCELLED)
        alive |= {command.attempt_id for command in only(out, Dispatch)}
    for attempt in sorted(alive):
        alive |= {command.attempt_id for command in only(house.end(attempt), Dispatch)}
    assert max(ended.values()) == 1
    drained = house.wait(60.0).brain.snapshot(house.now)
    assert drained.in_flight <= 9
