"""What may be shown of an answer, and when."""

from typing import Any

import msgspec
import pytest

from headway.emulator.asks import Ask
from headway.emulator.transcript import Transcript
from headway.perfmodel.text import Tokenizer
from headway.perfmodel.vocabulary import EOS, IDS

PLAIN = Ask(
    chat=True,
    prompts=[[5]],
    n=1,
    max_tokens=9,
    min_tokens=0,
    ignore_eos=False,
    stop=(),
    stop_token_ids=frozenset(),
    include_stop=False,
    skip_special=True,
    stream=True,
    include_usage=False,
    continuous_usage=False,
    return_token_ids=False,
    echo=False,
    salt="",
)
ENCODE = Tokenizer().encode


def told(text: str, **options: Any) -> tuple[list[str], Transcript]:
    said = Transcript(msgspec.structs.replace(PLAIN, **options), [])
    pieces = []
    for token in ENCODE(text):
        if not said.finish:
            said.push(token, "", None)
            pieces.append(said.delta())
    return pieces, said


def test_text_comes_token_by_token() -> None:
    assert told(" the time of day")[0] == [" the", " time", " of", " day"]


def test_a_stop_string_is_never_shown_in_part() -> None:
    pieces, said = told(" the time of day", stop=("me o",))
    assert "".join(pieces) == " the ti"
    assert (said.finish, said.stop_reason, said.text) == ("stop", "me o", " the ti")
    assert len(said.ids) == 3


def test_unless_it_is_wanted() -> None:
    pieces, said = told(" the time of day", stop=("me o",), include_stop=True)
    assert "".join(pieces) == said.text == " the time o"


def test_held_back_text_comes_out_when_no_stop_came() -> None:
    said = Transcript(msgspec.structs.replace(PLAIN, stop=("zzzzzz",)), [])
    said.push(IDS[b" the"], "", None)
    assert said.delta() == ""
    said.push(IDS[b" time"], "length", None)
    assert said.delta() == " the time"


def test_the_earliest_stop_wins() -> None:
    assert told(" the time of day", stop=("of", "ti"))[1].stop_reason == "ti"


def test_no_stop_before_the_minimum() -> None:
    assert told(" the time of the day", stop=("the",), min_tokens=2)[1].text == " the time of "


def test_special_tokens_are_silent_unless_wanted() -> None:
    for skip, text in ((True, ""), (False, "<|im_end|>")):
        said = Transcript(msgspec.structs.replace(PLAIN, skip_special=skip), [])
        said.push(EOS, "stop", None)
        assert said.delta() == text


def test_half_a_character_at_the_end_becomes_the_replacement_character() -> None:
    said = Transcript(PLAIN, [])
    said.push(IDS[b" \xf0\x9f"], "length", None)
    assert said.delta() == " \ufffd"


def test_an_abort_ends_it_without_a_token() -> None:
    said = Transcript(PLAIN, [])
    said.push(IDS[b" the"], "", None)
    said.end("abort")
    assert (said.delta(), said.finish) == (" the", "abort")


def test_an_echo_begins_with_the_prompt() -> None:
    said = Transcript(msgspec.structs.replace(PLAIN, echo=True), ENCODE("hello"))
    said.push(IDS[b" the"], "", None)
    assert said.delta() == "hello the"


def test_ids_are_told_once() -> None:
    said = Transcript(PLAIN, [])
    for token in (5, 6):
        said.push(token, "", None)
    assert (said.new_ids(), said.new_ids()) == ([5, 6], [])


@pytest.mark.parametrize("stop", ["day", "y", " the time of day"])
def test_a_stop_at_the_very_end(stop: str) -> None:
    pieces, said = told(" the time of day", stop=(stop,))
    assert "".join(pieces) + stop == " the time of day"
    assert said.finish == "stop"
