"""Answers in one piece: presumed while they run, learned from when they end or do not come; streams go before."""

import heapq
import math
import random

import pytest

from headway.core.constants import FleetConfig
from headway.core.decision import Decision
from headway.core.demand import Demand
from headway.core.entry import Entry
from headway.core.ids import AttemptId
from headway.core.outcome import Outcome, OutcomeKind
from headway.policies import headroom
from tests.core.house import House, entries, request, sent_to
from tests.core.test_fleet import OUTLOOK, A, Yard

CONFIG = FleetConfig()


def answer(yard: Yard, name: str, took_s: float, prompt: int = 100, tokens: int = 20, **facts: object) -> None:
    """One that is answered in one piece; asked for is whatever view there is, as a decision would have it."""
    yard.open(name, prompt=prompt, stream=False)
    assert yard.view.in_flight
    yard.now += took_s
    facts.setdefault("output_tokens", tokens)
    yard.settle(name, Outcome(OutcomeKind.OK, 200, **facts))  # type: ignore[arg-type]


def rate(yard: Yard) -> float:
    return yard.fleet.speed.speed(yard.replica.spec).prefill_tokens_per_s


def step_s(yard: Yard) -> float:
    return yard.fleet.speed.speed(yard.replica.spec).step_s(1, 100)


def test_whole_durations_teach_both_by_the_same_factor() -> None:
    yard = Yard()
    before = rate(yard), step_s(yard)
    for number in range(40):
        answer(yard, f"r{number}-0", took_s=2.2)  # ten times what is believed of 100 tokens and 20 steps
    assert yard.fleet.speed.speed(yard.replica.spec).learned
    assert before[0] / rate(yard) == pytest.approx(step_s(yard) / before[1], rel=0.3)
    assert step_s(yard) == pytest.approx(10.0 * before[1], rel=0.25)


def test_many_answers_are_one_observation_per_window() -> None:
    yard = Yard()
    for number in range(60):
        answer(yard, f"r{number}-0", took_s=0.02)
    assert not yard.fleet.speed.speed(yard.replica.spec).learned, "1.2 s: two windows"


def test_what_says_nothing_teaches_nothing() -> None:
    yard = Yard()
    believed = rate(yard), step_s(yard)
    for number in range(12):
        answer(yard, f"r{number}-0", 3.0, output_tokens=0)  # no usage
        yard.open(f"e{number}-0", prompt=100, stream=False, generates=False)
        yard.now += 3.0
        yard.settle(f"e{number}-0", Outcome(OutcomeKind.OK, 200, prompt_tokens=100, output_tokens=1))
        answer(yard, f"t{number}-0", 3.0, prompt=7, tokens=3)  # latency hides all else
        yard.open(f"f{number}-0", prompt=100, stream=False)
        yard.now += 3.0
        yard.settle(f"f{number}-0", Outcome(OutcomeKind.SERVER_ERROR, 500, output_tokens=1))
        yard.open(f"i{number}-0", prompt=100, stream=False)
        yard.settle(f"i{number}-0", Outcome(OutcomeKind.OK, 200, output_tokens=1))  # in no time
        yard.now += 3.0
    assert (rate(yard), step_s(yard)) == believed


def test_where_many_wait_in_the_engine_nothing_is_learned() -> None:
    yard = Yard(max_num_seqs=1)
    believed = step_s(yard)
    for number in range(12):
        yard.open(f"a{number}-0", prompt=100, stream=False)
        answer(yard, f"r{number}-0", 3.0)
        yard.settle(f"a{number}-0", Outcome(OutcomeKind.CLIENT_CLOSED))
    assert step_s(yard) == believed


def test_a_prompt_that_was_cached_was_not_prefilled() -> None:
    cached, plain = Yard(), Yard()
    for number in range(20):
        answer(plain, f"r{number}-0", 0.6, prompt=4000, prompt_tokens=4000)
        answer(cached, f"r{number}-0", 0.6, prompt=4000, prompt_tokens=4000, cached_tokens=3900)
    assert step_s(cached) > 1.5 * step_s(plain), "so decoding took it all"


def test_prefills_of_others_are_not_decoding() -> None:
    """Prompts that were prefilled while it decoded took their time from its steps."""
    alone, busy = Yard(), Yard()
    for number in range(20):
        answer(alone, f"r{number}-0", 1.2)
        busy.open(f"r{number}-0", prompt=100, stream=False)
        busy.open(f"s{number}-0", prompt=8000)
        assert busy.view.in_flight == 2
        busy.now += 1.2
        busy.fleet.ledger.first_token(AttemptId(f"s{number}-0"), busy.now)
        busy.settle(f"r{number}-0", Outcome(OutcomeKind.OK, 200, output_tokens=20))
        busy.settle(f"s{number}-0", Outcome(OutcomeKind.CLIENT_CLOSED))
    assert step_s(alone) > 3.0 * step_s(busy)


def test_streams_go_before() -> None:
    """What a stream told of steps a moment ago is not overruled; what none told is learned all the same."""
    yard = Yard()
    yard.open("s-0", prompt=1)
    yard.first("s-0")
    told = []
    for second in range(12):
        for tick in range(11):
            yard.now += 0.1
            yard.grow("s-0", 110 * second + 10 * (tick + 1))
        told.append(step_s(yard))
        answer(yard, f"r{second}-0", 0.1, prompt=100, tokens=1)
        assert step_s(yard) == told[-1]


def test_what_streams_told_of_prefills_goes_before_too() -> None:
    yard = Yard()
    believed = step_s(yard)
    for number in range(12):
        yard.open(f"s{number}-0", prompt=4000)
        yard.now += 0.5
        yard.first(f"s{number}-0")
        yard.settle(f"s{number}-0", Outcome(OutcomeKind.CLIENT_CLOSED))
        told = rate(yard)
        answer(yard, f"r{number}-0", 0.6, tokens=20)
        assert rate(yard) == told
    assert step_s(yard) > 2.0 * believed


def test_those_that_have_begun_are_not_before_the_next() -> None:
    yard = Yard()
    yard.open("a-0", prompt=1000, stream=False)
    yard.open("b-0", prompt=1000, stream=False)
    yard.open("gone-0", prompt=500, stream=False)
    yard.settle("gone-0", Outcome(OutcomeKind.CLIENT_CLOSED))
    heard = yard.open("heard-0", prompt=500, stream=False)
    yard.first("heard-0")
    assert yard.view.prefill_backlog_tokens == 2000.0
    yard.now += 0.09  # a moment before they are expected to begin
    assert yard.open("c-0", prompt=10, stream=False).ahead == 2010
    yard.now += 0.02
    assert yard.open("d-0", prompt=10).ahead == 20
    assert heard.started
    yard.now += 1.0
    assert yard.open("e-0", prompt=10).ahead == 20, "nothing is presumed of streams"


def late(yard: Yard, name: str, longest: int, prompt: int = 100) -> Entry:
    """One that is answered in one piece; nine in ten have at most so many tokens."""
    asked = request(name, stream=False)
    believed = Demand(asked, prompt, 20.0, 1.0, 0, {}, output_high=longest)
    part, now = OUTLOOK.share(float(prompt)), yard.now
    entry = Entry(AttemptId(name), asked, A, prompt, 0, 0, 50, 0, part, now, now, 0.1, believed)
    yard.fleet.opened(yard.replica, entry, now)
    return entry


def test_an_answer_that_does_not_come_tells_that_its_replica_is_slow() -> None:
    """Before it comes; each once, and once more when it has taken twice as long."""
    yard = Yard()
    for number in range(8):
        answer(yard, f"r{number}-0", 0.6, tokens=50)
    usual, sent, seen = rate(yard), [], []
    for number in range(12):
        sent.append(late(yard, f"late{number}-0", 50))
        yard.now += 0.6
        yard.report(running=number + 1)
        seen.append(usual / rate(yard))
    assert max(seen[:3]) < 1.1, "none is overdue yet"
    assert seen[-1] > 1.5
    known = seen[-1]
    first = sent[0]
    assert first.overdue_at - first.dispatched_at == pytest.approx(9.6), "seen at 2.4 s and at 4.8 s"
    for entry in sent:
        entry.overdue_at = math.inf
    for _ in range(10):
        yard.now += 0.6
        yard.report(running=12)
    assert usual / rate(yard) == known, "each tells it once"


@pytest.mark.parametrize("longest", [0, 5000])
def test_what_may_well_take_as_long_tells_nothing(longest: int) -> None:
    """Nothing is known of its length, or it may be long. Nor does one that was slow to be believed fast."""
    yard = Yard()
    answer(yard, "r-0", 0.6, tokens=50)
    believed = rate(yard)
    for number in range(6):
        late(yard, f"late{number}-0", longest)
    late(yard, "early-0", 50).overdue_at = yard.now + 0.5
    for _ in range(10):
        yard.now += 0.6
        yard.report(running=6)
        if yard.now < 12.0:
            assert rate(yard) == believed
        yard.replica.account.entries[AttemptId("early-0")].overdue_at = math.inf
    assert rate(yard) == believed


def test_a_small_answer_that_is_late_tells_no_more_than_one_that_is_in_time() -> None:
    """It takes twenty times as long as its tokens need, as every answer of an engine with much overhead does. Found by
    chance: of two equal replicas, the one that happened to be looked at while some were under way was avoided for
    seconds. One that hangs is found out all the same."""
    yard = Yard()
    answer(yard, "r-0", 0.6, tokens=50)
    believed = rate(yard)
    for number in range(12):
        small = late(yard, f"small{number}-0", 3, prompt=10)
        yard.now += 0.4
        yard.report(running=1)
        assert rate(yard) == believed
        yard.settle(small.attempt_id, Outcome(OutcomeKind.OK, output_tokens=3))
        assert rate(yard) == believed
    for number in range(4):
        late(yard, f"hangs{number}-0", 3, prompt=10)
    for _ in range(60):
        yard.now += 0.5
        yard.report(running=4)
    assert believed / rate(yard) > 1.25


class Works:
    """Four replicas that report twice a second, a brain with the default policy, and nothing but answers in one piece:
    `first_s` to the first of 25 tokens, `gap_s` to each other; the first replica takes `factor` times as long from
    `slow_from` on."""

    def __init__(self, first_s: float, gap_s: float, slow_from: float = 0.0, factor: float = 10.0) -> None:
        self.house = House(headroom.PLUGIN.factory(headroom.PLUGIN.config()))
        self.house.add("r0", "r1", "r2", "r3")
        self.took_s = first_s + 24 * gap_s
        self.slow_from, self.factor = slow_from, factor
        self.sent: list[tuple[float, str]] = []
        self._ends: list[tuple[float, str]] = []
        self._reported_at = 0.0
        self._chance = random.Random(4)

    def run(self, rate: float, until: float) -> "Works":
        number = 0
        while number / rate < until:
            at = number / rate
            while self._ends and self._ends[0][0] <= at:
                self.house.now, name = heapq.heappop(self._ends)
                self.house.end(name, prompt_tokens=200, output_tokens=25)
            self.house.now = at
            if at >= self._reported_at:
                self._reported_at += 0.5
                for name in ("r0", "r1", "r2", "r3"):
                    self.house.report(name, running=self.house.view(name).in_flight, waiting=0)
            out = self.house.ask(f"q{number}", prompt_tokens=200, stream=False)
            (decision,) = entries(out, Decision)
            self.sent.append((at, decision.chosen))
            slow = self.factor if decision.chosen == "r0" and at >= self.slow_from else 1.0
            took_s = self.took_s * slow * self._chance.uniform(0.9, 1.1)
            heapq.heappush(self._ends, (at + took_s, f"q{number}-0"))
            number += 1
        return self

    def share(self, begin: float, end: float) -> float:
        """What the first replica got, as a multiple of its fair share."""
        there = [name == "r0" for at, name in self.sent if begin <= at < end]
        return 4.0 * sum(there) / len(there)


@pytest.mark.slow
@pytest.mark.parametrize("rate", [40.0, 120.0])
def test_f3_a_slow_replica_that_never_streams_gets_little_within_ten_seconds(rate: float) -> None:
    """Ten times as slow from second 10 on: from second 20 on it gets less than a fifth of its fair share."""
    works = Works(0.02, 0.005, slow_from=10.0).run(rate, 30.0)
    assert 0.6 < works.share(0.0, 10.0) < 1.4
    assert works.share(20.0, 30.0) < 0.2


@pytest.mark.slow
def test_f3_slow_from_the_start() -> None:
    assert Works(0.02, 0.005).run(80.0, 20.0).share(10.0, 20.0) < 0.2


@pytest.mark.slow
def test_equals_stay_equals() -> None:
    works = Works(0.02, 0.005, factor=1.0).run(80.0, 20.0)
    assert 0.8 < works.share(5.0, 20.0) < 1.2


@pytest.mark.parametrize("seed", range(4))
def test_equals_are_taken_alike_at_low_load_and_without_reports(seed: int) -> None:
    """One request after the other: there is nothing to choose by but what is believed of their speeds."""
    house, chance = House(headroom.PLUGIN.factory(headroom.PLUGIN.config()), seed=seed), random.Random(seed)
    house.add("a", "b")
    first = 0
    for number in range(150):
        prompt = chance.randint(50, 400)
        asked = house.wait(1.0).ask(f"r{number}", prompt_tokens=prompt, prompt_bytes=4 * prompt, stream=False)
        first += sent_to(asked) == "a"
        house.wait((0.02 + prompt / 6000 + 0.7) * chance.lognormvariate(0.0, 0.05))
        house.end(f"r{number}-0", output_tokens=60)
    assert house.view("a").speed.learned
    assert 50 < first < 100
