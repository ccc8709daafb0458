"""Looking things up: a GPU or a model by any of its names, an unknown one refused with what it may have meant.

Names compare without case. The tables are `gpus` and `architectures`; the widths of number formats are here.
"""

import difflib
from typing import TypeVar

from headway.perfmodel.architectures import Architecture
from headway.perfmodel.gpus import GPUS, Gpu
from headway.perfmodel.models import ARCHITECTURES

WEIGHT_BYTES: dict[str, float] = {
    "float32": 4.0,
    "bfloat16": 2.0,
    "float16": 2.0,
    "fp8": 1.0,
    "int8": 1.0,
    "int4": 0.5625,  # 4 bits, and a 16-bit scale and zero point per group of 64
}
"""Bytes per matrix weight by precision. Quantised models keep embeddings and head in 16 bits."""

T = TypeVar("T")

_SPELLINGS = {"auto": "bfloat16", "half": "float16", "float": "float32", "bf16": "bfloat16", "fp16": "float16"}


class UnknownName(ValueError):
    """No such GPU, model or precision; the message lists near matches."""


def gpu(name: str) -> Gpu:
    """The GPU of this name or alias. Raises UnknownName."""
    return _find("GPU", name, {key: one for one in GPUS for key in (one.name, *one.aliases)})


def model(name: str) -> Architecture:
    """The architecture of this Hugging Face id or alias. Raises UnknownName."""
    return _find("model", name, {key: one for one in ARCHITECTURES for key in (one.id, *one.aliases)})


def precision(name: str) -> str:
    """The canonical name of a weight format (a key of WEIGHT_BYTES). Raises UnknownName."""
    return _find("precision", name, {key: key for key in WEIGHT_BYTES} | _SPELLINGS)


def gpu_names() -> list[str]:
    """Every GPU's first name."""
    return [one.name for one in GPUS]


def model_names() -> list[str]:
    """Every model's short name."""
    return [one.aliases[0] for one in ARCHITECTURES]


def _find(kind: str, name: str, table: dict[str, T]) -> T:
    folded = {key.lower(): value for key, value in table.items()}
    found = folded.get(name.lower())
    if found is not None:
        return found
    near = difflib.get_close_matches(name.lower(), folded, n=5, cutoff=0.4)
    near += [key for key in folded if name.lower() in key and key not in near][:5]
    hint = f"near matches: {', '.join(near)}" if near else f"known: {', '.join(sorted(folded))}"
    raise UnknownName(f"unknown {kind} {name!r}; {hint}")
