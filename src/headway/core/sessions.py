"""Which sessions were here lately, so that a pool in distress can turn away new ones and keep those it has.

What lives here: a bounded memory of session keys. What must not: what follows from it (admission), and where a session
goes (`ring`, which needs no memory). Keys come from clients, so one of them may make up as many as it likes: entries
are bounded in age, in number and per tenant, and when all places are taken the tenant that has most of them gives some
up. So whoever floods the memory pushes out sessions of its own.
"""

from collections import OrderedDict
from typing import Final

from headway.core.constants import SessionsConfig
from headway.core.ring import place

_GIVE_UP: Final = 16
"""The tenant with most entries gives up one of this many of them at once: looking for it is not for every request."""

_SWEPT: Final = 2
"""Outdated entries of its own tenant that a new one clears away: more than itself, and never a thousand at once."""


class Sessions:
    """Sessions by tenant, each with the time (seconds) at which it was seen last, the longest ago first.

    All is O(1), but that a newcomer that finds all places taken looks at every tenant once.
    """

    def __init__(self, config: SessionsConfig | None = None) -> None:
        self._config = config or SessionsConfig()
        self._per_tenant = max(1, int(self._config.max_entries * self._config.tenant_share))
        self._tenants: dict[str, OrderedDict[int, float]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def known(self, tenant: str, session: str, at: float) -> bool:
        """Whether the session was seen within the last `ttl_s`. Changes nothing."""
        entries = self._tenants.get(tenant)
        if entries is None:
            return False
        seen_at = entries.get(place(tenant, session))
        return seen_at is not None and at - seen_at <= self._config.ttl_s

    def seen(self, tenant: str, session: str, at: float) -> None:
        """The session was served. What is too old, or one too many, is forgotten."""
        key = place(tenant, session)
        entries = self._tenants.get(tenant)
        if entries is None:
            entries = self._tenants[tenant] = OrderedDict()
        before = len(entries)
        entries[key] = at
        entries.move_to_end(key)
        self._count += len(entries) - before
        self._drop_old(entries, at, _SWEPT)
        if len(entries) > self._per_tenant:
            self._drop(entries, 1)
        if self._count > self._config.max_entries:
            self._make_room(at)

    def _make_room(self, at: float) -> None:
        """All places are taken: by what is too old, or because the tenant with most entries has too many."""
        for tenant, entries in list(self._tenants.items()):
            self._drop_old(entries, at, len(entries))
            if not entries:
                del self._tenants[tenant]
        if self._count > self._config.max_entries:
            largest = max(self._tenants.values(), key=len)
            self._drop(largest, max(1, len(largest) // _GIVE_UP))

    def _drop_old(self, entries: OrderedDict[int, float], at: float, most: int) -> None:
        oldest = at - self._config.ttl_s
        while most and entries and next(iter(entries.values())) < oldest:
            self._drop(entries, 1)
            most -= 1

    def _drop(self, entries: OrderedDict[int, float], count: int) -> None:
        for _ in range(count):
            entries.popitem(last=False)
        self._count -= count
