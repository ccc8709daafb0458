"""One run: a scenario, a workload and a brain in, figures out."""

from collections.abc import Callable, Sequence

from headway.sim.columns import Columns
from headway.sim.driver import Deciding, Driver, Journal
from headway.sim.measure import summarize
from headway.sim.prompt import Prompt, prompts
from headway.sim.replica import SimReplica
from headway.sim.scenario import Scenario
from headway.sim.truth import grounds
from headway.workload.request import Request, Workload
from headway.workload.results import Run

BrainMaker = Callable[[int], Deciding]
"""Given a seed, a fresh brain. Must be picklable to run in other processes."""


def play(
    scenario: Scenario,
    requests: Sequence[Request],
    make_brain: BrainMaker,
    seed: int,
    known: Sequence[Prompt] | None = None,
    journal: Journal | None = None,
) -> tuple[Columns, float]:
    """What became of every request, and the seconds that the brain took. `known`: prompts worked out before."""
    truth = scenario.truth
    found = known or prompts(requests, 16, truth.bytes_per_token, truth.byte_noise)
    replicas = [SimReplica(ground, truth, seed) for ground in grounds(scenario, seed)]
    driver = Driver(make_brain(seed), replicas, scenario, requests, found, seed, journal)
    return driver.play(), driver.brain_s


def simulate(
    scenario: Scenario,
    load: Workload,
    make_brain: BrainMaker,
    policy: str,
    factor: float,
    seed: int,
    known: Sequence[Prompt] | None = None,
    detail: bool = False,
) -> Run:
    """Figures of one run. `factor`: the load as it is reported. Equal seeds mean equal truth and noise, whatever the
    policy."""
    columns, brain_s = play(scenario, load.requests, make_brain, seed, known)
    return summarize(columns, load.span_s, scenario, policy, factor, seed, brain_s, detail)
