"""Each replica in turn, in proportion to its weight, per model.

One counter for all models skews as soon as two are asked for alternately, and a position in a list skips replicas when
the list changes. So each replica of a model has a virtual time that advances by 1 / weight when it is its turn (stride
scheduling: Waldspurger and Weihl, 1995); the least is next. Who comes back after an absence starts at the present.
"""

from collections.abc import Sequence
from math import inf

from headway.core.demand import Demand
from headway.core.ids import ReplicaId
from headway.core.plugin import Chance, Plugin
from headway.core.view import ReplicaView
from headway.policies.weights import RoundRobinConfig


class _Turns:
    """Virtual times of the replicas of one model; `present` is when the last turn was taken."""

    __slots__ = ("present", "times")

    def __init__(self) -> None:
        self.present = 0.0
        self.times: dict[ReplicaId, float] = {}


class RoundRobin:
    """The replica whose turn it is costs 0, the others how far off they are."""

    name = "round_robin"
    parts: tuple[str, ...] = ()
    tolerance = 0.0
    binds_late = False
    foresees = False

    def __init__(self, config: RoundRobinConfig) -> None:
        self._config = config
        self._models: dict[str, _Turns] = {}

    def costs(
        self, demand: Demand, views: Sequence[ReplicaView], now: float, rng: Chance
    ) -> Sequence[tuple[float, ...]]:
        """Takes the turn as well: the scheduler picks the least cost, and only one is 0."""
        turns = self._turns(demand.request.model)
        present, times = turns.present, turns.times
        due: list[float] = []
        turn, least, name = 0, inf, ""
        for k, view in enumerate(views):
            replica = view.id
            at = times.get(replica, present)
            at = at if at > present else present
            due.append(at)
            if at < least or (at == least and replica < name):
                turn, least, name = k, at, replica
        turns.present = least
        times[views[turn].spec.id] = least + 1.0 / views[turn].spec.weight
        if len(times) > 2 * len(views) + 16:  # most of them are long gone
            turns.times = {view.id: times[view.id] for view in views if view.id in times}
        return [(0.0 if k == turn else 1.0 + at - least,) for k, at in enumerate(due)]

    def _turns(self, model: str) -> _Turns:
        turns = self._models.pop(model, None)
        if turns is None:
            turns = _Turns()
            if len(self._models) >= self._config.max_models:
                del self._models[next(iter(self._models))]
        self._models[model] = turns
        return turns


PLUGIN = Plugin("round_robin", RoundRobin, RoundRobinConfig)
