"""Replicas that come and go: the part of family H that concerns static replicas, settings and the admin API.

What must hold: who is removed is left alone from that moment, and nobody waits for it; a bad registration or a bad
settings file changes nothing. (Reloading settings in a running process, session affinity and discovery come later.)
"""

import asyncio
import random
import time
from pathlib import Path
from urllib.parse import quote

import pytest

from headway.compose.build import App
from headway.core.events import AttemptFinished, ReplicasChanged
from headway.core.ids import ReplicaId
from headway.core.outcome import OutcomeKind
from headway.runtime.clock import now
from tests.cases.house import SEED, House, at_most, case, gather_bounded, patience, rounds, until, within
from tests.cases.served import free_port, open_app, process_case
from tests.cli.calling import call
from tests.harness import scripts
from tests.harness.client import RawClient, chat, request
from tests.harness.engine import ScriptedEngine

Captured = pytest.CaptureFixture[str]


async def admin(app: App, path: str, method: str, body: object = None) -> int:
    """The status of an admin request."""
    async with RawClient(app.admin_port) as client:
        return (await client.ask(path, body, method=method, headers={"Host": "localhost"})).status


def engine() -> ScriptedEngine:
    """A healthy engine."""
    return ScriptedEngine(scripts.answer(), scripts.vllm_paths())


def remove(house: House, number: int) -> None:
    """Forget a replica, as the admin API and every source do."""
    house.gateway.post(ReplicasChanged(now(), (), (ReplicaId(f"r{number}"),)))


@pytest.mark.slow
@process_case
async def test_a_removed_replica_is_left_alone(folder: Path) -> None:
    """103: 50 changes of the fleet (here 15): nobody removed is asked anything again; tasks do not pile up."""
    async with engine() as stays, engine() as goes, open_app(stays) as app:
        tasks: list[int] = []
        for _round in range(rounds(50, 15)):
            wanted = {"url": goes.url, "engine": "vllm", "model": "m"}
            assert await admin(app, "/replicas", "POST", wanted) == 201
            await until(lambda: app.gateway.snapshot().views[-1].sample is not None)
            [added] = [view.spec.id for view in app.gateway.snapshot().views if view.spec.url == goes.url]
            assert await admin(app, f"/replicas/{quote(added)}", "DELETE") == 204
            await asyncio.sleep(0.02)
            asked = len(goes.log.requests)
            await asyncio.sleep(0.06)
            assert len(goes.log.requests) == asked
            tasks.append(len(asyncio.all_tasks()))
        assert min(tasks[-5:]) <= max(tasks[:5])
        assert [view.spec.url for view in app.gateway.snapshot().views] == [stays.url]


BAD_SETTINGS = {
    "truncated": '{"replicas": ["http://127.0.0.1:1"',
    "bad_url": '{"replicas": ["file:///etc/passwd"]}',
    "metadata": '{"replicas": ["http://169.254.169.254/"]}',
    "unknown_key": '{"replica": ["http://127.0.0.1:1"]}',
    "list": "[]",
    "twice": '{"replicas": ["http://127.0.0.1:1", "http://127.0.0.1:1/"]}',
    "not_utf8": b"\xff\xfe\x00",
}


@pytest.mark.parametrize("kind", BAD_SETTINGS)
@process_case
async def test_bad_settings_are_refused_before_anything_listens(folder: Path, kind: str, capsys: Captured) -> None:
    """104, as far as settings are read once: refused with a reason, no traceback. (Reloading comes later.)"""
    text = BAD_SETTINGS[kind]
    (folder / "bad.yaml").write_bytes(text if isinstance(text, bytes) else text.encode())
    assert call("serve", "--config", str(folder / "bad.yaml")) == 1
    assert "bad.yaml" in capsys.readouterr().err


BAD_REPLICAS = [b"{", b"[]", b'{"url": 5}', b'{"url": "http://a b/"}', b'{"url": "http://127.0.0.1:1", "x": 1}',
                b'{"url": "http://127.0.0.1:99999"}', b'{"url": ""}']  # fmt: skip


@process_case
async def test_a_bad_registration_changes_nothing(folder: Path) -> None:
    """104 for the admin API: 400 each time, the fleet stays, traffic goes on, a good one works afterwards."""
    async with engine() as first, engine() as second, open_app(first) as app:
        for bad in BAD_REPLICAS:
            assert await admin(app, "/replicas", "POST", bad) == 400, bad
            assert [view.spec.url for view in app.gateway.snapshot().views] == [first.url]
            async with RawClient(app.port) as client:
                assert (await client.ask(body=chat())).status == 200
        assert await admin(app, "/replicas", "POST", {"url": second.url, "engine": "vllm", "model": "m"}) == 201


@pytest.mark.parametrize("before", ["head", "first_token"])
@case(scripts.stall(), scripts.answer())
async def test_removal_wakes_who_waits_for_a_first_byte(house: House, before: str) -> None:
    """107: the request is tried elsewhere at once, not when patience ends."""
    house.engine.script = scripts.stall(b"" if before == "head" else scripts.STREAM_HEAD)
    house.engines[1].script = scripts.stream(3)
    async with house.client() as client:
        await client.send(request(body=chat(stream=True)))
        while not house.engine.log.inference:
            if house.engines[1].log.inference:  # the policy chose the other one: ask again
                assert (await client.answer()).done
                house.engines[1].log.requests.clear()
                await client.send(request(body=chat(stream=True)))
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.03)
        removed = time.perf_counter()
        remove(house, 0)
        answer = await client.answer()
    assert answer.done
    assert not answer.failure
    assert answer.ended_at - removed < within(0.2)
    assert [house.engine.log.running, len(house.engines[1].log.inference)] == [0, 1]


@case(scripts.stall())
async def test_removal_of_the_only_replica_fails_fast(house: House) -> None:
    """107: nobody else has the model: an error at once, for those it was sent to and those held."""
    async with house.client() as client:
        await client.send(request(body=chat()))
        await house.engine.wait_for(lambda log: log.inference)
        remove(house, 0)
        answer = await client.answer()
    assert answer.status in (502, 503)
    assert answer.ended_at - answer.head_at < within(0.2)
    await house.at_rest(started=1, server_error=1)


@case(scripts.stall(), brain=at_most(1))
async def test_removal_answers_those_that_are_held(house: House) -> None:
    """107: held requests learn that their model is gone."""
    async with house.client() as first, house.client() as second:
        await first.send(request(body=chat()))
        await house.engine.wait_for(lambda log: log.inference)
        await second.send(request(body=chat()))
        await until(lambda: house.gateway.snapshot().queued == 1)
        remove(house, 0)
        assert (await second.answer()).status in (404, 503)
        assert (await first.answer()).status in (502, 503)
    await house.at_rest(started=2, server_error=2)


@pytest.mark.parametrize("how", ["removed", "died"])
@case(*[scripts.answer(after_s=0.2)] * 2, brain=at_most(2))
async def test_who_finds_no_room_elsewhere_waits_for_it(house: House, how: str) -> None:
    """107: all others have as much as they may: whoever was withdrawn, or found a closed port, waits; nobody fails."""
    if how == "died":
        house.add(f"http://127.0.0.1:{free_port()}", 2)
        await until(lambda: len(house.gateway.snapshot().views) == 3)
    asked = [asyncio.ensure_future(house.ask(chat(stream=number % 2 == 1))) for number in range(6)]
    await until(lambda: house.gateway.snapshot().in_flight >= 4)
    if how == "removed":
        remove(house, 0)
        await until(lambda: house.gateway.snapshot().queued >= 2)
    assert {answer.status for answer in await asyncio.gather(*asked)} == {200}
    ends = [event.outcome.kind for event, _ in house.journal if isinstance(event, AttemptFinished)]
    assert ends.count(OutcomeKind.CANCELLED if how == "removed" else OutcomeKind.CONNECT_FAILED) in (1, 2)
    assert ends.count(OutcomeKind.OK) == 6


@case(scripts.stream(30, gap_s=0.005), scripts.answer())
async def test_removal_leaves_streams_alone_that_have_begun(house: House) -> None:
    """107: what a client already reads is not taken away: the engine may well finish it."""
    house.engines[1].script = house.engine.script
    async with house.client() as client:
        await client.send(request(body=chat(stream=True)))
        await client.read_events(3)
        for number in (0, 1):
            remove(house, number)
        answer = await client.answer()
    assert answer.done
    assert len(answer.events) == 31


@pytest.mark.slow
@case(scripts.answer(), scripts.answer(), config=patience(first_byte_s=1.0))
async def test_nobody_is_lost_while_replicas_come_and_go(house: House) -> None:
    """107: removals while some replicas stall before the first byte: each request is answered, within its patience."""
    chance = random.Random(SEED)
    slow = scripts.stall()
    for one in house.engines:
        one.script = scripts.answer(after_s=0.01)
    took: list[tuple[int, float]] = []

    async def ask(number: int) -> None:
        await asyncio.sleep(number * 0.004)
        began = time.perf_counter()
        answer = await house.ask(chat(content=f"{number}"))
        took.append((answer.status, time.perf_counter() - began))

    async def churn() -> None:
        for turn in range(rounds(200, 12)):
            victim = turn % 2
            one = house.engines[victim]
            one.script = chance.choice([slow, scripts.answer(after_s=0.01)])
            await asyncio.sleep(0.05)
            remove(house, victim)
            one.script = scripts.answer(after_s=0.01)
            await asyncio.sleep(0.05)
            house.add(one.url, victim)

    total = rounds(5_000, 300)
    await asyncio.gather(churn(), gather_bounded(200, (ask(number) for number in range(total))))
    assert len(took) == total
    assert max(seconds for _, seconds in took) < within(2.0)
    assert {status for status, _ in took} == {200}


@case(scripts.answer())
async def test_what_is_remembered_about_heads_forgets_replicas(house: House) -> None:
    """103: what a head looks like to a replica is forgotten with the replica, however often it is registered anew."""
    async with house.client() as client:
        for _ in range(3):
            assert (await client.ask(body=chat())).status == 200
            assert house.gateway.plane.reader.remembered == 1
            house.add(house.engine.url, 0)
            assert house.gateway.plane.reader.remembered == 0
