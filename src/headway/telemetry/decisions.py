"""The bounded memory of decisions: why each recent attempt went where it went, and how that turned out.

Two rings, appended to on every request and searched only when somebody asks: an index would cost more per request
than all the explanations of a day.
"""

from collections import deque

import msgspec

from headway.core.commands import Moved, Settled
from headway.core.decision import Decision
from headway.core.ids import attempt_id

DEFAULT_CAPACITY = 8192
"""Decisions remembered. One with eight candidates takes about 2 kB, so the memory stays below 20 MB."""


class Explained(msgspec.Struct, frozen=True):
    """One attempt: the decision, and its outcome once it is settled. What differs is the forecast's error."""

    decision: Decision
    settled: Settled | None


class Explanation(msgspec.Struct, frozen=True):
    """Every attempt of one request that was chosen for it, in order, and every step of its moves. An attempt that was
    begun by a move has no decision of its own: its outcome is in `settled`. `pinned`: why it
    could not move, in a word."""

    request_id: str
    attempts: tuple[Explained, ...]
    moves: tuple[Moved, ...] = ()
    settled: tuple[Settled, ...] = ()
    pinned: str = ""


class DecisionLog:
    """The latest decisions and outcomes, kept by count, oldest forgotten first.

    `decided(decision)`, `settled(settled)`, `moved(moved)` and `named((client's id, our id))` are plain appends.
    """

    def __init__(self, capacity: int = DEFAULT_CAPACITY) -> None:
        self._decisions: deque[Decision] = deque(maxlen=capacity)
        self._outcomes: deque[Settled] = deque(maxlen=capacity)
        self._moves: deque[Moved] = deque(maxlen=capacity)
        self._names: deque[tuple[str, str]] = deque(maxlen=capacity)
        self.decided = self._decisions.append
        self.settled = self._outcomes.append
        self.moved = self._moves.append
        self.named = self._names.append

    def __len__(self) -> int:
        return len(self._decisions)

    def explain(self, request_id: str) -> Explanation | None:
        """Everything known about a request, None when it is unknown or forgotten.

        Also accepts the id of an attempt (`<request>-<digit>`), as engines log it, and the client's own id: where
        clients used it more than once, the latest that was sent anywhere is meant.
        """
        renamed = self._known_as(request_id)
        wanted = {renamed, request_id[:-2] if request_id[-2:-1] == "-" else renamed}
        decisions = [decision for decision in self._decisions if decision.request_id in wanted]
        if not decisions:
            return None
        outcomes = {entry.attempt_id: entry for entry in self._outcomes if entry.request_id in wanted}
        attempts = tuple(Explained(d, outcomes.pop(attempt_id(d.request_id, d.attempt), None)) for d in decisions)
        moves = tuple(entry for entry in self._moves if entry.request_id in wanted)
        first = decisions[0]
        return Explanation(first.request_id, attempts, moves, tuple(outcomes.values()), first.pinned)

    def latest(self, count: int) -> list[Decision]:
        """The most recent decisions, newest first."""
        return [decision for _, decision in zip(range(count), reversed(self._decisions), strict=False)]

    def _known_as(self, name: str) -> str:
        """Our id of a request that ended, by the client's own; any other id as it is."""
        ids = [ours for theirs, ours in reversed(self._names) if theirs == name]
        if len(ids) > 1:  # refused ones have nothing to tell
            decided = {decision.request_id for decision in self._decisions}
            ids = [ours for ours in ids if ours in decided] or ids
        return ids[0] if ids else name
