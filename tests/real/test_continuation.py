"""Requests cut at every event of their stream and continued on another server of the same engine: greedy, English,
Russian, Chinese and emoji, chat and completions, with and without stop strings. The client must see what it would have
seen: text, finish reason, usage, one role, one head, one `[DONE]`; and never a piece of the prompt.
"""

import os
import time
from collections.abc import Iterator
from typing import Any

import pytest

from headway.engines.continuation import Way
from tests.real import tiny_scripts, vllm
from tests.real.engines import EnginePair
from tests.real.moving import CHAT, COMPLETIONS, Ask, Move, Tally, call

pytestmark = pytest.mark.slow

SOAK = os.environ.get("HEADWAY_SOAK") == "1"
STEP = 1 if SOAK else 7
SCRIPTS = ("english", "russian", "chinese", "emoji")
USAGE = {"stream_options": {"include_usage": True}}
PROMPTS = {
    CHAT: {"messages": [{"role": "user", "content": "привет, 你好 and hello 🙂"}]},
    COMPLETIONS: {"prompt": "Once upon a time 你好"},
}


@pytest.fixture(scope="module")
def writers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EnginePair]:
    """Two servers with the model that writes all scripts."""
    folder = tmp_path_factory.mktemp("writers")
    if vllm.ASKED_FOR:
        launcher = vllm.launcher(folder, tiny=tiny_scripts)
    else:
        pytest.importorskip("xllamacpp", reason="llama.cpp's server is not installed (extra: engines)")
        from tests.real import llama

        launcher = llama.launcher(folder, tiny_scripts)
    pair = EnginePair.make(launcher, folder)
    try:
        pair.revive()
        yield pair
    finally:
        pair.end()


def told(tally: Tally, minimum: int) -> None:
    """The figures, on the way to a log (`-s`), and what they must be."""
    print(f"{tally.cuts} cuts, {tally.same} the same, {tally.refused} refused", *tally.exceptions, sep="\n  ")  # noqa: T201
    assert tally.leaks == 0
    assert tally.cuts >= minimum
    assert tally.same >= 0.99 * tally.cuts, tally.exceptions


def written(script: int) -> dict[str, Any]:
    return {"max_tokens": 80, "temperature": 0, "logit_bias": tiny_scripts.favour(script), **USAGE}


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
@pytest.mark.parametrize("script", range(4), ids=SCRIPTS)
def test_the_client_sees_one_seamless_stream(writers: EnginePair, script: int, path: str) -> None:
    source, target = writers.engines
    told(Move(source, target, path, PROMPTS[path] | written(script)).cuts(STEP), 5)


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
@pytest.mark.parametrize("script", range(4), ids=SCRIPTS)
def test_stop_strings_are_found_wherever_the_cut_is(writers: EnginePair, script: int, path: str) -> None:
    """Cut from the answer's own text, at places that are no word's start."""
    source, target = writers.engines
    fields = PROMPTS[path] | written(script)
    text = Move(source, target, path, fields).expected["text"]
    tally = Tally()
    for start in range(len(text) // 3, len(text) - 8, max(1, len(text) // (9 if SOAK else 4))):
        move = Move(source, target, path, {**fields, "stop": [text[start : start + 6], "never said at all"]})
        tally += move.cuts(STEP)
    told(tally, 2)


def test_one_cannot_tell_running_usage_either(writers: EnginePair) -> None:
    """Only vLLM counts as it goes."""
    if not vllm.ASKED_FOR:
        pytest.skip("llama.cpp has no continuous_usage_stats")
    source, target = writers.engines
    options = {"stream_options": {"include_usage": True, "continuous_usage_stats": True}}
    told(Move(source, target, CHAT, PROMPTS[CHAT] | written(2) | options).cuts(STEP), 5)


def test_a_clean_end_by_itself(writers: EnginePair) -> None:
    """An end of sequence, made likely by a bias."""
    source, target = writers.engines
    ending = {"logit_bias": {**tiny_scripts.favour(0), str(tiny_scripts.EOS): 22}, "temperature": 0, **USAGE}
    move = Move(source, target, CHAT, PROMPTS[CHAT] | ending | {"max_tokens": 400})
    assert move.expected["ends"] == [("stop", None)]
    told(move.cuts(STEP), 1)


def test_text_that_was_said_in_other_tokens_is_noticed(pair: EnginePair) -> None:
    """The other tiny model says "t" and "h" where its tokenizer knows "th": text then leads elsewhere."""
    if vllm.ASKED_FOR:
        pytest.skip("vLLM goes on by ids")
    source, target = pair.engines
    tally = Tally()
    for question in ("tell me", "why"):
        fields = {"messages": [{"role": "user", "content": question}], "max_tokens": 60, "temperature": 0}
        tally += Move(source, target, CHAT, fields).cuts(1 if SOAK else 4)
    told(tally, 10)
    assert tally.refused > 3


class TestKvMove:
    """llama.cpp moves a slot's KV through a folder that both servers see."""

    def test_the_target_goes_on_without_a_prefill(self, writers: EnginePair) -> None:
        source, target = writers.engines
        manner = source.launcher.dialect.continuation
        if manner.kv is None:
            pytest.skip("this engine does not move KV through files")
        assert manner.way(COMPLETIONS) is Way.TEXT
        prompt = " the word of water and time" * 60
        fields = {"prompt": prompt, **written(1), manner.kv.slot_field: 0}
        move = Move(source, target, COMPLETIONS, fields)
        cold = self._prompt_tokens_computed(move, {})
        save = call(source, manner.kv.save_ask(0, "moved.bin"))
        began = time.monotonic()
        restored = call(target, manner.kv.restore_ask(1, "moved.bin"))
        print(f"{save!r} {restored!r} restored in {time.monotonic() - began:.4f} s")  # noqa: T201
        warm = self._prompt_tokens_computed(move, {manner.kv.slot_field: 1})
        assert cold > 300
        assert warm < 30

    def _prompt_tokens_computed(self, move: Move, slot: dict[str, object]) -> int:
        """Tokens of the prompt that the target had to compute; the client sees the same as ever."""
        got, failed = move.at(len(move.events) // 2, slot) or ({}, "ended")
        assert (failed, got) == ("", move.expected)
        return move.timings["prompt_n"]


def test_the_names_of_files_are_ours() -> None:
    """A move is asked for with a plain name: nothing of a client's gets into a path."""
    from headway.engines.llamacpp import CONTINUATION

    assert CONTINUATION.kv is not None
    assert CONTINUATION.kv.save_ask(3, "a.bin") == Ask("/slots/3?action=save", b'{"filename":"a.bin"}')
    assert CONTINUATION.kv.restore_ask(3, "a.bin").path == "/slots/3?action=restore"
