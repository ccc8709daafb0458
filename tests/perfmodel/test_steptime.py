"""The step model: its shape, and how far it is from measured engines."""

import csv
import gzip
import statistics
from pathlib import Path

import pytest

from headway.perfmodel import catalogue
from headway.perfmodel.calibration import Coefficients, efficiency
from headway.perfmodel.flags import Flags
from headway.perfmodel.steptime import Batch, StepModel

SYSTEMS = {"h100_sxm": "h100-80gb", "h200_sxm": "h200-141gb", "b200_sxm": "b200-180gb"}


def model(name: str = "llama-3.1-8b", gpu: str = "h100-80gb", **options: object) -> StepModel:
    return StepModel(catalogue.model(name), catalogue.gpu(gpu), **options)  # type: ignore[arg-type]


def tpot(steps: StepModel, running: float, isl: float, osl: float, chunk: int) -> float:
    """Seconds per output token of a steady closed loop: decode steps, and the prefills that fall between them."""
    decode = steps.step_s(Batch(int(running), int(running * (isl + osl / 2)), sequences=int(running)))
    extra, done = 0.0, 0
    while done < isl:
        tokens = min(chunk, int(isl) - done)
        extra += steps.step_s(Batch(int(running), 0, tokens, tokens * (done + tokens / 2), int(running)))
        extra -= steps.step_s(Batch(int(running), 0, sequences=int(running)))
        done += tokens
    return decode + running / osl * extra


def test_an_empty_batch_costs_nothing() -> None:
    assert model().step_s(Batch(0, 0)) == 0.0


def test_every_part_of_a_batch_costs_time() -> None:
    steps = model(tp=2)
    base = steps.decode_s(8, 8000)
    assert steps.decode_s(9, 8000) > base
    assert steps.decode_s(8, 16000) > base
    assert steps.step_s(Batch(8, 8000, 2048, 2048 * 1024, 9)) > 2 * base
    assert steps.prefill_s(2048, before=30000) > steps.prefill_s(2048)


def test_better_hardware_smaller_weights_and_more_cards_are_faster() -> None:
    base = model().decode_s(16, 16000)
    assert model(gpu="h200-141gb").decode_s(16, 16000) < base < model(gpu="a100-80gb").decode_s(16, 16000)
    assert model(precision="fp8").decode_s(16, 16000) < base
    assert model("llama-3.1-70b", tp=8).decode_s(16, 16000) < model("llama-3.1-70b", tp=4).decode_s(16, 16000)


def test_eight_bit_weights_prefill_no_faster_where_the_card_has_no_such_type() -> None:
    assert model(gpu="a100-80gb", precision="fp8").prefill_s(8192) > model(gpu="a100-80gb").prefill_s(8192)
    assert model(precision="fp8").prefill_s(8192) < 0.8 * model().prefill_s(8192)


def test_a_prompt_beyond_the_largest_cuda_graph_pays_for_launching_its_kernels() -> None:
    steps = model()
    size = steps.coefficients.graph_tokens
    within, beyond = (
        steps.prefill_s(size) - steps.prefill_s(size - 1),
        steps.prefill_s(size + 1) - steps.prefill_s(size),
    )
    assert beyond - within > 20 * steps.coefficients.piecewise_layer_s


def test_what_an_engine_was_started_with_is_felt() -> None:
    plain, larger = model(), model(flags=Flags(graph_tokens=2048))
    assert larger.prefill_s(1024) < plain.prefill_s(1024)
    assert larger.prefill_s(4096) == plain.prefill_s(4096)
    waiting = model(flags=Flags(asynchronous=False))
    c = Coefficients()
    assert waiting.decode_s(64, 0) - plain.decode_s(64, 0) == pytest.approx(c.lag_s + 64 * c.lag_sequence_s)


def test_whole_experts_on_every_rank_leave_one_rank_with_more_to_do() -> None:
    split, whole = (
        model("qwen3-30b-a3b", tp=4, flags=Flags(expert_parallel=parallel)).decode_s(16, 0)
        for parallel in (False, True)
    )
    assert split < whole < 1.5 * split
    alone = [
        model("qwen3-30b-a3b", flags=Flags(expert_parallel=parallel)).decode_s(16, 0) for parallel in (False, True)
    ]
    assert alone[0] == alone[1]


def test_routers_in_32_bits_cost_time_unless_tensor_cores_may_help() -> None:
    slow, fast = (
        model("MiniMaxAI/MiniMax-M2.5", "b200-180gb", precision="fp8", tp=4, flags=Flags(tensor_routers=helped))
        for helped in (False, True)
    )
    per_token = (slow.prefill_s(8192) - fast.prefill_s(8192)) / 8192
    assert 1e-6 < per_token < 4e-6


def test_packed_experts_are_read_no_faster_on_a_card_with_faster_memory() -> None:
    """gpt-oss-120b in 4 bits takes as long on an H100 as on an H200, which has 1.4 times its bandwidth."""
    h100, h200 = (model("openai/gpt-oss-120b", gpu, precision="mxfp4", tp=2) for gpu in ("h100", "h200"))
    assert 1.0 < h100.decode_s(64, 0) / h200.decode_s(64, 0) < 1.25


def test_a_cache_in_8_bits_is_read_faster_but_not_twice_as_fast() -> None:
    wide, narrow = model().kv_s_per_token, model(kv_dtype="fp8").kv_s_per_token
    assert 0.5 < narrow / wide < 0.8


def test_blackwell_in_a_workstation_is_not_a_data_centre_s() -> None:
    cards = [efficiency(catalogue.gpu(name)) for name in ("b200-180gb", "b300-288gb", "rtxpro6000-96gb")]
    assert cards[0] != cards[1] != cards[2] != cards[0]
    assert cards[1].eager < cards[0].eager


def test_geforce_cards_pay_no_error_correction() -> None:
    assert efficiency(catalogue.gpu("rtx4090")).weights > efficiency(catalogue.gpu("l40s")).weights


def test_popular_experts_are_hit_again_and_again() -> None:
    """With equal popularity 64 tokens hit nearly all of 128 experts; real routers have favourites."""
    even, skewed = (
        model("qwen3-30b-a3b", coefficients=Coefficients(expert_skew=skew)).decode_s(32, 0) for skew in (0.0, 1.0)
    )
    assert skewed < even


def test_ranks_that_share_experts_read_fewer_each() -> None:
    alone, shared_experts = (model("qwen3-30b-a3b", data_parallel=ranks).decode_s(64, 0) for ranks in (1, 2))
    assert shared_experts < alone


def test_a_step_is_affine_in_the_context_of_those_that_decode() -> None:
    for name in ("llama-3.1-8b", "openai/gpt-oss-120b", "google/gemma-3-27b-it"):
        steps = model(name, tp=2)
        for fill in (0, 500):
            times = [steps.step_s(Batch(10, context, fill, fill * 900.0, 11)) for context in (0, 10_000, 50_000)]
            assert (times[1] - times[0]) / 10_000 == pytest.approx((times[2] - times[1]) / 40_000, rel=1e-6)


def test_times_go_on_beyond_the_tables() -> None:
    steps = model()
    assert steps.prefill_s(20_000) > steps.prefill_s(16_384)
    assert steps.decode_s(3000, 0) > steps.decode_s(2048, 0)


def test_a_mixture_of_experts_reads_more_of_them_the_more_tokens_there_are() -> None:
    """128 experts, 8 per token: 1 token reads 8, 64 tokens read nearly all."""
    sparse, dense = model("qwen3-30b-a3b"), model("qwen3-32b")
    few, many = sparse.decode_s(1, 0), sparse.decode_s(64, 0)
    assert many > 2 * few
    assert dense.decode_s(64, 0) < 1.2 * dense.decode_s(1, 0)


def test_an_unknown_precision_is_refused() -> None:
    with pytest.raises(catalogue.UnknownName, match="int3"):
        model(precision="int3")


def test_features_are_priors_for_the_same_steps() -> None:
    steps = model()
    features = steps.features()
    learned = features["step_base_s"] + 64 * features["step_per_request_s"] + 64_000 * features["step_per_token_s"]
    assert learned == pytest.approx(steps.decode_s(64, 64_000), rel=0.01)
    assert 20_000 < features["prefill_tokens_per_s"] < 60_000


def test_within_a_tenth_of_measured_vllm_in_the_median(shared: Path) -> None:
    """The Llama-3.1-70B and Qwen3-32B rows of the AIConfigurator silicon sample, none of which was fitted."""
    errors = []
    with gzip.open(shared / "profiles" / "aiconfigurator" / "silicon_sample.csv.gz", "rt") as lines:
        for row in csv.DictReader(lines):
            if (row["backend"], row["mode"]) != ("vllm", "agg") or row["system"] not in SYSTEMS:
                continue
            if row["model_path"] not in {"meta-llama/Llama-3.1-70B", "Qwen/Qwen3-32B"} or row["precision"] == "fp4":
                continue
            steps = model(
                row["model_path"],
                SYSTEMS[row["system"]],
                precision=row["precision"] or "bfloat16",
                tp=int(row["tp_size"]),
            )
            told = tpot(steps, int(row["batch_size"]), int(row["isl"]), int(row["osl"]), 8192)
            errors.append(told / (float(row["silicon_tpot_ms"]) / 1e3) - 1)
    assert len(errors) > 200
    assert statistics.median(abs(error) for error in errors) < 0.10
    assert -0.10 < statistics.median(errors) < 0.10
