"""Weights per GPU: against logs of loaded checkpoints, how they are shared, how the allocator rounds."""

import pytest

from headway.perfmodel import catalogue, memory, weights
from headway.perfmodel.gpus import GIB
from headway.perfmodel.quantisation import scheme
from headway.perfmodel.weights import MIB, Stage, allocated, stages, weights_bytes


@pytest.mark.parametrize(
    ("model", "tp", "logged"),
    [
        ("meta-llama/Llama-3.1-8B-Instruct", 1, 14.99),
        ("meta-llama/Llama-3.1-8B-Instruct", 2, 7.51),
        ("Qwen/Qwen2.5-7B-Instruct", 1, 14.25),
        ("moonshotai/Kimi-Dev-72B", 4, 34.01),
        ("google/gemma-3-4b-it", 1, 8.58),  # half a GiB of it rotary tables
        ("mistralai/Mixtral-8x7B-Instruct-v0.1", 2, 43.51),
        ("RedHatAI/Llama-3.3-70B-Instruct-FP8-dynamic", 2, 33.88),
        ("openai/gpt-oss-120b", 1, 64.38),
    ],
)
def test_logged_weights(model: str, tp: int, logged: float) -> None:
    assert memory.weights_bytes(catalogue.model(model), tp=tp) / GIB == pytest.approx(logged, rel=0.0035)


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
