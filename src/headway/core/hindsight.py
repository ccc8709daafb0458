"""How wrong forecasts of a KV pool were, seen from its load reports: its use at that moment, and some seconds ahead.

A report says how full the pool was when it was asked for. What the ledger and the reports before had said of that
moment is compared with it, and so is what the forecast had said `AHEAD_S` earlier: what those who ran then were
expected to hold after as many decode steps as there were since (forecasts count in steps), and with it what those hold
who came since (that was nobody's forecast). Of prompts that are being prefilled nobody knows how much is in the pool:
anything between nothing and all of it is no error. Errors are fractions of the pool, because it is room in the pool
that they cost. Nothing here decides anything.
"""

from collections import deque
from collections.abc import Sequence
from typing import Final

from headway.core.ids import ReplicaId
from headway.core.ledger import Account
from headway.core.memory import HORIZONS
from headway.core.snapshot import KvError

AHEAD_S: Final = 2.0
"""How far ahead a forecast is checked: four load reports at their usual pace."""

KEEP: Final = 128
"""Errors kept of each kind: a minute of load reports. Their 99th percentile is nearly the worst of that minute."""

Foreseen = tuple[float, Sequence[float], float, float, int, int]
"""A forecast that waits for its moment: when it was made, mean use by horizon, tokens that were not ours, seconds per
decode step as believed, tokens generated until then, and how many decoded."""


class Hindsight:
    """The last errors of one replica's forecasts. `now`: of its use when reported; `ahead`: `AHEAD_S` before."""

    __slots__ = ("_waiting", "ahead", "now")

    def __init__(self) -> None:
        self.now: deque[float] = deque(maxlen=KEEP)
        self.ahead: deque[float] = deque(maxlen=KEEP)
        self._waiting: Foreseen | None = None

    def foresee(self, at: float, account: Account, others: float, step_s: float) -> None:
        """A forecast was made; one is checked at a time. `others`: tokens that are not ours."""
        if self._waiting is None:
            self._waiting = (at, account.curve.mean, others, step_s, account.generated, account.decoding)

    def reported(
        self, at: float, used: float, believed: float, filling: float, account: Account, capacity: int
    ) -> None:
        """The pool held `used` tokens at `at`, where `believed` were expected, and some of the `filling` that were
        being prefilled; all of `capacity` tokens (not 0)."""
        self.now.append(_beside(used, believed, filling) / capacity)
        waiting = self._waiting
        if waiting is None or at - waiting[0] < AHEAD_S:
            return
        self._waiting = None
        made_at, mean, others, step_s, generated, decoding = waiting
        tokens, decoded = account.generated - generated, (account.decoding + decoding) / 2
        steps = tokens / decoded if tokens and decoded else (at - made_at) / step_s
        held, filling = _newcomers(account, made_at, at)
        expected = max(0.0, _between(mean, steps) + others) + held
        self.ahead.append(_beside(used, expected, filling) / capacity)

    def summary(self, replica: ReplicaId) -> KvError | None:
        """The errors kept, None without any. Takes some microseconds: not for decisions."""
        now, ahead = sorted(self.now), sorted(self.ahead)
        if not now:
            return None
        figures = (len(now), _quantile(now, 0.5), _quantile(now, 0.99))
        further = (len(ahead), _quantile(ahead, 0.5), _quantile(ahead, 0.99))
        return KvError(replica, *figures, *further, AHEAD_S)

    def forget(self) -> None:
        """What was foreseen will not be: the engine is another, or says nothing that can be believed."""
        self._waiting = None


def _beside(used: float, least: float, more: float) -> float:
    """How far off the range that begins at `least` and is `more` wide."""
    return least - used if used < least else max(0.0, used - least - more)


def _between(mean: Sequence[float], step: float) -> float:
    """The forecast for so many steps ahead, linear between the horizons."""
    for k in range(1, len(HORIZONS)):
        near, far = HORIZONS[k - 1], HORIZONS[k]
        if step <= far:
            return mean[k - 1] + (mean[k] - mean[k - 1]) * (step - near) / (far - near)
    return mean[-1]


def _newcomers(account: Account, since: float, until: float) -> tuple[float, float]:
    """What those hold who had begun by `until` and were sent from `since` on (that moment included, for a report makes
    room for others), and what those will have to prefill who had not begun."""
    held = filling = 0
    for entry in account.entries.values():
        if entry.dispatched_at < since:
            continue
        first = entry.first_token_at
        if entry.started and (first is None or first <= until):
            held += entry.prompt + entry.generated
        else:
            filling += entry.prompt - entry.hit
    return float(held), float(filling)


def _quantile(ordered: list[float], p: float) -> float:
    """The least error that a share `p` of them does not exceed; 0 without any."""
    return ordered[min(len(ordered) - 1, int(p * len(ordered)))] if ordered else 0.0
