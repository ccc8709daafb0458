"""Server-sent events, read incrementally beside the relay: counts, usage, errors, boundaries. Bytes are never changed.

Framing after WHATWG HTML, "Server-sent events": lines end with LF, CRLF or CR; a field name is case-sensitive and takes
one optional space after its colon; lines starting with a colon are comments; a blank line ends an event. Against that
text, an event the stream ends without a blank line still counts: engines have been seen to end so. Nothing of the
stream is kept but one unfinished event, of bounded size.

What lives here: framing. What must not: the meaning of an event (`chunks`).
"""

import re
from typing import Final

import msgspec

from headway.wire.chunks import Tally
from headway.wire.shapes import UsageOnly

MAX_EVENT_BYTES: Final = 1024 * 1024
"""An event longer than this is counted but not read."""

MAX_HELD_BYTES: Final = 64 * 1024
"""A usage event is a few hundred bytes: an unfinished event longer than this is none."""

LESSONS: Final = 4
"""Patterns tried on one stream. Engines repeat all but the text; a stream whose events differ in more is read whole."""

_KEYS: Final = (b'content":"', b'"text":"', b'reasoning":"')
_TOLD: Final = b'"token_ids":['
_CLOSE: Final = b"]}]}"
_UNUSUAL: Final = re.compile(rb'["\\\x00-\x1f]')
"""What no JSON text has without an escape, and the escape."""

FEW_BYTES: Final = 16
SPACE: Final = 0x20
QUOTE: Final = 0x22
BACKSLASH: Final = 0x5C


class Scanner(Tally):
    """Feed it every byte of a stream, in any pieces.

    `events` complete events with data (`[DONE]` too); the rest as in `Tally`: `tokens`, `done`, `finished`, `aborted`,
    `hit_limit`, `error`, `usage`. `clean`: between two events, nothing unfinished. `open`: the unfinished event has a
    finished line.
    """

    __slots__ = (
        "_after_cr", "_data", "_ending", "_held", "_held_size", "_lead", "_lessons", "_middle", "_size", "_skipping",
        "_trail", "clean", "events", "open",
    )  # fmt: skip

    def __init__(self) -> None:
        super().__init__()
        self.events = 0
        self.clean = True  # the usual state when a piece arrives
        self._held: list[bytes] = []  # pieces of an unfinished line
        self._data: list[bytes] = []  # data lines of an unfinished event
        self._held_size = 0
        self._size = 0  # bytes of the finished lines of the unfinished event
        self.open = False
        self._skipping = False
        self._after_cr = False
        self._middle = b""  # from the text to a token's id, where ids are told
        self._lead = self._trail = b""  # what surrounds the text in events that say one token and nothing else
        self._ending = b""  # the trail, and the end of its event
        self._lessons = LESSONS

    @property
    def first_content(self) -> bool:
        """Whether any content was seen."""
        return self.tokens > 0

    @property
    def empty(self) -> bool:
        """Whether nothing was said yet, a bare `[DONE]` apart."""
        return self.events <= self.done

    @property
    def at_boundary(self) -> bool:
        """Whether an event or a comment line may be inserted here without breaking one in two."""
        return self.clean or not (self.open or self._held)

    @property
    def complete(self) -> bool:
        """Whether an end of the stream now is a proper one: `[DONE]` or a finish reason was seen."""
        return self.done or self.finished

    def feed(self, data: bytes) -> bool:
        """Read the next piece of the stream. True if it was seen at a glance to be whole events that say one token
        each, and nothing else. (Under load a piece is several events: none of them may cost a decoding then.)"""
        if not self.clean or not data.endswith(b"\n\n"):
            self._feed_lines(data)
            return False
        lead, ending = self._lead, self._ending
        if lead and data.startswith(lead) and data.endswith(ending) and _plain(data[len(lead) : -len(ending)]):
            self.events += 1
            self.tokens += 1
            return True
        glance, at = True, 0
        blocks = data.split(b"\n\n")
        blocks.pop()
        for block in blocks:
            if self._lead and self._says_one(block):
                self.events += 1
                self.tokens += 1
            elif block.startswith(b"data: ") and b"\n" not in block and b"\r" not in block:
                glance = False
                self._read_one(block)
            else:
                self._feed_lines(data[at:])
                return False
            at += len(block) + 2
        return glance

    def _says_one(self, event: bytes) -> bool:
        """Whether an event differs from one that was learned within its text, or its text and one token's id, alone."""
        lead, trail = self._lead, self._trail
        if not event.startswith(lead):
            return False
        if event.endswith(trail) and _plain(event[len(lead) : -len(trail)]):
            return True
        middle = self._middle
        if not middle or not event.endswith(_CLOSE):
            return False
        text, told, digits = event[len(lead) : -len(_CLOSE)].partition(middle)
        return bool(told) and digits.isdigit() and _plain(text)

    def _read_one(self, event: bytes) -> None:
        """One event of one line."""
        self.events += 1
        before = self.tokens
        self.read(event[6:])
        if self._lessons and self.tokens == before + 1 and self.silent:
            self._learn(event)

    def end(self) -> None:
        """The stream ended: an unterminated last event counts."""
        if self._held:
            self._line(b"".join(self._held))
            self._held.clear()
            self._held_size = 0
        if self.open:
            self._dispatch()
        self.clean = True

    def _learn(self, event: bytes) -> None:
        """This event said one token, and nothing else. So does every other that differs only within a text of it."""
        self._lessons -= 1
        for key in _KEYS:
            begin = event.find(key) + len(key)
            end = event.find(b'"', begin)
            if len(key) <= begin < end and _plain(event[begin:end]):
                self._lead, self._trail = event[:begin], event[end:]
                self._ending = self._trail + b"\n\n"
                at = event.find(_TOLD, end) + len(_TOLD)
                told = at > end and event.endswith(_CLOSE) and event[at : -len(_CLOSE)].isdigit()
                self._middle = event[end:at] if told else b""
                return

    def _feed_lines(self, data: bytes) -> None:
        if self._after_cr and data.startswith(b"\n"):
            data = data[1:]
        elif not data:
            return
        lines = data.splitlines()
        self._after_cr = data.endswith(b"\r")
        rest = lines.pop() if data and not data.endswith((b"\n", b"\r")) else b""
        for line in lines:
            if self._held:
                line = b"".join((*self._held, line))
                self._held.clear()
                self._held_size = 0
            self._line(line)
        if rest:
            self._hold(rest)
        self.clean = not (self._held or self.open or self._after_cr)

    def _hold(self, rest: bytes) -> None:
        self._held.append(rest)
        self._held_size += len(rest)
        if self._size + self._held_size > MAX_EVENT_BYTES:
            self._skipping = True
            self._data.clear()
            self._held[:] = [self._held[0][:1]]  # enough to tell a comment from a field

    def _line(self, line: bytes) -> None:
        if not line:
            self._dispatch()
        elif line.startswith(b":"):
            self._skipping = self._skipping and self.open
        else:
            self.open = True
            self._size += len(line)
            if self._skipping or self._size > MAX_EVENT_BYTES:
                self._skipping = True
                self._data.clear()
            elif line.startswith(b"data:"):
                self._data.append(line[6:] if line.startswith(b"data: ") else line[5:])

    def _dispatch(self) -> None:
        if self._skipping:
            self.events += 1
        elif self._data:
            self.events += 1
            self.read(b"\n".join(self._data))
            self._data.clear()
        self._size = 0
        self.open = False
        self._skipping = False


def _plain(text: bytes) -> bool:
    """Whether this, between two quotes, is all of a JSON text that is not empty and escapes nothing."""
    if not 0 < len(text) <= FEW_BYTES:
        return bool(text) and _UNUSUAL.search(text) is None
    for at in range(len(text)):  # a token has few bytes, and compiled, a look at each costs less than a search
        byte = text[at]
        if byte < SPACE or byte in (QUOTE, BACKSLASH):
            return False
    return True


_BLANK_LINE: Final = re.compile(rb"(?:\r\n|\n|\r(?!\n))(?:\r\n|\n|\r)")
_COMMENTS: Final = re.compile(
    rb"(?:(?::[^\r\n]*)?(?:\r\n|\n|\r(?=[^\n])))*"
)  # and empty lines; a last CR may get an LF
_DATA: Final = re.compile(rb"(?<![^\r\n])data:([^\r\n]*)")


_USAGE_ONLY: Final = msgspec.json.Decoder(UsageOnly)


class UsageStripper:
    """Drops exactly the usage-only event (`"choices":[]` with usage) that our splice made the engine send.

    Holds back an unfinished event only while it could still be that one; comments are never held with an event.
    """

    __slots__ = ("_after_cr", "_held", "_passing")

    def __init__(self) -> None:
        self._held = b""
        self._passing = False  # the unfinished event has begun to go out
        self._after_cr: bytes | None = None  # what an LF becomes that completes the CR the last event ended with

    def feed(self, data: bytes) -> bytes:
        """The bytes to pass on now."""
        idle = not self._held and not self._passing and self._after_cr is None
        if idle and data.endswith(b"\n\n") and b'"usage"' not in data:
            return data
        data = self._held + data
        out: list[bytes] = []
        at = 0
        if data and self._after_cr is not None:
            at = int(data.startswith(b"\n"))
            out.append(self._after_cr[:at])
            self._after_cr = None
        for blank in _BLANK_LINE.finditer(data, at):
            event = data[at : blank.end()]
            out.append(event if self._passing else _without_usage(event))
            self._passing = False
            at = blank.end()
        if out and at == len(data) and data.endswith(b"\r"):
            self._after_cr = b"\n" if out[-1].endswith(b"\r") else b""
        out.append(self._release(data[at:]))
        return b"".join(out)

    def end(self) -> bytes:
        """The bytes still held back: an unterminated event, dropped if it is the usage."""
        held, self._held = self._held, b""
        return held if self._passing else _without_usage(held)

    def _release(self, tail: bytes) -> bytes:
        """Let an unfinished event go as soon as it cannot be the usage; only its line ends stay, to find its end.
        Comments in front of it go at once: they are heartbeats."""
        if not self._passing and len(tail) < MAX_HELD_BYTES and b'"choices":[{' not in tail:
            comments = _COMMENTS.match(tail)
            begin = comments.end() if comments else 0
            self._held = tail[begin:]
            return tail[:begin]
        self._passing = True
        kept = len(tail.rstrip(b"\r\n"))
        self._held = tail[kept:]
        return tail[:kept]


def _without_usage(event: bytes) -> bytes:
    """The event, or only the comments in front of it when it is the usage-only event."""
    if b'"usage"' not in event:
        return event
    try:
        chunk = _USAGE_ONLY.decode(b"\n".join(_DATA.findall(event)))
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return event
    comments = _COMMENTS.match(event)
    return event if chunk.choices else comments[0] if comments else b""
