"""Who goes now and who waits: who may take a request (scheduler), and what speaks against it (admission).

Whoever waits was refused by every replica. So when something about one replica changes, only that one is asked again
(and the one that has the prompt cached); when the pace opens, only those that are open. A look goes once through the
front of the queue, and whoever is sent makes room for nobody behind it.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Final

from headway.core.admission import Admission, Lanes, expired, unpaced
from headway.core.commands import Command, Hold, Reject, SetTimer
from headway.core.entries import Choice, Job, Waiting
from headway.core.ids import ReplicaId, RequestId
from headway.core.lanes import Look, in_turn, left_by, not_barred
from headway.core.pool import Pool, suits
from headway.core.queue import HoldQueue, cost
from headway.core.request import RequestInfo
from headway.core.scheduler import Avoid, Scheduler, bound
from headway.core.standing import Replica
from headway.core.view import ReplicaView

Send = Callable[[Job, Choice, float, list[Command]], None]
"""Dispatch a job to what was chosen for it."""

_SOON_S: Final = 0.001
"""A timer is never set nearer than this: whether a wait is over or just so depends on the last bit."""

AVOIDED_S: Final = 5.0
"""So long at least, one that waits keeps away from the replica it was lost with. If that one is dead, probes and those
who go there have shown it by then."""


class Holding:
    """Lets requests go, or keeps them. `jobs` are all requests alive; those held stay in it. `end` is told of each that
    ends here. `bars` says what has come to light against one while it waited."""

    def __init__(
        self,
        scheduler: Scheduler,
        admission: Admission,
        jobs: dict[RequestId, Job],
        send: Send,
        end: Callable[[Job], None],
        bars: Callable[[RequestInfo, float], Reject | None],
    ) -> None:
        self._scheduler = scheduler
        self._admission = admission
        self._jobs = jobs
        self._send = send
        self._end = end
        self._bars = bars

    def admit(self, job: Job, pool: Pool, at: float, out: list[Command]) -> None:
        """A request came: it goes, waits, or is refused because too many wait. Others may wait who are to go first;
        then it waits too, though it might fit. Those who matter less are no such others, however many they are, and
        nobody overtakes them by going first."""
        admission, request = self._admission, job.request
        self._jobs[request.id] = job
        pace = admission.pace
        if pace is not None:
            hits = job.demand.hits
            new = job.demand.prompt_tokens - (max(hits.values()) if hits else 0)
            pace.arrived(request.model, new, pool.candidates, at)
        busy = admission.busy(pool)
        choice = None
        if not admission.over_share(job, pool.replicas):
            scan, idle = admission.config.scan, admission.over_share
            among = left_by(self._looks(busy), request, pool, scan, idle) if busy else None
            if among is None or among:
                choice = self.choose(job, pool, at, among=among)
        if choice is None:
            self._hold(job, pool, at, out)
            return
        overdue = admission.overdue(job, pool.candidates, 0.0, at) if request.deadline is not None else ""
        if overdue:
            self._refuse(job, _overdue(admission.queue(pool), request.id, overdue, at), out)
            return
        if admission.queues:
            self._passes(job, pool, busy, choice.view.id, at)
        self._send(job, choice, at, out)

    def _passes(self, job: Job, pool: Pool, busy: Lanes, replica_id: ReplicaId, at: float) -> None:
        """A newcomer goes at once to a replica for which others may wait."""
        request, own = job.request, self._admission.queues.get(pool.lane)
        if own is not None and (own or own.losing(at)):
            own.pass_by(request, at)
        for look in self._looks(busy) if busy else ():
            if look.queue is not own and request.tier <= look.queue.turns.highest and look.pool.candidate(replica_id):
                look.queue.overtake()
        charged = own if own is not None else next(iter(busy.values()), None)
        if charged is not None:
            charged.charge(job, cost(job))

    def _looks(self, busy: Lanes) -> list[Look]:
        return [Look(queue, self._pool(queue)) for queue in busy.values()]

    def _pool(self, queue: HoldQueue) -> Pool:
        """The pool that those in a queue wait for."""
        return self._scheduler.pools[queue.model].from_rank(queue.rank)

    def choose(
        self,
        job: Job,
        pool: Pool,
        at: float,
        avoid: Avoid | None = None,
        among: Sequence[ReplicaView] | None = None,
    ) -> Choice | None:
        """The best replica that does not refuse: for want of memory or pace if the policy binds late, because it is
        kept for somebody else, or for those who are critical."""
        admission, scheduler = self._admission, self._scheduler
        if job.left is not None:
            avoid = bound(job, pool, avoid)
        reserved = admission.reserved(job.request, pool.replicas, pool.candidates)
        if not admission.late:
            if reserved is None:
                return scheduler.choose(pool, job.demand, at, job.at_least, avoid, None, among)
            left = [v for v in (pool.candidates if among is None else among) if reserved.leaves(v, job.part.peak)]
            return scheduler.choose(pool, job.demand, at, job.at_least, avoid, None, left)
        busy = admission.busy(pool)
        kept = [queue.kept_from(job.request) for queue in busy.values()] if busy else ()
        own = self._kept_for(job, pool) if busy and _doubtful(job, pool) else ""

        def refuses(view: ReplicaView) -> str:
            if view.id in kept:
                return "kept"
            if reserved and not reserved.leaves(view, job.part.peak):
                return "reserved"
            why = admission.refuses(job, view, at)
            return "" if why == "no_headroom" and view.id == own and admission.may_fit(job, view) else why

        return scheduler.choose(pool, job.demand, at, job.at_least, avoid, refuses, among)

    def _kept_for(self, job: Job, pool: Pool) -> ReplicaId:
        """The replica that is kept for one that waits, empty if none is."""
        queue = self._admission.queues.get(pool.lane)
        return queue.kept if queue is not None and queue.kept_for == job.request.id else ReplicaId("")

    def release(
        self, pools: Iterable[Pool], at: float, out: list[Command], replica_id: ReplicaId | None = None
    ) -> None:
        """Room may have been made, at one replica or anywhere: let those go who fit now."""
        for busy in {pool.group: self._admission.busy(pool) for pool in pools}.values():
            if busy:
                self._scheduler.refresh(at, out)
                self._release(self._looks(busy), replica_id, at, out)

    def _release(self, looks: Sequence[Look], replica_id: ReplicaId | None, at: float, out: list[Command]) -> None:
        """One look at the heads of queues for the same replicas and those behind them. Who needs more than one that did
        not fit is not asked, nor who is late once one did not that is not: there is always a late one small enough for
        whatever room is made, and each that took it would cost another its objective. (Who has a replica kept for it
        needs no other. And one that keeps away from where it was lost, or cannot go on there, says nothing of the room
        there.)"""
        for look in looks:
            self._keep(look.queue, look.pool, at)
        admission, barring = self._admission, list[Look]()
        for look, item in in_turn(looks, at):
            queue, pool, job = look.queue, look.pool, item.job
            among = self._asked(job, pool, replica_id, at)
            if not among:
                look.over = job.request.id != queue.kept_for  # those behind that one may be urgent
                continue
            if look.bars(item) or admission.over_share(job, pool.replicas):
                continue
            among = not_barred(_with_warmest(among, job, pool), item, barring, look)
            if not among:
                continue
            avoided = self._avoided(job, pool, at)
            choice = self.choose(job, pool, at, _none_of(avoided), among)
            if choice is None:
                look.first = False
                if not any(view.id in avoided for view in among) and _all_suit(job, pool, among):
                    if look not in barring:
                        barring.append(look)
                    look.too_big = job.part.peak
                    look.timely_waits = look.timely_waits or not (item.late or job.request.id == queue.kept_for)
                continue
            barred = None if job.generated else self._barred(queue, job, pool, at)
            if barred is not None:
                queue.remove(job.request.id)
                self._refuse(job, barred, out)
                continue
            for each in looks:
                each.passed(item, choice.view.id)
            queue.release(job.request.id, at)
            self._send(job, choice, at, out)
            self._scheduler.refresh(at, out)
        for look in looks:
            self._arm(look.pool, look.queue, at, out)

    def _barred(self, queue: HoldQueue, job: Job, pool: Pool, at: float) -> Reject | None:
        """What has come to light against one that waited, now that it could go."""
        overdue = self._admission.overdue(job, pool.candidates, 0.0, at)
        return _overdue(queue, job.request.id, overdue, at) if overdue else self._bars(job.request, at)

    def _keep(self, queue: HoldQueue, pool: Pool, at: float) -> None:
        """Whoever is first and was overtaken often enough has a replica kept for it: the one with the most headroom, of
        those that could take it. Only that one is closed to the others: one huge prompt must not stop a fleet."""
        admission, kept = self._admission, queue.find(queue.kept_for)
        if kept is not None and admission.over_share(kept.job, pool.replicas):
            queue.kept, queue.kept_for = ReplicaId(""), RequestId("")
        head = queue.outrun
        if head is None or admission.over_share(head.job, pool.replicas):
            return
        job = head.job
        if queue.kept_for == job.request.id and pool.candidate(queue.kept) is not None:
            return
        others = [other.kept_from(job.request) for other in queue.beside.values() if other is not queue]
        views = [view for view in self.places(job, pool, at) if view.id not in others]
        if views:
            queue.kept = max(views, key=_headroom).spec.id
            queue.kept_for = job.request.id

    def places(self, job: Job, pool: Pool, at: float) -> list[ReplicaView]:
        """Candidates that could take one that waits, once they have room: large enough, not reserved for others, and
        not where it was lost."""
        avoided = self._avoided(job, pool, at)
        reserved = self._admission.reserved(job.request, pool.replicas, pool.candidates)
        large = [replica.id for replica in pool.replicas if suits(replica, job)]
        return [
            view
            for view in map(pool.candidate, large)
            if view is not None and view.id not in avoided and not (reserved and reserved.whole(view.id))
        ]

    def _asked(self, job: Job, pool: Pool, replica_id: ReplicaId | None, at: float) -> Sequence[ReplicaView]:
        """Candidates worth asking."""
        pace = self._admission.pace
        if replica_id is None:
            views: Sequence[ReplicaView] = pool.candidates
        else:
            view = pool.candidate(replica_id)
            views = () if view is None else (view,)
        if pace is None or unpaced(job):
            return views
        return [view for view in views if pace.open(pool.model, view, 1, 0, at)]

    def _hold(self, job: Job, pool: Pool, at: float, out: list[Command]) -> None:
        request, admission = job.request, self._admission
        if not pool.candidates and not pool.saturated:
            self._refuse(job, no_replica(request.id), out)
            return
        queue = admission.queue(pool)
        excess = admission.queued_bytes + request.body_bytes - admission.config.max_queued_bytes
        victims = queue.victims(request, excess) if queue.full or excess > 0 else []
        if victims is None:
            queue.turned_away(request.tier, at)
            self._refuse(job, _queue_full(queue, request.id, at), out)
            return
        for victim in victims:
            queue.lost(victim.job.request.tier, at)
            queue.remove(victim.job.request.id)
            self._refuse(victim.job, _queue_full(queue, victim.job.request.id, at), out)
        item = queue.push(job, at, admission.due(job, pool.candidates))
        position = queue.position(item)
        wait = queue.wait_s(item, position, at)
        overdue = admission.overdue(job, pool.candidates, wait, at)
        if overdue:
            queue.remove(request.id)
            self._refuse(job, _overdue(queue, request.id, overdue, at), out)
            return
        if queue.beyond(item, position, at):
            self._give_up(queue, item, "the request would have to wait for longer than it may", at, out)
            return
        out.append(Hold(request.id, position, wait))
        self._arm(pool, queue, at, out)

    def keep(self, job: Job, at: float, out: list[Command]) -> bool:
        """A running request lost its replica, or gave way: it waits, however many do. False if there is no replica any
        more, in use or not, that could go on with it; it was told so then, and has not ended yet."""
        pool = self._scheduler.pools.get(job.request.model)
        if pool is None or not any(suits(replica, job) for replica in pool.replicas):
            out.append(no_replica(job.request.id))
            return False
        pool = pool.reaching(job.request.precision_floor)
        queue = self._admission.queue(pool)
        item = queue.push(job, at, at)
        position = queue.position(item)
        out.append(Hold(job.request.id, position, queue.wait_s(item, position, at)))
        self._arm(pool, queue, at, out)
        return True

    def postpone(self, job: Job, pool: Pool, at: float, out: list[Command], blameless: bool = True) -> bool:
        """A request whose attempt came to nothing waits, however many do, for as long as one that has just come. False
        if there is nobody in `pool` that room could be made at, unless it was tried. One that is `blameless` may go
        back to where it was tried, also if there is nobody else."""
        tried = () if blameless else job.tries.excluded
        if not self._untried(job, pool, tried):
            return False
        queue = self._admission.queue(pool)
        job.attempt, job.waits_from, job.tries.excluded = None, at, tried
        item = queue.push(job, at, self._admission.due(job, pool.candidates))
        position = queue.position(item)
        out.append(Hold(job.request.id, position, queue.wait_s(item, position, at)))
        self._arm(pool, queue, at, out)
        return True

    def _untried(self, job: Job, pool: Pool, tried: Sequence[ReplicaId]) -> bool:
        """Whether there is somebody whom it was not sent to, and at whom room could be made."""
        return any(each.id not in tried and self._may_make_room(pool, each, job) for each in pool.replicas)

    def _avoided(self, job: Job, pool: Pool, at: float) -> Sequence[ReplicaId]:
        """Where one that waits was lost and is not to go: as long as there is anybody else, and until that one is in
        use again, or still is after a while."""
        tried = job.tries.excluded
        if not tried or not self._untried(job, pool, tried):
            return ()
        if at - job.waits_from < AVOIDED_S:
            return tried
        return [replica_id for replica_id in tried if pool.reason_of(replica_id)]

    @staticmethod
    def _may_make_room(pool: Pool, replica: Replica, job: Job) -> bool:
        """Whether a replica has too much to do for a request now, but is well, and suits it."""
        return pool.reason_of(replica.id) in ("", "at_limit") and suits(replica, job)

    def _refuse(self, job: Job, refusal: Reject, out: list[Command]) -> None:
        """It ends here."""
        self._end(job)
        out.append(refusal)

    def _arm(self, pool: Pool, queue: HoldQueue, at: float, out: list[Command]) -> None:
        """Have the queue's timer fire when the first runs out of time, a replica takes a prompt again, or somebody may
        go back to where it was lost."""
        first, pace = min(queue.next_expiry, max(queue.next_look, at + _SOON_S)), self._admission.pace
        if pace is not None and queue:
            waits = pace.waits(pool.model, pool.candidates, at).values()
            first = min(first, at + max(min(waits, default=math.inf), _SOON_S))
        if queue.apart:
            first = min(first, at + AVOIDED_S)
        if first < queue.timer_at:
            queue.timer_at = first
            out.append(SetTimer(f"queue:{queue.lane}", first))

    def withdraw(self, job: Job, at: float, out: list[Command]) -> None:
        """The client of a held request went away."""
        queue = self._admission.holder(job)
        assert queue is not None  # it is held
        queue.remove(job.request.id)
        self._end(job)
        self.release([self._scheduler.pools[job.request.model]], at, out)

    def timer(self, name: str, at: float, out: list[Command]) -> bool:
        """Somebody's time is over, or the pace has opened. False if there is no such queue."""
        queue = self._admission.queues.get(name)
        if queue is None:
            return False
        for item in queue.due(at):
            self._expire(queue, item, at, out)
        if queue.next_look <= at:
            for item in queue.hopeless(at):
                self._give_up(queue, item, "the request waited, and would have to for longer than it may", at, out)
        queue.timer_at = math.inf
        pool = self._pool(queue)
        self.release([pool], at, out)
        self._arm(pool, queue, at, out)
        return True

    def _give_up(self, queue: HoldQueue, item: Waiting, text: str, at: float, out: list[Command]) -> None:
        """It would wait in vain: better told so now."""
        request_id = item.job.request.id
        queue.give_up(item, at)
        refusal = Reject(request_id, 503, "wait_too_long", text, queue.promise_s(at), shed=True)
        self._refuse(item.job, refusal, out)

    def _expire(self, queue: HoldQueue, item: Waiting, at: float, out: list[Command]) -> None:
        request = item.job.request
        out_of_patience = request.deadline is not None and request.deadline <= at
        if not out_of_patience:
            queue.lost(request.tier, at)
        queue.remove(request.id)
        if out_of_patience:
            self._refuse(item.job, expired(request.id), out)
        else:
            text = "no replica had room for the request in time"
            refusal = Reject(request.id, 503, "queue_timeout", text, queue.promise_s(at), shed=True)
            self._refuse(item.job, refusal, out)

    def dissolve(self, at: float, out: list[Command]) -> None:
        """Replicas came or went. Some models may not be served any more: whoever waits for them is told. Of others the
        pools may be different ones: whoever waits for one of them does so in its queue."""
        admission, pools = self._admission, self._scheduler.pools
        if admission.pace is not None:
            admission.pace.keep(pools)
        for model in {queue.model: None for queue in admission.queues.values() if queue.model not in pools}:
            for queue in admission.close(model):
                for item in list(queue):
                    self._refuse(item.job, no_replica(item.job.request.id), out)
        strange, moved = admission.regroup(pools), []
        for queue in admission.queues.values():
            for item in sorted(queue, key=_serial):
                pool = pools[queue.model].reaching(item.job.request.precision_floor)
                if pool.lane != queue.lane or queue in strange:
                    queue.remove(item.job.request.id)
                    moved.append((item, pool))
        for item, pool in moved:
            admission.queue(pool).adopt(item, at)

    def shed(self, model: str, below: int, at: float, out: list[Command]) -> None:
        """Who waits for a model, is less important than this and has not begun is refused: others need the room."""
        for queue in self._admission.lanes(model):
            for item in [item for item in queue if item.job.request.tier < below and not item.job.generated]:
                request_id = item.job.request.id
                queue.remove(request_id)
                text = "the model is overloaded, and more important requests wait"
                self._refuse(item.job, Reject(request_id, 503, "shed", text, queue.promise_s(at), shed=True), out)

    def fits(self, job: Job, view: ReplicaView, at: float) -> bool:
        """Whether memory is no reason against a replica."""
        return self._admission.fits(job, view, at)

    def waiting(self, model: str) -> int:
        """How many wait for a model."""
        return sum(len(queue) for queue in self._admission.lanes(model))

    def blocked(self, model: str, tier: int) -> list[Job]:
        """The first of each lane of a model who is at least so important and would be helped by room. Whoever is
        forecast to fit nowhere would not: engines will probably refuse it, whatever room others made for it. Nor would
        those whose tenant has its share."""
        admission, found = self._admission, []
        pool = self._scheduler.pools[model]
        for queue in admission.lanes(model):
            near = (item.job for item in islice(queue, admission.config.scan))
            able = (job for job in near if not admission.over_share(job, _reached(job, pool).replicas))
            for job in islice(able, 2):  # the very first may be one that was overtaken too often
                if job.request.tier >= tier and not _doubtful(job, pool):
                    found.append(job)
                    break
        return found

    @property
    def unchecked(self) -> bool:
        """Whether requests go without being asked what memory they need, although they could be."""
        return self._admission.late and not self._admission.config.hold

    def keep_for(self, job: Job, replica_id: ReplicaId) -> None:
        """Room is being made at a replica for one that waits: nobody else is to take it."""
        queue = self._admission.holder(job)
        assert queue is not None  # it waits
        queue.keep(replica_id, job.request.id)


def _reached(job: Job, pool: Pool) -> Pool:
    """Those of a pool that are precise enough for a request."""
    return pool.reaching(job.request.precision_floor)


def _doubtful(job: Job, pool: Pool) -> bool:
    """Whether a request is forecast to be too long for every replica, though it may not be."""
    return 0 < pool.longest < job.demand.prompt_tokens


def _overdue(queue: HoldQueue, request_id: RequestId, text: str, at: float) -> Reject:
    return Reject(request_id, 429, "deadline", text, queue.promise_s(at), shed=True)


def _queue_full(queue: HoldQueue, request_id: RequestId, at: float) -> Reject:
    text = f"too many requests are waiting for the model ({len(queue)})"
    return Reject(request_id, 503, "queue_full", text, queue.promise_s(at), shed=True)


def _none_of(tried: Sequence[ReplicaId]) -> Avoid | None:
    """What keeps a request from these."""
    return (lambda replica_id, _why: "tried" if replica_id in tried else "") if tried else None


def _all_suit(job: Job, pool: Pool, views: Sequence[ReplicaView]) -> bool:
    """Whether one that may have begun elsewhere could go on at each of these, so that none refuses it for that."""
    if job.left is None:
        return True
    suiting = {replica.id for replica in pool.replicas if suits(replica, job)}
    return all(view.id in suiting for view in views)


def _with_warmest(among: Sequence[ReplicaView], job: Job, pool: Pool) -> Sequence[ReplicaView]:
    """Those, and where most of the prompt is cached, if most of it is anywhere. Whoever came while many waited was
    never asked about that one, and it may be closed to all others: without it, one long queue costs every session its
    prefix, and the prefills of all those keep the queue long."""
    hits = job.demand.hits
    most = max(hits.values(), default=0)
    if not most or 2 * most < job.demand.prompt_tokens:
        return among
    warmest = pool.candidate(max(replica_id for replica_id, hit in hits.items() if hit == most))
    if warmest is None or any(view is warmest for view in among):
        return among
    return sorted([*among, warmest], key=_id)


def _serial(item: Waiting) -> int:
    return item.serial


def _id(view: ReplicaView) -> ReplicaId:
    return view.id


def _headroom(view: ReplicaView) -> float:
    return view.headroom_tokens


def no_replica(request_id: RequestId) -> Reject:
    """Nobody serves the model at the moment."""
    text = "no replica of this model is available at the moment"
    return Reject(request_id, 503, "no_replica", text, retry_after_s=1.0)
