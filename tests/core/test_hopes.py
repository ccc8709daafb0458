"""Who is told early that it would wait in vain, and who never is."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.core.commands import Command, Dispatch, Hold, Reject
from headway.core.constants import AdmissionConfig, BrainConfig, DegradeConfig
from headway.core.entries import Waiting
from headway.core.events import TimerFired
from headway.core.hopes import Hopes, Spell
from headway.core.ids import RequestId
from headway.core.queue import HoldQueue
from headway.core.tenant import Tier
from tests.core.house import FewestInFlight, House, only
from tests.core.test_queue import job

SLACK_S = 1.0


class Line:
    """A queue in which somebody in time is always served, one each `pace` seconds, and those who are late when told."""

    def __init__(self, pace: float = 0.1, **changes: float) -> None:
        self.queue = HoldQueue(AdmissionConfig(**changes), ordered=True)  # type: ignore[arg-type]
        self.pace = pace
        self.now = 0.0
        self.gone: list[tuple[str, float]] = []
        self._served = 0

    def come(self, name: str, slack: float = SLACK_S, **facts: object) -> Waiting:
        return self.queue.push(job(name, self.now, **facts), self.now, self.now + slack)

    def late(self, *names: str) -> None:
        for name in names:
            self.come(name, -1.0)

    def go(self, name: str) -> None:
        self.queue.release(RequestId(name), self.now)

    def serve(self, seconds: float, looks: bool = True) -> list[str]:
        """Those in time go on for so long. Returns who was given up, look by look."""
        given_up = []
        until = self.now + seconds
        while self.now < until - 1e-9:
            self.come(f"served{self._served}")
            self.now += self.pace
            self.go(f"served{self._served}")
            self._served += 1
            while looks and self.queue.next_look <= self.now:
                for item in self.queue.hopeless(self.now):
                    self.queue.give_up(item, self.now)
                    given_up.append(str(item.job.request.id))
        return given_up

    def beyond(self, name: str, slack: float = SLACK_S) -> bool:
        item = self.come(name, slack)
        found = self.queue.beyond(item, self.queue.position(item), self.now)
        self.queue.remove(RequestId(name))
        return found


def test_a_spell_forgets_the_older_half() -> None:
    spell = Spell(10.0)
    spell.count = 8.0
    spell.forget(10.0, 30.0)
    assert (spell.since, spell.count) == (10.0, 8.0)
    spell.forget(10.0, 34.0)
    assert (spell.since, spell.count) == (22.0, 4.0)
    assert spell.gap_s(32.0) == 2.0


class TestLate:
    """Those who missed their objective, while others are served."""

    def test_the_oldest_is_let_go_first_and_long_before_its_time_is_over(self) -> None:
        line = Line()
        line.late("old")
        assert line.serve(10.0) == []
        line.late("young")
        assert line.serve(7.0) == []
        assert line.serve(2.0) == ["old"], "18 s of nothing are one and a half times the 12 s that are left"
        assert line.serve(6.0) == ["young"]

    def test_a_short_overload_costs_nobody_anything(self) -> None:
        line = Line()
        line.late("a", "b")
        assert line.serve(4.5) == []
        line.go("a")
        line.go("b")
        line.late("c")
        assert line.serve(15.0) == [], "what was seen before they were served does not count"

    def test_in_a_line_that_is_served_slowly_only_its_end_is_let_go(self) -> None:
        line = Line()
        line.late(*[f"r{n:02}" for n in range(40)])
        given_up: list[str] = []
        served: list[str] = []
        while line.now < 29.0:
            given_up += line.serve(1.0)
            first = next((item for item in line.queue if item.late), None)
            if first is not None:
                served.append(str(first.job.request.id))
                line.go(served[-1])
        assert len(served) > 20
        assert served[:20] == [f"r{n:02}" for n in range(20)], "one a second: these could be reached, and were"
        assert 5 < len(given_up) < 20
        assert min(given_up) > "r19"

    def test_that_all_were_given_up_is_no_sign_of_better_times(self) -> None:
        line = Line()
        line.late("old")
        given_up = []
        line.come("stays", 1000.0)
        for _ in range(60):
            line.come(f"keeps{line.now}", 1000.0)
            given_up += line.serve(1.0)
        assert given_up == ["old"]
        line.late("new")
        assert line.serve(2.0) == ["new"], "it came into a line in which nobody late was served for a minute"

    def test_nothing_is_known_of_a_pool_that_lets_nobody_go(self) -> None:
        line = Line()
        line.late("old")
        for _ in range(25):
            line.now += 1.0
            assert line.queue.hopeless(line.now) == []

    def test_who_has_begun_to_speak_stays(self) -> None:
        line = Line()
        line.late("old")
        speaks = line.queue.find(RequestId("old"))
        assert speaks is not None
        speaks.job.generated = 3
        assert line.serve(29.0) == []

    def test_it_can_be_switched_off(self) -> None:
        line = Line(hopeless=0.0)
        line.late("old")
        assert line.queue.next_look == float("inf")
        assert line.serve(29.0) == []
        assert line.queue.hopeless(line.now) == []
        assert not line.beyond("new")

    def test_each_tenant_is_judged_by_its_own_line(self) -> None:
        line = Line()
        line.late("old")
        line.come("other0", -1.0, tenant="t")
        given_up = []
        for n in range(20):
            line.come(f"other{n + 1}", -1.0, tenant="t")
            given_up += line.serve(1.0)
            line.go(f"other{n}")
        assert given_up == ["old"]


class TestNew:
    """Those who have just come."""

    def test_who_would_wait_too_long_even_if_nobody_came_after(self) -> None:
        line = Line(pace=1.0)
        line.serve(20.0)
        for n in range(42):
            line.come(f"r{n}", 1000.0)
        line.serve(10.0)
        assert not line.beyond("new", 1000.0)
        for n in range(8):
            line.come(f"s{n}", 1000.0)
        assert line.beyond("new", 1000.0), "the 51st at one a second"

    def test_who_will_be_late_and_hopeless_then(self) -> None:
        line = Line()
        line.late("old")
        line.come("stays", 1000.0)
        assert line.serve(17.0) == []
        for n in range(30):
            line.come(f"r{n}", 0.9)
        assert not line.beyond("new"), "17 s are not yet so long"
        for n in range(30):
            line.queue.remove(RequestId(f"r{n}"))
        line.serve(30.0)
        for n in range(30):
            line.come(f"r{n}", 0.9)
        assert line.beyond("new"), "30 before it make three seconds"
        assert line.beyond("late", -1.0)
        assert not line.beyond("patient", 4.0), "it may be in time"

    def test_in_front_of_a_short_line_nobody_is_hopeless(self) -> None:
        line = Line()
        line.late("old")
        line.come("stays", 1000.0)
        line.serve(50.0)
        assert not line.beyond("new")

    def test_nothing_is_known_before_it_was_watched(self) -> None:
        hopes = Hopes(AdmissionConfig(), HoldQueue(AdmissionConfig()).turns)
        item = Line().come("new")
        assert not hopes.beyond(item, 1000, 0.0)
        hopes.released(item)
        assert not hopes.beyond(item, 1000, 50.0), "nobody waited"


def test_whoever_is_told_so_counts_as_if_it_waited() -> None:
    line = Line()
    line.late(*[f"old{n}" for n in range(10)])
    line.come("stays", 1000.0)
    assert len(line.serve(18.5)) == 10
    told = line.queue.wait_of(Tier.STANDARD, line.now)
    assert 30.0 * 10 / 110 < told < 30.0 * 10 / 50, "a share of those who came lately"
    line.serve(60.0)
    assert line.queue.wait_of(Tier.STANDARD, line.now) < 0.2, "that was long ago"
    line.late("old")
    line.serve(2.0)
    assert line.queue.wait_of(Tier.HIGH, line.now) == 0.0, "nobody of that tier was"
    for name in [str(item.job.request.id) for item in line.queue]:
        line.queue.remove(RequestId(name))
    assert line.queue.wait_of(Tier.STANDARD, line.now) == 0.0, "that is over"


def test_whoever_goes_at_once_came_too() -> None:
    """What is told to one of those who wait may be told to few of those who come."""

    def told(pass_by: int) -> float:
        line = Line()
        line.late(*[f"old{n}" for n in range(10)])
        line.come("stays", 1000.0)
        for _ in range(pass_by):
            line.queue.pass_by(job("goes", line.now).request, 18.0)
        line.serve(18.5)
        return line.queue.wait_of(Tier.STANDARD, line.now)

    assert told(300) < 0.5 * told(0)


def test_the_late_ones_do_not_delay_whoever_comes() -> None:
    """They go behind it; only where nobody is ever told that it waits in vain, whoever waits is a sign of distress."""
    for hopeless, most in ((1.5, 0.0), (0.0, 2.0)):
        line = Line(hopeless=hopeless, queue_timeout_s=300.0)
        line.late(*[f"old{n}" for n in range(20)])
        line.serve(90.0)
        assert line.queue.wait_of(Tier.STANDARD, line.now) == pytest.approx(most, abs=0.4)


# -- what is told of a wait ------------------------------------------------------------------------------------------


def expects(line: Line, item: Waiting) -> float:
    return line.queue.wait_s(item, line.queue.position(item), line.now)


def test_whoever_is_in_time_waits_for_those_before_it() -> None:
    line = Line()
    line.come("stays", 1000.0)
    line.serve(10.0)
    items = [line.come(f"new{n}") for n in range(5)]
    assert [expects(line, item) for item in items] == pytest.approx([0.1, 0.2, 0.3, 0.4, 0.5], abs=0.01)


def test_whoever_will_be_late_is_told_what_the_late_wait() -> None:
    """Unless few were lately: then those before it will be, or go sooner."""
    line = Line()
    line.come("stays", 1000.0)
    line.serve(1.0)
    crowd = [line.come(f"new{n}") for n in range(40)]
    assert expects(line, crowd[-1]) == pytest.approx(1.0), "it goes in time, or it does not"
    line.now += 2.0
    line.queue.hopeless(line.now)
    line.now += 6.0
    line.queue.hopeless(line.now)
    assert expects(line, crowd[0]) == pytest.approx(6.0), "none went in six seconds"
    assert expects(line, crowd[10]) == pytest.approx(6.0 + 11 * 0.1), "but when this is over they will"
    assert expects(line, line.come("next", -0.5)) == pytest.approx(6.0 + 41 * 0.1)
    pushy = line.come("pushy", 0.05)
    assert expects(line, pushy) == pytest.approx(0.05 + 6.0 + 42 * 0.1), "most were late lately"
    line.now += 20.0
    assert expects(line, crowd[20]) == pytest.approx(30.0 - 28.0), "no longer than it may"


def test_where_nobody_is_told_that_it_waits_in_vain_the_line_is_what_counts() -> None:
    line = Line(hopeless=0.0)
    line.late("old")
    line.serve(10.0)
    assert expects(line, line.come("new", 0.0)) == pytest.approx(0.1, abs=0.01)


def test_an_overload_is_a_wait_for_newcomers_as_soon_as_they_miss_their_objective() -> None:
    """Two come where one is served: nobody is told yet that it waits in vain."""
    line = Line()
    waits = []
    for second in range(12):
        for n in range(10):
            line.come(f"new{second}-{n}")
            assert not line.serve(0.1)
            line.queue.within_reach(line.now)
        waits.append(line.queue.wait_of(Tier.STANDARD, line.now))
    assert waits[1] < 2.5
    assert waits[2:] == sorted(waits[2:])
    assert 3.5 < waits[9] < 6.0 < 2 * waits[11]


def test_those_who_may_not_wait_count_as_long_as_they_are_remembered() -> None:
    line = Line(queue_timeout_s=4.0)
    line.come("stays", 1000.0)
    assert not line.queue.losing(line.now)
    line.serve(1.0)
    for _ in range(10):
        line.queue.turned_away(Tier.STANDARD, line.now)
    share = 10.0 / 22.0  # those served, those turned away, and two who wait or waited
    assert line.queue.wait_of(Tier.STANDARD, line.now) == pytest.approx(4.0 * share, rel=0.1)
    assert line.queue.wait_of(Tier.STANDARD, line.now, 15.0) == pytest.approx(15.0 * share, rel=0.1)
    assert line.queue.wait_of(Tier.HIGH, line.now, 15.0) == 0.0
    line.now += 11.0
    assert not line.queue.losing(line.now)
    assert line.queue.wait_of(Tier.STANDARD, line.now, 15.0) < 0.2


@pytest.mark.slow
@given(
    st.lists(st.tuples(st.floats(0.0, 2.0), st.sampled_from(["late", "timely", "serve", "serve late"])), max_size=80)
)
def test_nobody_in_time_is_ever_let_go_and_nobody_of_a_short_line(steps: list[tuple[float, str]]) -> None:
    line = Line(pace=0.05)
    for number, (seconds, what) in enumerate(steps):
        if what == "serve":
            given_up = line.serve(seconds)
            assert all(name.startswith("late") for name in given_up)
        elif what == "serve late":
            first = next((item for item in line.queue if item.late), None)
            if first is not None:
                line.go(str(first.job.request.id))
        else:
            line.come(f"{what}{number}", -1.0 if what == "late" else 1000.0)
    line.queue.hopeless(line.now)
    assert line.queue.next_look >= line.now or not [item for item in line.queue if item.late]


# -- in a house ------------------------------------------------------------------------------------------------------


class Street:
    """One replica for one request at a time, which takes half a second, and two new ones each half second."""

    def __init__(self, **changes: object) -> None:
        admission = AdmissionConfig(pace=False, rise_s=0.0, **changes)  # type: ignore[arg-type]
        config = BrainConfig(admission=admission, degrade=DegradeConfig(levels=False))
        self.house = House(FewestInFlight(binds_late=True), config)
        self.house.add("a", kv_capacity_tokens=1000)
        self.arrived: dict[str, float] = {}
        self.refused: list[tuple[float, float, Reject]] = []
        self.told: set[str] = set()
        self._current = ""
        self._number = 0

    def run(self, seconds: float, each: int = 2, **facts: object) -> None:
        house = self.house
        for _ in range(round(seconds / 0.5)):
            for _ in range(each):
                self._number += 1
                name = f"r{self._number}"
                self.arrived[name] = house.now
                self._note(house.ask(name, prompt_tokens=900, generates=False, **facts))
            house.wait(0.5)
            self._note(house.tell(TimerFired(house.now, "queue:m")))
            if self._current:
                self._note(house.end(self._current))

    def _note(self, commands: list[Command]) -> None:
        for each in commands:
            if isinstance(each, Dispatch):
                self._current = str(each.attempt_id)
            elif isinstance(each, Hold):
                self.told.add(str(each.request_id))
            elif isinstance(each, Reject):
                self.refused.append((self.house.now, self.house.now - self.arrived[each.request_id], each))


def test_in_a_long_overload_nobody_waits_for_nothing() -> None:
    street = Street()
    street.run(150.0)
    assert {refusal.code for _, _, refusal in street.refused} == {"wait_too_long"}
    assert max(waited for _, waited, _ in street.refused) < 21.0
    later = [waited for at, waited, _ in street.refused if at > 60.0]
    assert max(later) <= 3.0
    assert all((r.status, r.shed) == (503, True) and r.retry_after_s >= 1.0 for _, _, r in street.refused)
    assert street.house.brain._admission.queued < 10


def test_switched_off_they_wait_as_long_as_they_may() -> None:
    street = Street(hopeless=0.0)
    street.run(80.0)
    assert {refusal.code for _, _, refusal in street.refused} == {"queue_timeout"}


@pytest.mark.slow
def test_who_is_refused_at_once_is_told_no_place() -> None:
    street = Street()
    street.run(150.0, each=4)
    at_once = {str(refusal.request_id) for _, waited, refusal in street.refused if waited == 0.0}
    assert len(at_once) > 100
    assert not at_once & street.told


def test_a_deadline_is_answered_as_ever() -> None:
    street = Street()
    street.run(150.0)
    commands = street.house.ask("d", prompt_tokens=900, generates=False, deadline=street.house.now + 0.1)
    (refusal,) = only(commands, Reject)
    assert (refusal.status, refusal.code) == (429, "deadline")


@pytest.mark.parametrize("levels", [False, True])
def test_low_requests_are_kept_out_while_others_are_told_they_would_wait_in_vain(levels: bool) -> None:
    street = Street()
    street.house.brain._relief.degrade.config = DegradeConfig(levels=levels)
    street.house.brain._relief.degrade.pools.clear()
    for _ in range(100):
        street.run(1.0)
        street.house.tell(TimerFired(street.house.now, "degrade:"))
    (state,) = street.house.brain.snapshot(street.house.now).pools
    assert state.saturation >= 1.0
    assert state.expected_wait_s > 10.0
    found = only(street.house.ask("low", prompt_tokens=900, tier=Tier.LOW), Reject)
    assert [refusal.code for refusal in found] == (["shed"] if levels else [])
