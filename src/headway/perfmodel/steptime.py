"""How long one engine step takes: a roofline per kind of work, with the efficiencies of `calibration`.

    step = base + tokens(T) + head(R) + kv * context + pairs * attention + per sequence * R

tokens(T): what depends on how many tokens are computed, prompts and decodes together: multiplications (reading the
weights, or multiplying, whichever takes longer), experts (those that T tokens hit), activations, two all-reduces per
layer. It is tabulated once; a step is then a handful of additions, and affine in the context of the
sequences that decode. What a batch is made of comes from the engine; no queueing here. Counts are in `work`.
"""

import msgspec
import numpy as np
import numpy.typing as npt

from headway.perfmodel import catalogue, comm, experts, quantisation, work
from headway.perfmodel.architectures import Architecture
from headway.perfmodel.calibration import Coefficients, Efficiency, on_hosts
from headway.perfmodel.calibration import efficiency as reached_by
from headway.perfmodel.flags import Flags
from headway.perfmodel.gpus import Gpu

TABLE_TOKENS = 16384
"""Beyond, the last slope goes on: multiplications are bound by the tensor cores there."""

TABLE_SEQUENCES = 2048

SHARPNESS = 4
"""How sharply reading and multiplying overlap: (a^p + b^p)^(1/p). The GEMM tables of H100 and A100 bend like p = 4:
at the balance point a multiplication takes 1.2 times the longer of the two."""

HEAD_WEIGHTS = 0.88
"""Bandwidth share of the head, the largest matrix: H100 and RTX PRO 6000 tables."""

HEAD_S = 25e-6
"""Kernels of the sampler for one sequence (RTX PRO 6000 table, vLLM 0.19); more sequences are in per_sequence_s."""

Floats = npt.NDArray[np.float64]


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
    """The step time of one engine: an architecture, in a precision, on `tp` cards of one kind. Seconds.

    `data_parallel` > 1: so many such engines share their experts (vLLM's --data-parallel-size with expert parallelism),
    and each works on a batch like this one. `flags`: how the engine was started.
    """

    def __init__(
        self,
        model: Architecture,
        gpu: Gpu,
        *,
        precision: str = "bfloat16",
        tp: int = 1,
        kv_dtype: str = "auto",
        data_parallel: int = 1,
        flags: Flags | None = None,
        coefficients: Coefficients | None = None,
        efficiency: Efficiency | None = None,
    ) -> None:
        scheme = quantisation.scheme(precision)
        if scheme is None:
            raise catalogue.UnknownName(f"unknown precision {precision!r}")
        flags = flags or Flags()
        reached = efficiency or reached_by(gpu)
        self.coefficients = c = on_hosts(_started(coefficients or Coefficients(), flags), reached)
        narrow_kv = kv_dtype.startswith("fp8")
        self.work = w = work.count(model, scheme, tp, 1 if narrow_kv else 2)
        timing = _Timing(w, gpu, tp, _arithmetic(gpu, scheme), reached, c, data_parallel, flags)
        self._tokens: list[float] = timing.tokens_s().tolist()
        self._slope: float = self._tokens[-1] - self._tokens[-2]
        self._head: list[float] = timing.heads_s().tolist()
        self._head_slope: float = self._head[-1] - self._head[-2]
        self.weights_s = (w.weights_bytes + w.head_bytes) / gpu.bandwidth_bytes_per_s
        read = (reached.kv_narrow if narrow_kv else reached.kv) * gpu.bandwidth_bytes_per_s
        self.kv_s_per_token = w.kv_bytes / read
        self.decode_s_per_sequence = w.sequence_bytes / read
        multiply = reached.attention * gpu.bf16_flops
        self.pair_s = w.pair_flops / multiply
        self.prefill_s_per_token = w.window_flops / multiply
        self._piecewise_s = c.piecewise_layer_s * w.layers

    def step_s(self, batch: Batch) -> float:
        """Seconds of one step over this batch; an empty batch costs nothing."""
        tokens = batch.decode_tokens + batch.prefill_tokens
        if not tokens:
            return 0.0
        c = self.coefficients
        sequences = batch.sequences
        seconds = (
            c.base_s
            + self._of_tokens(tokens)
            + self._of_head(sequences)
            + c.per_sequence_s * sequences
            + self.decode_s_per_sequence * batch.decode_tokens
        )
        cache = self.kv_s_per_token * batch.context_tokens
        if not batch.prefill_tokens:
            return seconds + cache
        seconds += c.mixed_kv * cache + (self._piecewise_s if tokens <= c.graph_tokens else 0.0)
        return seconds + self.pair_s * batch.prefill_pairs + self.prefill_s_per_token * batch.prefill_tokens

    def decode_s(self, running: int, context_tokens: int) -> float:
        """Seconds of a step in which `running` sequences decode and nothing else happens."""
        return self.step_s(Batch(running, context_tokens, sequences=running))

    def prefill_s(self, tokens: int, before: int = 0) -> float:
        """Seconds of one step that computes `tokens` of one prompt after `before` tokens of it, alone."""
        return self.step_s(Batch(0, 0, tokens, tokens * (before + tokens / 2), 1))

    def features(self) -> dict[str, float]:
        """Priors for the speeds a balancer learns, under the names of ReplicaSpec.features."""
        few, many, chunk = 1, 64, 2048
        one, lot = self.decode_s(few, 0), self.decode_s(many, 0)
        each = (lot - one) / (many - few)
        return {
            "step_base_s": one - few * each,
            "step_per_request_s": each,
            "step_per_token_s": self.kv_s_per_token,
            "prefill_tokens_per_s": chunk / self.prefill_s(chunk),
        }

    def _of_tokens(self, tokens: int) -> float:
        over = tokens - TABLE_TOKENS
        return self._tokens[tokens] if over <= 0 else self._tokens[-1] + over * self._slope

    def _of_head(self, sequences: int) -> float:
        over = sequences - TABLE_SEQUENCES
        return self._head[sequences] if over <= 0 else self._head[-1] + over * self._head_slope


class _Timing:
    """The tables of one model: seconds by tokens, seconds by sequences."""

    def __init__(
        self,
        counted: work.Work,
        gpu: Gpu,
        tp: int,
        arithmetic: str,
        reached: Efficiency,
        c: Coefficients,
        ranks: int,
        flags: Flags,
    ) -> None:
        self.ranks, self.flags = ranks, flags
        self.work, self.gpu, self.tp, self.arithmetic, self.reached, self.c = counted, gpu, tp, arithmetic, reached, c
        self.bandwidth = gpu.bandwidth_bytes_per_s

    def tokens_s(self) -> Floats:
        """Seconds for 0..TABLE_TOKENS tokens."""
        tokens = np.arange(TABLE_TOKENS + 1, dtype=np.float64)
        w, c = self.work, self.c
        reduce_s = comm.all_reduce_s(tokens * w.hidden * 2, self.gpu, self.tp) + (c.sync_s if self.tp > 1 else 0.0)
        launched = np.where(tokens > c.graph_tokens, c.eager_layer_s, 0.0)
        moved = w.layers * (c.per_layer_s + launched) + c.moved * w.moved_bytes * tokens / self.bandwidth
        moved = moved + tokens * w.router_flops / (self._routers() * self.gpu.bf16_flops)
        return self._dense_s(tokens) + self._experts_s(tokens) + moved + 2 * w.layers * reduce_s

    def heads_s(self) -> Floats:
        """Seconds of head and sampler for 0..TABLE_SEQUENCES sequences."""
        sequences = np.arange(TABLE_SEQUENCES + 1, dtype=np.float64)
        w = self.work
        read = w.head_bytes / (HEAD_WEIGHTS * self.bandwidth)
        return HEAD_S + _overlap(read, sequences * w.head_flops / self._rate("bfloat16", self.reached.flops))

    def _dense_s(self, tokens: Floats) -> Floats:
        w, e = self.work, self.reached
        kind = self.arithmetic if w.narrow_bytes else "bfloat16"
        read = (w.narrow_bytes + w.wide_bytes) / (e.weights * self.bandwidth)
        narrow = w.narrow_flops / self._rate(kind, e.flops)
        wide = w.wide_flops / self._rate("bfloat16", e.flops)
        return w.kernels * e.launch_s[kind] + _overlap(read, tokens * (narrow + wide))

    def _experts_s(self, tokens: Floats) -> Floats:
        w, e = self.work, self.reached
        if not w.expert_layers:
            return np.zeros_like(tokens)
        r = self.ranks
        distinct = experts.distinct(r * tokens, w.experts, w.chosen, self.c.expert_skew) / r
        size, heaviest = w.expert_bytes, 1.0
        if self.flags.expert_parallel and self.tp > 1:
            distinct = experts.fullest_rank(distinct, w.experts, self.tp)
            size, heaviest = size * self.tp, experts.heaviest_share(w.experts, self.tp, self.c.expert_skew)
        read = distinct * size * self._read_s_per_byte()
        multiply = heaviest * tokens * w.expert_flops / self._rate(self.arithmetic, e.expert_flops)
        moved = self.c.expert_moved * tokens * w.chosen * w.hidden * 2 / self.bandwidth
        exchange = 2 * comm.all_reduce_s(r * tokens * w.hidden * 2, self.gpu, r)  # gather tokens, scatter results
        return w.expert_layers * (e.expert_s + e.distinct_s * distinct + moved + exchange + _overlap(read, multiply))

    def _read_s_per_byte(self) -> float:
        """Of experts' weights: as fast as memory gives them, or as they are unpacked."""
        memory = 1 / (self.reached.expert_weights * self.bandwidth)
        if self.arithmetic != "unpacked":
            return memory
        return float(_overlap(memory, np.asarray(1 / (self.c.unpack_bytes_per_s * self.gpu.multiprocessors))))

    def _routers(self) -> float:
        """Share of the 16-bit rate; with tensor cores, 32-bit multiplications reach half of what 16-bit ones do."""
        return self.reached.flops["bfloat16"] / 2 if self.flags.tensor_routers else self.reached.routers

    def _rate(self, kind: str, shares: dict[str, float]) -> float:
        gpu = self.gpu
        narrow = {"fp8": gpu.fp8_flops, "fp8_block": gpu.fp8_flops, "fp4": gpu.fp4_flops, "int8": gpu.int8_flops}
        return shares[kind] * narrow.get(kind, gpu.bf16_flops)


def _overlap(read: Floats | float, multiply: Floats) -> Floats:
    return np.asarray((np.asarray(read) ** SHARPNESS + multiply**SHARPNESS) ** (1 / SHARPNESS), dtype=np.float64)


def _started(c: Coefficients, flags: Flags) -> Coefficients:
    """The coefficients of an engine that was started so."""
    if flags.graph_tokens:
        c = msgspec.structs.replace(c, graph_tokens=flags.graph_tokens)
    if flags.asynchronous:
        return c
    return msgspec.structs.replace(c, base_s=c.base_s + c.lag_s, per_sequence_s=c.per_sequence_s + c.lag_sequence_s)


def _arithmetic(gpu: Gpu, scheme: quantisation.Scheme) -> str:
    """The type multiplied in: a narrow one where the card has it, else 16 bits, of weights unpacked on the way."""
    if scheme.name in ("nvfp4", "mxfp4") and gpu.fp4_flops:
        return "fp4"
    if scheme.name == "fp8_block" and gpu.fp8_flops:
        return scheme.name
    has = {"fp8": gpu.fp8_flops, "int8": gpu.int8_flops}
    if scheme.bits < 16 and not has.get(scheme.flops):
        return "unpacked"
    return scheme.flops
