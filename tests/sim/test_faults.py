"""What faults of replicas cost, in virtual time: F3, and F14's recovery seen by a whole fleet; and when they end."""

import itertools
from collections.abc import Callable, Sequence
from heapq import heappop, heappush

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.compose.simulate import MakeBrain
from headway.core.commands import Command, Dispatch
from headway.core.events import Event, FirstToken, ProbeSucceeded, Progress, RequestArrived
from headway.core.ids import ReplicaId
from headway.observe.config import ObserveConfig
from headway.sim.driver import Deciding
from headway.sim.faults import Faults
from headway.sim.replica import SimReplica
from headway.sim.run import play
from headway.sim.scenario import Fault, PoolSpec, Scenario, Truth
from headway.sim.truth import grounds
from tests.sim.support import fleet, workload

FOUR = PoolSpec(4, "llama-3.1-8b", "a100-80gb", kv_tokens=60_000)
GROUND = grounds(fleet(), 0)[0]


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


@pytest.mark.slow
@pytest.mark.parametrize("lasts_s", [16.0, 40.0])
def test_a_replica_that_is_back_is_found_by_the_next_probe(lasts_s: float) -> None:
    """However long it was away. Only the breaker's own probes asked, whose pauses double up to a minute."""
    used: list[float] = []
    probed: list[float] = []

    def note(event: Event, commands: list[Command]) -> None:
        used.extend(event.at for each in commands if isinstance(each, Dispatch) and each.replica_id == "r000")
        if isinstance(event, ProbeSucceeded) and event.replica_id == "r000":
            probed.append(event.at)

    scenario = fleet(faults=(Fault(5.0, 0, "crash", lasts_s),))
    back = 5.0 + lasts_s
    play(scenario, workload(240, 5.0, longest=300).requests, MakeBrain("round_robin"), 1, journal=note)
    interval_s = ObserveConfig().probe_interval_s
    assert Truth().probe_interval_s == interval_s
    assert back < min(at for at in used if at > 6.0) < back + interval_s + 1.0
    last = [at for at in probed if at > back]
    assert all(after - before < 1.2 * interval_s for before, after in itertools.pairwise(last))


class Bare:
    """A world of replicas and faults, without requests or a brain. `seen`: what a replica is, at every whole second."""

    def __init__(self, faults: tuple[Fault, ...], until: int) -> None:
        self.now = 0.0
        self._next: list[tuple[float, int, Callable[[float, object], None], object]] = []
        self._numbers = itertools.count()
        scenario = fleet(faults=faults)
        self._replica = SimReplica(GROUND, scenario.truth, 0)
        self.seen: list[tuple[bool, bool, float]] = []
        self.probes: list[float] = []
        Faults(self, scenario, 0).begin([self._replica])
        for second in range(until):
            self.later(second - self.now, self._look, None)
            self._run(second)

    def later(self, delay: float, act: Callable[[float, object], None], what: object) -> None:
        heappush(self._next, (self.now + delay, next(self._numbers), act, what))

    def crash(self, replica: SimReplica) -> None:
        replica.crash(self.now)

    def wake(self, replica: SimReplica) -> None:
        pass

    def probe(self, name: ReplicaId) -> None:
        self.probes.append(self.now)

    def _run(self, second: int) -> None:
        while self._next and self._next[0][0] <= second:
            self.now, _, act, what = heappop(self._next)
            act(self.now, what)
        self.now = float(second)

    def _look(self, _at: float, _what: object) -> None:
        self.seen.append((self._replica.alive, self._replica.silent, self._replica.factor))


def expected(faults: Sequence[Fault], second: int) -> tuple[bool, bool, float]:
    active = [fault for fault in faults if fault.at_s <= second < fault.at_s + fault.duration_s]
    kinds = {fault.kind for fault in active}
    slow = max((fault.factor for fault in active if fault.kind == "slow"), default=1.0)
    return "crash" not in kinds, "silent" in kinds, slow


@pytest.mark.slow
@settings(max_examples=50, deadline=None)
@given(
    st.lists(
        st.builds(
            Fault,
            at_s=st.integers(0, 9).map(lambda second: second + 0.5),
            replica=st.just(0),
            kind=st.sampled_from(["crash", "slow", "silent"]),
            duration_s=st.integers(1, 9).map(float),
            factor=st.sampled_from([0.5, 2.0, 4.0]),
        ),
        max_size=4,
    ).map(tuple)
)
def test_each_of_several_faults_ends_by_itself(faults: tuple[Fault, ...]) -> None:
    """The first of two that overlapped or touched ended both."""
    world = Bare(faults, 22)
    assert world.seen == [expected(faults, second) for second in range(22)]


def test_a_replica_that_crashed_twice_is_probed_in_one_rhythm() -> None:
    world = Bare((Fault(1.5, 0, "crash", 4.0), Fault(3.5, 0, "crash", 4.0), Fault(20.5, 0, "crash", 2.0)), 200)
    gaps = [after - before for before, after in itertools.pairwise(world.probes)]
    assert len(gaps) > 30
    assert all(4.5 <= gap <= 5.5 for gap in gaps)
