"""What kernels reach of the data sheets, from published tables: where the constants of `calibration` and `comm` start.

    python benchmarks/perfmodel_kernels.py --data DIR

DIR holds `aiconfigurator/` (NVIDIA AIConfigurator, Apache-2.0: vLLM 0.24.0 on H100 and H200, 0.14.0 on A100 and L40S),
`llmservingsim/` (RTX PRO 6000, vLLM 0.19.0). Prints medians, and the error of the formulas of `comm` and of
the experts against their tables.
"""

import argparse
import csv
import gzip
import statistics
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
from missing import said

from headway.perfmodel import catalogue, comm
from headway.perfmodel.calibration import HOPPER, Coefficients

CARDS = {"h100_sxm": ("h100", "0.24.0"), "h200_sxm": ("h200", "0.24.0"), "a100_sxm": ("a100", "0.14.0")}
CARDS |= {"l40s": ("l40s", "0.14.0")}
BIG = 64e6  # bytes: matrices of 7B models and more


def rows(path: Path) -> list[dict[str, str]]:
    """A gzipped CSV."""
    with gzip.open(path, "rt") as lines:
        return list(csv.DictReader(lines))


def middle(values: Iterable[float]) -> str:
    """Median, or a dash."""
    found = list(values)
    return f"{statistics.median(found):.2f}" if found else "-"


def multiplications(folder: Path, card: str, version: str) -> Iterator[str]:
    """Bandwidth share of small batches over big matrices, FLOP share of large batches, by type."""
    gpu = catalogue.gpu(card)
    found = rows(folder / f"gemm_vllm_{version}_gemm_perf.csv.gz")
    for kind, width, peak in (("bfloat16", 2, gpu.bf16_flops), ("fp8", 1, gpu.fp8_flops)):
        read, multiplied = [], []
        for row in found:
            m, n, k, seconds = *(int(row[key]) for key in "mnk"), float(row["latency"]) / 1e3
            if row["gemm_dtype"] != kind or n * k * width < BIG or n > 65536 or k > 32768:
                continue
            if m <= 16:
                read.append((n * k + m * k) * width / seconds / gpu.bandwidth_bytes_per_s)
            elif m >= 1024 and m % 128 == 0:
                multiplied.append(2 * m * n * k / seconds / peak)
        yield f"| {card} | GEMM, {kind} | {middle(read)} of bandwidth | {middle(multiplied)} of FLOP/s |"


def attention(folder: Path, card: str, version: str) -> Iterator[str]:
    """FLOP share of long prompts, bandwidth share of much cache."""
    gpu = catalogue.gpu(card)
    prompt = [
        2
        * int(r["batch_size"])
        * int(r["num_heads"])
        * 128
        * int(r["isl"]) ** 2
        / float(r["latency"])
        * 1e3
        / gpu.bf16_flops
        for r in rows(folder / f"attention_vllm_{version}_context_attention_perf.csv.gz")
        if int(r["isl"]) >= 4096 and r["kv_cache_dtype"] == "bfloat16"
    ]
    shares = []
    for r in rows(folder / f"attention_vllm_{version}_generation_attention_perf.csv.gz"):
        heads = int(r["num_key_value_heads"]) or int(r["num_heads"])
        size = int(r["batch_size"]) * (int(r["step"]) + 1) * 4 * heads * 128
        if r["kv_cache_dtype"] == "bfloat16" and heads <= 8 and size > 1 << 28:
            shares.append(size / float(r["latency"]) * 1e3 / gpu.bandwidth_bytes_per_s)
    yield f"| {card} | attention | {middle(shares)} of bandwidth (decode) | {middle(prompt)} of FLOP/s (prefill) |"


def reductions(folder: Path, card: str, version: str) -> Iterator[str]:
    """Error of the all-reduce formula up to 128 MiB."""
    gpu = catalogue.gpu(card)
    errors: dict[int, list[float]] = {}
    for row in rows(folder / f"comm_vllm_{version}_custom_allreduce_perf.csv.gz"):
        size, tp = 2 * int(row["message_size"]), int(row["num_gpus"])
        if row["backend"] == "vllm_graph" and size <= 1 << 27:
            told = float(comm.all_reduce_s(np.array([float(size)]), gpu, tp)[0])
            errors.setdefault(tp, []).append(abs(told / (float(row["latency"]) / 1e3) - 1))
    cells = ", ".join(f"{tp} cards {statistics.median(found):.0%}" for tp, found in sorted(errors.items()))
    yield f"| {card} | all-reduce formula | median absolute error | {cells} |"


def experts(folder: Path) -> Iterator[str]:
    """Error of the experts' formula (equal popularity, as in the table)."""
    gpu, e, c = catalogue.gpu("h200"), HOPPER, Coefficients()
    for kind, width, name in (("bfloat16", 2, "bfloat16"), ("fp8_block", 1, "fp8")):
        errors = []
        peak = {"bfloat16": gpu.bf16_flops, "fp8": gpu.fp8_flops}[name] * e.expert_flops[name]
        for row in rows(folder / "moe_vllm_0.24.0_moe_perf.csv.gz"):
            count, top, tokens = int(row["num_experts"]), int(row["topk"]), int(row["num_tokens"])
            if row["moe_dtype"] != kind or count < 60 or int(row["moe_ep_size"]) > 1:
                continue
            one = 3 * int(row["hidden_size"]) * int(row["inter_size"]) / int(row["moe_tp_size"])
            hit = count * (1 - (1 - top / count) ** tokens)
            read = hit * one * width / e.expert_weights / gpu.bandwidth_bytes_per_s
            moved = c.expert_moved * tokens * top * int(row["hidden_size"]) * 2 / gpu.bandwidth_bytes_per_s
            both = (read**4 + (2 * one * top * tokens / peak) ** 4) ** 0.25
            told = e.expert_s + e.distinct_s * hit + moved + both
            errors.append(abs(told / (float(row["latency"]) / 1e3) - 1))
        yield f"| h200 | experts formula, {kind} | median absolute error | {statistics.median(errors):.0%} |"


def rtx(folder: Path) -> Iterator[str]:
    """The same shares for the RTX PRO 6000, from one layer of Llama-3.1-8B."""
    gpu = catalogue.gpu("rtxpro6000")
    sizes = {"down_proj": 4096 * 14336, "gate_up_proj": 4096 * 28672}
    found = [r for r in rows(folder / "rtxpro6000_llama-3.1-8b_tp1_dense.csv.gz") if r["layer"] in sizes]
    read = [
        2 * sizes[r["layer"]] / float(r["time_us"]) * 1e6 / gpu.bandwidth_bytes_per_s
        for r in found
        if int(r["tokens"]) <= 16
    ]
    done = [
        2 * sizes[r["layer"]] * int(r["tokens"]) / float(r["time_us"]) * 1e6 / gpu.bf16_flops
        for r in found
        if int(r["tokens"]) >= 1024
    ]
    yield f"| rtxpro6000 | GEMM, bfloat16 | {middle(read)} of bandwidth | {middle(done)} of FLOP/s |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    folder = parser.parse_args().data
    print("| card | kernel | reading | multiplying |\n|---|---|---|---|")
    for name, (card, version) in CARDS.items():
        for table in (multiplications, attention, reductions):
            for line in table(folder / "aiconfigurator" / name, card, version):
                print(line)
    for line in (*experts(folder / "aiconfigurator" / "h200_sxm"), *rtx(folder / "llmservingsim")):
        print(line)


if __name__ == "__main__":
    said(main)
