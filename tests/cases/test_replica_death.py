"""Replicas that die, hang or refuse: family L of the cases, F2, F9 and F15.

What must hold: only who was already being answered hears of a death; retries stay within their budget; a verdict that
would leave nobody is not believed.
"""

import asyncio
import time

import pytest

from headway.core.commands import Dispatch
from headway.core.constants import BrainConfig, HealthConfig
from headway.core.events import AttemptFinished
from headway.core.ids import ReplicaId
from headway.core.outcome import OutcomeKind
from tests.cases.house import House, black_hole, case, gather_bounded, patience, rounds, until
from tests.harness import scripts
from tests.harness.client import Answer, chat
from tests.harness.engine import Connection, Seen

QUICK = scripts.answer(after_s=0.02)


async def steadily(house: House, per_s: float, seconds: float) -> list[tuple[float, Answer]]:
    """Plain requests at a steady rate; each answer with the time (perf_counter) it was asked."""

    async def one(number: int) -> tuple[float, Answer]:
        await asyncio.sleep(number / per_s)
        asked = time.perf_counter()
        return asked, await house.ask(chat(content=f"request {number}"))

    return await asyncio.gather(*(one(number) for number in range(int(per_s * seconds))))


@pytest.mark.slow
@case(QUICK, QUICK)
async def test_a_death_is_felt_only_by_those_being_answered(house: House) -> None:
    """145: one of two replicas is gone (RST on all it had, then refusal) under 100 requests/s: all others get 200."""
    load = asyncio.gather(steadily(house, 100.0, rounds(20, 2)))
    await asyncio.sleep(0.7)
    being_answered = [seen for seen in house.engine.log.inference if seen.answered_at is None and seen.wrote]
    await house.engine.stop()
    [answers] = await load
    failed = [answer for _, answer in answers if answer.status != 200]
    assert len(failed) <= len(being_answered)
    assert house.view(0).breaker != "closed"
    assert len(house.engines[1].log.inference) > 100
    assert house.count("headway_retries_total") >= 1


@case(QUICK, QUICK)
async def test_a_refused_connection_is_tried_elsewhere_at_once(house: House) -> None:
    """145, F1: nobody listens any more: the next request is served elsewhere, and the dead one is out after that."""
    await house.engine.stop()
    began = time.perf_counter()
    for _ in range(5):
        assert (await house.ask(chat())).status == 200
    assert time.perf_counter() - began < 2.0
    assert house.count("headway_attempts_total", replica="r0") <= 1
    assert house.view(0).breaker == "open"


class Mortal:
    """An engine that dies of a poisoned prompt: its process is gone, and with it everything it was doing."""

    def __init__(self) -> None:
        self.house: House
        self.number = 0

    async def serve(self, connection: Connection, seen: Seen) -> None:
        if b"poison" not in seen.request.body:
            await scripts.answer(after_s=0.01)(connection, seen)
            return
        engine = self.house.engines[self.number]
        engine.refuse()
        for other in list(engine.connections):
            other.rst()


@pytest.mark.slow
@case(QUICK, QUICK, QUICK, QUICK)
async def test_a_poisoned_request_kills_two_at_most(house: House) -> None:
    """146: four replicas, one poison that clients repeat, 200 good requests: at most two die, nearly all are served."""
    for number, engine in enumerate(house.engines):
        mortal = Mortal()
        mortal.house, mortal.number = house, number
        engine.script = mortal.serve

    async def poison() -> list[int]:
        await asyncio.sleep(0.3)
        return [(await house.ask(chat(content="poison"))).status for _ in range(10)]

    poisoned, answers = await asyncio.gather(poison(), steadily(house, 100.0, 2.0))
    assert sum(not engine.listening for engine in house.engines) <= 2
    assert all(status in (502, 503) for status in poisoned)
    good = [answer.status for _, answer in answers]
    assert good.count(200) >= 0.99 * len(good)


@case(QUICK, QUICK)
async def test_poison_is_told_from_bad_luck(house: House) -> None:
    """146: after two deaths the body is refused with a time to come back, others are not."""
    for engine in house.engines:
        engine.then(scripts.cut(b"", "rst"))
    assert (await house.ask(chat(content="poison"))).status == 503
    again = await house.ask(chat(content="poison"))
    assert (again.status, again.json["error"]["code"]) == (503, "quarantined")
    assert int(again.message.get("retry-after")) > 1
    assert (await house.ask(chat(content="good"))).status == 200
    await house.at_rest(started=3, ok=1, server_error=2)


@pytest.mark.slow
@case(QUICK, QUICK, config=patience(connect_s=0.3))
async def test_a_black_hole_costs_one_timeout(house: House) -> None:
    """F2: a replica whose address swallows packets: ejected after one timeout, others unaffected."""
    with black_hole() as url:
        house.add(url, 0)
        house.deaf.add(ReplicaId("r0"))
        answers = await steadily(house, 50.0, rounds(10, 1.5))
    assert {answer.status for _, answer in answers} == {200}
    assert house.count("headway_attempts_total", replica="r0", outcome="connect_timeout") >= 1
    assert sent_after(house, "r0", OutcomeKind.CONNECT_TIMEOUT) == 0
    assert house.view(0).breaker != "closed"


@pytest.mark.slow
@case(QUICK, QUICK, config=patience(first_byte_s=0.4))
async def test_a_replica_that_takes_and_never_answers_is_ejected_after_one_timeout(house: House) -> None:
    """F2: connections are accepted, nothing is answered: 504 for who was there; later one trial per opening at most,
    for this replica says that it is well."""
    house.engine.script = scripts.stall()
    answers = await steadily(house, 50.0, rounds(10, 1.5))
    failed = sum(answer.status == 504 for _, answer in answers)
    assert failed + sum(answer.status == 200 for _, answer in answers) == len(answers)
    assert failed == house.count("headway_attempts_total", replica="r0", outcome="first_byte_timeout") >= 1
    trials = house.count("headway_health_changes_total", replica="r0", state="trial")
    assert sent_after(house, "r0", OutcomeKind.FIRST_BYTE_TIMEOUT) <= trials
    assert house.view(0).breaker != "closed"


def sent_after(house: House, replica: str, kind: OutcomeKind) -> int:
    """How many attempts went to a replica after the first there that ended so."""
    chosen: dict[str, str] = {}
    ended = sent = 0
    for event, commands in house.journal:
        if isinstance(event, AttemptFinished) and chosen[event.attempt_id] == replica:
            ended += event.outcome.kind is kind
        for command in commands:
            if isinstance(command, Dispatch):
                chosen[command.attempt_id] = command.replica_id
                sent += ended > 0 and command.replica_id == replica
    return sent


@pytest.mark.slow
@pytest.mark.parametrize("status", [429, 503])
@case(QUICK, QUICK, QUICK)
async def test_retries_do_not_multiply_overload(house: House, status: int) -> None:
    """F9: all replicas refuse: at most 1.2 attempts per arrival, and the engines' words reach the clients."""
    for engine in house.engines:
        engine.script = scripts.error(status, "busy", headers=["Retry-After: 2"])
    answers = await steadily(house, 100.0, rounds(30, 2))
    attempts = sum(len(engine.log.inference) for engine in house.engines)
    assert attempts <= 1.2 * len(answers) + 3
    assert {answer.status for _, answer in answers} == {status}
    assert {answer.message.get("retry-after") for _, answer in answers} == {"2"}
    assert all(view.breaker == "closed" for view in house.gateway.snapshot().views)
    for engine in house.engines:
        engine.script = QUICK
    assert (await house.ask(chat())).status == 200


@case(*[QUICK] * 4)
async def test_panic_serves_when_most_are_ejected(house: House) -> None:
    """F15: three of four fail and are ejected; that many verdicts are not believed, and requests go on."""
    for engine in house.engines[:3]:
        engine.script = scripts.error(500)
    await gather_bounded(4, (house.ask(chat(content=str(n))) for n in range(60)))
    assert house.gateway.snapshot().panic
    for engine in house.engines:
        engine.script = QUICK
    answers = await gather_bounded(8, (house.ask(chat(content=f"after {n}")) for n in range(40)))
    assert {answer.status for answer in answers} == {200}
    served = [sum(b"after" in seen.request.body for seen in engine.log.inference) for engine in house.engines]
    assert sum(count > 0 for count in served) >= 2


@case(QUICK, brain=BrainConfig(health=HealthConfig(failures=3)))
async def test_the_last_replica_is_never_ejected(house: House) -> None:
    """F15: one replica that failed time and again still gets the next request, and serves it."""
    house.engine.script = scripts.error(500)
    for _ in range(12):
        assert (await house.ask(chat())).status == 500
    assert house.view().breaker == "open"
    house.engine.script = QUICK
    assert (await house.ask(chat())).status == 200
    assert len(house.engine.log.inference) == 13


@case(QUICK)
async def test_a_replica_that_comes_back_is_used_again(house: House) -> None:
    """145: refused, then back on the same port: served at once, for it is the only one."""
    await house.engine.stop()
    refused = await house.ask(chat())
    assert (refused.status, refused.json["error"]["code"]) == (503, "no_replica")
    await house.engine.start()
    assert (await house.ask(chat())).status == 200
    await until(lambda: house.view().in_flight == 0)
    await house.at_rest(started=2, ok=1, server_error=1)
