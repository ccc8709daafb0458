"""What a tape keeps, and where it lets another replica take over."""

from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.perfmodel.text import Detokenizer, decode
from headway.perfmodel.vocabulary import FIRST_BYTE, SIZE
from headway.wire.resume import Tape
from headway.wire.resume_cut import CONFIRMING, Cut
from headway.wire.resume_ids import Frames
from headway.wire.resume_splice import Manner, Splicer
from tests.wire.streams import DONE, ROLE, USAGE, call, token

VLLM = ("chat-stream-tokenids", "completions-stream-ids", "prompt-leak-after-split-utf8", "char-lost-after-split-utf8")


def tape(*events: str) -> Tape:
    made = Tape()
    for event in events:
        made.read(event.encode())
    return made


def said(text: str, ids: Sequence[int]) -> Tape:
    made = Tape()
    made.say(text, ids)
    return made


def spelled(words: Sequence[str], ids: Sequence[int]) -> Tape:
    """A stream that said one word with each id."""
    made = Tape()
    for word, one in zip(words, ids, strict=True):
        made.say(word, [one])
    return made


class TestReading:
    def test_text_and_ends(self) -> None:
        made = tape(ROLE, token("a"), token("é", '"stop"'), USAGE, DONE)
        assert (made.text, made.finish_reason, made.done, made.ended) == ("aé", "stop", True, True)
        assert (made.prompt_tokens, made.reported, made.steps) == (9, 3, 1)

    def test_the_sample_is_the_last_event_that_spoke(self) -> None:
        assert tape(ROLE, token("a"), token("b"), USAGE).sample == token("b").encode()
        assert tape(ROLE).sample == ROLE.encode()

    @pytest.mark.parametrize(
        ("event", "reason"),
        [
            (call("{"), "tools"),
            ('{"choices":[{"delta":{"reasoning_content":"hm"}}]}', "reasoning"),
            ('{"choices":[{"delta":{"reasoning":"hm"}}]}', "reasoning"),
            ('{"choices":[{"delta":{"reasoning_content":null,"content":"a","tool_calls":[]}}]}', ""),
            ('{"choices":[{"text":"a"},{"text":"b"}]}', "choices"),
            ("no json", "unreadable"),
            ('{"choices":[{"delta":{"content":5}}]}', "unreadable"),
        ],
    )
    def test_what_cannot_be_continued_pins(self, event: str, reason: str) -> None:
        assert tape(ROLE, event).pinned == reason

    @pytest.mark.parametrize("event", ['{"error":{"message":"x"}}', '{"error":"x","choices":[]}', '{"object":"error"}'])
    def test_errors(self, event: str) -> None:
        assert tape(ROLE, event).error

    def test_counts_are_the_largest_that_is_known(self) -> None:
        assert tape(ROLE, token("a"), token("b")).generated == 2
        assert tape(USAGE).generated == 3
        assert said("x", [5, 6, 7, 8]).generated == 4


class TestCut:
    """`decode` of the emulated vocabulary; by hand where an engine's running text matters."""

    def test_nothing_said(self) -> None:
        assert said("", []).replay_prefix(decode) == Cut(0, "")

    @settings(deadline=None)
    @given(st.lists(st.integers(FIRST_BYTE, SIZE - 1), max_size=12), st.integers(0, 12))
    def test_it_is_whole_text_and_agrees_with_what_was_sent(self, ids: list[int], unsent: int) -> None:
        whole = decode(ids)
        sent = whole[: max(0, len(whole) - unsent)].rstrip("\ufffd")
        cut = said(sent, ids).replay_prefix(decode, lags=True)
        assert not cut.text.endswith("\ufffd")
        assert sent == cut.text + cut.surplus
        assert not cut.pending
        assert decode(ids[: cut.count]) == cut.text
        longer = range(cut.count + 1, len(ids) + 1)
        assert all(decode(ids[:n]).endswith("\ufffd") or not sent.startswith(decode(ids[:n])) for n in longer)

    @settings(deadline=None)
    @given(st.lists(st.integers(FIRST_BYTE, SIZE - 1), min_size=1, max_size=12), st.integers(0, 9))
    def test_text_that_was_held_back_may_be_said_by_us(self, ids: list[int], hold: int) -> None:
        whole = decode(ids)
        sent = whole[: max(0, len(whole) - hold)]
        cut = said(sent, ids).replay_prefix(decode, hold, lags=True)
        assert (sent + cut.pending).removesuffix(cut.surplus) == cut.text
        assert len(cut.pending) <= hold
        if sent and not whole.endswith("\ufffd"):
            assert (cut.count, cut.text) == (len(ids), whole)

    def test_a_chunk_with_text_and_half_of_the_next_character(self) -> None:
        """[785, 957] was "你好世" and a byte of "界" (recorded): going on from both leaks the prompt."""
        texts = {(785,): "你", (785, 957): "你好世\ufffd"}
        assert said("你好世", [785, 957]).replay_prefix(lambda ids: texts.get(tuple(ids), "\ufffd")) == Cut(
            1, "你", "", "好世"
        )

    def test_a_blank_that_a_tokenizer_drops_alone_is_there(self) -> None:
        assert said(" Hello", [1, 2]).replay_prefix(lambda ids: "Hello"[: 4 + len(ids)]) == Cut(2, " Hello")

    def test_running_text_that_differs_is_found_by_halves(self) -> None:
        """An engine that wrote two marks where the ids taken together give one: all behind it is generated again."""
        ids = list(range(400))
        asked: list[int] = []

        def words(some: Sequence[int]) -> str:
            asked.append(len(some))
            return "".join("ab"[n % 2] if n != 100 else "?" for n in some)

        sent = words(ids).replace("?", "!!")
        asked.clear()
        cut = said(sent, ids).replay_prefix(words, lags=True)
        assert (cut.count, cut.text + cut.surplus) == (100, sent)
        assert len(asked) < 30

    def test_back_leaves_room_for_a_stop_string(self) -> None:
        """Where nothing is held back, at a word; where something is, wherever the text is long enough."""
        made = spelled("abcdef", range(6))
        assert made.replay_prefix(lambda ids: "".join("abcdef"[n] for n in ids), back=4) == Cut(2, "ab", surplus="cdef")
        made = said("abcdef", [*range(6)])
        assert made.replay_prefix(lambda ids: "abcdef"[: len(ids)], back=4, lags=True) == Cut(2, "ab", surplus="cdef")
        assert made.replay_prefix(lambda ids: "abcdef"[: len(ids)], back=9) == Cut(0, "", surplus="abcdef")

    def test_by_text(self) -> None:
        assert said("one two", []).by_text() == Cut(0, "one two")
        assert said("one two", []).by_text(again=True) == Cut(0, "one", surplus=" two")
        assert said("x" * 99, []).by_text(again=True).text == "x" * 99

    def test_text_that_splits_into_fewer_tokens_than_were_said(self) -> None:
        """ "t", "h" were two events, but the tokenizer makes one token of "th"."""
        made = tape(token("t"), token("h"))
        assert made.splits_otherwise(1, stops=False)
        assert not made.splits_otherwise(2, stops=False)
        assert not made.splits_otherwise(1, stops=True)


ANY = st.one_of(
    st.integers(FIRST_BYTE, SIZE - 1), st.integers(FIRST_BYTE, FIRST_BYTE + 255), st.integers(0, FIRST_BYTE - 1)
)


class TestCutByEvents:
    """Where nothing is held back for stop strings: behind the last word, whatever the ids spell together."""

    @settings(deadline=None)
    @given(st.lists(ANY, max_size=30), st.lists(st.integers(1, 3), min_size=1), st.integers(0, 30), st.integers(0, 6))
    def test_an_engine_that_goes_on_says_the_rest(self, ids: list[int], sizes: list[int], at: int, back: int) -> None:
        """Special ids, halves of characters, and several tokens in one event, on the emulated engine."""
        client, source, place, size = Tape(), Detokenizer(), 0, 0
        while place < at < len(ids):
            step = ids[place : place + sizes[size % len(sizes)]]
            client.say("".join(map(source.push, step)), step)
            place, size = place + len(step), size + 1
        cut = client.replay_prefix(decode, back=back)
        target = Detokenizer(ids[: cut.count])
        again = "".join(map(target.push, ids[cut.count :])) + target.finish()
        rest = "".join(map(source.push, ids[place:])) + source.finish()
        assert again == cut.surplus + rest
        assert (cut.text + cut.surplus, cut.pending) == (client.text, "")
        assert len(cut.surplus) >= min(back, len(client.text))

    def test_an_end_that_is_ignored_is_no_reason_to_say_all_again(self) -> None:
        made = spelled(["a", "", "b", "", "c", ""], [10, 0, 11, 0, 12, 0])
        asked: list[Sequence[int]] = []

        def words(ids: Sequence[int]) -> str:
            asked.append(ids)
            return "".join({0: "<end>", 10: "a", 11: "b", 12: "c"}[one] for one in ids)

        assert made.replay_prefix(words) == Cut(5, "abc")
        assert len(asked) < 5

    def test_one_that_came_together_with_a_word(self) -> None:
        made = spelled("ab", [10, 11])
        made.say("c", [12, 0])
        spell = {0: "<end>", 10: "a", 11: "b", 12: "c"}
        assert made.replay_prefix(lambda ids: "".join(spell[one] for one in ids)) == Cut(4, "abc")

    def test_a_word_and_half_a_character_in_one_event(self) -> None:
        """What the half spells alone is no special token's name: the word is said again."""
        made = spelled("ab", [10, 11])
        made.say("c", [12, 99])
        spell = {10: "a", 11: "b", 12: "c", 99: "\ufffd"}
        assert made.replay_prefix(lambda ids: "".join(spell[one] for one in ids)) == Cut(2, "ab", surplus="c")

    @pytest.mark.parametrize(("quiet", "count"), [(3, 1), (4, 5), (40, 41)])
    def test_many_that_say_nothing_are_replayed(self, quiet: int, count: int) -> None:
        made = spelled(["a", *[""] * quiet], [10, *[0] * quiet])
        assert made.replay_prefix(lambda ids: "".join("a" if one else "<end>" for one in ids)) == Cut(count, "a")

    def test_a_context_of_thousands_is_not_spelled_again(self) -> None:
        asked: list[int] = []

        def words(ids: Sequence[int]) -> str:
            asked.append(len(ids))
            return "".join("ab"[one % 2] for one in ids)

        assert spelled("ab" * 2000, range(4000)).replay_prefix(words).count == 4000
        assert asked == [CONFIRMING]

    def test_text_that_does_not_come_with_its_ids_is_compared_as_a_whole(self) -> None:
        """A parser that keeps a word back although there are no stop strings."""
        text = "abcdefghij"
        made = spelled(["", *text[:-1]], range(10))
        assert made.replay_prefix(lambda ids: "".join(text[one] for one in ids)) == Cut(9, "abcdefghi")

    def test_right_after_another_cut(self) -> None:
        """Nothing new was said: what was right then is right now, what is said again still has to be."""
        made = spelled("abc", range(3))
        made.rewind(Cut(2, "ab", surplus="c"))
        assert made.replay_prefix(decode) == Cut(2, "ab", surplus="c")
        made.say("", [2])
        assert made.replay_prefix(decode) == Cut(2, "ab", surplus="c")
        made.say("d", [3])
        assert made.replay_prefix(lambda ids: "".join("abcd"[one] for one in ids)) == Cut(4, "abcd")

    def test_text_without_ids_belongs_to_the_last(self) -> None:
        made = spelled("ab", range(2))
        made.say("c")
        made.say("", [3])
        spell = ["a", "bc", "", ""]
        assert made.replay_prefix(lambda ids: "".join(spell[one] for one in ids)) == Cut(2, "abc")
        made.rewind(Cut(2, "abc"))
        made.say("d")
        assert (made.text, made.fork().text) == ("abcd", "abcd")


class TestSpecialIdsAndStopStrings:
    """Text is held back, so no event tells what its id said."""

    def words(self, ids: Sequence[int]) -> str:
        return "".join("<end>" if not one else chr(96 + one % 26) for one in ids)

    def test_ids_of_which_nothing_was_ever_said_are_left_out(self) -> None:
        ids = [one % 10 for one in range(1, 60)]
        text = self.words([one for one in ids if one])
        made, told = Tape(), 0
        for place, one in enumerate(ids, 1):
            end = max(told, sum(map(bool, ids[:place])) - 3)
            made.say(text[told:end], [one])
            told = end
        cut = made.replay_prefix(self.words, hold=3, lags=True)
        assert (cut.count, cut.text, cut.pending) == (59, text, text[-3:])

    def test_behind_the_last_word_nobody_can_tell(self) -> None:
        made = spelled(["", "", "a", "b", ""], [1, 2, 3, 4, 0])
        assert made.replay_prefix(self.words, hold=9, lags=True) == Cut(4, "abcd", pending="cd")


def heard(events: Sequence[bytes]) -> Tape:
    return tape(*(event.decode() for event in events))


def as_completion(event: bytes) -> bytes:
    """The same event as a completion of another replica would send it."""
    part = msgspec.json.decode(event)["choices"][0]
    text = part["text"] if "text" in part else part["delta"]["content"]
    again = {"index": 0, "text": text, "finish_reason": part["finish_reason"], "token_ids": part["token_ids"]}
    return b"data: " + msgspec.json.encode({"choices": [again]}) + b"\n\n"


@pytest.mark.shared
@pytest.mark.parametrize("name", VLLM)
def test_recorded_streams_cut_at_every_token(shared: Path, name: str) -> None:
    """vLLM's own, split characters and all: what was sent, and what the rest of the recording adds, is the whole."""
    events = Frames().feed((shared / "fixtures/vllm" / f"{name}.body").read_bytes())
    whole = heard(events)
    prefixes = [heard(events[:place]) for place in range(len(events))]
    known = {len(one.ids): one.text for one in reversed(prefixes)}
    begins = [len(one.ids) for one in prefixes]

    def detokenise(ids: Sequence[int]) -> str:
        """By what the recording says: no new text after an id is a character that is not finished."""
        here = client.ids
        begin = next(n for n in range(len(here) - len(ids), -1, -1) if here[n : n + len(ids)] == [*ids])
        end = begin + len(ids)
        text = known.get(end)
        if text is None or text == known.get(end - 1):
            return "\ufffd"
        return text.removeprefix(known.get(begin, "")) if begin else text

    for client in [one for one in prefixes if one.opened]:
        cut = client.replay_prefix(detokenise)
        splicer = Splicer(client, cut, Manner())
        for begin, event in zip(begins, events, strict=True):
            if begin >= cut.count and b',"token_ids":[' in event:
                splicer.feed(as_completion(event))
        assert (splicer.failed, client.text, client.ids) == ("", whole.text, whole.ids)
