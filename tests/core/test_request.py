"""What is believed of a request: its class."""

import pytest

from headway.core.demand import SHORT_OUTPUT_TOKENS
from tests.core.house import House, decision, demand, request


@pytest.mark.parametrize(
    ("output", "facts", "expected"),
    [
        (SHORT_OUTPUT_TOKENS - 1, {}, "short"),
        (SHORT_OUTPUT_TOKENS, {}, "long"),
        (4 * SHORT_OUTPUT_TOKENS - 1, {"sequences": 4}, "short"),
        (4 * SHORT_OUTPUT_TOKENS, {"sequences": 4}, "long"),
        (0.0, {"generates": False}, ""),
    ],
)
def test_short_is_what_each_output_is_expected_to_be(output: float, facts: dict[str, object], expected: str) -> None:
    assert demand(request("q", **facts), output=output).output_class == expected


def test_a_decision_tells_the_class() -> None:
    house = House()
    house.add("a")
    assert decision(house.ask("q")).forecast.output_class == "long"
    assert decision(house.ask("p", max_output_tokens=10)).forecast.output_class == "short"
