"""Weights per GPU: against logs of loaded checkpoints, how they are shared, how the allocator rounds."""

import pytest

from headway.perfmodel import catalogue, memory, weights
from headway.perfmodel.gpus import GIB
from headway.perfmodel.quantisation import scheme
from headway.perfmodel.weights import MIB, Stage, allocated, stages, weights_bytes


@pytest.mark.parametrize(
    ("model", "version", "tp", "logged"),
    [
        ("meta-llama/Llama-3.1-8B-Instruct", "0.19.0", 1, 14.99),
        ("meta-llama/Llama-3.1-8B-Instruct", "0.19.0", 2, 7.51),
        ("Qwen/Qwen2.5-7B-Instruct", "0.19.0", 1, 14.25),
        ("Qwen/Qwen2.5-7B-Instruct", "0.22.0", 1, 14.29),  # 0.04 GiB more than before, we do not know why
        ("Qwen/Qwen3-8B", "0.19.0", 4, 3.82),
        ("moonshotai/Kimi-Dev-72B", "0.19.0", 4, 34.01),
        ("google/gemma-3-4b-it", "0.19.0", 1, 8.58),  # half a GiB of it rotary tables
        ("mistralai/Mixtral-8x7B-Instruct-v0.1", "0.19.0", 2, 43.51),
        ("mistralai/Mistral-Small-3.1-24B-Instruct-2503", "0.19.0", 2, 22.80),  # a tower for each GPU
        ("mistralai/Mistral-Small-3.1-24B-Instruct-2503", "0.19.0", 4, 11.86),
        ("RedHatAI/Llama-3.3-70B-Instruct-FP8-dynamic", "0.19.0", 2, 33.88),
        ("LGAI-EXAONE/EXAONE-4.0-32B-FP8", "0.11.0", 1, 30.99),
        ("openai/gpt-oss-120b", "0.15.0", 1, 64.38),
        ("deepseek-ai/DeepSeek-V2-Lite-Chat", "0.19.0", 1, 29.43),  # with a workspace
        ("Qwen/Qwen3-Next-80B-A3B-Instruct", "0.10.2", 2, 74.28),
        ("Qwen/Qwen3-VL-8B-Instruct", "0.19.0", 1, 16.78),  # rotary tables for videos, and hidden states of its stacks
        ("Qwen/Qwen3.5-9B", "0.19.0", 1, 17.66),
    ],
)
def test_logged_weights(model: str, version: str, tp: int, logged: float) -> None:
    plan = memory.plan(catalogue.model(model), catalogue.gpu("h100"), tp=tp, version=version)
    assert plan.weights_bytes / GIB == pytest.approx(logged, rel=0.004)


def test_the_allocator_rounds_large_tensors_to_segments() -> None:
    assert allocated(1) == 512
    assert allocated(9.5 * MIB) == 9.5 * MIB
    assert allocated(31.5 * MIB) == 32 * MIB  # half a MiB is not split off
    assert allocated(24.5 * MIB) == 24.5 * MIB  # one and a half is
    assert allocated(32 * MIB) == 32 * MIB


def test_quantised_weights_keep_16_bit_tables() -> None:
    llama = catalogue.model("llama-3.1-8b")
    assert memory.weights_bytes(llama, "int4") / GIB == pytest.approx(5.6, rel=0.05)  # AWQ checkpoints: 5.3-5.7 GiB


def test_kv_heads_are_copied_beyond_their_number() -> None:
    qwen, plain = catalogue.model("qwen2.5-0.5b"), scheme("bfloat16")  # 14 heads, 2 of them for keys and values
    assert plain
    two, seven = (weights_bytes(qwen, plain, tp) for tp in (2, 7))
    assert seven > two * 2 / 7


def test_latent_attention_keeps_a_wide_copy_beside_fp8() -> None:
    model = catalogue.model("deepseek-v2-lite")
    wide, narrow = (memory.weights_bytes(model, name) for name in ("bfloat16", "fp8"))
    up = 512 * 16 * 256 * 27
    assert narrow > wide / 2 + up


def test_mxfp4_experts_are_padded_on_every_gpu() -> None:
    model = catalogue.model("gpt-oss-120b")
    one, four = (memory.weights_bytes(model, tp=tp) for tp in (1, 4))
    assert four / one == pytest.approx(768 / 720 / 4, rel=0.01)  # 720 of the experts' 2880 become 768


def test_stages_are_cut_as_vllm_cuts_them() -> None:
    assert [stage.end - stage.start for stage in stages(61, 4)] == [15, 15, 16, 15]
    assert [stage.end - stage.start for stage in stages(62, 4)] == [15, 16, 16, 15]
    assert [stage.end - stage.start for stage in stages(32, 1)] == [32]
    assert stages(8, 2)[0].first
    assert not stages(8, 2)[0].last


def test_tied_tables_are_held_twice_by_a_pipeline() -> None:
    tied, plain = catalogue.model("gemma-2-9b"), scheme("bfloat16")
    assert plain
    whole = weights.weights_bytes(tied, plain)
    halves = sum(weights.weights_bytes(tied, plain, 1, stage) for stage in stages(tied.layers, 2))
    assert halves - whole == pytest.approx(2 * tied.embedding_parameters, rel=0.01)
    middle = weights.weights_bytes(tied, plain, 1, Stage(10, 20, 1, 3))
    assert middle == pytest.approx(10 / 42 * 2 * tied.layer_parameters, rel=0.01)


def test_keys_that_are_values_are_loaded_as_both() -> None:
    part = next(part for part in catalogue.model("gemma-4-26b-a4b").mixer_parts("f") if part.name == "qkv")
    assert part.twice
    assert part.kv == 2816 * 2 * 512  # published once
