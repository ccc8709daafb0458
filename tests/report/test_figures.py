"""How numbers are written."""

import pytest

from headway.report.figures import bar, count, rate, seconds, share


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "-"),
        (0.0, "0 ms"),
        (0.0000123, "12.3 µs"),
        (0.01234, "12.3 ms"),
        (0.9994, "999 ms"),
        (0.99999, "1 s"),
        (1.2345, "1.23 s"),
        (118.0, "118 s"),
        (125.0, "2:05 min"),
        (-0.002, "-2 ms"),
    ],
)
def test_seconds(value: float | None, text: str) -> None:
    assert seconds(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "-"), (0, "0"), (9999, "9,999"), (12_345, "12.3k"), (1_230_000, "1.23M"), (-12_345, "-12.3k"), (2e9, "2G")],
)
def test_count(value: float | None, text: str) -> None:
    assert count(value) == text


def test_rate_and_share() -> None:
    assert rate(1.2345) == "1.23/s"
    assert rate(12_345, " tokens/s") == "12.3k tokens/s"
    assert rate(None) == share(None) == "-"
    assert share(0.9312) == "93.1 %"


@pytest.mark.parametrize(
    ("fraction", "text"), [(0.0, "    "), (1.0, "████"), (0.5, "██  "), (0.6, "██▍ "), (7.0, "████"), (-1.0, "    ")]
)
def test_bar(fraction: float, text: str) -> None:
    assert bar(fraction, 4) == text


def test_bar_of_the_unknown() -> None:
    assert bar(None) == "-"
