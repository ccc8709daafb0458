"""The clock never goes back."""

from headway.runtime import clock


def test_time_does_not_go_back() -> None:
    readings = [clock.now() for _ in range(1000)]
    assert readings == sorted(readings)
