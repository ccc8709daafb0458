"""Where a GPU's memory goes when an engine starts, and how many tokens of KV cache are left.

Sums only; what a step costs in time is in `steptime`. The accounting is vLLM's own: what was asked for (utilisation
times the card), less weights, less the activation peak of a profiling run, less what CUDA and NCCL take outside the
allocator, is the KV pool, cut into blocks; CUDA graphs are not part of it. Against 24 start-up logs of dense models
the pool in tokens is off by 0.05 % in the median and 16 % at worst (docs/perfmodel.md).
"""

import msgspec

from headway.perfmodel.architectures import Architecture
from headway.perfmodel.catalogue import WEIGHT_BYTES
from headway.perfmodel.gpus import GIB, Gpu

ACTIVATION_PER_LOGIT = 3.85 * 4
"""Bytes per sequence and vocabulary entry in the profiling run's sampler (fitted by the logs of vLLM >= 0.17)."""

NON_TORCH_BYTES = {1: int(0.25 * GIB), 2: int(2.10 * GIB), 4: int(2.21 * GIB), 8: int(2.30 * GIB)}
"""CUDA context, NCCL and custom all-reduce buffers by tensor-parallel size (vLLM 0.19 logs; 8 extrapolated)."""


class MemoryPlan(msgspec.Struct, frozen=True):
    """Bytes per GPU, and the pool in tokens. `kv_tokens` is 0 when the model does not fit (`fits` is False)."""

    total_bytes: int
    requested_bytes: int
    weights_bytes: int
    activation_bytes: int
    non_torch_bytes: int
    kv_bytes: int
    kv_bytes_per_token: int
    kv_blocks: int
    block_size: int

    @property
    def kv_tokens(self) -> int:
        """Capacity of the KV pool in tokens."""
        return self.kv_blocks * self.block_size

    @property
    def fits(self) -> bool:
        """Whether at least one block is left for the KV cache."""
        return self.kv_blocks > 0


def weights_bytes(model: Architecture, precision: str, tp: int = 1) -> int:
    """Bytes of weights per GPU, all split over `tp`; quantisation leaves the embeddings in 16 bits."""
    width = WEIGHT_BYTES[precision]
    wide = max(width, 2.0)
    tables = model.parameters - model.layer_parameters
    return int((model.layer_parameters * width + tables * wide) / tp)


def kv_bytes_per_token(model: Architecture, kv_dtype: str = "auto", tp: int = 1) -> int:
    """Bytes of KV cache per token and GPU: `2 L max(1, kv_heads / tp) head_dim B`."""
    width = 1 if kv_dtype.startswith("fp8") else 2
    return 2 * model.layers * max(1, model.kv_heads // tp) * model.head_dim * width


def activation_bytes(model: Architecture, max_num_seqs: int, max_num_batched_tokens: int, tp: int = 1) -> int:
    """Peak of the profiling run: the sampler's logits, or the widest MLP activations, whichever is more."""
    sampler = ACTIVATION_PER_LOGIT * max_num_seqs * model.vocab
    layers = max_num_batched_tokens * 3 * (model.intermediate / tp + model.hidden) * 2
    return int(max(sampler, layers))


def plan(
    model: Architecture,
    gpu: Gpu,
    *,
    precision: str = "bfloat16",
    tp: int = 1,
    utilization: float = 0.92,
    kv_dtype: str = "auto",
    block_size: int = 16,
    max_num_seqs: int = 256,
    max_num_batched_tokens: int = 2048,
    max_model_len: int = 0,
) -> MemoryPlan:
    """What an engine would find at start. Layers with a sliding window keep at most window + one batch of tokens."""
    requested = int(utilization * gpu.memory_bytes)
    weights = weights_bytes(model, precision, tp)
    activation = activation_bytes(model, max_num_seqs, max_num_batched_tokens, tp)
    non_torch = NON_TORCH_BYTES.get(tp, NON_TORCH_BYTES[8])
    left = requested - weights - activation - non_torch
    per_token = kv_bytes_per_token(model, kv_dtype, tp)
    cost = per_token * _windowed_share(model, max_model_len or model.max_position, max_num_batched_tokens)
    return MemoryPlan(
        total_bytes=gpu.memory_bytes,
        requested_bytes=requested,
        weights_bytes=weights,
        activation_bytes=activation,
        non_torch_bytes=non_torch,
        kv_bytes=max(0, left),
        kv_bytes_per_token=per_token,
        kv_blocks=max(0, int(left // (block_size * cost))),
        block_size=block_size,
    )


def _windowed_share(model: Architecture, max_model_len: int, max_num_batched_tokens: int) -> float:
    """Average share of a full-length sequence that a layer keeps: 1 without sliding windows."""
    if not model.window:
        return 1.0
    kept = min(max_model_len, model.window + max_num_batched_tokens) / max_model_len
    return 1.0 - (model.window_layers / model.layers) * (1.0 - kept)
