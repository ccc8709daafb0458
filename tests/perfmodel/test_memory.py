"""The memory model against start-up logs of real engines, and its own arithmetic."""

import csv
import statistics
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.memory_truth import CAMPAIGN, FOUND, OTHERS, judge, pool_error, read
from headway.perfmodel import catalogue, memory
from headway.perfmodel.gpus import GIB, custom
from headway.perfmodel.models import ARCHITECTURES

H100 = catalogue.gpu("h100-80gb")
LLAMA = catalogue.model("llama-3.1-8b")


def test_pools_match_real_logs(shared: Path) -> None:
    with (shared / "truth" / "vram_truth.csv").open() as lines:
        rows = [one for row in csv.DictReader(lines) if (one := judge(row)).plan]
    recent = [one.errors["KV tokens"] for one in rows if one.group == "vLLM >= 0.17"]
    assert len(recent) >= 30
    assert statistics.mean(abs(error or 0.0) for error in recent) < 0.002
    assert max(abs(error or 0.0) for error in recent) < 0.01
    for one in rows:
        assert one.plan
        assert one.started is None or one.plan.fits == one.started, one.row["row"]


@pytest.mark.parametrize(
    ("group", "rows", "mean"), [(CAMPAIGN, 47, 0.003), (f"{OTHERS}, V1 < 0.17", 10, 0.01), (f"{OTHERS}, V0", 2, 0.01)]
)
def test_pools_match_logs_that_were_found_later(group: str, rows: int, mean: float) -> None:
    started = [one for one in read(FOUND) if one.plan and one.group == group and one.started is not False]
    errors = [abs(error) for one in started if (error := pool_error(one)) is not None]
    assert len(started) == rows
    assert statistics.mean(errors) < mean


def test_found_engines_that_started_are_said_to_fit() -> None:
    judged = [one for one in read(FOUND) if (one.plan or one.refused) and one.started is not None]
    wrong = [one.row["row"] for one in judged if bool(one.plan and one.plan.fits) != one.started]
    assert wrong == ["F24", "F25"]  # docs/memory.md says why


def test_a_model_that_does_not_fit_has_no_pool_and_says_why() -> None:
    plan = memory.plan(catalogue.model("llama-3.1-70b"), H100)
    assert not plan.fits
    assert plan.kv_tokens == plan.kv_blocks == 0
    assert "weights alone take 131" in plan.reason


def test_nothing_left_for_the_cache_is_named_with_its_sum() -> None:
    plan = memory.plan(LLAMA, custom(20), utilization=0.7)
    assert not plan.fits
    assert "nothing is left for the KV cache: 14.00 GiB asked for, weights 14.99 GiB" in plan.reason


def test_a_length_that_the_pool_cannot_hold_is_refused() -> None:
    plan = memory.plan(LLAMA, catalogue.gpu("l4-24gb"))
    assert not plan.fits
    assert "one sequence of 131,072 tokens needs 16.00 GiB" in plan.reason


def test_graphs_beyond_the_card_are_noticed_before_they_were_counted() -> None:
    asked = {"utilization": 0.99, "max_num_seqs": 8, "max_num_batched_tokens": 512, "max_model_len": 2048}
    before = memory.plan(LLAMA, H100, version="0.19.0", **asked)
    assert not before.fits
    assert "CUDA graphs" in before.reason
    assert memory.plan(LLAMA, H100, version="0.19.0", eager=True, **asked).fits
    assert memory.plan(LLAMA, H100, version="0.20.0", **asked).fits


def test_versions_differ_in_what_they_count() -> None:
    counted, not_counted = (memory.plan(LLAMA, H100, version=v, utilization=0.9) for v in ("0.20.0", "0.19.0"))
    assert not_counted.kv_bytes - counted.kv_bytes == counted.cuda_graph_bytes
    assert memory.plan(LLAMA, H100, version="0.19.0").requested_bytes == int(0.9 * H100.memory_bytes)
    assert memory.plan(LLAMA, H100, version="0.20.0").requested_bytes == int(0.92 * H100.memory_bytes)


def test_the_fused_allreduce_costs_only_where_it_runs() -> None:
    one, two = (memory.plan(LLAMA, H100, tp=tp, version="0.19.0").non_torch_bytes / GIB for tp in (1, 2))
    assert (one, two) == (pytest.approx(0.25, abs=0.01), pytest.approx(2.07, abs=0.01))
    ada = memory.plan(LLAMA, catalogue.gpu("l40s-48gb"), tp=2, version="0.19.0").non_torch_bytes / GIB
    assert ada < 0.5
    eager = memory.plan(LLAMA, H100, tp=2, version="0.19.0", eager=True).non_torch_bytes / GIB
    assert eager == pytest.approx(0.55, abs=0.01)  # the compiler fuses, and does not run; no graphs are captured


def test_pipelines_bring_no_communication_of_their_own() -> None:
    one, two = (memory.plan(LLAMA, H100, pp=pp, version="0.19.0") for pp in (1, 2))
    assert two.non_torch_bytes < one.non_torch_bytes
    assert two.activation_bytes - one.activation_bytes == 2 * 2 * 8192 * 4096  # hidden states and residuals handed on


def test_every_stage_of_a_pipeline_has_a_plan() -> None:
    plans = memory.stage_plans(LLAMA, H100, pp=4, version="0.19.0", utilization=0.95, max_model_len=8192)
    pools = [plan.kv_bytes for plan in plans]
    assert len(plans) == 4
    assert min(pools) == pools[-1] == memory.plan(LLAMA, H100, pp=4, version="0.19.0", utilization=0.95).kv_bytes
    assert plans[0].activation_bytes / GIB == pytest.approx(1.05, abs=0.01)  # a log of this very setting


def test_what_a_token_takes_is_that_of_a_stage() -> None:
    """As with the other bytes of a plan: those of one GPU."""
    llama = memory.plan(catalogue.model("llama-3.1-70b"), H100, tp=4, pp=2, max_model_len=8192)
    assert llama.kv_bytes_per_token == 40960 == llama.layout.block_bytes // llama.block_size
    oss = memory.plan(catalogue.model("gpt-oss-120b"), H100, pp=4)
    assert (oss.kv_bytes_per_token, oss.window_bytes_per_token) == (9 * 2048, 5 * 2048)
    assert oss.layout.window == 128
    for pp in (1, 4):
        plans = memory.stage_plans(catalogue.model("qwen3-next-80b-a3b"), catalogue.gpu("h200"), pp=pp)
        assert sum(plan.state_bytes_per_sequence for plan in plans) == 39_518_208
        assert sum(plan.kv_bytes_per_token for plan in plans) == 24576


def test_layers_that_share_a_cache_are_the_models_last_not_every_stages() -> None:
    model = msgspec.structs.replace(LLAMA, shared_kv_layers=20)
    plans = memory.stage_plans(model, H100, pp=2, max_model_len=8192)
    assert [plan.kv_bytes_per_token for plan in plans] == [12 * 4096, 0]
    assert plans[0].layout.block_bytes == 12 * 16 * 4096


def test_lengths_above_the_models_own_are_refused() -> None:
    phi = catalogue.model("microsoft/phi-2")
    plan = memory.plan(phi, H100, max_model_len=8192, version="0.19.0")
    assert not plan.fits
    assert "8,192 is above the model's own 2,048" in plan.reason
    assert memory.plan(phi, H100, max_model_len=8192, version="0.19.0", allow_long=True).fits


def test_what_does_not_come_out_even_is_refused() -> None:
    with pytest.raises(ValueError, match="151936 rows of the padded vocabulary cannot be split over 5"):
        memory.plan(catalogue.model("qwen3-14b"), H100, tp=5)
    with pytest.raises(ValueError, match="10 KV heads can neither be split over 4 GPUs nor copied evenly"):
        memory.plan(catalogue.model("phi-4"), H100, tp=4)
    assert memory.plan(LLAMA, H100, tp=16).fits  # 8 KV heads, two copies of each


def test_the_sampler_is_tried_after_the_pool_is_taken() -> None:
    """Three starts of gpt-oss-20b in public logs: out of memory at 0.95 on one and two GPUs, not at 0.9."""
    oss = catalogue.model("gpt-oss-20b")
    for tp, utilization, starts in ((1, 0.95, False), (2, 0.95, False), (2, 0.9, True), (4, 0.95, True)):
        plan = memory.plan(oss, H100, tp=tp, utilization=utilization, max_model_len=8192, version="0.19.0")
        assert plan.fits is starts
        assert starts or "the sampler is warmed up for 1,024 sequences" in plan.reason
    fewer = {"max_num_seqs": 256, "utilization": 0.95, "max_model_len": 8192, "version": "0.19.0"}
    assert memory.plan(oss, H100, **fewer).fits


def test_more_than_is_free_when_the_engine_begins_cannot_be_asked_for() -> None:
    plan = memory.plan(LLAMA, H100, utilization=1.0, max_model_len=2048, version="0.19.0")
    assert not plan.fits
    assert "79.19 GiB are asked for and 78.67 GiB are free" in plan.reason


def test_asking_for_less_is_no_remedy_where_the_card_is_too_small() -> None:
    assert memory.plan(LLAMA, custom(0.5)).reason == "CUDA and communicators alone take more than the card's 0.50 GiB"
    whole = memory.plan(catalogue.model("llama-3.1-70b"), H100, utilization=1.0)
    assert "the weights alone take 131" in whole.reason


def test_the_stage_with_the_least_room_decides() -> None:
    whole = memory.plan(LLAMA, H100, version="0.19.0")
    half = memory.plan(LLAMA, H100, pp=2, version="0.19.0")
    assert half.weights_bytes < 0.6 * whole.weights_bytes
    assert half.kv_tokens > 2 * whole.kv_tokens
    assert half.concurrency(1000) > 2 * whole.concurrency(1000)


def test_impossible_sizes_are_refused() -> None:
    with pytest.raises(ValueError, match="32 attention heads cannot be split over 3 GPUs"):
        memory.plan(LLAMA, H100, tp=3)
    with pytest.raises(ValueError, match="pipeline stages"):
        memory.plan(LLAMA, H100, pp=64)
    with pytest.raises(ValueError, match="between 0 and 1"):
        memory.plan(LLAMA, H100, utilization=1.2)
    with pytest.raises(ValueError, match="at least 1"):
        memory.plan(LLAMA, H100, tp=0)
    with pytest.raises(ValueError, match="unknown weight format 'fp3'"):
        memory.plan(LLAMA, H100, precision="fp3")


def test_more_gpus_never_hold_less() -> None:
    for model in ARCHITECTURES:
        if model.heads % 8:
            continue
        one, eight = (memory.weights_bytes(model, tp=tp) for tp in (1, 8))
        assert 0.99 * one / 8 <= eight <= one, model.id


@pytest.mark.slow
@given(
    st.sampled_from(ARCHITECTURES),
    st.sampled_from(["h100-80gb", "l4-24gb", "b200-180gb", "a100-40gb"]),
    st.sampled_from(["0.7.3", "V0 0.8.5", "0.11.0", "0.16.0", "0.19.0", "0.25.0", "0.32.0"]),
    st.sampled_from(["auto", "fp8"]),
    st.integers(1, 400_000),
)
def test_what_fits_fits_its_own_sum(name: object, card: str, version: str, kv_dtype: str, length: int) -> None:
    model = name
    assert isinstance(model, type(LLAMA))
    plan = memory.plan(model, catalogue.gpu(card), version=version, kv_dtype=kv_dtype, max_model_len=length)
    assert plan.kv_blocks == max(0, plan.kv_bytes // plan.layout.block_bytes)
    if plan.fits:
        assert plan.layout.bytes_of(length) <= plan.kv_bytes
        assert plan.concurrency(length) >= 1
        taken = plan.weights_bytes + plan.activation_bytes + plan.non_torch_bytes + plan.kv_bytes
        assert taken <= plan.requested_bytes
    assert plan.reason


def test_the_checkpoint_may_ask_for_a_smaller_cache() -> None:
    asks = msgspec.structs.replace(LLAMA, kv_dtype="fp8", kv_since=15)
    tokens = {v: memory.plan(asks, H100, version=v).kv_bytes_per_token for v in ("0.14.0", "0.15.0")}
    assert tokens == {"0.14.0": 131072, "0.15.0": 65536}
    assert memory.plan(asks, H100, kv_dtype="bfloat16").kv_bytes_per_token == 131072
    with pytest.raises(ValueError, match="NVFP4 KV cache, which is not modelled"):
        memory.plan(msgspec.structs.replace(asks, kv_dtype="nvfp4"), H100)
