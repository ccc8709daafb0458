"""103 Early Hints: where held requests stand, for clients that asked by a header. Never unasked: many clients take any
1xx for the answer.

What lives here: who is told, and when. What must not: how long it will take (the brain), or writing (`exchange`).
A client is told at once, and later when its position has changed, all by one timer; nobody is told anything twice.
"""

import asyncio
from collections.abc import Callable
from typing import Protocol

from headway.core.ids import RequestId

Prospect = tuple[int, float]
"""Position in the queue, counted from 1, and the wait that is expected (s; 0: nothing is known)."""


class Held(Protocol):
    """A request that may be held."""

    def hint(self, position: int, wait_s: float) -> bool:
        """Tell its client, unless it is held no longer: then False."""
        ...


class Hints:
    """Everybody who is to be told. `prospect` asks the brain: None for a request that is not held (any more)."""

    def __init__(self, prospect: Callable[[RequestId], Prospect | None], period_s: float) -> None:
        self._prospect = prospect
        self._period_s = period_s
        self._told: dict[RequestId, tuple[Held, int]] = {}
        self._handle: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._told)

    def add(self, request_id: RequestId, held: Held, position: int, wait_s: float) -> None:
        """A request is held from now on: its client is told at once."""
        if not held.hint(position, wait_s):
            return
        self._told[request_id] = (held, position)
        if self._handle is None:
            self._handle = asyncio.get_running_loop().call_later(self._period_s, self._pass)

    def stop(self) -> None:
        """Tell nobody any more."""
        self._told.clear()
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _pass(self) -> None:
        """Those who moved are told; those who are held no longer are forgotten."""
        told, self._told, self._handle = self._told, {}, None
        for request_id, (held, position) in told.items():
            prospect = self._prospect(request_id)
            if prospect is None:
                continue
            if prospect[0] == position or held.hint(*prospect):
                self._told[request_id] = (held, prospect[0])
        if self._told:
            self._handle = asyncio.get_running_loop().call_later(self._period_s, self._pass)
