"""Questions that turn the memory model round: the longest context that starts, the fewest GPUs that do.

Both ask `memory.plan` again and again; what it answers is monotone in length, but for one step in the first core.
"""

from typing import Unpack

from headway.perfmodel.architectures import Architecture
from headway.perfmodel.gpus import Gpu
from headway.perfmodel.memory import LATEST, Asked, MemoryPlan, plan
from headway.perfmodel.memory_limits import longest, whole_parts
from headway.perfmodel.versions import WHOLE_PROMPTS

HOST_GPUS = 8
"""GPUs of one host, the usual bound of tensor parallelism."""

MOST_STAGES = 8
"""Pipeline stages tried: 64 GPUs."""


def longest_that_fits(model: Architecture, gpu: Gpu, **asked: Unpack[Asked]) -> int:
    """The largest max_model_len up to the asked one (0: the model's) with which the engine starts; 0: none does."""
    own = longest(model, asked.get("version", LATEST))
    most = asked.get("max_model_len") or own
    most = most if asked.get("allow_long") else min(most, own)
    for low, high in ((WHOLE_PROMPTS, most), (0, min(most, WHOLE_PROMPTS))):
        found = _bisected(model, gpu, asked, low, high)
        if found > low:
            return found
    return 0


def _bisected(model: Architecture, gpu: Gpu, asked: Asked, low: int, high: int) -> int:
    """The longest that starts above `low` and up to `high`; `low`: none of them."""
    while low < high:
        middle = (low + high + 1) // 2
        tried: Asked = {**asked, "max_model_len": middle}
        low, high = (middle, high) if plan(model, gpu, **tried).fits else (low, middle - 1)
    return low


def gpus_needed(model: Architecture, gpu: Gpu, **asked: Unpack[Asked]) -> tuple[int, int, MemoryPlan] | None:
    """(tensor parallel size, pipeline stages, plan) of the fewest GPUs that start, in this order: 1, 2, 4 and 8 in one
    host, then stages as large as a host. Smaller stages, which may do with fewer, are not tried: they leave a host's
    links unused. None: not even the most tried."""
    tensor = [tp for tp in (1, 2, 4, HOST_GPUS) if not whole_parts(model, tp)]
    tries = [(tp, 1) for tp in tensor] + [(tensor[-1], pp) for pp in range(2, min(MOST_STAGES, model.layers) + 1)]
    for tp, pp in tries:
        changed: Asked = {**asked, "tp": tp, "pp": pp}
        found = plan(model, gpu, **changed)
        if found.fits:
            return tp, pp, found
    return None
