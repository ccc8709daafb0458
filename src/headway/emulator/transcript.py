"""The text of one choice as it grows: detokenised, held back where a stop string may begin, cut where one ends."""

from headway.emulator.asks import Ask
from headway.perfmodel.text import Detokenizer, decode
from headway.perfmodel.vocabulary import FIRST_BYTE, TOKENS


class Transcript:
    """One choice. `ids`: tokens so far; `text`: what may be shown; `finish` and `stop_reason`: why it ended."""

    __slots__ = ("_ask", "_decoder", "_hold", "_told", "_told_ids", "finish", "ids", "stop_reason", "text")

    def __init__(self, ask: Ask, prompt: list[int]) -> None:
        self._ask = ask
        self._decoder = Detokenizer(prompt)
        self._hold = 0 if ask.include_stop else max(map(len, ask.stop), default=1) - 1
        self._told = self._told_ids = 0
        self.ids: list[int] = []
        self.text = decode(prompt, skip_special=True) if ask.echo else ""
        self.finish = ""
        self.stop_reason: int | str | None = None

    def push(self, token: int, finish: str, stop_reason: int | None) -> None:
        """Take in one token; `finish` as the engine sees it. A stop string may end the choice earlier."""
        self.ids.append(token)
        before = len(self.text)
        piece = self._decoder.push(token)
        if token < FIRST_BYTE and not self._ask.skip_special:
            piece += TOKENS[token].decode()
        self.finish, self.stop_reason = finish, stop_reason
        if finish:
            piece += self._decoder.finish()
        self.text += piece
        if self._ask.stop and piece:
            self._look_for_stop(before)

    def end(self, finish: str) -> None:
        """It ended without a token (aborted)."""
        self.finish = finish
        self.text += self._decoder.finish()

    def _look_for_stop(self, before: int) -> None:
        if len(self.ids) < self._ask.min_tokens:
            return
        places = [(self.text.find(stop, max(0, before - len(stop) + 1)), stop) for stop in self._ask.stop]
        found = min((place for place in places if place[0] >= 0), default=None)
        if found is None:
            return
        place, stop = found
        self.text = self.text[: place + (len(stop) if self._ask.include_stop else 0)]
        self.finish, self.stop_reason = "stop", stop

    def delta(self) -> str:
        """The text that has become certain since the last call."""
        end = len(self.text) if self.finish else max(self._told, len(self.text) - self._hold)
        piece = self.text[self._told : end]
        self._told = end
        return piece

    def new_ids(self) -> list[int]:
        """The ids since the last call."""
        ids = self.ids[self._told_ids :]
        self._told_ids = len(self.ids)
        return ids
