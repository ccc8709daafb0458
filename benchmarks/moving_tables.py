"""Markdown of what moves are worth: figures per variant, and the goals beside what was reached."""

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np

from headway.workload.paired import paired_interval
from headway.workload.results import RunResult

Runs = Mapping[str, Sequence["Found"]]
"""By variant, in order of seeds."""


class Found(msgspec.Struct, frozen=True):
    """One run; how long a drained replica took to be empty (s), and how long it was to take (s); how long streams stood
    still when theirs died (s), and how long it takes the others, busy with nothing else, to compute what it had; TTFTs
    of urgent requests (s), and how long they were held (s)."""

    result: RunResult
    empty_s: float = 0.0
    forecast_s: float = 0.0
    gaps: tuple[float, ...] = ()
    bound_s: float = 0.0
    urgent: tuple[float, ...] = ()
    held: tuple[float, ...] = ()


def pressure_table(title: str, runs: Runs) -> str:
    """All variants at one point."""
    head = (
        "| variant | good | preempted | KV gap p95 | served | TTFT p99 s | TPOT p99 ms | moves / 100 requests |"
        " evictions / 100 | stall p99 ms |"
    )
    lines = [_title(title, runs), "", head, _rule(head)]
    for name, found in runs.items():
        cells = (
            f"{_mean(found, 'good_share'):.4f}",
            f"{_rate(found, 'preempted'):.2%}",
            f"{_mean(found, 'kv_gap_p95'):.3f}",
            f"{_served(found):.4f}",
            f"{_mean(found, 'ttft_p99_s'):.2f}",
            f"{_mean(found, 'tpot_p99_s') * 1e3:.0f}",
            f"{_rate(found, 'moves') * 100:.2f}",
            f"{_rate(found, 'evictions') * 100:.2f}",
            f"{_mean(found, 'stall_p99_s') * 1e3:.0f}" if _rate(found, "moves") else "-",
        )
        lines.append(_row(name, *cells))
    return "\n".join(lines) + "\n"


def goals_table(found: Mapping[str, Runs], pairs: Sequence[Sequence[str]]) -> str:
    """What moves changed, pair by pair (without, with), and whether that is what was wanted."""
    head = (
        "| point | pair | good, points (95 %) | preempted (hold: / 2, else / 5) | KV gap (-20 %) | served (98 %) |"
        " TTFT p99 (105 %) | TPOT p99 (100 %) | moves (5 %) |"
    )
    lines = [head, _rule(head)]
    for point, runs in found.items():
        for without, moved in pairs:
            lines.append(_row(point, moved, *_goals(runs[without], runs[moved], 2.0 if without == "hold" else 5.0)))
    return "\n".join(lines) + "\n"


def _goals(old: Sequence[Found], new: Sequence[Found], fewer: float) -> list[str]:
    before, after = _rate(old, "preempted"), _rate(new, "preempted")
    gap, ttft, tpot = (_mean(new, f) / max(1e-9, _mean(old, f)) for f in ("kv_gap_p95", "ttft_p99_s", "tpot_p99_s"))
    served, moves = _served(new) / _served(old), _rate(new, "moves")
    difference = paired_interval(
        [f.result.good_share for f in new], [f.result.good_share for f in old], np.random.default_rng(0)
    )
    low, high = difference.low, difference.high
    inside = "" if low is None or high is None else f" [{low * 100:+.2f}, {high * 100:+.2f}]"
    return [
        _judged(f"{difference.mean * 100:+.2f}{inside}", difference.sign >= 0),
        _judged(f"{before:.2%} to {after:.2%}", after * fewer <= before),
        _judged(f"{gap - 1.0:+.0%}", gap <= 0.8),
        _judged(f"{served:.1%}", served >= 0.98),
        _judged(f"{ttft:.0%}", ttft <= 1.05),
        _judged(f"{tpot:.0%}", tpot <= 1.005),
        _judged(f"{moves:.1%}", moves <= 0.05),
    ]


def urgent_table(found: Mapping[str, Runs]) -> str:
    """What requests of tier high got."""
    head = (
        "| point | variant | urgent | their TTFT p99 s | good of them | good of all | TTFT p99 of all s |"
        " evictions / 100 requests | moves / 100 |"
    )
    lines = [head, _rule(head)]
    for point, runs in found.items():
        for name, of in runs.items():
            urgent = sum(f.result.urgent for f in of)
            good = sum(f.result.urgent_good for f in of)
            cells = (
                f"{urgent}",
                f"{_mean(of, 'urgent_ttft_p99_s'):.2f}",
                f"{good / max(1, urgent):.4f}",
                f"{_mean(of, 'good_share'):.4f}",
                f"{_mean(of, 'ttft_p99_s'):.2f}",
                f"{_rate(of, 'evictions') * 100:.2f}",
                f"{_rate(of, 'moves') * 100:.2f}",
            )
            lines.append(_row(point, name, *cells))
    return "\n".join(lines) + "\n"


def full_table(title: str, runs: Runs) -> str:
    """What urgent requests got of full pools, all seeds together."""
    head = (
        "| variant | urgent | their TTFT p50 / p90 / p99 / longest s | held p90 / p99 s | good of them |"
        " good of the low ones | TTFT p99 of all s | preempted | evictions / 100 requests | moves / 100 |"
    )
    lines = [_title(title, runs), "", head, _rule(head)]
    for name, of in runs.items():
        ttft, held = (np.sort([each for f in of for each in getattr(f, field)]) for field in ("urgent", "held"))
        urgent, good = sum(f.result.urgent for f in of), sum(f.result.urgent_good for f in of)
        rest = sum(f.result.requests for f in of) - urgent
        cells = (
            f"{urgent}",
            " / ".join(f"{ttft[int(q * (len(ttft) - 1))]:.2f}" for q in (0.5, 0.9, 0.99, 1.0)),
            " / ".join(f"{held[int(q * (len(held) - 1))]:.2f}" for q in (0.9, 0.99)),
            f"{good / max(1, urgent):.4f}",
            f"{(sum(f.result.good for f in of) - good) / max(1, rest):.4f}",
            f"{_mean(of, 'ttft_p99_s'):.2f}",
            f"{_rate(of, 'preempted'):.2%}",
            f"{_rate(of, 'evictions') * 100:.2f}",
            f"{_rate(of, 'moves') * 100:.2f}",
        )
        lines.append(_row(name, *cells))
    return "\n".join(lines) + "\n"


def drain_table(found: Mapping[str, Runs]) -> str:
    """How long it takes to empty one of four."""
    head = "| point | variant | empty after, s: mean (longest) | forecast, s | ended in an error | good | moves |"
    lines = [head, _rule(head)]
    for point, runs in found.items():
        for name, of in runs.items():
            times = [max(0.0, f.empty_s) for f in of]
            cells = (
                f"{np.mean(times):.1f} ({max(times):.1f})",
                f"{np.mean([f.forecast_s for f in of]):.1f} ({max(f.forecast_s for f in of):.1f})",
                f"{sum(f.result.failed for f in of)}",
                f"{_mean(of, 'good_share'):.4f}",
                f"{sum(f.result.moves for f in of)}",
            )
            lines.append(_row(point, name, *cells))
    return "\n".join(lines) + "\n"


def death_table(found: Mapping[str, Runs]) -> str:
    """What the death of one of four costs."""
    head = "| point | variant | lost | went on elsewhere | gap p50 / p99 s | all others' prefill of that, s | good |"
    lines = [head, _rule(head)]
    for point, runs in found.items():
        for name, of in runs.items():
            gaps = np.sort([gap for f in of for gap in f.gaps])
            gap = f"{gaps[len(gaps) // 2]:.2f} / {gaps[int(0.99 * (len(gaps) - 1))]:.2f}" if len(gaps) else "-"
            lost = sum(f.result.failed for f in of)
            bound = f"{np.mean([f.bound_s for f in of]):.2f}" if len(gaps) else "-"
            lines.append(_row(point, name, f"{lost}", f"{len(gaps)}", gap, bound, f"{_mean(of, 'good_share'):.4f}"))
    return "\n".join(lines) + "\n"


def _title(title: str, runs: Runs) -> str:
    some = next(iter(runs.values()))
    return f"**{title}**, {len(some)} seeds of about {np.mean([f.result.requests for f in some]):,.0f} requests"


def _mean(found: Sequence[Found], field: str) -> float:
    """Over the runs that had something to measure; NaN where none had."""
    values = [value for f in found if (value := getattr(f.result, field)) is not None]
    return float(np.mean(values)) if values else float("nan")


def _rate(found: Sequence[Found], field: str) -> float:
    """Per request."""
    return float(sum(getattr(f.result, field) for f in found)) / max(1, sum(f.result.requests for f in found))


def _served(found: Sequence[Found]) -> float:
    """The share of requests that ended well, in time or late."""
    return _rate(found, "good") + _rate(found, "late")


def _judged(text: str, met: bool) -> str:
    return text if met else f"**{text}**"


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def _rule(head: str) -> str:
    return "|---" * (head.count("|") - 1) + "|"
