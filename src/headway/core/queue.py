"""Those who wait for one model, and in which order they go.

In order of arrival, or by what can still be met: those who can keep their TTFT objective first, the least slack in
front; behind them, in order of arrival, those who cannot any more. So that nothing starves, the first of the late ones
is overtaken at most `late_bypass` times, then it goes before everybody; and nobody waits longer than `queue_timeout_s`.
Whoever is first and does not fit is overtaken `bypass_max` times more; then one replica (`kept`) is kept for it.

Lists are kept sorted by bisection: an insertion costs a search and a move of a few pointers.
"""

import math
from bisect import bisect_left, insort
from collections.abc import Iterator

from headway.core.constants import AdmissionConfig
from headway.core.entries import Job, Waiting
from headway.core.ids import ReplicaId, RequestId

Sorted = list[tuple[float, int, Waiting]]
"""By a time or a number, then by order of arrival (which is unique, so items are never compared)."""


class HoldQueue:
    """Who waits for one model. `ordered`: by what can still be met, else in order of arrival."""

    def __init__(self, config: AdmissionConfig, ordered: bool = False) -> None:
        self._config = config
        self._ordered = ordered
        self._items: dict[RequestId, Waiting] = {}
        self._timely: Sorted = []
        self._late: Sorted = []
        self._expiries: Sorted = []
        self._serial = 0
        self._released_at: float | None = None
        self._pace_s = 0.0
        self.timer_at = math.inf
        self.kept = ReplicaId("")
        self.kept_for = RequestId("")

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[Waiting]:
        """In the order in which they would go, if everybody fitted."""
        urgent = self._urgent
        if urgent is not None:
            yield urgent
        for _, _, item in self._timely:
            yield item
        for _, _, item in self._late:
            if item is not urgent:
                yield item

    @property
    def full(self) -> bool:
        """No one else may wait."""
        return len(self._items) >= self._config.max_queued

    def push(self, job: Job, at: float, due: float = math.inf) -> Waiting:
        """Somebody waits. `due`: the last moment at which it can go and keep its objective."""
        expires = job.arrived_at + self._config.queue_timeout_s
        if job.request.deadline is not None:
            expires = min(expires, job.request.deadline)
        self._serial += 1
        item = Waiting(job, self._serial, expires, due if self._ordered else math.inf)
        item.late = item.due < at
        job.held = True
        self._items[job.request.id] = item
        insort(self._late if item.late else self._timely, _key(item))
        insort(self._expiries, (expires, item.serial, item))
        return item

    def position(self, item: Waiting) -> int:
        """How many are to go up to this one, itself included."""
        urgent = self._urgent
        if item is urgent:
            return 1
        if not item.late:
            return bisect_left(self._timely, _key(item)) + (1 if urgent is None else 2)
        return len(self._timely) + bisect_left(self._late, _key(item)) + 1

    def remove(self, request_id: RequestId) -> None:
        """It was cancelled or has expired."""
        item = self._items.pop(request_id)
        item.job.held = False
        if self.kept_for == request_id:
            self.kept, self.kept_for = ReplicaId(""), RequestId("")
        _discard(self._late if item.late else self._timely, _key(item))
        _discard(self._expiries, (item.expires, item.serial, item))

    def release(self, request_id: RequestId, at: float) -> None:
        """It was dispatched."""
        self.remove(request_id)
        if self._released_at is not None:
            gap = at - self._released_at
            self._pace_s += 0.1 * (gap - self._pace_s)
        self._released_at = at

    def overtake(self, late: bool = False) -> None:
        """Somebody goes who is not the head (`late`: one of the late ones)."""
        head = next(iter(self), None)
        if head is not None:
            head.bypassed += 1
        if not late:
            self.pass_late(head)

    def pass_late(self, head: Waiting | None = None) -> None:
        """Somebody goes who is not late. It passes the first of the late ones (if that is not the head, counted
        already)."""
        if self._late and self._late[0][2] is not head:
            self._late[0][2].bypassed += 1

    @property
    def outrun(self) -> Waiting | None:
        """The head, if it was overtaken as often as it may be."""
        head = next(iter(self), None)
        if head is None:
            return None
        most = self._config.bypass_max + (self._config.late_bypass if head.late else 0)
        return head if head.bypassed >= most else None

    def within_reach(self, at: float) -> list[Waiting]:
        """The head and those behind it that may be looked at, in order; before all, whoever a replica is kept for:
        nobody else may have that one, so it must be asked wherever it has got to."""
        self._judge(at)
        kept = self._items.get(self.kept_for)
        found = [] if kept is None else [kept]
        for item in self:
            if item is not kept:
                found.append(item)
            if len(found) > self._config.scan:
                break
        return found

    def due(self, at: float) -> list[Waiting]:
        """Those whose time is over, first things first."""
        found = []
        for expires, _, item in self._expiries:
            if expires > at:
                break
            found.append(item)
        return found

    @property
    def next_expiry(self) -> float:
        """When the first of them runs out of time; infinite if nobody waits."""
        return self._expiries[0][0] if self._expiries else math.inf

    def retry_after_s(self) -> float:
        """When to come back: the time this queue takes to drain at its recent pace, in whole seconds."""
        wait = math.ceil(len(self._items) * self._pace_s)
        return float(min(max(1, wait), self._config.retry_after_max_s))

    @property
    def _urgent(self) -> Waiting | None:
        """The first of the late ones, if it was overtaken often enough."""
        if self._late and self._late[0][2].bypassed >= self._config.late_bypass:
            return self._late[0][2]
        return None

    def _judge(self, at: float) -> None:
        """Move those who cannot keep their objective any more behind the others."""
        count = 0
        for due, _, item in self._timely:
            if due >= at:
                break
            item.late = True
            item.bypassed = 0
            insort(self._late, _key(item))
            count += 1
        del self._timely[:count]


def _key(item: Waiting) -> tuple[float, int, Waiting]:
    return (0.0 if item.late else item.due, item.serial, item)


def _discard(items: Sorted, key: tuple[float, int, Waiting]) -> None:
    del items[bisect_left(items, key)]
