"""Tiers, turns and bounds among those who wait for the same replicas under several names or at several precisions."""

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.core.commands import Command, Dispatch, Hold, Reject
from headway.core.constants import AdmissionConfig, BrainConfig
from headway.core.events import DrainAsked, ProbeSucceeded, ReplicasChanged, RequestCancelled, TimerFired
from headway.core.ids import ReplicaId, RequestId
from headway.core.tenant import Tier
from tests.core.house import FewestInFlight, House, only, sent_to, spec
from tests.core.test_holding import Priced, ask, released

NAMES = {"m": "big", "n": "big"}


def ready(*names: str, policy: object = None, facts: dict[str, object] | None = None, **settings: object) -> House:
    """Replicas of 1,000 tokens that serve one model under two names, no pace."""
    settings.setdefault("queue_timeout_s", 500.0)
    config = BrainConfig(admission=AdmissionConfig(pace=False, **settings))  # type: ignore[arg-type]
    house = House(policy or FewestInFlight(binds_late=True), config)
    house.add(*names, kv_capacity_tokens=1000, serves=NAMES, **(facts or {}))
    return house


def mixed(**settings: object) -> House:
    """One replica of 1,000 tokens of each precision; the fp8 one is preferred."""
    config = BrainConfig(admission=AdmissionConfig(pace=False, queue_timeout_s=500.0, **settings))  # type: ignore[arg-type]
    house = House(Priced(a=2.0, b=1.0), config)
    specs = [spec(n, precision=p, kv_capacity_tokens=1000) for n, p in (("a", "bf16"), ("b", "fp8"))]
    house.tell(ReplicasChanged(0.0, tuple(specs)))
    for each in specs:
        house.tell(ProbeSucceeded(0.0, each.id))
    return house


def went(house: House, first: str, count: int) -> list[str]:
    """In which order so many go to the only replica, each once the one before has ended."""
    order = [first]
    for _ in range(count):
        order += released(house.end(f"{order[-1]}-0"))
    return order[1:]


def lanes(house: House) -> dict[str, list[str]]:
    queues = house.brain._admission.queues.values()
    return {queue.lane: [item.job.request.id for item in queue] for queue in queues}


# -- one pool, several names and precisions


@pytest.mark.parametrize("asked", [{"precision_floor": "bf16"}, {"model": "n"}])
def test_what_is_critical_goes_first_however_it_was_asked_for(asked: dict[str, str]) -> None:
    house = ready("a", facts={"precision": "bf16"})
    ask(house, "r", 900)
    for number in range(3):
        ask(house, f"low{number}", 900, tier=Tier.LOW)
    ask(house, "critical", 900, tier=Tier.CRITICAL, **asked)
    assert went(house, "r", 4) == ["critical", "low0", "low1", "low2"]


def test_tenants_take_turns_under_all_names() -> None:
    house = ready("a")
    ask(house, "r", 900)
    for number in range(4):
        ask(house, f"a{number}", 900, tenant="a")
    for number in range(2):
        ask(house, f"b{number}", 900, tenant="b", model="n")
    order = went(house, "r", 6)
    assert [name[0] for name in order[:4]] in (["a", "b"] * 2, ["b", "a"] * 2)
    ask(house, "c0", 900, tenant="b", model="n")
    ask(house, "c1", 900, tenant="c")
    assert went(house, order[-1], 1) == ["c1"], "b was served more"


@pytest.mark.parametrize("model", ["m", "n"])
def test_what_waits_long_behind_a_higher_tier_rises_whatever_name_that_has(model: str) -> None:
    house = ready("a", rise_s=10.0)
    ask(house, "r", 900)
    ask(house, "low", 900, tier=Tier.LOW, model=model)
    house.wait(9.0)
    ask(house, "first", 900)
    house.wait(9.0)
    assert went(house, "r", 2) == ["low", "first"], "it counts as ordinary now and came before"


def test_a_floor_that_all_reach_makes_no_queue_of_its_own() -> None:
    house = ready("a", facts={"precision": "bf16"}, max_queued=2)
    ask(house, "r", 900)
    out: list[Command] = []
    for floor in ("", "bf16", "fp8", "any"):
        out += ask(house, f"asks for {floor}", 900, precision_floor=floor)
    assert len(only(out, Hold)) == 2
    assert [refusal.code for refusal in only(out, Reject)] == ["queue_full"] * 2
    assert list(lanes(house)) == ["m"]


def test_a_newcomer_goes_behind_those_who_wait_under_another_name() -> None:
    house = ready("a")
    ask(house, "r", 900)
    ask(house, "high", 600, tier=Tier.HIGH)
    assert only(ask(house, "small", 50, model="n"), Hold), "it would fit"
    assert sent_to(ask(house, "urgent", 50, model="n", tier=Tier.CRITICAL)) == "a"
    assert released(house.end("r-0")) == ["high", "small"]


def test_whoever_is_passed_under_another_name_has_a_replica_kept_for_it() -> None:
    house = ready("a", "b", bypass_max=2)
    for name in ("r", "s"):
        ask(house, name, 500)
    ask(house, "big", 900)
    for number in range(2):
        assert sent_to(ask(house, f"n{number}", 100, model="n"))
    house.end("n0-0")
    queue = house.brain._admission.queues["m"]
    assert queue.kept_for == "big"
    other = {"a": "b", "b": "a"}[queue.kept]
    assert [sent_to(ask(house, f"t{number}", 100, model="n")) for number in range(3)] == [other] * 3


def test_each_who_was_passed_has_a_replica_of_its_own_kept() -> None:
    """Both are honoured, and neither keeps the other from its own."""
    house = ready("a", "b", bypass_max=1)
    for name in ("r", "s"):
        ask(house, name, 500)
    ask(house, "big", 900)
    ask(house, "vast", 900, model="n")
    house.end("x-0")
    for model in ("m", "n"):
        assert sent_to(ask(house, f"p-{model}", 50, model=model))
    house.tell(RequestCancelled(house.now, RequestId("nobody")))
    house.tell(TimerFired(house.now, "queue:m"))
    kept = [house.brain._admission.queues[lane].kept for lane in ("m", "n")]
    assert sorted(kept) == ["a", "b"]
    assert only(ask(house, "small", 50), Hold), "both replicas are kept"
    for name in ("r", "s", "p-m", "p-n"):
        house.end(f"{name}-0")
    assert house.view("a").in_flight > 0
    assert house.view("b").in_flight > 0
    assert lanes(house) == {"m": [], "n": []}


def test_the_late_one_is_passed_so_often_and_no_more_under_all_names() -> None:
    house = ready("a", late_bypass=3)
    ask(house, "r", 900)
    ask(house, "old", 900)
    house.wait(60.0)
    for number in range(6):
        ask(house, f"n{number}", 900, model="n")
    assert went(house, "r", 4) == ["n0", "n1", "n2", "old"]


def test_who_is_late_takes_no_room_that_one_in_time_waits_for_under_another_name() -> None:
    house = ready("a")
    ask(house, "r", 500)
    ask(house, "q", 300)
    ask(house, "old", 250)
    house.wait(60.0)
    ask(house, "new", 600, model="n")
    assert released(house.end("q-0")) == [], "it would fit"
    assert released(house.end("r-0")) == ["new"]


ARRIVALS = st.lists(
    st.tuples(st.integers(-1, 2), st.sampled_from("ab"), st.floats(0.1, 5.0), st.sampled_from("mn")),
    min_size=1,
    max_size=12,
)


@given(ARRIVALS)
def test_under_two_names_all_go_in_the_order_in_which_they_would_under_one(
    arrivals: list[tuple[int, str, float, str]],
) -> None:
    orders = []
    for one in (True, False):
        house = ready("a", rise_s=0.0, hopeless=0.0)
        ask(house, "r", 900)
        for number, (tier, tenant, gap, model) in enumerate(arrivals):
            house.wait(gap)
            ask(house, f"r{number}", 900, tier=tier, tenant=tenant, model="m" if one else model)
        orders.append(went(house, "r", len(arrivals)))
    assert orders[0] == orders[1]
    assert len(orders[0]) == len(arrivals)


# -- pools that overlap


def test_a_precision_keeps_its_own_replicas_from_the_others_and_no_more() -> None:
    house = mixed()
    assert sent_to(ask(house, "r", 600)) == "a"
    assert sent_to(ask(house, "s", 600, precision_floor="any")) == "b"
    assert only(ask(house, "high", 600, tier=Tier.HIGH), Hold)
    assert only(ask(house, "t", 600, precision_floor="any"), Hold)
    assert sent_to(ask(house, "small", 100, precision_floor="any")) == "b", "a has as much room"
    house.end("small-0")
    house.tell(DrainAsked(house.now, ReplicaId("b")))
    assert only(ask(house, "late", 100, precision_floor="any"), Hold), "a is for the one who matters more"
    assert lanes(house) == {"bf16|m": ["high"], "m": ["late", "t"]}
    assert released(house.tell(DrainAsked(house.now, ReplicaId("b"), draining=False))) == ["late"]
    assert [(d.request_id, d.replica_id) for d in only(house.end("s-0"), Dispatch)] == [("t", "b")]
    assert [(d.request_id, d.replica_id) for d in only(house.end("r-0"), Dispatch)] == [("high", "a")]


def test_who_needs_as_much_as_one_that_did_not_fit_is_asked_elsewhere() -> None:
    house = mixed()
    ask(house, "r", 600)
    ask(house, "s", 600, precision_floor="any")
    assert only(ask(house, "high", 600, tier=Tier.HIGH), Hold)
    assert only(ask(house, "t", 700, precision_floor="any"), Hold)
    out = house.end("s-0")
    assert [(d.request_id, d.replica_id) for d in only(out, Dispatch)] == [("t", "b")]
    assert lanes(house) == {"bf16|m": ["high"], "m": []}


def test_a_replica_that_went_to_one_precision_passes_nobody_of_another() -> None:
    house = mixed(bypass_max=1, urgent_bypass=1)
    ask(house, "r", 600)
    ask(house, "s", 600, precision_floor="any")
    ask(house, "high", 600, tier=Tier.HIGH)
    for number in range(5):
        assert sent_to(ask(house, f"t{number}", 100, precision_floor="any")) == "b"
        house.end(f"t{number}-0")
    assert house.brain._admission.queues["bf16|m"].kept == ""


# -- the fleet changes


def test_those_who_wait_are_sorted_anew_when_precisions_come_and_go() -> None:
    house = ready("a", facts={"precision": "bf16"})
    ask(house, "r", 900)
    ask(house, "any", 900, precision_floor="any")
    house.wait(1.0)
    ask(house, "full", 900)
    ask(house, "other", 900, precision_floor="any", tier=Tier.LOW)
    assert lanes(house) == {"m": ["any", "full", "other"]}
    house.tell(ReplicasChanged(house.now, (spec("b", kv_capacity_tokens=1000, precision="fp8", serves=NAMES),)))
    assert lanes(house) == {"m": ["any", "other"], "bf16|m": ["full"]}
    house.tell(ReplicasChanged(house.now, removed=(ReplicaId("b"),)))
    assert lanes(house) == {"m": ["any", "full", "other"], "bf16|m": []}
    assert went(house, "r", 3) == ["any", "full", "other"]


def test_names_that_come_to_share_replicas_share_turns() -> None:
    house = ready("a")
    house.tell(ReplicasChanged(house.now, (spec("b", kv_capacity_tokens=1000, serves={"o": "big"}),)))
    for model in ("m", "o"):
        ask(house, f"r-{model}", 900, model=model, tenant="z")
        ask(house, f"s-{model}", 900, model=model, tier=Tier.HIGH if model == "o" else 0)
    assert released(house.end("r-m-0")) == ["s-m"], "they have nothing to do with each other"
    ask(house, "t", 900)
    serves = {**NAMES, "o": "big"}
    house.tell(ReplicasChanged(house.now, (spec("a", kv_capacity_tokens=1000, serves=serves),)))
    assert released(house.end("s-m-0")) == ["s-o"]


def steps_of_a_look(names: int) -> int:
    """Calls that it takes to let one go while one waits by each of so many names."""
    house = House(FewestInFlight(binds_late=True), BrainConfig(admission=AdmissionConfig(pace=False)))
    house.add("a", kv_capacity_tokens=1000, serves={f"m{number}": "m" for number in range(names)})
    ask(house, "r", 900, model="m0")
    for number in range(names):
        ask(house, f"w{number}", 900, model=f"m{number}")
    count = 0

    def called(_frame: object, event: str, _argument: object) -> None:
        nonlocal count
        count += event == "call"

    sys.setprofile(called)
    try:
        out = house.end("r-0")
    finally:
        sys.setprofile(None)
    assert released(out) == ["w0"]
    return count


def test_many_names_cost_a_look_each_and_not_one_for_each_pair() -> None:
    assert steps_of_a_look(80) < 6 * steps_of_a_look(20) + 100
