"""Tokens as byte-level BPE vocabularies spell them in files: every byte a printable character, a blank as "Ġ"."""

from collections.abc import Sequence

from headway.perfmodel.vocabulary import FIRST_BYTE, TOKENS


def _alphabet() -> dict[int, str]:
    """Printable Latin-1 stands for itself; the other bytes are moved up beyond U+0100, in order."""
    kept = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    moved = [value for value in range(256) if value not in kept]
    return {value: chr(value) for value in kept} | {value: chr(0x100 + place) for place, value in enumerate(moved)}


ALPHABET = _alphabet()


def spelled(ids: Sequence[int]) -> list[str]:
    """Each token's spelling; special tokens by their names."""
    return [
        TOKENS[one].decode() if one < FIRST_BYTE else "".join(ALPHABET[value] for value in TOKENS[one]) for one in ids
    ]
