"""Which kind every layer is."""

from typing import Any

import pytest

from headway.perfmodel import catalogue
from headway.perfmodel.hf_layers import linear, mixers, mlps


@pytest.mark.parametrize(
    ("kind", "text", "letters"),
    [
        ("gemma2", {"sliding_window": 4096}, "wfwfwf"),
        ("gemma3_text", {"sliding_window": 512}, "wwwwwf"),
        ("mistral", {"sliding_window": 4096}, "wwwwww"),
        ("mistral", {"sliding_window": None}, "ffffff"),
        ("qwen2", {"sliding_window": 4096, "use_sliding_window": False}, "ffffff"),
        ("qwen2", {"sliding_window": 4096, "use_sliding_window": True, "max_window_layers": 4}, "ffffww"),
        ("exaone4", {"sliding_window": 4096, "sliding_window_pattern": "LLG"}, "wwfwwf"),
        ("cohere2", {"sliding_window": 4096, "sliding_window_pattern": 3}, "wwfwwf"),
        ("llama4_text", {"attention_chunk_size": 8192}, "wwwfww"),
        ("x", {"layer_types": ["linear_attention", "full_attention"] * 3}, "lflflf"),
        ("qwen3_next", {"full_attention_interval": 3}, "llfllf"),
        ("jamba", {"attn_layer_period": 3, "attn_layer_offset": 1}, "lflLfl".lower()),
        ("minimax", {"attn_type_list": [0, 0, 1, 0, 0, 1]}, "llfllf"),
        ("kimi_linear", {"linear_attn_config": {"full_attn_layers": [2, 6]}}, "lflllf"),
        ("nemotron_h", {"hybrid_override_pattern": "M-M*EM"}, "l-lf-l"),
        ("nemotron_h", {"layers_block_type": ["mamba", "mlp", "mamba", "attention", "moe", "mamba"]}, "l-lf-l"),
    ],
)
def test_mixers(kind: str, text: dict[str, Any], letters: str) -> None:
    assert mixers(kind, text, 6) == letters


@pytest.mark.parametrize(
    ("text", "letters"),
    [
        ({}, "dddddd"),
        ({"num_experts": 8}, "mmmmmm"),
        ({"num_experts": 8, "decoder_sparse_step": 2}, "dmdmdm"),
        ({"num_experts": 8, "mlp_only_layers": [0, 5]}, "dmmmmd"),
        ({"n_routed_experts": 8, "first_k_dense_replace": 2}, "ddmmmm"),
        ({"num_experts": 8, "moe_layer_freq": [0, 1, 1, 0, 1, 1]}, "dmmdmm"),
        ({"num_local_experts": 8, "interleave_moe_layer_step": 3}, "ddmddm"),
        ({"num_experts": 8, "expert_layer_period": 2, "expert_layer_offset": 1}, "dmdmdm"),
        ({"num_experts": None, "enable_moe_block": False}, "dddddd"),
        ({"num_experts": 1}, "dddddd"),
        ({"n_routed_experts": 8, "moe_layer_freq": 2}, "mdmdmd"),
        ({"moe_num_experts": 8, "moe_layer_interval": 2}, "dmdmdm"),
        ({"moe_num_experts": 8, "moe_layer_start_index": 1, "moe_layer_end_index": 3}, "dmmmdd"),
        ({"num_experts": 1, "expert_layer_period": 2}, "dddddd"),
        ({"hybrid_override_pattern": "M-M*EM"}, "-d--m-"),
    ],
)
def test_mlps(text: dict[str, Any], letters: str) -> None:
    assert mlps("x", text, 6) == letters


def test_ernie_may_leave_its_experts_unused() -> None:
    assert mlps("ernie4_5_moe", {"moe_num_experts": 8, "use_moe": False}, 2) == "dd"
    assert mlps("x", {"moe_num_experts": 8, "use_moe": False}, 2) == "mm"


def test_a_file_without_linear_layers_has_none() -> None:
    assert linear("llama", {}, 64) is None


@pytest.mark.parametrize(
    ("name", "megabytes"),
    [
        # 32 value heads x 128 x 128 in 16 bits, and 3 columns of 8192 for the convolution.
        ("qwen3-next-80b-a3b", (32 * 128 * 128 * 2 + 3 * 8192 * 2) / 1e6),
        # 128 heads x 80 x 128 in float32; 3 columns of 10240 + 2 groups of states.
        ("nemotron-nano-12b-v2", (128 * 80 * 128 * 4 + 3 * (10240 + 2 * 8 * 128) * 2) / 1e6),
        ("jamba-1.5-mini", (8192 * 16 * 2 + 3 * 8192 * 2) / 1e6),
        ("kimi-linear-48b-a3b", (4096 * 128 * 4 + 3 * 3 * 4096 * 2) / 1e6),
        ("minimax-m1", 64 * 128 * 128 * 4 / 1e6),
    ],
)
def test_states_have_the_size_of_their_papers(name: str, megabytes: float) -> None:
    from headway.perfmodel.kv import state_bytes

    assert state_bytes(catalogue.model(name)) / 1e6 == pytest.approx(megabytes, rel=1e-6)
