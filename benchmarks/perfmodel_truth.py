"""How far the engine model is from measured serving runs: `python benchmarks/perfmodel_truth.py --data DIR`.

DIR holds `perf_truth.csv` (published or logged measurements, each row naming its public source). Rows are replayed on
the engine in virtual time, with the load they were taken at; nothing is fitted here. Left out: vLLM of 2023, whose
decode was far from any roofline (its rows say so), overload runs and clusters. NIM's fp8 engines are taken to keep an
fp8 KV cache, which the knee that their rows report implies. Prints Markdown. `perfmodel_silicon.py` and
`perfmodel_runs.py` compare with more.
"""

import argparse
import csv
import heapq
import statistics
from collections.abc import Iterator
from pathlib import Path

import msgspec
from missing import said

from headway.perfmodel import catalogue, memory
from headway.perfmodel.engine import Engine, EngineConfig
from headway.perfmodel.sequence import Request
from headway.perfmodel.service import ApiCost
from headway.perfmodel.steptime import StepModel

REPEATED = 16  # "repeated prompts mostly cached", say the notes of the rows with prefix caching: so many different ones
API = ApiCost()
CARDS = {
    "H100-SXM-80GB": "h100-80gb",
    "H100-80GB": "h100-80gb",
    "H100-80GB DGX": "h100-80gb",
    "H200-141GB": "h200-141gb",
    "A100-80GB DGX": "a100-80gb",
    "A100-40GB": "a100-40gb",
}
MODELS = {"llama2-70b": "llama-2-70b", "Llama-3.3-70B-Instruct": "llama-3.3-70b", "Qwen3-VL-32B-Instruct": "qwen3-32b"}
MODELS |= {"Llama-3.1-8B-Instruct": "llama-3.1-8b"}


class Load(msgspec.Struct, frozen=True):
    """A run: sizes in tokens, and either a rate (requests/s, open loop) or a concurrency (closed loop)."""

    isl: int
    osl: int
    rate: float = 0.0
    concurrency: int = 1
    requests: int = 64
    prompts: int = 0  # how many different ones; 0: all


def engine(name: str, card: str, precision: str, tp: int, kv_dtype: str, seqs: int, batched: int) -> Engine:
    """An engine whose pool is what the memory model says."""
    model, gpu = catalogue.model(name), catalogue.gpu(card)
    plan = memory.plan(
        model,
        gpu,
        precision=precision,
        tp=tp,
        kv_dtype=kv_dtype,
        max_num_seqs=seqs,
        max_num_batched_tokens=batched,
    )
    steps = StepModel(model, gpu, precision=precision, tp=tp, kv_dtype=kv_dtype)
    return Engine(EngineConfig(plan.kv_blocks, 16, seqs, batched, model.max_position), steps)


def replay(one: Engine, load: Load) -> tuple[float, float]:
    """Median TTFT and mean TPOT in seconds, the first quarter left out. Prompts share nothing."""
    waiting = [number / load.rate for number in range(load.requests)] if load.rate else [0.0] * load.concurrency
    around, free = API.delay_s(load.isl), API.busy_s(load.isl)
    waiting = [max(at, number * free) + around for number, at in enumerate(waiting)]
    issued, added, now = len(waiting), 0, 0.0
    seen: list[tuple[float, float]] = []
    while waiting or one.busy:
        now = now if one.busy else max(now, waiting[0])
        while waiting and waiting[0] <= now:
            one.add(request(added, load), heapq.heappop(waiting))
            added += 1
        step = one.step(now)
        now += step.duration_s
        for done in step.finished:
            span = done.last_token - done.first_token
            seen.append((done.first_token - done.arrived + around, span / max(1, done.generated - 1)))
            if issued < load.requests:
                heapq.heappush(waiting, now + around)
                issued += 1
    settled = seen[len(seen) // 4 :]
    return statistics.median(ttft for ttft, _tpot in settled), statistics.mean(tpot for _ttft, tpot in settled)


def request(number: int, load: Load) -> Request:
    """A request; prompts that differ do so from their first token on."""
    which = number % load.prompts if load.prompts else number
    prompt = [which % 4096, which // 4096, *((place * 7) % 4000 for place in range(load.isl - 2))]
    spread = 0.9 + 0.2 * (number * 0.618 % 1) if not load.rate and load.concurrency > 1 else 1.0
    size = round(load.osl * spread)  # closed loops: a little uneven, as no real ones march in step
    return Request(str(number), prompt, size, output_tokens=size)


def load_of(row: dict[str, str]) -> Load | None:
    """The load of a row, None if it cannot be told from it."""
    isl, osl, text = round(float(row["isl"] or 0)), round(float(row["osl"] or 0)), row["load"]
    words = text.split()
    if not isl or not osl:
        return None
    if text.startswith("constant"):
        repeated = REPEATED if "prefix caching ON" in row["notes"] else 0
        return Load(isl, osl, rate=float(words[1]), requests=400, prompts=repeated)
    if text.startswith("concurrency"):
        return Load(isl, osl, concurrency=int(words[1]), requests=4 * int(words[1]))
    return Load(isl, osl, requests=1) if text.startswith("single request") else None


def truth(path: Path) -> Iterator[str]:
    """One line of a table per row of perf_truth.csv that can be replayed."""
    yield "| row | model, card, engine | load | TTFT measured | model | TPOT measured | model |"
    yield "|---|---|---|---|---|---|---|"
    errors: dict[str, list[float]] = {"TTFT": [], "TPOT": []}
    with path.open() as lines:
        rows = [row for row in csv.DictReader(lines) if not row["kind"].startswith("cluster")]
    for row in rows:
        load, card = load_of(row), CARDS.get(row["gpu"])
        name = MODELS.get(row["model"], row["model"])
        if load is None or card is None or "overload" in row["kind"] or int(row["n_replicas"] or 1) > 1:
            continue
        try:
            catalogue.model(name)
        except catalogue.UnknownName:
            continue
        native = catalogue.model(name).quantisation or "bfloat16"
        precision = "fp8" if "fp8" in row["precision"] else native
        kv_dtype = "fp8" if row["engine"].startswith("NIM") and precision == "fp8" else "auto"
        sizes = (128, 2048) if load.rate else (256, 8192)
        one = engine(name, card, precision, int(row["tp"]), kv_dtype, *sizes)
        told = replay(one, load)
        measured = [float(row[key] or 0) / 1e3 for key in ("ttft_p50_ms", "tpot_ms")]
        measured[0] = measured[0] or float(row["ttft_mean_ms"] or 0) / 1e3
        cells = []
        for kind, real, ours in zip(errors, measured, told, strict=True):
            cells.append(f"{real * 1e3:.1f} ms | {ours * 1e3:.1f} ms" if real else "- | -")
            errors[kind] += [ours / real - 1] if real else []
        what = f"{name}, {card} x{row['tp']}, {row['engine']} {row['engine_version']}"
        yield f"| {row['row']} | {what} | {row['load']} | {' | '.join(cells)} |"
    for kind, values in errors.items():
        yield f"\n{kind}: {len(values)} rows, {summary(values)}"


def summary(errors: list[float]) -> str:
    """Median of the signed and of the absolute relative errors."""
    middle = statistics.median(abs(error) for error in errors)
    return f"median error {statistics.median(errors):+.0%}, median absolute error {middle:.0%}"


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    folder = parser.parse_args().data
    for line in truth(folder / "perf_truth.csv"):
        print(line)


if __name__ == "__main__":
    said(main)
