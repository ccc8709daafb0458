"""Llumnix's measure of a replica."""

import pytest

from headway.core.freeness import freeness
from tests.policies.fleet import busy, view


def test_free_memory_is_shared_by_those_who_run() -> None:
    assert freeness(busy("a", 20, 1000)) == pytest.approx(80_000 / 20)
    assert freeness(view("a")) == pytest.approx(100_000), "of an idle one all of it"


def test_what_waits_counts_as_if_it_held_memory_but_only_once() -> None:
    waits = busy("a", 10, 1000, prefill_backlog_tokens=30_000.0)
    assert freeness(waits) == pytest.approx(60_000 / 10)
    just_sent = busy("a", 10, 1000, prefill_backlog_tokens=30_000.0, dispatched_tokens=30_000.0)
    assert freeness(just_sent) == pytest.approx(90_000 / 10), "it is among what is used already"


def test_one_more_takes_its_tokens_and_its_share() -> None:
    assert freeness(busy("a", 9, 1000), 11_000.0) == pytest.approx(80_000 / 10)


def test_less_than_nothing_where_more_is_promised_than_there_is() -> None:
    assert freeness(busy("a", 60, 2000)) < 0.0
