"""The `least_load` policy of SMG (Shepherd Model Gateway): seconds to drain, and a barrier against a full KV pool.

    (queued + sent since the poll) / throughput + 0.15 * k / (1 - k)

queued: tokens waiting in the engine; k: KV usage; the lowest wins. Source: SMG 1.13, `least_load.rs`, with the defaults
of its command line.

What it knows: the load of each engine as polled every 10 s, and the tokens that it sent there since. An engine that
does not report is taken for the best of those that do, with its requests in flight on top; where none reports, the
fewest requests in flight win.

Deviations: waiting requests count `mean_prefill_tokens` each, and throughput is `default_throughput`, which are SMG's
rules for engines that report no waiting tokens and no rate, as vLLM's metrics. `live_throughput` takes the growth of
the counter of generated tokens between two polls for the rate that SGLang reports; it rewards whoever is busy (a
replica with little to do generates little, so its queue seems long), and is off. What was sent between the taking of a
report and its poll is counted too (SMG loses it), and prompts in tokens, as on SMG's gRPC path. A report too old to
trust is no report.
"""

from collections.abc import Sequence

import msgspec

from headway.core.demand import Demand
from headway.core.ids import ReplicaId
from headway.core.plugin import Chance, Plugin
from headway.core.replica import LoadSample
from headway.core.request import RequestInfo
from headway.core.view import ReplicaView
from headway.policies.books import Books, gone
from headway.policies.gauges import usage, waiting

_FULL = 0.999  # k at most


class LeastLoadConfig(msgspec.Struct, frozen=True):
    """SMG's defaults. A `poll_interval_s` of 0 takes every report as it comes."""

    kv_pressure_weight_s: float = 0.15
    mean_prefill_tokens: float = 1024.0
    default_throughput: float = 2000.0
    poll_interval_s: float = 10.0
    live_throughput: bool = False


class _Poll:
    """The load of one replica as last polled, and what was sent there since."""

    __slots__ = ("at", "sample", "sent", "throughput")

    def __init__(self, sample: LoadSample, at: float, sent: float, throughput: float) -> None:
        self.sample = sample
        self.at = at
        self.sent = sent
        self.throughput = throughput


class LeastLoad:
    """Expected wait by polled load."""

    name = "least_load"
    parts: tuple[str, ...] = ("drain_s", "kv_barrier_s")
    tolerance = 0.0
    binds_late = False
    foresees = False

    def __init__(self, config: LeastLoadConfig) -> None:
        self._config = config
        self._polls: Books[dict[ReplicaId, _Poll]] = Books(dict)

    def costs(
        self, demand: Demand, views: Sequence[ReplicaView], now: float, rng: Chance
    ) -> Sequence[tuple[float, ...]]:
        """Seconds and their parts; counts of requests where no engine reports."""
        polls = self._polls.page(demand.request.model)
        for replica in gone(polls, views):
            del polls[replica]
        known = [self._known(polls, view, now) for view in views]
        best = min((sum(parts) for parts in known if parts is not None), default=None)
        if best is None:
            return [(float(view.in_flight), 0.0, 0.0) for view in views]
        rates = [poll.throughput for view in views if (poll := polls.get(view.id)) and poll.throughput > 0.0]
        rate = sum(sorted(rates)) / len(rates) if rates else self._config.default_throughput
        costs: list[tuple[float, ...]] = []
        for view, parts in zip(views, known, strict=True):
            if parts is None:
                drain = view.in_flight * self._config.mean_prefill_tokens / rate
                costs.append((best + drain, drain, 0.0))
            else:
                costs.append((sum(parts), *parts))
        return costs

    def _known(self, polls: dict[ReplicaId, _Poll], view: ReplicaView, now: float) -> tuple[float, float] | None:
        """Seconds to drain and the barrier, None without a report."""
        config, sample, poll = self._config, view.sample, polls.get(view.id)
        if sample is None or view.stale:
            polls.pop(view.id, None)
            return None
        if poll is None or (poll.sample is not sample and now - poll.at >= config.poll_interval_s):
            rate = _throughput(poll.sample, sample) if poll is not None and config.live_throughput else 0.0
            poll = polls[view.id] = _Poll(sample, now, view.dispatched_tokens, rate)
        queued = waiting(poll.sample) * config.mean_prefill_tokens
        k = min(_FULL, usage(poll.sample, view.kv_capacity_tokens))
        drain = (queued + poll.sent) / (poll.throughput or config.default_throughput)
        return drain, config.kv_pressure_weight_s * k / (1.0 - k)

    def sent(self, demand: Demand, replica: ReplicaId, now: float) -> None:
        """Its tokens count until the next poll."""
        poll = self._polls.page(demand.request.model).get(replica)
        if poll is not None:
            poll.sent += demand.prompt_tokens

    def ended(self, request: RequestInfo, replica: ReplicaId) -> None:
        """Changes nothing: only a poll shows that work is done."""


def _throughput(before: LoadSample, after: LoadSample) -> float:
    """Tokens generated per second between two reports, 0 where they do not say."""
    first, last = before.generated_tokens_total, after.generated_tokens_total
    if first is None or last is None or after.taken_at <= before.taken_at:
        return 0.0
    return max(0, last - first) / (after.taken_at - before.taken_at)


PLUGIN = Plugin("least_load", LeastLoad, LeastLoadConfig)
