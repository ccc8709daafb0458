"""A config.json becomes an architecture, in the spellings of many families."""

from typing import Any

import pytest

from headway.perfmodel.hf_config import ConfigError, read

LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "num_hidden_layers": 32,
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}


def test_a_plain_config() -> None:
    model = read("x", LLAMA)
    assert (model.layers, model.head_dim, model.kv_heads) == (32, 128, 8)
    assert model.parameters / 1e9 == pytest.approx(8.03, rel=0.001)
    assert model.family == "llama"


def test_missing_fields_are_named() -> None:
    with pytest.raises(ConfigError, match="no num_hidden_layers or n_layer"):
        read("x", {"hidden_size": 3})
    with pytest.raises(ConfigError, match="hidden_size is 'wide', not a whole number"):
        read("x", LLAMA | {"hidden_size": "wide"})


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"is_encoder_decoder": True}, "encoder-decoder models are not modelled"),
        ({"model_type": "mamba2"}, "model_type mamba2: models without attention are not modelled"),
        ({"mamba_d_ssm": 1024}, "attention and Mamba side by side"),
        ({"zero_expert_num": 256}, "layers with two attentions"),
        ({"layer_types": ["compressed_sparse_attention"] * 32}, "layers of the kind compressed_sparse_attention"),
        ({"layer_types": ["linear_attention"] * 32}, "names linear layers, but not their sizes"),
        ({"cross_attention_layers": [3, 8]}, "cross-attention layers"),
        ({"compress_ratios": [0, 4]}, "compressed caches"),
        ({"attn_layer_period": 8, "model_type": "jamba", "mamba_d_conv": 4}, "names linear layers"),
        ({"num_experts": 8, "moe_layer_freq": "often"}, "invalid literal"),
        ({"linear_num_value_heads": 4, "layer_types": ["linear_attention"] * 32}, "no linear_num_key_heads"),
        ({"num_attention_heads": "many"}, "num_attention_heads is 'many'"),
    ],
)
def test_what_cannot_be_read_is_refused(more: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        read("x", LLAMA | more)


def test_families_leave_things_unsaid() -> None:
    no_tie = {key: value for key, value in LLAMA.items() if key != "tie_word_embeddings"}
    assert read("x", no_tie | {"model_type": "gemma2"}).tied
    assert not read("x", no_tie).tied
    assert not read("x", no_tie | {"model_type": "starcoder2"}).gated
    assert read("x", LLAMA | {"model_type": "phi3"}).gated
    assert read("x", LLAMA | {"model_type": "gemma"}).head_dim == 256


def test_old_names_and_multi_query() -> None:
    old = {"model_type": "gpt_bigcode", "n_layer": 2, "n_embd": 64, "n_head": 4, "vocab_size": 10, "multi_query": True}
    model = read("x", old | {"n_positions": 99})
    assert (model.layers, model.hidden, model.kv_heads, model.intermediate) == (2, 64, 1, 256)
    assert model.max_position == 99
    falcon = {
        "model_type": "falcon",
        "num_hidden_layers": 2,
        "hidden_size": 64,
        "num_attention_heads": 4,
        "vocab_size": 9,
    }
    assert read("x", falcon).kv_heads == 1
    assert read("x", falcon | {"new_decoder_architecture": True, "num_kv_heads": 2}).kv_heads == 2


def test_text_models_are_found_inside_multimodal_files() -> None:
    vision = {
        "hidden_size": 1152,
        "num_hidden_layers": 27,
        "intermediate_size": 4304,
        "patch_size": 14,
        "image_size": 896,
    }
    model = read(
        "x", {"model_type": "gemma3", "text_config": LLAMA | {"model_type": "gemma3_text"}, "vision_config": vision}
    )
    assert model.hidden == 4096
    assert model.vision_parameters / 1e6 == pytest.approx(417, rel=0.02)


def test_experts_latents_and_quantisation_are_read() -> None:
    deepseek = LLAMA | {
        "n_routed_experts": 64,
        "num_experts_per_tok": 6,
        "moe_intermediate_size": 1408,
        "n_shared_experts": 2,
        "first_k_dense_replace": 1,
        "kv_lora_rank": 512,
        "qk_rope_head_dim": 64,
        "qk_nope_head_dim": 128,
        "v_head_dim": 128,
        "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]},
    }
    model = read("x", deepseek)
    assert model.experts
    assert (model.experts.count, model.experts.shared) == (64, 2816)
    assert model.latent
    assert model.latent.width == 576
    assert model.mlp_letters == "d" + "m" * 31
    assert model.quantisation == "fp8_block"


def test_gemma_4_gives_full_layers_a_shape_of_their_own() -> None:
    text = LLAMA | {
        "model_type": "gemma4_text",
        "head_dim": 256,
        "num_key_value_heads": 16,
        "global_head_dim": 512,
        "num_global_key_value_heads": 4,
        "sliding_window": 1024,
        "layer_types": (["sliding_attention"] * 3 + ["full_attention"]) * 8,
        "attention_k_eq_v": True,
    }
    model = read("x", text)
    assert model.heads_of("f") == (4, 512)
    assert model.heads_of("w") == (16, 256)
    assert model.value_is_key
    assert model.window_layers == 24


def test_nemotron_h_as_newer_files_write_it() -> None:
    text = {name: value for name, value in LLAMA.items() if name != "num_hidden_layers"} | {
        "model_type": "nemotron_h",
        "layers_block_type": ["linear_attention", "moe", "full_attention", "mlp"],
        "mamba_num_heads": 64,
        "n_routed_experts": 8,
        "moe_intermediate_size": 64,
    }
    model = read("x", text)
    assert (model.layers, model.mixers, model.mlps) == (4, "l-f-", "-m-d")


def test_kimi_linear_as_transformers_writes_it() -> None:
    text = LLAMA | {
        "model_type": "kimi_linear",
        "layer_types": (["linear_attention"] * 3 + ["full_attention"]) * 8,
        "mlp_layer_types": ["dense"] + ["sparse"] * 31,
        "linear_num_heads": 32,
        "linear_head_dim": 128,
        "num_experts": 4,
        "moe_intermediate_size": 64,
    }
    model = read("x", text)
    assert model.mlps == "d" + "m" * 31
    assert model.linear
    assert model.linear.state == 32 * 128 * 128


def test_bamba_names_its_attention_layers() -> None:
    model = read("x", LLAMA | {"model_type": "bamba", "attn_layer_indices": [9, 18, 27], "mamba_n_heads": 128})
    assert [n for n, letter in enumerate(model.mixers) if letter == "f"] == [9, 18, 27]


def test_what_a_nested_file_spares_is_seen() -> None:
    said = {"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": ["re:.*self_attn.*"]}
    model = read("x", {"model_type": "y", "text_config": LLAMA | {"quantization_config": said}})
    assert model.quantisation == "nvfp4"
    assert "qkv" in model.kept
