"""What an emulated model says: each token is a function of all tokens before it, whoever wrote them.

The whole past is one streaming 64-bit hash over the token ids, fed one by one or as a block, so that a prompt replayed
together with what was generated so far continues exactly where it was cut, on every replica, in every precision. A
token that is lost, doubled or moved anywhere changes everything after it: that is how a gateway's errors show.

The hash at a block's end is at the same time the key of that block in the prefix cache (`blocks`): it names all tokens
up to there. Token ids are hashed as 32-bit native integers.
"""

import codecs
import math
import sys
from array import array
from collections.abc import Sequence

import xxhash

from headway.perfmodel.vocabulary import EOS, FIRST_BYTE, IDS, IM_START, TOKENS

MEDIAN_TOKENS = 122.0
SIGMA = 0.80
"""Log-normal answer lengths. No answer ends inside a character, which moves the median to about 130 and the 99th
percentile to about 900 tokens, as in chat traces."""

LOWEST_HAZARD = 1 / 500
"""Past the tail of the distribution an answer still ends some day."""

HORIZON = 4096
_CHOICES = 1 << 13
_BYTE_ORDER = sys.byteorder


def _hazards() -> list[int]:
    """Chance (in 2^32) that the token at each distance from the start of the turn is the end: density over survival."""
    table = []
    for place in range(HORIZON):
        z = (math.log(place + 0.5) - math.log(MEDIAN_TOKENS)) / SIGMA
        density = math.exp(-z * z / 2) / (SIGMA * (place + 0.5) * math.sqrt(2 * math.pi))
        survival = 0.5 * math.erfc(z / math.sqrt(2))
        hazard = density / survival if survival > 1e-12 else 0.0
        table.append(int((max(hazard, LOWEST_HAZARD) if z > 1 else hazard) * 2**32))
    return table


def _unfinished(data: bytes) -> bytes | None:
    """The bytes of an unfinished character at the end, b"" if there is none, None if the data is broken UTF-8."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        decoder.decode(data)
    except UnicodeDecodeError:
        return None
    return decoder.getstate()[0]


def _tails() -> dict[int, tuple[int, ...]]:
    """For each token that ends inside a character: the tokens that finish it, ordinary characters if any will do."""
    openings = {index: begun for index, piece in enumerate(TOKENS) if (begun := _opening(piece))}
    followers = [piece for piece in TOKENS[FIRST_BYTE:] if 0x80 <= piece[0] < 0xC0]
    by_start: dict[bytes, tuple[int, ...]] = {}
    for begun in set(openings.values()):
        finishing = {IDS[piece]: done for piece in followers if (done := _finished(begun, piece))}
        ordinary = tuple(index for index, done in finishing.items() if done in IDS)
        by_start[begun] = ordinary or tuple(finishing)
    return {index: by_start[begun] for index, begun in openings.items() if by_start[begun]}


def _opening(piece: bytes) -> bytes:
    """The unfinished character at the end of a token; what comes before may be the tail of another one."""
    whole = piece.lstrip(bytes(range(0x80, 0xC0)))
    return _unfinished(whole) or b""


def _finished(begun: bytes, piece: bytes) -> bytes | None:
    """The character that a piece finishes, None if it does not, or breaks something."""
    end = _unfinished(begun + piece)
    if end is None or len(end) > len(piece):
        return None
    return (begun + piece).decode("utf-8", "ignore")[0].encode()


def _mixture(tails: dict[int, tuple[int, ...]]) -> tuple[int, ...]:
    """_CHOICES tokens to draw from: mostly English, some Cyrillic and Chinese, one in twelve halves of characters."""
    plain = [index for index, piece in enumerate(TOKENS) if index >= FIRST_BYTE + 256]
    spaced = [index for index in plain if TOKENS[index][:1] == b" " and TOKENS[index][1:].isalpha()]
    foreign = [index for index in plain if not TOKENS[index].isascii() and _unfinished(TOKENS[index]) == b""]
    marks = [index for index in plain if not TOKENS[index].strip().isalnum() and TOKENS[index].isascii()]
    kinds = (
        (spaced, 68),
        (foreign, 12),
        (marks, 8),
        ([index for index in plain if index in tails and _unfinished(TOKENS[index])], 8),
        (plain[-400:], 4),
    )
    drawn: list[int] = []
    for kind, percent in kinds:
        share = _CHOICES * percent // 100
        drawn += (kind * (share // len(kind) + 1))[:share]
    return tuple(drawn + spaced[: _CHOICES - len(drawn)])


HAZARD = _hazards()
TAILS = _tails()
MIXTURE = _mixture(TAILS)


class TokenStream:
    """The state after a sequence of tokens. `key` is the hash of all of them (64 bits).

    `turn` counts the tokens since the last <|im_start|> (or since the start): it gives answers a length that looks
    like chat. Both, and `last`, are functions of the tokens alone.
    """

    __slots__ = ("_hash", "key", "last", "turn")

    def __init__(self, tokens: Sequence[int] = ()) -> None:
        self._hash = xxhash.xxh3_64(array("I", tokens).tobytes())
        self.key = self._hash.intdigest()
        self.last = tokens[-1] if tokens else -1
        self.turn = _since_start(tokens)

    def push(self, token: int) -> None:
        """Take in one token, from whoever."""
        self._hash.update(token.to_bytes(4, _BYTE_ORDER))
        self.key = self._hash.intdigest()
        self.last = token
        self.turn = 0 if token == IM_START else self.turn + 1

    def next(self, may_end: bool = True) -> int:
        """The token that follows. With `may_end` False the end-of-sequence token is passed over for a word."""
        key = self.key
        tails = TAILS.get(self.last)
        if tails is not None:
            return tails[key % len(tails)]
        if may_end and (key >> 32) < HAZARD[min(self.turn, HORIZON - 1)]:
            return EOS
        return MIXTURE[key & (_CHOICES - 1)]


def _since_start(tokens: Sequence[int]) -> int:
    for back in range(1, min(len(tokens), HORIZON) + 1):
        if tokens[-back] == IM_START:
            return back - 1
    return len(tokens)


def block_keys(tokens: Sequence[int], block_size: int) -> list[int]:
    """The key after each full block: the hash of everything up to its end."""
    state = xxhash.xxh3_64()
    data = array("I", tokens).tobytes()
    width = 4 * block_size
    keys = []
    for start in range(0, len(data) - width + 1, width):
        state.update(data[start : start + width])
        keys.append(state.intdigest())
    return keys
