"""Changing a few bytes of a body by offset and leaving every other byte as the client wrote it.

An edit is `(start, end, replacement)`; `start == end` inserts. Never re-serialises: numbers beyond 2**53, escapes, key
order and spacing stay what they were.
"""

from collections.abc import Sequence

Edit = tuple[int, int, bytes]
Octets = bytes | bytearray
"""A body: large ones are collected in place, and never changed once they are whole."""

Piece = bytes | bytearray | memoryview


def splice(body: Octets, edits: Sequence[Edit]) -> bytes:
    """`body` with `edits` applied, see `pieces`."""
    return b"".join(pieces(body, edits))


def pieces(body: Octets, edits: Sequence[Edit]) -> list[Piece]:
    """What `body` with `edits` applied consists of, without a copy of it. Offsets refer to the original; edits must not
    overlap, in any order.

    Raises ValueError for edits that overlap or lie outside.
    """
    view = memoryview(body)
    parts: list[Piece] = []
    at = 0
    for start, end, replacement in sorted(edits):
        if not at <= start <= end <= len(body):
            raise ValueError(f"edit {start}..{end} overlaps another or lies outside of {len(body)} bytes")
        parts.append(view[at:start])
        parts.append(replacement)
        at = end
    parts.append(view[at:])
    return parts
