"""How much of a card's data sheet an engine reaches: every measured constant of the step model, and where it is from.

Two kinds. `Efficiency` holds what kernels reach, by generation of tensor cores: medians of kernel tables where there
are any. `Coefficients` holds what no kernel table shows (launching, waiting, scheduling): shared by all models and
cards, fitted to whole measured runs by `benchmarks/perfmodel_calibrate.py`, checked on others by five folds. Nothing
is fitted to a single model or a single row.
"""

import msgspec

from headway.perfmodel.gpus import Gpu


class Efficiency(msgspec.Struct, frozen=True):
    """Shares of the data sheet's rates, and seconds per kernel.

    `weights`, `kv`, `expert_weights`: of the memory bandwidth; `kv_narrow`: where the cache is kept in 8 bits. `flops`,
    `expert_flops`: of the tensor cores' rate by type. `attention`, `routers`: of the 16-bit rate, in prefill, and of
    routers computed in 32 bits. `launch_s`: per multiplication (in a CUDA graph), with the quantisation of its input
    where the type is narrow. `expert_s`: of a layer's experts beyond reading and multiplying; `distinct_s`: more per
    distinct expert. `host`, `layer`, `eager`, `sync`: factors of the coefficients of these names on hosts of this card.
    """

    weights: float
    kv: float
    attention: float
    flops: dict[str, float]
    launch_s: dict[str, float]
    expert_flops: dict[str, float]
    expert_weights: float = 0.80
    expert_s: float = 30e-6
    distinct_s: float = 0.16e-6
    kv_narrow: float = 0.65
    routers: float = 0.03
    host: float = 1.0
    layer: float = 1.0
    eager: float = 1.0
    sync: float = 1.0


class Coefficients(msgspec.Struct, frozen=True):
    """Shared by all engines of one version.

    `base_s`: a step's share of the CPU that the GPU waits for. `per_sequence_s`: sampling and bookkeeping of one
    sequence. `per_layer_s`: norms, rotary embedding, cache writes and the attention kernel's own start.
    `eager_layer_s`: more per layer in a step too large for a CUDA graph (over `graph_tokens`, vLLM's largest captured
    size), whose kernels are launched one by one; `piecewise_layer_s`: in a smaller one with a prompt in it, where only
    attention is launched so.
    `sync_s`: ranks waiting for each other, per all-reduce. `moved`, `expert_moved`: passes over activations that are
    no multiplication. `mixed_kv`: how much slower the cache of decoding sequences is read in a kernel that also works
    on a prompt.
    `lag_s`, `lag_sequence_s`: more of the CPU that the GPU waits for in engines that do not plan a step while the one
    before runs (vLLM before 0.14, unless told to). `unpack_bytes_per_s`: of packed weights that one multiprocessor
    turns into 16 bits; kernels of 4-bit experts read no faster, whatever the memory.
    """

    base_s: float = 0.11e-3
    per_sequence_s: float = 5.2e-6
    per_layer_s: float = 26e-6
    eager_layer_s: float = 0.53e-3
    piecewise_layer_s: float = 0.05e-3
    graph_tokens: int = 512
    sync_s: float = 4.4e-6
    moved: float = 0.7
    expert_moved: float = 7.0
    mixed_kv: float = 1.0
    expert_skew: float = 0.56
    lag_s: float = 0.77e-3
    lag_sequence_s: float = 8e-6
    unpack_bytes_per_s: float = 2.9e10


HOPPER = Efficiency(
    weights=0.86,
    kv=0.83,
    attention=0.55,
    flops={"bfloat16": 0.73, "fp8": 0.63, "fp8_block": 0.63, "int8": 0.60, "unpacked": 0.60},
    launch_s={"bfloat16": 3.3e-6, "fp8": 6.7e-6, "fp8_block": 6.7e-6, "int8": 6.7e-6, "unpacked": 3.3e-6},
    expert_flops={"bfloat16": 0.65, "fp8": 0.31, "fp8_block": 0.31, "int8": 0.31, "unpacked": 0.16},
    expert_s=31e-6,
    kv_narrow=0.585,
)
"""Started at the tables of H100 and H200 (benchmarks/perfmodel_kernels.py), moved a little by whole runs."""

WORKSTATION = Efficiency(
    weights=0.85,
    kv=0.91,
    attention=0.55,
    flops={"bfloat16": 0.79, "fp8": 0.47, "fp8_block": 0.47, "fp4": 0.40, "int8": 0.47, "unpacked": 0.60},
    launch_s=HOPPER.launch_s | {"fp4": 6.7e-6},
    expert_flops={"bfloat16": 0.65, "fp8": 0.16, "fp8_block": 0.16, "fp4": 0.23, "int8": 0.16, "unpacked": 0.16},
    expert_weights=0.83,
    expert_s=22e-6,
    distinct_s=0.071e-6,
)
"""Blackwell cards without NVLink (RTX PRO 6000, RTX 5090): other multiprocessors than B200's. What was found for
Blackwell as a whole at first; the RTX PRO 6000's recorded runs and GEMM table agree with it."""

BLACKWELL = Efficiency(
    weights=0.84,
    kv=0.91,
    attention=0.95,
    flops={"bfloat16": 0.78, "fp8": 0.466, "fp8_block": 0.356, "fp4": 0.40, "int8": 0.47, "unpacked": 0.60},
    launch_s=WORKSTATION.launch_s | {"bfloat16": 3.2e-6, "fp8_block": 15.4e-6},
    expert_flops={"bfloat16": 0.65, "fp8": 0.15, "fp8_block": 0.15, "fp4": 0.76, "int8": 0.15, "unpacked": 0.078},
    expert_weights=0.88,
    expert_s=19e-6,
    distinct_s=0.133e-6,
    kv_narrow=0.715,
    routers=0.0193,
    host=2.08,
    layer=0.85,
    eager=1.64,
    sync=0.84,
)
"""B200: no kernel tables; started at round figures, moved by whole runs on B200 and B300 (perfmodel_calibrate.py
--keep-dense). Packed weights are multiplied by instructions that Hopper has too, at its rate per multiprocessor."""

BLACKWELL_ULTRA = msgspec.structs.replace(BLACKWELL, eager=0.67)
"""B300: the same, on hosts that launch kernels faster."""

AMPERE = Efficiency(
    weights=0.76,
    kv=0.70,
    attention=0.50,
    flops={"bfloat16": 0.80, "int8": 0.60, "unpacked": 0.60},
    launch_s={"bfloat16": 6.3e-6, "int8": 8e-6, "unpacked": 6.3e-6},
    expert_flops={"bfloat16": 0.65, "int8": 0.31, "unpacked": 0.24},
)
"""A100's tables. No whole runs but one row (docs/perfmodel.md)."""

ADA = Efficiency(
    weights=0.80,
    kv=0.80,
    attention=0.44,
    flops={"bfloat16": 0.72, "fp8": 0.30, "fp8_block": 0.30, "int8": 0.30, "unpacked": 0.60},
    launch_s={"bfloat16": 2.5e-6, "fp8": 2.6e-6, "fp8_block": 2.6e-6, "int8": 2.6e-6, "unpacked": 2.5e-6},
    expert_flops={"bfloat16": 0.65, "fp8": 0.25, "fp8_block": 0.25, "int8": 0.25, "unpacked": 0.24},
)
"""L40S's tables."""

ECC_SHARE = 1 / 16
"""Of the memory, and so of every read, goes to error correction on L40S; GeForce cards have none."""

EFFICIENCIES = {
    "hopper": HOPPER,
    "blackwell": BLACKWELL,
    "blackwell_ultra": BLACKWELL_ULTRA,
    "workstation": WORKSTATION,
    "ampere": AMPERE,
    "ada": ADA,
    "turing": AMPERE,
}


def kind(gpu: Gpu) -> str:
    """Which of EFFICIENCIES is this card's: its generation, and Blackwell's three kinds of machines apart."""
    if gpu.generation != "blackwell":
        return gpu.generation
    if gpu.link == "pcie":
        return "workstation"
    return "blackwell_ultra" if gpu.name.startswith("b300") else "blackwell"


def on_hosts(c: Coefficients, reached: Efficiency) -> Coefficients:
    """The coefficients as hosts of this card have them."""
    return msgspec.structs.replace(
        c,
        base_s=c.base_s * reached.host,
        per_sequence_s=c.per_sequence_s * reached.host,
        per_layer_s=c.per_layer_s * reached.layer,
        eager_layer_s=c.eager_layer_s * reached.eager,
        sync_s=c.sync_s * reached.sync,
    )


def efficiency(gpu: Gpu) -> Efficiency:
    """What engines reach on this card."""
    if gpu.name == "rtx4090-24gb":
        free = 1 / (1 - ECC_SHARE)
        return msgspec.structs.replace(ADA, weights=ADA.weights * free, kv=ADA.kv * free)
    return EFFICIENCIES[kind(gpu)]
