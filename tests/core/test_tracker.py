"""Policies with accounts of their own hear of every dispatch and of every end, and of nothing else."""

import random

from headway.core.brain import Brain
from headway.core.commands import Reject
from headway.core.constants import BrainConfig
from headway.core.demand import Demand
from headway.core.ids import ReplicaId
from headway.core.outcome import OutcomeKind
from headway.core.plugin import Tracker
from headway.core.request import RequestInfo
from tests.core.house import FewestInFlight, Fixed, House, decision, sent_to


class Tracking(FewestInFlight):
    """Writes down what it is told."""

    def __init__(self, binds_late: bool = False) -> None:
        super().__init__(binds_late)
        self.open: list[tuple[str, str]] = []
        self.told = 0

    def sent(self, demand: Demand, replica: ReplicaId, now: float) -> None:
        self.open.append((demand.request.id, replica))
        self.told += 1

    def ended(self, request: RequestInfo, replica: ReplicaId) -> None:
        self.open.remove((request.id, replica))


def test_every_attempt_is_told_once_and_ended_once() -> None:
    policy = Tracking()
    house = House(policy)
    house.add("a", "b")
    assert isinstance(policy, Tracker)
    first = sent_to(house.ask("r"))
    assert policy.open == [("r", first)]
    second = sent_to(house.end("r-0", OutcomeKind.CONNECT_FAILED))
    assert second != first
    assert policy.open == [("r", second)]
    house.end("r-1")
    house.end("r-1")
    assert policy.open == []
    assert policy.told == 2


def test_a_request_that_is_held_was_not_sent() -> None:
    policy = Tracking(binds_late=True)
    house = House(policy)
    house.add("a", kv_capacity_tokens=1000)
    house.ask("r", prompt_tokens=900)
    house.ask("s", prompt_tokens=900)
    assert [name for name, _ in policy.open] == ["r"]
    assert sent_to(house.end("r-0")) == "a"
    assert [name for name, _ in policy.open] == ["s"]


def test_a_policy_without_accounts_is_left_alone() -> None:
    assert not isinstance(FewestInFlight(), Tracker)


def test_a_request_may_ask_for_another_policy() -> None:
    fewest, fixed = FewestInFlight(), Fixed({"a": 2.0, "b": 1.0})
    brain = Brain(BrainConfig(), fewest, random.Random(1), [fixed])
    house = House()
    house.brain = brain
    house.add("a", "b")
    made = [decision(house.ask(f"r{n}", policy="fixed")) for n in range(3)]
    assert {(one.policy, one.chosen) for one in made} == {("fixed", "b")}
    assert decision(house.ask("s")).policy == "fewest"
    assert decision(house.ask("t", policy="fewest")).chosen == "a"
    (refusal,) = house.ask("u", policy="other")
    assert isinstance(refusal, Reject)
    assert (refusal.status, refusal.code) == (400, "unknown_policy")
    assert "fewest, fixed" in refusal.message
