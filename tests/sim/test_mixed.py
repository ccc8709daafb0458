"""Fleets of unlike replicas: unlike GPUs, unlike precisions, one that comes back cold under load."""

from collections import Counter
from collections.abc import Sequence

import msgspec
import numpy as np
import pytest

from headway.compose.simulate import MakeBrain
from headway.core.commands import Command, Dispatch
from headway.core.events import Event
from headway.sim.columns import OK
from headway.sim.driver import Driver
from headway.sim.prompt import prompts
from headway.sim.replica import SimReplica
from headway.sim.scenario import Fault, PoolSpec, Scenario, Truth
from headway.sim.truth import Ground, grounds
from headway.workload.request import Request, Segment

MODEL = "qwen2.5-1.5b"
GPUS = ("a100-80gb", "h100-80gb", "t4-16gb")


def pool(gpu: str, dtype: str = "auto", **facts: object) -> PoolSpec:
    """One replica."""
    facts.setdefault("kv_tokens", 200_000)
    return PoolSpec(1, MODEL, gpu, dtype=dtype, max_num_seqs=128, max_model_len=8192, **facts)  # type: ignore[arg-type]


def arrivals(rate: float, seconds: float, seed: int = 0) -> list[Request]:
    """Poisson arrivals of chats that share nothing."""
    rng = np.random.default_rng(seed)
    at, found = 0.0, []
    while (at := at + float(rng.exponential(1.0 / rate))) < seconds:
        prompt, output = int(rng.integers(200, 1200)), int(rng.integers(50, 350))
        found.append(Request(at, (Segment(len(found), prompt),), output))
    return found


def unknowing(ground: Ground) -> Ground:
    """The brain knows nothing of the GPU: what it is worth must be learned."""
    return msgspec.structs.replace(ground, spec=msgspec.structs.replace(ground.spec, features={}))


class Played:
    """One run: when each replica was sent something."""

    def __init__(self, scenario: Scenario, requests: Sequence[Request], policy: str = "headroom") -> None:
        self.sent: list[tuple[float, str]] = []
        fleet = [unknowing(ground) for ground in grounds(scenario, 0)]
        replicas = [SimReplica(ground, scenario.truth, 0) for ground in fleet]
        driver = Driver(MakeBrain(policy)(0), replicas, scenario, requests, prompts(requests), 0, self._note)
        self.fates = driver.play().fate

    def _note(self, event: Event, commands: list[Command]) -> None:
        self.sent += [(event.at, command.replica_id) for command in commands if isinstance(command, Dispatch)]

    def shares(self, after_s: float, before_s: float = float("inf")) -> dict[str, float]:
        """Parts of what was sent, by replica."""
        count = Counter(name for at, name in self.sent if after_s <= at < before_s)
        return {name: count[name] / count.total() for name in sorted(count)}


def worth(gpu: str, seconds: float = 15.0) -> float:
    """Requests/s that one such replica works off when it has more than enough to do."""
    scenario = Scenario(pools=(pool(gpu),), truth=Truth())
    requests = arrivals(70.0, seconds)
    fleet = [SimReplica(ground, scenario.truth, 0) for ground in grounds(scenario, 0)]
    brain = MakeBrain("round_robin")(0)
    driver = Driver(brain, fleet, scenario, requests, prompts(requests), 0)
    driver.play()
    return len(requests) / driver.now


@pytest.mark.slow
def test_shares_follow_what_each_gpu_is_worth_though_nobody_said() -> None:
    values = np.array([worth(gpu) for gpu in GPUS])
    total = float(values.sum())
    scenario = Scenario(pools=tuple(map(pool, GPUS)), truth=Truth(perturb=0.1))
    played = Played(scenario, arrivals(0.7 * total, 40.0))
    assert set(played.fates) == {OK}
    got = played.shares(12.0)
    for number, fair in enumerate(values / total):
        assert got[f"r{number:03d}"] == pytest.approx(fair, rel=0.25)


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["headroom", "least_connections"])
def test_one_that_comes_back_cold_is_no_magnet(policy: str) -> None:
    """Four alike under load; one dies and comes back empty, and looks best to every policy that counts what runs."""
    scenario = Scenario(pools=tuple(pool("a100-80gb") for _ in range(4)), faults=(Fault(8.0, 1, "crash", 6.0),))
    played = Played(scenario, arrivals(70.0, 40.0), policy)
    back = min(at for at, name in played.sent if name == "r001" and at > 14.0)
    assert 0.0 < played.shares(back, back + 1.0)["r001"] < 0.8 * 0.25
    assert played.shares(back, back + 5.0)["r001"] < 0.25
    assert played.shares(30.0)["r001"] == pytest.approx(0.25, abs=0.03)


@pytest.mark.parametrize(("floor", "served"), [("", {"r000"}), ("fp8", {"r000", "r001"})])
def test_precisions_are_mixed_only_with_consent(floor: str, served: set[str]) -> None:
    pools = (pool("h100-80gb", "bf16"), pool("h100-80gb", "fp8"))
    played = Played(Scenario(pools=pools, precision_floor=floor), arrivals(20.0, 5.0))
    assert set(played.fates) == {OK}
    assert {name for _, name in played.sent} == served
