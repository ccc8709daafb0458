"""Breakers that open, stay open, let one through and start slowly: 085, 086, 088, F3, F4 and F14.

What must hold: clients notice nothing of a replica that is slow, flaps or fails; one that recovers is tried with one
request, and then with few.
"""

import asyncio
import contextlib
import time
from collections.abc import Iterator

import pytest

from headway.core.commands import Dispatch, HealthChanged, Record
from headway.core.constants import BrainConfig, HealthConfig, SchedulerConfig
from headway.core.events import AttemptFinished
from headway.core.ids import ReplicaId
from headway.core.outcome import OutcomeKind
from tests.cases.house import SOAK, House, case, rounds
from tests.cases.test_replica_death import steadily
from tests.harness import scripts
from tests.harness.client import Answer, chat
from tests.harness.engine import Connection, Script, Seen

QUICK = scripts.answer(after_s=0.02)
FAILING = scripts.error(500, "no")


@case(QUICK, QUICK)
async def test_a_closed_port_is_asked_a_few_times_only(house: House) -> None:
    """085: one port is closed: 200 requests get 200, and few attempts go there."""
    await house.engine.stop()
    answers = await steadily(house, 200.0, 1.0)
    assert [answer.status for _, answer in answers] == [200] * 200
    assert house.count("headway_attempts_total", replica="r0") <= 5


@pytest.mark.slow
@case(FAILING, QUICK, brain=BrainConfig(health=HealthConfig(open_s=0.6, backoff=1.0)))
async def test_an_engine_that_always_fails_is_asked_once_per_interval(house: House) -> None:
    """086, one twenty-fifth of its time: three failures open the breaker, and each interval lets one through."""
    for _ in range(rounds(120, 80)):
        assert (await house.ask(chat())).status == 200
        await asyncio.sleep(0.02)
    trials = house.count("headway_health_changes_total", replica="r0", state="trial")
    assert trials >= 2
    assert len(house.engine.log.inference) <= 3 + trials


RAMP_S = 1.0


@pytest.mark.slow
@case(FAILING, QUICK, brain=BrainConfig(health=HealthConfig(open_s=0.5, slow_start_s=RAMP_S)))
async def test_one_is_let_through_and_then_a_few(house: House) -> None:
    """088, F14: a hundred clients at all times; the replica recovers: one request is its trial, however long that
    takes, then it gets ever more, and in the end its share. Nobody notices."""
    lasts = 0.2
    await asyncio.sleep(RAMP_S)  # the other joined second, and starts slowly too
    house.engines[1].script = scripts.answer(after_s=lasts)
    await asyncio.gather(*(house.ask(chat()) for _ in range(8)))
    assert house.view(0).breaker == "open"
    house.engine.then(scripts.answer(after_s=2 * lasts))
    house.engine.script = scripts.answer(after_s=lasts)
    statuses: list[int] = []
    ends = time.perf_counter() + rounds(20, 7)  # long enough that a hiccup of the machine does not decide

    async def client() -> None:
        while time.perf_counter() < ends:
            statuses.append((await house.ask(chat())).status)

    await asyncio.gather(*(client() for _ in range(100)))
    assert set(statuses) == {200}
    courses = list(course(house, ReplicaId("r0")))
    trial_at = next(at for at, _, state in courses if state == "trial")
    closed_at = next(at for at, _, state in courses if state == "closed" and at > trial_at)
    assert [others for at, others, state in courses if trial_at <= at < closed_at and not state] == [0]
    ramp = [(at - closed_at, others) for at, others, state in courses if at >= closed_at and not state]
    limit = SchedulerConfig().slow_start_requests
    assert all(others < max(1.0, limit * max(0.1, since / RAMP_S)) for since, others in ramp if since < RAMP_S)
    assert any(since < 0.1 * RAMP_S for since, _ in ramp)
    settled_at = closed_at + RAMP_S + 2 * lasts  # who was sent while it ramped up has ended
    late = [sum(at > settled_at for at, _, state in course(house, r) if not state) for r in ("r0", "r1")]
    assert 0.4 <= late[0] / sum(late) <= 0.6


def course(house: House, replica: str) -> Iterator[tuple[float, int, str]]:
    """What befell a replica, by the gateway's own clock: (when, its attempts in flight then, "") for each request that
    was sent there, and the state for each that its breaker entered."""
    there: set[str] = set()
    for event, commands in house.journal:
        if isinstance(event, AttemptFinished):
            there.discard(event.attempt_id)
        for command in commands:
            if isinstance(command, Dispatch) and command.replica_id == replica:
                yield event.at, len(there), ""
                there.add(command.attempt_id)
            entry = command.entry if isinstance(command, Record) else None
            if isinstance(entry, HealthChanged) and entry.replica_id == replica:
                yield event.at, len(there), entry.state


def paced(first_s: float, gap_s: float, count: int = 25) -> Script:
    """An engine at work: plain answers and streams take as long, and a stream says its tokens one by one."""
    pieces = [scripts.chunk(piece) for piece in scripts.events(count)]
    last = first_s + gap_s * (count - 1)
    events = [(first_s + gap_s * min(n, count - 1), piece) for n, piece in enumerate(pieces)]
    stream = scripts.timed([(0.0, scripts.STREAM_HEAD), *events, (last, scripts.LAST_CHUNK)])
    usage = {"prompt_tokens": 200, "completion_tokens": count, "total_tokens": 200 + count}
    plain = scripts.answer({**scripts.CHAT_ANSWER, "usage": usage}, after_s=last)

    async def script(connection: Connection, seen: Seen) -> None:
        await (stream if b'"stream":true' in seen.request.body.replace(b" ", b"") else plain)(connection, seen)

    return script


@pytest.mark.slow
@case(paced(0.2, 0.05), *[paced(0.02, 0.005)] * 3)
async def test_a_slow_replica_gets_little(house: House) -> None:
    """F3: one of four is ten times as slow, for streams and plain requests: less than a fifth of a fair share once
    speeds are known. (Twice that unless soaking: a busy machine makes the others slow, too. `tests/sim/test_faults.py`
    has the time it takes.)"""
    text, asked = "tell me more " * 60, list[asyncio.Task[Answer]]()

    async def ask_for(seconds: float, until_learned: bool = False) -> None:
        ends = time.perf_counter() + seconds
        while time.perf_counter() < ends and not (until_learned and house.view(0).speed.learned):
            body = chat(content=f"{len(asked)} {text}", stream=len(asked) % 2 == 0)
            asked.append(asyncio.ensure_future(house.ask(body)))
            await asyncio.sleep(1 / 80)

    await ask_for(20.0, until_learned=True)
    await ask_for(1.5)
    before = [len(engine.log.inference) for engine in house.engines]
    await ask_for(rounds(20, 2))
    assert {answer.status for answer in await asyncio.gather(*asked)} == {200}
    late = [len(engine.log.inference) - count for engine, count in zip(house.engines, before, strict=True)]
    assert late[0] < (0.2 if SOAK else 0.4) * sum(late) / 4, late


@pytest.mark.slow
@case(paced(0.2, 0.05), *[paced(0.02, 0.005)] * 3)
async def test_a_slow_replica_that_never_streams_gets_little(house: House) -> None:
    """F3: the same where no client ever streams: whole durations tell it within ten seconds."""
    asked = list[asyncio.Task[Answer]]()
    counts: list[int] = []
    for second in range(rounds(20, 7)):
        counts.append(len(house.engine.log.inference))
        ends = time.perf_counter() + 1.0
        while time.perf_counter() < ends:
            asked.append(
                asyncio.ensure_future(house.ask(chat(content=f"{second} {len(asked)} " + "tell me more " * 60)))
            )
            await asyncio.sleep(1 / 80)
    total = len(asked) / len(counts)
    assert {answer.status for answer in await asyncio.gather(*asked)} == {200}
    share = 4.0 * (counts[-1] - counts[-4]) / (3.0 * total)
    assert share < (0.2 if SOAK else 0.4), share


@pytest.mark.slow
@case(*[QUICK] * 3)
async def test_flapping_is_not_noticed(house: House) -> None:
    """F4: one of three dies and is back four times a second: no request in a thousand fails."""
    flaps, ended = 0, False

    async def flap() -> None:
        nonlocal flaps
        while not ended:
            await house.engine.stop()
            await asyncio.sleep(0.125)
            with contextlib.suppress(OSError):  # a connection of somebody else's may have got its port: later, then
                await house.engine.start()
                flaps += 1
            await asyncio.sleep(0.125)

    flapping = asyncio.ensure_future(flap())
    answers = await steadily(house, 100.0, rounds(100, 5))
    ended = True
    await flapping
    failed = sum(answer.status != 200 for _, answer in answers)
    assert flaps >= 5
    assert failed <= 0.001 * len(answers)
    died = {OutcomeKind.RESET, OutcomeKind.CONNECT_FAILED, OutcomeKind.STALE_CONNECTION}
    assert sum(house.count("headway_attempts_total", replica="r0", outcome=kind.value) for kind in died) >= 1
