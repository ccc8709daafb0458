"""What one request has said so far, as its client saw it.

What lives here: the tape of a stream (`Tape`). What must not: where another replica may take over (`resume_cut`), the
body that asks it to go on (`resume_body`), what the client then sees (`resume_splice`), and when to do it.

The tape keeps which word came with which id, for ids and text of a stream are seldom at the same place.
"""

from collections.abc import Callable, Sequence

import msgspec
from msgspec import Raw

from headway.wire.resume_cut import Cut, Search, Told, search
from headway.wire.resume_shapes import ABSENT, Chunk, Part

LONGEST_WORD = 80
"""Characters in which a word's start is looked for."""

_CHUNK = msgspec.json.Decoder(Chunk)
_UNREADABLE = (msgspec.DecodeError, RecursionError, UnicodeDecodeError)
_EMPTY = frozenset({b"", b"null", b"[]", b'""'})


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
        "_beyond", "_parts", "_text", "done", "error", "finish_reason", "ids", "opened", "pinned", "prompt_ids",
        "prompt_tokens", "reported", "sample", "steps", "totalled",
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
        self._text = ""  # what was said before the parts
        # of the last ids, what was said as each came; of streams without ids, what was said
        self._parts: list[str] = []
        self._beyond = 0  # characters of the text that belong to the first of these ids

    @property
    def text(self) -> str:
        """All the client has been sent, in one string."""
        return "".join((self._text, *self._parts))

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
        if ids:
            if not self.ids:
                self._fold()
            self._parts += [""] * (len(ids) - 1)
            self._parts.append(text)
            self.ids += ids
        elif self._parts and self.ids:
            self._parts[-1] += text
        elif self.ids:
            self._text += text
        elif text:
            self._parts.append(text)

    def hear(self, text: str, token: int, data: bytes) -> None:
        """One event that says one token and nothing else, as whoever calls this knows without reading it."""
        self._parts.append(text)
        self.ids.append(token)
        self.steps += 1
        self.sample = data

    def rewind(self, cut: Cut) -> None:
        """Forget the ids from here on: another replica generates from there. What was sent stays sent."""
        if self.ids:
            self._fold()
        self._beyond = len(cut.surplus)
        del self.ids[cut.count :]

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
        other._text = self._text
        other._parts = self._parts.copy()
        other._beyond = self._beyond
        return other

    def replay_prefix(
        self, detokenise: Callable[[Sequence[int]], str], hold: int = 0, back: int = 0, lags: bool = False
    ) -> Cut:
        """The cut, where ids are told and a detokeniser is at hand. See `search`."""
        search = self.search(hold, back, lags)
        try:
            ids = next(search)
            while True:
                ids = search.send(detokenise(ids))
        except StopIteration as found:
            cut: Cut = found.value
            return cut

    def search(self, hold: int = 0, back: int = 0, lags: bool = False) -> Search:
        """The longest prefix of the ids that is whole text and a prefix of what was sent, less `back` characters.

        `lags`: the engine holds back what may become a stop string. Then it may go beyond what was sent by up to `hold`
        characters.
        """
        words = self._parts if self.ids else []
        return search(Told(self.ids, self.text, words, self._beyond), hold, back, lags)

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

    def _fold(self) -> None:
        self._text = self.text
        self._parts.clear()

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
