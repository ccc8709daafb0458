"""The figures of a simulated run that are shown, once for all: name, unit, which way is better, what it means.

Terminal tables and the HTML report read the same list, so that they cannot tell different stories.
"""

from collections.abc import Callable, Sequence
from typing import Literal

import msgspec

from headway.report.figures import count, rate, seconds, share
from headway.workload.results import RunResult

Group = Literal["what clients got", "what it took"]
Write = Callable[[float | None], str]


class Measure(msgspec.Struct, frozen=True):
    """`better` is 1 where more is better, -1 where less is, 0 where neither is. `title` may break over two lines.
    `read` finds None where there was nothing to measure."""

    name: str
    title: str
    group: Group
    read: Callable[[RunResult], float | None]
    write: Write
    better: int
    about: str


def portion(value: float | None) -> str:
    """93.1 %, and never 100 % unless it is all of them."""
    if value is None or not 0.9995 <= value < 1.0:
        return share(value)
    return f"{int(value * 10_000) / 100:.2f} %"


def micros(value: float | None) -> str:
    """12.3 µs"""
    return seconds(None if value is None else value * 1e-6)


def index(value: float | None) -> str:
    """0.987"""
    return "-" if value is None else f"{value:.3f}"


def hours(value: float | None) -> str:
    """1.23"""
    return "-" if value is None else f"{value:.3g}"


def _field(
    name: str, title: str, group: Group, write: Write, better: int, about: str, of_requests: bool = False
) -> Measure:
    def read(result: RunResult) -> float | None:
        value = getattr(result, name)
        if value is None:
            return None
        return value / max(1, result.requests) if of_requests else float(value)

    return Measure(name, title, group, read, write, better, about)


_GOT: Group = "what clients got"
_TOOK: Group = "what it took"

MEASURES: tuple[Measure, ...] = (
    _field("good_share", "good", _GOT, portion, 1, "requests that met both SLOs, of all; refusals count as misses"),
    _field("goodput_rps", "goodput", _GOT, rate, 1, "good requests per second"),
    _field("ttft_p50_s", "TTFT\np50", _GOT, seconds, -1, "arrival to first token, median of served requests"),
    _field("ttft_p99_s", "TTFT\np99", _GOT, seconds, -1, "arrival to first token, 99th percentile"),
    _field("tpot_p50_s", "TPOT\np50", _GOT, seconds, -1, "time per output token after the first, median"),
    _field("tpot_p99_s", "TPOT\np99", _GOT, seconds, -1, "time per output token, 99th percentile"),
    _field("e2e_p50_s", "E2E\np50", _GOT, seconds, -1, "arrival to last token, median"),
    _field("e2e_p99_s", "E2E\np99", _GOT, seconds, -1, "arrival to last token, 99th percentile"),
    _field("late", "late", _GOT, share, -1, "served, but missed an SLO", of_requests=True),
    _field("shed", "shed", _GOT, share, -1, "refused by us for overload", of_requests=True),
    _field("failed", "failed", _GOT, share, -1, "ended in an error", of_requests=True),
    _field("queue_p99_s", "held\np99", _GOT, seconds, -1, "arrival to dispatch, 99th percentile"),
    _field("longest_wait_s", "longest\nwait", _GOT, seconds, -1, "arrival to dispatch, the worst request"),
    _field("preempted", "preempted", _TOOK, share, -1, "requests preempted at least once", of_requests=True),
    _field("preemptions", "pre-\nemptions", _TOOK, count, -1, "times an engine threw running work away"),
    _field("recomputed_tokens", "recomp.\ntokens", _TOOK, count, -1, "tokens computed again after preemptions"),
    _field("kv_usage_std", "KV use\nstd", _TOOK, share, 0, "standard deviation of KV use across replicas, over time"),
    _field("prefix_hit_rate", "prefix\nhits", _TOOK, share, 1, "prompt tokens found in a replica's prefix cache"),
    _field("fairness", "Jain", _TOOK, index, 0, "Jain's index of output tokens per replica by capacity; 1 is even"),
    _field("gpu_hours_per_1k_good", "GPU-h\n/1k good", _TOOK, hours, -1, "GPU-hours per 1,000 good requests"),
    _field("decision_us", "decision", _TOOK, micros, -1, "CPU time of the brain per request"),
)
URGENT: tuple[Measure, ...] = (
    _field("urgent_ttft_p99_s", "urgent\nTTFT p99", _GOT, seconds, -1, "the same of requests of a high tier"),
)
MOVES: tuple[Measure, ...] = (
    _field("moves", "moved", _TOOK, share, 0, "running requests moved to another replica", of_requests=True),
    _field("evictions", "evicted", _TOOK, share, 0, "running requests made to wait for others", of_requests=True),
    _field("failovers", "failed\nover", _TOOK, share, 0, "went on elsewhere after a crash", of_requests=True),
    _field("replayed_tokens", "replayed\ntokens", _TOOK, count, -1, "tokens computed again for all of these"),
    _field("stall_p99_s", "stall\np99", _TOOK, seconds, -1, "how long a stream stands still when it is moved"),
)


def measures(results: Sequence[RunResult]) -> tuple[Measure, ...]:
    """What is worth a column: of urgent requests and of moves only where there were any."""
    urgent = URGENT if any(result.urgent for result in results) else ()
    moved = MOVES if any(result.moves + result.evictions + result.failovers for result in results) else ()
    return tuple(sorted((*MEASURES, *urgent, *moved), key=lambda measure: measure.group == _TOOK))


GOOD = MEASURES[0]
GOODPUT = MEASURES[1]
