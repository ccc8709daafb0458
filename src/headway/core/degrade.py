"""What a pool in distress gives up, in steps: levels 1 to 4 of each model, with their moves as a table.

1 new sessions are refused, 2 what is below STANDARD is dropped and shed, both by saturation; 3 a replica is dead, 4 so
many breakers are open that another model answers instead, both by health, and whatever the saturation. Saturation is
the wait a request must expect, or how full the replicas' memory will be; its median over some seconds moves the level,
a step down takes five points more than a step up, and no move follows another at once.

What lives here: the levels, who is refused at them, and what a burst costs. What must not: how long one waits
(`queue`), who is ill (`health`), which sessions are known (`sessions`); and nothing is measured here.
"""

import enum
import math
from bisect import bisect_right
from collections import deque
from collections.abc import Container, Iterable, Sequence
from statistics import median
from typing import Final

from headway.core.burst import Pulse
from headway.core.commands import Command, LevelChanged, Record
from headway.core.constants import BurstConfig, DegradeConfig
from headway.core.plugin import Chance
from headway.core.request import RequestInfo
from headway.core.standing import Replica
from headway.core.tenant import Tier
from headway.core.view import ReplicaView

_STANDARD, _HIGH = int(Tier.STANDARD), int(Tier.HIGH)


class Level(enum.IntEnum):
    """How far a model's pool is degraded. The higher includes nothing of the lower: 3 and 4 are about health."""

    NORMAL = 0
    NO_NEW_SESSIONS = 1
    SHEDDING = 2
    REPLICA_LOST = 3
    FALLBACK = 4


class Zone(enum.IntEnum):
    """Where saturation lies among the three bounds."""

    CALM = 0
    EASY = 1
    FULL = 2
    OVER = 3


NEXT: Final[dict[tuple[Level, Zone], Level]] = {
    (Level.NORMAL, Zone.FULL): Level.NO_NEW_SESSIONS,
    (Level.NORMAL, Zone.OVER): Level.SHEDDING,
    (Level.NO_NEW_SESSIONS, Zone.OVER): Level.SHEDDING,
    (Level.NO_NEW_SESSIONS, Zone.CALM): Level.NORMAL,
    (Level.SHEDDING, Zone.EASY): Level.NO_NEW_SESSIONS,
    (Level.SHEDDING, Zone.CALM): Level.NORMAL,
}
"""A pair that is absent changes nothing."""


def saturation(views: Sequence[ReplicaView], wait_s: float, held: bool, config: DegradeConfig) -> float:
    """Mean over replicas of max(expected wait / `wait_s`, 95 % bound of the forecast peak / capacity); 0.0 and up.

    `held`: requests wait with us until they fit. Then a pool that is used well is always about full, and the wait is
    what tells distress: memory counts as `memory_most` at most. A pool of unknown size counts by the wait alone.
    """
    waits = wait_s / config.wait_s
    most = config.memory_most if held else math.inf
    total = 0.0
    for view in views:
        full = 0.0
        if view.kv_capacity_tokens:
            peak = view.peak_mean + config.memory_z * math.sqrt(view.peak_var)
            full = min(most, peak / view.kv_capacity_tokens)
        total += max(waits, full)
    return total / len(views) if views else waits


class Strained:
    """One model's pool. `stage` is its level by saturation, `raised` by health, `level` the higher of the two."""

    __slots__ = (
        "_config", "_raised_at", "_samples", "_staged_at", "arrived_at", "latest", "level", "model", "pulse", "raised",
        "saturation", "settling", "stage",
    )  # fmt: skip

    def __init__(self, model: str, config: DegradeConfig, burst: BurstConfig) -> None:
        self.model = model
        self.pulse = Pulse(burst)
        self.stage = Level.NORMAL
        self.raised = Level.NORMAL
        self.level = Level.NORMAL
        self.saturation = 0.0
        self.latest = 0.0
        self.arrived_at = -math.inf
        self.settling = False  # health is better than the level says, which must dwell
        self._config = config
        self._samples: deque[float] = deque([0.0] * config.window_s, config.window_s)
        self._staged_at = -math.inf
        self._raised_at = -math.inf

    @property
    def burst(self) -> bool:
        """Whether requests come much faster than they did."""
        return self.pulse.on

    def restless(self, at: float) -> bool:
        """Whether time alone may change something: it must be looked at again soon."""
        quiet = at - self.arrived_at > self._config.window_s
        return (
            not quiet or bool(self.stage) or self.settling or self.burst or max(self._samples) >= self._config.bounds[0]
        )

    def measured(self, value: float, at: float, out: list[Command]) -> bool:
        """Saturation was measured, and another second is over. True if shedding begins."""
        self._samples.append(value)
        self.latest = value
        self.saturation = median(self._samples)
        turned = self.pulse.judge(at)
        before = self.stage
        target = NEXT.get((before, Zone(bisect_right(self._config.bounds, self.saturation))))
        if target is not None and at - self._staged_at >= self._config.dwell_s:
            self.stage, self._staged_at = target, at
        self._show(turned, at, out)
        return self.stage is Level.SHEDDING and before is not Level.SHEDDING

    def stands(self, replicas: Iterable[Replica], at: float, out: list[Command]) -> None:
        """The health of its replicas may have changed. What is worse shows at once, what is better must last."""
        health = [replica.health for replica in replicas]
        ejected = sum(each.ejected for each in health)
        target = Level.NORMAL
        if health and ejected >= self._config.open_share * len(health):
            target = Level.FALLBACK
        elif any(each.dead for each in health):
            target = Level.REPLICA_LOST
        if target >= self.raised:
            self._raised_at = at
        self.settling = target < self.raised and at - self._raised_at < self._config.dwell_s
        if not self.settling:
            self.raised = target
        self._show(False, at, out)

    def _show(self, turned: bool, at: float, out: list[Command]) -> None:
        before, self.level = self.level, max(self.stage, self.raised)
        if turned or self.level is not before:
            out.append(Record(LevelChanged(at, self.model, int(self.level), self.burst, self.saturation)))


class Degrade:
    """The levels of all models. Only known models are asked about: names of clients do not come here."""

    def __init__(self, chance: Chance, config: DegradeConfig | None = None, burst: BurstConfig | None = None) -> None:
        self.config = config or DegradeConfig()
        self.burst = burst or BurstConfig()
        self.pools: dict[str, Strained] = {}
        self._chance = chance

    def pool(self, model: str) -> Strained:
        """The pool of a (known) model."""
        found = self.pools.get(model)
        if found is None:
            found = self.pools[model] = Strained(model, self.config, self.burst)
        return found

    def keep(self, models: Container[str], at: float, out: list[Command]) -> None:
        """Forget every other model: what is not served is not degraded."""
        for pool in [pool for model, pool in self.pools.items() if model not in models]:
            del self.pools[pool.model]
            if pool.level or pool.burst:
                out.append(Record(LevelChanged(at, pool.model, 0, False, 0.0)))

    def arrived(self, model: str, at: float) -> Strained:
        """A request came."""
        pool = self.pools.get(model) or self.pool(model)
        pool.pulse.arrived(at)
        pool.arrived_at = at
        return pool

    def refuses(self, pool: Strained, request: RequestInfo, known: bool) -> str:
        """Why a request is refused, empty if it is not: a code of `commands.Reject`. `known`: its session is, or it
        names none. Asking may draw a chance."""
        if not self.config.levels:
            return ""
        if request.tier < _STANDARD:
            if pool.stage is Level.SHEDDING:
                return "shed"
            beyond = (pool.latest - self.config.shed_from) / (1.0 - self.config.shed_from)
            if beyond > 0.0 and self._chance.random() < min(1.0, beyond) ** 2:
                return "shed"
        if pool.stage is Level.NORMAL or known or request.tier >= _HIGH:
            return ""
        return "new_sessions_refused"

    def fallback(self, pool: Strained) -> str:
        """The model that answers instead, empty if the pool answers itself."""
        if pool.raised is not Level.FALLBACK or not self.config.levels:
            return ""
        other = self.config.fallbacks.get(pool.model, "")
        found = self.pools.get(other)
        return "" if found is not None and found.raised is Level.FALLBACK else other

    def curbs(self, pool: Strained, request: RequestInfo) -> bool:
        """Whether a burst costs a request anything."""
        return pool.burst and self.burst.curbs and request.generates

    def cap(self, request: RequestInfo) -> int:
        """The most tokens that it may have then, 0 if its own limit is no higher."""
        own = request.max_output_tokens
        return 0 if 0 < own <= self.burst.max_tokens else self.burst.max_tokens
