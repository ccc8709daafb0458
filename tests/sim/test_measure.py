"""Figures of a run: of nothing there is no figure, not one of 0."""

import msgspec
import pytest

from headway.compose.simulate import contender
from headway.sim.run import simulate
from headway.workload.results import RunResult, mean
from headway.workload.stats import Slo
from tests.sim.support import fleet, workload

USUAL = Slo()


def result(slo: Slo = USUAL, warmup_s: float = 0.0) -> RunResult:
    stage = msgspec.structs.replace(fleet(), slo=slo, warmup_s=warmup_s)
    one = contender("round_robin")
    return simulate(stage, workload(40), one.make_brain, one.name, 1.0, 0).result


def test_a_good_request_has_no_price_where_none_was_good() -> None:
    """It was 0.0: the worst policy looked the cheapest."""
    found = result(Slo(ttft_s=0.0, ttft_per_prompt_token_s=0.0))
    assert (found.good, found.late) == (0, found.requests)
    assert found.gpu_hours_per_1k_good is None
    assert b'"gpu_hours_per_1k_good":null' in msgspec.json.encode(found)
    assert found.ttft_p99_s is not None
    assert (found.urgent_ttft_p99_s, found.stall_p99_s) == (None, None)


def test_quantiles_of_nobody_are_none() -> None:
    found = result(warmup_s=1e6)
    assert found.requests == 0
    named = [name for name in found.__struct_fields__ if name.endswith(("_p50_s", "_p99_s"))]
    assert {getattr(found, name) for name in [*named, "longest_wait_s", "kv_gap_p95", "kv_usage_std"]} == {None}


def test_a_mean_is_of_all_runs_or_there_is_none() -> None:
    one = result()
    assert one.gpu_hours_per_1k_good is not None
    two = msgspec.structs.replace(one, gpu_hours_per_1k_good=one.gpu_hours_per_1k_good + 1.0)
    none = msgspec.structs.replace(one, gpu_hours_per_1k_good=None)
    assert mean([one, two], "gpu_hours_per_1k_good") == pytest.approx(one.gpu_hours_per_1k_good + 0.5)
    assert mean([one, none], "gpu_hours_per_1k_good") is None
    assert mean([], "good") is None


def test_time_is_what_was_simulated_and_not_when_the_last_request_happened_to_come() -> None:
    """Two good requests within the first seconds of a hundred were 18 GPU-hours per thousand, or 10 by another seed."""
    sparse = msgspec.structs.replace(workload(2, 1.0, longest=100), span_s=100.0)
    one, stage = contender("round_robin"), fleet(warmup_s=0.0)
    found = simulate(stage, sparse, one.make_brain, one.name, 1.0, 0).result
    assert (found.good, found.window_s, found.goodput_rps) == (2, 100.0, 0.02)
    assert found.gpu_hours_per_1k_good == pytest.approx(3 * 100 / 3600 / 2 * 1000)
    late = msgspec.structs.replace(stage, warmup_s=sparse.requests[-1].arrival_s)
    assert simulate(late, sparse, one.make_brain, one.name, 1.0, 0).result.goodput_rps == pytest.approx(
        1 / (100.0 - late.warmup_s)
    )
