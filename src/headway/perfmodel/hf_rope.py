"""How many cosines and sines an engine keeps for rotary positions: a table with one row per position.

vLLM makes one table per distinct setting, as long as the positions that the scaling reaches (its rotary_embedding
layers): linear and dynamic scaling multiply max_position_embeddings, YaRN and LongRoPE start from the original length,
the Llama 3 scaling changes no length. For Gemma 3 with its factor of 8 that is half a GiB. Gemma's layers with a window
have a table of their own, for another base frequency.
"""

from collections.abc import Mapping
from typing import Any

NO_ROPE = (
    "gpt2",
    "gpt_bigcode",
    "bloom",
    "mpt",
    "opt",
    "jamba",
    "nemotron_h",
    "falcon_mamba",
    "kimi_linear",
    "granitemoehybrid",
)
"""Families that know positions by other means."""

THREEFOLD = ("qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_5", "glm4v")
"""Families that rotate by time, height and width (`mrope_section` in their files): their tables are made four times as
long, for positions in videos."""

BOUNDED = ("minimax_m1", "minimax_text_01")
"""Families whose table is only as long as max_model_len, under 0.13 GiB for a million tokens: not counted."""


def elements(kind: str, text: Mapping[str, Any], dim: int, positions: int, outer: str = "") -> int:
    """Elements of all tables; each row has `dim` of them (half cosines, half sines), less where rotation is partial.
    `outer`: model_type of the whole model where `kind` is that of its text part."""
    if kind in NO_ROPE or kind in BOUNDED:
        return 0
    if outer.startswith(THREEFOLD) or _scaling(text).get("mrope_section"):
        positions *= 4
    width = round(dim * _share(text))
    local = {"gemma3": width, "gemma4": int(text.get("head_dim") or 256)}.get(kind[:6], 0)
    return width * _rows(_scaling(text), positions) + local * positions


def _rows(scaling: Mapping[str, Any], positions: int) -> int:
    kind = str(scaling.get("rope_type") or scaling.get("type") or "default")
    factor = float(scaling.get("factor") or 1.0)
    original = int(scaling.get("original_max_position_embeddings") or positions)
    if kind in ("linear", "dynamic"):
        return round(positions * factor)
    if kind in ("yarn", "deepseek_yarn"):
        return round(original * factor)
    return positions + original if kind in ("longrope", "su") else positions


def _scaling(text: Mapping[str, Any]) -> Mapping[str, Any]:
    """The scaling of full attention; newer files keep one set of parameters per kind of layer."""
    for name in ("rope_scaling", "rope_parameters"):
        found = text.get(name)
        if isinstance(found, Mapping):
            inner = found.get("full_attention")
            return inner if isinstance(inner, Mapping) else found
    return {}


def _share(text: Mapping[str, Any]) -> float:
    if _scaling(text).get("rope_type") == "proportional":
        return 1.0  # all of the head's width, most of it not rotated
    inner = _scaling(text).get("partial_rotary_factor")
    return float(text.get("partial_rotary_factor") or text.get("rotary_pct") or inner or 1.0)
