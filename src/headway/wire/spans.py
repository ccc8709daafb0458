"""Where the values of a JSON object's top-level keys lie, exactly: also with duplicate or escaped keys.

What lives here: offsets. What must not: meaning. The input is JSON that a strict decoder has accepted before.

Values are measured by their own brackets. The fields that can be long are not looked into: one C pass hands out their
raw text, and whoever finds the same text at the same place knows its end. (Where a key comes twice, that pass gives the
last value; another one is measured.)
"""

import re

import msgspec

MAX_KEYS = 20_000
"""More top-level keys than this are not walked: no API has a hundredth of them."""

_ABSENT = msgspec.Raw(b"")


class _Long(msgspec.Struct, gc=False):
    messages: msgspec.Raw = _ABSENT
    prompt: msgspec.Raw = _ABSENT
    input: msgspec.Raw = _ABSENT
    tools: msgspec.Raw = _ABSENT
    documents: msgspec.Raw = _ABSENT
    system: msgspec.Raw = _ABSENT
    instructions: msgspec.Raw = _ABSENT
    response_format: msgspec.Raw = _ABSENT


_LONG = msgspec.json.Decoder(_Long)
_STRING = msgspec.json.Decoder(str)
_KEY = re.compile(rb'[{,][ \t\n\r]*("(?:[^"\\]|\\.)*+")[ \t\n\r]*:[ \t\n\r]*', re.DOTALL)
_SCALAR = re.compile(rb'"(?:[^"\\]|\\.)*+"|[^\s,}\]"]+', re.DOTALL)
_PIECE = re.compile(rb'"(?:[^"\\]|\\.)*+"|[{}\[\]]', re.DOTALL)
_DEPTH = {b"{": 1, b"[": 1, b"}": -1, b"]": -1}
_BLANK = re.compile(rb"[ \t\n\r]*")


class TooManyKeys(ValueError):
    """The object has more than MAX_KEYS keys."""


def top_level(body: bytes) -> list[tuple[str, int, int]]:
    """`(key, start, end)` of each top-level value, in order. Raises TooManyKeys."""
    longs = msgspec.structs.asdict(_LONG.decode(body))
    spans: list[tuple[str, int, int]] = []
    at = body.find(b"{")
    while (match := _KEY.match(body, at)) is not None:
        if len(spans) == MAX_KEYS:
            raise TooManyKeys(f"more than {MAX_KEYS} keys")
        key = _STRING.decode(match[1])
        start = match.end()
        end = _value_end(body, start, bytes(longs.get(key, _ABSENT)))
        spans.append((key, start, end))
        at = _skip_blanks(body, end)
    return spans


def _value_end(body: bytes, start: int, guess: bytes) -> int:
    if guess and guess[0] in b'{["' and body.startswith(guess, start):
        return start + len(guess)
    if body[start] not in b"{[":
        scalar = _SCALAR.match(body, start)
        return scalar.end() if scalar else start
    depth, end = 0, start
    for piece in _PIECE.finditer(body, start):
        end = piece.end()
        depth += _DEPTH.get(piece[0], 0)
        if depth == 0:
            break
    return end


def _skip_blanks(body: bytes, at: int) -> int:
    blank = _BLANK.match(body, at)
    return blank.end() if blank else at
