"""A config.json becomes an architecture, in the spellings of many families."""

import json
from typing import Any

import pytest

from headway.perfmodel import catalogue
from headway.perfmodel.hf_config import ConfigError, decode, read
from headway.perfmodel.hf_layers import mixers
from headway.perfmodel.kv import kv_bytes_per_token

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


HUNYUAN = {
    "model_type": "hunyuan_v1_moe",
    "attention_head_dim": 128,
    "hidden_size": 4096,
    "intermediate_size": 3072,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "num_hidden_layers": 32,
    "vocab_size": 128167,
    "max_position_embeddings": 32768,
    "num_experts": 64,
    "moe_topk": [8] * 32,
    "moe_intermediate_size": [3072] * 32,
    "num_shared_expert": [1] * 32,
    "moe_layer_num_skipped": 0,
    "use_cla": False,
    "tie_word_embeddings": True,
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
        ({"num_experts": 8, "moe_layer_freq": "often"}, "moe_layer_freq is 'often', not a whole number"),
        ({"linear_num_value_heads": 4, "layer_types": ["linear_attention"] * 32}, "no linear_num_key_heads"),
        ({"num_attention_heads": "many"}, "num_attention_heads is 'many'"),
        ({"model_type": "bert"}, "bert: an encoder"),
        ({"model_type": "xlm-roberta"}, "xlm-roberta: an encoder"),
        ({"model_type": "t5"}, "t5: encoder-decoder models"),
        ({"use_cla": True}, "caches that layers share"),
        ({"num_query_heads": [12, 16]}, "layers of different sizes"),
        ({"quantization_config": {"quant_method": "zzz"}}, "quant_method 'zzz' is not known"),
        ({"hybrid_override_pattern": "M*-X"}, "hybrid_override_pattern has 'X'"),
        ({"layer_types": ["full_attention"] * 3}, "kinds of 3 layers, and has 32"),
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
    assert mixers("bamba", {"attn_layer_indices": None}, 4) == "llll"
    model = read("x", LLAMA | {"model_type": "bamba", "attn_layer_indices": [9, 18, 27], "mamba_n_heads": 128})
    assert [n for n, letter in enumerate(model.mixers) if letter == "f"] == [9, 18, 27]


def test_what_a_nested_file_spares_is_seen() -> None:
    said = {"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": ["re:.*self_attn.*"]}
    model = read("x", {"model_type": "y", "text_config": LLAMA | {"quantization_config": said}})
    assert model.quantisation == "nvfp4"
    assert "qkv" in model.kept


def nested(outer: str, vision: dict[str, Any] | None = None, **text: Any) -> dict[str, Any]:
    found: dict[str, Any] = {"model_type": outer, "text_config": text}
    return found | ({"vision_config": vision} if vision else {})


CLIP = {"hidden_size": 1024, "image_size": 336, "intermediate_size": 4096, "num_hidden_layers": 24, "patch_size": 14}


@pytest.mark.parametrize(
    ("config", "gigabytes", "kv_bytes"),
    [
        (
            nested("gemma3", model_type="gemma3_text", hidden_size=2560, intermediate_size=10240, num_hidden_layers=34),
            7.76,
            139264,
        ),
        (nested("llava", CLIP, model_type="llama", vocab_size=32064, max_position_embeddings=4096), 14.13, 524288),
        (nested("llava", CLIP, vocab_size=32064), 14.13, 524288),  # not even a model_type
        (nested("llava_next", CLIP, model_type="mistral", vocab_size=32064, sliding_window=None), 15.14, 131072),
        (nested("qwen2_audio", model_type="qwen2", intermediate_size=11008, vocab_size=156032), 15.51, 524288),
        (
            nested(
                "llava",
                {"model_type": "pixtral", "image_size": 1024, "patch_size": 16, "hidden_act": "silu"},
                model_type="mistral",
                head_dim=128,
                hidden_size=5120,
                num_hidden_layers=40,
                vocab_size=131072,
                sliding_window=None,
            ),
            25.6,
            163840,
        ),
    ],
)
def test_nested_files_leave_out_what_their_class_knows(config: dict[str, Any], gigabytes: float, kv_bytes: int) -> None:
    model = read("x", config)
    assert 2 * model.parameters / 1e9 == pytest.approx(gigabytes, rel=0.01)
    assert kv_bytes_per_token(model) == kv_bytes


def test_files_that_are_not_nested_name_their_sizes() -> None:
    with pytest.raises(ConfigError, match="no num_attention_heads"):
        read("x", {name: value for name, value in LLAMA.items() if name != "num_attention_heads"})


@pytest.mark.parametrize(
    ("config", "gigabytes", "kv_bytes"),
    [
        (
            {"model_type": "falcon", "hidden_size": 8192, "num_hidden_layers": 60, "num_attention_heads": 128}
            | {"num_kv_heads": 8, "multi_query": True, "new_decoder_architecture": True, "vocab_size": 65024},
            82.6,
            122_880,
        ),
        (
            {"model_type": "dbrx", "d_model": 6144, "n_heads": 48, "n_layers": 40, "vocab_size": 100352}
            | {"max_seq_len": 32768, "attn_config": {"kv_n_heads": 8}, "tie_word_embeddings": False}
            | {"ffn_config": {"ffn_hidden_size": 10752, "moe_num_experts": 16, "moe_top_k": 4}},
            263.2,
            163_840,
        ),
        (
            {"model_type": "mpt", "d_model": 4096, "n_heads": 32, "n_layers": 32, "vocab_size": 50432}
            | {"expansion_ratio": 4, "attn_config": {"attn_type": "multiquery_attention"}},
            11.22,
            16_384,
        ),
        (
            {"model_type": "qwen", "hidden_size": 4096, "intermediate_size": 22016, "num_hidden_layers": 32}
            | {"num_attention_heads": 32, "vocab_size": 151936, "tie_word_embeddings": False},
            15.44,
            524_288,
        ),
        (
            {"model_type": "lfm2", "hidden_size": 2048, "block_ff_dim": 12288, "num_hidden_layers": 16}
            | {"conv_L_cache": 3, "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 65536}
            | {"tie_embedding": True, "full_attn_idxs": [2, 5, 8, 10, 12, 14], "max_position_embeddings": 128000}
            | {"block_auto_adjust_ff_dim": True, "block_ffn_dim_multiplier": 1.0, "block_multiple_of": 256},
            2.34,
            12_288,
        ),
        (
            {"model_type": "lfm2_moe", "hidden_size": 2048, "intermediate_size": 7168, "moe_intermediate_size": 1792}
            | {"num_hidden_layers": 24, "num_experts": 32, "num_experts_per_tok": 4, "num_dense_layers": 2}
            | {"num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 65536, "conv_L_cache": 3}
            | {"full_attn_idxs": [2, 6, 10, 14, 18, 21]},
            16.68,
            12_288,
        ),
        (
            {"model_type": "apertus", "hidden_size": 4096, "intermediate_size": 21504, "num_hidden_layers": 32}
            | {"num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 131072, "hidden_act": "xielu"},
            16.11,
            131_072,
        ),
        (
            {"model_type": "phi3small", "hidden_size": 4096, "ff_intermediate_size": 14336, "num_hidden_layers": 32}
            | {"num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 100352},
            14.78,
            131_072,
        ),
    ],
)
def test_families_with_words_of_their_own(config: dict[str, Any], gigabytes: float, kv_bytes: int) -> None:
    model = read("x", config)
    assert 2 * model.parameters / 1e9 == pytest.approx(gigabytes, rel=0.005)
    assert kv_bytes_per_token(model) == kv_bytes


def test_one_value_per_layer_is_read_where_all_are_the_same() -> None:
    """As the file of Hunyuan-A13B has them."""
    found = read("x", HUNYUAN)
    known = catalogue.model("hunyuan-a13b")
    assert found.experts == known.experts
    assert found.parameters == known.parameters
    assert kv_bytes_per_token(found) == 131_072
    with pytest.raises(ConfigError, match="moe_intermediate_size differs from layer to layer"):
        read("x", HUNYUAN | {"moe_intermediate_size": [3072, 1536] * 16})


@pytest.mark.parametrize("more", [{"num_local_experts": 1}, {"num_experts": 1, "num_experts_per_tok": 1}])
def test_a_single_expert_is_a_dense_mlp(more: dict[str, Any]) -> None:
    """Dense models of Hunyuan, and of Jamba, say so."""
    assert read("x", LLAMA | more).parameters == read("x", LLAMA).parameters


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (LLAMA | {"num_experts": 1, "moe_intermediate_size": 768}, "one expert per layer beside MLPs of another width"),
        (LLAMA | {"num_hidden_layers": 4, "hybrid_override_pattern": "*-E-"}, "but not more than one expert"),
    ],
)
def test_mlps_do_not_vanish(config: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        read("x", config)


@pytest.mark.parametrize(
    ("kind", "more", "gated"),
    [
        ("afmoe", {}, True),
        ("muse_glimmer_text", {"use_attn_output_gate": None}, True),
        ("muse_glimmer_text", {"use_attn_output_gate": False}, False),
        ("qwen3_next", {"attn_output_gate": False}, False),
        ("laguna", {"gating": True}, False),
        ("laguna", {"gating": "per-element"}, True),
    ],
)
def test_gates_of_queries(kind: str, more: dict[str, Any], gated: bool) -> None:
    assert read("x", LLAMA | {"model_type": kind} | more).query_gate is gated


def test_mlps_of_twice_the_width_are_counted() -> None:
    """Gemma-4-E2B has 20 such layers: 0.57 of its 5.1 billion parameters."""
    shape = {"model_type": "gemma4_text", "hidden_size": 1536, "intermediate_size": 6144, "num_hidden_layers": 35}
    shape |= {"num_attention_heads": 8, "num_key_value_heads": 1, "vocab_size": 262144, "num_kv_shared_layers": 20}
    shape |= {"max_position_embeddings": 131072}
    plain, double = (read("x", shape | {"use_double_wide_mlp": said}).parameters for said in (False, True))
    assert double - plain == 20 * 3 * 1536 * 6144


def test_widths_of_experts_and_of_what_comes_before_them() -> None:
    hunyuan = read("x", LLAMA | {"num_experts": 4, "num_experts_per_tok": 2, "expert_hidden_dim": 1536})
    assert hunyuan.experts
    assert (hunyuan.experts.intermediate, hunyuan.intermediate) == (1536, 14336)
    cohere = {"model_type": "cohere2_moe", "num_experts": 4, "prefix_dense_intermediate_size": 512}
    command = read("x", LLAMA | cohere)
    assert command.experts
    assert (command.experts.intermediate, command.intermediate) == (14336, 512)


def test_windows_of_mimo_are_listed() -> None:
    model = read("x", LLAMA | {"hybrid_layer_pattern": [0, 1, 1, 1] * 8, "sliding_window": 128})
    assert (model.full_layers, model.window_layers) == (8, 24)


def test_types_as_pytorch_prints_them_and_files_with_a_mark() -> None:
    assert read("x", LLAMA | {"torch_dtype": "torch.float16"}).dtype == "float16"
    assert decode(b"\xef\xbb\xbf" + json.dumps(LLAMA).encode()) == LLAMA
