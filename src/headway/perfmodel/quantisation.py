"""Weight formats: how many bytes a parameter takes, with its scales and zero points, and which matrices stay wide.

Quantised checkpoints keep embeddings, the head, norms, routers and vision towers in 16 bits; formats marked `experts`
touch the routed experts only. Bytes per parameter are of the packed checkpoint as an engine loads it.
"""

import re
from collections.abc import Callable, Mapping, Sequence
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
    # OCP MX in all linear layers, with 4 and with 8 bits.
    Scheme("mxfp4_all", 4, group=32, scale_bytes=1.0),
    Scheme("mxfp8", 8, group=32, scale_bytes=1.0, flops="fp8"),
    # NVIDIA NVFP4: 4 bits, an fp8 scale per 16.
    Scheme("nvfp4", 4, group=16, scale_bytes=1.0),
    # 8-bit integers in the experts only (vLLM's experts_int8).
    Scheme("experts_int8", 8, experts=True, flops="int8"),
)

PACKED = re.compile(r"(int|w)([2-8])(?:a16)?_(?:g(\d{1,5})|channel)")
"""Integer formats of any width and group: `int3_g64` (with zero points), `w8a16_g128` (without), `int4_channel`."""

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


class UnknownFormat(ValueError):
    """A weight format that is not known; the message says which are."""


def scheme(name: str) -> Scheme | None:
    """The scheme of this name or spelling, None if there is none."""
    folded = name.lower().replace("-", "_")
    wanted = SPELLINGS.get(folded, folded)
    found = next((one for one in SCHEMES if one.name == wanted), None)
    packed = PACKED.fullmatch(wanted) if found is None else None
    if packed is None:
        return found
    bits, group, zero = int(packed[2]), int(packed[3] or 0), packed[1] == "int"
    return Scheme(wanted, bits, group=group, scale_bytes=2.0, zero_bits=bits if zero else 0.0)


def packed(bits: Any, group: Any, zero: bool, most: str, known: Sequence[int]) -> str:
    """Name of an integer format: `bits` per weight, one scale per `group` (-1: per output channel), with a `zero` point
    or without. `most`: whose format it is. Raises UnknownFormat."""
    if isinstance(bits, bool) or bits not in known:
        words = " or ".join(map(str, known))
        raise UnknownFormat(f"{most} with bits = {bits!r} is not known: {words} bits are")
    if isinstance(group, bool) or not isinstance(group, int) or not (group == -1 or 0 < group <= 65536):
        raise UnknownFormat(f"{most} with group_size = {group!r} is not known: -1, or 1 to 65,536 weights")
    usual = {(4, 128, True): "int4", (8, 128, True): "gptq_int8", (4, 128, False): "w4a16"}
    named = "int{}_" if zero else "w{}a16_"
    return usual.get((bits, group, zero), named.format(bits) + (f"g{group}" if group > 0 else "channel"))


def of_name(model: str) -> tuple[str, str]:
    """(name without the ending, scheme) of a quantised copy's name; the scheme is "" where the name says nothing."""
    for ending, found in SUFFIXES:
        if model.lower().endswith(ending):
            return model[: -len(ending)], found
    return model, ""


def said_of(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """quantization_config of a config.json, of its text part where that has it; empty for none. Raises UnknownFormat
    where it is no object."""
    said = config.get("quantization_config") or config.get("compression_config")
    if said is None and isinstance(config.get("text_config"), Mapping):
        return said_of(config["text_config"])
    if said and not isinstance(said, Mapping):
        raise UnknownFormat(f"quantization_config is {said!r:.60}, not an object")
    return said or {}


def of_config(config: Mapping[str, Any]) -> str:
    """The scheme that quantization_config of a config.json names, "" for none. Raises UnknownFormat."""
    said = said_of(config)
    if not said:
        return ""
    method = str(said.get("quant_method", "")).lower().replace("-", "_")
    if not method and isinstance(said.get("quantization"), Mapping):
        method = "modelopt"  # the older form of its files
    reader = READERS.get("modelopt" if method.startswith("modelopt") else method.removeprefix("intel/"))
    if reader is not None:
        return reader(said)
    found = scheme(PLAIN.get(method, ""))
    if found is None:
        known = ", ".join(sorted({*READERS, *PLAIN}))
        raise UnknownFormat(f"quant_method {method!r} is not known; known: {known}")
    return found.name


def kv_of_config(config: Mapping[str, Any]) -> tuple[str, int]:
    """(type of the KV cache that the checkpoint asks for, "" for none; first minor version of vLLM that obeys where the
    engine's own flag says auto). compressed-tensors since 0.15, ModelOpt since 0.14 (read in these versions' source).
    """
    said = said_of(config)
    method = str(said.get("quant_method", "")).lower().replace("-", "_")
    inner = said.get("quantization")
    parts = (inner, said) if isinstance(inner, Mapping) else (said,)
    if method == "compressed_tensors":
        return ("fp8", 15) if isinstance(said.get("kv_cache_scheme"), Mapping) else ("", 0)
    if not method.startswith("modelopt") and method:
        return "", 0
    for part in parts:
        asked = part.get("kv_cache_scheme") or part.get("kv_cache_quant_algo")
        if isinstance(asked, Mapping):
            asked = {8: "fp8", 4: "nvfp4"}.get(asked.get("num_bits", 0)) if asked.get("type") == "float" else None
        if asked and str(asked).lower() in ("fp8", "nvfp4"):
            return str(asked).lower(), 14
    return "", 0


def _fp8(said: Mapping[str, Any]) -> str:
    return "fp8_block" if said.get("weight_block_size") else "fp8"


def _gptq(said: Mapping[str, Any]) -> str:
    return packed(said.get("bits", 4), said.get("group_size", 128), True, "GPTQ", (2, 3, 4, 8))


def _awq(said: Mapping[str, Any]) -> str:
    bits, group = said.get("bits", said.get("w_bit", 4)), said.get("group_size", said.get("q_group_size", 128))
    return packed(bits, group, bool(said.get("zero_point", True)), "AWQ", (4, 8))


def _auto_round(said: Mapping[str, Any]) -> str:
    sort, bits = str(said.get("data_type", "int")), said.get("bits", 4)
    if "mx_fp" in sort and bits in (4, 8):
        return "mxfp4_all" if bits == 4 else "mxfp8"
    if "nv_fp" in sort and bits == 4:
        return "nvfp4"
    if sort.startswith("fp") and bits == 8:
        return "fp8"
    if sort != "int":
        raise UnknownFormat(f"auto-round with data_type {sort!r} is not known: int, fp, mx_fp and nv_fp are")
    return packed(bits, said.get("group_size", 128), True, "auto-round", (2, 3, 4, 5, 6, 7, 8))


def _bitsandbytes(said: Mapping[str, Any]) -> str:
    return "bnb_4bit" if said.get("load_in_4bit") or said.get("_load_in_4bit") else "int8"


def _modelopt(said: Mapping[str, Any]) -> str:
    inner = said.get("quantization")
    method = str(said.get("quant_method", "")).lower()
    algorithm = (inner if isinstance(inner, Mapping) else said).get("quant_algo") or said.get("quant_algo")
    default = {"modelopt_fp4": "NVFP4", "modelopt_mxfp8": "MXFP8"}.get(method, "FP8")
    named = str(algorithm or default).upper()
    if named not in MODELOPT:
        raise UnknownFormat(f"ModelOpt's quant_algo {algorithm!r} is not known: {', '.join(MODELOPT)} are")
    return MODELOPT[named]


def _hqq(said: Mapping[str, Any]) -> str:
    inner = said.get("quant_config")
    weights = inner.get("weight_quant_params") if isinstance(inner, Mapping) else None
    weights = weights if isinstance(weights, Mapping) else {}
    return packed(weights.get("nbits", 4), weights.get("group_size", 64) or -1, True, "HQQ", (4, 8))


def _torchao(said: Mapping[str, Any]) -> str:
    inner = said.get("quant_type")
    inner = inner.get("default", inner) if isinstance(inner, Mapping) else inner
    sort = str(inner.get("_type", "")) if isinstance(inner, Mapping) else str(inner)
    details = inner.get("_data") if isinstance(inner, Mapping) else None
    if sort in ("Int4WeightOnlyConfig", "int4_weight_only"):
        group = details.get("group_size", 128) if isinstance(details, Mapping) else 128
        return packed(4, group, True, "torchao's int4", (4,))
    if sort not in TORCHAO:
        raise UnknownFormat(f"torchao's {sort!r} is not known: Int4WeightOnlyConfig, {', '.join(TORCHAO)} are")
    return TORCHAO[sort]


def _quark(said: Mapping[str, Any]) -> str:
    layers = said.get("global_quant_config")
    weight = layers.get("weight") if isinstance(layers, Mapping) else None
    one: Any = weight[0] if isinstance(weight, list) and len(weight) == 1 else weight
    sort = str(one.get("dtype", "")) if isinstance(one, Mapping) else ""
    if sort == "fp4" and one.get("group_size", 32) == 32:
        return "mxfp4_all"
    if sort in ("fp8_e4m3", "int8"):
        return sort[:4].removesuffix("_")
    raise UnknownFormat(f"Quark's weights of type {sort!r} are not known: fp4 in groups of 32, fp8_e4m3 and int8 are")


def _compressed(said: Mapping[str, Any]) -> str:
    """compressed-tensors: what all groups of weights have in common."""
    groups = said.get("config_groups")
    listed = list(groups.values()) if isinstance(groups, Mapping) else []
    weights = [one.get("weights") for one in listed if isinstance(one, Mapping)]
    found = {_group(one, said) for one in weights if isinstance(one, Mapping)}
    if len(found) > 1:
        raise UnknownFormat(f"compressed-tensors with groups of several formats ({', '.join(sorted(found))})")
    return found.pop() if found else "int8"


def _group(weights: Mapping[str, Any], said: Mapping[str, Any]) -> str:
    """Format of one group of layers."""
    bits, sort, group = weights.get("num_bits"), weights.get("type"), weights.get("group_size")
    if sort == "float" and bits in (4, 8):
        if bits == 4:
            return "mxfp4_all" if group == 32 else "nvfp4"
        block = "fp8_block" if weights.get("strategy") == "block" else "fp8"
        return "mxfp8" if group == 32 and weights.get("strategy") == "group" else block
    if sort == "float":
        raise UnknownFormat(f"compressed-tensors with floats of {bits!r} bits: 4 and 8 are known")
    in_groups = weights.get("strategy") == "group" or isinstance(group, int)
    if bits == 8 and not in_groups:
        return "int8"
    name = packed(bits, group if in_groups else 128, not weights.get("symmetric", True), "compressed-tensors", BITS)
    ignored = " ".join(map(str, said.get("ignore") or ()))
    return "w4a16_experts" if bits == 4 and "self_attn" in ignored and "shared" in ignored else name


BITS = (2, 3, 4, 5, 6, 7, 8)
MODELOPT = {
    "FP8": "fp8",
    "FP8_PER_CHANNEL_PER_TOKEN": "fp8",
    "FP8_PB_WO": "fp8_block",
    "NVFP4": "nvfp4",
    "MXFP8": "mxfp8",
    "NVFP4_AWQ": "nvfp4",
    "W4A16_NVFP4": "nvfp4",
}
TORCHAO = {
    "Int8WeightOnlyConfig": "int8",
    "Int8DynamicActivationInt8WeightConfig": "int8",
    "Float8WeightOnlyConfig": "fp8",
    "Float8DynamicActivationFloat8WeightConfig": "fp8",
    "int8_weight_only": "int8",
    "float8_weight_only": "fp8",
}
READERS: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
    "compressed_tensors": _compressed,
    "fp8": _fp8,
    "gptq": _gptq,
    "gptq_marlin": _gptq,
    "awq": _awq,
    "awq_marlin": _awq,
    "auto_round": _auto_round,
    "inc": _auto_round,
    "bitsandbytes": _bitsandbytes,
    "modelopt": _modelopt,
    "hqq": _hqq,
    "torchao": _torchao,
    "quark": _quark,
}
PLAIN = {
    "mxfp4": "mxfp4",
    "gpt_oss_mxfp4": "mxfp4",
    "fbgemm_fp8": "fp8",
    "ptpc_fp8": "fp8",
    "experts_int8": "experts_int8",
    "mxfp8": "mxfp8",
}
"""Methods that need no further field."""


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
    said = said_of(config)
    inner = said.get("quantization")
    said = {**inner, **said} if isinstance(inner, Mapping) else said
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
