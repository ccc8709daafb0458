"""Where lines go: one thread that writes them, so that a slow, full or closed log never stops the event loop.

Lines wait in a bounded queue; what does not fit, or cannot be written, is dropped and counted. After a failed write
the thread rests before it tries again, so a full disk costs nothing and heals by itself.
"""

import os
import threading
import time
from collections import deque
from collections.abc import Callable

CAPACITY = 20_000
"""Lines that may wait: some seconds of a busy access log, a few MB."""

GATHER_S = 0.05
"""After waking, wait this long for company: at most 20 writes a second, however busy."""

REST_S = (1.0, 2.0, 5.0, 10.0)
"""Pauses after the first, second ... failed write in a row."""

CLOSE_WAIT_S = 1.0
"""A log that does not take lines any more must not delay exit."""

BATCH = 1_000
"""Lines per write, so that formatting never holds the interpreter for long."""


class LineSink:
    """Writes what `put` is given, in order, on a thread of its own. `write` takes bytes or raises OSError."""

    def __init__(
        self,
        write: Callable[[bytes], None],
        capacity: int = CAPACITY,
        rest_s: tuple[float, ...] = REST_S,
        gather_s: float = GATHER_S,
    ) -> None:
        self.dropped = 0
        self.written = 0
        self.last_error = ""
        self._write = write
        self._capacity = capacity
        self._rest_s = rest_s
        self._gather_s = gather_s
        self._queue: deque[Callable[[], str]] = deque()
        self._wake = threading.Event()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._work, name="headway-log", daemon=True)
        self._thread.start()

    def put(self, line: Callable[[], str]) -> None:
        """Queue a line, given as a function that makes its text. Never blocks, never raises."""
        if len(self._queue) >= self._capacity:
            self.dropped += 1
            return
        self._queue.append(line)
        if not self._wake.is_set():
            self._wake.set()

    def close(self, wait_s: float = CLOSE_WAIT_S) -> None:
        """Write what waits, for at most `wait_s`, and end the thread."""
        self._closing.set()
        self._wake.set()
        self._thread.join(wait_s)

    def _work(self) -> None:
        failures = 0
        while not self._closing.is_set() or self._queue:
            self._wake.wait()
            self._closing.wait(self._gather_s)
            self._wake.clear()
            while self._queue:
                lines = [self._queue.popleft() for _ in range(min(BATCH, len(self._queue)))]
                failures = 0 if self._deliver(lines) else failures + 1
                if failures and self._rest(failures):
                    return

    def _rest(self, failures: int) -> bool:
        """Pause after a failed write; True when it is time to give up, because the process ends."""
        return self._closing.wait(self._rest_s[min(failures, len(self._rest_s)) - 1])

    def _deliver(self, lines: list[Callable[[], str]]) -> bool:
        try:
            self._write("".join(f"{line()}\n" for line in lines).encode(errors="backslashreplace"))
        except (OSError, ValueError) as error:
            self.dropped += len(lines)
            self.last_error = str(error)
            return False
        self.written += len(lines)
        return True


def to_descriptor(descriptor: int) -> Callable[[bytes], None]:
    """A `write` for a file descriptor. It is duplicated, so that closing the original cannot send log lines into
    whatever file or socket gets its number next."""
    own = os.dup(descriptor)

    def write(data: bytes) -> None:
        view = memoryview(data)
        deadline = time.monotonic() + 5.0
        while view:
            try:
                view = view[os.write(own, view) :]
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.01)

    return write


def to_nowhere(_data: bytes) -> None:
    """A `write` for a process whose standard streams were closed: lines are dropped."""
    raise OSError("there is no stream to log to")
