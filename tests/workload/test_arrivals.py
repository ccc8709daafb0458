"""Arrival processes keep their laws."""

import numpy as np
import pytest

from headway.workload.arrivals import STEADY, Profile, following, gamma, poisson


def rng() -> np.random.Generator:
    return np.random.default_rng(11)


def cv(times: np.ndarray) -> float:
    gaps = np.diff(times)
    return float(gaps.std() / gaps.mean())


def test_poisson_has_its_rate_and_cv_one() -> None:
    times = poisson(20.0, 1000.0, rng())
    assert len(times) == pytest.approx(20_000, rel=0.03)
    assert cv(times) == pytest.approx(1.0, abs=0.03)
    assert times.min() >= 0
    assert times.max() < 1000


@pytest.mark.parametrize("wanted", [0.5, 1.0, 3.0])
def test_gamma_has_its_rate_and_cv(wanted: float) -> None:
    times = gamma(20.0, wanted, 2000.0, rng())
    assert len(times) == pytest.approx(40_000, rel=0.06)
    assert cv(times) == pytest.approx(wanted, rel=0.06)
    assert times.max() < 2000


def test_arrivals_follow_a_profile_from_any_second_on() -> None:
    profile = Profile(2.0, (5.0, 1.0, 0.0, 2.0))
    times = following(profile, 10.0, 1.0, -16.0, 1600.0, rng())
    assert times.min() >= -16
    counts, _ = np.histogram(times % 8.0, bins=4, range=(0, 8))
    assert counts.sum() == pytest.approx(16_160, rel=0.03)
    assert counts / counts.sum() == pytest.approx([0.625, 0.125, 0.0, 0.25], abs=0.02)


def test_half_a_step_at_either_end_is_cut_off() -> None:
    times = following(Profile(10.0, (1.0, 3.0)), 50.0, 1.0, 5.0, 15.0, rng())
    assert times.min() >= 5
    assert times.max() < 15
    assert len(times) == pytest.approx(50 * (2.5 + 7.5), rel=0.1)


def test_a_steady_profile_keeps_the_burstiness() -> None:
    times = following(STEADY, 20.0, 3.0, 0.0, 2000.0, rng())
    assert cv(times) == pytest.approx(3.0, rel=0.06)


def test_same_seed_same_arrivals() -> None:
    assert np.array_equal(gamma(5.0, 2.0, 50.0, rng()), gamma(5.0, 2.0, 50.0, rng()))
