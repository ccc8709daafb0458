"""Arrival processes keep their laws."""

import numpy as np
import pytest

from headway.workload.arrivals import bursts, gamma, poisson


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


def test_bursts_are_where_they_belong() -> None:
    times = bursts(5.0, 50.0, every_s=10.0, length_s=2.0, duration_s=1000.0, rng=rng())
    inside = int((times % 10.0 < 2.0).sum())
    assert inside == pytest.approx(50 * 200, rel=0.05)
    assert len(times) - inside == pytest.approx(5 * 800, rel=0.06)


def test_same_seed_same_arrivals() -> None:
    assert np.array_equal(gamma(5.0, 2.0, 50.0, rng()), gamma(5.0, 2.0, 50.0, rng()))
