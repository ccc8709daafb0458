"""Replaying a journal: the same events to a fresh brain must bring the same commands, line for line."""

from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import msgspec

from headway.compose.journal import FORMAT, Header
from headway.compose.plan import make_brain
from headway.compose.registry import Registry
from headway.core.brain import Brain
from headway.wire.journal import decode_event, encode_commands


class JournalError(Exception):
    """The file is no journal, or of a format this version does not read."""


class Mismatch(msgspec.Struct, frozen=True):
    """The first event whose commands differ. Lines count from 1; texts are JSON."""

    line: int
    event: bytes
    recorded: bytes
    replayed: bytes


class Step(msgspec.Struct, frozen=True):
    """One event was repeated. `bytes_read` counts from the beginning of the file, for progress."""

    events: int
    bytes_read: int
    mismatch: Mismatch | None = None


class Replay:
    """A journal and the brain it describes. Raises JournalError or SettingsError when opened."""

    def __init__(self, path: Path, registry: Registry) -> None:
        self.size = path.stat().st_size
        self._file: BinaryIO = path.open("rb")
        self.header = _header(self._file.readline())
        self._brain = make_brain(self.header, registry)

    def steps(self) -> Iterator[Step]:
        """Repeat event by event until the end or the first mismatch. A last line that was cut off is left out."""
        line, events = 1, 0
        with self._file:
            while True:
                event, recorded = self._file.readline(), self._file.readline()
                if not recorded.endswith(b"\n"):
                    return
                line, events = line + 2, events + 1
                mismatch = _compare(self._brain, line - 1, event.rstrip(), recorded.rstrip())
                yield Step(events, self._file.tell(), mismatch)
                if mismatch is not None:
                    return


def _header(line: bytes) -> Header:
    try:
        header = msgspec.json.decode(line, type=Header)
    except msgspec.DecodeError:
        raise JournalError("this is no journal of `headway serve --journal`") from None
    if header.format != FORMAT:
        raise JournalError(f"the journal has format {header.format}; this version reads {FORMAT}")
    return header


def _compare(brain: Brain, line: int, event: bytes, recorded: bytes) -> Mismatch | None:
    try:
        replayed = encode_commands(brain.handle(decode_event(event)))
    except msgspec.DecodeError as error:
        raise JournalError(f"line {line} cannot be read: {error}") from None
    return None if replayed == recorded else Mismatch(line, event, recorded, replayed)
