"""Sweeps: all cells run, in order, and alike in one process or several."""

import msgspec
import pytest

from headway.compose.simulate import UnknownPolicy, contenders
from headway.sim.capacity import backlog_rps
from headway.sim.sweep import Sweep, arrivals, prepared, run
from headway.workload.results import Run
from tests.sim.support import SMALL, fleet, workload


def sweep(seeds: int = 2) -> Sweep:
    return Sweep(
        fleet(),
        workload(200),
        contenders(["round_robin", "headroom", "lmetric+queue", "clairvoyant"]),
        (0.4, 0.8),
        seeds,
    )


def plain(runs: list[Run]) -> list[dict[str, object]]:
    return [msgspec.to_builtins(r.result) | {"decision_us": 0} for r in runs]


@pytest.mark.slow
def test_processes_change_nothing() -> None:
    here, there = run(sweep(1), jobs=1), run(sweep(1), jobs=2)
    assert plain(here) == plain(there)


@pytest.mark.slow
def test_cells_come_in_order_and_progress_is_told() -> None:
    seen: list[object] = []
    runs = run(sweep(), jobs=1, progress=lambda cell, _run: seen.append(cell))
    assert len(seen) == len(runs) == sweep().runs == 16
    assert [(r.result.load, r.result.policy, r.result.seed) for r in runs[:4]] == [
        (0.4, "round_robin", 0),
        (0.4, "round_robin", 1),
        (0.4, "headroom", 0),
        (0.4, "headroom", 1),
    ]


def test_load_is_a_multiple_of_the_backlog_throughput() -> None:
    ready = prepared(sweep())
    requests = ready.workload.requests
    alone = backlog_rps(SMALL, requests)
    assert ready.capacity_rps == pytest.approx(3 * alone)
    low, high = arrivals(ready, 0, 0), arrivals(ready, 1, 0)
    assert len(high.requests) / len(low.requests) == pytest.approx(2.0, rel=0.25)
    assert arrivals(ready, 0, 0) == low
    assert arrivals(ready, 0, 1) != low


def test_a_workload_that_fits_nowhere_is_refused() -> None:
    tiny = msgspec.structs.replace(SMALL, kv_tokens=16)
    requests = workload(3, longest=50).requests
    with pytest.raises(ValueError, match="16 tokens"):
        backlog_rps(tiny, [r for r in requests if r.prompt_tokens > 16])


def test_unknown_policies_are_named() -> None:
    with pytest.raises(UnknownPolicy, match="round_robin"):
        contenders(["round_robbin"])
