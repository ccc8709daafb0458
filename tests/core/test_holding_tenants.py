"""Who waits and who goes when requests differ in importance, and tenants want the same room."""

from collections import Counter

import pytest

from headway.core.commands import Command, Dispatch, Hold, Reject
from headway.core.constants import AdmissionConfig, BrainConfig, MigrationConfig, SpeedConfig
from headway.core.events import RequestCancelled, TenantsChanged, TimerFired
from headway.core.ids import RequestId
from headway.core.outcome import OutcomeKind
from headway.core.rebalance import TIMER
from headway.core.tenant import Tenant, Tier
from tests.core.house import FewestInFlight, House, only, sent_to
from tests.core.test_holding import ask, released


def ready(*names: str, binds_late: bool = True, tenants: tuple[Tenant, ...] = (), **settings: object) -> House:
    """Replicas of 1,000 tokens each, no pace."""
    config = BrainConfig(admission=AdmissionConfig(pace=False, **settings))  # type: ignore[arg-type]
    house = House(FewestInFlight(binds_late), config)
    house.add(*names, kv_capacity_tokens=1000)
    house.tell(TenantsChanged(0.0, tenants))
    return house


def refused(commands: list[Command]) -> dict[str, tuple[int, str]]:
    return {r.request_id: (r.status, r.code) for r in only(commands, Reject)}


def test_what_is_more_important_goes_first() -> None:
    house = ready("a")
    ask(house, "r", 900)
    for name, tier in (("low", Tier.LOW), ("plain", 0), ("high", Tier.HIGH), ("critical", Tier.CRITICAL)):
        ask(house, name, 900, tier=tier)
    order = []
    for _ in range(4):
        order += released(house.end(f"{order[-1] if order else 'r'}-0"))
    assert order == ["critical", "high", "plain", "low"]


def test_what_waits_long_rises_but_never_to_the_top() -> None:
    house = ready("a", rise_s=10.0, queue_timeout_s=500.0)
    ask(house, "r", 900)
    ask(house, "low", 900, tier=Tier.LOW)
    house.wait(9.0)
    ask(house, "first", 900)
    house.wait(9.0)
    assert released(house.end("r-0")) == ["low"], "it counts as ordinary now and came before"
    ask(house, "again", 900, tier=Tier.LOW)
    for _ in range(30):
        house.wait(5.0)
        house.tell(TimerFired(house.now, "queue:m"))
        house.ask(f"c{house.now}", prompt_tokens=900, generates=False, tier=Tier.CRITICAL, deadline=house.now + 5.0)
    positions = house.brain.queue_positions()
    assert positions[RequestId("again")] == len(positions)


def test_who_is_late_does_not_rise_above_those_who_can_still_be_served_well() -> None:
    """One request of a high tier must not turn the others' queue round, late ones first."""
    house = ready("a", rise_s=10.0, queue_timeout_s=500.0)
    ask(house, "r", 900)
    ask(house, "old", 900)
    house.wait(50.0)
    ask(house, "high", 900, tier=Tier.HIGH)
    ask(house, "new", 900)
    assert released(house.end("r-0")) == ["high"]
    assert released(house.end("high-0")) == ["new"]


def test_nobody_rises_while_all_are_alike() -> None:
    house = ready("a", rise_s=1.0, queue_timeout_s=500.0)
    ask(house, "r", 900)
    ask(house, "old", 900)
    house.wait(50.0)
    ask(house, "new", 900)
    assert released(house.end("r-0")) == ["new"], "late ones stay behind: age alone is no merit"


def test_a_flood_does_not_delay_the_other_tenant() -> None:
    house = ready("a")
    ask(house, "r", 900, tenant="x")
    for n in range(20):
        ask(house, f"flood{n}", 900, tenant="flood")
    ask(house, "one", 900, tenant="quiet")
    went, current = [], "r"
    for _ in range(4):
        (current,) = released(house.end(f"{current}-0"))
        went.append(current)
    assert "one" in went[:2]


def served(house: House, tenant: str) -> float:
    return house.brain._admission.queues["m"].turns._served.get(tenant, 0.0)


def test_a_turn_is_charged_once_however_often_it_is_taken() -> None:
    house = ready("a", "b")
    for name in ("r", "s"):
        ask(house, name, 900, tenant="other")
    assert only(ask(house, "x", 600, tenant="t"), Hold)
    assert sent_to(house.end("r-0")) == "a"
    assert served(house, "t") == 600.0
    assert only(house.end("x-0", OutcomeKind.CONNECT_FAILED), Hold)
    assert sent_to(house.end("s-0")) is not None
    assert served(house, "t") == 600.0
    assert only(ask(house, "again", 900, tenant="t"), Hold)


def test_what_was_charged_and_never_served_is_given_back() -> None:
    house = ready("a", "b")
    for name in ("r", "s"):
        ask(house, name, 900, tenant="other")
    assert only(ask(house, "x", 600, tenant="t"), Hold)
    house.end("r-0")
    assert only(house.end("x-0", OutcomeKind.CONNECT_FAILED), Hold)
    house.tell(RequestCancelled(house.now, RequestId("x")))
    assert served(house, "t") == 0.0


def test_what_went_before_anybody_waited_was_not_charged_and_earns_no_credit() -> None:
    """Their outputs are much shorter than believed, which is mended for those only that were charged."""
    house = House(FewestInFlight(True), BrainConfig(admission=AdmissionConfig(pace=False, queue_timeout_s=500.0)))
    house.add("a", kv_capacity_tokens=4000)
    facts = {"prompt_tokens": 100, "max_output_tokens": 500}
    count = 0
    while sent_to(house.ask(f"x{count}", tenant="x", **facts)):
        count += 1
    tenant_of = {f"x{count}": "x"}
    for number in range(16):
        tenant_of[f"more{number}"] = "xy"[number // 8]
        house.ask(f"more{number}", tenant="xy"[number // 8], **facts)
    order: list[str] = []
    for number in range(count):
        house.first(f"x{number}-0")
        order += released(house.wait(0.2).end(f"x{number}-0", output_tokens=2))
    assert [tenant_of[name] for name in order[:10]].count("x") == 5


@pytest.mark.parametrize(("weight", "share"), [(1.0, 0.5), (3.0, 0.75)])
def test_backlogged_tenants_get_their_shares(weight: float, share: float) -> None:
    house = ready("a", tenants=(Tenant("x", weight=weight), Tenant("y")))
    ask(house, "r", 900, tenant="x")
    served: Counter[str] = Counter()
    tenant_of = {}
    current = "r"
    for n in range(400):
        for name, count in (("x", 5), ("y", 1)) if n % 2 else (("x", 5),):
            for k in range(count):
                tenant_of[f"{name}{n}.{k}"] = name
                ask(house, f"{name}{n}.{k}", 900, tenant=name)
        house.wait(0.01)
        (current,) = released(house.end(f"{current}-0"))
        served[tenant_of[current]] += 1
    assert served["x"] / 400 == pytest.approx(share, abs=0.03)


def test_a_full_queue_gives_way_to_what_matters_more_and_to_who_crowds_less() -> None:
    house = ready("a", max_queued=2)
    ask(house, "r", 900)
    ask(house, "l1", 900, tier=Tier.LOW)
    ask(house, "l2", 900, tier=Tier.LOW)
    assert refused(ask(house, "l3", 900, tier=Tier.LOW)) == {"l3": (503, "queue_full")}
    commands = ask(house, "c", 900, tier=Tier.CRITICAL)
    assert refused(commands) == {"l2": (503, "queue_full")}
    assert only(commands, Hold)[0].request_id == "c"
    assert refused(ask(house, "p", 900)) == {"l1": (503, "queue_full")}
    assert refused(ask(house, "q", 900)) == {"q": (503, "queue_full")}
    assert refused(ask(house, "t", 900, tenant="t")) == {"t": (503, "queue_full")}, "one against one"


def test_bodies_that_wait_are_bounded_in_bytes() -> None:
    house = ready("a", max_queued_bytes=100)
    ask(house, "r", 900)
    ask(house, "s", 900, body_bytes=60, tier=Tier.LOW)
    assert refused(ask(house, "t", 900, body_bytes=41, tier=Tier.LOW)) == {"t": (503, "queue_full")}
    assert refused(ask(house, "u", 900, body_bytes=90)) == {"s": (503, "queue_full")}
    assert refused(ask(house, "v", 900, body_bytes=101, tier=Tier.HIGH)) == {"v": (503, "queue_full")}, "it never fits"


def test_a_deadline_that_the_queue_cannot_keep_is_refused_at_once() -> None:
    house = ready("a")
    current = "r"
    ask(house, current, 900)
    for n in range(40):
        ask(house, f"w{n}", 900)
    for _ in range(20):
        (current,) = released(house.wait(1.0).end(f"{current}-0"))
    commands = ask(house, "hurried", 900, deadline=house.now + 0.5)
    assert refused(commands) == {"hurried": (429, "deadline")}
    assert only(commands, Reject)[0].retry_after_s >= 15.0
    held = only(ask(house, "patient", 900, deadline=house.now + 100.0), Hold)[0]
    assert (
        house.brain.prospect(RequestId("patient"), house.now) == (held.position, held.wait_s) == (1, pytest.approx(1.0))
    )
    assert house.brain.prospect(RequestId("w39"), house.now) == (21, pytest.approx(10.0)), "no longer than it may"
    assert house.brain.prospect(RequestId("hurried"), house.now) is None
    assert house.brain.prospect(RequestId(current), house.now) is None


def test_a_deadline_that_prefill_alone_would_break_is_refused_on_an_idle_fleet() -> None:
    config = BrainConfig(admission=AdmissionConfig(pace=False), speed=SpeedConfig(enough=0))
    house = House(FewestInFlight(binds_late=True), config)
    house.add("a", kv_capacity_tokens=100_000)
    takes = 1000 / house.view("a").speed.prefill_tokens_per_s
    assert refused(ask(house, "r", 1000, deadline=house.now + takes / 2)) == {"r": (429, "deadline")}
    assert sent_to(ask(house, "s", 1000, deadline=house.now + 1.1 * takes)) == "a"
    assert refused(ask(house, "t", 1000, deadline=house.now + 1.9 * takes)) == {"t": (429, "deadline")}, "behind it"
    assert sent_to(ask(house, "u", 1000, deadline=house.now + 2.1 * takes)) == "a"


def test_where_nothing_is_learned_no_deadline_is_too_soon() -> None:
    house = ready("a")
    assert sent_to(ask(house, "r", 900, deadline=house.now + 1e-6)) == "a"


def test_who_waited_until_only_prefill_is_too_long_is_told_so() -> None:
    config = BrainConfig(admission=AdmissionConfig(pace=False), speed=SpeedConfig(enough=0))
    house = House(FewestInFlight(binds_late=True), config)
    house.add("a", kv_capacity_tokens=1000)
    takes = 900 / house.view("a").speed.prefill_tokens_per_s
    assert sent_to(ask(house, "r", 900))
    house.wait(10 * takes).first("r-0")
    assert only(ask(house, "s", 900, deadline=house.now + 1.5 * takes), Hold)
    assert refused(house.wait(takes).end("r-0")) == {"s": (429, "deadline")}
    assert not house.brain.prospect(RequestId("s"), house.now)


def test_the_share_of_memory_holds_a_tenant_back_though_there_is_room() -> None:
    house = ready("a", "b", tenants=(Tenant("t", kv_share=0.25),))
    assert sent_to(ask(house, "r", 300, tenant="t"))
    assert sent_to(ask(house, "s", 300, tenant="t")) is None
    assert sent_to(ask(house, "u", 300, tenant="u")), "others go"
    assert released(house.end("r-0")) == ["s"]


def test_no_replica_is_kept_for_one_that_waits_for_its_share() -> None:
    house = ready("a", bypass_max=1, tenants=(Tenant("t"),))
    assert sent_to(ask(house, "own", 200, tenant="t"))
    assert only(ask(house, "big", 900, tenant="t"), Hold)
    assert sent_to(ask(house, "small", 50, tenant="t"))
    house.end("small-0")
    queue = house.brain._admission.queues["m"]
    assert (queue.kept, queue.kept_for) == ("a", "big")
    house.tell(TenantsChanged(house.now, (Tenant("t", kv_share=0.5),)))
    assert (queue.kept, queue.kept_for) == ("", "")
    assert sent_to(ask(house, "other", 700, tenant="u")) == "a"


@pytest.mark.parametrize("binds_late", [True, False])
def test_the_reserve_is_for_the_critical(binds_late: bool) -> None:
    house = ready("a", "b", binds_late=binds_late, reserved=0.5)
    for n in range(3):
        assert sent_to(ask(house, f"r{n}", 100)) == "a"
    assert sent_to(ask(house, "c", 100, tier=Tier.CRITICAL)) == "b"
    house.tell(RequestCancelled(house.now, RequestId("nobody")))


def test_what_is_critical_goes_at_once_however_many_others_wait() -> None:
    house = ready("a", "b", reserved=0.5, scan=4)
    ask(house, "r", 900)
    for n in range(20):
        ask(house, f"low{n}", 900, tier=Tier.LOW)
    assert sent_to(ask(house, "c", 400, tier=Tier.CRITICAL)) == "b"
    assert sent_to(ask(house, "d", 400, tier=Tier.CRITICAL)) == "b"
    assert sent_to(ask(house, "p", 150)) is None, "what is ordinary has to wait: b is not for it, and a is full"


def test_what_is_critical_overtakes_nobody_and_keeps_its_replica() -> None:
    house = ready("a", "b", reserved=0.5, bypass_max=2)
    ask(house, "r", 900)
    ask(house, "low", 900, tier=Tier.LOW)
    queue = house.brain._admission.queues["m"]
    for n in range(5):
        assert sent_to(ask(house, f"c{n}", 100, tier=Tier.CRITICAL)) == "b"
        house.end(f"c{n}-0")
    assert queue.outrun is None
    for n in range(2):
        assert sent_to(ask(house, f"o{n}", 40, tier=Tier.LOW)) == "a"
        house.end(f"o{n}-0")
    assert (queue.kept, queue.kept_for) == ("a", "low"), "b has more room, but is not for it"
    assert sent_to(ask(house, "c", 100, tier=Tier.CRITICAL)) == "b"


def test_limits_and_ends_balance() -> None:
    house = ready("a", tenants=(Tenant("t", max_concurrent=2),), max_queued=1)
    ask(house, "r", 900, tenant="t")
    ask(house, "s", 900, tenant="t")
    assert refused(ask(house, "u", 900, tenant="t")) == {"u": (429, "concurrency_limit")}
    house.tell(RequestCancelled(house.now, RequestId("s")))
    assert only(ask(house, "v", 900, tenant="t"), Hold), "the slot of the one that left"
    house.wait(31.0)
    assert refused(house.tell(TimerFired(house.now, "queue:m"))) == {"v": (503, "queue_timeout")}
    assert only(house.end("r-0"), Dispatch) == []
    (state,) = house.brain.snapshot(house.now).tenants
    assert (state.alive, state.promised_tokens) == (0, 0.0)
    assert refused(ask(house, "big", 2000, tenant="t", max_output_tokens=1)) != {}
    assert house.brain.snapshot(house.now).tenants[0].alive == 0


def test_too_many_tokens_are_refused_before_anything_is_kept() -> None:
    house = ready("a", tenants=(Tenant("t", tokens_per_s=100.0, burst_s=1.0),))
    assert sent_to(ask(house, "r", 100, tenant="t"))
    assert refused(ask(house, "s", 100, tenant="t")) == {"s": (429, "rate_limit_exceeded")}
    assert house.brain.snapshot(house.now).tenants[0].alive == 1


def test_shedding_takes_only_what_matters_less() -> None:
    house = ready("a")
    ask(house, "r", 900)
    for name, tier in (("low", -1), ("plain", 0), ("low2", -1)):
        ask(house, name, 900, tier=tier)
    out: list[Command] = []
    house.brain._holding.shed("m", Tier.STANDARD, house.now, out)
    assert refused(out) == {"low": (503, "shed"), "low2": (503, "shed")}
    assert [held.request_id for held in house.brain.snapshot(house.now).held] == ["plain"]


def test_whose_answer_has_begun_is_neither_shed_nor_pushed_out() -> None:
    """It was evicted, and its client waits in the middle of a stream."""
    config = BrainConfig(admission=AdmissionConfig(pace=False, max_queued=2), migration=MigrationConfig(enabled=True))
    house = House(FewestInFlight(True), config)
    house.add("a", kv_capacity_tokens=1000)
    assert sent_to(ask(house, "low", 900, tier=Tier.LOW, resumable=True))
    house.first("low-0")
    assert sent_to(ask(house, "r", 900, tier=Tier.HIGH)) is None
    house.tell(TimerFired(house.now, TIMER))
    house.end("low-0", OutcomeKind.EVICTED, committed=True, resumable=True, output_tokens=50)
    assert list(house.brain.queue_positions()) == ["low"]
    assert only(ask(house, "s", 900, tier=Tier.LOW), Hold)
    assert refused(ask(house, "t", 900)) == {"s": (503, "queue_full")}
    assert refused(ask(house, "u", 900)) == {"u": (503, "queue_full")}
    out: list[Command] = []
    house.brain._holding.shed("m", Tier.HIGH, house.now, out)
    assert refused(out) == {"t": (503, "shed")}
    assert released(house.end("r-0")) == ["low"]


def test_who_is_late_takes_no_room_that_one_in_time_waits_for() -> None:
    house = ready("a", late_spare=0.0)
    for name, tokens in (("r", 500), ("q", 400)):
        assert sent_to(ask(house, name, tokens))
    assert only(ask(house, "late", 300), Hold)
    house.wait(2.0)
    assert only(ask(house, "timely", 600), Hold)
    assert released(house.end("q-0")) == [], "it would fit, and cost the other its objective"
    assert released(house.end("r-0")) == ["timely", "late"]


def test_who_is_late_leaves_a_share_of_every_pool_to_those_in_time() -> None:
    house = ready("a", late_spare=0.15)
    for name, tokens in (("r", 500), ("q", 400)):
        assert sent_to(ask(house, name, tokens))
    assert only(ask(house, "late", 400), Hold)
    house.wait(2.0)
    assert released(house.end("q-0")) == []
    assert sent_to(ask(house, "timely", 400)), "as much, but it can still be served in time"
    assert released(house.end("timely-0")) == []
    assert released(house.end("r-0")) == ["late"]


def test_who_is_late_has_an_idle_replica_to_itself() -> None:
    house = ready("a", late_spare=0.15)
    assert sent_to(ask(house, "r", 900))
    assert only(ask(house, "late", 900), Hold)
    house.wait(2.0)
    assert released(house.end("r-0")) == ["late"]


def test_who_is_late_and_matters_more_leaves_nothing_to_others() -> None:
    house = ready("a", late_spare=0.15)
    for name, tokens in (("r", 500), ("q", 400)):
        assert sent_to(ask(house, name, tokens))
    assert only(ask(house, "late", 400, tier=Tier.CRITICAL), Hold)
    house.wait(2.0)
    assert released(house.end("q-0")) == ["late"]


def test_a_share_of_memory_is_one_share_under_all_names() -> None:
    house = House(FewestInFlight(True), BrainConfig(admission=AdmissionConfig(pace=False)))
    house.add("a", kv_capacity_tokens=1000, serves=dict.fromkeys("mn", "big"))
    house.add("b", kv_capacity_tokens=1000, serves={"o": "big"})
    house.tell(TenantsChanged(0.0, (Tenant("t", kv_share=0.5),)))
    assert sent_to(ask(house, "r", 400, tenant="t")) == "a"
    assert only(ask(house, "s", 200, tenant="t", model="n"), Hold)
    assert sent_to(ask(house, "u", 200, tenant="t", model="o")) == "b", "other memory"
    assert released(house.end("r-0")) == ["s"]


def test_nobody_goes_for_a_newcomer_that_may_not_wait_even_so() -> None:
    """Bytes that wait for another model are no victims of this one's."""
    house = House(FewestInFlight(True), BrainConfig(admission=AdmissionConfig(pace=False, max_queued_bytes=1000)))
    house.add("a", kv_capacity_tokens=1000)
    house.add("b", model="x", serves={"x": "x"}, kv_capacity_tokens=1000)
    for model in ("m", "x"):
        ask(house, f"r-{model}", 900, model=model)
    ask(house, "big", 900, model="x", body_bytes=900)
    for number in range(8):
        ask(house, f"low{number}", 900, tier=Tier.LOW, body_bytes=10)
    assert refused(ask(house, "more", 900, body_bytes=150)) == {"more": (503, "queue_full")}
    assert house.brain._admission.queued == 9
    gone = refused(ask(house, "less", 900, body_bytes=50))
    assert sorted(gone) == ["low5", "low6", "low7"]
    assert (house.brain._admission.queued, house.brain._admission.queued_bytes) == (7, 1000)


@pytest.mark.parametrize("tier", [Tier.STANDARD, Tier.HIGH])
@pytest.mark.parametrize("count", [1, 40])
def test_who_waits_for_its_tenants_share_is_in_nobodys_way(tier: int, count: int) -> None:
    house = ready("a", "b", tenants=(Tenant("x", kv_share=0.25), Tenant("y")))
    assert only(ask(house, "x", 400, tenant="x", tier=tier), Dispatch)
    for number in range(count):
        assert only(ask(house, f"x{number}", 400, tenant="x", tier=tier), Hold)
    assert [sent_to(ask(house, f"y{number}", 200, tenant="y")) is not None for number in range(4)] == [True] * 4
    for number in range(4):
        ask(house, f"z{number}", 250, tenant="y")
    assert only(ask(house, "high", 900, tenant="y", tier=Tier.HIGH), Hold), "it is its turn, and it does not fit"
    assert only(ask(house, "last", 50, tenant="y"), Hold), "but that one stands before it"


def test_nothing_is_kept_for_who_waits_for_its_tenants_share() -> None:
    house = ready("a", bypass_max=1, tenants=(Tenant("x", kv_share=0.25), Tenant("y")))
    ask(house, "x0", 200, tenant="x")
    ask(house, "x1", 200, tenant="x")
    for number in range(4):
        assert sent_to(ask(house, f"y{number}", 100, tenant="y")) == "a"
        house.end(f"y{number}-0")
    assert house.brain._admission.queues["m"].kept == ""
