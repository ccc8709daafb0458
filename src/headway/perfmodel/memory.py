"""Where a GPU's memory goes when an engine starts, how many tokens of KV cache are left, and whether it starts at all.

Sums only; the parts come from `weights`, `activation`, `kv`, `overhead` and `versions`. The accounting is vLLM's own:
what was asked for (utilisation times the card), less weights, less the activation peak of a profiling run, less what
CUDA and NCCL take outside the allocator, less CUDA graphs where the version counts them, is the KV pool, cut into
blocks; the engine refuses to start when a sequence of max_model_len would not fit. docs/memory.md has the errors on
real logs.
"""

from typing import TypedDict, Unpack

import msgspec

from headway.perfmodel import activation, kv, overhead, weights
from headway.perfmodel.architectures import Architecture
from headway.perfmodel.gpus import GIB, Gpu
from headway.perfmodel.kv import Layout, kv_bytes_per_token
from headway.perfmodel.quantisation import Scheme, scheme
from headway.perfmodel.versions import LATEST, rules
from headway.perfmodel.weights import Stage, stages

__all__ = ["LATEST", "MemoryPlan", "Settings", "kv_bytes_per_token", "plan", "weights_bytes"]

WEIGHTS, ACTIVATIONS, OUTSIDE, GRAPHS = "weights", "activations", "outside PyTorch", "CUDA graphs"
"""What takes memory beside the pool."""


class Asked(TypedDict, total=False):
    """Settings of an engine, named as vLLM's flags are; 0 and "auto" are its defaults."""

    precision: str
    tp: int
    pp: int
    utilization: float
    kv_dtype: str
    block_size: int
    max_num_seqs: int
    max_num_batched_tokens: int
    max_model_len: int
    version: str
    eager: bool


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Asked, with defaults. `precision`: a name of `quantisation`, "auto": the checkpoint's own."""

    precision: str = "auto"
    tp: int = 1
    pp: int = 1
    utilization: float = 0.0
    kv_dtype: str = "auto"
    block_size: int = 16
    max_num_seqs: int = 0
    max_num_batched_tokens: int = 0
    max_model_len: int = 0
    version: str = LATEST
    eager: bool = False


class MemoryPlan(msgspec.Struct, frozen=True):
    """Bytes per GPU (of the pipeline stage with the least room), and the pool. `reason` says why it fits or not.

    `window_bytes_per_token` is the part of `kv_bytes_per_token` that layers with a window keep (0 where a version gives
    them as much as full attention), and `state_bytes_per_sequence` what linear layers keep of a sequence, however long.
    `kv_bytes` is the pool, negative where weights and the rest exceed what was asked for (the emulator and tables show
    0); `kv_tokens` its size as the engine prints it; `max_model_len`, `max_num_seqs` and `max_num_batched_tokens` what
    was asked or the version's defaults.
    """

    total_bytes: int
    requested_bytes: int
    weights_bytes: int
    activation_bytes: int
    non_torch_bytes: int
    cuda_graph_bytes: int
    graphs_counted: bool
    kv_bytes: int
    kv_bytes_per_token: int
    window_bytes_per_token: int
    state_bytes_per_sequence: int
    kv_blocks: int
    kv_tokens: int
    layout: Layout
    max_model_len: int
    max_num_seqs: int
    max_num_batched_tokens: int
    fits: bool
    reason: str

    @property
    def block_size(self) -> int:
        """Tokens a block holds."""
        return self.layout.block_size

    def concurrency(self, tokens: int) -> float:
        """Sequences of this many tokens that fit into the pool at once."""
        return self.kv_blocks / self.layout.blocks_of(tokens)


def plan(model: Architecture, gpu: Gpu, **asked: Unpack[Asked]) -> MemoryPlan:
    """What an engine would find at start. Raises BadVersion, or ValueError for sizes that no engine accepts."""
    settings = Settings(**asked)
    _check(model, settings)
    one = resolve(model, settings.precision)
    stage_plans = [_stage(model, gpu, settings, one, stage) for stage in stages(model.layers, settings.pp)]
    return min(stage_plans, key=lambda stage_plan: (stage_plan.kv_blocks, stage_plan.kv_bytes))


def weights_bytes(model: Architecture, precision: str = "auto", tp: int = 1) -> int:
    """Bytes of weights per GPU without pipeline parallelism."""
    return weights.weights_bytes(model, resolve(model, precision), tp)


def resolve(model: Architecture, precision: str) -> Scheme:
    """The weight format: what was asked for, else the checkpoint's. Raises ValueError for an unknown name."""
    name = precision if precision != "auto" else model.quantisation or model.dtype
    found = scheme(name)
    if found is None:
        raise ValueError(f"unknown weight format {name!r}")
    return found


def _check(model: Architecture, settings: Settings) -> None:
    if min(settings.tp, settings.pp, settings.block_size) < 1:
        raise ValueError("parallel sizes and block size must be at least 1")
    if model.heads % settings.tp:
        raise ValueError(
            f"{model.heads} attention heads cannot be split over {settings.tp} GPUs (tensor parallel size)"
        )
    if settings.pp > model.layers:
        raise ValueError(f"{model.layers} layers cannot be split over {settings.pp} pipeline stages")
    if not 0 <= settings.utilization <= 1:
        raise ValueError(f"utilisation {settings.utilization} is not between 0 and 1")


def _stage(model: Architecture, gpu: Gpu, settings: Settings, one: Scheme, stage: Stage) -> MemoryPlan:
    version = rules(settings.version)
    length = settings.max_model_len or model.max_position
    seqs, batched = version.batch(gpu, length)
    seqs, batched = settings.max_num_seqs or seqs, settings.max_num_batched_tokens or batched
    layout = kv.layout(
        model,
        version,
        kv_dtype=settings.kv_dtype,
        tp=settings.tp,
        block_size=settings.block_size,
        max_num_batched_tokens=batched,
        letters=model.mixer_letters[stage.start : stage.end],
    )
    parts = _parts(
        model,
        gpu,
        settings,
        one,
        stage,
        activation.Run(seqs, batched, settings.tp, stage.first, stage.last, length, settings.eager),
    )
    requested = int((settings.utilization or version.utilization) * gpu.memory_bytes)
    counted = version.graphs_counted(model, one.bits < 16)
    uncounted = 0 if counted else parts[GRAPHS]
    windowed = version.hybrid or not model.full_layers
    left = requested - sum(parts.values()) + uncounted
    blocks = max(0, left // layout.block_bytes)
    fits, reason = _verdict(gpu, requested, requested - parts[ACTIVATIONS] + uncounted, parts, left, layout, length)
    return MemoryPlan(
        total_bytes=gpu.memory_bytes,
        requested_bytes=requested,
        weights_bytes=parts[WEIGHTS],
        activation_bytes=parts[ACTIVATIONS],
        non_torch_bytes=parts[OUTSIDE],
        cuda_graph_bytes=parts[GRAPHS],
        graphs_counted=counted,
        kv_bytes=left,
        kv_bytes_per_token=kv_bytes_per_token(model, settings.kv_dtype, settings.tp),
        window_bytes_per_token=kv.window_bytes_per_token(model, settings.kv_dtype, settings.tp) if windowed else 0,
        state_bytes_per_sequence=model.linear_layers * kv.state_bytes(model, settings.tp),
        kv_blocks=blocks,
        kv_tokens=layout.reported_tokens(blocks, length, version),
        layout=layout,
        max_model_len=length,
        max_num_seqs=seqs,
        max_num_batched_tokens=batched,
        fits=fits,
        reason=reason,
    )


def _parts(
    model: Architecture, gpu: Gpu, settings: Settings, one: Scheme, stage: Stage, run: activation.Run
) -> dict[str, int]:
    """Bytes on a GPU of the stage, by what they are for."""
    version = rules(settings.version)
    return {
        WEIGHTS: weights.weights_bytes(model, one, settings.tp, stage, version)
        + overhead.loading_bytes(model, version, gpu, run.tokens),
        ACTIVATIONS: activation.activation_bytes(model, gpu, version, one, run),
        OUTSIDE: overhead.non_torch_bytes(
            gpu,
            version,
            model.hidden,
            settings.tp,
            settings.pp,
            settings.eager,
            version.graphs_profiled(model, one.bits < 16),
        ),
        GRAPHS: 0
        if settings.eager
        else overhead.cuda_graph_bytes(
            model, stage.end - stage.start, version, run.seqs, version.graphs_counted(model, one.bits < 16)
        ),
    }


def _verdict(
    gpu: Gpu, requested: int, running: int, parts: dict[str, int], left: int, layout: Layout, length: int
) -> tuple[bool, str]:
    """Whether the engine starts, and the sentence that says why. `running`: bytes taken when graphs are captured; the
    activations of the profiling run are free again by then."""
    if parts[WEIGHTS] + parts[OUTSIDE] > gpu.memory_bytes:
        return False, f"the weights alone take {gib(parts['weights'])} of a card with {gib(gpu.memory_bytes)}"
    if left <= 0:
        sums = ", ".join(f"{what} {gib(size)}" for what, size in parts.items() if size)
        return False, f"nothing is left for the KV cache: {gib(requested)} asked for, {sums}"
    if running > gpu.memory_bytes:
        return False, f"CUDA graphs ({gib(parts['CUDA graphs'])}) come on top of {gib(requested)} and exceed the card"
    needed = layout.bytes_of(length)
    if needed > left:
        return False, f"one sequence of {length:,} tokens needs {gib(needed)} of KV cache, {gib(left)} are left"
    at_once = left // layout.block_bytes / layout.blocks_of(length)
    return True, f"{gib(left)} of KV cache hold {at_once:.2f} sequences of {length:,} tokens"


def gib(size: float) -> str:
    """1.23 GiB"""
    return f"{size / GIB:.2f} GiB"
