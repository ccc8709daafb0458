"""The pace of prefill: earned, spent, and given up where it is of no use."""

from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.core.constants import PaceConfig, SloConfig
from headway.core.ids import ReplicaId
from headway.core.pace import Flow, Pace
from headway.core.view import ReplicaView, Speed
from tests.core.house import FewestInFlight, House
from tests.views import changed

CONFIG = PaceConfig(target=1.0, burst_s=0.5, least=0.1, cached=0.5, give_up=2.0, resume=1.0, longest_s=9.0)
SLO = SloConfig(tpot_s=0.05)
A = ReplicaId("a")
KNOWN = Speed(0.020, 0.0005, 0.0, 10_000.0, True)
"""Ten run at a step of 25 ms: half of the time is left for prefill."""


def view(name: str = "a", running: float = 10.0, speed: Speed = KNOWN) -> ReplicaView:
    house = House(FewestInFlight())
    house.add(name)
    return changed(house.view(name), running=running, speed=speed)


def pace(**changes: float) -> Pace:
    return Pace(msgspec.structs.replace(CONFIG, **changes), SLO)


@pytest.mark.parametrize(
    ("running", "speed", "share"),
    [
        (10.0, KNOWN, 0.5),
        (0.0, KNOWN, 1.0),  # nobody decodes
        (10.0, Speed(0.020, 0.0005, 0.0, 10_000.0, False), 1.0),  # nothing learned
        (10.0, Speed(0.060, 0.0005, 0.0, 10_000.0, True), 1.0),  # too slow for the objective with nobody else there
        (80.0, KNOWN, 0.1),  # over the objective: as little as may be
    ],
)
def test_the_share_is_what_decoding_leaves(running: float, speed: Speed, share: float) -> None:
    assert pace().share(view(running=running, speed=speed)) == pytest.approx(share)


def test_a_prompt_is_paid_for_at_the_rate_of_the_share() -> None:
    """Half a second saved, two seconds of prefill sent: the debt of 1.5 s is earned in 3."""
    gate, here = pace(), view()
    gate.sent(here, 20_000, 10.0)
    assert gate.waits("m", [here], 10.0) == {A: pytest.approx(3.0)}
    assert gate.waits("m", [here], 12.0) == {A: pytest.approx(1.0)}
    assert not gate.open("m", here, 100, 0, 12.9)
    assert gate.open("m", here, 100, 0, 13.01)
    assert gate.waits("m", [here], 13.01) == {}


def test_a_burst_is_what_was_saved_up_and_no_more() -> None:
    gate, here = pace(), view()
    gate.sent(here, 4_000, 100.0)
    assert gate.open("m", here, 100, 0, 100.0)
    gate.sent(here, 6_000, 1000.0)
    assert not gate.open("m", here, 100, 0, 1000.0), "900 s of idling saved half a second"


def test_what_is_mostly_cached_disturbs_nobody() -> None:
    gate, here = pace(), view()
    gate.sent(here, 20_000, 0.0)
    assert gate.open("m", here, 1000, 500, 0.0)
    assert not gate.open("m", here, 1000, 499, 0.0)


def test_a_debt_is_forgiven_when_the_last_stream_ends() -> None:
    gate = pace()
    gate.sent(view(), 50_000, 0.0)
    assert gate.open("m", view(running=0.0), 100, 0, 0.0)
    assert gate.waits("m", [view(running=0.0)], 0.0) == {}


def test_others_are_not_concerned() -> None:
    gate = pace()
    gate.sent(view(), 50_000, 0.0)
    assert gate.open("m", view("b"), 100, 0, 0.0)
    assert set(gate.waits("m", [view(), view("b")], 0.0)) == {A}
    gate.forget(A)
    assert gate.open("m", view(), 100, 0, 0.0)


def swamp(gate: Pace, rate: float, start: float, seconds: int) -> None:
    for tenth in range(seconds * 10):
        gate.arrived("m", round(rate / 10), [view()], start + tenth / 10)


def test_a_pace_that_cannot_keep_up_is_given_up_and_taken_up_again() -> None:
    """5,000 tokens a second pass."""
    gate, here = pace(), view()
    gate.sent(here, 50_000, 60.0)
    swamp(gate, 9_000, 0.0, 60)
    assert not gate.open("m", here, 100, 0, 60.0)
    swamp(gate, 14_000, 60.0, 60)
    assert gate.open("m", here, 100, 0, 120.0)
    assert gate.waits("m", [here], 120.0) == {}
    gate.sent(here, 90_000, 180.0)
    swamp(gate, 6_000, 120.0, 60)
    assert gate.open("m", here, 100, 0, 180.0), "still more than it lets through"
    swamp(gate, 4_000, 180.0, 60)
    gate.sent(here, 90_000, 240.0)
    assert not gate.open("m", here, 100, 0, 240.0)


def flowing(gate: Pace, prompts: Sequence[int], views: Sequence[ReplicaView]) -> None:
    """A prompt each half second: less than passes, so it is by their lengths that a pace is of use or not."""
    for number in range(40):
        gate.arrived("m", prompts[number % len(prompts)], views, number / 2)


@pytest.mark.parametrize(
    ("prompts", "rates", "useless"),
    [
        ([300], [10_000.0], False),
        ([2900], [10_000.0], False),
        ([3100], [10_000.0], True),
        ([100, 100, 100, 100, 100, 100, 100, 100, 100, 6000], [10_000.0], True),  # few, but most of the tokens
        ([2000, 2000, 2000, 2000, 2000, 2000, 2000, 2000, 2000, 4000], [10_000.0], False),
        ([3100], [10_000.0, 12_000.0], False),  # their mean counts
        ([3100], [10_000.0, 8_000.0], True),
    ],
)
def test_a_flow_of_long_prompts_cannot_be_paced(prompts: list[int], rates: list[float], useless: bool) -> None:
    """Of 0.3 s at most may the prefill be that a prompt token is a part of, on average."""
    gate = pace(give_up=10.0, resume=9.0, longest_s=0.3)
    views = [view(f"r{k}", speed=Speed(0.020, 0.0005, 0.0, rate, True)) for k, rate in enumerate(rates)]
    gate.sent(views[0], 50_000, 0.0)
    flowing(gate, prompts, views)
    assert gate.open("m", views[0], 100, 0, 0.0) is useless
    assert (gate.waits("m", views, 0.0) == {}) is useless


def test_the_pace_is_taken_up_again_when_prompts_are_short_again() -> None:
    gate, here = pace(give_up=10.0, resume=9.0, longest_s=0.3), view()
    gate.sent(here, 10**6, 0.0)
    gate.arrived("m", 20_000, [here], 0.0)
    gate.arrived("m", 20_000, [here], 1.0)
    assert gate.open("m", here, 100, 0, 1.0)
    for tenth in range(1200):
        gate.arrived("m", 200, [here], 1.0 + tenth / 10)
    assert not gate.open("m", here, 100, 0, 60.0)


def test_the_typical_prompt_is_that_of_a_token_not_of_a_request() -> None:
    flow = Flow(0.0)
    assert flow.typical == 0.0
    for tokens in (100.0, 100.0, 1000.0):
        flow.add(tokens, 0.0, 30.0)
    assert flow.typical == pytest.approx((2 * 100**2 + 1000**2) / 1200)
    flow.add(100.0, 3000.0, 30.0)
    assert flow.typical == pytest.approx(100.0), "the long past is forgotten"


def test_flows_of_models_that_are_gone_are_forgotten() -> None:
    gate = pace()
    for model in ("m", "n"):
        gate.arrived(model, 100, [view()], 0.0)
    gate.keep({"n": None})
    assert list(gate._flows) == ["n"]


def test_no_replica_means_no_judgement() -> None:
    gate = pace()
    gate.arrived("m", 10**9, [], 0.0)
    gate.arrived("m", 10**9, [], 10.0)
    gate.sent(view(), 50_000, 10.0)
    assert not gate.open("m", view(), 100, 0, 10.0)


def test_a_young_flow_is_not_thought_small() -> None:
    flow = Flow(0.0)
    for tenth in range(100):
        flow.add(100.0, tenth / 10, 30.0)
    assert flow.rate(10.0, 30.0) == pytest.approx(1000.0, rel=0.1)
    assert flow.rate(1000.0, 30.0) < 1.0


@given(st.lists(st.tuples(st.floats(0.0, 5.0), st.integers(1, 50_000)), max_size=40))
def test_in_the_long_run_no_more_is_sent_than_the_share_allows(steps: list[tuple[float, int]]) -> None:
    gate, here, now, sent = pace(), view(), 0.0, 0
    last = 0
    for gap, tokens in steps:
        now += gap
        if gate.open("m", here, tokens, 0, now):
            gate.sent(here, tokens, now)
            sent, last = sent + tokens, tokens
    assert (sent - last) / 10_000.0 <= CONFIG.burst_s + 0.5 * now + 1e-6
