"""The journal's file: a header, then one line per event with the commands it led to.

A journal with a hole is worthless, so the first line that cannot be written ends it: what is there stays a valid
beginning. Writing goes through a buffer; a crash loses at most the last second.
"""

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

import structlog

from headway.core.commands import Command
from headway.core.events import Event
from headway.runtime.clock import now
from headway.wire.journal import encode_entry

log = structlog.get_logger(__name__)

BUFFER_BYTES = 1024 * 1024
FLUSH_S = 1.0


class JournalWriter:
    """Call it with each event and the commands it led to. Raises OSError, naming the file, when it cannot be begun."""

    def __init__(self, path: Path, header: bytes, clock: Callable[[], float] = now) -> None:
        self.path = path
        self.events = 0
        self._clock = clock
        self._flushed_at = clock()
        self._file: BinaryIO | None = _begin(path, header)

    def __call__(self, event: Event, commands: list[Command]) -> None:
        """Append one event and its answer."""
        if self._file is None:
            return
        try:
            self._file.write(encode_entry(event, commands, self.events + 1))
            if self._clock() - self._flushed_at > FLUSH_S:
                self._file.flush()
                self._flushed_at = self._clock()
            self.events += 1
        except OSError as error:
            self._give_up(error)

    def close(self) -> None:
        """Write what is buffered."""
        file, self._file = self._file, None
        if file is None:
            return
        try:
            file.close()
        except OSError as error:
            log.error("the journal is incomplete", path=str(self.path), error=str(error))

    def _give_up(self, error: OSError) -> None:
        log.error("the journal ends here: it cannot be written", path=str(self.path), error=str(error))
        self.close()


def _begin(path: Path, header: bytes) -> BinaryIO:
    file = path.open("wb", buffering=BUFFER_BYTES)
    try:
        file.write(header)
        file.flush()
    except OSError as error:
        with contextlib.suppress(OSError):  # the same again: the buffer is written when it is closed
            file.close()
        raise OSError(error.errno, error.strerror, str(path)) from error
    return file
