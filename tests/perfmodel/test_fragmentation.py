"""The study: paged loses least, coarse units lose, nothing is admitted that an ideal allocator could not."""

import numpy as np
import pytest

from headway.perfmodel.fragmentation import lossless, study

LENGTHS = [
    (int(prompt), int(output))
    for prompt, output in zip(
        np.random.default_rng(1).lognormal(6.5, 0.8, 400).clip(10, 4000),
        np.random.default_rng(2).lognormal(4.8, 0.8, 400).clip(5, 900),
        strict=True,
    )
]
POOL, STEPS = 40_000, 3000


def test_pages_win_and_coarse_units_lose() -> None:
    outcomes = {(one.allocator, one.granularity): one for one in study(LENGTHS, POOL, STEPS)}
    assert len(outcomes) == 9
    fine = {name: outcomes[name, 32] for name in ("contiguous", "buddy", "paged")}
    assert fine["paged"].admitted > 1.15 * fine["contiguous"].admitted > 1.15 * fine["buddy"].admitted
    assert fine["paged"].external == 0 == fine["paged"].refused
    assert fine["contiguous"].external > 0.3
    assert fine["contiguous"].refused > 0.5
    for name in fine:
        assert outcomes[name, 2048].admitted < fine[name].admitted
        assert outcomes[name, 2048].internal > fine[name].internal


def test_nobody_beats_an_allocator_without_loss() -> None:
    bound = lossless(LENGTHS, POOL, STEPS)
    for one in study(LENGTHS, POOL, STEPS, [32, 512]):
        assert one.admitted <= bound * 1.02, one.allocator  # those that run at the end have not paid for all
        assert 0 < one.used <= 1
        assert 0 <= one.internal < 1
        assert one.largest_low <= one.largest_tokens <= POOL


def test_the_same_list_gives_the_same_outcome() -> None:
    assert study(LENGTHS, POOL, 500) == study(LENGTHS, POOL, 500)


def test_equal_requests_that_fill_pages_lose_nothing() -> None:
    (one,) = [o for o in study([(65, 64)], 1290, 641, [1]) if o.allocator == "contiguous"]
    assert one.admitted == 10 * 10
    assert one.running == pytest.approx(10, rel=0.01)


def test_a_page_that_is_missing_sends_the_youngest_back() -> None:
    paged = [one for one in study([(100, 200)] * 10, 1000, 2000, [50]) if one.allocator == "paged"]
    assert paged[0].preempted > 0
    assert paged[0].admitted > 0


def test_a_list_without_a_request_that_fits_is_refused() -> None:
    with pytest.raises(ValueError, match="no request of the list fits"):
        study([(5000, 10)], 8000, 100)
    assert lossless([(5000, 10)], 8000, 100) == 0
