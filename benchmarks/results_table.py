"""Markdown of the yardstick: one table per point, and the goals beside what was reached."""

from collections.abc import Mapping, Sequence

import numpy as np
from points import Point

from headway.workload.paired import paired_interval
from headway.workload.results import Run, RunResult
from headway.workload.results import mean as mean_of

NOTHING = "-"
"""Where a seed had nothing to measure: the price of a good request, where none was good."""

CAP = 0.98
"""A goal that is a ratio cannot ask for more than this share of requests served well."""

QUEUE = ("+queue", "predictive")
"""How names end of what stands behind our queue."""

_HEAD = (
    "| policy | good | ours - it (95 %) | goodput/s | TTFT p50 / p99 s | TPOT p50 / p99 ms | late | shed |"
    " longest wait s | preempted | hit rate | KV std | GPU-h per 1k good |"
)


def share(runs: Sequence[Run], policy: str) -> float:
    """Mean share of good requests of a policy; NaN without runs."""
    found = [run.result.good_share for run in runs if run.result.policy == policy]
    return float(np.mean(found)) if found else float("nan")


def of(runs: Sequence[Run], policy: str) -> list[RunResult]:
    """Results of a policy by seed."""
    return sorted((run.result for run in runs if run.result.policy == policy), key=lambda result: result.seed)


def point_table(point: Point, runs: Sequence[Run], ours: str, limit: float | None) -> str:
    """Every policy at one point, best first."""
    names = sorted({run.result.policy for run in runs}, key=lambda name: (-share(runs, name), name))
    lines = [_title(point, runs, limit), "", _HEAD, "|---" * (_HEAD.count("|") - 1) + "|"]
    mine = [result.good_share for result in of(runs, ours)]
    lines += [_row(name, of(runs, name), mine, name == ours) for name in names]
    return "\n".join(lines) + "\n"


def limit_words(limit: float | None) -> str:
    """The share that the programme allows, in words."""
    return "Linear-programming bound: " + ("not worked out" if limit is None else f"{limit:.3f}")


def _title(point: Point, runs: Sequence[Run], limit: float | None) -> str:
    pools = ", ".join(
        f"{pool.count} x {pool.model} on {pool.tensor_parallel_size} x {pool.gpu}"
        + (f" ({pool.kv_tokens:,} KV tokens)" if pool.kv_tokens else "")
        for pool in point.pools
    )
    requests = int(np.mean([run.result.requests for run in runs]))
    loads = sorted({run.result.load for run in runs})
    return (
        f"### {point.name}\n\n{point.why.capitalize()}. Trace {point.trace}; {pools}; load "
        f"{', '.join(f'{load:g}' for load in loads)}; about {requests:,} counted requests per seed. "
        f"TPOT objective {point.slo.tpot_s * 1e3:.0f} ms. {limit_words(limit)}."
    )


def _row(name: str, results: Sequence[RunResult], mine: Sequence[float], bold: bool) -> str:
    def mean(field: str, digits: int, scale: float = 1.0) -> str:
        found = mean_of(results, field)
        return NOTHING if found is None else f"{found * scale:.{digits}f}"

    def part(field: str) -> str:
        return f"{np.mean([getattr(r, field) / max(1, r.requests) for r in results]):.2%}"

    good = mean("good_share", 3)
    margin = ""
    if mine and not bold and len(mine) == len(results):
        interval = paired_interval(mine, [r.good_share for r in results], np.random.default_rng(0))
        margin = f"{interval.mean:+.3f}"
        if interval.low is not None and interval.high is not None:
            margin += f" [{interval.low:+.3f}, {interval.high:+.3f}]"
    label, first = (f"**{name}**", f"**{good}**") if bold else (name, good)
    cells = (
        label,
        first,
        margin,
        mean("goodput_rps", 2),
        f"{mean('ttft_p50_s', 2)} / {mean('ttft_p99_s', 1)}",
        f"{mean('tpot_p50_s', 0, 1e3)} / {mean('tpot_p99_s', 0, 1e3)}",
        part("late"),
        part("shed"),
        mean("longest_wait_s", 1),
        part("preempted"),
        mean("prefix_hit_rate", 2),
        mean("kv_usage_std", 3),
        mean("gpu_hours_per_1k_good", 3),
    )
    return f"| {' | '.join(cells)} |"


def goals(point: Point, runs: Sequence[Run], ours: str, bound: str) -> list[tuple[str, float, float]]:
    """What is asked of us at a point: (goal, wanted share of good requests, reached)."""
    mine = share(runs, ours)
    names = {run.result.policy for run in runs} - {ours, bound}
    published = {name: share(runs, name) for name in names if not name.endswith(QUEUE)}
    queued = {name: share(runs, name) for name in names if name.endswith(QUEUE)}
    best = max(published, key=lambda name: published[name])
    asked: list[tuple[str, float, str]] = []
    decode_bound = point.tight and not point.prefill
    if decode_bound:
        against = 1.7 if point.mixed else 1.5
        asked.append((f"{against} x round_robin", against, "round_robin"))
        asked.append(("1.3 x least_connections", 1.3, "least_connections"))
        asked.append((f"1.25 x best published ({best})", 1.25, best))
    else:
        factor = 1.05 if point.tight else 0.98
        asked.append((f"{factor} x best published ({best})", factor, best))
    rows = [(text, min(CAP, factor * published[name]), mine) for text, factor, name in asked]
    if queued:
        top = max(queued, key=lambda name: queued[name])
        factor = 1.05 if point.mixed and decode_bound else 1.0 if decode_bound else 0.98
        rows.append((f"{factor:g} x best behind our queue ({top})", min(CAP, factor * queued[top]), mine))
    if bound in {run.result.policy for run in runs}:
        rows.append((".98 x clairvoyant", 0.98 * share(runs, bound), mine))
    return rows


def document(
    points: Sequence[Point],
    found: Mapping[str, Sequence[Run]],
    limits: Mapping[str, float | None],
    ours: str,
    bound: str,
    took_s: float,
) -> str:
    """The whole page."""
    seeds = len({run.result.seed for runs in found.values() for run in runs})
    lines = [
        "# Results: every policy at twelve named points",
        "",
        "Made by `make fast` and `python benchmarks/results.py --data DIR --out docs/RESULTS.md` in "
        f"{took_s / 60:.0f} minutes on 2 cores, {seeds} seeds.",
        "",
        "Each replica's true speed differs by up to 20 % from what is believed of it; reports are 0.5 s apart. Equal "
        "seeds mean equal arrivals, truths and noise for all policies; intervals are paired bootstraps. `good` "
        "requests met both SLOs (TTFT 1 s + 0.25 ms per prompt token, TPOT as stated); refused and cut ones are "
        f"misses. `+queue` is a baseline behind our queue. `{bound}` knows all output lengths and has fresh reports: "
        "not a policy, but no bound either. Load 1.0 is the backlog throughput of the fleet on that trace. The linear "
        "programme is a relaxation: no policy can serve a larger share well, and most likely none can reach it.",
        "",
        "## Goals",
        "",
        "| point | goal | wanted good | reached | met |",
        "|---|---|---|---|---|",
    ]
    for point in points:
        for text, wanted, reached in goals(point, found[point.name], ours, bound):
            met = "yes" if reached >= wanted - 5e-4 else "**no**"
            lines.append(f"| {point.name} | {text} | {wanted:.3f} | {reached:.3f} | {met} |")
    lines += ["", "## Points", ""]
    for point in points:
        lines.append(point_table(point, found[point.name], ours, limits[point.name]))
    return "\n".join(lines)
