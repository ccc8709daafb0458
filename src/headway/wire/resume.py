"""What one request has said so far, as its client saw it, and where a run on another replica may take over.

What lives here: the tape of a stream (`Tape`) and the choice of a prefix to replay (`Cut`). What must not: the body
that asks another replica to go on (`resume_body`), what the client then sees (`resume_splice`), and when to do it.

A token is no text: it may end inside a character, and engines hold text back that may yet become a stop string. So the
ids and the text of a stream are seldom at the same place. A prompt that ends inside a character makes engines leak
pieces of the prompt or lose the character (vLLM 0.32, recorded). The cut is therefore the longest prefix of the ids
whose own text is whole and agrees with what was sent; the rest is generated again or, where it is whole text that was
merely held back, is said by us.
"""

from collections.abc import Callable, Generator, Sequence

import msgspec
from msgspec import Raw

from headway.wire.resume_shapes import ABSENT, Chunk, Part

REPLACEMENT = "\ufffd"
"""What detokenisers write for bytes that are no character (yet)."""

LONGEST_CHARACTER = 4
"""Bytes of UTF-8: so many tokens at most are held back by a character that is not finished."""

LONGEST_WORD = 80
"""Characters in which a word's start is looked for."""

_CHUNK = msgspec.json.Decoder(Chunk)
_UNREADABLE = (msgspec.DecodeError, RecursionError, UnicodeDecodeError)
_EMPTY = frozenset({b"", b"null", b"[]", b'""'})

Search = Generator[Sequence[int], str, "Cut"]
"""Gives ids, wants their text, returns the cut: for callers whose detokeniser is on the other side of a network."""


class Cut(msgspec.Struct, frozen=True):
    """Where another replica takes over: `count` tokens are replayed, whose text is `text`.

    `pending`: the end of `text` that was not sent yet (the engine held it back). `surplus`: what was sent beyond
    `text`, and is generated again. At most one of the two is there.
    """

    count: int
    text: str
    pending: str = ""
    surplus: str = ""


class Tape:
    """Feed it the data of each event of a chat or completions stream, as JSON, in order.

    `ids` generated tokens, if the stream tells them; `prompt_ids` likewise, None until told; `finish_reason` of the
    only choice, "" while it goes on; `error`: the stream said that it failed; `done`: `[DONE]` came; `opened`:
    something was said, if only the role; `reported`: the largest count of completion tokens in a usage; `prompt_tokens`
    as usage or ids tell, 0 before; `pinned`: something was seen that cannot be continued, one word; `steps`: events
    that said something, about as many as tokens; `totalled`: the usage of the whole answer was told.
    `sample`: the last event that said something without ending, which shows how this engine writes.
    """

    __slots__ = (
        "_parts", "_text", "done", "error", "finish_reason", "ids", "opened", "pinned", "prompt_ids", "prompt_tokens",
        "reported", "sample", "steps", "totalled",
    )  # fmt: skip

    def __init__(self) -> None:
        self.ids: list[int] = []
        self.prompt_ids: list[int] | None = None
        self.finish_reason = ""
        self.error = False
        self.done = False
        self.opened = False
        self.reported = 0
        self.prompt_tokens = 0
        self.pinned = ""
        self.sample = b""
        self.steps = 0
        self.totalled = False
        self._text = ""
        self._parts: list[str] = []

    @property
    def text(self) -> str:
        """All the client has been sent, in one string."""
        if self._parts:
            self._text = "".join((self._text, *self._parts))
            self._parts.clear()
        return self._text

    @property
    def ended(self) -> bool:
        """Whether there is nothing left to continue."""
        return bool(self.finish_reason) or self.done

    @property
    def generated(self) -> int:
        """Tokens generated so far, as well as the stream tells."""
        return max(len(self.ids) or self.steps, self.reported)

    def read(self, data: bytes) -> None:
        """Take in one event. What is no JSON of these APIs pins the request: nobody knows what was said."""
        if data == b"[DONE]":
            self.done = True
            return
        try:
            chunk = _CHUNK.decode(data)
        except _UNREADABLE:
            self.pinned = "unreadable"
            return
        if bytes(chunk.error) not in _EMPTY or chunk.choices is None:
            self.error = True
            return
        if chunk.usage is not None:
            ends = not chunk.choices or bool(chunk.choices[0].finish_reason and not self.reported)
            self.totalled = self.totalled or ends
            self.reported = max(self.reported, chunk.usage.completion_tokens)
            self.prompt_tokens = chunk.usage.prompt_tokens or self.prompt_tokens
        self._prompt(chunk.prompt_token_ids)
        if len(chunk.choices) == 1:
            self._choice(chunk.choices[0], data)
        elif chunk.choices:
            self.pinned = "choices"

    def say(self, text: str, ids: Sequence[int] = ()) -> None:
        """Text that the client gets, and tokens that were generated, by whichever replica."""
        if text:
            self._parts.append(text)
        self.ids += ids

    def hear(self, text: str, token: int, data: bytes) -> None:
        """One event that says one token and nothing else, as whoever calls this knows without reading it."""
        self._parts.append(text)
        self.ids.append(token)
        self.steps += 1
        self.sample = data

    def rewind(self, count: int) -> None:
        """Forget the ids from here on: another replica generates from there. What was sent stays sent."""
        del self.ids[count:]

    def fork(self) -> "Tape":
        """Another that has heard the same, and may be told something else from now on."""
        other = Tape()
        other.ids = self.ids.copy()
        other.prompt_ids = self.prompt_ids
        other.finish_reason = self.finish_reason
        other.error = self.error
        other.done = self.done
        other.opened = self.opened
        other.reported = self.reported
        other.prompt_tokens = self.prompt_tokens
        other.pinned = self.pinned
        other.sample = self.sample
        other.steps = self.steps
        other.totalled = self.totalled
        other._text = self.text
        return other

    def replay_prefix(self, detokenise: Callable[[Sequence[int]], str], hold: int = 0, back: int = 0) -> Cut:
        """The cut, where ids are told and a detokeniser is at hand. `hold`, `back`: see `search`."""
        search = self.search(hold, back)
        try:
            ids = next(search)
            while True:
                ids = search.send(detokenise(ids))
        except StopIteration as found:
            cut: Cut = found.value
            return cut

    def search(self, hold: int = 0, back: int = 0) -> Search:
        """The longest prefix of the ids that is whole text and a prefix of what was sent, less `back` characters.

        It may go beyond what was sent by up to `hold` characters: those that the engine holds back for stop strings.

        Usually the first or second text decides. Where the engine's running text differs from that of the ids taken
        together (broken characters), a binary search narrows down where they part, before the walk goes on from there.
        """
        sent = self.text
        count = len(self.ids)
        near = max(0, count - 2 * LONGEST_CHARACTER - back)
        while count > 0:
            found = _agree((yield self.ids[:count]), sent, count)
            if found is not None and len(found.pending) <= hold and len(found.text) <= max(0, len(sent) - back) + hold:
                return found
            count -= 1
            if count == near:
                count = yield from self._last_agreeing(count, sent)
        return Cut(0, "", surplus=sent)

    def _last_agreeing(self, count: int, sent: str) -> Generator[Sequence[int], str, int]:
        """Where the walk goes on: no prefix longer than this agrees with what was sent, but for an open character."""
        low, high = 0, count
        while low < high:
            middle = (low + high + 1) // 2
            text = _spaced((yield self.ids[:middle]), sent).rstrip(REPLACEMENT)
            low, high = (middle, high) if sent.startswith(text) or text.startswith(sent) else (low, middle - 1)
        return low

    def by_text(self, again: bool = False) -> Cut:
        """The cut where ids are not told: all that was sent. The count is that of events; whoever can ask the engine
        what it makes of the text puts that in its place, for the limit and the usage depend on it.

        `again`: back to the start of the last word, which is generated again. An engine that holds text back for stop
        strings sends parts of tokens, and a prompt that ends in one is continued differently (llama.cpp, measured).
        """
        sent = self.text
        start = max(sent.rfind(blank, max(0, len(sent) - LONGEST_WORD)) for blank in " \n") if again else -1
        kept = sent[:start] if start >= 0 else sent
        return Cut(self.generated, kept, surplus=sent[len(kept) :])

    def splits_otherwise(self, count: int, stops: bool) -> bool:
        """Whether the engine, which makes `count` tokens of all that was sent, cannot have generated these: there were
        more events. What it would say next is something else (measured); such a request stays where it is. With
        `stops` nobody knows: text that is held back comes in parts of tokens.
        """
        return not stops and count < self.steps

    def _prompt(self, ids: list[int] | None) -> None:
        if ids is not None and self.prompt_ids is None:
            self.prompt_ids = ids
            self.prompt_tokens = len(ids)

    def _choice(self, choice: Part, data: bytes) -> None:
        self.opened = True
        self._prompt(choice.prompt_token_ids)
        delta = choice.delta
        text = choice.text
        if delta is not None:
            text = delta.content
            if _says(delta.reasoning) or _says(delta.reasoning_content):
                self.pinned = "reasoning"
            if _says(delta.tool_calls) or _says(delta.function_call):
                self.pinned = "tools"
        self.say(text or "", choice.token_ids or ())
        if choice.finish_reason:
            self.finish_reason = choice.finish_reason
        elif text is not None and (text or delta is None or delta.role is ABSENT):
            self.steps += 1
            self.sample = data
        elif not self.sample:
            self.sample = data


def _says(raw: Raw) -> bool:
    return raw is not ABSENT and bytes(raw) not in _EMPTY


def _spaced(text: str, sent: str) -> str:
    """Some tokenizers drop the blank before a first word when they see it alone; in its place it had one."""
    return f" {text}" if sent.startswith(" ") and not text.startswith(" ") else text


def _agree(text: str, sent: str, count: int) -> Cut | None:
    """The cut after `count` ids, if their text is whole and agrees with what was sent."""
    if text.endswith(REPLACEMENT):
        return None
    text = _spaced(text, sent)
    if text.startswith(sent):
        return Cut(count, text, pending=text[len(sent) :])
    return Cut(count, text, surplus=sent[len(text) :]) if sent.startswith(text) else None
