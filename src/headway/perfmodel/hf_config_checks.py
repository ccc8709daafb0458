"""What sizes a config.json may name at all: checked once, before anything is computed from them.

Files come from strangers. A field out of its range is an error that names it, not a division by zero, a loop over a
thousand million layers, or a sum that looks right.
"""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from headway.perfmodel.architectures import Architecture
from headway.perfmodel.hf_layers import ConfigError

LAYERS, WIDTH, VOCABULARY, POSITIONS, MOST = 10_000, 1_000_000, 100_000_000, 1_000_000_000, 10**16
RANGES: tuple[tuple[int, int, tuple[str, ...]], ...] = (
    (1, LAYERS, ("num_hidden_layers", "n_layer", "n_layers", "num_layers")),
    (1, WIDTH, ("hidden_size", "n_embd", "d_model", "intermediate_size", "ffn_hidden_size", "moe_intermediate_size")),
    (1, WIDTH, ("num_attention_heads", "n_head", "n_heads", "kv_channels", "global_head_dim")),
    (1, WIDTH, ("num_key_value_heads", "num_kv_heads", "n_head_kv", "multi_query_group_num", "num_attention_groups")),
    (
        1,
        WIDTH,
        (
            "qk_nope_head_dim",
            "v_head_dim",
            "swa_head_dim",
            "swa_v_head_dim",
            "swa_num_attention_heads",
            "swa_num_key_value_heads",
            "mamba_n_heads",
        ),
    ),
    (
        0,
        WIDTH,
        ("head_dim", "kv_lora_rank", "q_lora_rank", "index_head_dim", "hidden_size_per_layer_input", "moe_latent_size"),
    ),
    (1, VOCABULARY, ("vocab_size", "padded_vocab_size")),
    (1, POSITIONS, ("max_position_embeddings", "n_positions", "seq_length", "max_sequence_length", "max_seq_len")),
    (1, POSITIONS, ("model_max_length", "original_max_position_embeddings")),
    (0, POSITIONS, ("sliding_window", "attention_chunk_size", "sliding_window_size", "vocab_size_per_layer_input")),
    (0, WIDTH, ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts", "num_moe_experts")),
    (0, WIDTH, ("num_experts_per_tok", "num_experts_per_token", "moe_top_k", "top_k_experts", "n_shared_experts")),
    (0, WIDTH, ("qk_rope_head_dim", "index_n_heads", "n_groups", "mamba_n_groups", "ssm_state_size", "conv_kernel")),
    (0, WIDTH, ("mamba_d_state", "mamba_d_head", "mamba_head_dim", "mamba_d_conv", "mamba_expand", "mamba_num_heads")),
    (0, WIDTH, ("linear_num_key_heads", "linear_num_value_heads", "linear_key_head_dim", "linear_value_head_dim")),
    (0, WIDTH, ("linear_conv_kernel_dim", "num_shared_experts", "num_shared_expert", "moe_num_shared_experts")),
    (
        0,
        WIDTH,
        (
            "shared_expert_intermediate_size",
            "share_expert_dim",
            "moe_topk",
            "moe_k",
            "conv_L_cache",
            "expert_hidden_dim",
        ),
    ),
    (1, LAYERS, ("decoder_sparse_step", "moe_layer_interval")),
    (0, LAYERS, ("moe_layer_start_index", "moe_layer_end_index")),
    (0, LAYERS, ("num_kv_shared_layers", "first_k_dense_replace", "num_dense_layers", "full_attention_interval")),
)
"""Least and greatest value, and the fields that it holds for; null and a field that is missing are no value."""

PER_LAYER = (
    *("intermediate_size", "num_key_value_heads", "num_attention_heads", "num_kv_heads", "moe_num_experts"),
    *("num_experts", "num_experts_per_tok", "moe_intermediate_size", "n_routed_experts", "moe_topk", "moe_k"),
    *("num_shared_expert", "num_shared_experts", "moe_num_shared_experts", "moe_top_k", "n_shared_experts"),
)
"""Fields that some families write as a list, one value per layer."""


def in_range(text: Mapping[str, Any]) -> None:
    """Raises ConfigError for the first field that is not a whole number within its range."""
    for low, high, names in RANGES:
        for name in names:
            value = text.get(name)
            many = name in PER_LAYER and isinstance(value, Sequence) and not isinstance(value, str)
            for one in itertools.islice(value, LAYERS) if many and value is not None else (value,):
                if one is not None:
                    _whole(name, one, low, high)


def _whole(name: str, value: Any, low: int, high: int) -> None:
    whole = isinstance(value, int | float) and not isinstance(value, bool) and value == value // 1
    if not whole:
        raise ConfigError(f"config.json: {name} is {value!r}, not a whole number")
    if not low <= value <= high:
        raise ConfigError(f"config.json: {name} is {value:,.0f}, it must be {low:,} to {high:,}")


def consistent(model: Architecture, named_head_dim: bool) -> Architecture:
    """`model`, if its sizes go together. Raises ConfigError."""
    if not named_head_dim and not model.latent and model.hidden % model.heads:
        raise ConfigError(
            f"config.json: hidden_size {model.hidden} is not a multiple of num_attention_heads {model.heads}, "
            "and head_dim is not named"
        )
    for letter in "fw":
        heads, kv_heads = model.queries_of(letter), model.heads_of(letter)[0]
        if not model.latent and heads % kv_heads:
            raise ConfigError(
                f"config.json: num_attention_heads {heads} is not a multiple of num_key_value_heads {kv_heads}"
            )
    pieces = [model.rope_elements, model.other_parameters, model.vision_parameters, model.layer_parameters]
    pieces += list(msgspec.structs.astuple(model.linear)) if model.linear else []
    pieces += list(msgspec.structs.astuple(model.latent)) if model.latent else []
    pieces += [int(piece) for piece in msgspec.structs.astuple(model.vision)] if model.vision else []
    if min(pieces) < 0 or max(pieces) > MOST:
        raise ConfigError(
            f"config.json makes no sense: its sizes come to {min(pieces):,} to {max(pieces):,} parameters"
        )
    if "m" in model.mlp_letters and not model.experts:
        raise ConfigError("config.json has layers with a mixture of experts, but not more than one expert")
    if model.experts and not 0 < model.experts.chosen <= model.experts.count:
        raise ConfigError(
            f"config.json: {model.experts.chosen} experts per token are chosen of {model.experts.count} experts"
        )
    return model
