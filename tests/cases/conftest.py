"""Every test of the cases leaves the books in order: made by `house.case`, or by `open_house` within it."""

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A test of this folder that was not made by `case` would not check the books."""
    for item in items:
        if isinstance(item, pytest.Function) and "tests/cases/" in item.path.as_posix():
            assert getattr(item.function, "checks_books", False), f"{item.nodeid} is not made by `case`"
