"""Whole numbers as clients write them where engines expect one.

One rule for all who read a limit, or what is routed, what is capped and what is left of it after a cut would be about
different numbers. A value that no engine takes is none of our business: it counts as not stated.
"""

from typing import Final

MOST: Final = 10**15
"""Larger ones are no counts of tokens."""


def whole(text: bytes) -> int:
    """The number that a JSON value stands for, 0 if it is none or below 1: also "12", 12.0 and 1.2e1, which lax
    validators take; llama.cpp takes 12.5, too, and drops the fraction."""
    try:
        value = float(text.strip(b'"'))
    except ValueError:
        return 0
    return int(value) if 1.0 <= value < MOST else 0
