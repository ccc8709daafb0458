"""Looking things up: a GPU or a model by any of its names, an unknown one refused with what it may have meant.

Names compare without case. The tables are `gpus`, `models` and `quantisation`.
"""

import difflib
import re
from typing import TypeVar

import msgspec

from headway.perfmodel import quantisation
from headway.perfmodel.architectures import Architecture
from headway.perfmodel.gpus import GPUS, Gpu
from headway.perfmodel.models import ARCHITECTURES
from headway.perfmodel.quantisation import SCHEMES, SPELLINGS, of_name

T = TypeVar("T")

FEW = 40
"""Names that an error may list in full; every model under every name would fill two screens."""


class UnknownName(ValueError):
    """No such GPU, model or precision; the message lists near matches."""


OTHER_MAKERS = ("mi100", "mi210", "mi250", "mi300", "mi308", "mi325", "mi350", "mi355", "gaudi", "tpu", "ascend", "trn")
"""How names of accelerators begin that are known to be no GPUs of NVIDIA's."""


def gpu(name: str) -> Gpu:
    """The GPU of this name or alias, however it is spaced ("rtx5090", "RTX 5090", "nvidia-rtx-5090"). Raises
    UnknownName."""
    table = {key: one for one in GPUS for key in (one.name, *one.aliases)}
    plain = _spaceless(name)
    found = {_spaceless(key): one for key, one in table.items()}.get(plain)
    if found is not None:
        return found
    if plain.startswith(OTHER_MAKERS):
        raise UnknownName(
            f"{name}: only engines on NVIDIA's GPUs are modelled; kernels and their memory differ on others"
        )
    return _find("GPU", name, table)


def _spaceless(name: str) -> str:
    """A card's name without spacing, its maker and its series."""
    plain = re.sub(r"[\s_-]+", "", name.lower())
    return re.sub(r"^(nvidia|amd|intel)*(geforce|instinct|tesla)*", "", plain)


def model(name: str) -> Architecture:
    """The architecture of this Hugging Face id or alias. Copies published by others and quantised ones are known by
    the end of their name ("RedHatAI/Qwen2.5-7B-Instruct-FP8-dynamic"), base and instruction-tuned models by each
    other. Raises UnknownName."""
    table = {key: one for one in ARCHITECTURES for key in (one.id, *one.aliases)}
    folded = {key.lower(): one for key, one in table.items()}
    if name.lower() in folded:
        return folded[name.lower()]
    base, scheme = of_name(name)
    last = {key.rsplit("/", 1)[-1]: one for key, one in folded.items()}
    wanted = base.rsplit("/", 1)[-1].lower()
    found = last.get(wanted) or last.get(wanted.removeprefix("meta-"))
    if found is None:
        found = {_plain(key): one for key, one in reversed(last.items())}.get(_plain(wanted))
    if found is None:
        return _find("model", name, table)
    return _republished(found, scheme) if scheme else found


def _republished(model: Architecture, scheme: str) -> Architecture:
    """A quantised copy: in the usual file format, whatever its original is in. Those in 4 bits spare what goes into
    linear layers (21.86 GiB of a Qwen3.6-35B-A3B-NVFP4 in the log of 0.20, 20.5 if all were quantised)."""
    tower = msgspec.structs.replace(model.vision, copied=False) if model.vision else None
    found = quantisation.scheme(scheme)
    kept = ("linear in",) if model.linear and found and found.bits == 4 else ()
    return msgspec.structs.replace(model, quantisation=scheme, vision=tower, kept=kept)


def _plain(name: str) -> str:
    """Without the words that tell a base model from a tuned one of the same shape."""
    return re.sub(r"-(instruct|chat|base|it|pt|hf)\b", "", name)


def precision(name: str, model: Architecture | None = None) -> str:
    """The canonical name of a weight format; "auto": the model's own, bfloat16 without a model. Raises UnknownName."""
    if name == "auto" and model:
        return model.quantisation or model.dtype
    found = quantisation.scheme(name)
    if found is not None and quantisation.PACKED.fullmatch(found.name):
        return found.name
    return _find("precision", name, {one.name: one.name for one in SCHEMES} | SPELLINGS)


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
    if not near and len(folded) > FEW:
        raise UnknownName(f"unknown {kind} {name!r}; {len(folded)} names are known, nothing like it")
    hint = f"near matches: {', '.join(near)}" if near else f"known: {', '.join(sorted(folded))}"
    raise UnknownName(f"unknown {kind} {name!r}; {hint}")
