"""The contract of a source of replicas."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from headway.core.replica import ReplicaSpec

Publish = Callable[[Sequence[ReplicaSpec]], None]
"""Hears the full list of a source's replicas. Ids in it are suggestions: the registry gives the real ones."""


class Undetected(Protocol):
    """Whatever detection returns instead of a spec; its text says what was tried."""

    def __str__(self) -> str:
        """What was tried."""
        ...


Detect = Callable[[str], Awaitable[ReplicaSpec | Undetected]]
"""Finds out what listens at a URL."""


class Source(Protocol):
    """Somewhere replicas come from."""

    name: str

    async def run(self, publish: Publish) -> None:
        """Publish the full list at first and after every change, until cancelled or until nothing can change."""
        ...
