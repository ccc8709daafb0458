"""Queues for the same replicas, looked through as if they were one.

Who waits for a model at one precision never blocks those who wait for another, so each pool has a queue of its own; a
model may also have several names. But what there is to get is the same where their replicas are: so tiers, turns and
late ones count across all of them, and who was refused by a replica keeps it from those behind it in every queue. Which
replica takes one, and what is done about those it passes, is not known here (scheduler, holding).
"""

import heapq
import math
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import final

from headway.core.entries import Job, Waiting
from headway.core.ids import ReplicaId
from headway.core.pool import Pool
from headway.core.queue import HoldQueue
from headway.core.request import RequestInfo
from headway.core.standing import Replica
from headway.core.view import ReplicaView

Idle = Callable[[Job, Sequence[Replica]], bool]
"""Whether one that waits may not go to any of its replicas, whatever room there is."""

_Key = tuple[int, int, float, str, bool, float, float, str]


@final
class Look:
    """One look through a queue. `first`: nobody was refused yet; `too_big`: the least peak (tokens) that was; whether
    one that is in time was (`timely_waits`); `over`: none of its replicas is asked."""

    __slots__ = ("first", "over", "pool", "queue", "timely_waits", "too_big")

    def __init__(self, queue: HoldQueue, pool: Pool) -> None:
        self.queue = queue
        self.pool = pool
        self.first = True
        self.over = False
        self.too_big = math.inf
        self.timely_waits = False

    def bars(self, item: Waiting) -> bool:
        """Whether one behind those who were refused is not asked about: it needs as much, or is late and they are
        not."""
        return item.job.part.peak >= self.too_big or (item.late and self.timely_waits)

    def passed(self, item: Waiting, replica_id: ReplicaId) -> None:
        """One goes to a replica that those who wait here may have wanted."""
        if self.pool.candidate(replica_id) is None:
            return
        if not self.first:
            self.queue.overtake(item.late)
        elif not item.late:
            self.queue.pass_late()


def left_by(
    looks: Sequence[Look], newcomer: RequestInfo, pool: Pool, scan: int, idle: Idle
) -> Sequence[ReplicaView] | None:
    """The candidates of its pool for which nobody waits who is to go before a newcomer; None if that is all of them.
    Those who are `idle` may not go whatever room there is, so nobody waits for them."""
    views: Sequence[ReplicaView] | None = None
    for look in looks:
        if _waits_before(look, newcomer, scan, idle):
            if look.queue.lane == pool.lane:
                return ()
            views = [v for v in (pool.candidates if views is None else views) if look.pool.candidate(v.id) is None]
            if not views:
                break
    return views


def _waits_before(look: Look, newcomer: RequestInfo, scan: int, idle: Idle) -> bool:
    turns, tier, tenant = look.queue.turns, newcomer.tier, newcomer.tenant
    many = turns.from_tier(tier) > scan
    if not many and turns.first(tier, tenant):
        return False
    head = next((item for item in islice(turns, scan) if not idle(item.job, look.pool.replicas)), None)
    if head is None or head.tier < tier:
        return False
    return many or head.tier > tier or turns.starts(head.tenant, 0.0) < turns.starts(tenant, 0.0)


def in_turn(looks: Sequence[Look], at: float) -> Iterator[tuple[Look, Waiting]]:
    """Those within reach in every queue, in the order in which they would go if everybody fitted."""
    if len(looks) == 1:
        for look in looks:
            for item in look.queue.within_reach(at):
                if look.over:
                    return
                yield look, item
        return
    for _, look, item in heapq.merge(*[_keyed(look, at) for look in looks], key=_key):
        if not look.over:
            yield look, item


def not_barred(
    views: Sequence[ReplicaView], item: Waiting, barring: Sequence[Look], own: Look
) -> Sequence[ReplicaView]:
    """Those of the views that nobody before it in another queue was refused by. `barring`: where somebody was."""
    for look in barring:
        if look is not own and look.bars(item):
            views = [view for view in views if look.pool.candidate(view.id) is None]
            if not views:
                break
    return views


def _keyed(look: Look, at: float) -> list[tuple[_Key, Look, Waiting]]:
    """Those within reach in one queue, in order, with what tells their places among those of others: as in one queue,
    and of equals the first that came."""
    found, queue = [], look.queue
    ahead: dict[str, float] = {}
    for item in queue.within_reach(at):
        job, tokens = item.job, ahead.get(item.tenant, 0.0)
        special = 0 if job.request.id == queue.kept_for else 1 if item is queue.urgent else 2
        start, due = round(queue.turns.starts(item.tenant, tokens), 6), 0.0 if item.late else item.due
        came = max(job.arrived_at, job.waits_from)
        found.append(((special, -item.tier, start, item.tenant, item.late, due, came, queue.lane), look, item))
        ahead[item.tenant] = tokens + item.cost
    return found


def _key(item: tuple[_Key, Look, Waiting]) -> _Key:
    return item[0]
