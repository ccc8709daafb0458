"""The demo's plan and its books."""

import pytest

from headway.bench import BenchResult, ClientLoad
from headway.bench.demo import FLEET, MAX_TOKENS, DemoPlan, PolicyRun, workload
from headway.perfmodel import catalogue, memory
from headway.workload.accounts import Accounts
from headway.workload.stats import Slo, summarize


def policy_run(client: Accounts, gateway: Accounts) -> PolicyRun:
    result = BenchResult("m", summarize([], 0, 1.0, Slo()), client, ClientLoad(0.1, 0.0, 1.0), ())
    return PolicyRun("p", result, gateway, 0.0)


@pytest.mark.parametrize(
    ("client", "gateway", "accounted"),
    [
        (Accounts(started=2, ok=2), Accounts(started=2, ok=2), True),
        (Accounts(started=2, ok=2), Accounts(started=2, ok=1, server_error=1), False),
        (Accounts(started=2, ok=1), Accounts(started=2, ok=1), False),
        (Accounts(started=1, shed=1), Accounts(started=1, shed=1), True),
    ],
)
def test_books(client: Accounts, gateway: Accounts, accounted: bool) -> None:
    assert policy_run(client, gateway).accounted is accounted


def test_the_workload_fits_the_engines() -> None:
    requests = workload(DemoPlan())
    assert {request.shape for request in requests} == {"chat", "documents"}
    assert max(request.prompt_tokens for request in requests) + MAX_TOKENS <= FLEET.longest
    assert len(requests) == pytest.approx(25 * DemoPlan().rate, rel=0.25)


def test_what_the_scenario_says_of_the_cards_is_true() -> None:
    model = catalogue.model(FLEET.model)
    large, small = (memory.plan(model, catalogue.gpu(name)).kv_tokens for name in ("h100-80gb", "a100-40gb"))
    assert large / small == pytest.approx(6, abs=0.8)
