"""The vocabulary is fixed: its size, its bytes, and that some of it is halves of characters."""

import xxhash

from headway.perfmodel.vocabulary import EOS, FIRST_BYTE, IDS, IM_START, SIZE, SPECIALS, TOKENS


def test_it_has_its_size_and_no_token_twice() -> None:
    assert len(TOKENS) == len(set(TOKENS)) == len(IDS) == SIZE


def test_every_byte_is_a_token() -> None:
    assert [TOKENS[FIRST_BYTE + value] for value in range(256)] == [bytes([value]) for value in range(256)]


def test_specials_come_first() -> None:
    assert TOKENS[EOS].decode() == SPECIALS[EOS] == "<|im_end|>"
    assert TOKENS[IM_START].decode() == "<|im_start|>"


def test_it_never_changes() -> None:
    """Replicas of different versions must say the same: a new vocabulary is a new model."""
    assert xxhash.xxh3_64_hexdigest(b"\0".join(TOKENS)) == "04220110801c63a2"


def test_some_tokens_end_inside_a_character() -> None:
    halves = [piece for piece in TOKENS[FIRST_BYTE + 256 :] if "\ufffd" in piece.decode("utf-8", "replace")]
    assert len(halves) > 100
    assert any(piece.startswith(b" ") for piece in halves)
