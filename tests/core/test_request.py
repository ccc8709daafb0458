"""What is known of a request and of its end, and what is believed of it: its class."""

import pytest

from headway.core.demand import SHORT_OUTPUT_TOKENS
from headway.core.outcome import Outcome, OutcomeKind
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


def test_requests_and_outcomes_are_their_facts() -> None:
    one, same, other = request("q", tier=1), request("q", tier=1), request("q", tier=2)
    assert {one, same, other} == {one, other}
    assert repr(one) == repr(same) != repr(other)
    ok, cut = Outcome(OutcomeKind.OK, 200), Outcome(OutcomeKind.RESET)
    assert {ok, Outcome(OutcomeKind.OK, 200), cut} == {ok, cut}
    assert repr(ok) != repr(cut)
