"""Each token is a function of all tokens before it, whoever wrote them, in every process."""

import statistics
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.perfmodel.text import Tokenizer, decode
from headway.perfmodel.tokens import TAILS, TokenStream, block_keys
from headway.perfmodel.vocabulary import EOS, IM_START, SIZE

prompts = st.lists(st.integers(0, SIZE - 1), min_size=1, max_size=40)


def say(prompt: list[int], count: int) -> list[int]:
    stream = TokenStream(prompt)
    said = []
    for _ in range(count):
        said.append(stream.next())
        stream.push(said[-1])
    return said


def answer(prompt: list[int]) -> list[int]:
    said: list[int] = []
    stream = TokenStream(prompt)
    while not said or said[-1] != EOS:
        said.append(stream.next())
        stream.push(said[-1])
    return said


def chat(text: str) -> list[int]:
    tokenizer = Tokenizer()
    turn = [IM_START, *tokenizer.encode("user\n" + text), EOS, *tokenizer.encode("\n")]
    return [*turn, IM_START, *tokenizer.encode("assistant\n")]


@given(prompts, st.integers(0, 30))
def test_replaying_what_was_said_continues_it(prompt: list[int], cut: int) -> None:
    whole = say(prompt, 30)
    assert whole[:cut] + say(prompt + whole[:cut], 30 - cut) == whole


@given(prompts, st.data())
def test_one_changed_token_changes_what_follows(prompt: list[int], data: st.DataObject) -> None:
    place = data.draw(st.integers(0, len(prompt) - 1))
    other = data.draw(st.integers(0, SIZE - 1).filter(lambda token: token != prompt[place]))
    changed = [*prompt[:place], other, *prompt[place + 1 :]]
    assert TokenStream(changed).key != TokenStream(prompt).key
    assert say(changed, 30) != say(prompt, 30)


@given(prompts)
def test_a_stream_is_the_same_fed_at_once_or_one_by_one(prompt: list[int]) -> None:
    stream = TokenStream()
    for token in prompt:
        stream.push(token)
    fed = TokenStream(prompt)
    assert (stream.key, stream.turn, stream.last) == (fed.key, fed.turn, fed.last)


@given(prompts)
def test_a_block_key_is_the_state_at_its_end(prompt: list[int]) -> None:
    assert block_keys(prompt, 4) == [TokenStream(prompt[:end]).key for end in range(4, len(prompt) + 1, 4)]


@pytest.mark.slow
def test_other_processes_say_the_same() -> None:
    program = "from tests.perfmodel.test_tokens import *; print(say(chat('hello'), 20))"
    for seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, check=True, text=True, env={"PYTHONHASHSEED": seed}
        )
        assert done.stdout.strip() == str(say(chat("hello"), 20))


def test_the_language_never_changes() -> None:
    """The first words of one answer, literally: replicas of different versions must agree."""
    assert say(chat("hello world"), 8) == [1334, 2312, 2323, 416, 2294, 509, 1753, 1715]


def test_answers_are_well_formed_text_with_halves_of_characters_in_them() -> None:
    halves = total = 0
    for number in range(60):
        said = answer(chat(f"question {number}"))
        assert "\ufffd" not in decode(said, skip_special=True)
        halves += sum(token in TAILS for token in said)
        total += len(said)
    assert 0.03 < halves / total < 0.2


def test_answers_are_as_long_as_in_chat() -> None:
    lengths = sorted(len(answer(chat(f"question {number}"))) for number in range(1000))
    assert 115 < statistics.median(lengths) < 145
    assert 650 < lengths[989] < 1250
    assert lengths[10] > 8


def test_the_end_can_be_held_off() -> None:
    stream = TokenStream(chat("hello"))
    for _ in range(2000):
        token = stream.next(may_end=False)
        assert token != EOS
        stream.push(token)
