"""Text to token ids and back, and back piece by piece as an engine does while it generates.

The vocabulary is in `vocabulary`. Splitting is canonical (one text, one split) but, as with real vocabularies, ids that
were generated need not be what their text splits into: a gateway that replays text instead of ids gets other ids.
"""

import re
from collections.abc import Iterable, Sequence

from headway.perfmodel.vocabulary import FIRST_BYTE, IDS, SPECIALS, TOKENS

_LONGEST = max(len(piece) for piece in TOKENS[FIRST_BYTE:])
_WORD = re.compile(r" ?[^\W\d_]+| ?\d{1,3}|'\w+|\s+|[^\w\s]+ ?|_+")
_SPECIAL = re.compile("|".join(re.escape(name) for name in SPECIALS))
_CHATTY = 8  # prompt tokens that vLLM's detokenizer re-reads when a prompt ends inside a character


def _whole(index: int, piece: bytes) -> str | None:
    """A token's text if it is complete UTF-8 by itself; nothing for the special ones, None for pieces of characters."""
    if index < FIRST_BYTE:
        return ""
    text = piece.decode("utf-8", "replace")
    return None if "\ufffd" in text else text


WHOLE: tuple[str | None, ...] = tuple(_whole(index, piece) for index, piece in enumerate(TOKENS))
"""The text of each token that needs no neighbour."""


class Tokenizer:
    """Splits text into ids. Keeps the splits of words it has seen, up to `memory` of them."""

    def __init__(self, memory: int = 50_000) -> None:
        self._seen: dict[str, tuple[int, ...]] = {}
        self._memory = memory

    def encode(self, text: str) -> list[int]:
        """The ids of a text; names of special tokens in it become those tokens."""
        if "<|" not in text:
            return self._plain(text)
        ids: list[int] = []
        done = 0
        for match in _SPECIAL.finditer(text):
            ids += self._plain(text[done : match.start()])
            ids.append(SPECIALS.index(match[0]))
            done = match.end()
        return ids + self._plain(text[done:])

    def _plain(self, text: str) -> list[int]:
        ids: list[int] = []
        seen = self._seen
        for word in _WORD.findall(text):
            known = seen.get(word)
            if known is None:
                if len(seen) >= self._memory:
                    seen.clear()
                known = seen[word] = tuple(_split(word.encode("utf-8", "replace")))
            ids += known
        return ids


def _split(data: bytes) -> Iterable[int]:
    """Longest match from the left; every single byte is a token, so it always ends."""
    start = 0
    while start < len(data):
        for end in range(min(len(data), start + _LONGEST), start, -1):
            token = IDS.get(data[start:end])
            if token is not None:
                yield token
                start = end
                break


def decode(ids: Sequence[int], skip_special: bool = False) -> str:
    """The text of these ids; bytes that are not UTF-8 become U+FFFD."""
    pieces = (TOKENS[index] for index in ids if not skip_special or index >= FIRST_BYTE)
    return b"".join(pieces).decode("utf-8", "replace")


class Detokenizer:
    """Turns ids into text as they come, holding text back while it ends inside a character.

    As vLLM's does, it then holds back the whole piece, not only the unfinished character, and when the *prompt* ended
    inside a character the first text it emits repeats the end of the prompt (seen in vLLM 0.32; a migration that cuts
    there leaks it).
    """

    __slots__ = ("_held",)

    def __init__(self, prompt: Sequence[int] = ()) -> None:
        tail = b"".join(TOKENS[index] for index in prompt[-_CHATTY:] if index >= FIRST_BYTE)
        self._held = tail if tail.decode("utf-8", "replace").endswith("\ufffd") else b""

    def push(self, token: int) -> str:
        """The text that became certain with this token; often it is that of the token, sometimes none."""
        if not self._held:
            text = WHOLE[token]
            if text is not None:
                return text
        if token >= FIRST_BYTE:
            self._held += TOKENS[token]
        text = self._held.decode("utf-8", "replace")
        if text.endswith("\ufffd"):
            return ""
        self._held = b""
        return text

    def finish(self) -> str:
        """What is still held back when nothing more comes: unfinished characters become U+FFFD."""
        text, self._held = self._held.decode("utf-8", "replace"), b""
        return text
