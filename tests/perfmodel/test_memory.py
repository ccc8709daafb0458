"""The memory model against start-up logs of real engines, and its own arithmetic."""

import csv
import statistics
from pathlib import Path

import pytest

from headway.perfmodel import catalogue, memory
from headway.perfmodel.gpus import GIB

QUANTISED = {
    "RedHatAI/Qwen2.5-7B-Instruct-fp8-dynamic": ("qwen2.5-7b", "fp8"),
    "RedHatAI/Meta-Llama-3.1-8B-Instruct-quantized.w8a8": ("llama-3.1-8b", "int8"),
    "RedHatAI/Qwen2.5-7B-Instruct-quantized.w8a8": ("qwen2.5-7b", "int8"),
    "redhatai/Llama-3.3-70B-Instruct-quantized.w8a8": ("llama-3.3-70b", "int8"),
    "RedHatAI/Llama-3.3-70B-Instruct-fp8-dynamic": ("llama-3.3-70b", "fp8"),
}


def logged(shared: Path) -> list[tuple[dict[str, str], memory.MemoryPlan]]:
    """Rows of vLLM 0.17 to 0.19 with dense models of the catalogue, beside the plan for the same settings."""
    rows = []
    with (shared / "truth" / "vram_truth.csv").open() as lines:
        for row in csv.DictReader(lines):
            name, precision = QUANTISED.get(row["model"], (row["model"], "bfloat16"))
            if not row["engine_version"].startswith(("0.17", "0.18", "0.19")):
                continue
            try:
                model = catalogue.model(name)
            except catalogue.UnknownName:
                continue
            rows.append((row, plan_of(row, model, precision)))
    return rows


def plan_of(row: dict[str, str], model: catalogue.Architecture, precision: str) -> memory.MemoryPlan:
    return memory.plan(
        model,
        catalogue.gpu("h100-80gb"),
        precision=precision,
        tp=int(row["tp"]),
        utilization=float(row["gpu_memory_utilization"]),
        kv_dtype=row["kv_cache_dtype"],
        max_num_seqs=1024,
        max_num_batched_tokens=8192,
        max_model_len=int(row["max_model_len"]),
    )


def test_weights_and_pool_match_real_logs(shared: Path) -> None:
    rows = logged(shared)
    assert len(rows) >= 20
    weights = [abs(plan.weights_bytes / GIB / float(row["weights_gib_per_gpu"]) - 1) for row, plan in rows]
    pools = [abs(plan.kv_bytes / GIB / float(row["available_kv_gib_per_gpu"]) - 1) for row, plan in rows]
    tokens = [abs(plan.kv_tokens / int(row["kv_tokens"]) - 1) for row, plan in rows]
    assert statistics.median(weights) < 0.005
    assert max(weights) < 0.08  # gemma-3-4b: its vision tower is a round figure
    assert statistics.median(pools) < 0.01
    assert max(pools) < 0.05
    assert statistics.median(tokens) < 0.01
    assert sorted(tokens)[-2] < 0.05  # all but gemma-3-27b, whose hybrid groups waste some of the pool


def test_kv_bytes_per_token_count_grouped_heads() -> None:
    llama = catalogue.model("llama-3.1-8b")
    assert memory.kv_bytes_per_token(llama) == 2 * 32 * 8 * 128 * 2
    assert memory.kv_bytes_per_token(llama, "fp8") == 2 * 32 * 8 * 128
    assert memory.kv_bytes_per_token(llama, tp=4) == 2 * 32 * 2 * 128 * 2
    assert memory.kv_bytes_per_token(llama, tp=16) == 2 * 32 * 1 * 128 * 2  # heads are copied, not split further


def test_sliding_windows_leave_room_for_more_tokens() -> None:
    gemma = catalogue.model("gemma-2-9b")
    gpu = catalogue.gpu("h100-80gb")
    short = memory.plan(gemma, gpu, max_model_len=4096)
    long = memory.plan(gemma, gpu, max_model_len=8192)
    assert long.kv_tokens > 1.1 * short.kv_tokens


def test_a_model_that_does_not_fit_has_no_pool() -> None:
    plan = memory.plan(catalogue.model("llama-3.1-70b"), catalogue.gpu("h100-80gb"))
    assert not plan.fits
    assert plan.kv_tokens == 0
    assert plan.kv_bytes == 0


def test_quantised_weights_keep_16_bit_tables() -> None:
    llama = catalogue.model("llama-3.1-8b")
    assert memory.weights_bytes(llama, "int4") / GIB == pytest.approx(5.6, rel=0.05)  # AWQ checkpoints: 5.3-5.7 GiB
