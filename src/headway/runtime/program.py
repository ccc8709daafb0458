"""Running another program to its end: without a shell, without our streams, and never for longer than it may take.

Its output goes nowhere: what it says may name secrets, and a pipe that nobody empties would stop it.
"""

import asyncio
import contextlib
import os
import signal
from collections.abc import Sequence

STOP_S = 1.0
"""Between asking a program to end and ending it."""


async def run(argv: Sequence[str], timeout_s: float) -> str:
    """What went wrong, empty if it ended with 0 in time. It has a process group of its own, which is ended as a whole
    when time is up or the caller is cancelled."""
    nowhere = asyncio.subprocess.DEVNULL
    try:
        process = await asyncio.create_subprocess_exec(
            *argv, stdin=nowhere, stdout=nowhere, stderr=nowhere, start_new_session=True
        )
    except (OSError, ValueError) as error:
        return f"cannot be started: {getattr(error, 'strerror', None) or error}"
    try:
        async with asyncio.timeout(timeout_s):
            code = await process.wait()
    except TimeoutError:
        await _end(process)
        return f"took longer than {timeout_s:g} s"
    except asyncio.CancelledError:
        await _end(process)
        raise
    return f"ended with {code}" if code else ""


async def _end(process: asyncio.subprocess.Process) -> None:
    """Ask the group to end, and end it if it does not."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(STOP_S):
                await process.wait()
                return
