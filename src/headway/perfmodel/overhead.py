"""What an engine takes of a GPU beside weights, activations and cache: CUDA, libraries, communication, CUDA graphs.

None of it follows from a model's shape alone; the constants are read off engines' logs, none of them per model, and
each says from which. What changed between versions is in `versions`.
"""

from headway.perfmodel.architectures import Architecture
from headway.perfmodel.gpus import GIB, Gpu
from headway.perfmodel.versions import Rules

CONTEXT_BYTES = {True: int(0.13 * GIB), False: int(0.05 * GIB)}
"""What libraries take outside PyTorch on one GPU once the engine runs, on Hopper and Blackwell or on older cards: logs
of 0.11 to 0.17 on H100 have 0.12 to 0.14 GiB, logs of Turing to Ada cards 0.01 to 0.08."""

GRAPH_PROFILING_BYTES = int(0.12 * GIB)
"""Since 0.18 CUDA graphs are profiled before memory is measured, and what that loads stays: 0.25 GiB in all on H100.
The second model runner did not before 0.29 (0.07 GiB in all of 0.26 on a card of 16 GiB)."""

CONTEXT_PER_MULTIPROCESSOR = 4 << 20
"""An empty process on the card: local memory and stacks are reserved for every multiprocessor. 0.35 GiB with libraries
on an RTX 3090 (82), 0.45 on an A100 (108), 0.51 on an H100 (132)."""

NCCL_BYTES = {"nvlink": int(0.42 * GIB), "pcie": int(0.20 * GIB)}
"""NCCL's channels and the custom all-reduce's buffers by link: 0.55 GiB in all at TP 2 on H100 (0.11), 0.2 to 0.3 over
PCIe (L40S, RTX 3090)."""

PER_RANK_BYTES = int(0.07 * GIB)
"""Peer buffers per further rank where the all-reduce is vLLM's own: over NVLink, not fused. More than two GPUs without
NVLink leave it to NCCL (0.20 GiB in all at TP 4)."""

FUSED_ALLREDUCE_BYTES = int(1.37 * GIB)
FUSED_ROW_BYTES = 8 << 10
"""FlashInfer's fused all-reduce (vLLM >= 0.17, Hopper and data-centre Blackwell, TP > 1 without PP): a workspace, and
for every further rank 8 KiB per element of the hidden state. In all 2.07 GiB at TP 2 and 2.13 at TP 4 with a hidden
state of 4096, 2.10 and 2.21 with one of 8192 (19 logs of 0.19 on H100 within 0.03)."""

GRAPH_BYTES = int(0.40 * GIB)
GRAPHS_PER_LAYER_BYTES = int(0.0155 * GIB)
"""CUDA graphs once captured: a base and a share per layer, for 51 sizes captured twice (whole, and in pieces). From 20
logs of 0.19, within 30 %."""

COUNTED_BYTES = int(0.14 * GIB)
COUNTED_PER_LAYER_BYTES = int(0.0193 * GIB)
COUNTED_PER_EXPERTS_BYTES = int(0.004 * GIB)
COUNTED_PER_LATENT_BYTES = int(0.0155 * GIB)
COUNTED_LINEAR_BYTES = int(0.10 * GIB)
"""What the first model runner estimates by capturing two sizes of each kind and extrapolating; this, not what graphs
take in the end, is taken from the pool. From 54 logs: half of them within 0.1 GiB, three of them 0.7 to 0.9 above (the
first capture of a size may load kernels, and that is multiplied)."""

PIPELINE_BYTES = int(0.07 * GIB)
"""Outside PyTorch on a stage of a pipeline: 0.07 GiB in both logs of 0.19 at PP 2 and 4. Communicators, and what the
capture of an estimate's graphs loads, were there before."""

LARGEST_GRAPHS = {"gpt_oss": 1024}
"""Families for which vLLM captures larger batches than 512 by default."""

BEFORE_TENSOR_BYTES = int(1.02 * GIB)
BEFORE_EXPERTS_BYTES = int(0.48 * GIB)
"""Taken by communicators before the engine begins to count, over NVLink: with the context 1.53 and 1.55 GiB at TP 2 and
4, 1.43 and 1.48 at PP 2 and 4, and 2.01 and 2.07 for models with experts (0.19 on H100, 16 starts)."""

MXFP4_STRANDED_BYTES = int(2.6 * GIB)
"""What two starts of gpt-oss-20b (0.19, H100, TP 1 and 2) lacked beyond the sum when the sampler was warmed up: 1.78
and 1.62 GiB that PyTorch had reserved and could not use (its own message), and graphs up to 0.8 above our estimate. At
TP 4 the same model started with 1 GiB to spare, so this holds up to 2 GPUs only; why is not known."""

LATENT_WORKSPACE_BYTES = 128 << 20
"""A workspace of FlashInfer's or CUTLASS's kernels for latent attention (their backends' constants)."""


def loading_bytes(model: Architecture, version: Rules, gpu: Gpu, tokens: int) -> int:
    """Allocated beside weights while a model is built, for batches of `tokens`; logs count it among them. Models whose
    tower feeds several layers keep a batch of hidden states for each."""
    workspaces = LATENT_WORKSPACE_BYTES * version.latent_workspaces(gpu) if model.latent else 0
    return workspaces + 2 * tokens * model.hidden * (model.vision.stacks - 1 if model.vision else 0)


def before_counting_bytes(gpu: Gpu, version: Rules, experts: bool, tp: int, pp: int) -> int:
    """What the card holds before the engine begins to count, so that it comes on top of what was asked for."""
    if version.context_counted:
        return 0
    joined = tp * pp > 1 and gpu.link == "nvlink" and gpu.generation in ("hopper", "blackwell")
    communicators = BEFORE_TENSOR_BYTES + (BEFORE_EXPERTS_BYTES if experts and tp > 1 else 0)
    return CONTEXT_PER_MULTIPROCESSOR * gpu.multiprocessors + (communicators if joined else 0)


def stranded_bytes(gpu: Gpu, version: Rules, mxfp4: bool, tp: int) -> int:
    """What is reserved and cannot be used when the sampler is warmed up."""
    return MXFP4_STRANDED_BYTES if mxfp4 and tp <= 2 and version.minor < 20 and gpu.generation == "hopper" else 0


def non_torch_bytes(
    gpu: Gpu, version: Rules, hidden: int, tp: int, pp: int, eager: bool = False, profiled: bool = False
) -> int:
    """Taken outside PyTorch's allocator on one GPU of a model with this hidden size. Pipelines cost next to nothing:
    their communicators are made before the engine begins to count. All-reduces
    are fused by the compiler, so not in `eager` mode. `profiled`: CUDA graphs are captured for an estimate."""
    modern = gpu.generation in ("hopper", "blackwell")
    context = CONTEXT_BYTES[modern]
    context += GRAPH_PROFILING_BYTES if profiled and not eager else 0
    context += CONTEXT_PER_MULTIPROCESSOR * gpu.multiprocessors if version.context_counted else 0
    if tp == 1:
        return PIPELINE_BYTES if pp > 1 and modern and not version.context_counted else context
    fusing = gpu.generation == "hopper" or (gpu.generation == "blackwell" and gpu.link == "nvlink")
    if pp == 1 and version.minor >= 17 and fusing and not eager:
        return context + NCCL_BYTES["nvlink"] + FUSED_ALLREDUCE_BYTES + FUSED_ROW_BYTES * hidden * (tp - 1)
    return context + NCCL_BYTES[gpu.link] + (PER_RANK_BYTES * max(0, tp - 2) if gpu.link == "nvlink" else 0)


def cuda_graph_bytes(model: Architecture, layers: int, version: Rules, max_num_seqs: int, counted: bool) -> int:
    """Of `layers` layers and all sizes that are captured: what the engine subtracts where it counts them, else what
    they come to."""
    largest = LARGEST_GRAPHS.get(model.family, 512)
    pieces, whole = len(_sizes(min(2 * max_num_seqs, largest))), len(_sizes(min(max_num_seqs, largest)))
    if not counted or version.minor >= 29:
        return int(GRAPH_BYTES + GRAPHS_PER_LAYER_BYTES * layers * pieces / 51)
    share = COUNTED_PER_LAYER_BYTES
    share += COUNTED_PER_EXPERTS_BYTES if model.experts else 0
    share += COUNTED_PER_LATENT_BYTES if model.latent else 0
    base = COUNTED_BYTES + (COUNTED_LINEAR_BYTES if model.linear else 0)
    return int(base + share * layers * (pieces + whole) / 102)


def _sizes(largest: int) -> list[int]:
    """Batch sizes captured up to `largest`: 1, 2, 4, then every 8 below 256 and every 16 from there."""
    return [size for size in (1, 2, 4, *range(8, 256, 8), *range(256, 1025, 16)) if size <= largest]
