"""What it costs that the GPUs of a tensor-parallel group add their halves up: two all-reduces a layer.

Only the wire and the kernel; how long ranks wait for each other is a coefficient of `calibration`. The figures are
NVIDIA AIConfigurator's tables of vLLM's custom all-reduce inside CUDA graphs and of NCCL (H100, H200, A100, L40S).
"""

import numpy as np
import numpy.typing as npt

from headway.perfmodel.gpus import Gpu

LATENCY_S = {"nvlink": {2: 4.4e-6, 4: 4.7e-6, 8: 5.2e-6}, "pcie": {2: 5.4e-6, 4: 13.5e-6, 8: 25.5e-6}}
"""An all-reduce of a few kilobytes. NVLink: H100, H200 and A100 agree within 1 us; PCIe: L40S."""

WIRE_SHARE = {"nvlink": {2: 0.65, 4: 0.65, 8: 0.65}, "pcie": {2: 0.65, 4: 0.12, 8: 0.057}}
"""Share of the link's rate that messages up to LARGE_BYTES reach. Four and eight L40S have no direct paths."""

LARGE_BYTES = 8e6
"""From here on vLLM takes NCCL's rings (and the switch's own adders), which reach LARGE_SHARE of an NVLink."""

LARGE_SHARE = 0.9


def all_reduce_s(message_bytes: npt.NDArray[np.float64], gpu: Gpu, tp: int) -> npt.NDArray[np.float64]:
    """Seconds of one all-reduce over `tp` cards for every message size given; 0 for one card."""
    if tp == 1:
        return np.zeros_like(message_bytes)
    known = min((size for size in LATENCY_S[gpu.link] if size >= tp), default=8)
    share = WIRE_SHARE[gpu.link][known]
    crossing = 2 * (tp - 1) / tp * message_bytes
    limit = 2 * (tp - 1) / tp * LARGE_BYTES if gpu.link == "nvlink" else np.inf
    small, large = np.minimum(crossing, limit), np.maximum(crossing - limit, 0.0)
    return np.asarray(
        LATENCY_S[gpu.link][known] + (small / share + large / LARGE_SHARE) / gpu.link_bytes_per_s, dtype=np.float64
    )
