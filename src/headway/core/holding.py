"""Who goes now and who waits: who may take a request (scheduler), and what speaks against it (admission).

Whoever waits was refused by every replica. So when something about one replica changes, only that one is asked again;
when the pace opens, only those that are open. A look goes once through the front of the queue, and whoever is sent
makes room for nobody behind it.
"""

import math
from collections.abc import Callable, Iterable, Sequence

from headway.core.admission import Admission, expired
from headway.core.commands import Command, Hold, Reject, SetTimer
from headway.core.entries import Choice, Job, Waiting
from headway.core.ids import ReplicaId, RequestId
from headway.core.queue import HoldQueue
from headway.core.scheduler import Avoid, Pool, Scheduler, context_limit
from headway.core.view import ReplicaView

Send = Callable[[Job, Choice, float, list[Command]], None]
"""Dispatch a job to what was chosen for it."""


_SOON_S = 0.001
"""A timer is never set nearer than this: whether a wait is over or just so depends on the last bit."""


class Holding:
    """Lets requests go, or keeps them. `jobs` are all requests alive; those held stay in it."""

    def __init__(self, scheduler: Scheduler, admission: Admission, jobs: dict[RequestId, Job], send: Send) -> None:
        self._scheduler = scheduler
        self._admission = admission
        self._jobs = jobs
        self._send = send

    def admit(self, job: Job, pool: Pool, at: float, out: list[Command]) -> None:
        """A request came: it goes, waits, or is refused because too many wait."""
        admission, request = self._admission, job.request
        pace = admission.pace
        if pace is not None:
            new = job.demand.prompt_tokens - max(job.demand.hits.values(), default=0)
            pace.arrived(request.model, new, pool.candidates, at)
        queue = admission.queues.get(request.model)
        if not queue:
            choice = self.choose(job, pool, at)
        elif len(queue) <= admission.config.scan:
            choice = self.choose(job, pool, at)
            if choice is not None:
                queue.overtake()
        else:
            choice = None
        if choice is None:
            self._hold(job, pool, at, out)
        else:
            self._jobs[request.id] = job
            self._send(job, choice, at, out)

    def choose(
        self,
        job: Job,
        pool: Pool,
        at: float,
        avoid: Avoid | None = None,
        among: Sequence[ReplicaView] | None = None,
    ) -> Choice | None:
        """The best replica that does not refuse, if the policy binds late; else the best."""
        admission = self._admission
        if not admission.late:
            return self._scheduler.choose(pool, job.demand, at, job.at_least, avoid, None, among)
        queue = admission.queues.get(pool.model)
        kept = queue.kept if queue is not None and queue.kept_for != job.request.id else ""

        def refuses(view: ReplicaView) -> str:
            if view.spec.id == kept:
                return "kept"
            return admission.refuses(job, view, at)

        return self._scheduler.choose(pool, job.demand, at, job.at_least, avoid, refuses, among)

    def release(
        self, pools: Iterable[Pool], at: float, out: list[Command], replica_id: ReplicaId | None = None
    ) -> None:
        """Room may have been made, at one replica or anywhere: let those go who fit now."""
        for pool in pools:
            queue = self._admission.queues.get(pool.model)
            if queue:
                self._scheduler.refresh(at, out)
                self._release(queue, pool, replica_id, at, out)

    def _release(
        self, queue: HoldQueue, pool: Pool, replica_id: ReplicaId | None, at: float, out: list[Command]
    ) -> None:
        """One look at the head and those behind it. Who needs more than one that did not fit is not asked."""
        self._keep(queue, pool)
        first = True
        too_big = math.inf
        for item in queue.within_reach(at):
            job = item.job
            among = self._asked(pool, replica_id, at)
            if not among:
                break
            if job.part.peak >= too_big:
                continue
            choice = self.choose(job, pool, at, None, among)
            if choice is None:
                first = False
                too_big = job.part.peak
                continue
            if not first:
                queue.overtake(item.late)
            elif not item.late:
                queue.pass_late()
            queue.release(job.request.id, at)
            self._send(job, choice, at, out)
            self._scheduler.refresh(at, out)
        self._arm(pool, queue, at, out)

    def _keep(self, queue: HoldQueue, pool: Pool) -> None:
        """Whoever is first and was overtaken often enough has a replica kept for it: the one with the most headroom, of
        those that can hold it at all. Only that one is closed to the others: one huge prompt must not stop a fleet."""
        head = queue.outrun
        if head is None:
            return
        job = head.job
        if queue.kept_for == job.request.id and pool.candidate(queue.kept) is not None:
            return
        large = [replica.spec.id for replica in pool.replicas if not 0 < context_limit(replica) < job.at_least]
        views = [view for view in map(pool.candidate, large) if view is not None]
        if views:
            queue.kept = max(views, key=_headroom).spec.id
            queue.kept_for = job.request.id

    def _asked(self, pool: Pool, replica_id: ReplicaId | None, at: float) -> Sequence[ReplicaView]:
        """Candidates worth asking."""
        pace = self._admission.pace
        if replica_id is None:
            views: Sequence[ReplicaView] = pool.candidates
        else:
            view = pool.candidate(replica_id)
            views = () if view is None else (view,)
        return views if pace is None else [view for view in views if pace.open(pool.model, view, 1, 0, at)]

    def _hold(self, job: Job, pool: Pool, at: float, out: list[Command]) -> None:
        request = job.request
        if not pool.candidates and not pool.saturated:
            out.append(no_replica(request.id))
            return
        queue = self._admission.queue(request.model)
        if queue.full:
            text = f"too many requests are waiting for the model ({len(queue)})"
            out.append(Reject(request.id, 503, "queue_full", text, queue.retry_after_s(), shed=True))
            return
        self._jobs[request.id] = job
        item = queue.push(job, at, self._admission.due(job, pool.candidates))
        out.append(Hold(request.id, queue.position(item)))
        self._arm(pool, queue, at, out)

    def _arm(self, pool: Pool, queue: HoldQueue, at: float, out: list[Command]) -> None:
        """Have the queue's timer fire when the first runs out of time, or a replica takes a prompt again."""
        first, pace = queue.next_expiry, self._admission.pace
        if pace is not None and queue:
            waits = pace.waits(pool.model, pool.candidates, at).values()
            first = min(first, at + max(min(waits, default=math.inf), _SOON_S))
        if first < queue.timer_at:
            queue.timer_at = first
            out.append(SetTimer(f"queue:{pool.model}", first))

    def withdraw(self, job: Job, at: float, out: list[Command]) -> None:
        """The client of a held request went away."""
        self._admission.queue(job.request.model).remove(job.request.id)
        del self._jobs[job.request.id]
        self.release([self._scheduler.pools[job.request.model]], at, out)

    def timer(self, model: str, at: float, out: list[Command]) -> bool:
        """Somebody's time is over, or the pace has opened. False if nobody can wait for the model."""
        queue = self._admission.queues.get(model)
        if queue is None:
            return False
        retry_after = queue.retry_after_s()
        for item in queue.due(at):
            self._expire(queue, item, retry_after, at, out)
        queue.timer_at = math.inf
        pool = self._scheduler.pools[model]
        self.release([pool], at, out)
        self._arm(pool, queue, at, out)
        return True

    def _expire(self, queue: HoldQueue, item: Waiting, retry_after: float, at: float, out: list[Command]) -> None:
        request = item.job.request
        queue.remove(request.id)
        del self._jobs[request.id]
        if request.deadline is not None and request.deadline <= at:
            out.append(expired(request.id))
        else:
            text = "no replica had room for the request in time"
            out.append(Reject(request.id, 503, "queue_timeout", text, retry_after, shed=True))

    def dissolve(self, out: list[Command]) -> None:
        """Some models may not be served any more: whoever waits for them is told."""
        queues, pace = self._admission.queues, self._admission.pace
        if pace is not None:
            pace.keep(self._scheduler.pools)
        for model in [name for name in queues if name not in self._scheduler.pools]:
            for item in queues.pop(model):
                del self._jobs[item.job.request.id]
                out.append(no_replica(item.job.request.id))

    def positions(self) -> dict[RequestId, int]:
        """Who is held, with the position in the queue of its model, counted from 1."""
        queues = self._admission.queues.values()
        return {item.job.request.id: n for queue in queues for n, item in enumerate(queue, start=1)}


def _headroom(view: ReplicaView) -> float:
    return view.headroom_tokens


def no_replica(request_id: RequestId) -> Reject:
    """Nobody serves the model at the moment."""
    text = "no replica of this model is available at the moment"
    return Reject(request_id, 503, "no_replica", text, retry_after_s=1.0)
