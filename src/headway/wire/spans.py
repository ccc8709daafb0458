"""Where the values of a JSON object's top-level keys lie, exactly: also with duplicate or escaped keys.

What lives here: offsets. What must not: meaning. The input is JSON that a strict decoder has accepted before.

The end of an object or array is found by the C decoder: given everything from its first byte on, it says where
something follows that does not belong to it. Counting brackets here would take a second for some bodies of a few MB.
"""

import re

import msgspec

from headway.wire.splice import Octets

MAX_KEYS = 4_096
"""More top-level keys than this are not walked: no API has a hundredth of them."""

_VALUE = msgspec.json.Decoder(msgspec.Raw)
_STRING = msgspec.json.Decoder(str)
_BEHIND = re.compile(r"trailing characters \(byte ([0-9]+)\)")
_KEY = re.compile(rb'[{,][ \t\n\r]*("[^"\\]*+(?:\\.[^"\\]*+)*")[ \t\n\r]*:[ \t\n\r]*', re.DOTALL)
_SCALAR = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*"|[^\s,}\]"]+', re.DOTALL)
_BLANK = re.compile(rb"[ \t\n\r]*")


class TooManyKeys(ValueError):
    """The object has more than MAX_KEYS keys."""


def top_level(body: Octets) -> list[tuple[str, int, int]]:
    """`(key, start, end)` of each top-level value, in order. Raises TooManyKeys."""
    spans: list[tuple[str, int, int]] = []
    at = body.find(b"{")
    while (match := _KEY.match(body, at)) is not None:
        if len(spans) == MAX_KEYS:
            raise TooManyKeys(f"more than {MAX_KEYS} keys")
        start = match.end()
        end = _nested_end(body, start) if body[start] in b"{[" else _scalar_end(body, start)
        spans.append((_STRING.decode(match[1]), start, end))
        at = _skip_blanks(body, end)
    return spans


def _scalar_end(body: Octets, start: int) -> int:
    scalar = _SCALAR.match(body, start)
    return scalar.end() if scalar else start


def _nested_end(body: Octets, start: int) -> int:
    """The end of an object or array; there is always something behind it, at least the bracket of the whole."""
    try:
        _VALUE.decode(memoryview(body)[start:])
    except msgspec.DecodeError as error:
        behind = _BEHIND.search(str(error))
        if behind is not None:
            read = start + int(behind[1]) - 1  # it counts the byte at which it stopped
            return start + len(body[start:read].rstrip(b" \t\n\r"))
        raise
    return len(body)


def _skip_blanks(body: Octets, at: int) -> int:
    blank = _BLANK.match(body, at)
    return blank.end() if blank else at
