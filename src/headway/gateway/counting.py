"""Prompt tokens by a model's own tokenizer, where there is one, within a bound on time.

A tokenizer takes about 0.4 us per byte, which is ten times what everything else costs that a request needs. So what
was counted once is remembered by its hash (the earlier turns of a conversation come back with each turn), of what is
new at most `FRESH_BYTES` are counted, and the rest is judged by samples of it. Only a single completion prompt that was
counted whole is exact, and only exact counts may refuse anything.
"""

from collections.abc import Mapping, Sequence
from typing import Final, Protocol

import xxhash

from headway.wire.body import Body
from headway.wire.splice import Octets
from headway.wire.texts import texts

FRESH_BYTES: Final = 3072
"""New text that is counted per request: 1 to 2 ms of a tokenizer's time, and below 5 for text that is hard on it."""

SAMPLES: Final = 4
"""Places of a longer text that are looked at. Text varies from page to page more than within one."""

LEAST_SAMPLE_BYTES: Final = 1024
"""Of a longer text at least so much is looked at, although other texts have used up the rest."""

LONGEST_BODY_BYTES: Final = 256 * 1024
"""Longer bodies are not read a second time: their bytes tell enough."""

PER_MESSAGE: Final = 5
"""Tokens that chat templates put around a message: 4 to 5 (ChatML, Llama 3). What they add beside is learned."""

REMEMBERED: Final = 8192
"""Texts whose count is remembered per model: 1 MB."""


class Tokenizing(Protocol):
    """A model's tokenizer. `special`: with the tokens that it puts around a prompt, such as a beginning."""

    def __call__(self, text: str, special: bool) -> int: ...


class Counter:
    """The tokens of texts for one model."""

    def __init__(self, tokens: Tokenizing) -> None:
        self._tokens = tokens
        self._known: dict[int, int] = {}

    def prompt(self, body: Octets, path: str, parsed: Body) -> Body:
        """The same facts, with `prompt_tokens` where the count is exact, else with `counted_tokens` if there is one."""
        if parsed.prompt_tokens or parsed.form or not parsed.generates or len(body) > LONGEST_BODY_BYTES:
            return parsed
        found = texts(body, path)
        if found is None:
            return parsed
        if found.whole:
            return self._whole(found.parts[0], parsed)
        count = self._count(found.parts) + PER_MESSAGE * found.messages
        return parsed.changed(counted_tokens=count)

    def _whole(self, text: bytes, parsed: Body) -> Body:
        if len(text) <= FRESH_BYTES and not parsed.media_tokens:
            return parsed.changed(prompt_tokens=self._tokens(text.decode(), True))
        return parsed.changed(counted_tokens=self._count((text,)))

    def _count(self, parts: Sequence[bytes]) -> int:
        left, count = FRESH_BYTES, 0
        rest: list[bytes] = []
        known = self._known
        for part in parts:
            name = xxhash.xxh3_64_intdigest(part)
            found = known.get(name)
            if found is None:
                if len(part) > left:
                    rest.append(part)
                    continue
                left -= len(part)
                found = self._remember(name, self._tokens(part.decode(), False))
            count += found
        return count + self._judge(b"".join(rest), max(left, LEAST_SAMPLE_BYTES)) if rest else count

    def _judge(self, text: bytes, size: int) -> int:
        """About how many tokens a long text has, by samples of `size` bytes in all."""
        if len(text) <= size:
            return self._tokens(text.decode(), False)
        each = size // SAMPLES
        stride = (len(text) - each) / (SAMPLES - 1)
        pieces = (text[round(k * stride) : round(k * stride) + each].decode(errors="ignore") for k in range(SAMPLES))
        return round(sum(self._tokens(piece, False) for piece in pieces) * len(text) / (each * SAMPLES))

    def _remember(self, name: int, count: int) -> int:
        known = self._known
        if len(known) >= REMEMBERED:
            del known[next(iter(known))]
        known[name] = count
        return count


def counted(counters: Mapping[str, Counter], body: Octets, path: str, parsed: Body) -> Body:
    """What is known of a request, with its tokens counted if its model has a tokenizer."""
    counter = counters.get(parsed.model)
    return parsed if counter is None else counter.prompt(body, path, parsed)
