"""What a config.json leaves unsaid: the defaults of the class that reads it.

transformers writes only those fields of a nested part (`text_config`) that differ from the defaults of its class, so
that the files of Gemma 3, LLaVA or Qwen2-Audio lack sizes that every engine knows. The numbers are the defaults of
the configuration classes of transformers 5.24. A file that is not nested names all of its sizes, and nothing is
filled in there. Other spellings of a few families (DBRX, MPT, Qwen 1, Phi-3-small) are turned into the usual names.
"""

from collections.abc import Mapping
from typing import Any

USUAL = (
    "num_hidden_layers",
    "hidden_size",
    "intermediate_size",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "vocab_size",
    "max_position_embeddings",
)
"""Fields that nearly every config.json has: the columns of our tables."""

FIELDS = (*USUAL, "sliding_window")
"""Columns of DEFAULTS; "-": the class has no such default, and the reader's own rule holds."""

DEFAULTS = {
    "cohere": "40 8192 22528 64 - - 256000 8192 -",
    "cohere2": "40 8192 22528 64 - - 256000 8192 4096",
    "deepseek_v2": "32 4096 11008 32 - - 102400 2048 -",
    "deepseek_v3": "61 7168 18432 128 128 - 129280 4096 -",
    "ernie4_5": "18 1024 3072 16 2 128 103424 131072 -",
    "ernie4_5_moe": "28 2560 12288 20 4 - 103424 131072 -",
    "gemma": "28 3072 24576 16 16 256 256000 8192 -",
    "gemma2": "26 2304 9216 8 4 256 256000 8192 4096",
    "gemma3_text": "26 2304 9216 8 4 256 262208 131072 4096",
    "gemma3n_text": "35 2048 16384 8 2 256 262400 32768 512",
    "gemma4_text": "30 2304 9216 8 4 256 262144 131072 512",
    "glm4": "40 4096 13696 32 2 128 151552 131072 -",
    "glm4v_text": "40 4096 13696 32 2 - 151552 32768 -",
    "glm4v_moe_text": "46 4096 10944 96 8 - 151424 65536 -",
    "granite": "32 4096 11008 32 - - 32000 2048 -",
    "lfm2": "32 2560 12288 32 8 - 65536 128000 -",
    "llama": "32 4096 11008 32 - - 32000 2048 -",
    "llama4_text": "48 5120 8192 40 8 128 202048 131072 -",
    "ministral3": "34 4096 14336 32 8 128 131072 262144 -",
    "mistral": "32 4096 14336 32 8 - 32000 131072 4096",
    "mixtral": "32 4096 14336 32 8 - 32000 131072 -",
    "olmo2": "32 4096 11008 32 - - 50304 2048 -",
    "phi": "24 2048 8192 32 - - 51200 2048 -",
    "phi3": "32 3072 8192 32 - - 32064 4096 -",
    "qwen2": "32 4096 22016 32 32 - 151936 32768 -",
    "qwen2_5_omni_text": "28 3584 18944 28 4 - 152064 32768 -",
    "qwen2_5_vl_text": "80 8192 29568 64 8 - 152064 32768 -",
    "qwen2_moe": "24 2048 5632 16 16 - 151936 32768 -",
    "qwen2_vl_text": "80 8192 29568 64 8 - 152064 32768 -",
    "qwen3": "32 4096 22016 32 32 128 151936 32768 -",
    "qwen3_moe": "24 2048 6144 32 4 - 151936 32768 -",
    "qwen3_next": "48 2048 5632 16 2 256 151936 32768 -",
    "qwen3_5_text": "32 4096 12288 16 4 256 248320 32768 -",
    "qwen3_5_moe_text": "40 2048 - 16 2 256 248320 32768 -",
    "qwen3_vl_text": "32 4096 22016 32 32 128 151936 128000 -",
    "qwen3_vl_moe_text": "24 2048 5632 16 16 - 151936 128000 -",
    "smollm3": "36 2048 11008 16 4 - 128256 32768 -",
    "starcoder2": "30 3072 12288 24 2 - 49152 4096 -",
}
"""By model_type of the text part."""

DELTA = {
    "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 32,
}
LATENT = {"kv_lora_rank": 512, "q_lora_rank": 1536, "qk_rope_head_dim": 64, "qk_nope_head_dim": 128, "v_head_dim": 128}
PER_LAYER = {"vocab_size_per_layer_input": 262144, "hidden_size_per_layer_input": 256}
MORE: dict[str, dict[str, int]] = {
    "deepseek_v2": LATENT | {"n_routed_experts": 64, "n_shared_experts": 2, "moe_intermediate_size": 1407},
    "deepseek_v3": LATENT
    | {"n_routed_experts": 256, "n_shared_experts": 1, "moe_intermediate_size": 2048}
    | {"num_experts_per_tok": 8, "first_k_dense_replace": 3},
    "ernie4_5_moe": {"moe_num_experts": 64, "moe_k": 6, "moe_intermediate_size": 1536, "moe_num_shared_experts": 2}
    | {"moe_layer_start_index": 1},
    "gemma3n_text": PER_LAYER | {"num_kv_shared_layers": 15},
    "gemma4_text": PER_LAYER,
    "glm4v_moe_text": {"n_routed_experts": 128, "num_experts_per_tok": 8, "moe_intermediate_size": 1408}
    | {"n_shared_experts": 1, "first_k_dense_replace": 1},
    "llama4_text": {"num_local_experts": 16, "num_experts_per_tok": 1, "intermediate_size_mlp": 16384}
    | {"interleave_moe_layer_step": 1, "attention_chunk_size": 8192},
    "mixtral": {"num_local_experts": 8, "num_experts_per_tok": 2},
    "qwen2_moe": {"num_experts": 60, "num_experts_per_tok": 4, "moe_intermediate_size": 1408}
    | {"shared_expert_intermediate_size": 5632},
    "qwen3_moe": {"num_experts": 128, "num_experts_per_tok": 8, "moe_intermediate_size": 768},
    "qwen3_next": DELTA
    | {"num_experts": 512, "num_experts_per_tok": 10, "moe_intermediate_size": 512}
    | {"shared_expert_intermediate_size": 512, "full_attention_interval": 4},
    "qwen3_5_text": DELTA | {"full_attention_interval": 4},
    "qwen3_5_moe_text": DELTA
    | {"num_experts": 256, "num_experts_per_tok": 8, "moe_intermediate_size": 512}
    | {"shared_expert_intermediate_size": 512, "full_attention_interval": 4},
    "qwen3_vl_moe_text": {"num_experts": 60, "num_experts_per_tok": 4, "moe_intermediate_size": 1408},
}
"""Of families with experts, latent attention or linear layers, beside DEFAULTS."""

WRAPPED = {
    "aya_vision": "cohere2",
    "cohere2_vision": "cohere2",
    "gemma3": "gemma3_text",
    "gemma3n": "gemma3n_text",
    "gemma4": "gemma4_text",
    "glm4v": "glm4v_text",
    "idefics2": "mistral",
    "idefics3": "llama",
    "internvl": "qwen2",
    "lfm2_vl": "lfm2",
    "llama4": "llama4_text",
    "llava": "llama",
    "llava_next": "llama",
    "llava_next_video": "llama",
    "llava_onevision": "qwen2",
    "mistral3": "mistral",
    "paligemma": "gemma",
    "qwen2_5_vl": "qwen2_5_vl_text",
    "qwen2_audio": "qwen2",
    "qwen2_vl": "qwen2_vl_text",
    "qwen3_vl": "qwen3_vl_text",
    "qwen3_vl_moe": "qwen3_vl_moe_text",
    "smolvlm": "llama",
    "video_llava": "llama",
    "vipllava": "llama",
    "voxtral": "llama",
}
"""What a model of several parts takes its text part for where that names no model_type."""

TOWERS: dict[str, dict[str, Any]] = {
    "pixtral": {
        "hidden_size": 1024,
        "intermediate_size": 4096,
        "num_hidden_layers": 24,
        "patch_size": 16,
        "image_size": 1024,
        "hidden_act": "silu",  # the class says gelu; what counts here is that its MLPs have gates
    },
    "clip_vision_model": {
        "hidden_size": 768,
        "intermediate_size": 3072,
        "num_hidden_layers": 12,
        "patch_size": 32,
        "image_size": 224,
    },
    "siglip_vision_model": {
        "hidden_size": 768,
        "intermediate_size": 3072,
        "num_hidden_layers": 12,
        "patch_size": 16,
        "image_size": 224,
    },
}
"""Of vision towers, by their model_type."""

OTHER_NAMES = {
    "block_ff_dim": "intermediate_size",  # LFM2
    "tie_embedding": "tie_word_embeddings",
    "ff_intermediate_size": "intermediate_size",  # Phi-3-small
    "ffn_dim": "intermediate_size",  # OPT
}


def completed(outer: Mapping[str, Any], text: Mapping[str, Any]) -> dict[str, Any]:
    """The text part `text` of the file `outer`, with the defaults of its class where it is nested, and usual names."""
    found = dict(text)
    if text is not outer:
        kind = str(text.get("model_type") or WRAPPED.get(str(outer.get("model_type")), ""))
        found = defaults(kind) | {"model_type": kind} | found
    return _usual(found)


def defaults(kind: str) -> dict[str, Any]:
    """Sizes that the class of this model_type starts from."""
    row = DEFAULTS.get(kind, "").split()
    return {name: int(value) for name, value in zip(FIELDS, row, strict=False) if value != "-"} | MORE.get(kind, {})


def tower(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """`config` with its vision_config completed."""
    part = config.get("vision_config")
    if not isinstance(part, Mapping):
        return config
    return {**config, "vision_config": TOWERS.get(str(part.get("model_type")), {}) | dict(part)}


def _usual(text: dict[str, Any]) -> dict[str, Any]:
    """Fields of a few families under the names of all others. Qwen 1 halves intermediate_size in its code: it is that
    of both input projections of an MLP together."""
    for theirs, ours in OTHER_NAMES.items():
        if text.get(theirs) is not None and text.get(ours) is None:
            text[ours] = text[theirs]
    attention = text.get("attn_config")
    if isinstance(attention, Mapping) and attention.get("kv_n_heads") is not None:
        text.setdefault("num_key_value_heads", attention["kv_n_heads"])
    if isinstance(attention, Mapping) and attention.get("attn_type") == "multiquery_attention":
        text.setdefault("num_key_value_heads", 1)
    if (
        text.get("model_type") == "mpt"
        and isinstance(text.get("expansion_ratio"), int)
        and isinstance(text.get("d_model"), int)
    ):
        text.setdefault("intermediate_size", text["expansion_ratio"] * text["d_model"])
    if text.get("model_type") == "qwen" and isinstance(text.get("intermediate_size"), int):
        text["intermediate_size"] //= 2
    if text.get("model_type") == "lfm2" and text.get("block_auto_adjust_ff_dim", True):
        _adjust(text)
    return text


def _adjust(text: dict[str, Any]) -> None:
    """LFM2 makes its MLPs two thirds as wide as the file says, in whole multiples."""
    width, factor = text.get("intermediate_size"), text.get("block_ffn_dim_multiplier", 1.0)
    unit = text.get("block_multiple_of", 256)
    if isinstance(width, int) and isinstance(factor, int | float) and isinstance(unit, int) and unit > 0:
        text["intermediate_size"] = unit * -(-int(factor * (2 * width // 3)) // unit)
