"""Filters, the policy's ranking, one pick by chance, and a Decision that explains it."""

import math
import random
from collections import Counter
from collections.abc import Sequence

import pytest

from headway.core.commands import Command, HealthChanged
from headway.core.constants import AffinityConfig, SchedulerConfig
from headway.core.demand import Demand
from headway.core.entries import Choice
from headway.core.fleet import Fleet
from headway.core.health import Phase
from headway.core.ids import ReplicaId
from headway.core.plugin import Chance
from headway.core.pool import Pool, context_limit
from headway.core.precision import FULL
from headway.core.replica import LoadSample
from headway.core.scheduler import Scheduler, forecast
from headway.core.view import Breaker, ReplicaView
from tests.core.house import BY_HAND, FewestInFlight, Fixed, entries, request, spec
from tests.views import changed


class Stage:
    """A scheduler over ready replicas."""

    def __init__(self, *names: str, policy: object | None = None, config: SchedulerConfig | None = None) -> None:
        self.fleet = Fleet(memory=BY_HAND)
        self.policy = policy or FewestInFlight()
        self.scheduler = Scheduler(self.fleet, self.policy, random.Random(4), config)  # type: ignore[arg-type]
        self.now = 10.0
        self.out: list[Command] = []
        self.add(*names)

    def add(self, *names: str, ready: bool = True, ramps: bool = False, **facts: object) -> None:
        for name in names:
            replica = self.fleet.upsert(spec(name, **facts), self.now, ramps, self.out)
            if ready:
                replica.health.probe_succeeded(self.now, self.out)
        self.scheduler.regroup(self.now)

    def move(self, name: str, phase: Phase, unreachable: bool = False) -> None:
        replica = self.fleet.replicas[ReplicaId(name)]
        replica.health.phase, replica.health.unreachable = phase, unreachable
        self.fleet.touch(replica)

    def change(self, name: str, **facts: object) -> None:
        replica = self.fleet.replicas[ReplicaId(name)]
        for key, value in facts.items():
            setattr(replica if hasattr(replica, key) else replica.health, key, value)
        self.fleet.touch(replica)

    @property
    def pool(self) -> Pool:
        self.scheduler.refresh(self.now, self.out)
        return self.scheduler.pools["m"]

    @property
    def candidates(self) -> list[str]:
        return [view.id for view in self.pool.candidates]

    def choose(self, **facts: object) -> Choice | None:
        facts.setdefault("at_least", 1)
        facts.setdefault("avoid", None)
        facts.setdefault("refuses", None)
        return self.scheduler.choose(self.pool, demand(), self.now, **facts)  # type: ignore[arg-type]

    def picks(self, times: int) -> Counter[str]:
        found = (self.choose() for _ in range(times))
        return Counter(choice.view.id for choice in found if choice is not None)


def demand(session: str = "", /, **hits: int) -> Demand:
    return Demand(request("r", session_key=session), 100, 50.0, 10.0, 0, {ReplicaId(k): v for k, v in hits.items()})


def test_candidates_are_sorted_by_id() -> None:
    assert Stage("c", "a", "b").candidates == ["a", "b", "c"]


def test_the_least_cost_wins_and_ties_are_broken_by_chance() -> None:
    assert set(Stage("a", "b", "c", policy=Fixed({"a": 2.0, "b": 1.0, "c": 3.0})).picks(20)) == {"b"}
    ties = Stage("a", "b", "c", policy=Fixed({"a": 1.0, "b": 1.0, "c": 3.0})).picks(400)
    assert set(ties) == {"a", "b"}
    assert min(ties.values()) > 150


def test_tolerance_widens_the_tie() -> None:
    near = Stage("a", "b", "c", policy=Fixed({"a": 100.0, "b": 104.0, "c": 106.0}, tolerance=0.05)).picks(200)
    assert set(near) == {"a", "b"}
    below_zero = Stage("a", "b", policy=Fixed({"a": -100.0, "b": -96.0}, tolerance=0.05)).picks(200)
    assert set(below_zero) == {"a", "b"}


def test_infinite_means_never() -> None:
    assert Stage("a", "b", policy=Fixed({})).choose() is None
    choice = Stage("a", "b", policy=Fixed({"b": 1.0})).choose()
    assert choice is not None
    assert choice.view.id == "b"


def test_not_a_number_means_never() -> None:
    assert set(Stage("a", "b", policy=Fixed({"a": math.nan, "b": 7.0})).picks(20)) == {"b"}
    assert Stage("a", policy=Fixed({"a": math.nan})).choose() is None


def test_hard_reasons_exclude_and_are_counted() -> None:
    stage = Stage("a", "b", "c", "d")
    stage.change("a", draining=True)
    stage.fleet.sample(LoadSample(ReplicaId("b"), 9.0, sleep_level=1), stage.now)
    stage.move("c", Phase.OPEN)
    assert stage.candidates == ["d"]
    assert stage.pool.exclusions == {"draining": 1, "ejected": 1, "sleeping": 1}
    stage.change("a", draining=False)
    assert stage.candidates == ["a", "d"]
    stage.change("a", draining=True)
    stage.change("d", draining=True)
    stage.move("c", Phase.CLOSED)
    stage.change("c", draining=True)
    assert stage.candidates == []
    assert stage.choose() is None


@pytest.mark.parametrize("phase", [Phase.OPEN, Phase.PROBING])
def test_the_last_one_is_never_ejected(phase: Phase) -> None:
    stage = Stage("a")
    stage.move("a", phase)
    assert stage.candidates == ["a"]
    assert stage.pool.panic


def test_panic_uses_all_that_can_be_reached() -> None:
    stage = Stage("a", "b", "c", "d")
    for name in ("a", "b"):
        stage.move(name, Phase.OPEN)
    assert stage.candidates == ["c", "d"], "half is not more than half"
    assert not stage.pool.panic
    stage.move("c", Phase.OPEN, unreachable=True)
    assert stage.candidates == ["a", "b", "d"], "nobody listens at c"
    states = [(e.state, e.reason) for e in entries(stage.out, HealthChanged) if not e.replica_id]
    assert states == [("panic", "model m")]
    stage.move("a", Phase.CLOSED)
    stage.move("c", Phase.CLOSED)
    assert stage.candidates == ["a", "c", "d"]
    assert [e.state for e in entries(stage.out, HealthChanged) if not e.replica_id] == ["panic", "calm"]


def test_the_unreachable_are_used_when_nothing_else_is_left() -> None:
    stage = Stage("a", "b")
    for name in ("a", "b"):
        stage.move(name, Phase.OPEN, unreachable=True)
    assert stage.candidates == ["a", "b"]


def test_pending_serves_only_if_nothing_else_does() -> None:
    stage = Stage("a")
    stage.add("b", ready=False)
    assert stage.candidates == ["a"]
    assert stage.pool.exclusions == {"pending": 1}
    stage.change("a", draining=True)
    assert stage.candidates == ["b"]
    assert not stage.pool.panic


def test_a_trial_is_open_to_one() -> None:
    stage = Stage("a", "b")
    stage.move("a", Phase.TRIAL)
    stage.fleet.replicas[ReplicaId("a")].health.breaker = Breaker.HALF_OPEN
    assert stage.candidates == ["a", "b"]
    stage.change("a", trial="t-0")
    assert stage.candidates == ["b"]


def test_backpressure_and_slow_start_only_ask_to_prefer_others() -> None:
    stage = Stage("a", "b")
    stage.change("a", avoid_until=stage.now + 1.0)
    assert stage.candidates == ["b"]
    stage.change("b", avoid_until=stage.now + 5.0)
    assert stage.candidates == ["a", "b"]
    stage.now += 2.0
    assert stage.candidates == ["a"], "time alone ended it"


def load(stage: Stage, name: str, in_flight: int = 0, context: int = 0) -> None:
    account = stage.fleet.replicas[ReplicaId(name)].account
    account.in_flight, account.context = in_flight, context
    stage.fleet.touch(stage.fleet.replicas[ReplicaId(name)])


def test_a_warming_replica_gets_a_growing_share() -> None:
    stage = Stage("a")
    stage.add("b", ramps=True)
    assert stage.candidates == ["a", "b"]
    load(stage, "b", in_flight=4)
    assert stage.candidates == ["a"], "a tenth of 32 requests"
    stage.now += 5.0
    assert stage.candidates == ["a", "b"], "half of 32"
    stage.add("b", kv_capacity_tokens=1000)
    load(stage, "b", in_flight=1, context=600)
    assert stage.candidates == ["a"]
    load(stage, "b", in_flight=1, context=400)
    assert stage.candidates == ["a", "b"]
    load(stage, "b", in_flight=0, context=600)
    assert stage.candidates == ["a", "b"], "with nothing in flight it may have one"
    stage.now += 5.0
    load(stage, "b", in_flight=30, context=999)
    assert stage.candidates == ["a", "b"]


def test_a_count_limit_excludes_and_never_falls_back() -> None:
    stage = Stage("a", "b", config=SchedulerConfig(max_in_flight=2))
    load(stage, "a", in_flight=2)
    assert stage.candidates == ["b"]
    stage.move("b", Phase.OPEN)
    assert stage.candidates == []
    assert stage.pool.saturated
    load(stage, "a", in_flight=1)
    assert stage.candidates == ["a"]
    assert not stage.pool.saturated


def test_avoided_and_too_small_are_counted_per_request() -> None:
    stage = Stage("a", "b")
    stage.add("c", max_model_tokens=50)
    choice = stage.choose(at_least=60, avoid=lambda name, why: "tried" if name == "a" else "")
    assert choice is not None
    assert choice.view.id == "b"
    assert choice.exclusions == {"too_small": 1, "tried": 1}
    assert stage.pool.exclusions == {}, "of the pool, none"
    assert stage.choose(avoid=lambda name, why: "tried") is None


def test_reasons_are_told_to_whoever_avoids() -> None:
    stage = Stage("a", "b")
    for name in ("a", "b"):
        stage.change(name, avoid_until=stage.now + 1.0)
    seen: dict[str, str] = {}
    stage.choose(avoid=lambda name, why: seen.setdefault(name, why) and "")
    assert seen == {"a": "backpressure", "b": "backpressure"}


def test_whether_it_fits_is_asked_of_the_favourite_first() -> None:
    stage = Stage("a", "b", "c", policy=Fixed({"a": 1.0, "b": 2.0, "c": 3.0}))
    asked: list[str] = []

    def refuses(view: ReplicaView) -> str:
        asked.append(view.id)
        return "no_headroom" if view.id == "a" else ""

    choice = stage.choose(refuses=lambda view: asked.append(view.id) or "")
    assert choice is not None
    assert asked == ["a"]
    asked.clear()
    choice = stage.choose(refuses=refuses)
    assert choice is not None
    assert choice.view.id == "b"
    assert choice.exclusions == {"no_headroom": 1}
    assert stage.choose(refuses=lambda view: "paced") is None


def test_only_those_asked_for_are_considered() -> None:
    stage = Stage("a", "b", "c", policy=Fixed({"a": 1.0, "b": 2.0, "c": 3.0}))
    view = stage.pool.candidate(ReplicaId("b"))
    assert view is not None
    choice = stage.choose(among=[view])
    assert choice is not None
    assert choice.view is view
    assert choice.exclusions == {"full_before": 2}
    assert stage.choose(among=[view], refuses=lambda view: "paced") is None
    assert stage.pool.candidate(ReplicaId("z")) is None


def test_pools_that_share_replicas_are_of_one_group() -> None:
    stage = Stage("a")
    stage.add("b", serves={"m": "big", "n": "big"}, precision="fp8")
    stage.add("c", serves={"n": "big", "o": "big"}, precision="bf16")
    stage.add("d", serves={"n": "big", "o": "big"}, precision="bf16")
    stage.add("e", serves={}, model="bare")
    pools = stage.scheduler.pools
    assert pools["m"].group == pools["n"].group == pools["o"].group != pools["bare"].group
    above = pools["n"].above
    assert [pool.group for pool in above.values()] == [pools["n"].group]
    assert pools["m"].from_rank(FULL).group == pools["m"].group, "nobody reaches it, but somebody may come"


def test_pools_are_by_the_names_clients_use() -> None:
    stage = Stage("a")
    stage.add("b", serves={"m": "big", "n": "big"})
    stage.add("c", serves={}, model="bare")
    assert {name: [r.spec.id for r in pool.replicas] for name, pool in stage.scheduler.pools.items()} == {
        "m": ["a", "b"],
        "n": ["b"],
        "bare": ["c"],
    }
    assert [pool.model for pool in stage.scheduler.pools_of(ReplicaId("b"))] == ["m", "n"]
    stage.fleet.remove(ReplicaId("b"))
    stage.scheduler.regroup(stage.now)
    assert list(stage.scheduler.pools) == ["m", "bare"]
    assert stage.candidates == ["a"]
    assert stage.scheduler.pools_of(ReplicaId("b")) == ()


def test_context_limits_of_a_pool() -> None:
    stage = Stage()
    stage.add("a", max_model_tokens=4000, kv_capacity_tokens=3000)
    stage.add("b", max_model_tokens=8000)
    assert (stage.pool.shortest, stage.pool.longest) == (3000, 8000)
    stage.add("c")
    assert (stage.pool.shortest, stage.pool.longest) == (3000, 0), "one unknown, no upper limit"
    assert context_limit(stage.fleet.replicas[ReplicaId("c")]) == 0


class Counting:
    """Costs by position; keeps how often it was asked."""

    name = "counting"
    parts = ("position", "other")
    tolerance = 0.0
    binds_late = False

    def costs(
        self, demand: Demand, views: Sequence[ReplicaView], now: float, rng: Chance
    ) -> Sequence[tuple[float, ...]]:
        return [(float(-i), float(i), 0.0) if i != 3 else (math.inf, 0.0, 0.0) for i in range(len(views))]


def test_a_decision_keeps_the_best_eight() -> None:
    stage = Stage(*[f"r{i:02d}" for i in range(20)], policy=Counting())
    choice = stage.choose()
    assert choice is not None
    made = stage.scheduler.decision(choice, demand(), forecast(demand(), choice.view), stage.now, 1, 2.5)
    assert [c.replica_id for c in made.candidates] == [f"r{i}" for i in range(19, 11, -1)]
    assert (made.chosen, made.attempt, made.queued_s) == ("r19", 1, 2.5)
    assert made.candidates[0].costs == (-19.0, 19.0, 0.0)
    assert made.parts == ("position", "other")
    assert (made.candidates[0].headroom_tokens, made.candidates[0].sample_age_s) == (None, -1.0)


def test_a_decision_leaves_out_who_was_never_possible() -> None:
    stage = Stage("a", "b", "c", "d", policy=Counting())
    choice = stage.choose()
    assert choice is not None
    made = stage.scheduler.decision(choice, demand(), forecast(demand(), choice.view), stage.now, 0, 0.0)
    assert [c.replica_id for c in made.candidates] == ["c", "b", "a"]


def test_the_chosen_is_always_among_the_candidates() -> None:
    tied = {f"r{i:02d}": 1.0 for i in range(20)}
    stage = Stage(*tied, policy=Fixed(tied))
    for _ in range(50):
        choice = stage.choose()
        assert choice is not None
        made = stage.scheduler.decision(choice, demand(), forecast(demand(), choice.view), stage.now, 0, 0.0)
        assert made.chosen in [c.replica_id for c in made.candidates]
        assert len(made.candidates) == 8


def test_ages_are_told_as_of_the_decision() -> None:
    stage = Stage("a")
    stage.fleet.sample(LoadSample(ReplicaId("a"), 9.5, kv_capacity_tokens=1000, kv_used_tokens=100), stage.now)
    choice = stage.choose()
    assert choice is not None
    made = stage.scheduler.decision(choice, demand(), forecast(demand(), choice.view), stage.now + 0.25, 0, 0.0)
    assert made.candidates[0].sample_age_s == 0.75
    assert made.candidates[0].headroom_tokens == pytest.approx(990.0 - 100.0)


def test_the_forecast_waits_for_what_was_sent_before() -> None:
    stage = Stage("a")
    load(stage, "a", in_flight=1)
    stage.fleet.replicas[ReplicaId("a")].account.prefill = 800
    view = stage.pool.candidates[0]
    cold, warm = forecast(demand(), view), forecast(demand(a=60), view)
    assert cold.ttft_s - warm.ttft_s == pytest.approx(60 / view.speed.prefill_tokens_per_s)
    assert (warm.cached_tokens, cold.cached_tokens) == (60, 0)
    assert cold.ttft_s > 900 / view.speed.prefill_tokens_per_s


def test_of_very_many_some_are_drawn_and_the_warmest_are_among_them() -> None:
    names = [f"r{i:02d}" for i in range(20)]
    policy = FewestInFlight()
    stage = Stage(*names, policy=policy, config=SchedulerConfig(considered=6, warmest=2))
    warm = demand(r03=50, r11=60, r17=10)
    seen: Counter[str] = Counter()
    for _ in range(200):
        choice = stage.scheduler.choose(stage.pool, warm, stage.now, 1, None, None)
        assert choice is not None
        shown = policy.shown[-1]
        assert list(shown) == sorted(shown)
        assert {"r03", "r11"} <= set(shown)
        assert 6 <= len(shown) <= 8
        assert choice.exclusions == {"not_drawn": 20 - len(shown)}
        seen.update(shown)
    assert set(seen) == set(names)


def test_without_warm_ones_exactly_so_many_are_drawn() -> None:
    policy = FewestInFlight()
    stage = Stage(*[f"r{i}" for i in range(9)], policy=policy, config=SchedulerConfig(considered=4))
    stage.picks(50)
    assert {len(shown) for shown in policy.shown} == {4}


def test_all_are_asked_before_one_says_that_nobody_fits() -> None:
    names = [f"r{i}" for i in range(9)]
    stage = Stage(*names, config=SchedulerConfig(considered=2))
    for _ in range(20):
        choice = stage.choose(refuses=lambda view: "" if view.id == "r5" else "paced")
        assert choice is not None
        assert choice.view.id == "r5"
    assert stage.choose(refuses=lambda view: "paced") is None
    only_one = Stage(*names, policy=Fixed({"r5": 1.0}), config=SchedulerConfig(considered=2))
    assert set(only_one.picks(20)) == {"r5"}


def test_nobody_is_added_for_a_hit_of_nothing() -> None:
    policy = FewestInFlight()
    stage = Stage(*[f"r{i}" for i in range(9)], policy=policy, config=SchedulerConfig(considered=4))
    stage.scheduler.choose(stage.pool, demand(r3=0), stage.now, 1, None, None)
    assert len(policy.shown[-1]) == 4


class TestSessions:
    """A session keeps to its replica while that may be used."""

    @staticmethod
    def stage(policy: object, **config: object) -> Stage:
        stage = Stage(*"abcd", policy=policy)
        made = AffinityConfig(**config)  # type: ignore[arg-type]
        stage.scheduler = Scheduler(stage.fleet, policy, random.Random(4), None, made)  # type: ignore[arg-type]
        stage.scheduler.regroup(stage.now)
        return stage

    @staticmethod
    def ask(stage: Stage, session: str = "s1", **facts: object) -> str | None:
        asked = demand(session)
        given: dict[str, object] = {"at_least": 1, "avoid": None, "refuses": None, **facts}
        choice = stage.scheduler.choose(stage.pool, asked, stage.now, **given)  # type: ignore[arg-type]
        return None if choice is None else choice.view.id

    def test_whatever_the_policy_would_like(self) -> None:
        stage = self.stage(FewestInFlight())
        owners = {f"s{n}": self.ask(stage, f"s{n}") for n in range(20)}
        assert set(owners.values()) == set("abcd")
        assert all(self.ask(stage, session) == owner for session, owner in owners.items())
        off = self.stage(FewestInFlight(), enabled=False)
        assert len({self.ask(off) for _ in range(40)}) == 4

    def test_the_next_one_while_the_owner_is_away_refuses_or_was_tried(self) -> None:
        stage = self.stage(FewestInFlight())
        first = self.ask(stage)
        assert first is not None
        second = self.ask(stage, avoid=lambda replica_id, why: "tried" if replica_id == first else "")
        assert second not in (first, None)
        assert self.ask(stage, refuses=lambda view: "full" if view.id == first else "") == second
        stage.change(first, draining=True)
        assert [self.ask(stage) for _ in range(3)] == [second] * 3
        stage.change(first, draining=False)
        assert self.ask(stage) == first
        assert self.ask(stage, refuses=lambda view: "full") is None

    def test_a_policy_that_knows_prefixes_is_yielded_to_unless_it_is_easy(self) -> None:
        class Knowing(Fixed):
            minds_prefixes = True

        owner = self.ask(self.stage(Fixed(dict.fromkeys("abcd", 1.0))))
        assert owner is not None
        cheap = next(name for name in "abcd" if name != owner)
        for cost, easy_s, whose in ((1.9, 0.0, owner), (2.1, 0.0, cheap), (2.1, 9.0, owner), (math.inf, 9.0, cheap)):
            policy = Knowing({**dict.fromkeys("abcd", 5.0), owner: cost, cheap: 1.0})
            stage = self.stage(policy, spare=0, bound=100.0, easy_prefill_s=easy_s, easy_step_s=easy_s)
            for replica in stage.fleet.replicas.values():
                replica.speed = changed(replica.speed, learned=True)
            assert self.ask(stage) == whose, (cost, easy_s)
        policy = Knowing({**dict.fromkeys("abcd", 5.0), owner: 4.0, cheap: 1.0})
        assert self.ask(self.stage(policy, spare=0, bound=100.0)) == cheap
        assert self.ask(self.stage(policy, spare=0, bound=100.0, yields=0.0)) == owner
        assert self.ask(self.stage(Fixed(policy.table), spare=0, bound=100.0)) == owner
        assert self.ask(self.stage(Fixed({**policy.table, owner: math.nan}))) == cheap

    def test_the_decision_says_so(self) -> None:
        stage = self.stage(Fixed(dict.fromkeys("abcd", 1.0)))
        for session, kept in (("s1", True), ("", False)):
            asked = demand(session)
            choice = stage.scheduler.choose(stage.pool, asked, stage.now, 1, None, None)
            assert choice is not None
            made = stage.scheduler.decision(choice, asked, forecast(asked, choice.view), stage.now, 0, 0.0)
            assert made.kept is kept

    def test_it_is_ranked_although_it_was_not_drawn(self) -> None:
        policy = FewestInFlight()
        stage = self.stage(policy)
        owner = self.ask(stage)
        few = Scheduler(stage.fleet, policy, random.Random(4), SchedulerConfig(considered=1))  # type: ignore[arg-type]
        few.regroup(stage.now)
        stage.scheduler = few
        assert [self.ask(stage) for _ in range(20)] == [owner] * 20
        assert {len(shown) for shown in policy.shown[1:]} == {1, 2}


def test_a_new_version_that_had_its_share_is_not_chosen_although_it_alone_is_asked() -> None:
    stage = Stage("a", policy=Fixed({"a": 9.0, "n": 1.0}))
    stage.now += 600.0
    stage.add("n", version="2")
    newest = stage.pool.candidate(ReplicaId("n"))
    assert newest is not None
    assert stage.choose(among=[newest]) is None, "somebody else may still take it"
    choice = stage.choose(among=[newest], avoid=lambda name, _why: "tried" if name == "a" else "")
    assert choice is not None, "nobody else may"
    assert choice.view.id == "n"
