"""Restarts and frozen pages."""

import pytest

from headway.core.ids import ReplicaId
from headway.core.replica import LoadSample
from headway.engines.base import Reading
from headway.observe.boots import COUNTERS, Boots, Stillness


def reading(started: float | None = None, **counters: int) -> Reading:
    return Reading(LoadSample(ReplicaId("r"), 0.0, **counters), started_at=started)  # type: ignore[arg-type]


def test_the_first_report_is_the_first_boot_and_no_restart() -> None:
    boots = Boots()
    assert (boots.take(reading(1e9)), boots.count, boots.epoch) == (False, 1, 1)


def test_reports_are_numbered_over_restarts() -> None:
    boots = Boots(epoch=5)
    assert [boots.take(reading(start)) for start in (1e9, 1e9, 2e9, 2e9)] == [False, False, True, False]
    assert (boots.count, boots.epoch) == (2, 9)


@pytest.mark.parametrize("counter", COUNTERS)
def test_a_counter_that_goes_back_is_a_restart(counter: str) -> None:
    boots = Boots()
    assert [boots.take(reading(**{counter: value})) for value in (7, 7, 9, 3)] == [False, False, False, True]


def test_the_boot_time_is_believed_over_counters() -> None:
    boots = Boots()
    assert [boots.take(reading(1e9, generated_tokens_total=g)) for g in (7, 3)] == [False, False]


def test_rounding_of_the_boot_time_is_no_restart() -> None:
    boots = Boots()
    assert [boots.take(reading(start)) for start in (1e9, 1e9 + 0.5)] == [False, False]


def test_a_counter_that_is_missing_is_no_restart() -> None:
    boots = Boots()
    assert [boots.take(r) for r in (reading(generated_tokens_total=5), reading(), reading())] == [False, False, False]


def test_stillness_is_measured_from_the_first_of_equal_pages() -> None:
    still = Stillness()
    pages = [(b"a", 1.0), (b"a", 4.0), (b"b", 5.0), (b"b", 7.5)]
    assert [still.unchanged_s(page, at) for page, at in pages] == [0.0, 3.0, 0.0, 2.5]
