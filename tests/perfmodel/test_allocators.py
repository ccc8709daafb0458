"""Allocators keep books: nothing is lost, nothing is held twice."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.perfmodel.allocators import ALLOCATORS, Allocator, Buddy, Contiguous, Paged

NAMES = [name for name, _ in ALLOCATORS]
MAKE = dict(ALLOCATORS)


@pytest.mark.slow
@given(
    st.sampled_from(NAMES),
    st.sampled_from([1, 32, 96]),
    st.integers(100, 5000),
    st.lists(st.tuples(st.integers(1, 900), st.integers(0, 5)), max_size=60),
)
def test_tokens_are_conserved(name: str, unit: int, pool: int, asked: list[tuple[int, int]]) -> None:
    allocator: Allocator = MAKE[name](pool, unit)
    whole = allocator.free_tokens
    assert whole == pool // unit * unit
    held: list[int] = []
    for owner, (size, drop) in enumerate(asked):
        before = allocator.free_tokens
        could = size <= allocator.largest_tokens
        got = allocator.hold(owner, size, size)
        assert got == could
        assert before - allocator.free_tokens >= (size if got else 0)
        assert allocator.largest_tokens <= allocator.free_tokens
        held += [owner] if got else []
        if held and drop == 0:
            allocator.drop(held.pop(0))
    for owner in held:
        allocator.drop(owner)
    assert allocator.free_tokens == whole
    assert name == "buddy" or allocator.largest_tokens == whole


def test_best_fit_takes_the_smallest_region_that_is_large_enough() -> None:
    one = Contiguous(100, 1)
    for owner, size in enumerate((30, 10, 20, 10, 30)):
        assert one.hold(owner, size, size)
    one.drop(0)
    one.drop(2)
    assert one.hold(9, 15, 15)  # from the 20
    assert one.largest_tokens == 30
    assert one.free_tokens == 35
    assert not one.hold(10, 31, 31)
    one.drop(1)
    assert one.largest_tokens == 40
    assert one.grow(9, 15)
    assert not one.grow(9, 16)


def test_buddies_round_up_and_merge() -> None:
    one = Buddy(96, 1)  # trees of 64 and 32
    assert one.hold(0, 33, 33)  # takes 64
    assert one.largest_tokens == 32
    assert one.grow(0, 64)
    assert not one.grow(0, 65)
    assert one.hold(1, 5, 5)
    assert one.free_tokens == 24
    one.drop(0)
    one.drop(1)
    assert one.largest_tokens == 64
    assert one.free_tokens == 96


def test_pages_come_as_a_sequence_grows() -> None:
    one = Paged(64, 16)
    assert one.hold(0, 17, 64)
    assert one.free_tokens == 32
    assert one.grow(0, 32)
    assert one.free_tokens == 32
    assert one.grow(0, 64)
    assert not one.grow(0, 65)
    assert not one.hold(1, 1, 1)
    one.drop(0)
    assert one.largest_tokens == 64


@pytest.mark.parametrize("name", NAMES)
def test_a_request_larger_than_the_pool_is_refused(name: str) -> None:
    assert not MAKE[name](100, 10).hold(0, 101, 101)
