import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.workload.paired import Interval, mean_interval, paired_interval

FLOATS = st.floats(-1e6, 1e6)


def rng() -> np.random.Generator:
    return np.random.default_rng(7)


@given(st.lists(FLOATS, min_size=2, max_size=12))
def test_the_interval_lies_within_the_values_and_around_the_mean(values: list[float]) -> None:
    got = mean_interval(values, rng(), 200)
    assert got.low is not None
    assert got.high is not None
    slack = 1e-6 * (1 + max(map(abs, values)))
    assert min(values) - slack <= got.low <= got.high <= max(values) + slack
    assert got.mean == pytest.approx(np.mean(values), abs=slack)


@given(st.lists(st.tuples(FLOATS, FLOATS), min_size=2, max_size=12))
def test_swapping_the_sides_turns_the_interval_round(pairs: list[tuple[float, float]]) -> None:
    a, b = (list(side) for side in zip(*pairs, strict=True))
    one, other = paired_interval(a, b, rng(), 200), paired_interval(b, a, rng(), 200)
    assert one.mean == -other.mean
    assert one.sign == -other.sign


def test_what_all_pairs_share_cancels() -> None:
    common = np.random.default_rng(1).normal(0, 100, 10)
    got = paired_interval((common + 1.0).tolist(), common.tolist(), rng())
    assert got.mean == pytest.approx(1.0)
    assert got.low == pytest.approx(1.0)
    assert got.sign == 1


def test_the_interval_holds_the_truth_about_as_often_as_it_says() -> None:
    chance = np.random.default_rng(3)
    held = 0
    for _ in range(300):
        got = mean_interval(chance.normal(5.0, 2.0, 20).tolist(), chance, 400)
        held += got.low <= 5.0 <= got.high  # type: ignore[operator]
    assert 0.88 <= held / 300 <= 0.97  # a percentile bootstrap of 20 values is a little short of 95 %


def test_one_value_alone_has_no_interval() -> None:
    assert paired_interval([3.0], [1.0], rng()) == Interval(2.0)
    assert Interval(2.0).sign == 0


def test_what_cannot_be_compared_is_refused() -> None:
    with pytest.raises(ValueError, match="cannot be paired"):
        paired_interval([1.0], [1.0, 2.0], rng())
    with pytest.raises(ValueError, match="no values"):
        mean_interval([], rng())
