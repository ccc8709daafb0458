"""Tokens are spelled as in the files of byte-level vocabularies."""

from headway.emulator.spell import ALPHABET, spelled
from headway.perfmodel.vocabulary import EOS, IDS


def test_blanks_newlines_and_halves() -> None:
    ids = [IDS[b" world"], IDS[b"\n"], IDS[b" \xf0\x9f"], EOS]
    assert spelled(ids) == ["Ġworld", "Ċ", "ĠðŁ", "<|im_end|>"]


def test_every_byte_has_a_character_of_its_own() -> None:
    assert len(set(ALPHABET.values())) == 256
