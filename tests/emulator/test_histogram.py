"""Buckets are cumulative, and many equal observations are one call."""

from headway.emulator.histogram import Histogram, one_two_five


def test_buckets_are_cumulative_and_bounds_inclusive() -> None:
    seen = Histogram((1.0, 2.0))
    for value, times in ((0.5, 1), (1.0, 2), (1.5, 3), (9.0, 4)):
        seen.observe(value, times)
    assert list(seen.buckets()) == [("1.0", 3), ("2.0", 6), ("+Inf", 10)]
    assert (seen.count, seen.total) == (10, 0.5 + 2.0 + 4.5 + 36.0)


def test_steps_of_one_two_five_up_to_the_context() -> None:
    assert one_two_five(2048) == (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000)
