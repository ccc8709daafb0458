"""Every test of the cases leaves the books in order: it is made by `house.case`, which checks them."""

import pytest

from tests.gateway.conftest import GUARDED, Guarded
from tests.interpreted import COMPILED


@pytest.fixture(autouse=True)
def checked(request: pytest.FixtureRequest) -> None:
    """A test that was not made by `case` would not have its books checked."""
    assert getattr(request.function, "checks_books", False), "make the test with `house.case`"


@pytest.fixture(autouse=True)
def moves(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every move of an exchange, an attempt or a mover is held against its table."""
    if not COMPILED:
        for kind, table in GUARDED:
            monkeypatch.setattr(kind, "_state", Guarded(kind.__dict__["_state"], table))
