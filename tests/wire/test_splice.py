"""Edits by offset."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.wire.splice import splice


def test_edits_are_applied_at_their_offsets_in_any_order() -> None:
    assert splice(b"abcdef", [(4, 5, b"X"), (0, 1, b""), (2, 2, b"--")]) == b"b--cdXf"
    assert splice(b"abc", []) == b"abc"


@pytest.mark.parametrize("edits", [[(0, 3, b""), (2, 4, b"")], [(5, 9, b"")], [(3, 2, b"")], [(-1, 2, b"")]])
def test_impossible_edits_are_refused(edits: list[tuple[int, int, bytes]]) -> None:
    with pytest.raises(ValueError, match="edit"):
        splice(b"abcdef", edits)


@settings(deadline=None)
@given(st.binary(max_size=40), st.data())
def test_everything_outside_the_spans_stays(body: bytes, data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(body)), min_size=2, max_size=2)))
    new = data.draw(st.binary(max_size=9))
    assert splice(body, [(cuts[0], cuts[1], new)]) == body[: cuts[0]] + new + body[cuts[1] :]
