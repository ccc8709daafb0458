"""The table of reasons, against the fields that are read."""

from headway.wire.fields import PINS, Chat, Completion
from headway.wire.resume_pins import PINNED, ZERO_MEANS_OFF


def test_every_reason_is_looked_for_somewhere() -> None:
    assert {name for names in PINS.values() for name in names} == set(PINNED)
    assert set(PINNED) > ZERO_MEANS_OFF


def test_each_api_has_its_own() -> None:
    assert "tools" in PINS[Chat]
    assert "tools" not in PINS[Completion]
    assert {"echo", "suffix"} <= set(PINS[Completion])


def test_reasons_are_single_words() -> None:
    assert all(reason.replace("_", "").isalpha() for reason in PINNED.values())
