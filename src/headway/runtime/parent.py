"""Noticing that the process which started this one is gone, killed outright included: then nobody else ends it."""

import asyncio
import os
import stat

STDIN = 0
CHECK_S = 0.5


async def parent_gone() -> None:
    """Return once it is. A parent that gives a pipe as standard input is gone when the pipe ends, which also holds if
    it died before we looked; without one, it is gone when we have another parent."""
    mode = os.fstat(STDIN).st_mode
    if stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode):
        await _end_of_input()
        return
    parent = os.getppid()
    while os.getppid() == parent:  # noqa: ASYNC110 - the system tells nobody
        await asyncio.sleep(CHECK_S)


async def _end_of_input() -> None:
    loop, ended = asyncio.get_running_loop(), asyncio.Event()

    def read() -> None:
        if not os.read(STDIN, 4096):
            ended.set()

    loop.add_reader(STDIN, read)
    try:
        await ended.wait()
    finally:
        loop.remove_reader(STDIN)
