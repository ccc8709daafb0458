"""Sums over engines, one model's series, and values that cannot be true."""

import math

import pytest

from headway.engines.gauges import MALFORMED, Gauges, usable, whole
from headway.wire import promtext

NONSENSE = [math.nan, math.inf, -math.inf, -1.0, 1e308]


def test_the_engines_of_one_process_are_summed() -> None:
    gauges = Gauges({"g": [({"engine": "0"}, 2.0), ({"engine": "1"}, 3.0)]})
    assert (gauges.total("g"), gauges.missing) == (5, [])


@pytest.mark.parametrize("value", NONSENSE)
def test_one_unusable_value_makes_the_gauge_missing(value: float) -> None:
    gauges = Gauges({"g": [({"engine": "0"}, 2.0), ({"engine": "1"}, value)]})
    assert (gauges.total("g"), gauges.missing) == (None, ["g"])


def test_an_absent_gauge_is_named_and_is_not_zero() -> None:
    gauges = Gauges({})
    assert (gauges.total("new", "old"), gauges.missing) == (None, ["new"])


def test_an_absent_gauge_that_nobody_promised_is_not_named() -> None:
    gauges = Gauges({})
    assert (gauges.total("g", required=False), gauges.missing) == (None, [])


def test_zero_is_zero() -> None:
    gauges = Gauges({"g": [({}, 0.0)]})
    assert (gauges.total("g"), gauges.missing) == (0, [])


def test_the_newer_spelling_wins() -> None:
    assert Gauges({"new": [({}, 1.0)], "old": [({}, 2.0)]}).total("new", "old") == 1
    assert Gauges({"old": [({}, 2.0)]}).total("new", "old") == 2


def test_series_of_another_model_are_left_out() -> None:
    families = {"g": [({"model_name": "a"}, 1.0), ({"model_name": "b"}, 100.0)]}
    assert Gauges(families, "a").total("g") == 1
    assert Gauges(families, "b").total("g") == 100


def test_a_model_that_is_not_among_several_is_missing() -> None:
    gauges = Gauges({"g": [({"model_name": "a"}, 1.0), ({"model_name": "b"}, 100.0)]}, "c")
    assert (gauges.total("g"), gauges.missing) == (None, ["g"])


def test_the_only_model_is_meant_whatever_it_is_called() -> None:
    assert Gauges({"g": [({"model_name": "/models/llama"}, 3.0)]}, "llama").total("g") == 3


def test_the_same_series_twice_counts_once_the_last_value_wins() -> None:
    assert Gauges({"g": [({"engine": "0"}, 2.0), ({"engine": "0"}, 3.0)]}).total("g") == 3


def test_series_that_differ_in_rank_only_are_copies() -> None:
    families = {"g": [({"dp": "0", "tp": "0"}, 4.0), ({"dp": "0", "tp": "1"}, 4.0), ({"dp": "1", "tp": "2"}, 5.0)]}
    assert Gauges(families, same=frozenset({"tp"})).total("g") == 9


def test_values_by_label_are_summed_over_the_others() -> None:
    families = {"g": [({"engine": "0", "x": "1"}, 1.0), ({"engine": "0", "x": "2"}, 2.0), ({"engine": "1"}, 4.0)]}
    assert Gauges(families).by("engine", "g") == {"0": 3.0, "1": 4.0}


@pytest.mark.parametrize(("value", "expected"), [(1.0, {"": 1.0}), (1.5, {})])
def test_a_fraction_lies_between_nothing_and_all(value: float, expected: dict[str, float]) -> None:
    gauges = Gauges({"g": [({}, value)]})
    assert gauges.fractions("engine", "g") == expected
    assert gauges.missing == ([] if expected else ["g"])


def test_lines_that_could_not_be_read_are_an_alarm_of_their_own() -> None:
    page = b'g{engine="0"} 2\ng{engine="1"} ?\n'
    assert Gauges(promtext.read(page, frozenset({"g"}))).missing == [MALFORMED]


@pytest.mark.parametrize("value", NONSENSE)
def test_nonsense_is_not_usable(value: float) -> None:
    assert not usable(value)
    assert whole(value) is None


@pytest.mark.parametrize(
    ("value", "expected"),
    [(3, 3), (3.7, 3), ("48", 48), ("None", None), ("", None), (None, None), (True, None), ([], None), (0, 0)],
)
def test_counts_are_read_from_numbers_and_their_texts(value: object, expected: int | None) -> None:
    assert whole(value) == expected
