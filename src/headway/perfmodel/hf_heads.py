"""How many heads of which size a config.json gives to full attention and to windows.

Most families have one shape for all layers; some give windows, or full attention, one of their own, and some list one
per layer. Layers of one kind that differ are refused: an average would be wrong for pools and for splits.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from headway.perfmodel.hf_layers import ConfigError, whole

HEAD_DIM = ("head_dim", "attention_head_dim", "kv_channels")
KV_HEADS = (
    *("num_key_value_heads", "num_kv_heads", "n_head_kv", "multi_query_group_num", "n_kv_heads"),
    "num_attention_groups",  # Step
)
GLOBAL_DIM = 512
"""Of full attention in Gemma 4, whose files may leave it out."""

PER_HEAD = "num_attention_heads_per_layer"
PER_LAYER = {"num_attention_heads": "queries", "num_key_value_heads": "kv", "head_dim": "dim"}
"""What transformers writes under `per_layer_config` for layers that differ from the rest."""


class Shape(msgspec.Struct, frozen=True):
    """Query heads, KV heads, and elements of a key."""

    queries: int
    kv: int
    dim: int


def shapes(kind: str, text: Mapping[str, Any], hidden: int, letters: str) -> tuple[Shape, Shape]:
    """Of full attention and of windows; the same where a model has only one of them. Raises ConfigError where layers of
    a kind differ."""
    full, window = _named(kind, text, hidden)
    layers = [window if letter == "w" else full for letter in letters]
    for number, changes in _listed(text).items():
        if number < len(layers):
            layers[number] = msgspec.structs.replace(layers[number], **changes)
    found = {one: {shape for shape, letter in zip(layers, letters, strict=True) if letter == one} for one in "fw"}
    if max(map(len, found.values())) > 1:
        raise ConfigError("config.json: heads differ between layers of a kind, which is not modelled")
    given = [next(iter(found[letter]), None) for letter in "fw"]
    only = given[0] or given[1] or full
    return given[0] or only, given[1] or only


def value_dim(kind: str, text: Mapping[str, Any]) -> int:
    """Elements of a value where they are not as many as a key's (MiMo-V2), else 0."""
    if not kind.startswith("mimo_v2"):
        return 0
    given = {int(text[name]) for name in ("v_head_dim", "swa_v_head_dim") if text.get(name)}
    if len(given) > 1:
        raise ConfigError("config.json: v_head_dim and swa_v_head_dim differ, which is not modelled")
    return next(iter(given), 0)


def _named(kind: str, text: Mapping[str, Any], hidden: int) -> tuple[Shape, Shape]:
    """As the fields for all layers of a kind say. In Gemma 4 the plain ones are the windows'; MiMo-V2 and Step-3.5 name
    those of windows."""
    heads = whole(text, "num_attention_heads", "n_head", "n_heads")
    plain = Shape(heads, _kv_heads(kind, text, heads), _head_dim(kind, text, hidden, heads))
    if kind.startswith("gemma4") or "global_head_dim" in text:
        own = text.get("num_global_key_value_heads") if text.get("attention_k_eq_v", True) else None
        return Shape(heads, int(own or plain.kv), int(text.get("global_head_dim") or GLOBAL_DIM)), plain
    if kind.startswith("mimo_v2"):
        queries, dim = text.get("swa_num_attention_heads"), text.get("swa_head_dim")
        return plain, Shape(int(queries or heads), whole(text, "swa_num_key_value_heads"), int(dim or plain.dim))
    other = text.get("attention_other_setting") or {}
    if other and other.get("attention_type") != "sliding_attention":
        raise ConfigError("config.json: attention_other_setting is not that of sliding_attention, and not modelled")
    queries = whole(other, "num_attention_heads", default=whole(text, "num_sliding_attention_heads", default=heads))
    groups = whole(other, "num_attention_groups", default=plain.kv)
    return plain, Shape(queries, groups, whole(other, "head_dim", default=plain.dim))


def _listed(text: Mapping[str, Any]) -> dict[int, dict[str, int]]:
    """What single layers have instead, by their number."""
    queries, changed = text.get(PER_HEAD), text.get("per_layer_config")
    found: dict[int, dict[str, int]] = {}
    if isinstance(queries, Sequence):  # Laguna
        found = {number: {"queries": whole({PER_HEAD: one}, PER_HEAD)} for number, one in enumerate(queries)}
    if not isinstance(changed, Mapping):
        return found
    for number, fields in changed.items():
        for name, value in fields.items():
            if name not in PER_LAYER:
                raise ConfigError(f"config.json: {name} differs from layer to layer, which is not modelled")
            at = whole({"per_layer_config": number}, "per_layer_config")
            found.setdefault(at, {})[PER_LAYER[name]] = whole({name: value}, name)
    return found


def _head_dim(kind: str, text: Mapping[str, Any], hidden: int, heads: int) -> int:
    default = 256 if kind.startswith("gemma") else hidden // heads
    return next((int(text[field]) for field in HEAD_DIM if text.get(field)), default)


def _kv_heads(kind: str, text: Mapping[str, Any], heads: int) -> int:
    """Multi-query models say so with a flag; without any field every head has its own keys. Falcon's flag counts in its
    old architecture only (`num_kv_heads` in the new one), and ChatGLM's where it is said."""
    falcon_old = kind == "falcon" and not text.get("new_decoder_architecture")
    single = text.get("multi_query", falcon_old)
    if single and (falcon_old or (kind != "falcon" and "num_key_value_heads" not in text)):
        return 1
    if text.get("multi_query_attention") is False:
        return heads
    return whole(text, *KV_HEADS, default=heads)
