"""Counting tokens: exact where it may refuse, bounded in work whatever is sent, remembered without the text."""

import gc
import random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.gateway.counting import FRESH_BYTES, LEAST_SAMPLE_BYTES, LONGEST_BODY_BYTES, PER_MESSAGE, Counter, counted
from headway.gateway.counting import REMEMBERED as MANY
from headway.wire import openai
from headway.wire.body import Body

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"


class Words:
    """One token per four bytes begun, one more for the beginning of a prompt; remembers how much it was given."""

    def __init__(self) -> None:
        self.bytes = 0
        self.calls = 0

    def __call__(self, text: str, special: bool) -> int:
        size = len(text.encode())
        self.bytes += size
        self.calls += 1
        return -(-size // 4) + special


def read(counter: Counter, path: str, **body: object) -> Body:
    data = msgspec.json.encode({"model": "m", **body})
    parsed = openai.scan(data, path)
    assert isinstance(parsed, Body)
    return counted({"m": counter}, data, path, parsed)


def chat(counter: Counter, *contents: str) -> Body:
    return read(counter, CHAT, messages=[{"role": "user", "content": content} for content in contents])


def test_a_completion_prompt_is_counted_exactly() -> None:
    parsed = read(Counter(Words()), COMPLETIONS, prompt="x" * 400)
    assert (parsed.prompt_tokens, parsed.counted_tokens) == (101, 0)


def test_a_chat_is_never_exact() -> None:
    parsed = chat(Counter(Words()), "x" * 400, "y" * 40)
    assert (parsed.prompt_tokens, parsed.counted_tokens) == (0, 110 + 2 * PER_MESSAGE)


def test_a_longer_prompt_is_judged_by_samples_and_not_exact() -> None:
    words = Words()
    parsed = read(Counter(words), COMPLETIONS, prompt="x" * 100_000)
    assert parsed.prompt_tokens == 0
    assert parsed.counted_tokens == pytest.approx(25_000, rel=0.01)
    assert words.bytes <= FRESH_BYTES


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (COMPLETIONS, {"prompt": [1, 2, 3]}),
        ("/v1/embeddings", {"input": "text"}),
        (CHAT, {"messages": [{"role": "user", "content": 7}]}),
        (COMPLETIONS, {"prompt": "x" * LONGEST_BODY_BYTES}),
        (COMPLETIONS, {"prompt": "text", "model": "another"}),
    ],
)
def test_what_is_not_counted_stays_as_it_is(path: str, body: dict[str, object]) -> None:
    words = Words()
    parsed = read(Counter(words), path, **body)
    assert words.calls == 0
    assert parsed.counted_tokens == 0
    assert parsed.prompt_tokens == (3 if body.get("prompt") == [1, 2, 3] else 0)


def test_the_turns_of_a_conversation_are_counted_once() -> None:
    words = Words()
    counter = Counter(words)
    turns = [f"turn {k} " + "x" * 1000 for k in range(20)]
    for k in range(1, 21):
        assert chat(counter, *turns[:k]).counted_tokens == pytest.approx(k * (253 + PER_MESSAGE), rel=0.02)
    assert words.calls == 20


@given(st.lists(st.integers(0, 3 * FRESH_BYTES), min_size=1, max_size=12))
def test_work_is_bounded_and_the_count_is_near(sizes: list[int]) -> None:
    words = Words()
    contents = [chr(97 + k) * size for k, size in enumerate(sizes)]
    parsed = chat(Counter(words), *contents)
    assert words.bytes <= FRESH_BYTES + LEAST_SAMPLE_BYTES
    expected = sum(-(-len(content) // 4) for content in contents) + PER_MESSAGE * len(sizes)
    assert parsed.counted_tokens == pytest.approx(expected, rel=0.02, abs=len(sizes))


@pytest.mark.parametrize("seed", range(20))
def test_samples_may_fall_anywhere_within_a_character(seed: int) -> None:
    text = "".join(random.Random(seed).choices("é漢👩a", k=2 * FRESH_BYTES + seed))
    size = len(text.encode())
    assert chat(Counter(Words()), text).counted_tokens == pytest.approx(size / 4, rel=0.02)


def test_memory_is_bounded_and_holds_no_text() -> None:
    counter = Counter(lambda text, special: 1)
    for k in range(MANY + 50):
        chat(counter, f"planted marker {k}")
    assert len(counter._known) == MANY
    gc.collect()
    held = [value for value in gc.get_referents(counter, counter._known) if isinstance(value, str | bytes)]
    assert not any("planted marker" in str(value) for value in held)


def test_media_is_never_exact() -> None:
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 4000}}
    content = [{"type": "text", "text": "x" * 400}, image]
    parsed = read(Counter(Words()), CHAT, messages=[{"role": "user", "content": content}])
    assert parsed.prompt_tokens == 0
    assert parsed.counted_tokens == 100 + PER_MESSAGE
    assert parsed.media_tokens > 0
