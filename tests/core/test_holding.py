"""Who goes when room is made: asked are those who may have become free, in the order of what can still be met."""

from collections.abc import Sequence

import pytest

from headway.core.commands import Command, Dispatch, Hold, Reject, SetTimer
from headway.core.constants import AdmissionConfig, BrainConfig, MigrationConfig, PaceConfig, SpeedConfig
from headway.core.demand import Demand
from headway.core.events import DrainAsked, ProbeFailed, ProbeSucceeded, ReplicasChanged, RequestCancelled, TimerFired
from headway.core.holding import AVOIDED_S
from headway.core.ids import ReplicaId, RequestId
from headway.core.outcome import OutcomeKind
from headway.core.plugin import Chance
from headway.core.view import ReplicaView
from tests.core.house import FewestInFlight, House, decision, only, request, sent_to, spec

A, B = ReplicaId("a"), ReplicaId("b")


class Priced:
    """Costs by replica, as told."""

    name = "priced"
    parts: tuple[str, ...] = ()
    tolerance = 0.0
    binds_late = True

    def __init__(self, **costs: float) -> None:
        self.table = costs

    def costs(
        self, demand: Demand, views: Sequence[ReplicaView], now: float, rng: Chance
    ) -> Sequence[tuple[float, ...]]:
        return [(self.table[view.id],) for view in views]


def ready(*names: str, policy: object = None, **facts: object) -> House:
    """Replicas of 1,000 tokens each, no pace."""
    config = BrainConfig(admission=AdmissionConfig(pace=False))
    house = House(policy or FewestInFlight(binds_late=True), config)
    facts.setdefault("kv_capacity_tokens", 1000)
    house.add(*names, **facts)
    return house


def ask(house: House, name: str, tokens: int = 400, **facts: object) -> list[Command]:
    """A request whose memory is known: it generates nothing."""
    return house.ask(name, prompt_tokens=tokens, generates=False, **facts)


def released(commands: list[Command]) -> list[str]:
    return [d.request_id for d in only(commands, Dispatch)]


class TestOrder:
    """By need, in a house with one replica."""

    def test_the_least_slack_goes_first(self) -> None:
        house = ready("a")
        ask(house, "r", 900)
        ask(house, "patient", 800)
        assert only(ask(house, "hurried", 100), Hold)[0].position == 1, "a short prompt may wait less"
        assert released(house.end("r-0")) == ["hurried", "patient"]

    def test_who_missed_its_objective_goes_behind(self) -> None:
        house = ready("a")
        ask(house, "r", 900)
        ask(house, "old", 600)
        house.wait(5.0)
        ask(house, "new", 600)
        assert released(house.end("r-0")) == ["new"]
        assert released(house.end("new-0")) == ["old"]

    def test_nobody_is_overtaken_for_ever(self) -> None:
        config = BrainConfig(admission=AdmissionConfig(pace=False, late_bypass=3))
        house = House(FewestInFlight(binds_late=True), config)
        house.add("a", kv_capacity_tokens=1000)
        ask(house, "r", 900)
        ask(house, "old", 900)
        house.wait(5.0)
        went, current = [], "r-0"
        for number in range(6):
            ask(house, f"n{number}", 900)
            went += (first := released(house.end(current)))
            current = f"{first[0]}-0"
        assert went == ["n0", "n1", "n2", "old", "n3", "n4"]

    def test_nobody_waits_longer_than_the_bound(self) -> None:
        house = ready("a")
        ask(house, "r", 900)
        ask(house, "s", 900)
        house.wait(30.0)
        (refusal,) = only(house.tell(TimerFired(house.now, "queue:m")), Reject)
        assert (refusal.request_id, refusal.code) == ("s", "queue_timeout")

    def test_first_tokens_teach_when_it_is_too_late(self) -> None:
        house = ready("a", "b")
        admission = house.brain._admission
        for number in range(40):
            house.ask(f"w{number}", prompt_tokens=100)
            house.wait(0.7).first(f"w{number}-0")
            house.end(f"w{number}-0")
        slow = admission._lag_s
        assert 0.2 < slow < 0.75
        for number in range(400):
            house.ask(f"q{number}", prompt_tokens=100)
            house.wait(0.01).first(f"q{number}-0")
            house.end(f"q{number}-0")
        assert admission._lag_s < slow / 4


def test_a_change_at_one_replica_asks_that_one_only() -> None:
    policy = FewestInFlight(binds_late=True)
    house = ready("a", "b", policy=policy)
    for name in ("r", "s"):
        ask(house, name, 900)
    ask(house, "t", 900)
    policy.shown.clear()
    commands = house.end("s-0")
    assert released(commands) == ["t"]
    assert policy.shown == [("b",)]
    assert decision(commands).exclusions == {"full_before": 1}


def test_who_was_refused_as_much_is_not_measured_again() -> None:
    house = ready("a")
    ask(house, "r", 900)
    for number in range(5):
        ask(house, f"t{number}", 500 + number)
    asked = house.brain._admission._refused[A]
    assert asked[1] < 510.0
    assert released(house.end("r-0")) == ["t0"]


def test_a_replica_that_leaves_is_no_candidate() -> None:
    house = ready("a", "b")
    for name in ("r", "s"):
        ask(house, name, 900)
    ask(house, "t", 900)
    house.tell(DrainAsked(house.now, B))
    assert released(house.end("s-0" if house.view("b").in_flight else "r-0")) == []


def test_every_policy_may_be_put_behind_the_queue() -> None:
    config = BrainConfig(admission=AdmissionConfig(every_policy=True))
    house = House(FewestInFlight(binds_late=False), config)
    house.add("a", kv_capacity_tokens=1000)
    ask(house, "r", 900)
    assert only(ask(house, "s", 900), Hold)


def test_who_does_not_wait_has_no_place_in_a_queue() -> None:
    house = ready("a")
    ask(house, "r", 900)
    admission, jobs = house.brain._admission, house.brain._jobs
    assert admission.prospect(jobs[RequestId("r")], 0.0) is None, "nobody waits at all"
    ask(house, "s", 900)
    assert admission.prospect(jobs[RequestId("r")], 0.0) is None
    assert admission.prospect(jobs[RequestId("s")], 0.0) == (1, 0.0)


def test_without_the_hold_memory_is_no_reason() -> None:
    config = BrainConfig(admission=AdmissionConfig(hold=False))
    house = House(FewestInFlight(binds_late=True), config)
    house.add("a", kv_capacity_tokens=1000)
    assert all(sent_to(ask(house, f"r{i}", 900)) for i in range(5))


# -- the pace


def paced(*names: str, policy: object = None, **pace: float) -> House:
    """Replicas that decode a step of 30 ms and prefill 1,000 tokens a second, and know it."""
    config = BrainConfig(pace=PaceConfig(burst_s=0.1, **pace), speed=SpeedConfig(enough=0))  # type: ignore[arg-type]
    house = House(policy or FewestInFlight(binds_late=True), config)
    house.add(*names, features=paced_features())
    return house


def paced_features() -> dict[str, float]:
    return {
        "step_base_s": 0.03,
        "step_per_request_s": 0.0,
        "step_per_token_s": 0.0,
        "prefill_tokens_per_s": 1000.0,
    }


def test_a_prompt_waits_for_its_turn_and_a_timer_lets_it_go() -> None:
    house = paced("a", target=1.0)
    assert sent_to(house.ask("r", prompt_tokens=500)) == A, "nobody decodes there"
    commands = house.ask("s", prompt_tokens=500)
    (hold,), (timer,) = only(commands, Hold), only(commands, SetTimer)
    assert hold.position == 1
    assert timer == SetTimer("queue:m", pytest.approx(1.0)), "0.4 s are owed, and 40 % of the time is left for them"
    house.wait(0.9)
    again = house.tell(TimerFired(house.now, "queue:m"))
    assert released(again) == []
    assert only(again, SetTimer)
    house.wait(0.11)
    assert released(house.tell(TimerFired(house.now, "queue:m"))) == ["s"]


def test_who_matters_is_found_behind_one_that_was_overtaken_too_often() -> None:
    config = BrainConfig(admission=AdmissionConfig(pace=False, late_bypass=0))
    house = House(FewestInFlight(binds_late=True), config)
    house.add("a", kv_capacity_tokens=1000)
    assert sent_to(ask(house, "r", 900))
    assert only(ask(house, "old", 900), Hold)
    house.wait(20.0)
    house.brain._holding.release(house.brain._scheduler.pools.values(), house.now, [])
    holding, admission = house.brain._holding, house.brain._admission
    assert holding.blocked("m", 1) == []
    assert only(ask(house, "urgent", 900, tier=1), Hold)
    assert [item.job.request.id for item in admission.queues["m"]] == ["old", "urgent"]
    assert [job.request.id for job in holding.blocked("m", 1)] == ["urgent"]


def test_what_is_urgent_is_not_paced() -> None:
    house = paced("a", target=1.0)
    assert sent_to(house.ask("r", prompt_tokens=500)) == A
    assert only(house.ask("s", prompt_tokens=500), Hold)
    assert sent_to(house.ask("t", prompt_tokens=500, tier=1)) == A


def test_whose_replica_died_is_not_paced() -> None:
    config = BrainConfig(
        pace=PaceConfig(burst_s=0.1, target=1.0), speed=SpeedConfig(enough=0), migration=MigrationConfig(enabled=True)
    )
    house = House(Priced(a=0.0, b=1.0), config)
    house.add("a", "b", features=paced_features(), kv_capacity_tokens=100_000)
    assert sent_to(house.ask("r", prompt_tokens=2000, resumable=True)) == A
    house.first("r-0")
    assert sent_to(house.ask("s", prompt_tokens=2000)) == "b", "nobody is to be protected there"
    assert only(house.ask("t", prompt_tokens=2000), Hold), "both are to have a rest"
    end = house.end("r-0", OutcomeKind.TRUNCATED, committed=True, sent=True, output_tokens=5, resumable=True)
    sent = only(end, Dispatch)[0]
    assert (sent.request_id, sent.replica_id, sent.resumes) == ("r", "b", True)


def test_a_timer_is_never_set_for_now() -> None:
    house = paced("a", target=1.0)
    house.ask("r", prompt_tokens=101)
    (timer,) = only(house.ask("s", prompt_tokens=500), SetTimer)
    assert timer.at >= house.now + 0.001


def test_others_take_what_a_paced_one_cannot() -> None:
    house = paced("a", "b")
    first = sent_to(house.ask("r", prompt_tokens=5000))
    commands = house.ask("s", prompt_tokens=5000)
    assert {first, sent_to(commands)} == {A, B}
    assert only(house.ask("t", prompt_tokens=5000), Hold)


def test_exclusions_tell_the_pace_from_memory() -> None:
    policy = Priced(a=0.0, b=1.0, c=2.0)
    house = paced("a", "b", "c", policy=policy)
    assert sent_to(house.ask("r", prompt_tokens=5000)) == A
    house.report("b", kv_capacity_tokens=1000, kv_used_tokens=990, running=3, waiting=0)
    commands = house.ask("s", prompt_tokens=50)
    assert sent_to(commands) == "c"
    assert decision(commands).exclusions == {"paced": 1, "no_headroom": 1}


def test_a_cached_prompt_is_not_paced() -> None:
    house = paced("a", target=1.0)
    facts = {"prompt_tokens": 1024, "prompt_bytes": 4096, "prefix_hashes": tuple(range(1, 9))}
    assert sent_to(house.ask("r", **facts)) == A
    assert only(house.ask("other", prompt_tokens=500), Hold)
    assert sent_to(house.ask("t", **facts)) == A


@pytest.mark.parametrize(
    ("cached", "wait_s", "gone", "whose"),
    [(True, 1.01, (), B), (False, 1.01, (), A), (True, 9.0, (), B), (True, 1.01, (B,), A)],
)
def test_who_came_to_a_long_queue_is_asked_about_the_replica_that_has_its_prefix(
    cached: bool, wait_s: float, gone: tuple[ReplicaId, ...], whose: ReplicaId
) -> None:
    """It is closed to others, and nothing happened there: but this one needs no turn."""
    blocks = tuple(range(1, 9))
    facts = {"prompt_tokens": 1024, "prompt_bytes": 4096, "tenant": "t"}
    config = BrainConfig(
        admission=AdmissionConfig(scan=1), pace=PaceConfig(burst_s=0.1, target=1.0), speed=SpeedConfig(enough=0)
    )
    house = House(Priced(a=1.0, b=0.0), config)
    house.add("a", "b", features=paced_features())
    assert sent_to(house.ask("r", prefix_hashes=blocks if cached else (), **facts)) == B
    assert sent_to(house.ask("q", prompt_tokens=500)) == A
    for name in ("x", "y"):
        assert only(house.ask(name, prompt_tokens=500, tenant="z"), Hold)
    assert only(house.ask("t", prefix_hashes=blocks, **facts), Hold)
    for replica_id in gone:
        house.tell(DrainAsked(house.now, replica_id))
    house.wait(wait_s)
    sent = only(house.tell(TimerFired(house.now, "queue:m")), Dispatch)[0]
    assert (sent.request_id, sent.replica_id) == ("t", whose)


def test_a_flow_of_long_prompts_is_not_paced() -> None:
    """Nobody waits for a turn that would help nobody; prompts that can be spread wait."""
    for tokens, waits in ((200, True), (5000, False)):
        house = paced("a", target=1.0, longest_s=1.0)
        for number in range(3):
            house.ask(f"r{number}", prompt_tokens=tokens)
            house.wait(0.6)
        house.brain._admission.pace.sent(house.view("a"), 10_000, house.now)  # type: ignore[union-attr]
        assert bool(only(house.ask("s", prompt_tokens=tokens), Hold)) is waits


# -- a replica is kept for who was overtaken too often


def outrun(*names: str, **limits: int) -> House:
    """Each replica of 1,000 tokens has 600 in one request and 100 in another; `big` waits for 900 and was overtaken
    twice, which is as often as it may be (`s0` and `s1` are those who went before)."""
    config = BrainConfig(admission=AdmissionConfig(pace=False, bypass_max=2))
    house = House(Priced(**{name: float(k) for k, name in enumerate(names)}), config)
    specs = [spec(n, kv_capacity_tokens=1000, max_model_tokens=limits.get(n, 0)) for n in names]
    house.tell(ReplicasChanged(house.now, tuple(specs)))
    for name in names:
        house.tell(ProbeSucceeded(house.now, ReplicaId(name)))
        assert sent_to(ask(house, f"r-{name}", 600)) == name
        assert sent_to(ask(house, f"q-{name}", 200)) == name
    assert only(ask(house, "big", 900), Hold)
    for number in range(2):
        assert sent_to(ask(house, f"s{number}", 50)) == names[0]
        house.end(f"s{number}-0")
    return house


def kept(house: House) -> tuple[str, str]:
    queue = house.brain._admission.queues["m"]
    return queue.kept, queue.kept_for


def test_as_many_go_as_will_fit_when_all_have_become_as_long_as_they_must() -> None:
    """They ignore the end of text: three would fill the pool behind the last horizon that they live to see."""
    house = ready("a", kv_capacity_tokens=1600)
    facts = {"prompt_tokens": 3, "max_output_tokens": 700, "min_output_tokens": 700}
    sent = [bool(only(house.ask(f"r{k}", **facts), Dispatch)) for k in range(4)]
    assert sent == [True, True, False, False]


class TestKept:
    """One huge prompt stops one replica, not the fleet."""

    def test_others_go_elsewhere_meanwhile(self) -> None:
        house = outrun("a", "b", "c")
        assert kept(house) == ("a", "big")
        commands = ask(house, "t", 100)
        assert sent_to(commands) == "b", "a has as much room, and is cheaper"
        assert decision(commands).exclusions == {"kept": 1}
        assert only(ask(house, "u", 150), Dispatch)[0].replica_id == "c"
        assert kept(house) == ("a", "big"), "one only, however many overtake it"

    @pytest.mark.parametrize("size", [6_000, 30_000])
    def test_what_is_forecast_to_fit_nowhere_goes_when_it_may_fit(self, size: int) -> None:
        """By the least that so many bytes may be: 6,000 beside 200 tokens, 30,000 not. The engine knows."""
        config = BrainConfig(admission=AdmissionConfig(pace=False, bypass_max=2))
        house = House(FewestInFlight(binds_late=True), config)
        house.add("a", kv_capacity_tokens=1000)
        least = house.brain._fleet.length.prompt_tokens_at_least
        vast = {"prompt_tokens": 0, "prompt_bytes": size, "generates": False}
        assert (least(request("v", **vast)) < 790) is (size == 6_000)
        assert sent_to(ask(house, "r", 600)) == "a"
        assert sent_to(ask(house, "q", 200)) == "a"
        assert only(house.ask("vast", **vast), Hold)
        for number in range(2):
            assert sent_to(ask(house, f"s{number}", 50)) == "a"
            assert not released(house.end(f"s{number}-0"))
        assert kept(house) == ("a", "vast")
        assert released(house.end("r-0")) == (["vast"] if size == 6_000 else [])
        assert released(house.end("q-0")) == ([] if size == 6_000 else ["vast"])

    def test_nothing_is_moved_away_for_what_is_forecast_to_fit_nowhere(self) -> None:
        house = ready("a", kv_capacity_tokens=1000)
        assert sent_to(ask(house, "r", 900)) == "a"
        assert only(house.ask("vast", prompt_tokens=0, prompt_bytes=6000, generates=False, tier=1), Hold)
        assert house.brain._holding.blocked("m", 1) == []
        assert only(ask(house, "large", 800, tier=1), Hold)
        assert [job.request.id for job in house.brain._holding.blocked("m", 1)] == ["large"]

    def test_not_from_those_who_matter_more(self) -> None:
        house = outrun("a", "b", "c")
        assert sent_to(ask(house, "t", 100, tier=1)) == "a"

    def test_the_one_with_the_most_headroom_is_kept(self) -> None:
        house = outrun("a", "b", "c")
        house.tell(RequestCancelled(house.now, RequestId("big")))
        house.end("q-b-0")
        assert only(ask(house, "big2", 900), Hold)
        for number in range(2):
            assert sent_to(ask(house, f"t{number}", 50)) == "a"
            house.end(f"t{number}-0")
        assert kept(house) == ("b", "big2")

    def test_one_that_is_too_small_for_it_is_not(self) -> None:
        house = outrun("a", "b", a=800)
        house.end("q-a-0")
        assert kept(house) == ("b", "big")

    def test_no_replica_that_could_hold_it_means_none_is_kept(self) -> None:
        house = outrun("a", "b", a=800)
        house.tell(RequestCancelled(house.now, RequestId("big")))
        assert only(ask(house, "big2", 900), Hold)
        for number in range(2):
            ask(house, f"t{number}", 50)
        house.tell(DrainAsked(house.now, B))
        house.end("t0-0")
        assert kept(house) == ("", "")

    def test_it_goes_when_the_kept_one_is_free_and_the_keeping_ends(self) -> None:
        house = outrun("a", "b")
        assert released(house.end("q-a-0")) == []
        assert released(house.end("r-a-0")) == ["big"]
        assert kept(house) == ("", "")
        assert sent_to(ask(house, "t", 50)) == A

    def test_it_goes_elsewhere_if_that_is_free_before(self) -> None:
        house = outrun("a", "b")
        house.end("q-b-0")
        assert sent_to(house.end("r-b-0")) == B
        assert kept(house) == ("", "")
        assert sent_to(ask(house, "t", 50)) == A

    def test_it_ends_when_the_client_goes_away(self) -> None:
        house = outrun("a")
        assert only(ask(house, "t", 50), Hold)
        assert released(house.tell(RequestCancelled(house.now, RequestId("big")))) == ["t"]
        assert kept(house) == ("", "")

    def test_it_ends_when_time_is_over(self) -> None:
        house = outrun("a")
        house.wait(29.0)
        assert only(ask(house, "t", 50), Hold)
        house.wait(1.0)
        commands = house.tell(TimerFired(house.now, "queue:m"))
        assert [r.request_id for r in only(commands, Reject)] == ["big"]
        assert released(commands) == ["t"]

    def test_another_is_kept_when_that_one_leaves(self) -> None:
        house = outrun("a", "b")
        house.tell(DrainAsked(house.now, A))
        assert released(house.end("q-b-0")) == []
        assert kept(house) == ("b", "big")
        assert only(ask(house, "t", 50), Hold)
        assert released(house.end("r-b-0")) == ["big", "t"]

    def test_at_a_single_replica_everybody_waits_for_it(self) -> None:
        house = outrun("a")
        for number in range(3):
            assert only(ask(house, f"t{number}", 10), Hold)
        assert released(house.end("q-a-0")) == []
        assert released(house.end("r-a-0")) == ["big", "t0", "t1", "t2"]

    @pytest.mark.parametrize("count", [1, 40])
    def test_it_is_asked_wherever_it_has_got_to(self, count: int) -> None:
        """Others have less slack and are before it now, as many as are looked at and more; and it must not be skipped
        for needing more than one who was refused because the replica is kept."""
        house = outrun("a")
        for number in range(count):
            assert only(ask(house, f"t{number}", 10), Hold)
        assert house.brain.queue_positions()["big"] == count + 1
        house.end("q-a-0")
        assert released(house.end("r-a-0"))[0] == "big"

    def test_who_became_late_is_asked_as_well(self) -> None:
        house = outrun("a")
        house.wait(10.0)
        assert only(ask(house, "t", 50), Hold)
        house.end("q-a-0")
        assert house.brain.queue_positions() == {RequestId("t"): 1, RequestId("big"): 2}
        assert released(house.end("r-a-0")) == ["big", "t"]

    def test_the_next_head_that_is_outrun_takes_over(self) -> None:
        house = outrun("a", "b")
        assert only(ask(house, "hurried", 850), Hold)
        assert house.brain.queue_positions()[RequestId("hurried")] == 1
        for number in range(2):
            assert sent_to(ask(house, f"t{number}", 50)) == B
            house.end(f"t{number}-0")
        assert kept(house)[1] == "hurried"


class TestLost:
    """`x` lost its replica `a` in mid-answer, and `b` is full for long."""

    def house(self, *waiting: int) -> House:
        config = BrainConfig(
            admission=AdmissionConfig(pace=False, bypass_max=1), migration=MigrationConfig(enabled=True)
        )
        house = House(Priced(a=0.0, b=1.0), config)
        house.add("a", "b", kv_capacity_tokens=1000)
        assert sent_to(ask(house, "x", 600, resumable=True)) == "a"
        house.first("x-0")
        assert sent_to(ask(house, "y", 900)) == "b"
        for number, tokens in enumerate(waiting):
            assert only(ask(house, f"w{number}", tokens), Hold)
        return house

    def lose(self, house: House, kind: OutcomeKind = OutcomeKind.RESET) -> list[Command]:
        return house.end("x-0", kind, committed=True, sent=True, resumable=True, output_tokens=10)

    @pytest.mark.parametrize("late", [False, True])
    def test_it_stops_nobody_who_was_lost_nowhere(self, late: bool) -> None:
        house = self.house(900)
        house.wait(10.0 if late else 0.0)
        assert released(self.lose(house)) == ["w0"], "larger than the one that is not to go there"
        assert list(house.brain.queue_positions()) == ["x"]

    def test_it_goes_back_to_a_replica_that_stays_in_use(self) -> None:
        house = self.house()
        commands = self.lose(house)
        assert released(commands) == []
        due = [timer.at for timer in only(commands, SetTimer) if timer.timer == "queue:m"][-1]
        assert due == AVOIDED_S, "nothing else may happen meanwhile"
        assert released(house.wait(AVOIDED_S - 0.5).report("a")) == []
        assert sent_to(house.wait(0.5).tell(TimerFired(house.now, "queue:m"))) == "a"
        assert house.brain._admission.queues["m"].apart == 0

    def test_it_goes_back_to_one_that_is_in_use_again(self) -> None:
        house = self.house()
        self.lose(house)
        house.tell(ProbeFailed(house.now, A, refused=True))
        for _ in range(4):
            assert released(house.wait(3.0).tell(TimerFired(house.now, "queue:m"))) == []
            house.tell(TimerFired(house.now, "breaker:a"))
        assert sent_to(house.tell(ProbeSucceeded(house.now, A))) == "a"

    def test_no_replica_is_kept_for_one_that_is_not_to_go_there(self) -> None:
        house = self.house()
        self.lose(house)
        for number in range(3):
            assert only(ask(house, f"t{number}", 900), Dispatch)[0].replica_id == "a"
            house.end(f"t{number}-0")
        assert kept(house) == ("b", "x")
        assert sent_to(ask(house, "u", 900)) == "a"
