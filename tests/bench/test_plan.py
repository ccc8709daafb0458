"""Plans."""

import pytest

from headway.bench.plan import BenchPlan, ClientLoad
from headway.workload.request import Request

REQUESTS = [Request(3.0, (), 1), Request(1.0, (), 1), Request(2.0, (), 1)]


@pytest.mark.parametrize("url", ["http://x:1", "http://x:1/", "http://x:1/v1", "http://x:1/v1/"])
def test_base(url: str) -> None:
    assert BenchPlan(url=url, requests=[]).base == "http://x:1"


def test_duration_cuts_and_window_leaves_the_warm_up_out() -> None:
    plan = BenchPlan(url="", requests=REQUESTS, duration_s=2.5, warmup_s=0.5)
    assert [request.arrival_s for request in plan.due()] == [1.0, 2.0]
    assert plan.window_s == 2.0
    assert BenchPlan(url="", requests=REQUESTS).window_s == 3.0
    assert BenchPlan(url="", requests=[]).window_s == 0.0


@pytest.mark.parametrize(("cpu", "late", "suspect"), [(0.5, 0.01, False), (0.95, 0.01, True), (0.5, 0.2, True)])
def test_a_busy_or_late_client_is_suspect(cpu: float, late: float, suspect: bool) -> None:
    assert ClientLoad(cpu, late, 1.0).suspect is suspect
