"""The search for the smallest fleet."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.sim.sizing import Search


def searched(needed: int, first: int, most: int) -> Search:
    search = Search(0.95, first, most)
    while (replicas := search.next()) is not None:
        assert replicas not in [trial.replicas for trial in search.trials], "tried twice"
        search.told(replicas, 1.0 if replicas >= needed else 0.5)
    return search


@given(st.integers(1, 300), st.integers(-3, 400), st.integers(1, 400))
def test_the_smallest_is_found_and_the_one_below_was_tried(needed: int, first: int, most: int) -> None:
    search = searched(needed, first, most)
    if needed > most:
        assert search.enough is None
        assert search.too_few == most
        return
    assert search.enough == needed
    assert search.too_few == needed - 1
    assert len(search.trials) <= 22


@pytest.mark.parametrize("first", [8, 9, 10, 11])
def test_a_good_guess_is_confirmed_in_few_runs(first: int) -> None:
    assert len(searched(9, first, 64).trials) <= 5


def test_exactly_the_target_is_enough() -> None:
    search = Search(0.95, 1, 4)
    search.told(1, 0.95)
    assert search.next() is None
    assert search.enough == 1


def test_a_fleet_that_does_worse_than_a_smaller_one_ends_the_search() -> None:
    search = Search(0.95, 4, 8)
    for replicas, share in ((4, 0.96), (2, 0.5), (3, 0.97)):
        search.told(replicas, share)
    assert search.next() is None
    search.told(6, 0.9)
    assert search.next() is None
    assert search.enough == 3
