"""Those who wait for one pool, and the bounds on that: the second of the two levels of queueing.

In which order they go is settled by tiers, tenants and deadlines (`turns`), or by arrival alone. So that nothing
starves, whoever waits long behind a higher tier, here or in a queue beside, rises by one (never to the highest; who is
late for its objective not beyond standard, or the late ones would go before all who can still be served well); the
first of those who are late is overtaken at most `late_bypass` times, then it goes before everybody; and nobody waits
longer than `queue_timeout_s`. Whoever is first and does not fit is overtaken `bypass_max` times more (`urgent_bypass`
times, late or not, if it is of a high tier); then one replica (`kept`) is kept for it.

Those who are refused are told when to come back: each is promised a moment of its own, so that they do not come back
all at once, and find room when they do.
"""

import math
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterator
from typing import Final

from headway.core.constants import AdmissionConfig
from headway.core.entries import Job, Waiting
from headway.core.hopes import Hopes
from headway.core.ids import ReplicaId, RequestId
from headway.core.request import RequestInfo
from headway.core.tenant import Tier
from headway.core.turns import Sorted, Turns, discard

_TOP: Final = int(Tier.HIGH)
"""As high as waiting lifts anybody: what is critical stays before what merely waited."""

_PACE_STEP: Final = 0.1
"""What the last gap counts for in the pace, once there were ten; until then all count alike, and nothing counts that
never was."""


def _alike(_tenant: str) -> float:
    return 1.0


class HoldQueue:
    """Who waits for one pool. `ordered`: by what can still be met, else in order of arrival; `weight`: of a tenant;
    `lane` and `rank` are those of the pool; `beside`: by lane, the queues of its group in which anybody waits, this one
    included if anybody does."""

    def __init__(
        self,
        config: AdmissionConfig,
        ordered: bool = False,
        weight: Callable[[str], float] = _alike,
        model: str = "",
        lane: str = "",
        rank: int = 0,
        beside: "dict[str, HoldQueue] | None" = None,
    ) -> None:
        self.model = model
        self.lane = lane
        self.rank = rank
        self.beside = {} if beside is None else beside
        self._config = config
        self._ordered = ordered
        self.turns = Turns(weight)
        self._hopes = Hopes(config, self.turns)
        self._items: dict[RequestId, Waiting] = {}
        self._dues: Sorted = []
        self._late: Sorted = []
        self._rises: Sorted = []
        self._expiries: Sorted = []
        self._serial = 0
        self._released_at: float | None = None
        self.pace_s = 0.0  # between two dispatches, 0 while unknown
        self._gaps = 0
        self._promised = 0.0
        self.bytes = self.returned = 0  # those who wait that were with an engine already
        self.apart = 0  # those who keep away from where they were lost
        self.timer_at = math.inf
        self.kept = ReplicaId("")
        self.kept_for = RequestId("")

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[Waiting]:
        """In the order in which they would go, if everybody fitted."""
        urgent = self.urgent
        if urgent is not None:
            yield urgent
        for item in self.turns:
            if item is not urgent:
                yield item

    @property
    def full(self) -> bool:
        """No one else may wait."""
        return len(self._items) >= self._config.max_queued

    def victims(self, request: RequestInfo, excess: int) -> list[Waiting] | None:
        """Who goes so that one more may wait, and so many bytes less are kept; None if not enough would."""
        found: list[Waiting] = []
        for victim in self.turns.dispensable(request.tier, request.tenant):
            found.append(victim)
            excess -= victim.job.request.body_bytes
            if excess <= 0 and len(self._items) - len(found) < self._config.max_queued:
                return found
        return None

    def push(self, job: Job, at: float, due: float = math.inf) -> Waiting:
        """Somebody waits. `due`: the last moment at which it can go and keep its objective."""
        request = job.request
        expires = max(job.arrived_at, job.waits_from) + self._config.queue_timeout_s
        if request.deadline is not None:
            expires = min(expires, request.deadline)
        self._serial += 1
        due = due if self._ordered else math.inf
        if job.generated and self._ordered:
            due = -math.inf  # its client waits in the middle of an answer: before its like, and never late
        late = -math.inf < due < at
        item = Waiting(job, self._serial, expires, due, request.tier, request.tenant, cost(job), late)
        self._enter(item, at)
        if late:
            self._hopes.missed(request.tier, at)
        if item.tier < _TOP and self._config.rise_s:
            self._rise(item, at)
        return item

    def adopt(self, item: Waiting, at: float) -> None:
        """One that waited in another queue, and was removed there, waits here from now on. It is what it was, but for
        its place among the late ones: behind those who are here."""
        self._serial += 1
        item.serial = self._serial
        self._enter(item, at)
        if item.rises_at < math.inf:
            insort(self._rises, (item.rises_at, item.serial, item))

    def _enter(self, item: Waiting, at: float) -> None:
        job, request = item.job, item.job.request
        others = [other for other in self.beside.values() if other is not self]
        if not self._items:
            if others:
                self.turns.join(others[0].turns)  # which were charged for all that went meanwhile
            self.beside[self.lane] = self
        job.held = True
        self._items[request.id] = item
        self.bytes += request.body_bytes
        self.returned += _was_away(job)
        self.apart += bool(job.tries.excluded)
        known = self.turns.waits(item.tenant)
        self.turns.add(item)
        for other in others:
            if not known and other.turns.waits(item.tenant):
                self.turns.follow(other.turns, item.tenant)  # it was not away
                break
        self._hopes.waits(item, at)
        insort(self._expiries, (item.expires, item.serial, item))
        if item.late:
            insort(self._late, (0.0, item.serial, item))
        elif abs(item.due) < math.inf:
            insort(self._dues, (item.due, item.serial, item))

    def position(self, item: Waiting) -> int:
        """How many are to go up to this one, itself included."""
        urgent = self.urgent
        if item is urgent:
            return 1
        return self.turns.ahead(item) + (1 if urgent is None or item.late else 2)

    def wait_s(self, item: Waiting, position: int, at: float) -> float:
        """How long it must expect to wait at this position, 0 while no pace is known."""
        return self._hopes.wait_s(item, position, self.pace_s, at)

    def wait_of(self, tier: int, at: float, lost_s: float = 0.0) -> float:
        """How long one of this tier that comes now must expect to wait at the recent pace. Those who missed their
        objective are no hindrance, they go behind it; but it may miss its own, as often as others did lately, and wait
        as they do; and whoever is not served counts as if it waited as long as it may, or for `lost_s`: that it does
        not is no sign of ease. (Where nobody is told that it waits in vain, whoever waits counts.)"""
        config, pace = self._config, self.pace_s
        ahead = self.turns.timely_from(tier) if config.hopeless else self.turns.from_tier(tier)
        return max(ahead * pace, self._hopes.burden_s(tier, pace, max(config.queue_timeout_s, lost_s), at))

    @property
    def drain_s(self) -> float:
        """How long the last of them will wait at the recent pace."""
        return len(self._items) * self.pace_s

    def find(self, request_id: RequestId) -> Waiting | None:
        """The one of this id, None if it does not wait here."""
        return self._items.get(request_id)

    def kept_from(self, request: RequestInfo) -> ReplicaId:
        """The replica that is not for this request, as it is kept for another one that matters as much. "": none."""
        held = self._items.get(self.kept_for) if self.kept else None
        if held is None or held.job.request.id == request.id or held.tier < request.tier:
            return ReplicaId("")
        return self.kept

    def keep(self, replica_id: ReplicaId, request_id: RequestId) -> None:
        """A replica is kept for one that waits, and not any longer for whoever matters no more."""
        tier = self._items[request_id].tier
        for other in self.beside.values():
            held = other.find(other.kept_for) if other.kept == replica_id else None
            if held is not None and held.tier <= tier:
                other.kept, other.kept_for = ReplicaId(""), RequestId("")
        self.kept, self.kept_for = replica_id, request_id

    def give_up(self, item: Waiting, at: float) -> None:
        """It would wait in vain."""
        tier = item.job.request.tier
        if not item.late:
            self._hopes.missed(tier, at)
        self.lost(tier, at)
        self.remove(item.job.request.id)

    def lost(self, tier: int, at: float) -> None:
        """One of this tier is not served, for it could not wait, or not any longer."""
        self._hopes.lost(tier, at)

    def losing(self, at: float) -> bool:
        """Whether anybody was not served lately."""
        return self._hopes.losing(at)

    def turned_away(self, tier: int, at: float) -> None:
        """One of this tier came, and may not wait: too many do."""
        self._hopes.came(tier, at)
        self._hopes.missed(tier, at)
        self.lost(tier, at)

    def remove(self, request_id: RequestId) -> None:
        """It was cancelled or has expired."""
        item = self._items.pop(request_id)
        item.job.held = False
        self.bytes -= item.job.request.body_bytes
        self.returned -= _was_away(item.job)
        self.apart -= bool(item.job.tries.excluded)
        if self.kept_for == request_id:
            self.kept, self.kept_for = ReplicaId(""), RequestId("")
        self.turns.remove(item)
        discard(self._expiries, (item.expires, item.serial, item))
        if item.late:
            discard(self._late, (0.0, item.serial, item))
        elif abs(item.due) < math.inf:
            discard(self._dues, (item.due, item.serial, item))
        if item.rises_at < math.inf:
            discard(self._rises, (item.rises_at, item.serial, item))
        if not self._items:
            self.beside.pop(self.lane, None)
            self._released_at = None
            self._hopes.emptied()

    def release(self, request_id: RequestId, at: float) -> None:
        """It was dispatched."""
        item = self._items[request_id]
        self.charge(item.job, item.cost)
        if self._released_at is not None:
            self._gaps += 1
            self.pace_s += max(_PACE_STEP, 1.0 / self._gaps) * (at - self._released_at - self.pace_s)
        self._released_at = at
        self._hopes.released(item)
        self.remove(request_id)

    def charge(self, job: Job, tokens: float) -> None:
        """It goes, and that is its tenant's turn (`cost`)."""
        if tokens:
            job.charged = tokens
            self.serve(job.request.tenant, tokens)

    def mend(self, job: Job, tokens: int | None) -> None:
        """It ended after so many tokens of output, None if it was never served: the charge was a guess."""
        if job.charged:
            wrong = 2.0 * (tokens - job.asked.output_mean) if tokens is not None else -job.charged
            self.serve(job.request.tenant, wrong)

    def serve(self, tenant: str, tokens: float) -> None:
        """So much is served to a tenant, or a guess about it is mended: it counts wherever others wait for the same.
        Where it waits itself, it is known what it is owed. (Where nobody waits, accounts are those of another time.)"""
        each = self.beside.values() or (self,)
        busy = next(iter(each)).turns
        leads = next((queue.turns for queue in each if queue.turns.waits(tenant)), busy)
        leads.charge(tenant, tokens)
        for queue in each:
            if queue.turns is not leads:
                queue.turns.follow(leads, tenant)

    def pass_by(self, request: RequestInfo, at: float) -> None:
        """Somebody goes at once while others wait."""
        self._hopes.came(request.tier, at)
        if request.tier <= self.turns.highest:
            self.overtake()

    def overtake(self, late: bool = False) -> None:
        """Somebody goes who is not the head (`late`: one of the late ones)."""
        head = next(iter(self), None)
        if head is not None:
            head.bypassed += 1
        if not late:
            self.pass_late(head)

    def pass_late(self, head: Waiting | None = None) -> None:
        """Somebody goes who is not late. It passes the first of the late ones (if that is not the head, counted
        already)."""
        if self._late and self._late[0][2] is not head:
            self._late[0][2].bypassed += 1

    @property
    def outrun(self) -> Waiting | None:
        """The head, if it was overtaken as often as it may be."""
        head = next(iter(self), None)
        if head is None:
            return None
        config = self._config
        most = config.bypass_max + (config.late_bypass if head.late else 0)
        return head if head.bypassed >= (config.urgent_bypass if head.tier >= _TOP else most) else None

    def within_reach(self, at: float) -> list[Waiting]:
        """The head and those behind it that may be looked at, in order; before all, whoever a replica is kept for:
        nobody else may have that one, so it must be asked wherever it has got to."""
        self._judge(at)
        kept = self._items.get(self.kept_for)
        found = [] if kept is None else [kept]
        for item in self:
            if item is not kept:
                found.append(item)
            if len(found) > self._config.scan:
                break
        return found

    def due(self, at: float) -> list[Waiting]:
        """Those whose time is over, first things first."""
        found = []
        for expires, _, item in self._expiries:
            if expires > at:
                break
            found.append(item)
        return found

    def hopeless(self, at: float) -> list[Waiting]:
        """Those who missed their objective and will not be reached before their time is over."""
        self._judge(at)
        return self._hopes.look(at)

    def beyond(self, item: Waiting, position: int, at: float) -> bool:
        """Whether one that has just come, to this position, will not be reached before its time is over."""
        return self._hopes.beyond(item, position, at)

    @property
    def next_look(self) -> float:
        """When to ask next who is hopeless; infinite while nobody is late."""
        return self._hopes.next_look if self._late else math.inf

    @property
    def next_expiry(self) -> float:
        """When the first of them runs out of time; infinite if nobody waits."""
        return self._expiries[0][0] if self._expiries else math.inf

    def promise_s(self, at: float) -> float:
        """When one that is refused is to come back, in whole seconds: the time this queue takes to drain at its recent
        pace, and after all who were told so before. They may have a share of the pace; the rest is for new ones."""
        config = self._config
        latest = at + config.retry_after_max_s
        slot = max(self._promised, at + self.drain_s) + self.pace_s / config.retry_share
        self._promised = min(slot, latest)
        return float(min(max(1, math.ceil(slot - at)), config.retry_after_max_s))

    @property
    def urgent(self) -> Waiting | None:
        """The first of the late ones, if it was overtaken often enough."""
        if self._late and self._late[0][2].bypassed >= self._config.late_bypass:
            return self._late[0][2]
        return None

    def _judge(self, at: float) -> None:
        """Move those who cannot keep their objective any more behind the others, and up who have waited long."""
        dues, rises = self._dues, self._rises
        count = bisect_left(dues, (at, 0))
        for _, _, item in dues[:count]:
            self.turns.demote(item)
            self._hopes.missed(item.job.request.tier, at)
            if item.tier < _TOP:
                item.bypassed = 0
            insort(self._late, (0.0, item.serial, item))
        del dues[:count]
        count = bisect_right(rises, (at, math.inf))
        risen = rises[:count]
        del rises[:count]
        highest = max((queue.turns.highest for queue in self.beside.values()), default=0) if risen else 0
        for _, _, item in risen:
            item.rises_at = math.inf
            if item.tier < min(highest, Tier.STANDARD if item.late else _TOP):
                self.turns.promote(item)
            if item.tier < _TOP:
                self._rise(item, at)

    def _rise(self, item: Waiting, at: float) -> None:
        """Note when it will rise by a tier."""
        item.rises_at = at + self._config.rise_s
        insort(self._rises, (item.rises_at, item.serial, item))


def _was_away(job: Job) -> bool:
    return bool(job.generated or job.evictions)


def cost(job: Job) -> float:
    """What a request is charged in turns: its uncached input, and its output twice (it takes that much longer). Once:
    that it waits and goes again is not its tenant's doing. One that went when nobody waited goes on for nothing."""
    if job.charged or job.generated:
        return 0.0
    demand = job.demand
    cached = max(demand.hits.values(), default=0)
    return demand.prompt_tokens - cached + 2.0 * demand.output_mean
