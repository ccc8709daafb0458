"""The driver: every request comes to one end, nothing is left behind, the same seed gives the same run."""

import subprocess
import sys

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.compose.registry import find
from headway.compose.simulate import MakeBrain
from headway.core.brain import Brain
from headway.core.commands import Command
from headway.core.events import Event, SampleTaken
from headway.sim.columns import FAILED, OK, OPEN
from headway.sim.driver import Driver
from headway.sim.prompt import prompts
from headway.sim.replica import SimReplica
from headway.sim.run import simulate
from headway.sim.scenario import Fault, Scenario, Truth
from headway.sim.truth import grounds
from headway.workload.results import RunResult
from tests.sim.support import fleet, workload

POLICIES = sorted(find().policies)
FAULTS = st.lists(
    st.builds(
        Fault,
        at_s=st.floats(0.0, 12.0),
        replica=st.integers(0, 2),
        kind=st.sampled_from(["crash", "slow", "silent"]),
        duration_s=st.floats(0.5, 8.0),
    ),
    max_size=3,
).map(tuple)


def driven(scenario: Scenario, policy: str, seed: int = 0, queued: bool = False) -> tuple[Brain, Driver]:
    requests = workload(seed=seed).requests
    replicas = [SimReplica(ground, scenario.truth, seed) for ground in grounds(scenario, seed)]
    brain = MakeBrain(policy, queued=queued)(seed)
    driver = Driver(brain, replicas, scenario, requests, prompts(requests), seed)
    driver.play()
    return brain, driver


@pytest.mark.slow
@given(policy=st.sampled_from(POLICIES), queued=st.booleans(), faults=FAULTS, seed=st.integers(0, 99))
@settings(max_examples=20, deadline=None)
def test_every_request_ends_once_and_nothing_stays(
    policy: str, queued: bool, faults: tuple[Fault, ...], seed: int
) -> None:
    brain, driver = driven(fleet(faults=faults), policy, seed, queued)
    assert OPEN not in driver.columns.fate
    snapshot = brain.snapshot(driver.now)
    assert (snapshot.in_flight, snapshot.queued) == (0, 0)
    for view in snapshot.views:
        assert (view.in_flight, view.reserved_tokens, view.prefill_backlog_tokens) == (0, 0, 0)
    for replica in driver._replicas.values():
        assert not replica.jobs
        assert not replica.engine.running
        assert replica.engine.pool.free == replica.engine.pool.count
    if not faults:
        assert set(driver.columns.fate) == {OK}


def test_a_crash_is_retried_elsewhere_or_told_and_the_brain_learns_of_it() -> None:
    calm, driver = driven(fleet(), "headroom")
    assert driver.columns.fate.count(OK) == 120
    _, driver = driven(fleet(faults=(Fault(4.0, 0, "crash", 6.0),)), "headroom")
    lost = driver.columns.fate.count(FAILED)
    assert 0 < lost < 40  # those that had begun to answer; the others were sent elsewhere
    assert driver.columns.fate.count(OK) == 120 - lost
    assert calm.snapshot(driver.now).views[0].breaker == "closed"


def test_a_slow_replica_gets_less() -> None:
    usage = []
    for faults in ((), (Fault(0.0, 1, "slow", 1e9, 5.0),)):
        _, driver = driven(fleet(faults=faults), "headroom")
        usage.append(driver._replicas[driver.columns.names[1]].engine.generated)  # type: ignore[index]
    assert usage[1] < 0.7 * usage[0]


def figures(policy: str, seed: int) -> RunResult:
    found = simulate(fleet(), workload(), MakeBrain(policy), policy, 0.5, seed, detail=True)
    return found.result


def test_equal_seeds_equal_runs_and_other_seeds_other_truths() -> None:
    first, second, other = figures("headroom", 1), figures("headroom", 1), figures("headroom", 2)
    assert [getattr(first, f) for f in RunResult.__struct_fields__ if f != "decision_us"] == [
        getattr(second, f) for f in RunResult.__struct_fields__ if f != "decision_us"
    ]
    assert first.ttft_p50_s != other.ttft_p50_s


@pytest.mark.slow
def test_hash_seeds_change_nothing() -> None:
    code = "from tests.sim.test_driver import figures; f = figures('headroom', 3); print(f.ttft_p99_s, f.e2e_p99_s)"
    outputs = {
        subprocess.run(
            [sys.executable, "-c", code], env={"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True
        ).stdout
        for seed in ("1", "2")
    }
    assert len(outputs) == 1
    assert outputs.pop().strip()


def test_all_policies_see_the_same_arrivals_and_truth() -> None:
    runs = [figures(policy, 5) for policy in ("round_robin", "headroom")]
    assert runs[0].requests == runs[1].requests
    assert runs[0].window_s == runs[1].window_s
    one, two = (grounds(fleet(), 5) for _ in range(2))
    assert [g.model._decode for g in one] == [g.model._decode for g in two]  # type: ignore[attr-defined]
    assert len({g.model._decode for g in one}) == 3  # type: ignore[attr-defined]


@pytest.mark.parametrize(("late", "age"), [({"gauge_lag_s": 0.5}, 0.0), ({"report_delay_s": 0.5}, 0.5)])
def test_reports_are_as_old_as_the_scenario_says_and_only_a_delay_is_known(late: dict[str, float], age: float) -> None:
    truth = Truth(**({"gauge_lag_s": 0.0} | late))
    scenario, requests = msgspec.structs.replace(fleet(), truth=truth), workload().requests
    replicas = [SimReplica(ground, truth, 0) for ground in grounds(scenario, 0)]
    ages: set[float] = set()

    def note(event: Event, _commands: list[Command]) -> None:
        if isinstance(event, SampleTaken):
            ages.add(round(event.at - event.sample.taken_at, 9))

    Driver(MakeBrain("lmetric")(0), replicas, scenario, requests, prompts(requests), 0, note).play()
    assert ages == {age}
