"""A new version of a model gets little traffic at first, and more as time passes without an alarm.

Versions that were there when a model's first replica came, or a moment after, are its founders: a gateway that starts
in the middle of a rollout cannot know which one is new. If no founder is left, the oldest version takes their place.
Whichever comes later may get `per_minute` of the dispatches at once and as much more with each minute since its first
replica became usable.

The share is kept by a credit: each dispatch of the model adds the share of that moment, each one to the new version
takes 1, and it never holds more than 1. So in any row of dispatches, wherever it begins, the new version gets at most
the sum of its shares and one more (sessions apart), and a version that was idle cannot save up for a flood.

Sessions would go to and fro between versions by that. So a session may use a new version if its place among all of
them lies below the share: once it may it always may, for the share only grows, and its affinity decides whether it
does. Its dispatches are charged like all, so that others leave room; it waits for no credit itself, and leaves a debt
(at most `_DEBT`). Times in seconds.
"""

from collections.abc import Iterable, Set
from typing import Final

_MOST: Final = 32  # versions of a model that are remembered, if none of its replicas has them

_DEBT: Final = 5.0
"""So many dispatches sessions may take in advance. (If none, a new version that may have 5 % gets 6 where half are of
sessions. If any number, one busy session would shut it to all others.)"""


class Newcomer:
    """One version that is new: since when it is usable (None: not yet), and its credit."""

    __slots__ = ("credit", "since")

    def __init__(self) -> None:
        self.since: float | None = None
        self.credit = 0.0

    def share(self, per_minute: float, at: float) -> float:
        """What it may get of the dispatches."""
        return 0.0 if self.since is None else per_minute * (1.0 + (at - self.since) / 60.0)


class Rollout:
    """The versions of one model. `newcomers` are those whose share is still bounded."""

    __slots__ = ("_began", "_grace_s", "_per_minute", "_seen", "newcomers")

    def __init__(self, per_minute: float, grace_s: float) -> None:
        self.newcomers: dict[str, Newcomer] = {}
        self._per_minute = per_minute
        self._grace_s = grace_s
        self._began: float | None = None
        self._seen: dict[str, float] = {}

    def reset(self, versions: Iterable[str], at: float) -> None:
        """These are the versions that replicas have now. One that left and comes back goes on where it was."""
        if not self._per_minute:
            return
        if self._began is None:
            self._began = at
        present = dict.fromkeys(sorted(versions))
        for version in present:
            if version not in self._seen:
                self._seen[version] = at
                if at - self._began > self._grace_s:
                    self.newcomers[version] = Newcomer()
        if present and present.keys() <= self.newcomers.keys():  # somebody must take what the new ones may not
            del self.newcomers[min(present, key=self._seen.__getitem__)]
        gone = [version for version in self._seen if version not in present]
        for version in gone[: max(0, len(gone) - _MOST)]:
            del self._seen[version]
            self.newcomers.pop(version, None)

    def closed(self, usable: Set[str], at: float, place: float | None = None) -> frozenset[str]:
        """Which versions may not be used for the next dispatch. `usable` are those that have a replica in use; `place`
        of its session among all, from 0 to 1, None if it has none."""
        shut = []
        for version, newcomer in list(self.newcomers.items()):
            if newcomer.since is None and version in usable:
                newcomer.since = at
            share = newcomer.share(self._per_minute, at)
            if share >= 1.0:
                del self.newcomers[version]
            elif newcomer.credit + share < 1.0 if place is None else place >= share:
                shut.append(version)
        return frozenset(shut)

    def sent(self, version: str, at: float, place: float | None = None) -> None:
        """A dispatch went to a replica of this version; `place` of its session as for `closed`. One that went there
        though it might not had nowhere else to go: that leaves no debt."""
        for name, newcomer in self.newcomers.items():
            share = newcomer.share(self._per_minute, at)
            earned = newcomer.credit + share
            if name == version:
                least = -_DEBT if place is not None and place < share else 0.0
                newcomer.credit = max(min(newcomer.credit, least), earned - 1.0)
            else:
                newcomer.credit = min(1.0, earned)
