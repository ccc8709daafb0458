"""A Hugging Face config.json, already parsed, as an Architecture.

The names of fields are those that transformers gives them; where families differ, all spellings are tried. What a
family leaves unsaid in its file (tied embeddings, which layers slide, MLPs without a gate) is written here once, from
its published modelling code. Opening files is the caller's work.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from headway.perfmodel import hf_rope as rope
from headway.perfmodel.architectures import Architecture, Experts, Latent, Linear
from headway.perfmodel.hf_config_checks import consistent, in_range
from headway.perfmodel.hf_config_defaults import completed, tower
from headway.perfmodel.hf_config_length import NAMES, UNSTATED, context
from headway.perfmodel.hf_heads import HEAD_DIM, shapes, value_dim
from headway.perfmodel.hf_layers import ConfigError, experts_of, linear, mixers, mlps, whole
from headway.perfmodel.hf_refused import refuse
from headway.perfmodel.hf_vision import vision
from headway.perfmodel.quantisation import UnknownFormat, kv_of_config, of_config, spared

__all__ = ["ConfigError", "read"]

TIED_BY_DEFAULT = (
    "gemma",
    "falcon",
    "cohere",
    "gpt2",
    "bloom",
    "mpt",
    "gpt_bigcode",
    "starcoder2",
    "opt",
    "phi3small",
    "smollm3",
    "ernie4_5",
    "lfm2",
)
"""Families whose files leave tie_word_embeddings out because their class defaults to True."""

PLAIN_MLP = (
    "phi",
    "gpt2",
    "gpt_bigcode",
    "gpt_neox",
    "gptj",
    "falcon",
    "opt",
    "bloom",
    "mpt",
    "starcoder2",
    "nemotron",
    "apertus",
)
"""Families whose MLPs have two matrices (no gate); prefixes of model_type, see `_gated` for the exceptions."""

GATED_NONETHELESS = ("phi3", "phi4", "phimoe", "nemotron-nas", "falcon_mamba", "falcon_h1")

GATED_QUERIES = ("qwen3_next", "qwen3_5", "afmoe", "muse_glimmer")
"""Families that multiply what attention gives by a gate; prefixes of model_type."""

TEXT_PARTS = ("text_config", "llm_config", "language_config", "thinker_config")


def read(name: str, config: Mapping[str, Any], *aliases: str, whole_file: bool = True) -> Architecture:
    """The architecture of a config.json. Raises ConfigError where a needed field is missing or makes no sense, and for
    families whose memory follows other formulas. `whole_file`: nested parts leave out what is their class's default."""
    part = _text_of(config)
    refuse(config, part)
    text: Mapping[str, Any] = completed(config, part) if whole_file else part
    for checked in (text, config.get("vision_config")):
        if isinstance(checked, Mapping):
            in_range(checked)
    try:
        return _read(name, tower(config) if whole_file else config, text, aliases)
    except KeyError as error:
        raise ConfigError(f"config.json has no {error.args[0]}") from None
    except (TypeError, ZeroDivisionError, AttributeError, OverflowError) as error:
        raise ConfigError(f"config.json makes no sense: {error}") from None
    except UnknownFormat as error:
        raise ConfigError(f"config.json: {error}") from None


def decode(said: bytes) -> Any:
    """The JSON of a config.json, without the byte-order mark that some editors write. Raises ValueError."""
    return msgspec.json.decode(said.removeprefix(b"\xef\xbb\xbf"))


def _read(name: str, config: Mapping[str, Any], text: Mapping[str, Any], aliases: Sequence[str]) -> Architecture:
    kind = str(text.get("model_type", config.get("model_type", "")))
    layers = _layers(text)
    hidden = whole(text, "hidden_size", "n_embd", "d_model")
    lengths = context(kind, text)
    latent, letters, feeds = _latent(text), mixers(kind, text, layers), mlps(kind, text, layers)
    full, window = shapes(kind, text, hidden, letters)
    read_kv, since = kv_of_config(config)
    model = Architecture(
        id=name,
        layers=layers,
        hidden=hidden,
        intermediate=_intermediate(kind, text, hidden),
        heads=full.queries,
        kv_heads=full.kv,
        head_dim=full.dim,
        vocab=whole(text, "vocab_size", "padded_vocab_size"),
        max_position=lengths.longest,
        tied=_tied(kind, config, text),
        mixers=letters if set(letters) != {"f"} else "",
        mlps=_compact(feeds),
        window=_window(text, letters),
        window_heads=window.queries if window.queries != full.queries else 0,
        window_kv_heads=window.kv if window.kv != full.kv else 0,
        window_head_dim=window.dim if window.dim != full.dim else 0,
        value_dim=value_dim(kind, text),
        chunked="attention_chunk_size" in text,
        gated=_gated(kind, text),
        query_gate=_query_gate(kind, text),
        shared_kv_layers=int(text.get("num_kv_shared_layers") or 0),
        value_is_key=bool(text.get("attention_k_eq_v")),
        experts=_experts(text),
        latent=latent,
        linear=_linear(kind, text, hidden) if "l" in letters else None,
        vision=vision(config, hidden),
        rope_elements=_rope_elements(config, kind, text, latent.rope if latent else full.dim),
        other_parameters=_per_layer_embeddings(text, layers, hidden) + _doubled(text, hidden),
        quantisation=of_config(config),
        kept=spared(config, letters + feeds),
        kv_dtype=read_kv,
        kv_since=since,
        context=lengths,
        dtype=_dtype(config, text),
        family=kind,
        aliases=tuple(aliases),
    )
    return consistent(model, any(text.get(field) for field in HEAD_DIM) or kind.startswith("gemma"))


def _rope_elements(config: Mapping[str, Any], kind: str, text: Mapping[str, Any], dim: int) -> int:
    """Of the tables of rotary positions, for heads (or their rotated part) of this size."""
    positions = whole(text, *NAMES, "model_max_length", default=UNSTATED)
    return rope.elements(kind, text, dim, positions, str(config.get("model_type", "")))


def _dtype(config: Mapping[str, Any], text: Mapping[str, Any]) -> str:
    """Older files say torch_dtype, newer ones dtype; some as PyTorch prints it ("torch.bfloat16")."""
    said = (part.get(field) for part in (text, config) for field in ("torch_dtype", "dtype"))
    return str(next((one for one in said if one), "bfloat16")).removeprefix("torch.")


def _layers(text: Mapping[str, Any]) -> int:
    blocks = text.get("layers_block_type")  # newer files of Nemotron-H have no other field
    listed = len(blocks) if isinstance(blocks, Sequence) else None
    return whole(text, "num_hidden_layers", "n_layer", "n_layers", "num_layers", default=listed)


def _text_of(config: Mapping[str, Any]) -> Mapping[str, Any]:
    for part in TEXT_PARTS:
        inner = config.get(part)
        if isinstance(inner, Mapping):
            return _text_of(inner)
    return config


def _linear(kind: str, text: Mapping[str, Any], hidden: int) -> Linear:
    found = linear(kind, text, hidden)
    if found is None:
        raise ConfigError(
            f"config.json names linear layers, but not their sizes in a way we know (model_type {kind!r})"
        )
    return found


def _compact(letters: str) -> str:
    return letters if set(letters) != {"d"} else ""


def _intermediate(kind: str, text: Mapping[str, Any], hidden: int) -> int:
    names: tuple[str, ...] = ("intermediate_size", "ffn_hidden_size", "n_inner", "d_inner")
    if kind == "llama4_text":
        names = ("intermediate_size_mlp", *names)
    if kind == "cohere2_moe":
        names = ("prefix_dense_intermediate_size", *names)
    return whole(text, *names, default=4 * hidden)


def _tied(kind: str, config: Mapping[str, Any], text: Mapping[str, Any]) -> bool:
    for part in (text, config):
        if isinstance(part.get("tie_word_embeddings"), bool):
            return bool(part["tie_word_embeddings"])
    return kind.startswith(TIED_BY_DEFAULT)


def _gated(kind: str, text: Mapping[str, Any]) -> bool:
    if kind.startswith(GATED_NONETHELESS):
        return True
    if text.get("mlp_hidden_act") == "relu2" or text.get("hidden_act") == "relu2":
        return False
    return not kind.startswith(PLAIN_MLP)


def _query_gate(kind: str, text: Mapping[str, Any]) -> bool:
    """Laguna's gate is one value per head unless it says that it is as wide as the queries."""
    if "gating" in text:
        return bool(text["gating"] == "per-element")
    said = next(
        (text[name] for name in ("attn_output_gate", "use_attn_output_gate") if text.get(name) is not None), None
    )
    return kind.startswith(GATED_QUERIES) if said is None else bool(said)


def _window(text: Mapping[str, Any], letters: str) -> int:
    if "w" not in letters:
        return 0
    return whole(text, "sliding_window", "attention_chunk_size", "sliding_window_size", "window_size", default=4096)


def _experts(text: Mapping[str, Any]) -> Experts | None:
    count, ffn = experts_of(text), text.get("ffn_config")
    if count <= 1:
        return None
    if isinstance(ffn, Mapping):
        return Experts(count, int(ffn["moe_top_k"]), int(ffn["ffn_hidden_size"]))
    chosen = whole(
        text,
        "num_experts_per_tok",
        "num_experts_per_token",
        "moe_top_k",
        "top_k_experts",
        "moe_topk",
        "moe_k",
        default=1,
    )
    width = whole(text, "moe_intermediate_size", "expert_hidden_dim", "expert_intermediate_size", "intermediate_size")
    return Experts(count, chosen, width, _shared(text, width), int(text.get("moe_latent_size") or 0))


SHARED = (
    *("shared_expert_intermediate_size", "moe_shared_expert_intermediate_size", "shared_intermediate_size"),
    "share_expert_dim",  # Step-3.5
)
"""Widths of what all tokens pass beside the experts that are chosen for them."""


def _shared(text: Mapping[str, Any], width: int) -> int:
    if text.get("model_type") in ("llama4_text", "gemma4_text"):  # a dense MLP beside the routed ones, always
        return int(text["intermediate_size"])
    for name in SHARED:
        if text.get(name):
            return int(text[name])
    copies = whole(
        text, "n_shared_experts", "num_shared_experts", "num_shared_expert", "moe_num_shared_experts", default=0
    )
    return copies * width


def _latent(text: Mapping[str, Any]) -> Latent | None:
    if not text.get("kv_lora_rank"):
        return None
    return Latent(
        kv_rank=int(text["kv_lora_rank"]),
        rope=whole(text, "qk_rope_head_dim"),
        nope=whole(text, "qk_nope_head_dim"),
        value=whole(text, "v_head_dim"),
        query_rank=int(text.get("q_lora_rank") or 0),
        index_dim=int(text.get("index_head_dim") or 0),
        index_heads=int(text.get("index_n_heads") or 0),
    )


def _per_layer_embeddings(text: Mapping[str, Any], layers: int, hidden: int) -> int:
    """Gemma 3n and 4 E-models: a second embedding of every token for every layer, and its projections."""
    width = int(text.get("hidden_size_per_layer_input") or 0)
    vocab = int(text.get("vocab_size_per_layer_input") or 0)
    return layers * width * (vocab + 3 * hidden) if width else 0


def _doubled(text: Mapping[str, Any], hidden: int) -> int:
    """Gemma 4 E-models: layers that read an earlier one's cache have MLPs of twice the width."""
    sharing = int(text.get("num_kv_shared_layers") or 0) if text.get("use_double_wide_mlp") else 0
    return sharing * 3 * hidden * whole(text, "intermediate_size") if sharing else 0
