"""The robustness run: its measurements are made of what they say, and its conditions are what they say."""

import sys
from pathlib import Path

import msgspec
import pytest

from headway.perfmodel.decoding import Job
from headway.sim.scenario import Scenario, Truth
from headway.sim.truth import grounds
from tests.interpreted import interpreted

BENCHMARKS = str(Path(__file__).resolve().parents[2] / "benchmarks")
sys.path.insert(0, BENCHMARKS)
import robustness  # noqa: E402
from robustness_conditions import CONDITIONS, POOL, Condition  # noqa: E402

sys.path.remove(BENCHMARKS)

pytestmark = interpreted


@pytest.fixture(scope="module")
def chat() -> robustness.Found:
    """Half a minute of the first condition."""
    return robustness.run(CONDITIONS[0], 0, 30.0)


def named(name: str) -> Condition:
    return next(one for one in CONDITIONS if one.name == name)


@pytest.mark.slow
def test_forecasts_hold_what_they_promise_where_nothing_is_bent(chat: robustness.Found) -> None:
    assert chat.requests > 200
    assert len(chat.kv_now) > 200
    assert len(chat.kv_ahead) > 20
    assert sorted(chat.kv_now)[len(chat.kv_now) // 2] < 0.05
    assert sorted(chat.kv_ahead)[len(chat.kv_ahead) // 2] < 0.15
    assert 0.7 < sum(chat.inside) / len(chat.inside) <= 1.0
    assert chat.preempted == 0


@pytest.mark.slow
def test_load_past_the_gateway_makes_pools_harder_to_know(chat: robustness.Found) -> None:
    foreign = robustness.run(named("foreign-50"), 0, 30.0)
    assert foreign.requests < 0.7 * chat.requests
    assert sum(foreign.kv_now) / len(foreign.kv_now) > 1.5 * sum(chat.kv_now) / len(chat.kv_now)


@pytest.mark.slow
def test_a_ratio_that_changes_shows_in_prompts(chat: robustness.Found) -> None:
    chinese = robustness.run(named("chinese"), 0, 30.0)
    assert max(chinese.prompt) > 1.5 * max(chat.prompt)


def test_foreign_requests_run_and_are_not_ours() -> None:
    (ground,) = grounds(Scenario((msgspec.structs.replace(POOL, count=1),)), 0)
    replica = robustness.Shared(ground, Truth(), 0, [Job("foreign-0", 100, 5, (), 1.0)])
    assert replica.ends == 1.0
    assert not replica.complete().finished
    assert replica.kv_usage(1.0) > 0.0
    assert replica.progress(1.0) == []
    finished = [job.id for _ in range(10) if replica.ends < float("inf") for job in replica.complete().finished]
    assert finished == ["foreign-0"]


def test_a_table_has_a_row_per_condition(chat: robustness.Found) -> None:
    text = robustness.table(CONDITIONS[:1], {"chat": chat})
    assert text.splitlines()[2].startswith("| chat | the yardstick")
    assert len({one.name for one in CONDITIONS}) == len(CONDITIONS)


@pytest.mark.parametrize(
    ("errors", "shown"), [([], "-"), ([0.01] * 100, "1.0% / 1.0%"), ([0.5, 20.0], "1025.0% / 20 x")]
)
def test_medians_and_bounds(errors: list[float], shown: str) -> None:
    assert robustness._pair(errors) == shown
