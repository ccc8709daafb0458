"""What outsiders are shown of the fleet."""

import msgspec
import pytest

from headway.core.snapshot import shown
from tests.core.house import FewestInFlight, House


def test_a_view_is_shown_with_all_there_is_of_it() -> None:
    house = House(FewestInFlight())
    house.add("a")
    view = house.view("a")
    told = msgspec.json.decode(msgspec.json.encode(view, enc_hook=shown))
    assert told["spec"]["id"] == "a"
    assert told["speed"]["step_base_s"] == view.speed.step_base_s
    assert told["breaker"] == "closed"
    assert len(told) == 26


def test_of_anything_else_nothing_is_known() -> None:
    with pytest.raises(NotImplementedError, match="show a House"):
        shown(House(FewestInFlight()))
