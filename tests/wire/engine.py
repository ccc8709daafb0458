"""An emulated engine without a server: a body in, the events of its stream out. Each token depends on all before it,
some are halves of characters, stop strings are held back, and a prompt that ends inside a character leaks, as vLLM's.
"""

import json
import re
from typing import Any

from headway.emulator import asks
from headway.emulator.asks import Ask
from headway.emulator.prompts import Renderer
from headway.emulator.shapes import Shape, Usage
from headway.emulator.transcript import Transcript
from headway.perfmodel.text import decode
from headway.perfmodel.tokens import TokenStream
from headway.perfmodel.vocabulary import EOS

CONTEXT = 2048
CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
RENDERER = Renderer(CONTEXT)


def stream(path: str, body: dict[str, Any] | bytes, name: str = "one") -> list[bytes]:
    """The data of each event this engine sends for a streamed request, the first with any opening event alone."""
    raw = body if isinstance(body, bytes) else json.dumps({"model": "tiny", "stream": True, **body}).encode()
    ask = asks.read(raw, path == CHAT, "tiny", RENDERER)
    assert isinstance(ask, Ask), ask
    shape = Shape(ask, name, "tiny", "vllm-0.32.0-test")
    prompt = ask.prompts[0]
    said = Transcript(ask, prompt)
    told = [shape.roles([prompt])] if ask.chat else []
    state = TokenStream(prompt)
    while not said.finish:
        place = len(said.ids)
        token = state.next(may_end=place >= ask.min_tokens)
        state.push(token)
        said.push(token, _finish(ask, token, place), None)
        first = prompt if ask.return_token_ids and place == 0 else None
        usage = Usage(len(prompt), place + 1) if ask.continuous_usage else None
        told.append(shape.chunk(0, said, first, usage))
    told.append(shape.tail(Usage(len(prompt), len(said.ids))))
    written = re.sub(rb'"created":\d+', b'"created":1', b"".join(told))
    return [event.removeprefix(b"data: ") for event in written.split(b"\n\n")[:-1]]


def _finish(ask: Ask, token: int, place: int) -> str:
    """An end that is to be ignored is generated, and said to nobody."""
    if token == EOS and not ask.ignore_eos:
        return "stop"
    return "length" if place + 1 == ask.max_tokens else ""


def whole(path: str, body: dict[str, Any] | bytes, name: str = "one") -> bytes:
    """What it says at once to the same request without a stream."""
    raw = body if isinstance(body, bytes) else json.dumps({"model": "tiny", **body}).encode()
    ask = asks.read(raw, path == CHAT, "tiny", RENDERER)
    assert isinstance(ask, Ask), ask
    prompt = ask.prompts[0]
    said, state = Transcript(ask, prompt), TokenStream(prompt)
    while not said.finish:
        place = len(said.ids)
        token = state.next(may_end=place >= ask.min_tokens)
        state.push(token)
        said.push(token, _finish(ask, token, place), None)
    answer = Shape(ask, name, "tiny", "vllm-0.32.0-test").whole([said], Usage(len(prompt), len(said.ids)))
    return re.sub(rb'"created":\d+', b'"created":1', answer)


def framed(events: list[bytes]) -> bytes:
    """The events as they are on the wire."""
    return b"".join([b"data: " + event + b"\n\n" for event in events])


def detokenise(ids: Any) -> str:
    """What this engine's /detokenize says."""
    return decode(ids)
