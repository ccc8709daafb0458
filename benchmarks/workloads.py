"""What the public traces look like once read, what scaling does to them, and how long it takes.

    python benchmarks/workloads.py --data FOLDER_OF_TRACES

Prints Markdown, as docs/workloads.md shows it. Times are processor seconds.
"""

import argparse
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import numpy as np
from missing import said

from headway.compose.traces import open_workload
from headway.workload.mixes import MIXES
from headway.workload.outline import outline
from headway.workload.request import Workload
from headway.workload.scaling import draw, find_sessions, scale
from headway.workload.sources import Options

FILES = (
    "azure_llm_2023_code.csv.gz",
    "azure_llm_2023_conv.csv.gz",
    "mooncake_fast25_conversation.jsonl.gz",
    "servegen_rates_deepseek-r1.csv.gz",
    "servegen_rates_mm-image.csv.gz",
    "claude_code_weka_sample.jsonl.gz",
    "lmcache_agent_traces.jsonl.gz",
    "sharegpt_llama31_8b_300.jsonl.gz",
    "lengths_sharegpt_8k.csv.gz",
    "lengths_arxiv_summarization.csv.gz",
    "burstgpt_week1_minute_tokens.csv.gz",
)
SCALED = (
    "azure_llm_2023_code",
    "azure_llm_2023_conv",
    "mooncake_fast25_conversation",
    "claude_code_weka_sample",
)
TIMED = SCALED[1:3]
FACTORS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
RATE = 5.0
"""Requests/s for what has no arrivals of its own."""


def main() -> None:
    """Print three tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of the traces")
    data = parser.parse_args().data
    loads = {name.split(".")[0]: opened(str(data / name)) for name in FILES} | {name: opened(name) for name in MIXES}
    table("workload", ((name, *shape(load), sessions(load)) for name, load in loads.items()), "sessions")
    table("scaled", (row for name in SCALED for row in scaled(name, loads[name])), "variance / mean in 10 s")
    print("\n| 100,000 requests of | scale | 600 s drawn |\n|---|---|---|")
    for name in TIMED:
        print(f"| {name} | {' | '.join(f'{took:.2f} s' for took in times(loads[name]))} |")


def opened(what: str) -> Workload:
    """The workload, from one seed."""
    return open_workload(what, rng(), Options(rate=RATE))


def rng() -> np.random.Generator:
    """The same chance everywhere."""
    return np.random.default_rng(1)


def table(title: str, rows: Iterable[tuple[str, ...]], last: str) -> None:
    """A Markdown table of shapes."""
    head = (title, "requests", "span s", "req/s", "prompt p50 / p90", "output p50 / p90", "gaps CV", "reusable", last)
    print(f"\n| {' | '.join(head)} |\n|{'---|' * len(head)}")
    for row in rows:
        print(f"| {' | '.join(row)} |")


def shape(load: Workload) -> tuple[str, ...]:
    """What all tables say of a workload."""
    seen = outline(load.requests)
    gaps = np.diff([request.arrival_s for request in load.requests])
    return (
        f"{seen.requests:,}",
        f"{load.span_s:,.0f}",
        f"{load.rate_rps:.2f}",
        f"{seen.prompt_p50:,} / {seen.prompt_p90:,}",
        f"{seen.output_p50:,} / {seen.output_p90:,}",
        f"{gaps.std() / gaps.mean():.2f}",
        f"{seen.reusable:.3f}",
    )


def sessions(load: Workload) -> str:
    """Sessions, named or found by their prefixes, and openings."""
    found = find_sessions(load.requests)
    return f"{found.count:,}" + (f", {len(found.openings)} openings" if found.openings else "")


def scaled(name: str, load: Workload) -> Iterator[tuple[str, ...]]:
    """One row per factor."""
    for factor in FACTORS:
        made = scale(load, factor, rng())
        arrivals = [request.arrival_s for request in made.requests]
        counts, _ = np.histogram(arrivals, bins=np.arange(0.0, made.span_s, 10.0))
        yield f"{name} x {factor:g}", *shape(made), f"{counts.var() / counts.mean():.1f}"


def times(load: Workload) -> list[float]:
    """Processor seconds of scaling to 100,000 requests, and of drawing 600 s of that load; the best of three."""
    factor = 100_000 / len(load.requests)
    return [
        min(timed(lambda: scale(load, factor, rng())) for _ in range(3)),
        min(timed(lambda: draw(load, factor, 600.0, rng())) for _ in range(3)),
    ]


def timed(act: Callable[[], object]) -> float:
    """Processor seconds."""
    start = time.process_time()
    act()
    return time.process_time() - start


if __name__ == "__main__":
    said(main)
