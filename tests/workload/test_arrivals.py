"""Arrival processes keep their laws; scaling keeps sessions and shape."""

import numpy as np
import pytest

from headway.workload.arrivals import bursts, gamma, poisson, scale, superpose, thin
from headway.workload.outline import reusable
from headway.workload.request import Request, Segment


def rng() -> np.random.Generator:
    return np.random.default_rng(11)


def cv(times: np.ndarray) -> float:
    gaps = np.diff(times)
    return float(gaps.std() / gaps.mean())


def sessions(count: int, turns: int = 2) -> list[Request]:
    return [
        Request(float(s) + turn * 0.25, tuple(Segment(s * 10 + k, 5) for k in range(turn + 1)), 3, f"s{s}", turn)
        for s in range(count)
        for turn in range(turns)
    ]


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


def test_thinning_keeps_sessions_whole() -> None:
    kept = thin(sessions(400), 0.5, rng())
    assert len(kept) == pytest.approx(400, rel=0.15)
    assert all(sum(r.session == one.session for r in kept) == 2 for one in kept[:20])


def test_thinning_single_requests() -> None:
    lone = [Request(float(i), (Segment(i, 1),), 1) for i in range(1000)]
    assert len(thin(lone, 0.3, rng())) == pytest.approx(300, rel=0.2)


def test_copies_share_nothing_and_stay_in_the_span() -> None:
    one = sessions(50)
    three = superpose(one, 3, rng())
    assert len(three) == 3 * len(one)
    assert len({r.session for r in three}) == 150
    assert max(r.arrival_s for r in three) <= max(r.arrival_s for r in one)
    assert [r.arrival_s for r in three] == sorted(r.arrival_s for r in three)
    assert reusable(three) <= reusable(one) + 1e-9


@pytest.mark.parametrize("factor", [0.0, 0.4, 1.0, 2.5])
def test_scaling_scales_the_count(factor: float) -> None:
    one = sessions(400)
    assert len(scale(one, factor, rng())) == pytest.approx(factor * len(one), rel=0.12)


def test_scaling_nothing() -> None:
    assert scale([], 2.5, rng()) == []
