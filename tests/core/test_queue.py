"""In which order the held go, and that nobody waits for ever."""

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.core.constants import AdmissionConfig
from headway.core.entries import Job, Tries
from headway.core.ids import ReplicaId, RequestId
from headway.core.queue import HoldQueue, cost
from headway.core.tenant import Tier
from tests.core.house import demand, outlook, request

FLAT = outlook(1.0)


def job(name: str, at: float = 0.0, **facts: object) -> Job:
    asked = request(name, **facts)
    return Job(asked, demand(asked), demand(asked), {}, FLAT.share(100.0), 100, at, Tries())


def names(queue: HoldQueue) -> list[str]:
    return [item.job.request.id for item in queue]


def ordered(**changes: float) -> HoldQueue:
    return HoldQueue(AdmissionConfig(**changes), ordered=True)  # type: ignore[arg-type]


def filled(count: int, config: AdmissionConfig | None = None) -> HoldQueue:
    queue = HoldQueue(config or AdmissionConfig())
    for i in range(count):
        queue.push(job(f"r{i}", float(i)), float(i))
    return queue


def test_the_queue_keeps_order_and_bounds() -> None:
    queue = filled(3, AdmissionConfig(max_queued=3))
    assert names(queue) == ["r0", "r1", "r2"]
    assert queue.full
    queue.remove(RequestId("r1"))
    assert not queue.full
    assert names(queue) == ["r0", "r2"]


def test_time_runs_out_by_timeout_or_deadline() -> None:
    queue = filled(1)
    queue.push(job("d", deadline=5.0), 0.0)
    queue.push(job("late", deadline=500.0), 0.0)
    assert queue.next_expiry == 5.0
    assert [item.job.request.id for item in queue.due(5.0)] == ["d"]
    assert len(queue.due(30.0)) == 3
    assert HoldQueue(AdmissionConfig()).next_expiry == math.inf


def test_the_wait_is_bounded_from_arrival() -> None:
    queue = HoldQueue(AdmissionConfig(queue_timeout_s=30.0))
    queue.push(job("r", at=2.0), 7.0)
    assert queue.next_expiry == 32.0


def test_the_head_is_outrun_when_it_was_overtaken_so_often() -> None:
    queue = filled(2, AdmissionConfig(bypass_max=2))
    queue.overtake()
    assert queue.outrun is None
    queue.overtake()
    assert queue.outrun is not None
    assert queue.outrun.job.request.id == "r0"
    queue.release(RequestId("r0"), 1.0)
    assert queue.outrun is None, "the next head starts anew"
    empty = HoldQueue(AdmissionConfig(bypass_max=0))
    empty.overtake()
    assert empty.outrun is None


def test_an_urgent_head_is_outrun_soon_and_being_late_costs_it_nothing() -> None:
    queue = ordered(urgent_bypass=2, late_bypass=5, bypass_max=3)
    queue.push(job("urgent", tier=Tier.CRITICAL), 0.0, 1.0)
    queue.push(job("other"), 0.0, 1.0)
    queue.overtake()
    assert queue.outrun is None
    assert [item.late for item in queue.within_reach(2.0)] == [True, True]
    queue.overtake()
    assert queue.outrun is not None
    queue.release(RequestId("urgent"), 2.0)
    for _ in range(7):
        queue.overtake()
        assert queue.outrun is None
    queue.overtake()
    assert queue.outrun is not None, "late_bypass and bypass_max"


@pytest.mark.parametrize("leave", ["remove", "release"])
def test_what_is_kept_is_kept_until_that_one_leaves(leave: str) -> None:
    queue = filled(3)
    queue.kept, queue.kept_for = ReplicaId("a"), RequestId("r1")
    queue.release(RequestId("r0"), 4.0)
    assert (queue.kept, queue.kept_for) == ("a", "r1")
    if leave == "release":
        queue.release(RequestId("r1"), 5.0)
    else:
        queue.remove(RequestId("r1"))
    assert (queue.kept, queue.kept_for) == ("", "")


def test_only_the_front_is_looked_at() -> None:
    assert len(filled(9, AdmissionConfig(scan=4)).within_reach(0.0)) == 5
    assert len(filled(3, AdmissionConfig(scan=4)).within_reach(0.0)) == 3


@pytest.mark.parametrize(
    ("kept", "seen"), [("r0", ["r0", "r1", "r2"]), ("r2", ["r2", "r0", "r1"]), ("r8", ["r8", "r0", "r1"])]
)
def test_whoever_has_a_replica_kept_is_looked_at_first(kept: str, seen: list[str]) -> None:
    queue = filled(9, AdmissionConfig(scan=2))
    queue.kept_for = RequestId(kept)
    assert [item.job.request.id for item in queue.within_reach(0.0)] == seen


def test_held_is_marked_on_the_job() -> None:
    queue, item = HoldQueue(AdmissionConfig()), job("r")
    queue.push(item, 0.0)
    assert item.held
    queue.release(RequestId("r"), 1.0)
    assert not item.held


def test_those_who_are_refused_come_back_one_after_another() -> None:
    config = AdmissionConfig(max_queued=1000, retry_after_max_s=120.0)
    queue = filled(40, config)
    assert queue.promise_s(40.0) == 1.0, "nothing is known of its pace"
    for i in range(30):
        queue.release(RequestId(f"r{i}"), 2.0 * i)
    assert 15.0 <= queue.promise_s(60.0) <= 30.0, "ten left at nearly two seconds each, and one who was told to come"
    told = [queue.promise_s(60.0) for _ in range(5)]
    assert told == sorted(set(told)), "each has a moment of its own"
    gaps = [later - earlier for earlier, later in itertools.pairwise(told)]
    assert min(gaps) >= 5.0, "only a share of the pace is promised"
    for _ in range(100):
        queue.promise_s(60.0)
    assert queue.promise_s(60.0) == config.retry_after_max_s
    assert queue.promise_s(600.0) <= 30.0, "promises are not for ever"


def test_the_pace_is_right_from_the_first_gap() -> None:
    queue = filled(40)
    for i in range(3):
        queue.release(RequestId(f"r{i}"), 2.0 * i)
    assert queue.pace_s == pytest.approx(2.0)
    for i in range(3, 30):
        queue.release(RequestId(f"r{i}"), 4.0 + 0.5 * (i - 2))
    assert queue.pace_s == pytest.approx(0.5, abs=0.1), "what is old is forgotten"


def test_a_pause_with_nobody_waiting_is_not_a_slow_pace() -> None:
    queue = filled(2)
    queue.release(RequestId("r0"), 1.0)
    queue.release(RequestId("r1"), 1.1)
    for at in (500.0, 500.1):
        queue.push(job(f"s{at}"), at)
    queue.release(RequestId("s500.0"), 500.2)
    assert queue.drain_s == pytest.approx(0.1)


class TestOrder:
    """By what can still be met."""

    def test_the_least_slack_goes_first_and_equals_in_order_of_arrival(self) -> None:
        queue = ordered()
        for name, due in (("a", 3.0), ("b", 1.0), ("c", 3.0), ("d", 2.0)):
            queue.push(job(name), 0.0, due)
        assert names(queue) == ["b", "d", "a", "c"]

    def test_in_order_of_arrival_if_so_told(self) -> None:
        queue = HoldQueue(AdmissionConfig(), ordered=False)
        for name, due in (("a", 3.0), ("b", 1.0), ("c", -2.0)):
            queue.push(job(name), 0.0, due)
        assert [item.job.request.id for item in queue.within_reach(9.0)] == ["a", "b", "c"]

    def test_who_is_late_goes_behind_the_others_in_order_of_arrival(self) -> None:
        queue = ordered()
        for name, due in (("a", 2.0), ("b", 1.0), ("c", 9.0), ("d", -1.0)):
            queue.push(job(name), 0.0, due)
        assert names(queue) == ["b", "a", "c", "d"], "d came too late for its objective"
        assert [item.job.request.id for item in queue.within_reach(5.0)] == ["c", "a", "b", "d"]

    def test_the_first_of_the_late_is_overtaken_only_so_often(self) -> None:
        queue = ordered(late_bypass=2)
        queue.push(job("late"), 0.0, -1.0)
        queue.push(job("later"), 0.0, -1.0)
        for number in range(2):
            queue.push(job(f"t{number}"), 0.0, 9.0)
            assert names(queue)[0] == f"t{number}"
            queue.pass_late()
            queue.release(RequestId(f"t{number}"), 1.0)
        queue.push(job("t2"), 0.0, 9.0)
        assert names(queue) == ["late", "t2", "later"]
        queue.release(RequestId("late"), 1.0)
        assert names(queue) == ["t2", "later"], "the next one waits for its own turn"

    def test_overtaking_counts_once_per_class(self) -> None:
        queue = ordered(late_bypass=3, bypass_max=2)
        for name, due in (("head", 8.0), ("next", 9.0), ("late", -1.0)):
            queue.push(job(name), 0.0, due)
        queue.overtake()
        counts = {item.job.request.id: item.bypassed for item in queue}
        assert counts == {"head": 1, "next": 0, "late": 1}
        queue.overtake(late=True)
        counts = {item.job.request.id: item.bypassed for item in queue}
        assert counts == {"head": 2, "next": 0, "late": 1}
        assert queue.outrun is next(iter(queue))

    def test_a_late_head_may_be_overtaken_as_often_as_any(self) -> None:
        queue = ordered(late_bypass=2, bypass_max=2)
        queue.push(job("late"), 0.0, -1.0)
        for _ in range(3):
            queue.overtake()
        assert queue.outrun is None
        queue.overtake()
        assert queue.outrun is next(iter(queue))

    def test_positions_are_what_the_order_says(self) -> None:
        queue = ordered(late_bypass=1)
        items = [queue.push(job(name), 0.0, due) for name, due in (("x", -1.0), ("y", -1.0), ("a", 5.0), ("b", 4.0))]
        for _ in range(2):
            found = {item.job.request.id: number for number, item in enumerate(queue, start=1)}
            assert {item.job.request.id: queue.position(item) for item in items} == found
            queue.pass_late()


due = st.floats(-5.0, 50.0)
moves = st.lists(st.tuples(st.sampled_from(["push", "go", "pass", "look", "leave"]), due), max_size=60)


@given(moves, st.booleans(), st.integers(0, 3))
def test_nobody_is_lost_and_the_order_holds(steps: list[tuple[str, float]], by_need: bool, late_bypass: int) -> None:
    queue = HoldQueue(AdmissionConfig(late_bypass=late_bypass), by_need)
    inside: set[str] = set()
    for now, (move, value) in enumerate(steps):
        if move == "push":
            queue.push(job(f"r{now}", float(now)), float(now), value)
            inside.add(f"r{now}")
        elif move == "look":
            queue.within_reach(float(now))
        elif move == "pass":
            queue.overtake()
        elif inside:
            name = names(queue)[0] if move == "go" else sorted(inside)[0]
            inside.discard(name)
            if move == "go":
                queue.release(RequestId(name), float(now))
            else:
                queue.remove(RequestId(name))
        assert set(names(queue)) == inside
        assert len(queue) == len(inside)
        late = [item.late for item in queue]
        assert sum(a and not b for a, b in itertools.pairwise(late)) <= 1, "at most one late one goes before"


@pytest.mark.parametrize("count", [1, 40])
def test_due_stops_at_the_first_that_has_time(count: int) -> None:
    assert len(filled(count).due(30.0)) == 1


class TestBegun:
    """Who was with an engine already: taken away from it, or left over by one that died."""

    @staticmethod
    def begun(name: str, **facts: object) -> Job:
        found = job(name, **facts)
        found.generated = 7
        return found

    def test_whoever_waits_in_the_middle_of_an_answer_goes_before_its_like(self) -> None:
        queue = ordered()
        queue.push(job("a"), 5.0, 6.0)
        queue.push(self.begun("b"), 5.0, 5.0)
        queue.push(job("late"), 5.0, 4.0)
        queue.push(job("high", tier=1), 5.0, 9.0)
        queue.push(self.begun("c"), 5.0, 5.0)
        assert names(queue) == ["high", "b", "c", "a", "late"]

    def test_it_is_never_late(self) -> None:
        queue = ordered(rise_s=0.0)
        queue.push(self.begun("b"), 5.0, 5.0)
        queue.push(job("a"), 5.0, 6.0)
        assert [item.late for item in queue.within_reach(20.0)] == [False, True]
        queue.remove(RequestId("b"))
        queue.remove(RequestId("a"))
        assert not queue

    def test_they_are_counted(self) -> None:
        queue = ordered()
        recalled = job("r")
        recalled.evictions = 1
        for each in (job("a"), self.begun("b"), recalled):
            queue.push(each, 0.0)
        assert queue.returned == 2
        queue.release(RequestId("b"), 0.0)
        queue.remove(RequestId("a"))
        assert queue.returned == 1
        queue.remove(RequestId("r"))
        assert queue.returned == 0


def test_what_is_kept_is_kept_from_those_who_matter_no_more() -> None:
    queue = filled(2)
    assert queue.kept_from(request("x")) == ""
    queue.kept, queue.kept_for = ReplicaId("a"), RequestId("r0")
    assert queue.kept_from(request("x")) == "a"
    assert queue.kept_from(request("r0")) == ""
    assert queue.kept_from(request("x", tier=1)) == ""
    assert queue.kept_from(request("x", tier=-1)) == "a"


def test_turns_are_paid_for_once_and_only_by_who_waited() -> None:
    queue, one, begun = HoldQueue(AdmissionConfig()), job("one"), job("begun")
    assert cost(one) == 100 + 2 * 50.0
    begun.generated = 7
    queue.push(one, 0.0)
    queue.push(begun, 0.0)
    queue.release(RequestId("begun"), 1.0)
    assert (queue.turns._served[""], begun.charged) == (0.0, 0.0)
    queue.release(RequestId("one"), 1.0)
    assert (queue.turns._served[""], one.charged, cost(one)) == (200.0, 200.0, 0.0)
    queue.mend(begun, 90)
    assert queue.turns._served[""] == 200.0, "nothing was guessed"
    queue.mend(one, 10)
    assert queue.turns._served[""] == 100 + 2 * 10.0


def test_queues_for_the_same_replicas_are_charged_together_and_begin_alike() -> None:
    beside: dict[str, HoldQueue] = {}
    first, second = (HoldQueue(AdmissionConfig(), lane=lane, beside=beside) for lane in ("m", "n"))
    first.push(job("a", tenant="a"), 0.0)
    first.push(job("b", tenant="b"), 0.0)
    assert list(beside) == ["m"]
    first.release(RequestId("a"), 1.0)
    second.push(job("c", tenant="a"), 2.0)
    assert second.turns.starts("a", 0.0) == first.turns.starts("a", 0.0) > 0.0
    second.serve("b", 300.0)
    assert first.turns.starts("b", 0.0) == second.turns.starts("b", 0.0) == 300.0
    first.remove(RequestId("b"))
    assert list(beside) == ["n"]


def test_looking_for_room_costs_nobody_its_turn() -> None:
    """Bytes that are too many for whoever could go: all stay, and whose turn it was, its turn it is."""
    queue = HoldQueue(AdmissionConfig(max_queued=4))
    for name, tier in (("a", -1), ("h", 1), ("h", 1), ("b", -1)):
        queue.push(job(f"{name}{len(queue)}", tenant=name, tier=tier, body_bytes=10), 0.0)
    for name in ("h1", "h2"):
        queue.release(RequestId(name), 1.0)
    before = names(queue), [queue.turns.starts(name, 0.0) for name in "abh"]
    assert queue.victims(request("c", tenant="c", tier=2, body_bytes=90), 30) is None
    assert (names(queue), [queue.turns.starts(name, 0.0) for name in "abh"]) == before
    found = queue.victims(request("c", tenant="c", tier=2, body_bytes=90), 15)
    assert found is not None
    assert [item.job.request.id for item in found] == ["b3", "a0"]
    assert (names(queue), [queue.turns.starts(name, 0.0) for name in "abh"]) == before


def test_a_queue_in_which_nobody_waits_tells_the_others_nothing() -> None:
    """Its accounts are of another time: with its clock, those who come would be before all who wait."""
    beside: dict[str, HoldQueue] = {}
    idle, busy = (HoldQueue(AdmissionConfig(), lane=lane, beside=beside) for lane in ("m", "n"))
    idle.push(job("z", tenant="z"), 0.0)
    idle.release(RequestId("z"), 1.0)
    for number in range(9):
        busy.push(job(f"a{number}", tenant="a"), 2.0)
    for number in range(8):
        busy.release(RequestId(f"a{number}"), 3.0)
    now, account = busy.turns.starts("new", 0.0), busy.turns.starts("a", 0.0)
    assert now == account - 200.0 > 0.0
    idle.serve("passing", 300.0)
    assert busy.turns.starts("new", 0.0) == now
    assert busy.turns.starts("passing", 0.0) == now + 300.0
    idle.serve("a", 300.0)
    assert busy.turns.starts("a", 0.0) == account + 300.0
    idle.push(job("again", tenant="z"), 4.0)
    assert idle.turns.starts("passing", 0.0) == busy.turns.starts("passing", 0.0)


def test_a_replica_that_is_kept_for_another_now_is_kept_for_nobody_else_who_matters_no_more() -> None:
    beside: dict[str, HoldQueue] = {}
    queues = [HoldQueue(AdmissionConfig(), lane=lane, beside=beside) for lane in ("m", "n", "o")]
    for queue, (name, tier) in zip(queues, (("plain", 0), ("high", 1), ("critical", 2)), strict=True):
        queue.push(job(name, tier=tier), 0.0)
    plain, high, critical = queues
    for queue, name in ((plain, "plain"), (critical, "critical"), (high, "high")):
        queue.keep(ReplicaId("a"), RequestId(name))
    assert [queue.kept_for for queue in queues] == ["", "high", "critical"]
    high.keep(ReplicaId("b"), RequestId("high"))
    assert [queue.kept for queue in queues] == ["", "b", "a"]


@pytest.mark.parametrize("due", [5.0, 50.0, math.inf])
def test_whoever_changes_queues_is_what_it_was(due: float) -> None:
    config = AdmissionConfig(rise_s=10.0)
    one, other = (HoldQueue(config, ordered=True, lane=lane, beside={}) for lane in ("m", "n"))
    other.push(job("o"), 0.0)
    item = one.push(job("r", tier=-1, body_bytes=7), 0.0, due)
    one.push(job("s"), 0.0)
    one.within_reach(12.0)
    assert (item.tier, item.late) == (0, due == 5.0)
    before = (item.tier, item.late, item.due, item.expires, item.rises_at, item.bypassed)
    one.remove(RequestId("r"))
    other.adopt(item, 12.0)
    assert (item.tier, item.late, item.due, item.expires, item.rises_at, item.bypassed) == before
    assert (one.find(RequestId("r")), other.find(RequestId("r")), item.job.held) == (None, item, True)
    assert (other.bytes, one.bytes) == (7, 0)
    other.remove(RequestId("r"))
    assert names(other) == ["o"]
