"""Certificates that are renewed while the gateway runs: new handshakes use what their files hold now.

What lives here: watching the files. Contexts are made in `tls`; connections that are open keep what they began with.
"""

import asyncio
import ssl
import stat
from collections.abc import Sequence

import structlog

from headway.compose.clients import state_of
from headway.compose.tls import Own, load_own

log = structlog.get_logger(__name__)

LOOK_S = 10.0
"""Certificates are renewed days before they end; two calls of stat in ten seconds are nothing."""


class CertificateWatch:
    """Reads certificates and keys again when their files have changed. `failures` counts what could not be used."""

    def __init__(self, owns: Sequence[Own], look_s: float = LOOK_S) -> None:
        self.failures = 0
        self._look_s = look_s
        self._seen = {own: _state(own) for own in owns}
        self._problems: dict[Own, str] = {}

    async def run(self) -> None:
        """Watch for ever."""
        while True:
            await asyncio.sleep(self._look_s)
            await self.look()

    async def look(self) -> None:
        """Look at the files once. What cannot be used changes nothing and is tried again at the next look: certificate
        and key are two files, and one is replaced before the other."""
        for own, seen in self._seen.items():
            state = await asyncio.to_thread(_state, own)
            if state == seen:
                continue
            problem = await asyncio.to_thread(_renew, own)
            if not problem:
                self._seen[own] = state
                self._problems.pop(own, None)
                log.info("certificate read", path=str(own.cert))
            elif self._problems.get(own) != problem:
                self._problems[own] = problem
                self.failures += 1
                log.error("certificate not read, the one from before stays in use", path=str(own.cert), reason=problem)


def _renew(own: Own) -> str:
    """Have new handshakes use what the files hold; why not, if it cannot be. Tried on a context that nobody uses first:
    a certificate that was taken without its key would leave the port without either."""
    try:
        for path in (own.cert, own.key):
            if not stat.S_ISREG(path.stat().st_mode):
                return f"{path} is no regular file"
        load_own(ssl.SSLContext(own.context.protocol), own.cert, own.key)
        load_own(own.context, own.cert, own.key)
    except OSError as error:
        return str(error)
    return ""


def _state(own: Own) -> tuple[object, object]:
    return state_of(own.cert), state_of(own.key)
