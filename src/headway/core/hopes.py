"""Who of those that wait will not be reached before their time is over, by what is measured of their queue.

While a pool cannot keep up, whoever missed its objective waits behind all who have not, and most of them to no end.
That is told early, by two guesses about each, of which the better one counts. Either its line goes on as it did: so
many of the late ones left it since there were none. Or what keeps them goes on for as long as it has lasted (of what
has no known end one has seen a half, on average), and then all the pool does is for them. Only if even so it would take
`hopeless` times what is left of its time, it is given up. So a short overload costs nobody anything, and in a long one
nobody waits for nothing.

Nothing is believed before it was watched for `watch_s`, or of a pool that lets nobody go: it may be about to. What is
done about it is not known here (holding), nor in which order they go (turns).
"""

import math
from collections.abc import Mapping
from typing import Final

from headway.core.constants import AdmissionConfig
from headway.core.entries import Waiting
from headway.core.turns import Sorted, Turns

_KNOWN: Final = 8
"""Releases from which on the pace of a pool is known."""

_PACE_MEMORY: Final = 2.0
"""For how many times `watch_s` (up to twice that) the pace of a pool is remembered."""

_EVERY_S: Final = 1.0

_LIKELY: Final = 0.5
"""If so many missed their objective lately, the next one probably will, too."""


class Spell:
    """How many went since a moment."""

    __slots__ = ("count", "since")

    def __init__(self, at: float) -> None:
        self.since = at
        self.count = 0.0

    def forget(self, memory_s: float, at: float) -> None:
        """Of what lasts longer than twice this, the older half counts no more."""
        lasts = at - self.since
        if lasts > 2.0 * memory_s:
            self.since += lasts / 2.0
            self.count /= 2.0

    def gap_s(self, at: float) -> float:
        """Seconds for each, if one more went just now."""
        return (at - self.since) / (self.count + 1.0)


class Hopes:
    """What is measured of one queue. `turns` are its lines."""

    __slots__ = ("_came", "_config", "_lines", "_looked_at", "_lost", "_lost_at", "_missed", "_pool", "_turns")

    def __init__(self, config: AdmissionConfig, turns: Turns) -> None:
        self._config = config
        self._turns = turns
        self._looked_at = -math.inf
        self._pool: Spell | None = None
        self._lines: dict[tuple[int, str], Spell] = {}
        self._came: dict[int, Spell] = {}
        self._missed: dict[int, Spell] = {}
        self._lost: dict[int, Spell] = {}
        self._lost_at = -math.inf

    # -- what happens ------------------------------------------------------------------------------------------

    def waits(self, item: Waiting, at: float) -> None:
        """It came."""
        if self._pool is None:
            self._pool = Spell(at)
        self.came(item.job.request.tier, at)

    def came(self, tier: int, at: float) -> None:
        """One of this tier came while others wait, whether it waits, too, or goes at once."""
        self._count(self._came, tier, at)

    def released(self, item: Waiting) -> None:
        """It goes. The last of the late ones shows that its line is none to despair of; that all of them were given up
        does not."""
        if self._pool is not None:
            self._pool.count += 1.0
        name = (item.tier, item.tenant)
        spell = self._lines.get(name) if item.late else None
        if spell is None:
            return
        spell.count += 1.0
        if self._turns.late_of(*name) == 1:
            del self._lines[name]

    def missed(self, tier: int, at: float) -> None:
        """One of this tier can not keep its objective any more, or never could have."""
        self._count(self._missed, tier, at)

    def lost(self, tier: int, at: float) -> None:
        """One of this tier is not served: it would have waited in vain, or did, or there was no room for it to wait."""
        self._count(self._lost, tier, at)
        self._lost_at = at

    def emptied(self) -> None:
        """Nobody waits any more."""
        self._pool = None
        self._lines.clear()
        self._came.clear()
        self._missed.clear()
        self._lost.clear()

    # -- what follows ------------------------------------------------------------------------------------------

    @property
    def next_look(self) -> float:
        """When to look again."""
        return self._looked_at + _EVERY_S if self._config.hopeless else math.inf

    def look(self, at: float) -> list[Waiting]:
        """Those who are late and hopeless, the oldest of each line first."""
        self._looked_at = at
        known, self._lines = self._lines, {}
        found: list[Waiting] = []
        for name, late in self._turns.late():
            spell = known.get(name)
            if spell is None:
                if not late:
                    continue
                spell = Spell(at)
            self._lines[name] = spell
            spell.forget(self._config.hopeless * self._config.queue_timeout_s, at)
            found += self._given_up(spell, late, at)
        return found

    def beyond(self, item: Waiting, position: int, at: float) -> bool:
        """Whether one that has just come is hopeless: even if nobody came after it, or because it will miss its
        objective, and is hopeless then."""
        pace, margin = self._pace_s(at), self._config.hopeless
        if not pace:
            return False
        wait, left = position * pace, self._left_s(item, at)
        if wait > margin * left:
            return True
        spell = self._lines.get((item.tier, item.tenant))
        slack = min(left, max(0.0, item.due - at))
        if spell is None or wait <= margin * slack:
            return False
        rank = self._turns.late_of(item.tier, item.tenant) + (not item.late)
        return self._wait_s(spell, rank, pace, at) > margin * (left - slack)

    def wait_s(self, item: Waiting, position: int, pace: float, at: float) -> float:
        """How long the one at this position must expect to wait, at `pace` seconds between two that go: where it will
        miss its objective before, behind all who will not; and never for longer than it may (by our bound)."""
        wait, slack = position * pace, 0.0 if item.late else item.due - at
        if wait > slack and self._config.hopeless:
            spell = self._lines.get((item.tier, item.tenant))
            if not item.late and self._share(self._missed, item.job.request.tier) < _LIKELY:
                wait = max(0.0, slack)
            elif spell is not None:
                wait = max(wait, slack + _better(spell, self._turns.late_rank(item), pace, at))
        return min(wait, max(0.0, self._left_s(item, at)))

    def burden_s(self, tier: int, pace: float, lost_s: float, at: float) -> float:
        """The wait that one of this tier or a higher one who comes now must expect because it may miss its objective
        then, or not be served at all, as those did who came lately. The latter counts as a wait of `lost_s`; the former
        as what it takes to serve its line alone, which is the least: nobody is in distress for a guess."""
        late = waits = 0.0
        for (each, _), items in self._turns.late():
            if each >= tier:
                late += len(items)
                waits += len(items) * (len(items) + 1) * pace
        missed = self._share(self._missed, tier) * min(self._config.queue_timeout_s, waits / late) if late else 0.0
        lost = self._share(self._lost, tier) if self.losing(at) else 0.0
        return max(missed, lost * lost_s)

    def losing(self, at: float) -> bool:
        """Whether anybody was lost lately."""
        return at - self._lost_at < 2.0 * self._config.watch_s

    def _share(self, spells: Mapping[int, Spell], tier: int) -> float:
        """Which share of those of this tier or a higher one who came lately are counted there."""
        part = sum(spell.count for each, spell in spells.items() if each >= tier)
        came = sum(spell.count for each, spell in self._came.items() if each >= tier)
        return part / max(part, came) if part else 0.0

    def _count(self, spells: dict[int, Spell], tier: int, at: float) -> None:
        """One more of a tier. What came and what was lost is forgotten at one pace, or it would be no share."""
        for each in (self._came, self._missed, self._lost):
            if tier not in each:
                each[tier] = Spell(at)
            each[tier].forget(self._config.watch_s, at)
        spells[tier].count += 1.0

    def _given_up(self, spell: Spell, late: Sorted, at: float) -> list[Waiting]:
        """Those of a line. Whoever is let go makes it better for those behind. Who has begun to speak stays."""
        found: list[Waiting] = []
        pace = self._pace_s(at)
        for rank, (_, _, item) in enumerate(late, start=1) if pace else ():
            wait = self._wait_s(spell, rank - len(found), pace, at)
            if wait > self._config.hopeless * self._left_s(item, at) and not item.job.generated:
                found.append(item)
        return found

    def _wait_s(self, spell: Spell, rank: int, pace: float, at: float) -> float:
        """How long the one of this rank (from 1) among the late ones of a line will wait, at best."""
        return 0.0 if at - spell.since < self._config.watch_s else _better(spell, rank, pace, at)

    def _pace_s(self, at: float) -> float:
        """Seconds between two whom the pool lets go; 0 if that is not known, or of no interest."""
        pool = self._pool
        if pool is None or not self._config.hopeless:
            return 0.0
        pool.forget(_PACE_MEMORY * self._config.watch_s, at)
        return pool.gap_s(at) if pool.count >= _KNOWN and at - pool.since >= self._config.watch_s else 0.0

    def _left_s(self, item: Waiting, at: float) -> float:
        """What is left of the time it may wait, whatever deadline its client has."""
        job = item.job
        return max(job.arrived_at, job.waits_from) + self._config.queue_timeout_s - at


def _better(spell: Spell, rank: int, pace: float, at: float) -> float:
    """The better of the two guesses how long the one of this rank among the late ones of a line will wait."""
    return min(rank * spell.gap_s(at), at - spell.since + rank * pace)
