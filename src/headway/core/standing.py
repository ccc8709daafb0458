"""One replica as it stands: its facts, its account, its health, what its reports add; and the view made of all that.

A view is the one thing that policies see. It is made from scratch whenever something about its replica changed, and
building it changes nothing. When that is worth while is the fleet's business.
"""

import math

from headway.core.answers import Answers
from headway.core.constants import FleetConfig, MemoryConfig
from headway.core.gauges import Gauges
from headway.core.health import Health
from headway.core.ledger import Account
from headway.core.replica import ReplicaSpec
from headway.core.view import ReplicaView, Speed


class Replica:
    """One replica: its facts, its account, its health and what its reports add."""

    __slots__ = (
        "account",
        "answers",
        "capacity",
        "draining",
        "expires",
        "fresh",
        "gauges",
        "health",
        "id",
        "queued",
        "rebuilt_at",
        "reports_cached",
        "seats",
        "spec",
        "speed",
        "view",
        "window_area",
        "window_at",
        "window_prefilled",
        "window_tokens",
    )

    def __init__(self, spec: ReplicaSpec, account: Account, health: Health, speed: Speed, at: float) -> None:
        self.spec = spec
        self.id = spec.id
        self.speed = speed
        self.account = account
        self.health = health
        self.gauges = Gauges()
        self.answers = Answers(at)
        self.capacity = spec.kv_capacity_tokens
        self.seats = spec.max_num_seqs
        self.draining = False
        self.reports_cached = False
        self.fresh = False  # the view is up to date
        self.queued = False  # in the fleet's list of changed replicas
        self.view: ReplicaView | None = None
        self.expires = 0.0
        self.rebuilt_at = at
        self.window_at = at
        self.window_area = 0.0
        self.window_tokens = 0
        self.window_prefilled = 0

    def neglected(self, at: float, rebuild_s: float) -> bool:
        """Whether its forecast is to be rebuilt without waiting for the next report: none come, or too seldom."""
        since, sample = at - self.rebuilt_at, self.gauges.sample
        if since < rebuild_s:
            return False
        reports = sample is not None and at - sample.taken_at < self.gauges.lasts_s
        return not reports or since >= 2.0 * rebuild_s


class Viewing:
    """Makes views of replicas."""

    def __init__(self, config: FleetConfig, memory: MemoryConfig) -> None:
        self._drift = config.drift_tokens2_per_s
        self._z = memory.z
        self._usable = 1.0 - memory.spare

    def foreign(self, replica: Replica, at: float) -> tuple[int, float, float] | None:
        """Requests and pool tokens that are not ours, and the variance of the latter; None if reports are no guide."""
        gauges = replica.gauges
        sample = gauges.sample
        if sample is None or gauges.frozen:
            return None
        age = max(0.0, at - sample.taken_at)  # a report may be younger than an event that waited its turn
        if age >= gauges.lasts_s:
            return None
        return gauges.others, gauges.foreign_tokens(replica.account), gauges.kv.var + self._drift * age

    def build(self, replica: Replica, at: float) -> ReplicaView:
        """The replica as it is at `at`. Changes nothing. (Every request pays for one or two of these.)"""
        account, gauges, health, speed = replica.account, replica.gauges, replica.health, replica.speed
        sample, capacity, seats, in_flight = gauges.sample, replica.capacity, replica.seats, account.in_flight
        used = float(account.context)
        context = used
        peak_mean, peak_var = account.curve.peak(self._z)
        total, waiting = in_flight, 0
        foreign = self.foreign(replica, at)
        if foreign is not None:
            others, kv, kv_var = foreign
            total += others
            if gauges.queue is not None:
                waiting = max(0, gauges.queue + in_flight)
            used += kv
            if kv > 0.0:
                context = used
            peak_mean += kv
            peak_var += kv_var
            if peak_mean < used:  # sharing cannot be more than what there is
                peak_mean = used = used if used > 0.0 else 0.0
        if waiting or total > seats > 0:
            waiting = _waiting(waiting, total, total - account.started, seats)
        running = total - waiting
        return ReplicaView(
            replica.spec,
            sample,
            at,
            max(0.0, at - sample.taken_at) if sample is not None else -1.0,
            foreign is None,
            capacity,
            used,
            capacity * self._usable - peak_mean if capacity else math.inf,
            math.sqrt(peak_var) if capacity else 0.0,
            peak_mean,
            peak_var,
            account.reserved,
            account.prefill,
            account.dispatched - gauges.sent_mark,
            running / speed.step_s(running, context) if running else 0.0,
            in_flight,
            running,
            waiting,
            context,
            account.reserved / in_flight if in_flight else 0.0,
            seats,
            speed,
            health.breaker,
            health.slow_start(at) if health.ramp_from is not None else 1.0,
            replica.draining,
            sample is not None and bool(sample.sleep_level),
        )


def _waiting(waiting: int, total: int, most: int, seats: int) -> int:
    """How many of `total` requests wait: the last report, corrected by what we sent and settled since.

    More wait if seats are short, but never more than `most`: those whose content we saw run, whatever a gauge says.
    """
    if seats and total - waiting > seats:
        waiting = total - seats
    return min(waiting, most)
