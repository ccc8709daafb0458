"""Whether a request may go now, must wait, or is refused; and the queues of those that wait.

A request is refused only for certain reasons: its model is unknown, it cannot fit any replica even by a lower bound of
its length, its deadline has passed, the queue is full. It waits (bound late) only for memory: until on some acceptable
replica the forecast peak of the batch, with it and `z` deviations, stays within the pool; or, where the operator set
one, for a count limit. Two things are never a reason to wait: missing data, and a replica with nothing to do.

One FIFO queue per model, bounded in count and in time. Who does not fit does not stop smaller ones behind it for ever,
nor is it passed by for ever: the head is overtaken at most `bypass_max` times.
"""

import math
from collections.abc import Iterator

from headway.core.commands import Reject
from headway.core.constants import AdmissionConfig
from headway.core.entries import Job, Waiting
from headway.core.fleet import Fleet
from headway.core.ids import RequestId
from headway.core.request import RequestInfo
from headway.core.view import ReplicaView


class HoldQueue:
    """Those who wait for one model, in order of arrival."""

    def __init__(self, config: AdmissionConfig) -> None:
        self._config = config
        self._items: dict[RequestId, Waiting] = {}
        self._released_at: float | None = None
        self._pace_s = 0.0
        self.timer_at = math.inf

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[Waiting]:
        return iter(self._items.values())

    @property
    def full(self) -> bool:
        """No one else may wait."""
        return len(self._items) >= self._config.max_queued

    def push(self, job: Job, at: float) -> Waiting:
        """The last in the queue."""
        expires = at + self._config.queue_timeout_s
        if job.request.deadline is not None:
            expires = min(expires, job.request.deadline)
        job.held = True
        item = self._items[job.request.id] = Waiting(job, expires)
        return item

    def remove(self, request_id: RequestId) -> None:
        """It was cancelled or has expired."""
        self._items.pop(request_id).job.held = False

    def release(self, request_id: RequestId, at: float) -> None:
        """It was dispatched. Whoever is at the head and stays was overtaken."""
        self.remove(request_id)
        if self._released_at is not None:
            gap = at - self._released_at
            self._pace_s += 0.1 * (gap - self._pace_s)
        self._released_at = at

    def overtake(self) -> None:
        """Somebody passes the head."""
        for head in self:
            head.bypassed += 1
            break

    @property
    def passable(self) -> bool:
        """Whether the head may be overtaken."""
        for head in self:
            return head.bypassed < self._config.bypass_max
        return True

    def within_reach(self) -> list[Waiting]:
        """The head and those behind it that may be looked at."""
        found = []
        for item in self:
            found.append(item)
            if len(found) > self._config.scan:
                break
        return found

    def due(self, at: float) -> list[Waiting]:
        """Those whose time is over."""
        return [item for item in self if item.expires <= at]

    @property
    def next_expiry(self) -> float:
        """When the first of them runs out of time; infinite if nobody waits."""
        return min((item.expires for item in self), default=math.inf)

    def retry_after_s(self) -> float:
        """When to come back: the time this queue takes to drain at its recent pace, in whole seconds."""
        wait = math.ceil(len(self._items) * self._pace_s)
        return float(min(max(1, wait), self._config.retry_after_max_s))


class Admission:
    """The queues of all models, and the tests a request must pass."""

    def __init__(self, fleet: Fleet, config: AdmissionConfig | None = None) -> None:
        self._fleet = fleet
        self._config = config or AdmissionConfig()
        self.queues: dict[str, HoldQueue] = {}

    @property
    def queued(self) -> int:
        """All who wait."""
        return sum(len(queue) for queue in self.queues.values())

    def queue(self, model: str) -> HoldQueue:
        """The queue of a (known) model."""
        found = self.queues.get(model)
        if found is None:
            found = self.queues[model] = HoldQueue(self._config)
        return found

    def infeasible(self, request: RequestInfo, at_least: int, longest: int) -> Reject | None:
        """A refusal if the prompt exceeds every replica's limit. `longest` is 0 if any limit is unknown."""
        if not longest or at_least <= longest:
            return None
        text = (
            f"This model's maximum context length is {longest} tokens, "
            f"but the request has at least {at_least - 1} tokens in its prompt."
        )
        return Reject(request.id, 400, "context_length_exceeded", text)

    def fits(self, job: Job, view: ReplicaView, at: float) -> bool:
        """Whether the replica's forecast peak with this request stays within its pool.

        Upper bounds first, the cheapest of all (which also holds where the pool's size is unknown) before all.
        Only if the sum of both reaches is too much are the horizons walked.
        """
        part, memory = job.part, self._fleet.memory
        if view.headroom_tokens >= part.mean_bound + memory.z * (view.headroom_sigma + part.sigma_bound):
            return True
        if view.in_flight == 0 and view.running <= 0:
            return True
        room = view.kv_capacity_tokens * (1.0 - memory.spare)
        spread = memory.z * (math.sqrt(view.peak_var) + math.sqrt(part.peak_var))
        if view.peak_mean + part.peak + spread <= room:
            return True
        replica = self._fleet.replicas[view.spec.id]
        _, kv, kv_var = self._fleet.foreign(replica, at) or (0, 0.0, 0.0)
        return replica.account.curve.fits(part, room - kv, kv_var, memory.z)


def expired(request_id: RequestId) -> Reject:
    """The client's deadline has passed, before or while it waited."""
    return Reject(request_id, 504, "deadline", "the deadline of the request has passed", shed=True)
