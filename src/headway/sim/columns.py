"""What became of every request of a run, in columns; and what the fleet looked like, second by second.

Written once per request while the simulation runs, so that it is compiled with the driver. What is made of them is not
known here (measure).
"""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

from headway.core.commands import Moved
from headway.perfmodel.decoding import Job
from headway.perfmodel.steptime import Batch
from headway.sim.prompt import Prompt
from headway.sim.replica import SimReplica
from headway.workload.request import Request

OK, SHED, FAILED, OPEN = range(4)
_REFERENCE: Final = Batch(32, 32_000, 0, 0.0, 32)


class Columns:
    """One value per request (NaN until known), one row per look at the fleet."""

    def __init__(
        self,
        requests: Sequence[Request],
        prompts: Sequence[Prompt],
        replicas: Sequence[SimReplica],
        tier: Sequence[int] = (),
    ) -> None:
        count = len(requests)
        self.tier = list(tier) or [0] * count
        self.moves: Counter[str] = Counter()
        self.replayed = 0
        self.stalls: Sequence[float] = ()
        self.arrival = [request.arrival_s for request in requests]
        self.prompt = [prompt.tokens for prompt in prompts]
        self.output = [request.output_tokens for request in requests]
        self.dispatch = [math.nan] * count
        self.started = [math.nan] * count
        self.first = [math.nan] * count
        self.last = [math.nan] * count
        self.preempted = [0] * count
        self.fate = [OPEN] * count
        self.ended_at = 0.0
        self.names = tuple(str(replica.id) for replica in replicas)
        self.times: list[float] = []
        self.usage: list[list[float]] = []
        self.running: list[list[int]] = []
        self.waiting: list[list[int]] = []
        self.preemptions: list[int] = []
        self.totals = [0, 0, 0, 0]
        self.spoken: list[float] = []

    def dispatched(self, index: int, replica: SimReplica, at: float) -> None:
        """A request was sent, for the first time or again."""
        self.dispatch[index] = at

    def ended(self, index: int, job: Job) -> None:
        """An attempt is over: what its engine noted of it."""
        self.preempted[index] += job.preemptions
        if job.started >= 0.0 and math.isnan(self.started[index]):
            self.started[index] = job.started
        if job.first_token >= 0.0:
            self.last[index] = job.last_token
            if math.isnan(self.first[index]):
                self.first[index] = job.first_token

    def moved(self, entry: Moved) -> None:
        """The brain recorded something about a move."""
        self.moves[entry.result] += 1
        if entry.result in ("cut", "failed_over"):
            self.replayed += entry.replayed_tokens

    def closed(self, index: int, at: float, ok: bool, shed: bool) -> None:
        """A request came to its end."""
        self.fate[index] = OK if ok else SHED if shed else FAILED

    def look(self, at: float, replicas: Iterable[SimReplica]) -> None:
        """One row of the fleet's curves."""
        self.times.append(at)
        self.usage.append([replica.kv_usage(at) for replica in replicas])
        self.running.append([len(replica.engine.running) for replica in replicas])
        self.waiting.append([len(replica.engine.waiting) for replica in replicas])
        self.preemptions.append(sum(replica.totals[0] for replica in replicas))

    def finish(self, at: float, replicas: Iterable[SimReplica], stalls: Sequence[float] = ()) -> None:
        """Totals of the engines at the end, and what clients noticed of moves."""
        self.ended_at = at
        self.stalls = stalls
        for replica in replicas:
            self.totals = [one + more for one, more in zip(self.totals, replica.totals, strict=True)]
            self.spoken.append(replica.generated * replica.ground.model.step_s(_REFERENCE))
