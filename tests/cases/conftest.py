"""Every test of the cases leaves the books in order: it is made by `house.case`, which checks them."""

import pytest


@pytest.fixture(autouse=True)
def checked(request: pytest.FixtureRequest) -> None:
    """A test that was not made by `case` would not have its books checked."""
    assert getattr(request.function, "checks_books", False), "make the test with `house.case`"
