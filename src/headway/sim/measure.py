"""What became of every request, in columns, and the figures they boil down to.

Latencies are what a client sees: from arrival at the gateway, time held included. Refused requests are misses, and so
are those cut off. Quantiles are nearest ranks.
"""

import math
from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np

from headway.core.commands import Moved
from headway.core.tenant import Tier
from headway.perfmodel.decoding import Job
from headway.perfmodel.steptime import Batch
from headway.sim.prompt import Prompt
from headway.sim.replica import SimReplica
from headway.sim.scenario import Scenario
from headway.workload.request import Request
from headway.workload.results import Run, RunDetail, RunResult

OK, SHED, FAILED, OPEN = range(4)
_REFERENCE = Batch(32, 32_000, 0, 0.0, 32)


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
        self.totals = np.zeros(4, dtype=np.int64)
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
            self.totals += np.array(replica.totals)
            self.spoken.append(replica.engine.generated * replica.ground.model.step_s(_REFERENCE))


def summarize(
    columns: Columns, scenario: Scenario, policy: str, load: float, seed: int, brain_s: float, detail: bool
) -> Run:
    """Figures of one run, and its curves if wanted. Requests that came before the end of the warm-up do not count."""
    table = _Table(columns, scenario)
    span = table.window_s
    good = int(table.good.sum())
    ok = int(table.ok.sum())
    count = len(table.ok)
    counted = np.array(columns.times) >= scenario.warmup_s
    usage = np.array(columns.usage)[counted] if columns.usage else np.zeros((0, 1))
    busy = usage[np.array(columns.times)[counted] <= columns.arrival[-1]] if len(usage) else usage
    spoken = np.array(columns.spoken)
    result = RunResult(
        policy=policy,
        load=load,
        seed=seed,
        requests=count,
        good=good,
        late=ok - good,
        shed=int((table.fate == SHED).sum()),
        failed=int((table.fate == FAILED).sum()),
        window_s=span,
        goodput_rps=good / span if span > 0 else 0.0,
        ttft_p50_s=_rank(table.ttft[table.ok], 0.5),
        ttft_p99_s=_rank(table.ttft[table.ok], 0.99),
        tpot_p50_s=_rank(table.tpot[table.ok & table.paced], 0.5),
        tpot_p99_s=_rank(table.tpot[table.ok & table.paced], 0.99),
        e2e_p50_s=_rank(table.e2e[table.ok], 0.5),
        e2e_p99_s=_rank(table.e2e[table.ok], 0.99),
        queue_p99_s=_rank(table.held[table.sent], 0.99),
        longest_wait_s=_rank(table.held[table.sent], 1.0),
        preempted=int((table.preempted > 0).sum()),
        preemptions=int(table.preempted.sum()),
        recomputed_tokens=int(columns.totals[1]),
        kv_usage_std=float(usage.std(axis=1).mean()) if len(usage) else 0.0,
        prefix_hit_rate=float(columns.totals[3] / columns.totals[2]) if columns.totals[2] else 0.0,
        fairness=float(spoken.sum() ** 2 / (len(spoken) * (spoken**2).sum())) if spoken.any() else 1.0,
        gpu_hours_per_1k_good=scenario.gpus * span / 3600 / good * 1000 if good else 0.0,
        decision_us=brain_s / max(1, len(columns.arrival)) * 1e6,
        kv_gap_p95=_rank(busy.max(axis=1) - busy.min(axis=1), 0.95) if len(busy) else 0.0,
        urgent=int(table.urgent.sum()),
        urgent_good=int((table.urgent & table.good).sum()),
        urgent_ttft_p99_s=_rank(table.ttft[table.ok & table.urgent], 0.99),
        moves=columns.moves["cut"],
        failovers=columns.moves["failed_over"],
        evictions=columns.moves["evicted"],
        abandoned=columns.moves["abandoned"],
        replayed_tokens=columns.replayed,
        stall_p99_s=_rank(np.array(columns.stalls), 0.99),
    )
    return Run(result, _detail(columns, table) if detail else None)


class _Table:
    """The columns of counted requests, as arrays."""

    def __init__(self, columns: Columns, scenario: Scenario) -> None:
        arrival = np.array(columns.arrival)
        kept = arrival >= scenario.warmup_s
        self.arrival = arrival[kept]
        self.fate = np.array(columns.fate)[kept]
        self.preempted = np.array(columns.preempted)[kept]
        self.dispatch = np.array(columns.dispatch)[kept]
        self.started = np.array(columns.started)[kept]
        self.first, self.last = np.array(columns.first)[kept], np.array(columns.last)[kept]
        output = np.array(columns.output)[kept]
        self.urgent = np.array(columns.tier)[kept] >= Tier.HIGH
        self.ok = self.fate == OK
        self.sent = ~np.isnan(self.dispatch)
        self.held = self.dispatch - self.arrival
        self.ttft = self.first - self.arrival
        self.e2e = self.last - self.arrival
        self.paced = output > 1
        self.tpot = (self.last - self.first) / np.maximum(1, output - 1)
        slo = scenario.slo
        limits = slo.ttft_s + slo.ttft_per_prompt_token_s * np.array(columns.prompt)[kept]
        with np.errstate(invalid="ignore"):
            self.good = self.ok & (self.ttft <= limits) & (~self.paced | (self.tpot <= slo.tpot_s))
        self.window_s = float(self.arrival[-1] - max(scenario.warmup_s, 0.0)) if len(self.arrival) else 0.0


def _rank(values: np.ndarray, q: float) -> float:
    """The nearest rank, 0 of nothing."""
    if not len(values):
        return 0.0
    return float(np.sort(values)[max(0, math.ceil(q * len(values) - 1e-9) - 1)])


def _detail(columns: Columns, table: _Table) -> RunDetail:
    ok = table.ok
    steps = np.linspace(0.0, 1.0, 201)
    ttft, tpot = table.ttft[ok], table.tpot[ok & table.paced]
    parts = {
        "held_s": table.held,
        "waiting_s": table.started - table.dispatch,
        "prefill_s": table.first - table.started,
        "decode_s": table.last - table.first,
    }
    dispatched, arrived = np.sort(np.array(columns.dispatch)), np.array(columns.arrival)
    times = np.array(columns.times)
    queued = np.searchsorted(arrived, times, "right") - np.searchsorted(dispatched, times, "right")
    return RunDetail(
        replicas=columns.names,
        times=tuple(columns.times),
        kv_usage=tuple(zip(*columns.usage, strict=True)),
        running=tuple(zip(*columns.running, strict=True)),
        waiting=tuple(zip(*columns.waiting, strict=True)),
        queued=tuple(int(max(0, number)) for number in queued),
        preemptions=tuple(columns.preemptions),
        ttft_s=tuple(np.quantile(ttft, steps).tolist()) if len(ttft) else (),
        tpot_s=tuple(np.quantile(tpot, steps).tolist()) if len(tpot) else (),
        **{name: float(np.mean(values[ok])) if ok.any() else 0.0 for name, values in parts.items()},
    )
