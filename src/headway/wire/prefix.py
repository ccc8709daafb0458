"""Chained hashes of the blocks of a prompt's raw text: equal up to block k means equal text up to there.

Raw text, not tokens: a gateway in front of many models has no tokenizer of each, and engines' own prefix caches share
exactly what shares its text from the beginning.
"""

from collections.abc import Sequence
from typing import Final

import xxhash

MAX_BLOCKS: Final = 2048
"""1 MiB of prompt at the usual block size: beyond it, replicas are told apart by what came before."""

_hash: Final = xxhash.xxh3_64_intdigest


def chain(text: bytes, block_bytes: int, besides: Sequence[bytes]) -> tuple[int, ...]:
    """One hash per full block of `text`, each seeded with the one before, at most MAX_BLOCKS. The first is seeded with
    what must be equal besides the text: model, tools, system."""
    seed = 0
    for part in besides:
        seed = _hash(part, seed)
    hashes = []
    for k in range(min(len(text) // block_bytes, MAX_BLOCKS)):
        seed = _hash(text[k * block_bytes : (k + 1) * block_bytes], seed)
        hashes.append(seed)
    return tuple(hashes)
