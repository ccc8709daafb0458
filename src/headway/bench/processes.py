"""Child processes of a run, and the promise that none of them outlives it.

Each child is the leader of a process group of its own, so that Ctrl-C in a terminal reaches only us and we end them in
order: SIGTERM, a grace, SIGKILL. The same happens on exceptions; `atexit` kills what is left if nobody asked. If we are
killed outright, the pipe that is their standard input ends, and children with `--exit-with-parent` follow. What
children print goes to a file each, whose end is shown when one dies before its time.
"""

import asyncio
import atexit
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

PROGRAM = ("-m", "headway")
"""What the interpreter runs; tests put something smaller in its place."""
GRACE_S = 5.0
POLL_S = 0.02
TAIL_BYTES = 2000


class ChildDied(Exception):
    """A child ended before it should; the text has its name, its exit status and the end of its output."""


class Child:
    """One running process."""

    def __init__(self, name: str, arguments: Sequence[str], log: Path) -> None:
        self.name, self._log = name, log
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                [sys.executable, *PROGRAM, *arguments],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """Its process id, which is its process group's too."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether it still runs."""
        return self._process.poll() is None

    def output(self) -> str:
        """The end of what it printed."""
        return self._log.read_bytes()[-TAIL_BYTES:].decode(errors="replace")

    def check(self) -> None:
        """Raise ChildDied if it does not run any more."""
        if not self.alive:
            raise ChildDied(f"{self.name} ended with status {self._process.returncode}:\n{self.output()}")

    def send(self, number: signal.Signals) -> None:
        """Signal its whole group, unless it was reaped already (its number may belong to somebody else by then)."""
        if self.alive:
            try:
                os.killpg(self.pid, number)
            except ProcessLookupError:
                return

    def reap(self) -> None:
        """Wait for a process that was killed."""
        self._process.wait()
        assert self._process.stdin is not None
        self._process.stdin.close()


class Children:
    """Starts children and ends all of them on leaving. An async context manager."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._children: list[Child] = []

    def start(self, name: str, *arguments: str) -> Child:
        """Run `headway <arguments>` under this interpreter."""
        child = Child(name, arguments, self._folder / f"{name}-{len(self._children)}.log")
        self._children.append(child)
        return child

    def check(self) -> None:
        """Raise ChildDied if any of them ended."""
        for child in self._children:
            child.check()

    async def stop(self) -> None:
        """SIGTERM to all, in reverse order of starting; SIGKILL to those that are left after the grace."""
        try:
            for child in reversed(self._children):
                child.send(signal.SIGTERM)
            for _ in range(round(GRACE_S / POLL_S)):
                if not any(child.alive for child in self._children):
                    break
                await asyncio.sleep(POLL_S)
        finally:
            self.kill()

    def kill(self) -> None:
        """End every child at once. Harmless when there is none."""
        for child in self._children:
            child.send(signal.SIGKILL)
            child.reap()
        self._children.clear()

    async def __aenter__(self) -> Self:
        atexit.register(self.kill)
        return self

    async def __aexit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        await self.stop()
        atexit.unregister(self.kill)
