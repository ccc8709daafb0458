"""The engine model against NVIDIA AIConfigurator's measured points (vLLM, aggregated serving).

    python benchmarks/perfmodel_silicon.py --data DIR

DIR holds `aiconfigurator/silicon_sample.csv.gz`. Every distinct point is replayed as a closed loop the way its source
takes it (InferenceMAX: ten requests per client, lengths uniform over .8 to 1 of the stated ones, all clients at once,
mean TTFT, median TPOT; the points of other campaigns likewise, with the stated length as the mean), on an engine
started as its campaign's published scripts start it (`perfmodel_recipes`). Prints a table by model, card and precision.
Points with data-parallel attention are left out: the model has no such layout.
"""

import argparse
import csv
import gzip
import statistics
from collections.abc import Iterable
from pathlib import Path

import msgspec
import numpy as np
import perfmodel_replay as replay
from missing import said
from perfmodel_recipes import Recipe, recipe

from headway.perfmodel import catalogue
from headway.perfmodel.calibration import EFFICIENCIES, Coefficients, Efficiency, kind
from headway.perfmodel.engine import EngineConfig
from headway.perfmodel.gpus import GIB
from headway.perfmodel.service import ApiCost
from headway.perfmodel.steptime import StepModel

SYSTEMS = {"h100_sxm": "h100", "h200_sxm": "h200", "b200_sxm": "b200", "b300_sxm": "b300"}
MODELS = {
    "nvidia/Llama-3.1-8B-Instruct-FP8": "llama-3.1-8b",
    "Qwen/Qwen3-235B-A22B-FP8": "qwen3-235b-a22b",
    "moonshotai/Kimi-K2.5": "moonshotai/kimi-k2-thinking",
}
EXPERTS_ONLY = ("openai/gpt-oss-120b", "moonshotai/Kimi-K2.5", "MiniMaxAI/MiniMax-M2.5")
"""Their 4-bit checkpoints leave all but the experts in 16 bits (NVIDIA's of MiniMax is taken to, as others' do)."""

BLOCKS = ("MiniMaxAI", "Qwen")
"""Publishers whose fp8 checkpoints scale blocks of 128 x 128."""

OUTSIDE_BYTES = 4 * GIB
"""Activations, CUDA graphs and NCCL, for the size of the KV pool; only a few points are bound by it."""

REQUESTS_PER_CLIENT = 10


class Point(msgspec.Struct, frozen=True):
    """One measured point. Sizes in tokens, times in seconds."""

    model: str
    system: str
    precision: str
    version: str
    tp: int
    isl: int
    osl: int
    concurrency: int
    stated: bool  # lengths are the largest, not the mean
    ttft: float
    tpot: float
    how: Recipe = Recipe()

    @property
    def group(self) -> tuple[str, str]:
        """Model and card: what folds keep together."""
        return self.model, self.system

    @property
    def doubted(self) -> bool:
        """Whether it cannot be what it says (docs/perfmodel.md, What it cannot do)."""
        return (not self.stated and self.precision != "bfloat16") or (
            "gpt-oss" in self.model and self.concurrency > 256
        )


class Settings(msgspec.Struct, frozen=True):
    """Everything that calibration moves."""

    coefficients: Coefficients = Coefficients()
    efficiencies: dict[str, Efficiency] = msgspec.field(default_factory=lambda: dict(EFFICIENCIES))
    api: ApiCost = ApiCost()


def points(path: Path) -> list[Point]:
    """Distinct points of vLLM's aggregated mode."""
    with gzip.open(path, "rt") as lines:
        rows = [row for row in csv.DictReader(lines) if (row["backend"], row["mode"]) == ("vllm", "agg")]
    found: dict[tuple[object, ...], Point] = {}
    for row in rows:
        if float(row["attention_dp_size"] or 1) > 1:
            continue
        point = _point(row)
        key = (*msgspec.structs.astuple(point)[:3], *msgspec.structs.astuple(point)[4:9], round(point.tpot, 5))
        found.setdefault((*key, round(point.ttft, 4)), point)
    return sorted(found.values(), key=lambda p: msgspec.structs.astuple(p)[:-1])


def _point(row: dict[str, str]) -> Point:
    name, date = row["model_path"], row["silicon_data_source"].partition("measured=")[2][:10]
    ranks = int(float(row["moe_ep_size"] or 1))
    width = max(float(row["tp_size"]), float(row["moe_tp_size"] or 1) * float(row["moe_ep_size"] or 1))
    return Point(
        name,
        row["system"],
        _scheme(name, row["precision"]),
        row["backend_version"],
        int(width),
        int(row["isl"]),
        int(row["osl"]),
        int(float(row["batch_size"])),
        row["attention_dp_size"] != "",
        float(row["silicon_ttft_ms"]) / 1e3,
        float(row["silicon_tpot_ms"]) / 1e3,
        recipe(name, row["system"], row["precision"], row["backend_version"], date, ranks, int(row["isl"])),
    )


def _scheme(name: str, precision: str) -> str:
    """What the checkpoint behind a stated precision is, as `quantisation` names it."""
    if precision == "int4":
        return "w4a16_experts"
    if precision == "fp4" and name in EXPERTS_ONLY:
        return "mxfp4"
    if precision == "fp8" and name.startswith(BLOCKS):
        return "fp8_block"
    return precision or "bfloat16"


def told(point: Point, settings: Settings, per_client: int = REQUESTS_PER_CLIENT) -> tuple[float, float]:
    """TTFT (mean) and TPOT (median) of the model for a point, seconds."""
    model, gpu = catalogue.model(MODELS.get(point.model, point.model)), catalogue.gpu(SYSTEMS[point.system])
    steps = StepModel(
        model,
        gpu,
        precision=point.precision,
        tp=point.tp,
        kv_dtype=point.how.kv_dtype,
        flags=point.how.flags,
        coefficients=settings.coefficients,
        efficiency=settings.efficiencies[kind(gpu)],
    )
    left = 0.9 * gpu.memory_bytes - steps.work.weights_bytes - 2 * steps.work.head_bytes - OUTSIDE_BYTES
    blocks = max(2 * (point.isl + point.osl), left / steps.work.kv_bytes) // 16
    config = EngineConfig(int(blocks), 16, max(4, point.concurrency), point.how.batched, 1 << 30, False)
    chance = np.random.default_rng(0)
    count = per_client * point.concurrency
    scale = 1.0 if point.stated else 1 / 0.9
    sizes = [chance.integers(int(0.8 * n * scale), int(n * scale) + 1, count).tolist() for n in (point.isl, point.osl)]
    seen = replay.closed_loop(steps, config, list(zip(*sizes, strict=True)), point.concurrency, settings.api)
    first = seen.order < point.concurrency
    weight = 1 / REQUESTS_PER_CLIENT  # of the first wave, also where fewer requests are replayed
    ttft = weight * seen.ttft[first].mean() + (1 - weight) * seen.ttft[~first].mean()
    return float(ttft), float(np.median(seen.tpot))


def summary(errors: Iterable[float]) -> tuple[float, float]:
    """Median of the signed and of the absolute relative errors."""
    values = list(errors)
    return statistics.median(values), statistics.median(map(abs, values))


def table(rows: list[Point], results: list[tuple[float, float]]) -> Iterable[str]:
    """A line per model, card, precision and version."""
    groups: dict[tuple[str, ...], list[tuple[float, float]]] = {}
    for point, (ttft, tpot) in zip(rows, results, strict=True):
        key: tuple[str, ...] = (point.model, point.system, point.precision, point.version or "?")
        groups.setdefault(key, []).append((ttft / point.ttft - 1, tpot / point.tpot - 1))
    yield "| model | card | weights | vLLM | points | TPOT error | absolute | TTFT error | absolute |"
    yield "|---|---|---|---|---|---|---|---|---|"
    everything = [error for errors in groups.values() for error in errors]
    total: tuple[str, ...] = ("all", "", "", "")
    for key, errors in [*sorted(groups.items()), (total, everything)]:
        cells = [f"{value:+.0%}" for pair in (1, 0) for value in summary(error[pair] for error in errors)]
        cells[1], cells[3] = cells[1].lstrip("+"), cells[3].lstrip("+")
        yield f"| {' | '.join(key)} | {len(errors)} | {' | '.join(cells)} |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    rows = points(parser.parse_args().data / "aiconfigurator" / "silicon_sample.csv.gz")
    settings = Settings()
    for line in table(rows, [told(point, settings) for point in rows]):
        print(line)


if __name__ == "__main__":
    said(main)
