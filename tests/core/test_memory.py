"""The forecast peak: bounded where lengths are not known, and cheap sums that stay true."""

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.core.entry import Share
from headway.core.memory import CARE, HORIZONS, Curve, Outlook, Residual
from tests.core.house import outlook


def exponential(mean: float) -> list[float]:
    return [math.exp(-t / mean) for t in HORIZONS]


def test_a_share_is_the_mean_and_variance_of_a_coin() -> None:
    part = outlook(1.0, 0.5).share(100.0)
    assert part.mean[:3] == (100.0, (100 + HORIZONS[1]) / 2, 0.0)
    assert part.var[:3] == (0.0, ((100 + HORIZONS[1]) / 2) ** 2, 0.0)
    assert (part.peak, part.peak_var) == (max(part.mean), max(part.var))


def test_sequences_grow_together() -> None:
    assert outlook(*[1.0] * len(HORIZONS), sequences=3).share(10.0).mean == tuple(10.0 + 3 * t for t in HORIZONS)


@pytest.mark.parametrize("sure", [1, 9, 10, 11, 279, 280, 281, 699, 700, 701, 4300, 90_000])
@pytest.mark.parametrize("sequences", [1, 3])
def test_what_is_certain_to_come_is_there_at_the_last_horizon_before_its_end(sure: int, sequences: int) -> None:
    alive = [float(step < sure) for step in HORIZONS]
    part = Outlook(alive, sequences, sure).share(100.0)
    before = [step for step in HORIZONS if step < sure]
    seen = [100.0 + sequences * step for step in before[:-1]]
    if len(before) > 1:
        assert part.mean == (*seen, 100.0 + sequences * sure, *[0.0] * (len(HORIZONS) - len(before)))
    else:
        assert part.mean == (100.0, *[0.0] * 7), "now is now"
    assert set(part.var) == {0.0}
    curve = Curve()
    for _ in range(5):
        curve.add(part)
    assert curve.peak(2.0) == (5 * part.peak, 0.0)
    assert curve.fits(part, 6 * part.peak, 0.0, 2.0)
    assert not curve.fits(part, 6 * part.peak - 1.0, 0.0, 2.0)


shares = st.builds(
    lambda context, mean: Outlook(exponential(mean)).share(context), st.floats(1, 5000), st.floats(10, 3000)
)


@given(st.lists(shares, max_size=6), st.lists(shares, max_size=6))
def test_what_was_added_can_be_taken_away(stay: list, go: list) -> None:  # type: ignore[type-arg]
    curve, other = Curve(), Curve()
    for part in [*stay, *go]:
        curve.add(part)
    for part in go:
        curve.subtract(part)
    other.reset(stay)
    assert curve.mean == pytest.approx(other.mean, abs=1e-6)
    assert curve.var == pytest.approx(other.var, abs=1e-2)
    curve.reset()
    assert curve.peak(2.0) == (0.0, 0.0)


@given(st.lists(shares, max_size=6), st.sampled_from((0.0, 1.0, 2.0)))
def test_the_peak_is_the_largest_reach_also_after_it_was_remembered(batch: list[Share], z: float) -> None:
    curve, alive = Curve(), 0.0
    for count, part in enumerate(batch, start=1):
        curve.add(part)
        alive += part.context
        reaches = [
            min(mean + z * care * math.sqrt(max(0.0, var)), alive + t * count)
            for t, care, mean, var in zip(HORIZONS, CARE, curve.mean, curve.var, strict=True)
        ]
        top, var = curve.peak(z)
        assert top == max(curve.mean)
        if z:
            assert top + z * math.sqrt(var) == pytest.approx(max(reaches + [top]))


@given(shares)
def test_no_mean_and_no_deviation_exceeds_its_bound(part) -> None:  # type: ignore[no-untyped-def]
    assert part.peak <= part.mean_bound * (1 + 1e-12)
    assert math.sqrt(part.peak_var) <= part.sigma_bound * (1 + 1e-12)


@given(st.lists(shares, max_size=6), shares, st.floats(0, 40_000))
def test_the_sum_of_peaks_bounds_every_horizon(batch: list, part, room: float) -> None:  # type: ignore[no-untyped-def,type-arg]
    """What admission relies on: if the cheap bound fits, the walk over the horizons fits."""
    curve = Curve()
    curve.reset(batch)
    mean, var = curve.peak(2.0)
    if mean + part.peak + 2.0 * (math.sqrt(var) + math.sqrt(part.peak_var)) <= room:
        assert curve.fits(part, room + 1e-6, 0.0, 2.0)


def test_fits_is_exact_at_the_edge() -> None:
    part = outlook(1.0).share(100.0)
    curve = Curve()
    assert curve.fits(part, 100.0, 0.0, 2.0)
    assert not curve.fits(part, 99.9, 0.0, 2.0)
    assert not curve.fits(part, 100.0, 1.0, 2.0)
    assert curve.fits(part, 102.0, 1.0, 2.0)


def test_a_variance_below_zero_is_a_rounding_residue() -> None:
    curve = Curve()
    curve.add(outlook(*[1.0] * len(HORIZONS)).share(100.0))
    curve.var = tuple(-1e-9 * (k == 1) for k in range(len(HORIZONS)))
    assert curve.peak(2.0) == (100.0 + HORIZONS[-1], 0.0)


def test_the_reach_is_never_more_than_all_would_hold() -> None:
    """A few huge prompts: two deviations above the mean is more than there can be."""
    huge = Outlook(exponential(256.0)).share(8000.0)
    assert max(mean + 2.0 * math.sqrt(var) for mean, var in zip(huge.mean, huge.var, strict=True)) > 12_000.0
    curve = Curve()
    curve.add(huge)
    mean, var = curve.peak(2.0)
    assert mean == 8000.0
    assert 8000.0 < mean + 2.0 * math.sqrt(var) < 9000.0
    small = Outlook(exponential(20.0)).share(100.0)
    assert curve.fits(small, 9000.0, 0.0, 2.0)
    assert not curve.fits(small, 8050.0, 0.0, 2.0)


def test_deviations_of_many_add_as_squares() -> None:
    part = outlook(1.0, 0.5).share(100.0)
    curve = Curve()
    curve.reset([part] * 99)
    together = 100 * part.mean[1] + 2.0 * math.sqrt(100 * part.var[1])
    assert curve.fits(part, max(together, 10_000.0), 0.0, 2.0)
    assert not curve.fits(part, 9999.0, 0.0, 2.0), "all of them are there now"


ZEROS = (0.0,) * len(HORIZONS)
NOTHING = Share(ZEROS, ZEROS, 0.0, 0, 0.0, 0.0)


def uncertain(k: int) -> Curve:
    """A batch that may hold anything at one horizon (a deviation of 100 tokens), and nothing at the others."""
    curve = Curve()
    curve.add(Share(ZEROS, tuple(1e4 * (i == k) for i in range(len(HORIZONS))), 1e6, 0, 0.0, 0.0))
    return curve


def cared_for(k: int) -> float:
    """The part of a deviation at one horizon for which room is kept."""
    _, var = uncertain(k).peak(2.0)
    return math.sqrt(var) / 100.0


def test_what_is_near_counts_in_full_and_what_is_far_less() -> None:
    kept = [cared_for(k) for k in range(len(HORIZONS))]
    within_a_second = [kept[k] for k, steps in enumerate(HORIZONS) if steps * 0.03 <= 1.0]
    assert len(within_a_second) >= 3
    assert within_a_second == pytest.approx([1.0] * len(within_a_second))
    assert kept == sorted(kept, reverse=True)
    assert 0.5 < kept[-1] < 1.0


@pytest.mark.parametrize("k", range(len(HORIZONS)))
def test_admission_keeps_as_much_room_as_the_headroom_says(k: int) -> None:
    room = 2.0 * 100.0 * cared_for(k)
    assert uncertain(k).fits(NOTHING, room + 0.01, 0.0, 2.0)
    assert not uncertain(k).fits(NOTHING, room - 0.01, 0.0, 2.0)


@given(st.lists(shares, min_size=1, max_size=6), st.floats(0, 40_000), st.floats(0.1, 4))
def test_the_peak_is_the_largest_reach_at_any_horizon(batch: list[Share], room: float, z: float) -> None:
    curve = Curve()
    curve.reset(batch)
    worst = 0.0
    for k, steps in enumerate(HORIZONS):
        reach = sum(part.mean[k] for part in batch) + z * CARE[k] * math.sqrt(sum(part.var[k] for part in batch))
        worst = max(worst, min(reach, sum(part.context + steps * part.sequences for part in batch)))
    mean, var = curve.peak(z)
    assert mean + z * math.sqrt(var) == pytest.approx(max(worst, mean))
    if abs(worst - room) > 1e-6:
        assert curve.fits(NOTHING, room, 0.0, z) is (worst < room)


def test_without_deviations_only_means_count() -> None:
    curve = Curve()
    curve.add(outlook(1.0, 0.5).share(100.0))
    assert curve.peak(0.0) == (100.0, 0.0)


def _reach(horizons: tuple[int, ...], batch: list[tuple[float, float]]) -> float:
    best = 0.0
    for t in horizons:
        alive = [(c + t, math.exp(-t / mean)) for c, mean in batch]
        mu = sum(h * s for h, s in alive)
        best = max(best, mu + 2.0 * math.sqrt(sum(h * h * s * (1 - s) for h, s in alive)))
    return best


@pytest.mark.slow
def test_few_horizons_miss_little_of_the_peak() -> None:
    rng = random.Random(5)
    missed = []
    for _ in range(40):
        mean, prompt = rng.choice([50, 200, 500, 1500]), rng.choice([20, 100, 500, 2000])
        batch = [(prompt * rng.uniform(0.3, 3) + rng.random() * mean, mean * rng.uniform(0.5, 1.2)) for _ in range(16)]
        missed.append(1 - _reach(HORIZONS, batch) / _reach(tuple(range(0, 6000, 20)), batch))
    assert sum(missed) / len(missed) < 0.03
    assert max(missed) < 0.25


def test_the_residual_shrugs_off_one_torn_report() -> None:
    residual = Residual()
    for difference in (100.0, 104.0, 9000.0, 98.0):
        residual.push(difference)
    assert residual.value == 102.0
    assert math.sqrt(residual.var) < 10.0
    for _ in range(5):
        residual.push(500.0)
    assert (residual.value, residual.var) == (500.0, 0.0)
