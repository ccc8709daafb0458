"""What an engine refuses, whatever memory is left: lengths above the model's own, splits that do not come out even, and
starts that fail after the pool was taken.

The rules are vLLM's, read in its source: `verify_with_parallel_config` and the assertions of its layers,
`_get_and_verify_max_len`, the check of free memory when a worker begins, and `compile_or_warm_up_model`.
"""

import msgspec

from headway.perfmodel import weights
from headway.perfmodel.architectures import Architecture
from headway.perfmodel.gpus import GIB, Gpu
from headway.perfmodel.kv import Layout
from headway.perfmodel.versions import LATEST, rules

WEIGHTS, ACTIVATIONS, OUTSIDE, GRAPHS = "weights", "activations", "outside PyTorch", "CUDA graphs"
"""What takes memory beside the pool."""


def whole_parts(model: Architecture, tp: int) -> str:
    """Why the engine cannot split this model over `tp` GPUs, "" where it can: heads, vocabulary (padded to 64) and MLPs
    are split evenly, KV heads evenly or copied evenly (vLLM's `divide` and the assertions of its attention layers)."""
    kv_heads = () if model.latent else (model.kv_heads, model.window_kv_heads or model.kv_heads)
    table = -(-model.vocab // weights.VOCABULARY_PADDING) * weights.VOCABULARY_PADDING
    evenly = [
        ("attention heads", model.heads),
        ("attention heads", model.queries_of("w")),
        ("rows of the padded vocabulary", table),
    ]
    if "d" in model.mlp_letters:
        evenly.append(("columns of an MLP", model.intermediate))
    for what, size in evenly:
        if size % tp:
            return f"{size} {what} cannot be split over {tp} GPUs (tensor parallel size)"
    for heads in kv_heads:
        if heads % tp and tp % heads:
            return f"{heads} KV heads can neither be split over {tp} GPUs nor copied evenly (tensor parallel size)"
    return ""


def longest(model: Architecture, version: str = LATEST) -> int:
    """The longest max_model_len that this version accepts; YaRN's files mean another one before 0.30."""
    if model.context is None:
        return model.max_position
    return model.context.longest if rules(version).minor >= 30 else model.context.before


def default_length(model: Architecture, version: str = LATEST) -> int:
    """max_model_len where none is asked for; since 0.12 LongRoPE begins with its original length."""
    if model.context is None or rules(version).minor < 12 or model.context.start == model.context.longest:
        return longest(model, version)
    return model.context.start


def kv_type(model: Architecture, kv_dtype: str, version: str = LATEST) -> str:
    """The type of the cache: what is asked for, else what the checkpoint asks for in versions that obey. Raises
    ValueError for a checkpoint that asks for one that is not modelled."""
    if kv_dtype != "auto" or not model.kv_dtype or rules(version).minor < model.kv_since:
        return kv_dtype
    if model.kv_dtype == "nvfp4":
        raise ValueError("the checkpoint asks for an NVFP4 KV cache, which is not modelled: state --kv-cache-dtype")
    return model.kv_dtype


def open_ended(model: Architecture) -> bool:
    """Whether any max_model_len may be asked for: the file names no length."""
    return model.context is not None and model.context.open_ended


class Bound(msgspec.Struct, frozen=True):
    """Bytes `requested`, `free` when the engine begins to count, taken while graphs are captured (`running`: the
    activations of the profiling run are free again), `held` by all that is on the card when `sampler` bytes are tried
    for `seqs` sequences; `longest` max_model_len, 0 for any."""

    requested: int
    free: int
    running: int
    held: int
    sampler: int
    seqs: int
    longest: int


def verdict(gpu: Gpu, bound: Bound, parts: dict[str, int], left: int, layout: Layout, length: int) -> tuple[bool, str]:
    """Whether the engine starts, and the sentence that says why."""
    if bound.longest and length > bound.longest:
        words = "vLLM refuses it unless VLLM_ALLOW_LONG_MAX_MODEL_LEN=1 is set or rope scaling is overridden"
        return False, f"max_model_len {length:,} is above the model's own {bound.longest:,}: {words}"
    if bound.free <= 0:
        return False, f"CUDA and communicators alone take more than the card's {gib(gpu.memory_bytes)}"
    if parts[WEIGHTS] + parts[OUTSIDE] > gpu.memory_bytes:
        return False, f"the weights alone take {gib(parts[WEIGHTS])} of a card with {gib(gpu.memory_bytes)}"
    if bound.requested > bound.free:
        words = f"{gib(bound.free)} are free once CUDA and communicators are loaded"
        return False, f"{gib(bound.requested)} are asked for and {words}: ask for less --gpu-memory-utilization"
    if left <= 0:
        sums = ", ".join(f"{what} {gib(size)}" for what, size in parts.items() if size)
        return False, f"nothing is left for the KV cache: {gib(bound.requested)} asked for, {sums}"
    if bound.running > gpu.memory_bytes:
        return False, f"CUDA graphs ({gib(parts[GRAPHS])}) come on top of {gib(bound.requested)} and exceed the card"
    needed = layout.bytes_of(length)
    if needed > left:
        return False, f"one sequence of {length:,} tokens needs {gib(needed)} of KV cache, {gib(left)} are left"
    if bound.held + bound.sampler > gpu.memory_bytes:
        free = max(0, gpu.memory_bytes - bound.held)
        words = (
            f"the sampler is warmed up for {bound.seqs:,} sequences in {gib(bound.sampler)}, {gib(free)} are free then"
        )
        return False, f"{words}: ask for less --gpu-memory-utilization or --max-num-seqs"
    at_once = left // layout.block_bytes / layout.blocks_of(length)
    return True, f"{gib(left)} of KV cache hold {at_once:.2f} sequences of {length:,} tokens"


def gib(size: float) -> str:
    """1.23 GiB"""
    return f"{size / GIB:.2f} GiB"
