"""How rows of the model tables are written: the fields of the published config.json, the usual eight in one string.

Rows go through the same reader as a config.json given by a user, so that both give one architecture.
"""

from typing import Any

from headway.perfmodel.architectures import Architecture
from headway.perfmodel.hf_config import read
from headway.perfmodel.hf_config_defaults import USUAL

Fields = dict[str, Any]
"""Part of a config.json that several rows share."""


def row(name: str, kind: str, usual: str, *aliases: str, vision: Fields | None = None, **more: Any) -> Architecture:
    """`kind`: model_type; `usual`: the eight usual fields in order; `aliases`: a short name first, then ids of models
    with the same shape; `vision`: vision_config; anything else: further fields under their names."""
    text = dict(zip(USUAL, map(int, usual.split()), strict=True)) | {"model_type": kind} | more
    if not vision:
        return read(name, text, *aliases, whole_file=False)
    outer = {
        key: more[key] for key in ("mm_tokens_per_image", "spatial_merge_size", "vision_feature_layer") if key in more
    }
    whole = {"model_type": vision.get("outer", kind), "text_config": text, "vision_config": vision} | outer
    return read(name, whole, *aliases, whole_file=False)
