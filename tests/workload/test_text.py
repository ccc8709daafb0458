"""Text of prompts: right size, same everywhere, shared where segments are."""

from hypothesis import given
from hypothesis import strategies as st

from headway.workload.request import Request, Segment
from headway.workload.text import BYTES_PER_TOKEN, messages, prompt, segment_text

SYSTEM = Segment(3, 50, "system")


@given(st.integers(0, 2**60), st.integers(0, 600), st.integers(0, 2**31))
def test_four_bytes_a_token_and_repeatable(key: int, tokens: int, seed: int) -> None:
    text = segment_text(Segment(key, tokens), seed)
    assert len(text.encode()) == BYTES_PER_TOKEN * tokens
    assert text == segment_text(Segment(key, tokens), seed)


@given(st.integers(0, 500), st.integers(0, 500))
def test_a_shorter_segment_begins_a_longer_one(short: int, more: int) -> None:
    assert segment_text(Segment(7, short + more)).startswith(segment_text(Segment(7, short)))


def test_known_text_so_that_no_version_changes_it_unseen() -> None:
    assert segment_text(Segment(1, 6), seed=1) == "map fly got one our man "


def test_keys_and_seeds_differ() -> None:
    texts = {segment_text(Segment(key, 40), seed) for key in (1, 2) for seed in (0, 1)}
    assert len(texts) == 4


def test_equal_segments_share_their_text() -> None:
    first = Request(0.0, (SYSTEM, Segment(10, 20)), 5)
    second = Request(1.0, (SYSTEM, Segment(11, 20)), 5)
    shared = BYTES_PER_TOKEN * SYSTEM.tokens
    assert prompt(first)[:shared] == prompt(second)[:shared]
    assert prompt(first)[shared:] != prompt(second)[shared:]


def test_messages_merge_neighbours_of_one_role() -> None:
    request = Request(0.0, (SYSTEM, Segment(1, 4), Segment(2, 4), Segment(3, 2, "assistant"), Segment(4, 1)), 5)
    turns = messages(request)
    assert [turn["role"] for turn in turns] == ["system", "user", "assistant", "user"]
    assert "".join(turn["content"] for turn in turns) == prompt(request)
    assert messages(Request(0.0, (), 1)) == []
