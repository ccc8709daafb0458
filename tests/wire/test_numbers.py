"""Numbers as clients write them."""

import pytest

from headway.wire.numbers import whole


@pytest.mark.parametrize(
    ("text", "number"),
    [
        (b"12", 12), (b'"12"', 12), (b"12.0", 12), (b"1.2e1", 12), (b"1E+2", 100), (b"12.5", 12),
        (b"0", 0), (b"0.5", 0), (b"-1", 0), (b"null", 0), (b"true", 0), (b'""', 0), (b"[1]", 0),
        (b"1e400", 0), (b'"nan"', 0), (b"999999999999999", 999_999_999_999_999), (b"1000000000000000", 0),
    ],
)  # fmt: skip
def test_what_a_value_stands_for(text: bytes, number: int) -> None:
    assert whole(text) == number
