"""Held requests are told where they stand, as clients in use see it: 103 Early Hints, asked for by header.

What must hold: each of these clients gets its answer as if nothing had been said before it, whoever did not ask hears
nothing, and what is said is true.
"""

import asyncio
import json
import shutil
import subprocess

import openai
import pytest

from headway.gateway.config import GatewayConfig
from tests.cases.house import House, at_most, case, until
from tests.harness import scripts
from tests.harness.client import Answer, RawClient, chat, request

QUICK = GatewayConfig(port=0, hints_period_s=0.02)
ASKING = {"x-queue-hints": "1"}
BODY = json.dumps(chat())


def needs(program: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(shutil.which(program) is None, reason=f"there is no {program} here")


async def occupy(house: House, count: int = 1) -> list[asyncio.Task[Answer]]:
    """Requests before the one that matters: the first runs, the others are held."""
    tasks = [asyncio.create_task(house.ask(chat())) for _ in range(count)]
    await until(lambda: (house.engine.log.running, house.gateway.snapshot().queued) == (1, count - 1))
    return tasks


async def outcome(house: House, *command: str) -> str:
    """What a program writes that is held for a moment."""
    others = await occupy(house)
    run = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, timeout=20, check=False)
    assert run.returncode == 0, run.stderr
    await asyncio.gather(*others)
    return run.stdout


def url(house: House, path: str = "/v1/chat/completions") -> str:
    return f"http://127.0.0.1:{house.gateway.port}{path}"


@case(scripts.answer(after_s=0.05), config=QUICK, brain=at_most(1))
async def test_a_raw_client_sees_itself_move_up(house: House) -> None:
    others = await occupy(house, 3)
    answer = await house.ask(chat(), headers=ASKING)
    assert answer.status == 200
    assert [message.status for message in answer.interim] == [103] * 3
    assert [message.get("x-queue-position") for message in answer.interim] == ["3", "2", "1"]
    waits = [float(message.get("x-expected-wait-s") or 0) for message in answer.interim]
    assert all(0 <= wait < 5 for wait in waits)
    assert not any(name.startswith("x-queue") for name, _ in answer.message.headers)
    silent = [other.result().interim for other in others]
    assert silent == [[], [], []]
    assert not any(seen.request.get("x-queue-hints") for seen in house.engine.log.inference)


@case(scripts.answer(after_s=0.05), config=QUICK, brain=at_most(1))
async def test_a_stream_begins_after_the_news(house: House) -> None:
    others = await occupy(house)
    house.engine.then(scripts.stream(3))
    answer = await house.ask(chat(stream=True), headers=ASKING)
    assert [message.status for message in answer.interim] == [103]
    assert answer.done
    await asyncio.gather(*others)


@case(scripts.answer(after_s=0.05), config=QUICK, brain=at_most(1))
async def test_who_is_not_held_hears_nothing(house: House) -> None:
    answer = await house.ask(chat(), headers=ASKING)
    assert (answer.status, answer.interim) == (200, [])


@case(scripts.answer(after_s=0.05), config=QUICK, brain=at_most(1))
async def test_a_connection_goes_on_after_news(house: House) -> None:
    async with RawClient(house.gateway.port) as client:
        for _ in range(3):
            others = await occupy(house)
            answer = await client.ask(body=chat(), headers=ASKING)
            assert (answer.status, len(answer.interim)) == (200, 1)
            await asyncio.gather(*others)


@case(scripts.answer(after_s=0.15), config=QUICK, brain=at_most(1))
async def test_who_leaves_while_it_is_told_costs_nothing(house: House) -> None:
    others = await occupy(house)
    async with RawClient(house.gateway.port) as client:
        await client.send(request(body=chat(), headers=ASKING))
        assert b"103 Early Hints" in await client.read_bytes(20)
        client.rst()
    await until(lambda: not house.gateway.snapshot().queued, 1.0)
    await asyncio.gather(*others)
    assert len(house.engine.log.inference) == 1


@needs("curl")
@pytest.mark.slow
@case(scripts.answer(after_s=0.3), config=QUICK, brain=at_most(1))
async def test_curl(house: House) -> None:
    said = await outcome(
        house,
        "curl",
        "-sS",
        "-i",
        "-H",
        "x-queue-hints: 1",
        "-H",
        "content-type: application/json",
        "-d",
        BODY,
        url(house),
    )
    interim, head, body = said.replace("\r\n", "\n").split("\n\n", 2)
    assert interim.startswith("HTTP/1.1 103")
    assert "x-queue-position: 1" in interim
    assert head.startswith("HTTP/1.1 200")
    assert json.loads(body) == scripts.CHAT_ANSWER


@pytest.mark.slow
@case(scripts.answer(after_s=0.3), config=QUICK, brain=at_most(1))
async def test_the_official_client(house: House) -> None:
    def ask() -> str | None:
        with openai.OpenAI(base_url=url(house, "/v1"), api_key="x", max_retries=0) as client:
            message = {"role": "user", "content": "hi"}
            answer = client.chat.completions.create(model="m", messages=[message], extra_headers=ASKING)  # type: ignore[list-item]
            return answer.choices[0].message.content

    others = await occupy(house)
    assert await asyncio.to_thread(ask) == "hi"
    await asyncio.gather(*others)


FETCH = """
const answer = await fetch(process.argv[1], {method: "POST", headers: {"x-queue-hints": "1"}, body: process.argv[2]});
console.log(JSON.stringify([answer.status, await answer.json()]));
"""
INFORMATION = """
import http from "node:http";
const news = [];
const options = {method: "POST", headers: {"x-queue-hints": "1"}};
const asked = http.request(process.argv[1], options, answer => {
  answer.resume();
  answer.on("end", () => console.log(JSON.stringify([answer.statusCode, news])));
});
asked.on("information", said => news.push([said.statusCode, said.headers["x-queue-position"]]));
asked.end(process.argv[2]);
"""


@needs("node")
@pytest.mark.slow
@case(scripts.answer(after_s=0.8), config=QUICK, brain=at_most(1))
async def test_nodes_fetch(house: House) -> None:
    said = await outcome(house, "node", "--input-type=module", "-e", FETCH, url(house), BODY)
    assert json.loads(said) == [200, scripts.CHAT_ANSWER]
    assert len(house.engine.log.inference) == 2


@needs("node")
@pytest.mark.slow
@case(scripts.answer(after_s=0.8), config=QUICK, brain=at_most(1))
async def test_nodes_http_shows_the_news(house: House) -> None:
    said = await outcome(house, "node", "--input-type=module", "-e", INFORMATION, url(house), BODY)
    assert json.loads(said) == [200, [[103, "1"]]]
