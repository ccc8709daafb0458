"""One brain, two bodies: what one of them wrote down, the other's brain repeats."""

import math

import pytest

from headway.compose.recipe import replay
from headway.compose.registry import find
from headway.compose.simulate import MakeBrain, UnknownPolicy, contender
from headway.core.commands import Command
from headway.core.constants import AdmissionConfig, BrainConfig, BurstConfig
from headway.core.events import Event
from headway.sim.run import play
from headway.wire.journal import encode_entry
from tests.cases.house import SEED, House, case, gather_bounded
from tests.harness import scripts
from tests.harness.client import chat
from tests.sim.support import fleet, workload


@pytest.mark.slow
@case(scripts.answer(after_s=0.02), scripts.stream(30, gap_s=0.002))
async def test_the_journal_of_a_gateway_is_repeated_by_the_simulators_brain(house: House) -> None:
    """Command for command: both bodies hold the same object, made from the same recipe."""
    answers = await gather_bounded(
        8, (house.ask(chat(content=f"question {n} " * (n % 7 + 1), stream=n % 2 == 0)) for n in range(60))
    )
    assert {answer.status for answer in answers} == {200}
    brain = MakeBrain("headroom")(SEED)
    journal = list(house.journal)
    assert len(journal) > 120
    for event, commands in journal:
        assert brain.handle(event) == commands


@pytest.mark.parametrize("policy", sorted(find().policies))
def test_the_journal_of_a_simulation_is_verified_as_a_gateways_is(policy: str) -> None:
    make = MakeBrain(policy)
    lines = [make.header(7)]

    def note(event: Event, commands: list[Command]) -> None:
        lines.append(encode_entry(event, commands))

    play(fleet(), workload(60).requests, make, 7, journal=note)
    assert len(lines) > 200
    assert replay(lines, find()) is None
    tampered = [line.replace(b'"r001"', b'"r002"') for line in lines]
    assert replay(tampered, find()) is not None


def test_a_queue_and_foresight_are_asked_for_by_name() -> None:
    behind = contender("lmetric+queue")
    assert behind.make_brain(0)._scheduler.policy.binds_late  # type: ignore[attr-defined]
    assert not contender("lmetric").make_brain(0)._scheduler.policy.binds_late  # type: ignore[attr-defined]
    seer = contender("clairvoyant")
    assert seer.clairvoyant
    mean, sigma = seer.make_brain(0)._fleet.length.forecast("served", 321)  # type: ignore[attr-defined]
    assert (mean, sigma) == (pytest.approx(321, abs=1), pytest.approx(0, abs=1))
    assert math.isfinite(mean)
    tuned = contender("cache_aware+tuned+queue").make_brain(0)._scheduler.policy  # type: ignore[attr-defined]
    assert tuned.binds_late
    assert contender("cache_aware+tuned").make_brain != contender("cache_aware").make_brain
    with pytest.raises(UnknownPolicy, match="lmetric"):
        contender("lmetrik")
    with pytest.raises(UnknownPolicy, match="has no tuned constants"):
        contender("random+tuned")


def test_baselines_pay_no_regard_to_sessions_unless_told_to() -> None:
    def keeps(name: str) -> bool:
        return contender(name).make_brain.config.affinity.enabled  # type: ignore[attr-defined, no-any-return]

    assert keeps("headroom")
    assert keeps("clairvoyant")
    assert not keeps("round_robin")
    assert not keeps("lmetric+queue")
    assert keeps("lmetric+queue+sessions")
    assert contender("lmetric+queue+sessions").make_brain(0)._scheduler.policy.binds_late  # type: ignore[attr-defined]
    assert keeps("cache_aware+tuned+sessions")


@pytest.mark.parametrize(
    ("name", "ours"), [("headroom", True), ("clairvoyant", True), ("kv_cost+queue", True), ("kv_cost", False)]
)
def test_baselines_refuse_nobody_unless_behind_our_queue(name: str, ours: bool) -> None:
    wanted = BrainConfig(burst=BurstConfig(curbs=True), admission=AdmissionConfig(reserved=0.25, max_queued=7))
    config = contender(name, wanted).make_brain.config  # type: ignore[attr-defined]
    assert config.degrade.levels is ours
    assert config.burst.curbs is ours
    assert config.admission.reserved == (0.25 if ours else 0.0)
    assert config.admission.max_queued == 7
