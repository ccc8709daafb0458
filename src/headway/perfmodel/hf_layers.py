"""Which kind every layer is, from the many ways in which config.json files say so, and how big linear layers are.

Letters are those of `architectures`. Sizes of Mamba, gated delta and lightning layers follow their papers and the
shapes that vLLM allocates for their state.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from headway.perfmodel.architectures import Linear

KINDS = {
    "full_attention": "f",
    "attention": "f",
    "hybrid": "f",
    "indexed_attention": "f",
    "deepseek_sparse_attention": "f",
    "sliding_attention": "w",
    "hybrid_sliding": "w",
    "chunked_attention": "w",
    "linear_attention": "l",
    "mamba": "l",
    "mamba2": "l",
    "conv": "l",
    "recurrent": "l",
}


STEPS = ("decoder_sparse_step", "moe_layer_interval")
"""Every how many layers there are experts, counted from 1 (Qwen, ERNIE); `moe_layer_freq` counts from 0 (DeepSeek)."""

EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts", "num_moe_experts")


class ConfigError(ValueError):
    """This config.json does not say what is needed; the message names the field."""


def whole(text: Mapping[str, Any], *names: str, default: int | None = None) -> int:
    """The first of these fields that is set, as an int. Raises ConfigError when none is and there is no default, and
    for a list with one value per layer that are not all the same."""
    for name in names:
        value: Any = text.get(name)
        if isinstance(value, Sequence) and not isinstance(value, str) and value:
            if len(set(value)) > 1:
                raise ConfigError(f"config.json: {name} differs from layer to layer, which is not modelled")
            value = value[0]
        if value is not None:
            try:
                return int(value)
            except (TypeError, ValueError):
                raise ConfigError(f"config.json: {name} is {value!r}, not a whole number") from None
    if default is None:
        raise ConfigError(f"config.json has no {' or '.join(names)}: is it the config.json of a language model?")
    return default


PATTERN = {"M": ("l", "-"), "*": ("f", "-"), "-": ("-", "d"), "E": ("-", "m")}
"""Nemotron-H writes one character per block: Mamba, attention, MLP, experts."""

BLOCKS = {
    "mamba": "M",
    "linear_attention": "M",
    "attention": "*",
    "full_attention": "*",
    "mlp": "-",
    "moe": "E",
}
"""The same in words, of older and of newer files."""

EVERY_DEFAULT = {"gemma2": 2, "gemma3": 6, "gemma3_text": 6, "cohere2": 4, "gpt_oss": 2, "exaone4": 4, "llama4_text": 4}
"""Full attention in every n-th layer where the file names a window and no layers (modelling code of transformers)."""


def mixers(kind: str, text: Mapping[str, Any], layers: int) -> str:
    """One mixer letter per layer."""
    blocks = _blocks(text)
    if blocks:
        return "".join(PATTERN[letter][0] for letter in blocks)
    named = text.get("layer_types") or text.get("layers_block_type")
    if isinstance(named, Sequence) and not isinstance(named, str):
        unknown = sorted({str(one) for one in named} - set(KINDS))
        if unknown:
            raise ConfigError(f"config.json has layers of the kind {unknown[0]}, which are not modelled")
        if 0 < len(named) < layers:
            raise ConfigError(f"config.json names the kinds of {len(named)} layers, and has {layers}")
        return "".join(KINDS[str(one)] for one in named)[:layers]
    listed = text.get("attn_layer_indices") or (() if kind == "bamba" else text.get("full_attn_idxs"))  # and LFM2
    if isinstance(listed, Sequence):
        return "".join("f" if n in listed else "l" for n in range(layers))
    if "attn_layer_period" in text:  # Jamba
        period, offset = int(text["attn_layer_period"]), int(text.get("attn_layer_offset", 0))
        return "".join("f" if n % period == offset else "l" for n in range(layers))
    if "attn_type_list" in text:  # MiniMax-01: 0 lightning, 1 softmax
        return "".join("f" if one else "l" for one in text["attn_type_list"])[:layers]
    if isinstance(text.get("linear_attn_config"), Mapping):  # Kimi Linear counts layers from 1
        full = set(text["linear_attn_config"]["full_attn_layers"])
        return "".join("f" if n + 1 in full else "l" for n in range(layers))
    if isinstance(text.get("hybrid_layer_pattern"), Sequence):  # MiMo-V2: 1 is a window
        return "".join("w" if one else "f" for one in text["hybrid_layer_pattern"])[:layers]
    if "full_attention_interval" in text:
        return _every("l", int(text["full_attention_interval"]), layers)
    if kind == "llama4_text" and text.get("attention_chunk_size"):
        return _every("w", 4, layers)
    return _sliding(kind, text, layers)


def mlps(kind: str, text: Mapping[str, Any], layers: int) -> str:
    """One MLP letter per layer."""
    blocks = _blocks(text)
    if blocks:
        return "".join(PATTERN[letter][1] for letter in blocks)
    sparse = _sparse(kind, text, layers)
    return "".join("m" if n in sparse else "d" for n in range(layers))


def experts_of(text: Mapping[str, Any]) -> int:
    """Routed experts of a layer that has any; 0 or 1: there are only dense MLPs. Raises ConfigError where a single
    expert would be of another width than the dense MLP, since families differ in which of them that is."""
    ffn = text.get("ffn_config")
    inside = whole(ffn, "moe_num_experts", default=0) if isinstance(ffn, Mapping) else 0  # DBRX
    count = whole(text, *EXPERTS, default=0) or inside
    width = whole(text, "moe_intermediate_size", default=0)
    if count == 1 and width and width != whole(text, "intermediate_size", default=0):
        raise ConfigError("config.json has one expert per layer beside MLPs of another width, which is not modelled")
    return count


def linear(kind: str, text: Mapping[str, Any], hidden: int) -> Linear | None:
    """The linear layers' sizes, None where the file has none that we know."""
    if "linear_num_value_heads" in text:
        return _gated_delta(text, hidden)
    if isinstance(text.get("linear_attn_config"), Mapping):
        return _kimi_delta(text["linear_attn_config"], hidden)
    if kind == "kimi_linear" and "linear_num_heads" in text:  # as transformers writes it
        names = ("num_heads", "linear_num_heads"), ("head_dim", "linear_head_dim")
        return _kimi_delta({ours: text[theirs] for ours, theirs in names}, hidden)
    if "attn_type_list" in text or kind in ("minimax", "minimax_text_01", "minimax_m1"):
        heads = int(text["num_attention_heads"])
        dim = int(text.get("head_dim") or hidden // heads)
        width = heads * dim
        return Linear(5 * hidden * width, hidden * width, conv=0, state=heads * dim * dim, state_bytes=4)
    if "mamba_d_state" in text and "mamba_num_heads" not in text and "mamba_n_heads" not in text:
        return _mamba(text, hidden)
    if any(name in text for name in ("mamba_num_heads", "mamba_n_heads")):
        return _mamba2(text, hidden)
    if "conv_L_cache" in text:  # LFM2: a short convolution
        return Linear(4 * hidden * hidden, hidden * hidden, conv=hidden * (int(text["conv_L_cache"]) - 1), state=0)
    return None


def _blocks(text: Mapping[str, Any]) -> str:
    pattern = text.get("hybrid_override_pattern")
    if isinstance(pattern, str):
        unknown = sorted(set(pattern) - set(PATTERN))
        if unknown:
            raise ConfigError(f"config.json: hybrid_override_pattern has {unknown[0]!r}, which is not modelled")
        return pattern
    named = text.get("layers_block_type")
    if isinstance(named, Sequence) and set(named) & {"mlp", "moe"}:
        return "".join(BLOCKS[str(one)] for one in named)
    return ""


def _every(letter: str, period: int, layers: int) -> str:
    return "".join("f" if (n + 1) % period == 0 else letter for n in range(layers))


def _sliding(kind: str, text: Mapping[str, Any], layers: int) -> str:
    """Windows in all layers (Mistral 7B v0.1, Phi-3), in a pattern, or not used although named (Qwen2)."""
    if not text.get("sliding_window") or text.get("use_sliding_window") is False:
        return "f" * layers
    pattern = text.get("sliding_window_pattern") or EVERY_DEFAULT.get(kind, 0)
    if isinstance(pattern, str):  # EXAONE: "LLLG"
        return "".join("f" if pattern[n % len(pattern)] == "G" else "w" for n in range(layers))
    if kind in ("gemma2", "gpt_oss", "step3p5"):
        return "".join("w" if n % 2 == 0 else "f" for n in range(layers))
    if kind.startswith("qwen2"):  # only layers from max_window_layers on slide
        first = int(text.get("max_window_layers", layers))
        return "f" * min(first, layers) + "w" * max(0, layers - first)
    return _every("w", int(pattern), layers) if pattern else "w" * layers


def _sparse(kind: str, text: Mapping[str, Any], layers: int) -> set[int]:
    """Layers with a mixture of experts."""
    unused = text.get("enable_moe_block") is False or (kind.startswith("ernie") and text.get("use_moe") is False)
    if unused or experts_of(text) <= 1:
        return set()
    named = text.get("mlp_layer_types")
    if isinstance(named, Sequence) and not isinstance(named, str):
        return {n for n, one in enumerate(named) if str(one) != "dense"}
    if kind == "step3p5":
        return _enumerated(text)
    if "expert_layer_period" in text:  # Jamba
        period, offset = int(text["expert_layer_period"]), int(text.get("expert_layer_offset", 0))
        return {n for n in range(layers) if n % period == offset}
    if "interleave_moe_layer_step" in text:  # Llama 4
        step = int(text["interleave_moe_layer_step"])
        return {n for n in range(layers) if (n + 1) % step == 0}
    dense = set(text.get("mlp_only_layers") or ())
    first = whole(text, "first_k_dense_replace", "num_dense_layers", "moe_layer_start_index", default=0)
    listed = text.get("moe_layer_freq")
    if isinstance(listed, Sequence) and not isinstance(listed, str):
        return {n for n, sparse in enumerate(listed) if sparse}
    each, step = whole(text, "moe_layer_freq", default=1) or 1, whole(text, *STEPS, default=1)
    end = whole(text, "moe_layer_end_index", default=layers - 1)
    counted = {n for n in range(first, min(layers, end + 1)) if n not in dense}
    return {n for n in counted if n % each == 0 and (n + 1) % step == 0}


def _enumerated(text: Mapping[str, Any]) -> set[int]:
    """Step-3.5 lists them in one string; without it, engines differ in where experts begin."""
    named = text.get("moe_layers_enum")
    if named is None:
        raise ConfigError("config.json has experts, and neither moe_layers_enum nor mlp_layer_types")
    try:
        return {int(one) for one in named.split(",")} if isinstance(named, str) else set(map(int, named))
    except ValueError:
        raise ConfigError(f"config.json: moe_layers_enum is {named!r:.60}, not numbers of layers") from None


def _gated_delta(text: Mapping[str, Any], hidden: int) -> Linear:
    """Gated DeltaNet as in Qwen3-Next: queries, keys, values, gate and two scalars per head, output."""
    keys = int(text["linear_num_key_heads"]) * int(text["linear_key_head_dim"])
    heads, dim = int(text["linear_num_value_heads"]), int(text["linear_value_head_dim"])
    values, kernel = heads * dim, int(text.get("linear_conv_kernel_dim", 4))
    return Linear(
        hidden * (2 * keys + 3 * values + 2 * heads) + kernel * (2 * keys + values),
        hidden * values,
        conv=(2 * keys + values) * (kernel - 1),
        state=heads * dim * int(text["linear_key_head_dim"]),
        state_bytes=4 if text.get("mamba_ssm_dtype") == "float32" else 0,
    )


def _kimi_delta(sizes: Mapping[str, Any], hidden: int) -> Linear:
    """Kimi Delta Attention: four projections of full width, two low-rank gates, a scalar per head."""
    heads, dim, kernel = int(sizes["num_heads"]), int(sizes["head_dim"]), int(sizes.get("short_conv_kernel_size", 4))
    width = heads * dim
    gates = 2 * (hidden * dim + dim * width)
    return Linear(
        4 * hidden * width + gates + hidden * heads,
        hidden * width,
        conv=3 * width * (kernel - 1),
        state=width * dim,
        state_bytes=4,
    )


def _mamba(text: Mapping[str, Any], hidden: int) -> Linear:
    """Mamba (Gu and Dao 2023) as in Jamba."""
    inner, state = int(text.get("mamba_expand", 2)) * hidden, int(text["mamba_d_state"])
    rank, kernel = int(text.get("mamba_dt_rank") or -(-hidden // 16)), int(text.get("mamba_d_conv", 4))
    parameters = 3 * hidden * inner + inner * (2 * rank + 2 * state) + inner * (kernel + state)
    return Linear(parameters, hidden * inner, conv=inner * (kernel - 1), state=inner * state)


def _mamba2(text: Mapping[str, Any], hidden: int) -> Linear:
    """Mamba 2 (Dao and Gu 2024), with the two sets of names in use."""
    heads = int(text.get("mamba_num_heads") or text["mamba_n_heads"])
    dim = int(text.get("mamba_head_dim") or text.get("mamba_d_head") or 64)
    groups = int(text.get("n_groups") or text.get("mamba_n_groups") or 1)
    state = int(text.get("ssm_state_size") or text.get("mamba_d_state") or 128)
    kernel, inner = int(text.get("conv_kernel") or text.get("mamba_d_conv") or 4), heads * dim
    return Linear(
        hidden * (3 * inner + 2 * groups * state + heads) + kernel * (inner + 2 * groups * state),
        hidden * inner,
        conv=(inner + 2 * groups * state) * (kernel - 1),
        state=heads * dim * state,
        state_bytes=4 if text.get("mamba_ssm_cache_dtype") == "float32" else 0,
        groups=groups,
        group_conv=2 * state * (kernel - 1),
    )
