"""How long one engine step takes: a roofline, and six coefficients that say how far real engines stay behind it.

    step = b0 + b1 T_weights + b2 T_kv + b3 T_prefill + b4 T_comm + b5 R

T_weights  reading every weight once; T_kv  reading the KV cache of what decodes; T_prefill  multiplying, beyond what
the reading of weights already hides, and attention inside prompts; T_comm  two all-reduces per layer; R  sequences in
the batch (sampling, scheduling). What a batch is made of comes from `engine`; no queueing here.
"""

import msgspec

from headway.perfmodel import memory
from headway.perfmodel.architectures import Architecture
from headway.perfmodel.catalogue import WEIGHT_BYTES
from headway.perfmodel.gpus import Gpu

COMM_LATENCY_S = {"nvlink": 17e-6, "pcie": 40e-6}
"""Fixed cost of one small all-reduce: 17 us fitted on H100 decode rows; PCIe by analogy, unmeasured."""


class Coefficients(msgspec.Struct, frozen=True):
    """b0..b5.

    b1, b2, b5 and the all-reduce latency come from 15 published H100 decode rows; b0 (a step of a tiny model is never
    free) and b3 (62 % of the peak FLOP/s while prefilling) are set by hand. None was fitted on the rows that the tests
    check them against; docs/perfmodel.md has the table.
    """

    base_s: float = 0.0012
    weights: float = 1.31
    kv: float = 1.28
    prefill: float = 1.6
    comm: float = 1.0
    per_sequence_s: float = 12e-6


class Batch(msgspec.Struct, frozen=True, gc=False):
    """What one step works on.

    `decode_tokens`: sequences that decode, one token each; `context_tokens`: the KV cache they read, summed.
    `prefill_tokens`: prompt tokens computed; `prefill_pairs`: query-key pairs among them and the context before.
    """

    decode_tokens: int
    context_tokens: int
    prefill_tokens: int = 0
    prefill_pairs: float = 0.0
    sequences: int = 0


class StepModel:
    """The step time of one engine: an architecture, in a precision, on `tp` cards of one kind. Seconds."""

    def __init__(
        self,
        model: Architecture,
        gpu: Gpu,
        *,
        precision: str = "bfloat16",
        tp: int = 1,
        kv_dtype: str = "auto",
        coefficients: Coefficients | None = None,
    ) -> None:
        self.coefficients = coefficients or Coefficients()
        head = model.embedding_parameters * max(2.0, WEIGHT_BYTES[precision])
        matrices = model.layer_parameters * WEIGHT_BYTES[precision] + head
        self.weights_s = matrices / tp / gpu.bandwidth_bytes_per_s
        self.kv_s_per_token = memory.kv_bytes_per_token(model, kv_dtype, tp) / gpu.bandwidth_bytes_per_s
        self.flop_s_per_token = 2 * model.layer_parameters / tp / _matrix_flops(gpu, precision)
        self.pair_s = 4 * model.layers * model.heads * model.head_dim / tp / gpu.bf16_flops
        rounds = 2 * model.layers if tp > 1 else 0
        wire = 2 * (tp - 1) / tp * model.hidden * 2 / gpu.link_bytes_per_s
        self.comm_s = rounds * COMM_LATENCY_S[gpu.link]
        self.comm_s_per_token = rounds * wire

    def step_s(self, batch: Batch) -> float:
        """Seconds of one step over this batch; an empty batch costs nothing."""
        tokens = batch.decode_tokens + batch.prefill_tokens
        if not tokens:
            return 0.0
        b = self.coefficients
        multiply = max(0.0, tokens * self.flop_s_per_token - self.weights_s) + batch.prefill_pairs * self.pair_s
        return (
            b.base_s
            + b.weights * self.weights_s
            + b.kv * batch.context_tokens * self.kv_s_per_token
            + b.prefill * multiply
            + b.comm * (self.comm_s + tokens * self.comm_s_per_token)
            + b.per_sequence_s * batch.sequences
        )

    def decode_s(self, running: int, context_tokens: int) -> float:
        """Seconds of a step in which `running` sequences decode and nothing else happens."""
        return self.step_s(Batch(running, context_tokens, sequences=running))

    def prefill_s(self, tokens: int, before: int = 0) -> float:
        """Seconds of one step that computes `tokens` of one prompt after `before` tokens of it, alone."""
        return self.step_s(Batch(0, 0, tokens, tokens * (before + tokens / 2), 1))

    def features(self) -> dict[str, float]:
        """Priors for the speeds a balancer learns, under the names of ReplicaSpec.features."""
        b = self.coefficients
        chunk = 2048
        return {
            "step_base_s": b.base_s + b.weights * self.weights_s + b.comm * self.comm_s,
            "step_per_request_s": b.per_sequence_s + b.comm * self.comm_s_per_token,
            "step_per_token_s": b.kv * self.kv_s_per_token,
            "prefill_tokens_per_s": chunk / self.prefill_s(chunk),
        }


def _matrix_flops(gpu: Gpu, precision: str) -> float:
    """Rate of the matrix multiplications: 8-bit types where the card has them, 16-bit otherwise (weights unpacked)."""
    by_precision = {"fp8": gpu.fp8_flops, "int8": gpu.int8_flops, "float32": gpu.bf16_flops / 2}
    return by_precision.get(precision, gpu.bf16_flops) or gpu.bf16_flops
