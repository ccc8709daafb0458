"""Weight formats: how many bytes a parameter takes, with its scales and zero points, and which matrices stay wide.

Quantised checkpoints keep embeddings, the head, norms, routers and vision towers in 16 bits; formats marked `experts`
touch the routed experts only. Bytes per parameter are of the packed checkpoint as an engine loads it.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec


class Scheme(msgspec.Struct, frozen=True):
    """One format. `bits` per weight; one scale of `scale_bytes` per `group` weights along the input (0: one per output
    channel), and a zero point of `zero_bits`. `experts`: only routed experts are quantised; the rest stays 16 bits."""

    name: str
    bits: float
    group: int = 0
    scale_bytes: float = 4.0
    zero_bits: float = 0.0
    experts: bool = False
    flops: str = "bfloat16"

    @property
    def bytes_per_parameter(self) -> float:
        """Of a matrix, scales and zero points included (per-channel scales counted as one per 4096 weights)."""
        return self.bits / 8 + (self.scale_bytes + self.zero_bits / 8) / (self.group or 4096)


SCHEMES: tuple[Scheme, ...] = (
    Scheme("float32", 32, scale_bytes=0.0),
    Scheme("bfloat16", 16, scale_bytes=0.0),
    Scheme("float16", 16, scale_bytes=0.0),
    # compressed-tensors FP8-dynamic and w8a8: one scale per output channel.
    Scheme("fp8", 8, flops="fp8"),
    Scheme("int8", 8, flops="int8"),
    # DeepSeek's block format: one float32 scale per 128 x 128 block.
    Scheme("fp8_block", 8, group=128 * 128, flops="fp8"),
    # AWQ and GPTQ files: groups of 128, a 16-bit scale and a 4-bit zero point each.
    Scheme("int4", 4, group=128, scale_bytes=2.0, zero_bits=4.0),
    # GPTQ with 8 bits.
    Scheme("gptq_int8", 8, group=128, scale_bytes=2.0, zero_bits=8.0),
    # compressed-tensors w4a16: symmetric, no zero points.
    Scheme("w4a16", 4, group=128, scale_bytes=2.0),
    # Kimi-K2-Thinking: int4 experts in groups of 32, the rest bfloat16.
    Scheme("w4a16_experts", 4, group=32, scale_bytes=2.0, experts=True),
    # bitsandbytes NF4 with doubly quantised scales: one byte per 64 weights, and 4 bytes per 256 of these.
    Scheme("bnb_4bit", 4, group=64, scale_bytes=1 + 4 / 256),
    # OCP MX: 4 bits, one shared exponent of 8 bits per 32; gpt-oss keeps all but the experts in bfloat16.
    Scheme("mxfp4", 4, group=32, scale_bytes=1.0, experts=True),
    # NVIDIA NVFP4: 4 bits, an fp8 scale per 16.
    Scheme("nvfp4", 4, group=16, scale_bytes=1.0),
)

SPELLINGS = {
    "auto": "bfloat16",
    "half": "float16",
    "float": "float32",
    "bf16": "bfloat16",
    "fp16": "float16",
    "awq": "int4",
    "awq_marlin": "int4",
    "gptq": "int4",
    "gptq_marlin": "int4",
    "w4a16_asym": "int4",
    "bitsandbytes": "bnb_4bit",
    "w8a8": "int8",
    "w8a8_int8": "int8",
    "fp8_dynamic": "fp8",
    "modelopt": "fp8",
    "modelopt_fp4": "nvfp4",
    "fbgemm_fp8": "fp8",
    "fp4": "nvfp4",
}
"""What vLLM's --quantization and --dtype, and the names in files, mean here."""

TYPES = ("auto", "bfloat16", "float16", "float32", "half", "float", "bf16", "fp16")
"""What --dtype may be."""

SUFFIXES: tuple[tuple[str, str], ...] = (
    ("-fp8-dynamic", "fp8"),
    ("-fp8-block", "fp8_block"),
    ("-fp8-kv", "fp8"),
    ("-fp8", "fp8"),
    ("-quantized.w8a8", "int8"),
    ("-quantized.w4a16", "w4a16"),
    ("-quantized.w8a16", "gptq_int8"),
    ("-w8a8", "int8"),
    ("-w4a16", "w4a16"),
    ("-gptq-int4", "int4"),
    ("-gptq-int8", "gptq_int8"),
    ("-gptq", "int4"),
    ("-awq-int4", "int4"),
    ("-awq", "int4"),
    ("-int4", "int4"),
    ("-int8", "int8"),
    ("-nvfp4", "nvfp4"),
    ("-fp4", "nvfp4"),
    ("-unsloth-bnb-4bit", "bnb_4bit"),
    ("-bnb-4bit", "bnb_4bit"),
)
"""How the names of quantised copies of a model end, and what that says."""


def scheme(name: str) -> Scheme | None:
    """The scheme of this name or spelling, None if there is none."""
    folded = name.lower().replace("-", "_")
    wanted = SPELLINGS.get(folded, folded)
    return next((one for one in SCHEMES if one.name == wanted), None)


def of_name(model: str) -> tuple[str, str]:
    """(name without the ending, scheme) of a quantised copy's name; the scheme is "" where the name says nothing."""
    for ending, found in SUFFIXES:
        if model.lower().endswith(ending):
            return model[: -len(ending)], found
    return model, ""


def of_config(config: Mapping[str, Any]) -> str:
    """The scheme that quantization_config of a config.json names, "" for none or one that is not known."""
    said = config.get("quantization_config") or config.get("compression_config")
    if not isinstance(said, Mapping):
        text = config.get("text_config")
        return of_config(text) if isinstance(text, Mapping) else ""
    method = str(said.get("quant_method", "")).lower().replace("-", "_")
    bits = said.get("bits") or said.get("w_bit")
    if method == "compressed_tensors":
        return _compressed(said)
    if method == "fp8":
        return "fp8_block" if said.get("weight_block_size") else "fp8"
    if method in ("gptq", "auto_round") and bits == 8:
        return "gptq_int8"
    if method == "bitsandbytes":
        return "bnb_4bit" if said.get("load_in_4bit") or said.get("_load_in_4bit") else "int8"
    if method == "modelopt":
        return "nvfp4" if "FP4" in str(said.get("quant_algo", "")).upper() else "fp8"
    found = scheme(method)
    return found.name if found else ""


def _compressed(said: Mapping[str, Any]) -> str:
    """compressed-tensors: the first group's weights say it."""
    groups = said.get("config_groups")
    first: Any = next(iter(groups.values()), None) if isinstance(groups, Mapping) else None
    weights: Mapping[str, Any] = (first.get("weights") or {}) if isinstance(first, Mapping) else {}
    if weights.get("type") == "float":
        if weights.get("num_bits") == 4:
            return "nvfp4"
        return "fp8_block" if weights.get("strategy") == "block" else "fp8"
    if weights.get("num_bits") == 4:
        ignored = " ".join(map(str, said.get("ignore") or ()))
        return "w4a16_experts" if "self_attn" in ignored and "shared" in ignored else "w4a16"
    return "int8"


END = r"(\.\*|\*|$)"
SPARED = (
    (rf"(linear_attn|mamba|mixer){END}", "l", ("linear",)),
    (rf"(linear_attn|mamba|mixer)\.in_proj(_qkvz?|_z)?{END}", "l", ("linear in",)),
    (rf"(linear_attn|mamba|mixer)\.out_proj{END}", "l", ("linear out",)),
    (
        rf"self_attn(\.(q|qkv|q_b)_proj)?{END}",
        "fw",
        ("qkv", "output", "compression", "queries", "keys and values"),
    ),
    (rf"shared_experts?(\.\w+_proj)?{END}", "m", ("shared",)),
    (rf"\bmlp(\.(gate|up|gate_up|down)_proj)?{END}", "dm", ("up", "down", "shared")),
)
"""How the names of modules end that a file spares from quantisation, the letters of the layers that have such modules,
and how the names of their tensors in `architectures` begin."""

MOST = 0.75
"""Files that name layers one by one spare what they name in at least this share of the layers that have it."""


def spared(config: Mapping[str, Any], letters: str) -> tuple[str, ...]:
    """How names of tensors begin that quantization_config leaves in 16 bits; `letters`: of all mixers and MLPs."""
    said = config.get("quantization_config") or config.get("compression_config")
    if not isinstance(said, Mapping):
        text = config.get("text_config")
        return spared(text, letters) if isinstance(text, Mapping) else ()
    lists = [said.get(field) for field in ("ignore", "modules_to_not_convert", "exclude_modules")]
    names = [str(name).replace("\\", "") for some in lists if isinstance(some, Sequence) for name in some]
    found: list[str] = []
    for pattern, kinds, tensors in SPARED:
        hits = [name for name in names if re.search(pattern, name)]
        numbers = {number for name in hits for number in re.findall(r"layers\.(\d+)\.", name)}
        having = sum(letters.count(letter) for letter in kinds)
        general = any(not re.search(r"layers\.\d+\.", name) for name in hits)
        if hits and (general or len(numbers) >= MOST * having):
            found += tensors
    return tuple(found)
