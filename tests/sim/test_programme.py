"""Rows in, a maximum out."""

import pytest

from headway.sim.programme import Programme


def test_a_small_programme() -> None:
    """Two goods, one machine, one exact mixture."""
    programme = Programme()
    a, b = programme.variable(gain=3.0), programme.variable(most=2.0, gain=2.0)
    programme.at_most(10.0, [(a, 2.0), (b, 1.0)])
    assert programme.maximum() == pytest.approx(3.0 * 4.0 + 2.0 * 2.0)
    programme.equal(0.0, [(a, 1.0), (b, -2.0)])
    assert programme.maximum() == pytest.approx(3.0 * 4.0 + 2.0 * 2.0)
    programme.at_most(1.0, [(b, 1.0)])
    assert programme.maximum() == pytest.approx(3.0 * 2.0 + 2.0 * 1.0)
    assert (programme.variables, programme.constraints) == (2, 3)


def test_what_has_no_solution_is_said() -> None:
    programme = Programme()
    programme.equal(1.0, [(programme.variable(most=0.5, gain=1.0), 1.0)])
    with pytest.raises(RuntimeError, match="no solution"):
        programme.maximum()


def test_without_rows_the_upper_limits_decide() -> None:
    programme = Programme()
    programme.variable(most=2.0, gain=1.5)
    assert programme.maximum() == pytest.approx(3.0)
