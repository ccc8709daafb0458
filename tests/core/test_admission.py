"""Who may go, who must wait, who is refused."""

import pytest

from headway.core.admission import Admission, expired
from headway.core.commands import Command
from headway.core.constants import AffinityConfig, SchedulerConfig
from headway.core.demand import Demand
from headway.core.entries import Job, Tries
from headway.core.entry import Entry
from headway.core.fleet import Fleet
from headway.core.ids import AttemptId, ReplicaId, RequestId
from headway.core.memory import HORIZONS
from headway.core.pool import Pool
from headway.core.precision import FOUR
from headway.core.replica import LoadSample
from tests.core.house import BY_HAND, demand, outlook, request, spec

A = ReplicaId("a")
FLAT = outlook(1.0)


def job(name: str, tokens: int = 100, **facts: object) -> Job:
    asked = request(name, **facts)
    believed = Demand(asked, tokens, 10.0, 1.0, 0, {})
    return Job(asked, believed, believed, {}, FLAT.share(float(tokens)), tokens, 0.0, Tries())


def test_a_deadline_is_our_refusal() -> None:
    refusal = expired(RequestId("r"))
    assert (refusal.status, refusal.code, refusal.shed) == (504, "deadline", True)


class Gate:
    """Admission over one replica."""

    def __init__(self, **facts: object) -> None:
        self.fleet = Fleet(memory=BY_HAND)
        self.out: list[Command] = []
        self.replica = self.fleet.upsert(spec("a", **facts), 0.0, False, self.out)
        self.admission = Admission(self.fleet)
        self.now = 0.0

    def open(self, name: str, tokens: int) -> None:
        entry = Entry(
            AttemptId(name),
            request(name),
            A,
            tokens,
            0,
            0,
            0,
            0,
            FLAT.share(float(tokens)),
            self.now,
            self.now,
            0.1,
            demand(request(name), tokens),
        )
        self.fleet.opened(self.replica, entry, self.now)

    def report(self, **gauges: int) -> None:
        self.now += 1.0
        self.fleet.sample(LoadSample(A, self.now, **gauges), self.now)  # type: ignore[arg-type]

    def fits(self, tokens: int) -> bool:
        self.fleet.take_changed(self.now)
        assert self.replica.view is not None
        return self.admission.fits(job("x", tokens), self.replica.view, self.now)


def test_memory_is_bound_exactly() -> None:
    gate = Gate(kv_capacity_tokens=1000)
    gate.open("r-0", 500)
    assert gate.fits(490)
    assert not gate.fits(491)


def test_an_idle_replica_takes_anything() -> None:
    assert Gate(kv_capacity_tokens=1000).fits(5000)


def test_an_unknown_pool_is_no_reason_to_wait() -> None:
    gate = Gate()
    gate.open("r-0", 10**6)
    assert gate.fits(10**6)


def test_what_others_hold_counts_while_reports_are_fresh() -> None:
    gate = Gate(kv_capacity_tokens=1000)
    gate.report(kv_used_tokens=800, running=2, waiting=0)
    assert not gate.fits(300)
    assert gate.fits(190)
    gate.now += 10.0
    gate.fleet.touch(gate.replica)
    assert gate.fits(300), "stale reports hold nobody"


def test_the_horizons_decide_where_the_cheap_bound_cannot() -> None:
    """What runs now ends before the new one grows: the sum of peaks is too much, no single moment is."""
    gate = Gate(kv_capacity_tokens=3000)
    gate.open("r-0", 2000)
    growing = job("x", 100)
    growing.part = outlook(1.0, *[0.9] * (len(HORIZONS) - 2)).share(100.0)
    growing.part.var = tuple(0.0 for _ in HORIZONS)
    growing.part.sigma_bound = 0.0
    gate.fleet.take_changed(0.0)
    view = gate.replica.view
    assert view is not None
    assert view.peak_mean + growing.part.peak > 2970.0
    assert gate.admission.fits(growing, view, 0.0)


@pytest.mark.parametrize(("at_least", "longest", "refused"), [(101, 100, True), (100, 100, False), (10**9, 0, False)])
def test_only_what_is_certain_is_refused(at_least: int, longest: int, refused: bool) -> None:
    answer = Gate().admission.infeasible(request("r"), at_least, longest)
    assert (answer is not None) is refused
    if answer is not None:
        assert (answer.status, answer.code, answer.shed) == (400, "context_length_exceeded", False)
        assert "100 tokens" in answer.message


def pool(model: str = "m", rank: int = 0) -> Pool:
    return Pool(model, SchedulerConfig(), AffinityConfig(enabled=False), rank)


def test_queues_are_one_per_pool() -> None:
    admission = Gate().admission
    first = admission.queue(pool())
    first.push(job("r", body_bytes=7), 0.0)
    assert admission.queue(pool()) is first
    coarse = admission.queue(pool(rank=FOUR))
    assert coarse is not first
    assert admission.queue(pool("n")) not in (first, coarse)
    assert (admission.queued, admission.queued_bytes) == (1, 7)
    assert admission.lanes("m") == [first, coarse]
    assert admission.busy(pool("n")) == {"m": first}, "all of one group"
    assert admission.close("m") == [first, coarse]
    assert (admission.queued, admission.lanes("m")) == (0, ())


def test_when_a_request_is_due_is_worked_out_once() -> None:
    """It waits again after a failed attempt: its objective counts from its arrival, whatever was learned since."""
    admission, asked = Gate().admission, job("r")
    first = admission.due(asked, [])
    admission._lag_s = 0.5
    assert admission.due(asked, []) == first
    assert admission.due(job("s"), []) < first
