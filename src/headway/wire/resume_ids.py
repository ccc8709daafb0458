"""Token ids asked for on a client's behalf, and taken out again: what the client gets is what the engine would have
sent without the extra field.

An event's JSON says `"token_ids":null` unless ids were asked for (vLLM, recorded), so taking them out is writing null
in their place. The words cannot be mistaken for text: within a JSON string each quotation mark has a backslash.
"""

import re
from typing import Final

from headway.wire.resume import Tape
from headway.wire.splice import Edit, Octets

MAX_HELD_BYTES: Final = 1024 * 1024
"""An unfinished event longer than this is passed on unread, and pins the request."""

_BLANK: Final = re.compile(rb"\r\n\r\n|\n\n|\r\r")
_DATA: Final = re.compile(rb"(?<![^\r\n])data: ?([^\r\n]*)")
_IDS: Final = re.compile(rb'("(?:prompt_)?token_ids":)\[[0-9, ]*\]')
_TOLD: Final = b'"token_ids":['
_CLOSE: Final = b"]}]}\n\n"
_BEHIND: Final = b"}]}\n\n"
_KEYS: Final = (b'content":"', b'"text":"')
_UNUSUAL: Final = re.compile(rb'["\\\x00-\x1f]')
"""What no JSON text has without an escape, and the escape."""

_ASKED: Final = re.compile(rb'"return_token_ids"\s*:\s*(true|false|null)')


def ids_edit(body: Octets) -> Edit | None:
    """The edit that asks for token ids; None where the client has asked itself (then they are not to be taken out)."""
    asked = _ASKED.search(body)
    if asked is None:
        at = body.find(b"{") + 1
        return at, at, b'"return_token_ids":true,'
    return None if asked[1] == b"true" else (asked.start(1), asked.end(1), b"true")


class Frames:
    """Cuts a stream into its events: `feed` returns the data of those that are complete now. Comments are dropped."""

    __slots__ = ("_held",)

    def __init__(self) -> None:
        self._held = b""

    def feed(self, data: bytes) -> list[bytes]:
        """The next piece of the stream."""
        data = self._held + data
        last = 0
        found: list[bytes] = []
        for blank in _BLANK.finditer(data):
            found.append(data[last : blank.start()])
            last = blank.end()
        self._held = data[last:]
        return [said for event in found if (said := data_of(event)) is not None]

    def end(self) -> list[bytes]:
        """The stream ended: an event without its blank line counts."""
        said, self._held = data_of(self._held), b""
        return [] if said is None else [said]


class IdStripper:
    """Passes a stream on, event by event, tells the tape what it says, and takes token ids out if `strip`."""

    __slots__ = ("_held", "_lead", "_middle", "_strip", "tape")

    def __init__(self, tape: Tape, strip: bool = True) -> None:
        self.tape = tape
        self._strip = strip
        self._held = b""
        self._lead = self._middle = b""  # what surrounds the text in events that say one token and nothing else

    def feed(self, data: bytes) -> bytes:
        """The bytes to pass on now: all but an unfinished event."""
        if self._lead and not self._held and data.startswith(self._lead):
            known = self._known(data)
            if known:
                return known
        if not self._held and _is_one(data):
            steps = self.tape.steps
            self.tape.read(data[6:-2])
            if self.tape.steps > steps:
                self._learn(data)
            return self._passed(data)
        data = self._held + data
        last = 0
        for blank in _BLANK.finditer(data):
            self._read(data[last : blank.start()])
            last = blank.end()
        self._held = data[last:]
        if len(self._held) > MAX_HELD_BYTES:
            self.tape.pinned = "unreadable"
            last, self._held = len(data), b""
        return self._passed(data[:last])

    def _known(self, data: bytes) -> bytes:
        """The same for an event that differs from one seen before within its text and its id alone; nothing if it is
        none. The path of every token."""
        begin = len(self._lead)
        end = data.find(b'"', begin)
        at = end + len(self._middle)
        if not (data.startswith(self._middle, end) and data.endswith(_CLOSE)):
            return b""
        digits = data[at : -len(_CLOSE)]
        if not digits.isdigit() or _UNUSUAL.search(data, begin, end) is not None:
            return b""
        try:
            self.tape.hear(data[begin:end].decode(), int(digits), data[6:-2])
        except UnicodeDecodeError:
            return b""
        return b"%bnull%b" % (data[: at - 1], _BEHIND) if self._strip else data

    def _learn(self, data: bytes) -> None:
        """This event said something."""
        for key in _KEYS:
            begin = data.find(key) + len(key)
            end = data.find(b'"', begin)
            at = data.find(_TOLD, end) + len(_TOLD)
            one = len(key) <= begin < end < at and data.endswith(_CLOSE) and data[at : -len(_CLOSE)].isdigit()
            if one and _UNUSUAL.search(data, begin, end) is None:
                self._lead, self._middle = data[:begin], data[end:at]
                return

    def end(self) -> bytes:
        """What is left: an event without its blank line counts."""
        held, self._held = self._held, b""
        self._read(held)
        return self._passed(held)

    def _read(self, event: bytes) -> None:
        said = data_of(event)
        if said is not None:
            self.tape.read(said)

    def _passed(self, data: bytes) -> bytes:
        """Event by event there is one list of ids, near the end, in what was written with no blanks."""
        if not self._strip or (at := data.rfind(b'token_ids":[')) < 0:
            return data
        if data.find(b'token_ids":[', 0, at) < 0 and data.find(b'"', at + 12) < 0 and data.endswith(b"]}]}\n\n"):
            return data[: at + 11] + b"null" + data[-5:]
        return _IDS.sub(rb"\1null", data)


def _is_one(data: bytes) -> bool:
    """Whether these bytes are one whole event of one line, as nearly all are."""
    return data.startswith(b"data: ") and data.endswith(b"\n\n") and data.count(b"\n") == 2 and b"\r" not in data


def data_of(event: bytes) -> bytes | None:
    """The data lines of an event, None if it has none."""
    if event.startswith(b"data: ") and event.find(b"\n") < 0 and event.find(b"\r") < 0:
        return event[6:]
    lines = _DATA.findall(event)
    return b"\n".join(lines) if lines else None
