"""Questions that turn the memory model round: the longest context that starts, the fewest GPUs that do.

Both ask `memory.plan` again and again; what it answers is monotone in length, and GPUs are tried in the order in which
operators add them: first over one host's links, then in pipeline stages of whole hosts.
"""

from typing import Unpack

from headway.perfmodel.architectures import Architecture
from headway.perfmodel.gpus import Gpu
from headway.perfmodel.memory import LATEST, Asked, MemoryPlan, plan
from headway.perfmodel.memory_limits import longest, whole_parts

HOST_GPUS = 8
"""GPUs of one host, the usual bound of tensor parallelism."""

MOST_STAGES = 8
"""Pipeline stages tried: 64 GPUs."""


def longest_that_fits(model: Architecture, gpu: Gpu, **asked: Unpack[Asked]) -> int:
    """The largest max_model_len up to the asked one (0: the model's) with which the engine starts; 0: none does."""
    own = longest(model, asked.get("version", LATEST))
    low, high = 0, asked.get("max_model_len") or own
    high = high if asked.get("allow_long") else min(high, own)
    while low < high:
        middle = (low + high + 1) // 2
        tried: Asked = {**asked, "max_model_len": middle}
        low, high = (middle, high) if plan(model, gpu, **tried).fits else (low, middle - 1)
    return low


def gpus_needed(model: Architecture, gpu: Gpu, **asked: Unpack[Asked]) -> tuple[int, int, MemoryPlan] | None:
    """(tensor parallel size, pipeline stages, plan) of the fewest GPUs that start; None: not even the most tried."""
    tensor = [tp for tp in (1, 2, 4, HOST_GPUS) if not whole_parts(model, tp)]
    tries = [(tp, 1) for tp in tensor] + [(tensor[-1], pp) for pp in range(2, min(MOST_STAGES, model.layers) + 1)]
    for tp, pp in tries:
        changed: Asked = {**asked, "tp": tp, "pp": pp}
        found = plan(model, gpu, **changed)
        if found.fits:
            return tp, pp, found
    return None
