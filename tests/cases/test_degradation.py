"""Levels over sockets: what clients see of a model in distress, of an engine without memory, and of a burst."""

import asyncio

import pytest

from headway.core.commands import Dispatch
from headway.core.constants import BrainConfig, BurstConfig, DegradeConfig, SchedulerConfig
from headway.core.outcome import OutcomeKind
from tests.cases.house import House, case, open_house, until
from tests.cases.test_replica_death import steadily
from tests.harness import scripts
from tests.harness.client import chat

QUICK = scripts.answer(after_s=0.02)
OOM = "CUDA out of memory. Tried to allocate 2.00 GiB."
SHORT = DegradeConfig(wait_s=0.05, dwell_s=0.4, tick_s=0.1)
"""Distress is a wait of 50 ms here, looked at ten times a second."""


@pytest.mark.slow
@case(scripts.answer(after_s=0.1), brain=BrainConfig(degrade=SHORT, scheduler=SchedulerConfig(max_in_flight=2)))
async def test_overload_refuses_new_sessions_and_says_so(house: House) -> None:
    """Level 1 and 2: requests in a session that has begun are served, new ones are told when to come back."""

    async def session(name: str) -> tuple[int, str, str]:
        answer = await house.ask(chat(), headers=[("X-Session-Id", name)])
        code = "" if answer.status == 200 else answer.json["error"]["code"]
        return answer.status, code, answer.message.get("x-headway-level") or ""

    assert (await session("old"))[0] == 200
    flood = asyncio.gather(*(house.ask(chat(content=str(n))) for n in range(60)))
    await until(lambda: house.count("headway_degradation_level", model="m") >= 1)
    (status, code, level), old = await asyncio.gather(session("new"), session("old"))
    assert (status, code) == (503, "new_sessions_refused")
    assert level in ("1", "2")
    assert old[0] == 200
    assert {answer.status for answer in await flood} == {200}
    assert house.count("headway_shed_requests_total", reason="new_sessions_refused") == 1
    await until(lambda: house.count("headway_degradation_level", model="m") == 0)
    assert await session("new") == (200, "", "")


@case(scripts.error(500, OOM), QUICK, QUICK)
async def test_an_engine_without_memory_is_left_alone_at_once(house: House) -> None:
    """Level 3: one such answer opens the breaker, the request is replayed elsewhere, and the level is shown."""
    answers = await steadily(house, 100.0, 0.5)
    assert {answer.status for _, answer in answers} == {200}
    assert house.count("headway_attempts_total", replica="r0", outcome=OutcomeKind.OUT_OF_MEMORY.value) == 1
    assert len(house.engine.log.inference) == 1
    assert house.view(0).breaker == "open"
    assert answers[-1][1].message.get("x-headway-level") == "3"


@case(scripts.error(500, f"bad prompt: {OOM}"), QUICK, QUICK)
async def test_a_client_cannot_say_it_for_an_engine(house: House) -> None:
    """Its own words in an error of the engine's open nothing at once."""
    for _ in range(2):
        await house.ask(chat(content=OOM))
    assert house.count("headway_attempts_total", replica="r0", outcome=OutcomeKind.OUT_OF_MEMORY.value) == 0
    assert house.view(0).breaker == "closed"


@case(*[scripts.error(500, OOM)] * 4)
async def test_a_request_that_exhausts_memory_does_so_twice_at_most(house: House) -> None:
    """F10 and level 3 together: four engines, one body that no memory suffices for."""
    statuses = [(await house.ask(chat(content="huge"))).status for _ in range(5)]
    assert sum(len(engine.log.inference) for engine in house.engines) == 2
    assert statuses == [500, 503, 503, 503, 503]


def test_another_model_answers_while_none_is_left(run: object) -> None:
    """Level 4, end to end: the fallback's engine gets its own name, and the client is told."""

    async def story() -> None:
        brain = BrainConfig(degrade=DegradeConfig(fallbacks={"m": "small"}))
        async with open_house(QUICK, QUICK, brain=brain) as house:
            house.add(house.engines[1].url, 1, model="small", serves={"small": "org/small"}, precision="fp8")
            await house.engine.stop()
            first = await house.ask(chat())
            second = await house.ask(chat())
            assert (first.status, second.status) == (503, 200)
            assert second.message.get("x-headway-model") == "small"
            assert second.message.get("x-headway-precision") == "fp8"
            assert second.message.get("x-headway-level") == "4"
            assert b'"model":"org/small"' in house.engines[1].log.inference[-1].request.body.replace(b" ", b"")

    run(story())  # type: ignore[operator]


test_another_model_answers_while_none_is_left.checks_books = True  # type: ignore[attr-defined]

BURST = BurstConfig(curbs=True, max_tokens=7, fast_s=1, history_s=1.5, slow_s=5.0, least=5, dwell_s=0.5)


@pytest.mark.slow
@case(QUICK, brain=BrainConfig(burst=BURST, degrade=DegradeConfig(tick_s=0.1)))
async def test_a_burst_is_disclosed(house: House) -> None:
    """Three requests a second, then fifty: outputs are capped and logprobs left out, in the engine's body and in the
    client's headers."""
    body = chat(max_tokens=90, logprobs=True)
    await steadily(house, 3.0, 4.0)
    assert house.count("headway_burst", model="m") == 0
    await steadily(house, 50.0, 2.0)
    assert house.count("headway_burst", model="m") == 1
    answer = await house.ask(body)
    assert answer.message.get("x-headway-max-tokens") == "7"
    assert answer.message.get("x-headway-logprobs") == "off"
    sent = house.engine.log.inference[-1].request.body.replace(b" ", b"")
    assert b'"max_tokens":7' in sent
    assert b'"logprobs":true' not in sent
    capped = [c for _, out in house.journal for c in out if isinstance(c, Dispatch) and c.max_tokens]
    assert {dispatch.max_tokens for dispatch in capped} == {7}
