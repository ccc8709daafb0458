"""Which fields are read one by one, and which all at once."""

from typing import Any

import msgspec
import pytest
from msgspec import Raw
from msgspec.structs import astuple

from headway.wire.fields import ABSENT, COMMON, EVERYDAY, PATHS, SELDOM, AnyFields, Fields, pins

KINDS = sorted({Fields, *PATHS.values()}, key=lambda kind: kind.__name__)


def asked(fields: AnyFields) -> tuple[object, ...]:
    """All that is skipped for a body without seldom fields."""
    return (fields.heads(), fields.counts(), fields.sessions(), pins(fields), fields.priority)


@pytest.mark.parametrize("kind", KINDS)
def test_a_field_that_matters_beside_prompt_and_limit_is_seldom(kind: type[AnyFields]) -> None:
    for field in msgspec.structs.fields(kind):
        if field.name in EVERYDAY - {"model", "stream"}:
            only: dict[str, Any] = {field.name: Raw(b"1")}
            assert asked(kind(**only)) == asked(kind()), field.name


@pytest.mark.parametrize("kind", KINDS)
def test_seldom_fields_are_all_the_others(kind: type[AnyFields]) -> None:
    names = {field.name for field in msgspec.structs.fields(kind)}
    assert SELDOM[kind] == len(names - EVERYDAY)
    for name in names - {"model", "stream"}:
        values = astuple(kind(**{name: Raw(b"3")}))
        seldom_absent = values.count(ABSENT) - COMMON[kind](values).count(ABSENT)
        assert seldom_absent == SELDOM[kind] - (name not in EVERYDAY), name
