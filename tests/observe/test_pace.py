"""Backing off, without waiting."""

import random

import pytest

from headway.observe.config import ObserveConfig
from headway.observe.pace import Pace


class Middle:
    """Chance that never jitters."""

    def random(self) -> float:
        return 0.5


def pace(**config: float) -> Pace:
    return Pace(ObserveConfig(**config), Middle())


def test_scrapes_start_an_interval_apart() -> None:
    assert pace().after(0.1, ok=True) == pytest.approx(0.4)


def test_slow_answers_stretch_the_interval_to_a_quarter_of_the_time() -> None:
    slow = pace()
    slow.after(0.6, ok=True)
    assert slow.after(0.5, ok=True) == pytest.approx(1.5)
    assert slow.interval_s == pytest.approx(2.0)
    assert slow.after(0.01, ok=True) == pytest.approx(0.49)


def test_one_slow_answer_changes_nothing() -> None:
    hiccup = pace()
    waits = [hiccup.after(took_s, ok=True) for took_s in (0.01, 0.4, 0.01)]
    assert waits == pytest.approx([0.49, 0.1, 0.49])


def test_failures_double_the_interval_up_to_a_bound_and_one_success_ends_it() -> None:
    failing = pace()
    waits = [failing.after(0.0, ok=False) for _ in range(6)]
    assert waits == pytest.approx([1.0, 2.0, 4.0, 5.0, 5.0, 5.0])
    assert failing.after(0.0, ok=True) == pytest.approx(0.5)


def test_no_number_of_failures_overflows() -> None:
    failing = pace()
    assert [failing.after(0.0, ok=False) for _ in range(5000)][-1] == 5.0


def test_there_is_always_a_pause() -> None:
    assert pace().after(100.0, ok=True) == pytest.approx(0.05)


def test_an_interval_beyond_the_bound_is_kept() -> None:
    assert pace(interval_s=30.0).after(0.0, ok=False) == pytest.approx(30.0)


def test_jitter_spreads_by_a_tenth() -> None:
    jittery = Pace(ObserveConfig(), random.Random(1))
    waits = [jittery.after(0.0, ok=True) for _ in range(500)]
    assert 0.45 <= min(waits) < 0.46
    assert 0.54 < max(waits) <= 0.55
