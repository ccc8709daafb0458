"""Bursts: told from noise, from a start and from a rate that has come to stay."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.core.burst import Pulse
from headway.core.constants import BurstConfig


def fed(pulse: Pulse, rates: list[float], start: int = 0) -> list[bool]:
    """Evenly spaced arrivals at so many per second, second by second; what it said at the end of each."""
    said = []
    for number, rate in enumerate(rates, start):
        for n in range(round(rate)):
            pulse.arrived(number + n / rate)
        pulse.judge(number + 1.0)
        said.append(pulse.on)
    return said


def test_three_times_the_usual_is_a_burst_within_the_window() -> None:
    said = fed(Pulse(BurstConfig()), [10.0] * 60 + [30.0] * 10)
    assert said.index(True) == 64


def test_less_than_that_is_none() -> None:
    assert not any(fed(Pulse(BurstConfig()), [10.0] * 60 + [29.0] * 60))


def test_a_start_is_no_burst() -> None:
    assert not any(fed(Pulse(BurstConfig()), [40.0] * 60))


def test_few_requests_are_no_burst() -> None:
    assert not any(fed(Pulse(BurstConfig()), [0.0, 1.0] * 30 + [3.0] * 60))


def test_it_ends_when_the_rate_falls() -> None:
    said = fed(Pulse(BurstConfig()), [10.0] * 60 + [30.0] * 10 + [10.0] * 10)
    assert said[69]
    assert not said[-1]


def test_a_rate_that_has_come_to_stay_is_usual() -> None:
    said = fed(Pulse(BurstConfig()), [10.0] * 60 + [50.0] * 120)
    assert sum(said) > 30
    assert not said[-1]


def test_silence_fades_the_past_however_long_it_was() -> None:
    pulse = Pulse(BurstConfig())
    fed(pulse, [10.0] * 600)
    before = pulse.usual
    assert not pulse.judge(606.0)
    assert pulse.rate == 0.0
    pulse.judge(666.0)
    assert pulse.usual == pytest.approx(before * 0.37, rel=0.05)
    pulse.judge(1e7)
    assert pulse.usual == 0.0
    assert not fed(pulse, [3.0] * 5, 10_000_000)[-1]


def test_moves_keep_their_distance() -> None:
    pulse = Pulse(BurstConfig(dwell_s=60.0))
    said = fed(pulse, [10.0] * 60 + [30.0] * 8 + [0.0] * 20)
    assert said[-1], "it dwells"


def test_nothing_is_known_at_first() -> None:
    pulse = Pulse(BurstConfig())
    assert not pulse.judge(100.0)
    assert (pulse.usual, pulse.rate, pulse.learned) == (0.0, 0.0, False)


@pytest.mark.slow
def test_chance_is_no_burst() -> None:
    """An hour of Poisson arrivals at each of several rates: never."""
    rng = random.Random(1)
    for rate in (1.0, 4.0, 20.0):
        pulse = Pulse(BurstConfig())
        at = 0.0
        while at < 3600.0:
            at += rng.expovariate(rate)
            pulse.arrived(at)
            assert not pulse.judge(at)


@settings(max_examples=60)
@given(st.lists(st.integers(0, 60), min_size=1, max_size=120), st.integers(1, 5))
def test_gaps_are_as_good_as_seconds_without_requests(counts: list[int], stride: int) -> None:
    """Whether silent seconds are looked at one by one or all at once is the same."""
    config = BurstConfig(slow_s=20.0, history_s=5.0)
    watched, left = Pulse(config), Pulse(config)
    watched.arrived(0.0)
    left.arrived(0.0)
    for number, count in enumerate(counts):
        for _ in range(count):
            watched.arrived(number * stride)
            left.arrived(number * stride)
        for second in range(stride):
            watched.judge(number * stride + second + 0.5)
    at = len(counts) * stride + 0.5
    watched.judge(at)
    left.judge(at)
    assert left.usual == pytest.approx(watched.usual)
    assert left.rate == watched.rate
