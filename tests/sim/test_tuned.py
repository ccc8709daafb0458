"""Tuned constants are settings of the policies they are named after."""

import pytest

from headway.compose.registry import find
from headway.sim.tuned import TUNED


@pytest.mark.parametrize("name", sorted(TUNED))
def test_a_tuned_setting_makes_its_policy(name: str) -> None:
    plugin = find().policies[name]
    assert isinstance(TUNED[name], plugin.config)
    assert plugin.factory(TUNED[name]).name == name
