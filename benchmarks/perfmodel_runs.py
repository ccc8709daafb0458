"""Whole recorded vLLM runs, replayed request by request on the engine model.

    python benchmarks/perfmodel_runs.py --data DIR [--plot FILE.svg]

DIR holds `llmservingsim/vllm_run_*` (casys-kaist/LLMServingSim, MIT): 300 ShareGPT requests at 10/s on vLLM 0.19.0, on
an RTX 4090 (whose KV pool of 41,408 tokens runs full) and an RTX PRO 6000, Llama-3.1-8B, and Qwen3-30B-A3B on two RTX
PRO 6000 with data and expert parallelism. Times were taken inside the engine, so no HTTP server is modelled. Nothing of
these runs was used for calibration. Prints a table; --plot draws running, waiting and KV use over the recorded ones.
"""

import argparse
import csv
import gzip
import json
import math
from collections.abc import Iterable
from pathlib import Path

import msgspec
import numpy as np
from missing import said

from headway.perfmodel import catalogue
from headway.perfmodel.engine import Engine, EngineConfig
from headway.perfmodel.gpus import GIB
from headway.perfmodel.sequence import Request
from headway.perfmodel.steptime import StepModel


class Run(msgspec.Struct, frozen=True):
    """A recorded run and the engine it ran on; `blocks` 0: what the card has left."""

    name: str
    model: str
    gpu: str
    seqs: int
    blocks: int = 0
    data_parallel: int = 1


RUNS = (
    Run("rtx4090_llama-3.1-8b", "llama-3.1-8b", "rtx4090", 256, 2588),
    Run("rtxpro6000_llama-3.1-8b", "llama-3.1-8b", "rtxpro6000", 128),
    Run("rtxpro6000_qwen3-30b-a3b-instruct-2507", "qwen3-30b-a3b", "rtxpro6000", 128, data_parallel=2),
)


class Course(msgspec.Struct):
    """How a run went: per request arrival, first and last token (s) and output tokens; gauges at every second."""

    arrived: list[float]
    first: list[float]
    last: list[float]
    output: list[int]
    gauges: list[tuple[float, float, float]]
    preempted: int = 0

    def figures(self) -> dict[str, float]:
        """TTFT and TPOT quantiles and the makespan, seconds."""
        ttft = np.subtract(self.first, self.arrived)
        tpot = np.subtract(self.last, self.first) / np.maximum(1, np.asarray(self.output) - 1)
        middle, tail = np.quantile(ttft, [0.5, 0.99])
        return {
            "TTFT p50": float(middle),
            "TTFT p99": float(tail),
            "TPOT p50": float(np.median(tpot)),
            "makespan": max(self.last) - min(self.arrived),
        }


def recorded(folder: Path, run: Run) -> tuple[Course, list[int]]:
    """The recorded course, times from the first arrival on, and the prompts' lengths."""
    with gzip.open(folder / f"vllm_run_{run.name}_requests.jsonl.gz", "rt") as lines:
        rows = [json.loads(line) for line in lines]
    start = min(row["queued_ts"] for row in rows)
    with gzip.open(folder / f"vllm_run_{run.name}_timeseries.csv.gz", "rt") as lines:
        gauges = [
            (float(r["running"]), float(r["waiting"]), float(r["kv_cache_pct"]) / 100) for r in csv.DictReader(lines)
        ]
    arrived, first, last = (
        [row[f"{key}_ts"] - start for row in rows] for key in ("queued", "first_token", "last_token")
    )
    return Course(arrived, first, last, [row["output_toks"] for row in rows], gauges), [
        row["input_toks"] for row in rows
    ]


def engines(run: Run) -> list[Engine]:
    """One engine per data-parallel rank."""
    model, gpu = catalogue.model(run.model), catalogue.gpu(run.gpu)
    steps = StepModel(model, gpu, data_parallel=run.data_parallel)
    weights = steps.work.weights_bytes / run.data_parallel + 2 * steps.work.head_bytes
    blocks = run.blocks or int((0.9 * gpu.memory_bytes - weights - 3 * GIB) / steps.work.kv_bytes / 16)
    return [Engine(EngineConfig(blocks, 16, run.seqs, 2048, 32768), steps) for _rank in range(run.data_parallel)]


def prompt(number: int, length: int) -> list[int]:
    """Tokens of a prompt that shares no block with others."""
    return [(number * 7919 + place * 31) % 4000 + 300 for place in range(length)]


def replayed(run: Run, real: Course, prompts: list[int]) -> Course:
    """The same requests on the model. Ranks step together, as long as the slowest takes; each request goes to the rank
    with fewest of them."""
    ranks = engines(run)
    count = len(prompts)
    told = Course(list(real.arrived), [math.nan] * count, [math.nan] * count, list(real.output), [])
    waiting = sorted(range(count), key=real.arrived.__getitem__)
    now, done, second = 0.0, 0, 1.0
    while done < count:
        if not any(one.busy for one in ranks):
            now = max(now, real.arrived[waiting[0]])
        while waiting and real.arrived[waiting[0]] <= now:
            number = waiting.pop(0)
            rank = min(ranks, key=lambda one: len(one.running) + 4 * len(one.waiting))
            size = real.output[number]
            rank.add(Request(str(number), prompt(number, prompts[number]), size, output_tokens=size), now)
        results = [one.step(now) for one in ranks]
        now += max(result.duration_s for result in results)
        for result in results:
            told.preempted += len(result.preempted)
            done += len(result.finished)
            for sequence, _token in result.outputs:
                number = int(sequence.id)
                told.last[number] = now
                if math.isnan(told.first[number]):
                    told.first[number] = now
        while second <= now:
            stats = [one.stats() for one in ranks]
            usage = sum(one.kv_usage for one in stats) / len(stats)
            told.gauges.append((sum(one.running for one in stats), sum(one.waiting for one in stats), usage))
            second += 1.0
    return told


def table(folder: Path) -> Iterable[str]:
    """A line per run and figure."""
    yield "| run | figure | measured | model | error |\n|---|---|---|---|---|"
    for run in RUNS:
        real, prompts = recorded(folder, run)
        told = replayed(run, real, prompts)
        for what, measured in real.figures().items():
            model = told.figures()[what]
            yield f"| {run.name} | {what} | {measured:.3f} s | {model:.3f} s | {model / measured - 1:+.0%} |"
        yield f"| {run.name} | preemptions | not recorded | {told.preempted} | |"


def plot(folder: Path, target: Path) -> None:
    """Running, waiting and KV use of model and recording, a column per run."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(2, len(RUNS), figsize=(12, 5.4), sharex="col", layout="constrained")
    for column, run in enumerate(RUNS):
        real, prompts = recorded(folder, run)
        told = replayed(run, real, prompts)
        top, bottom = axes[0, column], axes[1, column]
        for course, style in ((real, {"color": "0.55", "lw": 2.4}), (told, {"color": "C0", "lw": 1.2})):
            seconds = range(1, len(course.gauges) + 1)
            running, waiting, usage = zip(*course.gauges, strict=True)
            who = "recorded" if course is real else "model"
            top.plot(seconds, running, label=f"running, {who}", **style)
            top.plot(seconds, waiting, label=f"waiting, {who}", ls="--", **style)
            if any(usage):
                bottom.plot(seconds, np.multiply(usage, 100), label=who, **style)
        top.set_title(run.name, fontsize=10)
        bottom.set_xlabel("s")
    axes[0, 0].set_ylabel("requests")
    axes[1, 0].set_ylabel("KV use, % (recorded\non the RTX 4090 only)")
    axes[0, 0].legend(fontsize=8)
    figure.savefig(target, metadata={"Date": None} if target.suffix == ".svg" else None)


def main() -> None:
    """Print the table, draw the plot."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--plot", type=Path)
    options = parser.parse_args()
    folder = options.data / "llmservingsim"
    for line in table(folder):
        print(line)
    if options.plot:
        plot(folder, options.plot)


if __name__ == "__main__":
    said(main)
