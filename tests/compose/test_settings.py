from collections.abc import Iterator

import pytest
from pydantic import BaseModel

from headway.compose import settings as s
from headway.gateway.config import Cors, GatewayConfig, Limits, Timeouts


@pytest.mark.parametrize(("section", "struct"), [(s.Limits, Limits), (s.Timeouts, Timeouts), (s.Cors, Cors)])
def test_sections_name_every_field_of_the_data_plane_with_its_default(section: type[BaseModel], struct: type) -> None:
    mine = section().model_dump()
    theirs = struct()
    assert set(mine) == set(theirs.__struct_fields__)
    for name, value in mine.items():
        default = getattr(theirs, name)
        assert value == (list(default) if isinstance(default, tuple) else default)


def test_ports_are_those_of_the_documentation() -> None:
    assert s.Settings().listen.port == GatewayConfig().port == 8800
    assert s.Settings().admin.port == 8801


def sections(model: type[BaseModel]) -> list[type[BaseModel]]:
    return [
        value
        for value in vars(s).values()
        if isinstance(value, type) and issubclass(value, s.Section) and value is not s.Section
    ]


def test_every_field_is_described() -> None:
    for section in sections(s.Settings):
        for name, field in section.model_fields.items():
            if section is s.Settings and not field.description:
                assert issubclass(type(field.default), s.Section), name
            else:
                assert field.description, f"{section.__name__}.{name}"


def _bounds(node: object, path: str = "") -> Iterator[tuple[str, dict[str, object]]]:
    """Every integer of the schema, with what is said of it."""
    if isinstance(node, dict):
        if node.get("type") == "integer":
            yield path, node
        for name, inner in node.items():
            yield from _bounds(inner, f"{path}.{name}")
    elif isinstance(node, list):
        for index, inner in enumerate(node):
            yield from _bounds(inner, f"{path}[{index}]")


def test_every_whole_number_has_bounds() -> None:
    """One of 30 digits has no place in a journal, nor in a socket's backlog."""
    integers = dict(_bounds(s.Settings.model_json_schema()))
    assert len(integers) > 15
    for path, said in integers.items():
        assert {"minimum", "exclusiveMinimum"} & said.keys(), path
        assert "maximum" in said, path
