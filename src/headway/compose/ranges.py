"""Which numbers of a simulation make sense, field by field: what lies outside would end in nonsense, or never.

Only bounds of single fields live here. What fits together is checked where a simulation is made (`simulation`).
"""

import math
from collections.abc import Iterator, Mapping

import msgspec

from headway.compose.source import Path

Range = tuple[float, float]

LARGE = 1e9
LATER_S = 1e7
"""Four months."""

WORKLOAD: Mapping[str, Range] = {
    "length_factor": (0.001, 1000),
    "longest": (0, LARGE),
    "duration_s": (0, LATER_S),
    "warmup_s": (0, LATER_S),
    "seeds": (1, 10_000),
}
POOL: Mapping[str, Range] = {
    "count": (1, 10_000),
    "tensor_parallel_size": (1, 1024),
    "kv_tokens": (0, LARGE),
    "max_num_seqs": (1, 1_000_000),
    "max_num_batched_tokens": (0, LARGE),
    "max_model_len": (0, LARGE),
}
API: Mapping[str, Range] = {"base_s": (0, 60), "serial_s": (0, 60), "per_token_s": (0, 1)}
TRUTH: Mapping[str, Range] = {
    "perturb": (0, 0.99),
    "step_jitter": (0, 1),
    "scrape_interval_s": (0.001, 3600),
    "scrape_jitter": (0, 0.99),
    "report_delay_s": (0, 3600),
    "gauge_lag_s": (0, 3600),
    "bytes_per_token": (0.1, 100),
    "byte_noise": (0, 2),
    "probe_interval_s": (0.001, 3600),
}
SLO: Mapping[str, Range] = {
    "ttft_s": (0, LATER_S),
    "ttft_per_prompt_token_s": (0, LATER_S),
    "tpot_s": (0, LATER_S),
}
FAULT: Mapping[str, Range] = {"at_s": (0, LATER_S), "duration_s": (0.001, LATER_S), "factor": (0.01, 1000)}


def outside(struct: msgspec.Struct, ranges: Mapping[str, Range], path: Path) -> Iterator[tuple[Path, str]]:
    """The fields that lie outside, as (path, what they must be)."""
    for name, (low, high) in ranges.items():
        value = getattr(struct, name)
        if not low <= value <= high:
            limits = f"{low:,g} or more" if high >= LATER_S else f"{low:,g} to {high:,g}"
            yield (*path, name), f"must be {limits}" + (f", not {value:g}" if math.isfinite(value) else "")
