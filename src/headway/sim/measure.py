"""The figures that the columns of a run boil down to.

Latencies are what a client sees: from arrival at the gateway, time held included. Refused requests are misses, and so
are those cut off. Quantiles are nearest ranks.
"""

import math

import numpy as np

from headway.core.tenant import Tier
from headway.sim.columns import FAILED, OK, SHED, Columns
from headway.sim.scenario import Scenario
from headway.workload.results import Run, RunDetail, RunResult


def summarize(
    columns: Columns,
    span_s: float,
    scenario: Scenario,
    policy: str,
    load: float,
    seed: int,
    brain_s: float,
    detail: bool,
) -> Run:
    """Figures of one run, and its curves if wanted. Requests that came before the end of the warm-up do not count.

    `span_s`: so long requests may have come. When the last one happened to is no measure of time: where few come, what
    is per second or per GPU-hour would be whatever chance makes of it.
    """
    table = _Table(columns, scenario)
    span = max(0.0, span_s - scenario.warmup_s)
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
        kv_usage_std=float(usage.std(axis=1).mean()) if len(usage) else None,
        prefix_hit_rate=float(columns.totals[3] / columns.totals[2]) if columns.totals[2] else None,
        fairness=float(spoken.sum() ** 2 / (len(spoken) * (spoken**2).sum())) if spoken.any() else None,
        gpu_hours_per_1k_good=scenario.gpus * span / 3600 / good * 1000 if good else None,
        decision_us=brain_s / max(1, len(columns.arrival)) * 1e6,
        kv_gap_p95=_rank(busy.max(axis=1) - busy.min(axis=1), 0.95) if len(busy) else None,
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


def _rank(values: np.ndarray, q: float) -> float | None:
    """The nearest rank, None of nothing."""
    if not len(values):
        return None
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
