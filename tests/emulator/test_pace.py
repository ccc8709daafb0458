"""The clock: scaled, without drift, and honest about lag."""

import time
from collections.abc import Callable
from typing import Any

import pytest

from headway.emulator.pace import Pace

Run = Callable[[Any], Any]


@pytest.mark.slow
def test_many_short_steps_take_as_long_as_they_should(run: Run) -> None:
    async def body() -> None:
        pace = Pace(10.0)
        begun = time.monotonic()
        for _ in range(200):
            await pace.spend(0.01)
        spent = time.monotonic() - begun
        assert 0.19 < spent < 2
        assert pace.virtual() >= 2.0 - 1e-6  # a sum of steps on a clock of days

    run(body())


def test_a_rest_moves_the_cursor_to_now(run: Run) -> None:
    async def body() -> None:
        pace = Pace(1000.0)
        time.sleep(0.01)  # noqa: ASYNC251 - virtual time passes while nothing runs
        assert pace.virtual() == 0.0
        pace.rejoin()
        assert pace.virtual() >= 10.0
        assert pace.now() >= pace.virtual()

    run(body())


def test_falling_behind_is_written_down_not_caught_up(run: Run) -> None:
    async def body() -> None:
        pace = Pace(1.0)
        await pace.spend(0.01)
        assert pace.lag_ratio < 5
        time.sleep(0.1)  # noqa: ASYNC251 - the loop is blocked: this is the lag
        await pace.spend(0.01)
        assert pace.lost_total_s > 0.05
        assert pace.lag_ratio > 1
        assert abs(pace.virtual() - pace.now()) < 0.05

    run(body())


def test_spans_are_scaled() -> None:
    assert Pace(4.0).real(2.0) == 0.5
    assert Pace(4.0).lag_ratio == 0.0
