"""Where the values of a JSON object's top-level keys lie, exactly: also with duplicate or escaped keys.

What lives here: offsets. What must not: meaning. The input is JSON that a strict decoder has accepted before.

One C pass yields the raw value of each key (of the last, where a key comes twice); walking along with their lengths
gives offsets without looking into the values. A value that is not the one remembered for its key (a duplicate) is
measured by its own brackets.
"""

import re

import msgspec

MAX_KEYS = 20_000
"""More top-level keys than this are not walked: no API has a hundredth of them."""

_OBJECT = msgspec.json.Decoder(dict[str, msgspec.Raw])
_STRING = msgspec.json.Decoder(str)
_KEY = re.compile(rb'[{,][ \t\n\r]*("(?:[^"\\]|\\.)*+")[ \t\n\r]*:[ \t\n\r]*', re.DOTALL)
_SCALAR = re.compile(rb'"(?:[^"\\]|\\.)*+"|[^\s,}\]"]+', re.DOTALL)
_PIECE = re.compile(rb'"(?:[^"\\]|\\.)*+"|[{}\[\]]', re.DOTALL)
_BLANK = re.compile(rb"[ \t\n\r]*")


class TooManyKeys(ValueError):
    """The object has more than MAX_KEYS keys."""


def top_level(body: bytes) -> list[tuple[str, int, int]]:
    """`(key, start, end)` of each top-level value, in order. Raises TooManyKeys."""
    raws = _OBJECT.decode(body)
    if len(raws) > MAX_KEYS:
        raise TooManyKeys(f"more than {MAX_KEYS} keys")
    spans: list[tuple[str, int, int]] = []
    at = body.find(b"{")
    while (match := _KEY.match(body, at)) is not None:
        if len(spans) == MAX_KEYS:
            raise TooManyKeys(f"more than {MAX_KEYS} keys")
        key = _STRING.decode(match[1])
        start = match.end()
        end = _value_end(body, start, bytes(raws[key]))
        spans.append((key, start, end))
        at = _skip_blanks(body, end)
    return spans


def _value_end(body: bytes, start: int, guess: bytes) -> int:
    if guess[0] in b'{["' and body.startswith(guess, start):
        return start + len(guess)
    if body[start] not in b"{[":
        scalar = _SCALAR.match(body, start)
        return scalar.end() if scalar else start
    depth = 0
    for piece in _PIECE.finditer(body, start):
        token = piece[0]
        if token in (b"{", b"["):
            depth += 1
        elif token in (b"}", b"]"):
            depth -= 1
            if depth == 0:
                return piece.end()
    return len(body)


def _skip_blanks(body: bytes, at: int) -> int:
    blank = _BLANK.match(body, at)
    return blank.end() if blank else at
