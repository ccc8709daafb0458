"""Whom to take away from a replica so that memory suffices: those who wait there in vain, or who matter less.

What waits in an engine's own queue has cost nothing yet and can be recalled for nothing; what decodes has to be
computed again, so as little of it is taken as is enough. Whether that should be done is not known here (rebalance).
"""

from collections.abc import Sequence

from headway.core.entries import Job
from headway.core.entry import Entry, Share
from headway.core.fleet import Fleet
from headway.core.memory import Curve
from headway.core.standing import Replica
from headway.core.strain import Strain


def surplus(strain: Strain, waiting: Sequence[Entry], limit: float) -> list[Entry]:
    """Of those who wait in an engine, whoever came last, until the others will overflow with no more than this
    probability (0..1)."""
    found: list[Entry] = []
    left: list[Share] = []
    for entry in sorted(waiting, key=_recent, reverse=True):
        if strain.overflow(without=left) <= limit:
            break
        found.append(entry)
        left.append(entry.share)
    return found


def victims(fleet: Fleet, replica: Replica, head: Job, movable: Sequence[Entry], at: float) -> list[Entry] | None:
    """Who must leave a replica for a request to fit: the lowest tiers first, of equals whoever holds most, so that
    few are disturbed; none who is not needed. None if not even all of them are enough."""
    _, kv, var = fleet.viewing.foreign(replica, at) or (0, 0.0, 0.0)
    room = replica.capacity * (1.0 - fleet.memory.spare) - kv
    curve = Curve()
    curve.reset(entry.share for entry in replica.account.entries.values())
    chosen: list[Entry] = []
    for entry in sorted(movable, key=_dispensable):
        if curve.fits(head.part, room, var, fleet.memory.z):
            break
        curve.subtract(entry.share)
        chosen.append(entry)
    if not curve.fits(head.part, room, var, fleet.memory.z):
        return None
    for entry in list(chosen):
        curve.add(entry.share)
        if curve.fits(head.part, room, var, fleet.memory.z):
            chosen.remove(entry)
        else:
            curve.subtract(entry.share)
    return chosen


def _recent(entry: Entry) -> tuple[float, str]:
    return entry.dispatched_at, entry.attempt_id


def _dispensable(entry: Entry) -> tuple[int, int, str]:
    return entry.request.tier, -(entry.prompt + entry.generated), entry.attempt_id
