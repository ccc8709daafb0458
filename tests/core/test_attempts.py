"""Requests whose attempt came to nothing wait for room, within the budget of retries; what may be overload does not."""

import pytest

from headway.core.commands import Abort, Command, Dispatch, Hold, Reject, Relay, SetTimer
from headway.core.constants import AdmissionConfig, BrainConfig, RetryConfig, SchedulerConfig
from headway.core.decision import Decision
from headway.core.events import DrainAsked, ReplicasChanged, RequestCancelled, TimerFired
from headway.core.ids import ReplicaId, RequestId
from headway.core.outcome import OutcomeKind
from tests.core.house import FewestInFlight, House, entries, only, sent_to

TIMEOUT_S = 30.0
ONE_EACH = BrainConfig(
    scheduler=SchedulerConfig(max_in_flight=1), admission=AdmissionConfig(queue_timeout_s=TIMEOUT_S, reserved=0.0)
)


def full(config: BrainConfig = ONE_EACH, *names: str) -> House:
    """A house each of whose replicas has all it may: x at r0, y at r1."""
    house = House(config=config)
    house.add("r0", "r1", *names)
    for name in ("x", "y", "z")[: 2 + len(names)]:
        assert sent_to(house.ask(name))
    return house


def where(house: House, attempt: str) -> str:
    """The replica of an attempt."""
    for replica in ("r0", "r1", "r2"):
        account = house.brain._fleet.ledger.accounts.get(ReplicaId(replica))
        if account is not None and attempt in account.entries:
            return replica
    raise AssertionError(attempt)


def remove(house: House, replica: str) -> list[Command]:
    """A replica is taken out of the fleet, and its attempt ends as it was told to."""
    out = house.tell(ReplicasChanged(house.now, (), (ReplicaId(replica),)))
    for abort in only(out, Abort):
        out += house.end(abort.attempt_id, OutcomeKind.CANCELLED, sent=True)
    return out


def test_one_whose_replica_is_removed_waits_and_goes_first_come_first_served() -> None:
    house = full()
    lost, kept = ("x", "y") if where(house, "x-0") == "r0" else ("y", "x")
    house.wait(1.0)
    out = remove(house, "r0")
    assert [hold.request_id for hold in only(out, Hold)] == [lost]
    assert not only(out, Reject) + only(out, Relay) + only(out, Dispatch)
    house.wait(2.0)
    out = house.end(f"{kept}-0")
    assert only(out, Dispatch)[0].attempt_id == f"{lost}-1"
    (decided,) = entries(out, Decision)
    assert decided.queued_s == pytest.approx(2.0)
    assert not house.brain.queue_positions()
    house.end(f"{lost}-1")
    assert not house.brain._jobs
    assert not house.brain._attempts._retries.in_flight


def test_one_that_reached_no_engine_waits_too() -> None:
    """Where it failed does not matter any more once it is sent at last."""
    house = full()
    lost, kept = ("x", "y") if where(house, "x-0") == "r0" else ("y", "x")
    out = house.end(f"{lost}-0", OutcomeKind.CONNECT_FAILED)
    assert [hold.request_id for hold in only(out, Hold)] == [lost]
    assert sent_to(house.end(f"{kept}-0")) == "r1"
    tries = house.brain._jobs[RequestId(lost)].tries
    assert (tries.made, tries.excluded) == (2, ())


def test_a_withdrawn_try_is_spared() -> None:
    house = full()
    lost, kept = ("x", "y") if where(house, "x-0") == "r0" else ("y", "x")
    remove(house, "r0")
    house.end(f"{kept}-0")
    tries = house.brain._jobs[RequestId(lost)].tries
    assert (tries.made, tries.counted, tries.spared) == (2, 1, False)
    house.add("r2")
    out = house.end(f"{lost}-1", OutcomeKind.RESET, sent=True)
    assert sent_to(out) == "r2", "one counted retry is left"
    assert tries.counted == 2


@pytest.mark.parametrize("kind", [OutcomeKind.RESET, OutcomeKind.TRUNCATED, OutcomeKind.BAD_RESPONSE])
def test_one_that_an_engine_lost_waits_where_all_have_as_much_as_they_may(kind: OutcomeKind) -> None:
    """A replica is killed, and the fleet is full: nothing of it was given to the client yet."""
    house = full()
    lost, kept = ("x", "y") if where(house, "x-0") == "r0" else ("y", "x")
    out = house.end(f"{lost}-0", kind, sent=True)
    assert [hold.request_id for hold in only(out, Hold)] == [lost]
    assert not only(out, Reject) + only(out, Dispatch), "not to where it was lost, though there is room"
    assert house.brain._attempts._retries.in_flight == 1, "the budget counts those who wait for their retry"
    assert sent_to(house.end(f"{kept}-0")) == "r1"
    assert house.brain._attempts._retries.in_flight == 1
    out = house.end(f"{lost}-1", kind, sent=True)
    assert [reject.status for reject in only(out, Reject)] == [502], "two tries, as ever"
    assert not house.brain._attempts._retries.in_flight


@pytest.mark.parametrize("kind", [OutcomeKind.SERVER_ERROR, OutcomeKind.BACKPRESSURE, OutcomeKind.ENGINE_ABORT])
def test_what_may_be_overload_does_not_wait(kind: OutcomeKind) -> None:
    house = full()
    out = house.end(f"{'x' if where(house, 'x-0') == 'r0' else 'y'}-0", kind, status=503, sent=True)
    assert len(only(out, Reject) + only(out, Relay)) == 1
    assert not only(out, Hold)


def test_a_stale_connection_costs_nothing_while_it_waits_either() -> None:
    house = full()
    lost, kept = ("x", "y") if where(house, "x-0") == "r0" else ("y", "x")
    house.tell(DrainAsked(house.now, ReplicaId("r0")))
    assert only(house.end(f"{lost}-0", OutcomeKind.STALE_CONNECTION, sent=True), Hold)
    assert not house.brain._attempts._retries.in_flight
    assert sent_to(house.end(f"{kept}-0")) == "r1"
    assert house.brain._jobs[RequestId(lost)].tries.counted == 1


def test_it_goes_back_to_where_it_was_lost_if_nobody_else_is_left() -> None:
    house = full()
    lost, kept = ("x", "y") if where(house, "x-0") == "r0" else ("y", "x")
    house.end(f"{lost}-0", OutcomeKind.RESET, sent=True)
    house.first(f"{kept}-0")
    assert sent_to(house.tell(ReplicasChanged(house.now, (), (ReplicaId("r1"),)))) == "r0"


@pytest.mark.parametrize("how", ["leaves", "expires"])
def test_whoever_waits_for_a_retry_and_gives_up_gives_the_budget_back(how: str) -> None:
    house = full()
    lost = "x" if where(house, "x-0") == "r0" else "y"
    house.end(f"{lost}-0", OutcomeKind.RESET, sent=True)
    if how == "leaves":
        house.tell(RequestCancelled(house.now, RequestId(lost)))
    else:
        house.wait(TIMEOUT_S).tell(TimerFired(house.now, "queue:m"))
    assert lost not in house.brain._jobs
    assert not house.brain._attempts._retries.in_flight


def test_a_fleet_that_dies_makes_no_storm() -> None:
    """Each of its replicas loses all it has; those that may be tried again are a fifth, and of them each once."""
    config = BrainConfig(scheduler=SchedulerConfig(max_in_flight=10))
    house = House(config=config)
    house.add(*(f"r{n}" for n in range(10)))
    running = [f"q{n}-0" for n in range(100)]
    for n in range(100):
        assert sent_to(house.ask(f"q{n}", fingerprint=n + 1))
    sent = 100
    while running:
        again = house.end(running.pop(0), OutcomeKind.RESET, sent=True)
        running += [each.attempt_id for each in only(again, Dispatch)]
        sent += len(only(again, Dispatch))
    assert sent <= 120
    assert not house.brain._jobs
    assert not house.brain._attempts._retries.in_flight


def test_a_poison_that_waits_is_not_let_loose() -> None:
    """Two clients send the same body; by the time the second fits again, it has killed two replicas."""
    house = House(config=ONE_EACH)
    house.add("r0", "r1", "r2")
    for name, print_of in (("x", 7), ("y", 7), ("z", 9)):
        house.ask(name, fingerprint=print_of)
    out = house.end("x-0", OutcomeKind.RESET, sent=True)
    assert [hold.request_id for hold in only(out, Hold)] == ["x"]
    out = house.end("y-0", OutcomeKind.RESET, sent=True)
    assert not only(out, Dispatch), "there is room for the other now"
    assert [(r.request_id, r.code) for r in only(out, Reject)] == [("y", "quarantined"), ("x", "quarantined")]


def test_it_waits_no_longer_than_one_that_has_just_come() -> None:
    house = full()
    lost = "x" if where(house, "x-0") == "r0" else "y"
    house.wait(TIMEOUT_S + 5.0)
    out = remove(house, "r0")
    (timer,) = (t for t in only(out, SetTimer) if t.timer.startswith("queue:"))
    assert timer.at == pytest.approx(house.now + TIMEOUT_S)
    house.wait(TIMEOUT_S)
    (refusal,) = only(house.tell(TimerFired(house.now, timer.timer)), Reject)
    assert (refusal.request_id, refusal.status, refusal.code, refusal.shed) == (lost, 503, "queue_timeout", True)


def test_nor_beyond_its_deadline() -> None:
    house = House(config=ONE_EACH)
    house.add("r0", "r1")
    for name in ("x", "y"):
        house.ask(name, deadline=10.0)
    lost = "x" if where(house, "x-0") == "r0" else "y"
    house.wait(4.0)
    (timer,) = (t for t in only(remove(house, "r0"), SetTimer) if t.timer.startswith("queue:"))
    house.wait(6.0)
    (refusal,) = only(house.tell(TimerFired(house.now, timer.timer)), Reject)
    assert (refusal.request_id, refusal.status, refusal.code) == (lost, 504, "deadline")


def test_its_client_may_leave_meanwhile() -> None:
    house = full()
    lost = "x" if where(house, "x-0") == "r0" else "y"
    remove(house, "r0")
    house.tell(RequestCancelled(house.now, RequestId(lost)))
    assert list(house.brain._jobs) == ["y" if lost == "x" else "x"]


def test_tries_stay_bounded() -> None:
    """However often it waits: after five tries it is told."""
    config = BrainConfig(scheduler=SchedulerConfig(max_in_flight=1), retry=RetryConfig(tries=3))
    house = House(config=config)
    house.add("r0")
    house.ask("x")
    for number, name in enumerate(("r1", "r2")):
        house.add(name)
        house.ask(f"other{number}")
        out = remove(house, f"r{number}")
        assert [hold.request_id for hold in only(out, Hold)] == ["x"]
        assert sent_to(house.end(f"other{number}-0")) == name
    house.add("r3")
    house.ask("last")
    assert [reject.request_id for reject in only(remove(house, "r2"), Reject)] == ["x"]


def test_nobody_waits_where_no_room_can_be_made() -> None:
    """What is left is too small, or was tried, or is gone."""
    house = full()
    house.end("y-0" if where(house, "x-0") == "r0" else "x-0")
    lost = "x" if where(house, "x-0") == "r0" else "y"
    assert not only(house.end(f"{lost}-0", OutcomeKind.CONNECT_FAILED), Hold), "there is room"
    small = House(config=ONE_EACH)
    small.add("r0")
    small.add("r1", max_model_tokens=500)
    small.ask("x", prompt_tokens=900)
    small.ask("y", prompt_tokens=10, prompt_bytes=10)
    out = small.end("x-0", OutcomeKind.CONNECT_FAILED)
    assert not only(out, Hold)
    assert only(out, Reject)
    last = House(config=ONE_EACH)
    last.add("r0")
    last.ask("x")
    assert only(remove(last, "r0"), Reject), "nobody serves the model"


def test_one_that_fits_nowhere_waits_for_memory() -> None:
    """It was let go where it costs least before, into a pool that was promised away."""
    house = House(FewestInFlight(binds_late=True), BrainConfig(admission=AdmissionConfig(pace=False, reserved=0.0)))
    house.add("r0", "r1", kv_capacity_tokens=2000)
    for name in ("x", "y"):
        house.ask(name, prompt_tokens=1500, max_output_tokens=100)
    lost, kept = ("x", "y") if where(house, "x-0") == "r0" else ("y", "x")
    out = remove(house, "r0")
    assert [hold.request_id for hold in only(out, Hold)] == [lost]
    assert sent_to(house.end(f"{kept}-0")) == "r1"
