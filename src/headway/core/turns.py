"""Whose turn it is among those who wait for one pool: the first of the two levels of queueing.

Strict tiers; within a tier, tenants take turns by the tokens that were served to them; within a tenant, those who can
still keep their TTFT objective go first, the least slack in front, and behind them, in order of arrival, those who
cannot any more. Turns follow start-time fair queueing (Goyal, Vin and Cheng 1996): what a tenant is served moves its
virtual time by tokens over weight, the lowest goes next, and whoever was away starts at the present one, so that
nobody saves up turns. What may go at all, and where to, is not known here (admission, holding).

Lists are kept sorted by bisection: an insertion costs a search and a move of a few pointers. So are the tenants of a
tier: there may be thousands, and none is looked at whose turn it is not.
"""

from bisect import bisect_left, insort
from collections.abc import Callable, Iterator
from heapq import heappop, heappush, heapreplace
from typing import Final

from headway.core.entries import Waiting

Sorted = list[tuple[float, int, Waiting]]
"""By a time or a number, then by order of arrival (which is unique, so items are never compared)."""

_SURVEYED: Final = 32
"""So many tenants, or up to twice as many, are asked how many of theirs go before somebody; they stand for all."""


def discard(items: Sorted, key: tuple[float, int, Waiting]) -> None:
    """Take out what is known to be there."""
    del items[bisect_left(items, key)]


class Line:
    """Those of one tenant at one tier. `cost`: the sum of what they will be charged; `begun`: how many of them wait in
    the middle of an answer."""

    __slots__ = ("begun", "cost", "late", "tenant", "timely")

    def __init__(self, tenant: str) -> None:
        self.tenant = tenant
        self.timely: Sorted = []
        self.late: Sorted = []
        self.cost = 0.0
        self.begun = 0

    def __len__(self) -> int:
        return len(self.timely) + len(self.late)

    def __iter__(self) -> Iterator[Waiting]:
        for _, _, item in self.timely:
            yield item
        for _, _, item in self.late:
            yield item

    def index(self, item: Waiting) -> int:
        """How many of them go before it."""
        if item.late:
            return len(self.timely) + bisect_left(self.late, key(item))
        return bisect_left(self.timely, key(item))


def key(item: Waiting) -> tuple[float, int, Waiting]:
    """Where it stands among its like."""
    return (0.0 if item.late else item.due, item.serial, item)


class Level:
    """The lines of one tier, by tenant and in `order` of the virtual times at which their next requests start. `count`:
    of all who wait there; `timely`: of those who can still keep their objective."""

    __slots__ = ("count", "lines", "order", "timely")

    def __init__(self) -> None:
        self.lines: dict[str, Line] = {}
        self.order: list[tuple[float, str, Line]] = []
        self.count = self.timely = 0

    def add(self, line: Line, start: float) -> None:
        """One more tenant waits."""
        self.lines[line.tenant] = line
        insort(self.order, (start, line.tenant, line))

    def remove(self, line: Line, start: float) -> None:
        """Nobody of this tenant waits any more."""
        del self.lines[line.tenant]
        del self.order[bisect_left(self.order, (start, line.tenant))]

    def move(self, line: Line, start: float, later: float) -> None:
        """The next one starts at another time."""
        del self.order[bisect_left(self.order, (start, line.tenant))]
        insort(self.order, (later, line.tenant, line))


class Turns:
    """The lines of one pool. `weight` tells a tenant's share."""

    def __init__(self, weight: Callable[[str], float]) -> None:
        self._weight = weight
        self._tiers: dict[int, Level] = {}
        self._descending: list[int] = []
        self._served: dict[str, float] = {}
        self._clock = 0.0

    def __iter__(self) -> Iterator[Waiting]:
        """In the order in which they would go, if everybody fitted."""
        for tier in self._descending:
            level = self._tiers[tier]
            if len(level.order) == 1:
                yield from level.order[0][2]
            else:
                yield from self._merged(level.order)

    def _merged(self, order: list[tuple[float, str, Line]]) -> Iterator[Waiting]:
        """By turns. Who has had one takes the next as much later as that cost; nobody is looked at before its first."""
        heap: list[tuple[float, str, Iterator[Waiting]]] = []
        waiting = iter(order)
        coming = next(waiting, None)
        while heap or coming is not None:
            if coming is not None and (not heap or coming[:2] < heap[0][:2]):
                heappush(heap, (coming[0], coming[1], iter(coming[2])))
                coming = next(waiting, None)
            start, tenant, rest = heap[0]
            item = next(rest, None)
            if item is None:
                heappop(heap)
            else:
                yield item
                heapreplace(heap, (start + item.cost / self._weight(tenant), tenant, rest))

    @property
    def highest(self) -> int:
        """The highest tier of those who wait; some tier if nobody does."""
        return self._descending[0] if self._descending else 0

    def add(self, item: Waiting) -> None:
        """It waits."""
        tenant = item.tenant
        if not self.waits(tenant):
            self._served[tenant] = self._start(tenant)
        level = self._tiers.get(item.tier)
        if level is None:
            level = self._tiers[item.tier] = Level()
            self._descending = sorted(self._tiers, reverse=True)
        line = level.lines.get(tenant)
        if line is None:
            line = Line(tenant)
            level.add(line, self._served[tenant])
        insort(line.late if item.late else line.timely, key(item))
        line.cost += item.cost
        line.begun += item.job.generated > 0
        level.count += 1
        level.timely += not item.late

    def remove(self, item: Waiting) -> None:
        """It does not wait any more, or not where it did."""
        level = self._tiers[item.tier]
        line = level.lines[item.tenant]
        discard(line.late if item.late else line.timely, key(item))
        line.cost -= item.cost
        line.begun -= item.job.generated > 0
        level.count -= 1
        level.timely -= not item.late
        if not line:
            level.remove(line, self._served[item.tenant])
            if not level.lines:
                del self._tiers[item.tier]
                self._descending.remove(item.tier)

    def demote(self, item: Waiting) -> None:
        """It cannot keep its objective any more: behind those of its line that can."""
        level = self._tiers[item.tier]
        line = level.lines[item.tenant]
        discard(line.timely, key(item))
        item.late = True
        insort(line.late, key(item))
        level.timely -= 1

    def promote(self, item: Waiting) -> None:
        """It has waited long: one tier up. (Added before it is removed, for a tenant that leaves loses its turn.)"""
        tier = item.tier
        item.tier = tier + 1
        self.add(item)
        item.tier = tier
        self.remove(item)
        item.tier = tier + 1

    def charge(self, tenant: str, tokens: float) -> None:
        """So much is served to a tenant, or a guess about it is mended (maybe downwards)."""
        start = self._start(tenant)
        if tokens > 0.0:
            self._clock = max(self._clock, start)
        served = self._served[tenant] = start + tokens / self._weight(tenant)
        for level in self._tiers.values():
            line = level.lines.get(tenant)
            if line is not None:
                level.move(line, start, served)

    def join(self, others: "Turns") -> None:
        """Nobody waits here, but some do in these lines, for the same: their accounts are the right ones."""
        self._served, self._clock = dict(others._served), others._clock

    def follow(self, others: "Turns", tenant: str) -> None:
        """The account of a tenant is what it is in those lines."""
        account = others._served.get(tenant, others._clock)
        self.charge(tenant, (account - self._start(tenant)) * self._weight(tenant))
        self._clock = others._clock

    def starts(self, tenant: str, tokens: float) -> float:
        """The virtual time at which a tenant's next request starts once so many tokens more went to it."""
        return self._start(tenant) + tokens / self._weight(tenant)

    def waits(self, tenant: str) -> bool:
        """Whether anybody of a tenant waits."""
        return any(tenant in level.lines for level in self._tiers.values())

    def first(self, tier: int, tenant: str) -> bool:
        """Whether somebody of this tenant and tier who comes now would go before all who wait, or beside its own: may
        it be looked at although others wait?"""
        if not self._descending or tier > self._descending[0]:
            return True
        if tier < self._descending[0]:
            return False
        return self._start(tenant) <= self._tiers[tier].order[0][0]

    def ahead(self, item: Waiting) -> int:
        """How many go before it: exact if only its own tenant waits at its tier, else as turns will probably fall."""
        level = self._tiers[item.tier]
        own = level.lines[item.tenant]
        before = index = own.index(item)
        before += sum(each.count for tier, each in self._tiers.items() if tier > item.tier)
        if len(level.order) == 1:
            return before
        start = self._served[item.tenant] + index * own.cost / len(own) / self._weight(item.tenant)
        earlier = bisect_left(level.order, (start, item.tenant))
        asked = level.order[: earlier : 1 + earlier // _SURVEYED]
        turns = sum(self._turns(line, start - since) for since, _, line in asked if line is not own)
        return before + (round(turns * earlier / len(asked)) if asked else 0)

    def _turns(self, line: Line, passed: float) -> int:
        """How many of a line go until so much virtual time has passed."""
        if line.cost <= 0.0:
            return len(line)
        return min(len(line), int(passed * self._weight(line.tenant) * len(line) / line.cost) + 1)

    def from_tier(self, tier: int) -> int:
        """How many wait at this tier or a higher one."""
        return sum(level.count for at, level in self._tiers.items() if at >= tier)

    def timely_from(self, tier: int) -> int:
        """How many of these can still keep their objective."""
        return sum(level.timely for at, level in self._tiers.items() if at >= tier)

    def late(self) -> Iterator[tuple[tuple[int, str], Sorted]]:
        """Tier and tenant of each line, and its late ones in order."""
        for tier, level in self._tiers.items():
            for line in level.lines.values():
                yield (tier, line.tenant), line.late

    def late_of(self, tier: int, tenant: str) -> int:
        """How many of this tier and tenant are late."""
        level = self._tiers.get(tier)
        line = level.lines.get(tenant) if level is not None else None
        return len(line.late) if line is not None else 0

    def late_rank(self, item: Waiting) -> int:
        """The place of one that waits among the late ones of its line, from 1; behind all of them if it is not late."""
        line = self._tiers[item.tier].lines[item.tenant]
        return bisect_left(line.late, key(item)) + 1 if item.late else len(line.late) + 1

    def dispensable(self, tier: int, tenant: str) -> Iterator[Waiting]:
        """Who goes, one after the other, until there is room for one more of this tier and tenant: of the lowest tier
        (not above this one), the last of the tenant that has most for its weight. Nobody once the newcomer is that
        itself. Whoever waits in the middle of an answer is not dispensable."""
        weight = self._weight
        for lowest in reversed(self._descending):
            if lowest > tier:
                return
            lines = self._tiers[lowest].lines
            own = (len(lines[tenant]) if tenant in lines else 0) + 1
            able = {name: len(line) - line.begun for name, line in lines.items()}
            rest: dict[str, list[Waiting]] = {}
            while any(able.values()):
                most, crowd = max(
                    ((count + lines[name].begun) / weight(name), name) for name, count in able.items() if count
                )
                if lowest == tier and (crowd == tenant or most <= own / weight(tenant)):
                    return
                if crowd not in rest:
                    rest[crowd] = sorted((item for item in lines[crowd] if not item.job.generated), key=_serial)
                able[crowd] -= 1
                yield rest[crowd].pop()

    def _start(self, tenant: str) -> float:
        """The virtual time at which a tenant's next request starts."""
        served = self._served.get(tenant, 0.0)
        return served if served >= self._clock or self.waits(tenant) else self._clock


def _serial(item: Waiting) -> int:
    return item.serial
