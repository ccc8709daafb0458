"""Two emulated servers of other hardware and precision: streams of the one, cut, go on on the other, over HTTP."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from headway.engines.continuation import Given, Way
from headway.engines.vllm import CONTINUATION
from headway.wire.body import Body
from headway.wire.openai import scan
from headway.wire.resume import Tape
from headway.wire.resume_body import CHAT, COMPLETIONS, stops
from headway.wire.resume_ids import Frames, IdStripper, ids_edit
from headway.wire.resume_splice import Splicer
from headway.wire.splice import splice
from tests.emulator.process import EmulatorProcess, emulator
from tests.emulator.wire import exchange

pytestmark = pytest.mark.slow
CONTEXT = 2048
SAY = {"messages": [{"role": "user", "content": "скажи 你好 🙂"}]}


@pytest.fixture(scope="module")
def other() -> Iterator[EmulatorProcess]:
    with emulator(served_model_name="tiny", gpu="l4-24gb", quantization="fp8", max_model_len=CONTEXT) as target:
        yield target


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
@pytest.mark.parametrize("more", [{}, {"stop": ["e t", "never said"], "temperature": 0}])
def test_any_cut_goes_on(tiny: EmulatorProcess, other: EmulatorProcess, path: str, more: dict[str, Any]) -> None:
    asked = {**(SAY if path == CHAT else {"prompt": "Once upon"}), **more, "max_tokens": 50, "stream": True}
    body = json.dumps({"model": "tiny", **asked, "stream_options": {"include_usage": True}}).encode()
    parsed, edit = scan(body, path), ids_edit(body)
    assert isinstance(parsed, Body)
    assert edit is not None
    assert CONTINUATION.pinned(body, parsed, path) == ""

    def detokenise(ids: Sequence[int]) -> str:
        assert CONTINUATION.detokenise is not None
        question = CONTINUATION.detokenise.ask(list(ids))
        return CONTINUATION.detokenise.text(exchange(other.port, "POST", question.path, question.body).body)

    events = Frames().feed(exchange(tiny.port, "POST", path, splice(body, [edit])).body)
    whole = said(exchange(tiny.port, "POST", path, body).body)
    for place in range(1, len(events), 7):
        tape = Tape()
        client = IdStripper(tape).feed(b"".join(b"data: " + event + b"\n\n" for event in events[:place]))
        if tape.ended:
            break
        wish = stops(body)
        cut = tape.replay_prefix(detokenise, wish.hold, wish.back)
        ask = CONTINUATION.ask(Way.IDS, body, tape, cut, Given(CONTEXT))
        splicer = Splicer(tape, cut, CONTINUATION.manner(Way.IDS, parsed, wish))
        client += splicer.feed(exchange(other.port, "POST", ask.path, ask.body).body)
        assert (splicer.failed, said(client)) == ("", whole), place


def said(stream: bytes) -> tuple[str, list[Any], Any]:
    """Text, ends and usage."""
    chunks = [json.loads(event) for event in Frames().feed(stream) if event != b"[DONE]"]
    choices = [chunk["choices"][0] for chunk in chunks if chunk["choices"]]
    text = "".join(one.get("text") or one.get("delta", {}).get("content") or "" for one in choices)
    ends = [(one["finish_reason"], one["stop_reason"]) for one in choices if one["finish_reason"]]
    return text, ends, chunks[-1]["usage"]
