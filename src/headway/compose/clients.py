"""Who may use the running gateway: the tenants of the settings, and the keys of a file that is watched.

A file that cannot be used changes nothing: what was read last stays in force, and the log and a counter say why. A
change is felt within two seconds: the file is looked at every second, on a thread, as it may lie on a network.
"""

import asyncio
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import structlog

from headway.compose.keyfile import ApiKey, KeysError, digests, read
from headway.core.events import Event, TenantsChanged
from headway.core.tenant import Tenant
from headway.gateway.identity import Identities
from headway.runtime.clock import now
from headway.telemetry import Telemetry

log = structlog.get_logger(__name__)

LOOK_S = 1.0


class Clients:
    """Tells gateway, brain and metrics who there is. `admit` is the gateway's, `post` reaches the brain; both hear of
    the same tenants."""

    def __init__(
        self,
        tenants: Sequence[Tenant],
        admit: Callable[[Identities], None],
        post: Callable[[Event], None],
        telemetry: Telemetry,
    ) -> None:
        self._settled = tuple(tenants)
        self._tenants: tuple[Tenant, ...] = ()
        self._admit = admit
        self._post = post
        self.good_keys = 0
        telemetry.tenants = frozenset(tenant.name for tenant in tenants)

    def apply(self, keys: Sequence[ApiKey]) -> None:
        """These are all keys there are, from now on."""
        good = digests(keys)
        tenants = _everybody(self._settled, good.values())
        if tenants != self._tenants:
            self._tenants = tenants
            self._post(TenantsChanged(now(), tenants))
        self._admit(Identities(good, tenants))
        self.good_keys = len(good)


class KeyWatch:
    """Reads a file of keys again when it has changed; `keys` are those it had.

    `failures` counts the versions of it that could not be used.
    """

    def __init__(
        self,
        path: Path,
        keys: Sequence[ApiKey],
        apply: Callable[[Sequence[ApiKey]], None],
        look_s: float = LOOK_S,
    ) -> None:
        self.failures = 0
        self._path = path
        self._keys = tuple(keys)
        self._apply = apply
        self._look_s = look_s
        self._seen: tuple[int, ...] | None = ()
        self._again = False
        self._problem = ""

    async def run(self) -> None:
        """Watch for ever."""
        while True:
            await self.look()
            await asyncio.sleep(self._look_s)

    async def look(self) -> None:
        """Look at the file once. What has changed is read now and once more at the next look: a second change within
        the same tick of the file system's clock cannot be told by its date."""
        keys = await asyncio.to_thread(self._read)
        if isinstance(keys, KeysError):
            self._complain(str(keys))
        elif keys is not None and (keys != self._keys or self._problem):
            self._keys, self._problem = keys, ""
            log.info("keys read", path=str(self._path), keys=len(keys), good=len(digests(keys)))
            self._apply(keys)

    def _read(self) -> tuple[ApiKey, ...] | KeysError | None:
        """The keys if the file may have changed, or could not be used when it was read last."""
        state = state_of(self._path)
        changed = state != self._seen
        if not changed and not self._again:
            return None
        self._seen, self._again = state, changed
        try:
            return read(self._path)
        except KeysError as error:
            self._again = True
            return error

    def _complain(self, problem: str) -> None:
        if problem == self._problem:
            return
        self._problem = problem
        self.failures += 1
        log.error("keys not read, those from before stay good", reason=problem)


def state_of(path: Path) -> tuple[int, ...] | None:
    """What tells a version of a file from another, None while it cannot be looked at."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return (found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


def _everybody(settled: tuple[Tenant, ...], named: Iterable[str]) -> tuple[Tenant, ...]:
    """The tenants of the settings, and one without limits for each other name that a key bears."""
    known = {tenant.name for tenant in settled}
    return (*settled, *(Tenant(name) for name in sorted(set(named) - known)))
