"""Text splits into ids and comes back; the incremental way says the same, later."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.perfmodel.text import Detokenizer, Tokenizer, decode
from headway.perfmodel.vocabulary import EOS, FIRST_BYTE, IDS, IM_START, SIZE

TOKENIZER = Tokenizer()
ids = st.lists(st.integers(0, SIZE - 1), max_size=60)


def spoken(tokens: list[int], prompt: list[int] | None = None) -> list[str]:
    pieces = Detokenizer(prompt or [])
    return [pieces.push(token) for token in tokens] + [pieces.finish()]


@pytest.mark.slow
@given(st.text(max_size=200).filter(lambda text: text == text.encode("utf-8", "replace").decode()))
def test_any_text_comes_back(text: str) -> None:
    assert decode(TOKENIZER.encode(text)) == text


@given(ids)
def test_piece_by_piece_is_the_same_text(tokens: list[int]) -> None:
    assert "".join(spoken(tokens)) == decode(tokens, skip_special=True)


@given(ids)
def test_only_the_last_piece_may_end_in_a_broken_character(tokens: list[int]) -> None:
    assert not any(piece.endswith("\ufffd") for piece in spoken(tokens)[:-1])


def test_half_a_character_is_held_back_with_the_text_before_it() -> None:
    head, tail = IDS[b" \xf0\x9f"], IDS["🚀".encode()[2:]]
    assert spoken([IDS[b" the"], head, tail]) == [" the", "", " 🚀", ""]


def test_a_stream_cut_inside_a_character_ends_in_the_replacement_character() -> None:
    assert spoken([IDS[b" the"], IDS[b" \xe4"]]) == [" the", "", " \ufffd"]


def test_a_prompt_that_ends_inside_a_character_leaks_into_the_answer() -> None:
    """Recorded from vLLM 0.32 (prompt-leak-after-split-utf8); a gateway must not cut there."""
    prompt = [IM_START, *TOKENIZER.encode("user hi"), IDS[b" \xf0\x9f"]]
    assert spoken([IDS["🚀".encode()[2:]], IDS[b" the"]], prompt) == ["user hi 🚀", " the", ""]


def test_names_of_special_tokens_become_those_tokens() -> None:
    assert TOKENIZER.encode("<|im_start|>user") == [IM_START, *TOKENIZER.encode("user")]
    assert decode([IM_START, EOS], skip_special=True) == ""
    assert decode([IM_START, EOS]) == "<|im_start|><|im_end|>"


def test_english_costs_about_a_token_per_word() -> None:
    text = "The engine waits for memory and the balancer sends the next request to another machine. "
    assert 3.5 < len(text) / len(TOKENIZER.encode(text)) < 6


def test_the_memory_for_words_is_bounded() -> None:
    small = Tokenizer(memory=10)
    for number in range(100):
        assert decode(small.encode(f"word{number} x{number}")) == f"word{number} x{number}"
    assert len(small._seen) <= 10


def test_bytes_have_ids_of_their_own() -> None:
    assert decode([FIRST_BYTE + 0xF0, FIRST_BYTE + 0x9F]) == "\ufffd"
