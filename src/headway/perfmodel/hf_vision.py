"""The vision tower of a multimodal config.json: parameters loaded beside the text model, and its largest image.

Towers are plain transformer encoders; their files differ mostly in names. Projectors are counted as one or two
matrices into the text model, by whether patches are merged first. Audio towers are not counted.
"""

from collections.abc import Mapping
from typing import Any

from headway.perfmodel.architectures import Vision

QWEN_IMAGE_TOKENS = 16384
"""Qwen-VL processors allow images of up to 12.8 million pixels: as many tokens of 28 x 28."""

VIDEOS = {"qwen2_vl": 7, "qwen2_5_vl": 7}
"""vLLM counts on videos of 14 frames, two of which become as many tokens as the largest image."""


def vision(config: Mapping[str, Any], hidden: int) -> Vision | None:
    """The tower, None for text models."""
    tower = config.get("vision_config")
    if not isinstance(tower, Mapping):
        inner = config.get("thinker_config")
        return vision(inner, hidden) if isinstance(inner, Mapping) else None
    width = _first(tower, "vt_hidden_size", "embed_dim", "hidden_size", "width")
    depth = _first(tower, "num_hidden_layers", "depth", "vt_num_hidden_layers", "layers")
    inside = _first(tower, "intermediate_size", "vt_intermediate_size") or 4 * width
    if _glm(config):  # intermediate_size is that of the projector
        inside = _first(tower, "out_hidden_size") or hidden
    patch, merge = _first(tower, "patch_size") or 14, _merge(config, tower)
    gemma4 = str(config.get("model_type", "")).startswith("gemma4")
    matrices = 3 if tower.get("hidden_act") == "silu" or gemma4 or _glm(config) else 2
    heads = _first(tower, "num_heads", "num_attention_heads") or 1
    keys = width * (_first(tower, "num_key_value_heads") or heads) // heads  # fewer in EXAONE 4.5
    layers = depth * (2 * width * (width + keys) + matrices * width * inside)
    patches = 3 * patch * patch * (_first(tower, "temporal_patch_size") or 1) * width
    size = _first(tower, "image_size")
    positions = _first(tower, "num_position_embeddings") or (size // patch) ** 2
    positions += 2 * _first(tower, "position_embedding_size")  # Gemma 4: a table for each axis
    pooled = (_first(tower, "pooling_kernel_size") or 1) ** 2  # and as many patches are averaged, image by image
    tokens = _tokens(config, size, patch * merge)
    pixels = size * size // tokens if tokens and size else patch * patch * merge * merge
    return Vision(
        layers + patches + positions * width + _projector(config, tower, width, hidden, merge),
        tokens,
        pixels * pooled * (_first(tower, "temporal_patch_size") or 1),
        width,
        inside,
        max(1, pixels // (patch * patch)),
        VIDEOS.get(str(config.get("model_type", "")), 1),
        1 + len(tower.get("deepstack_visual_indexes") or ()),
        bool(tower.get("copied")) or gemma4,
    )


def _glm(config: Mapping[str, Any]) -> bool:
    return str(config.get("model_type", "")).startswith("glm4v")


def _merge(config: Mapping[str, Any], tower: Mapping[str, Any]) -> int:
    kernel = tower.get("merge_kernel_size")
    if isinstance(kernel, list | tuple):
        return int(kernel[0])
    return _first(tower, "spatial_merge_size") or _first(config, "spatial_merge_size") or 1


def _projector(config: Mapping[str, Any], tower: Mapping[str, Any], width: int, hidden: int, merge: int) -> int:
    """Two matrices where patches are merged (Qwen-VL, Kimi-VL), three in Mistral 3, one in Gemma, two in LLaVA, and in
    GLM-4V a convolution, a matrix and an MLP with a gate."""
    kind, wide = str(config.get("model_type", "")), width * merge * merge
    if _glm(config):
        out = _first(tower, "out_hidden_size") or hidden
        return wide * out + out * out + 3 * out * (_first(tower, "intermediate_size") or 4 * width)
    if kind == "mistral3":
        return wide * width + width * hidden + hidden * hidden
    if kind.startswith("gemma"):
        return width * hidden
    if merge > 1:
        stacks = 1 + len(tower.get("deepstack_visual_indexes") or ())
        return stacks * (wide * wide + wide * hidden)
    layers = config.get("vision_feature_layer")
    return width * hidden * (len(layers) if isinstance(layers, list) else 1) + hidden * hidden


def _tokens(config: Mapping[str, Any], size: int, patch: int) -> int:
    """Tokens that one image of the largest size becomes in the text model."""
    if config.get("mm_tokens_per_image"):
        return int(config["mm_tokens_per_image"])
    if str(config.get("model_type", "")).startswith("qwen"):
        return QWEN_IMAGE_TOKENS
    return (size // patch) ** 2


def _first(table: Mapping[str, Any], *names: str) -> int:
    for name in names:
        value = table.get(name)
        if isinstance(value, int | float):
            return int(value)
    return 0
