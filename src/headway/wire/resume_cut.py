"""Where another replica may take over, if the stream tells its token ids.

What lives here: the place (`Cut`) and how it is found, as generators that give ids and want what the engine spells of
them. What must not: the tape, bodies, and connections.

A token is no text: it may end inside a character, it may be special and said to nobody (an end that is ignored), and
engines hold text back that may yet become a stop string. A prompt that ends inside a character makes engines leak
pieces of the prompt or lose the character (vLLM 0.32, recorded).

Where nothing is held back for stop strings, an engine that says something has said all it had: the place behind its
last word is one, and a few ids before it, spelled, confirm that (`by_events`). Else the place is the longest prefix of
the ids whose own text is whole and agrees with what was sent (`by_text`). What was sent beyond is generated again.
"""

from collections.abc import Generator, Iterable, Sequence
from itertools import islice
from typing import Final

import msgspec

REPLACEMENT: Final = "\ufffd"
"""What detokenisers write for bytes that are no character (yet)."""

LONGEST_CHARACTER: Final = 4
"""Bytes of UTF-8: so many tokens at most are held back by a character that is not finished."""

CONFIRMING: Final = 16
"""Words in a row, at most, that are spelled to see that the engine says what it has."""

PLACES: Final = 4
"""Places that are tried from the last one back before all of the text is compared."""

MOST_SILENT: Final = 16
"""Different ids that are asked about, at most, because nothing was said of them."""


class Cut(msgspec.Struct, frozen=True):
    """Where another replica takes over: `count` tokens are replayed, whose text is `text`.

    `pending`: the end of `text` that was not sent yet (the engine held it back). `surplus`: what was sent beyond
    `text`, and is generated again. At most one of the two is there.
    """

    count: int
    text: str
    pending: str = ""
    surplus: str = ""


class Told(msgspec.Struct, frozen=True):
    """What was generated and what of it was sent: `ids`; `sent`; `words`, the last `len(words)` ids' own: what was said
    when each came, "" if nothing; `beyond`: characters that had been sent before the first of these, and were said
    again."""

    ids: list[int]
    sent: str
    words: list[str]
    beyond: int = 0


Search = Generator[Sequence[int], str, Cut]
"""Gives ids, wants their text, returns the cut: for callers whose detokeniser is on the other side of a network."""

Asking = Generator[Sequence[int], str, bool]


def search(told: Told, hold: int, back: int, lags: bool) -> Search:
    """The cut. See `Tape.search`."""
    if not lags:
        found = yield from _by_events(told, back)
        if found is not None:
            return found
    return (yield from _by_text(told, hold, back, lags))


def _by_events(told: Told, back: int) -> Generator[Sequence[int], str, Cut | None]:
    """Behind a word that was said, at least `back` characters before the end."""
    words, sent = told.words, told.sent
    first = len(told.ids) - len(words)
    spoken = [place for place, word in enumerate(words, 1) if word]
    after, tried = 0, 0
    for number in range(len(spoken) - 1, -1, -1):
        end = spoken[number]
        if after >= back and not words[end - 1].endswith(REPLACEMENT):
            if tried == PLACES:
                return None
            tried += 1
            if (yield from _confirmed(told, spoken[number - 1] if number else 0, end)):
                count = first + end
                if not after and (yield from _silent(told.ids[count:])):
                    count = len(told.ids)
                return Cut(count, sent[: len(sent) - after], surplus=sent[len(sent) - after :])
        after += len(words[end - 1])
    if tried and not first:
        return None
    after = after + told.beyond if first else len(sent)
    return Cut(first, sent[: len(sent) - after], surplus=sent[len(sent) - after :])


def _confirmed(told: Told, before: int, end: int) -> Asking:
    """Whether the ids spell what was said, as far as up to this word. `before`: the place behind the word before it."""
    words, first = told.words, len(told.ids) - len(told.words)
    begin = end - 1
    while begin and end - begin < CONFIRMING and words[begin - 1]:
        begin -= 1
    for start in sorted({begin, before}):
        ids = told.ids[first + start : first + end]
        if (start or not told.beyond) and (yield from _spells(ids, "".join(words[start:end]))):
            return True
    return (yield from _but_for_one(told.ids[first + before : first + end], "".join(words[before:end])))


def _but_for_one(ids: list[int], said: str) -> Asking:
    """Whether the ids spell this if one of them is special, and said to nobody."""
    for one in islice(dict.fromkeys(ids), MOST_SILENT):
        if (yield from _spells([other for other in ids if other != one], said)) and (yield from _whole([one])):
            return True
    return False


def _spells(ids: list[int], said: str) -> Asking:
    if not ids:
        return False
    return _spaced((yield ids), said) == said


def _silent(ids: list[int]) -> Asking:
    """Whether these ids, of which nothing was said, are special ones: they spell something whole. A few are better
    generated again, whatever they are."""
    return len(ids) >= LONGEST_CHARACTER and (yield from _whole(ids))


def _whole(ids: list[int]) -> Asking:
    spelled = yield ids
    return bool(spelled) and REPLACEMENT not in spelled


def _by_text(told: Told, hold: int, back: int, lags: bool) -> Search:
    """The longest prefix of the ids that is whole text and a prefix of what was sent, less `back` characters. It may go
    beyond what was sent by up to `hold` characters.

    Usually the first or second text decides. Where the engine's running text differs from that of the ids taken
    together (broken characters), a binary search narrows down where they part, before the walk goes on from there.
    """
    ids, sent = told.ids, told.sent
    # What is held back says nothing of ids that are special: behind the last word, nobody can tell.
    count = len(ids) - _quiet_end(told.words) if lags else len(ids)
    silent = yield from _specials(told)
    near = max(0, count - 2 * LONGEST_CHARACTER - back)
    most = max(0, len(sent) - back) + hold
    while count > 0:
        found = _agree((yield _saying(ids[:count], silent)), sent, count)
        if found is not None and len(found.pending) <= hold and len(found.text) <= most:
            return found
        count -= 1
        if count == near:
            count = yield from _last_agreeing(ids[:count], sent, silent)
        while count and ids[count - 1] in silent:
            count -= 1
    return Cut(0, "", surplus=sent)


def _quiet_end(words: Sequence[str]) -> int:
    return next((place for place, word in enumerate(reversed(words)) if word), len(words))


def _specials(told: Told) -> Generator[Sequence[int], str, set[int]]:
    """Ids of which nothing was ever said although they spell something whole."""
    begin = next((place for place, word in enumerate(told.words) if word), len(told.words))
    first = len(told.ids) - len(told.words)
    pairs = list(zip(told.ids[first + begin :], told.words[begin:], strict=True))
    said = {one for one, word in pairs if word}
    never = dict.fromkeys(one for one, word in pairs if not word and one not in said)
    found = set()
    for one in islice(never, MOST_SILENT):
        if (yield from _whole([one])):
            found.add(one)
    return found


def _last_agreeing(ids: list[int], sent: str, silent: set[int]) -> Generator[Sequence[int], str, int]:
    """Where the walk goes on: no prefix longer than this agrees with what was sent, but for an open character."""
    low, high = 0, len(ids)
    while low < high:
        middle = (low + high + 1) // 2
        text = yield _saying(ids[:middle], silent)
        low, high = (middle, high) if _parts_later(text, sent) else (low, middle - 1)
    return low


def _saying(ids: list[int], silent: Iterable[int]) -> list[int]:
    return [one for one in ids if one not in silent] if silent else ids


def _parts_later(text: str, sent: str) -> bool:
    """Whether the one is a prefix of the other, but for an open character."""
    text = _spaced(text, sent).rstrip(REPLACEMENT)
    return sent.startswith(text) or text.startswith(sent)


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
