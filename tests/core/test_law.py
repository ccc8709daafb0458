"""Survival laws from counts: what every law must keep. (What is learned through them: test_length.)"""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.core.law import Counts, Law

EDGES = tuple(range(17))
hazards = st.lists(st.floats(0.0, 1.0), min_size=16, max_size=16)


@given(hazards)
@settings(max_examples=60)
def test_quantiles_invert_the_survival(hazard: list[float]) -> None:
    law = Law(EDGES, hazard)
    found = [law.quantile(p) for p in (0.01, 0.05, 0.3, 0.5, 0.9, 0.95, 0.999)]
    assert found == sorted(found)
    for p, tokens in zip((0.01, 0.05, 0.3, 0.5, 0.9, 0.95, 0.999), found, strict=True):
        assert 1 <= tokens <= 16
        assert 1.0 - law.at(tokens) >= p - 1e-9, "so many end within it"
        assert tokens == 1 or 1.0 - law.at(tokens - 1) <= p + 1e-9, "and not a token earlier"


@given(hazards)
@settings(max_examples=60)
def test_survival_never_rises(hazard: list[float]) -> None:
    alive = [Law(EDGES, hazard).at(x / 4) for x in range(80)]
    assert alive[0] == 1.0
    assert alive[-1] == 0.0
    assert all(later <= earlier + 1e-12 for earlier, later in itertools.pairwise(alive))


def test_counts_without_a_base_would_be_the_plain_estimate() -> None:
    """Ten ended at 3, ten were cut after 5, ten ended at 8: the hazards are 10/30 and 10/10."""
    counts, base = Counts(16), Law(EDGES, [0.5] * 16)
    for k, cut in ((2, False), (4, True), (7, False)):
        for _ in range(10):
            counts.add(k, cut, 1.0 if cut else 0.0, 1e9)
    law = counts.rebuild(base, 1e-6)
    assert law.at(3) == pytest.approx(2 / 3, rel=1e-3)
    assert law.at(7) == pytest.approx(2 / 3, rel=1e-3)
    assert law.at(8) == pytest.approx(0.0, abs=1e-2)
    assert counts.current() is law


def test_a_law_stands_until_an_eighth_is_new() -> None:
    counts, base = Counts(16), Law(EDGES, [0.5] * 16)
    for _ in range(80):
        counts.add(3, False, 0.0, 1e9)
    law = counts.rebuild(base, 50.0)
    for _ in range(10):
        counts.add(3, False, 0.0, 1e9)
        assert counts.current() is law
    for _ in range(3):
        counts.add(3, False, 0.0, 1e9)
    assert counts.current() is None


def test_a_limit_beyond_all_that_is_known_limits_nothing() -> None:
    law = Law(EDGES, [0.2] * 16)
    assert law.left(0, 10**6) == law.left(0, 0)


@given(hazards, st.integers(0, 14), st.integers(1, 20))
def test_what_is_outlived_is_the_law_itself_step_by_step(hazard: list[float], start: int, room: int) -> None:
    law = Law(EDGES, hazard)
    ahead = (0, 1, 3, 4, 9, 15, 40)
    expected = [0.0 if step >= room else law.at(start + step) / law.at(start) for step in ahead]
    assert law.outlive(start, ahead, room) == expected
