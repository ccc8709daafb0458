"""Scales and marks."""

import itertools
import xml.etree.ElementTree as ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.report import svg


def plain(value: float) -> str:
    return f"{value:g}"


@given(st.floats(-1e6, 1e6), st.floats(1e-3, 1e6))
def test_linear_ticks_are_round_even_and_cover_the_range(low: float, span: float) -> None:
    axis = svg.linear(low, low + span, plain)
    values = [value for value, _ in axis.ticks]
    assert axis.high >= low + span - 1e-6 * (abs(low) + span)
    assert 2 <= len(values) <= 8
    steps = {round((b - a) / (values[1] - values[0]), 3) for a, b in itertools.pairwise(values)}
    assert steps == {1.0}


def test_a_constant_still_has_a_scale() -> None:
    assert svg.linear(0.0, 0.0, plain).high == 1.0


def test_logarithmic_ticks_thin_out_over_many_decades() -> None:
    few = svg.logarithmic(0.01, 1.0, plain)
    assert [label for _, label in few.ticks] == ["0.01", "0.02", "0.05", "0.1", "0.2", "0.5", "1"]
    many = svg.logarithmic(0.001, 100.0, plain)
    assert [label for _, label in many.ticks] == ["0.001", "0.01", "0.1", "1", "10", "100"]
    assert many.at(0.1) == pytest.approx(0.4)


@given(st.floats(-10, 10))
def test_places_stay_inside(value: float) -> None:
    frame = svg.Frame(svg.linear(0, 1, plain), svg.linear(0, 1, plain))
    x, y = frame.point(value, value)
    assert frame.left <= x <= frame.width - frame.right
    assert frame.top <= y <= frame.height - frame.bottom


@given(st.lists(st.floats(0, 300), min_size=1, max_size=15))
def test_labels_keep_their_order_and_their_distance(wanted: list[float]) -> None:
    placed = svg.spread_labels(wanted, 14, 0, 300)
    ordered = sorted(placed)
    assert all(b - a >= 14 - 1e-6 for a, b in itertools.pairwise(ordered))
    assert max(placed) <= 300 + 1e-6
    for (a, pa), (b, pb) in itertools.combinations(zip(wanted, placed, strict=True), 2):
        assert a == b or (a < b) == (pa < pb)


def test_a_label_with_room_stays_where_it_wants_to_be() -> None:
    assert svg.spread_labels([50, 200], 14, 0, 300) == [50, 200]


def test_a_drawing_is_well_formed_whatever_the_words() -> None:
    frame = svg.Frame(svg.linear(0, 1, plain, "<x>"), svg.linear(0, 1, plain))
    marks = [svg.line([(0, 0), (1.25, 2)], "p0", 'a "b" <c>'), svg.dot((1, 1), hint="&"), svg.text((0, 0), "<t>")]
    tree = ElementTree.fromstring(svg.drawing(frame, marks, 'what "it" is & was'))
    assert tree.get("aria-label") == 'what "it" is & was'
    assert tree.find("path[@class='line p0']/title").text == 'a "b" <c>'  # type: ignore[union-attr]
