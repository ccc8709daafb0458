"""What faults of replicas cost, in virtual time: F3, and F14's recovery seen by a whole fleet."""

from collections.abc import Callable

import msgspec
import pytest

from headway.compose.simulate import MakeBrain
from headway.core.commands import Command, Dispatch
from headway.core.events import Event, FirstToken, Progress, RequestArrived
from headway.sim.driver import Deciding
from headway.sim.run import play
from headway.sim.scenario import Fault, PoolSpec, Scenario, Truth
from tests.sim.support import workload

FOUR = PoolSpec(4, "llama-3.1-8b", "a100-80gb", kv_tokens=60_000)


class Deaf:
    """A brain none of whose clients streams: it hears of nothing but ends."""

    def __init__(self, seed: int) -> None:
        self._brain = MakeBrain("headroom")(seed)

    def handle(self, event: Event) -> list[Command]:
        if isinstance(event, FirstToken | Progress):
            return []
        if isinstance(event, RequestArrived):
            event = RequestArrived(event.at, event.request.changed(stream=False))
        return self._brain.handle(event)


def shares(
    rate: float,
    fault: Fault,
    windows: list[tuple[float, float]],
    make: Callable[[int], Deciding] = MakeBrain("headroom"),  # noqa: B008 - a plain value
) -> list[float]:
    """What the broken one of four replicas got in each window of time, as a multiple of its fair share."""
    sent: list[tuple[float, str]] = []

    def note(event: Event, commands: list[Command]) -> None:
        sent.extend((event.at, command.replica_id) for command in commands if isinstance(command, Dispatch))

    scenario = Scenario(pools=(FOUR,), truth=Truth(perturb=0.1), faults=(fault,))
    requests = workload(int(rate * windows[-1][1]), rate).requests
    play(scenario, requests, make, 1, journal=note)
    broken = sorted({name for _, name in sent})[fault.replica]
    found = []
    for begin, end in windows:
        there = [name == broken for at, name in sent if begin <= at < end]
        found.append(4.0 * sum(there) / len(there))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("rate", [4.0, 16.0])
def test_a_slow_replica_gets_little_within_ten_seconds(rate: float) -> None:
    """F3: ten times as slow from second 20 on; from second 30 on it gets less than a fifth of a fair share."""
    before, after = shares(rate, Fault(20.0, 1, "slow", 60.0, 10.0), [(0.0, 20.0), (30.0, 60.0)])
    assert before > 0.7
    assert after < 0.2


@pytest.mark.slow
@pytest.mark.parametrize("rate", [4.0, 16.0, 32.0])
def test_a_slow_replica_that_never_streams_gets_little(rate: float) -> None:
    """F3 where no client streams. Its answers take 16 s then, and nothing tells before them but that they do not come:
    after twenty seconds it gets less than a third of a fair share."""
    before, after = shares(rate, Fault(20.0, 1, "slow", 60.0, 10.0), [(0.0, 20.0), (40.0, 60.0)], Deaf)
    assert before > 0.6
    assert after < 0.33


@pytest.mark.slow
def test_a_replica_that_recovers_gets_its_share_again() -> None:
    """F14: dead for ten seconds; nothing goes there meanwhile, and its share is fair again after its slow start."""
    fault = msgspec.structs.replace(Fault(10.0, 1), duration_s=10.0)
    dead, back = shares(16.0, fault, [(10.5, 20.0), (40.0, 60.0)])
    assert dead == 0.0
    assert 0.7 < back < 1.3
