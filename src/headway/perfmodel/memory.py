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
from headway.perfmodel.gpus import Gpu
from headway.perfmodel.kv import Layout, kv_bytes_per_token
from headway.perfmodel.memory_limits import (
    ACTIVATIONS,
    GRAPHS,
    OUTSIDE,
    WEIGHTS,
    Bound,
    default_length,
    kv_type,
    longest,
    open_ended,
    verdict,
    whole_parts,
)
from headway.perfmodel.quantisation import Scheme, scheme
from headway.perfmodel.versions import LATEST, rules
from headway.perfmodel.weights import Stage, stages

__all__ = ["LATEST", "MemoryPlan", "Settings", "kv_bytes_per_token", "plan", "stage_plans", "weights_bytes"]


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
    allow_long: bool


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Asked, with defaults. `precision`: a name of `quantisation`, "auto": the checkpoint's own. `allow_long`: lengths
    above the model's own are allowed (VLLM_ALLOW_LONG_MAX_MODEL_LEN, or overrides of the file)."""

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
    allow_long: bool = False


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
    return min(stage_plans(model, gpu, **asked), key=lambda one: (one.kv_blocks, one.kv_bytes))


def stage_plans(model: Architecture, gpu: Gpu, **asked: Unpack[Asked]) -> list[MemoryPlan]:
    """The plan of every pipeline stage, in order. Raises like `plan`."""
    settings = Settings(**asked)
    _check(model, settings)
    one = resolve(model, settings.precision)
    return [_stage(model, gpu, settings, one, stage) for stage in stages(model.layers, settings.pp)]


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
    words = whole_parts(model, settings.tp)
    if words:
        raise ValueError(words)
    if settings.pp > model.layers:
        raise ValueError(f"{model.layers} layers cannot be split over {settings.pp} pipeline stages")
    if not 0 <= settings.utilization <= 1:
        raise ValueError(f"utilisation {settings.utilization} is not between 0 and 1")


def _stage(model: Architecture, gpu: Gpu, settings: Settings, one: Scheme, stage: Stage) -> MemoryPlan:
    version = rules(settings.version)
    length = settings.max_model_len or default_length(model, settings.version)
    kv_dtype = kv_type(model, settings.kv_dtype, settings.version)
    seqs, batched = version.batch(gpu, length)
    seqs, batched = settings.max_num_seqs or seqs, settings.max_num_batched_tokens or batched
    letters = kv.caching(model)[stage.start : stage.end]
    layout = kv.layout(
        model,
        version,
        kv_dtype=kv_dtype,
        tp=settings.tp,
        block_size=settings.block_size,
        max_num_batched_tokens=batched,
        letters=letters,
    )
    run = activation.Run(seqs, batched, settings.tp, stage.first, stage.last, length, settings.eager, settings.pp)
    parts = _parts(model, gpu, settings, one, stage, run)
    requested = int((settings.utilization or version.utilization) * gpu.memory_bytes)
    counted = version.graphs_counted(model, one.bits < 16)
    uncounted = 0 if counted else parts[GRAPHS]
    left = requested - sum(parts.values()) + uncounted
    blocks = max(0, left // layout.block_bytes)
    bound = _bound(model, gpu, settings, one, run, (requested, requested - parts[ACTIVATIONS] + uncounted))
    fits, reason = verdict(gpu, bound, parts, left, layout, length)
    return MemoryPlan(
        total_bytes=gpu.memory_bytes,
        requested_bytes=requested,
        weights_bytes=parts[WEIGHTS],
        activation_bytes=parts[ACTIVATIONS],
        non_torch_bytes=parts[OUTSIDE],
        cuda_graph_bytes=parts[GRAPHS],
        graphs_counted=counted,
        kv_bytes=left,
        kv_bytes_per_token=kv_bytes_per_token(model, kv_dtype, settings.tp, letters),
        window_bytes_per_token=kv.window_bytes_per_token(model, kv_dtype, settings.tp, letters)
        if version.hybrid or "f" not in letters
        else 0,
        state_bytes_per_sequence=letters.count("l") * kv.state_bytes(model, settings.tp),
        kv_blocks=blocks,
        kv_tokens=layout.reported_tokens(blocks, length, version),
        layout=layout,
        max_model_len=length,
        max_num_seqs=seqs,
        max_num_batched_tokens=batched,
        fits=fits,
        reason=reason,
    )


def _bound(
    model: Architecture, gpu: Gpu, settings: Settings, one: Scheme, run: activation.Run, sums: tuple[int, int]
) -> Bound:
    """What the start must not exceed; `sums`: bytes asked for, and of these taken when graphs have been captured."""
    version, (requested, taken) = rules(settings.version), sums
    before = overhead.before_counting_bytes(gpu, version, model.experts is not None, settings.tp, settings.pp)
    return Bound(
        requested=requested,
        free=gpu.memory_bytes - (0 if version.first else before),
        running=before + taken,
        held=before + taken + overhead.stranded_bytes(gpu, version, one.name == "mxfp4", settings.tp),
        sampler=activation.warm_up_bytes(model, gpu, version, one, run),
        seqs=run.seqs,
        longest=0 if settings.allow_long or open_ended(model) else longest(model, settings.version),
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
