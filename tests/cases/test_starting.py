"""Replicas that join, wake, start anew, carry another precision or version: what engines and clients see of it.

Everything here runs before a whole gateway with its observation, so that probes, warm-ups and reports are real.
"""

import asyncio
import json
from collections import Counter
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from headway.compose.build import App
from headway.core.view import ReplicaView
from tests.cases.house import rounds, until
from tests.cases.served import free_port, open_app, process_case
from tests.harness import scripts
from tests.harness.client import Answer, RawClient, chat
from tests.harness.engine import Script, ScriptedEngine, Seen

AWAKE = 'vllm:engine_sleep_state{{engine="0",sleep_state="awake"}} {:d}\n'
ASLEEP = 'vllm:engine_sleep_state{{engine="0",sleep_state="weights_offloaded"}} {:d}\n'
TOKEN = scripts.answer({"choices": [{"text": " 4"}]})
COMPLETIONS = "/v1/completions"


def engine(script: Script | None = None, **paths: Script) -> ScriptedEngine:
    """A healthy engine that can be warmed up. Warm-ups are not among what its own script answers."""
    made = ScriptedEngine(script or scripts.answer(), {**scripts.vllm_paths(), COMPLETIONS: TOKEN})
    made.paths.update({f"/{name}": path for name, path in paths.items()})
    return made


def reports(asleep: bool = False, started: float = 1e9, blocks: int = 1024) -> Script:
    """A metrics page."""
    page = scripts.metrics_page(blocks=blocks).decode() + AWAKE.format(not asleep) + ASLEEP.format(asleep)
    return scripts.raw(scripts.response(f"{page}process_start_time_seconds {started}\n".encode()))


def chats(of: ScriptedEngine) -> list[Seen]:
    """What clients asked of an engine."""
    return [seen for seen in of.log.inference if seen.request.path != COMPLETIONS]


async def ask(app: App, headers: dict[str, str] | None = None, **body: Any) -> Answer:
    """One chat on a connection of its own."""
    async with RawClient(app.port) as client:
        return await client.ask(body=chat(**body), headers=headers or {})


async def together(app: App, count: int, **body: Any) -> list[int]:
    """So many chats at once: their statuses."""
    return [answer.status for answer in await asyncio.gather(*(ask(app, **body) for _ in range(count)))]


def told(answer: Answer) -> str:
    """What precision the client was told it got, if anything."""
    return answer.message.get("x-headway-precision")


async def admin(app: App, path: str, method: str, body: object = None) -> Answer:
    """An admin request."""
    async with RawClient(app.admin_port) as client:
        return await client.ask(path, body, method=method, headers={"Host": "localhost"})


def view(app: App, url: str) -> ReplicaView:
    """A replica as the brain sees it."""
    return next(view for view in app.gateway.snapshot().views if view.spec.url == url)


def usable(app: App, url: str) -> bool:
    """Whether a replica is in use."""
    return any(v.breaker.value == "closed" for v in app.gateway.snapshot().views if v.spec.url == url)


# -- joining ---------------------------------------------------------------------------------------------------


@pytest.mark.slow
@process_case
async def test_a_url_that_refuses_at_first_costs_nobody_an_error_and_then_ramps(folder: Path) -> None:
    """082: registered before it listens; 0 client errors meanwhile; warmed up first, and no stampede on it then."""
    late = engine(scripts.answer(after_s=0.3), metrics=reports(blocks=256))
    late.port = free_port()
    async with engine(scripts.answer(after_s=0.3)) as there, open_app(there, policy="least_connections") as app:
        new = {"url": late.url, "engine": "vllm", "model": "m", "kv_capacity_tokens": 2000}
        assert (await admin(app, "/replicas", "POST", new)).status == 201
        loop = asyncio.get_running_loop()
        end = loop.time() + rounds(5, 1)
        while loop.time() < end:
            assert set(await together(app, 10)) == {200}
        assert not late.log.requests
        async with late:
            await until(lambda: usable(app, late.url), 10.0)
            assert [seen.request.path for seen in late.log.inference] == [COMPLETIONS], "a token for us before any"
            assert json.loads(late.log.inference[0].request.body)["max_tokens"] == 1
            assert view(app, late.url).slow_start < 0.5
            assert set(await together(app, 40, content="word " * 100)) == {200}
            assert 1 <= late.log.peak <= 15, "of 40 at once as many as its ramp lets in; without it, half"
            assert len(chats(there)) > 20


@pytest.mark.slow
@process_case
async def test_an_engine_that_comes_back_with_a_longer_context_is_used_for_it(folder: Path) -> None:
    """What it said when it was detected is no longer so: a request that fits now must not be refused for ever."""

    def card(limit: int) -> Script:
        return scripts.answer({"data": [{"id": "m", "owned_by": "vllm", "max_model_len": limit}]})

    async with engine(metrics=reports()) as changes:
        changes.paths["/v1/models"] = card(100)
        async with open_app(changes) as app:
            long = {"content": "word " * 1000}
            await until(lambda: view(app, changes.url).spec.max_model_tokens == 100, 10.0)
            assert await together(app, 1, **long) == [400]
            changes.paths |= {"/v1/models": card(8192), "/metrics": reports(started=2e9)}
            await until(lambda: view(app, changes.url).spec.max_model_tokens == 8192, 10.0)
            assert await together(app, 1, **long) == [200]
            async with RawClient(app.port) as client:
                shown = (await client.ask("/v1/models", b"", method="GET")).json["data"]
            assert [model["max_model_len"] for model in shown] == [8192]


@pytest.mark.slow
@process_case
async def test_what_a_probe_of_an_earlier_registration_finds_out_hurts_nobody(folder: Path) -> None:
    """083: its probe takes long to fail; meanwhile the URL is registered anew, and is well."""
    async with engine(health=scripts.answer(b"", after_s=30.0)) as changes, engine() as stays, open_app(stays) as app:
        new = {"url": changes.url, "engine": "vllm", "model": "m"}
        assert (await admin(app, "/replicas", "POST", new)).status == 201
        await changes.wait_for(lambda log: log.hits["/health"])
        old = view(app, changes.url).spec.id
        changes.paths["/health"] = scripts.raw(scripts.response(b""))
        assert (await admin(app, f"/replicas/{quote(old)}", "DELETE")).status == 204
        assert (await admin(app, "/replicas", "POST", new)).status == 201
        assert view(app, changes.url).spec.id != old
        await until(lambda: usable(app, changes.url))
        for _ in range(rounds(35, 4)):  # the probe gives up after 3 s
            await asyncio.sleep(1.0)
            assert usable(app, changes.url)


@process_case
async def test_an_engine_that_cannot_generate_is_used_all_the_same(folder: Path) -> None:
    """Embeddings only: no completions, no chat; its warm-up does it no harm."""
    only = ScriptedEngine(scripts.answer({"data": [{"embedding": [0.5], "index": 0}]}), scripts.vllm_paths())
    for path in (COMPLETIONS, "/v1/chat/completions"):
        only.paths[path] = scripts.error(404, "not found")
    async with only, open_app(only) as app, RawClient(app.port) as client:
        assert (await client.ask("/v1/embeddings", {"model": "m", "input": "x"})).status == 200
        assert only.log.hits[COMPLETIONS] == 1


@process_case
async def test_warm_up_can_be_switched_off(folder: Path) -> None:
    async with engine() as one, open_app(one, observe={"interval_s": 0.02, "warm_up": False}) as app:
        assert (await ask(app)).status == 200
        assert not one.log.hits[COMPLETIONS]


# -- waking and starting anew ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "after"),
    [(reports(asleep=True), reports()), (reports(started=1e9), reports(started=2e9))],
    ids=["woke", "started anew"],
)
@process_case
async def test_an_engine_that_is_cold_is_warmed_up_and_starts_slowly(
    folder: Path, before: Script, after: Script
) -> None:
    async with engine(metrics=before) as cold, engine(metrics=reports()) as other, open_app(cold, other) as app:
        await until(lambda: all(v.sample is not None for v in app.gateway.snapshot().views))
        warm_ups = cold.log.hits[COMPLETIONS]
        assert view(app, cold.url).slow_start == 1.0
        cold.paths[COMPLETIONS] = scripts.answer({"choices": [{"text": " 4"}]}, after_s=0.15)
        cold.paths["/metrics"] = after
        await until(lambda: cold.log.hits[COMPLETIONS] > warm_ups)
        assert not usable(app, cold.url)
        asked = len(chats(cold))
        assert set(await together(app, 5)) == {200}
        assert len(chats(cold)) == asked, "nobody is sent there while it warms up"
        await until(lambda: usable(app, cold.url))
        assert view(app, cold.url).slow_start == pytest.approx(0.1, abs=0.05)
        assert cold.log.hits[COMPLETIONS] == warm_ups + 1


# -- precision -------------------------------------------------------------------------------------------------


def variants(full: ScriptedEngine, eight: ScriptedEngine) -> dict[str, Any]:
    """Settings of one public name for two engines."""
    own = {"engine": "vllm"}
    return {
        "replicas": [
            {"url": full.url, "model": "big", "precision": "bf16", **own},
            {"url": eight.url, "model": "big-fp8", **own},
        ],
        "models": {"public": ["big", "big-fp8"]},
    }


def asked_for(of: ScriptedEngine) -> list[str]:
    """Names of models that clients' requests carried when they came to an engine."""
    return [json.loads(seen.request.body)["model"] for seen in chats(of)]


@process_case
async def test_one_name_for_several_precisions(folder: Path) -> None:
    """137 too: each engine gets the name it knows. Less than the name stands for only with consent, and disclosed."""
    async with engine() as full, engine() as eight, open_app(full, eight, **variants(full, eight)) as app:
        for _ in range(8):
            answer = await ask(app, model="public")
            assert (answer.status, told(answer)) == (200, "")
        assert (asked_for(full), asked_for(eight)) == (["big"] * 8, [])
        seen = Counter[str]()
        for _ in range(40):
            answer = await ask(app, {"X-Min-Precision": "fp8"}, model="public")
            seen[told(answer)] += 1
        assert set(seen) == {"", "fp8"}
        assert seen["fp8"] == len(asked_for(eight))
        assert set(asked_for(eight)) == {"big-fp8"}
        assert not any(b"min-precision" in bytes(s.request.raw).lower() for s in chats(eight)), "ours to know"
        nonsense = await ask(app, {"X-Min-Precision": "best"}, model="public")
        assert (nonsense.status, nonsense.json["error"]["code"]) == (400, "precision_unavailable")
        better = await ask(app, {"X-Min-Precision": "bf16"}, model="big-fp8")
        assert (better.status, better.json["error"]["code"]) == (400, "precision_unavailable")


@process_case
async def test_nobody_is_given_less_because_the_better_one_is_away(folder: Path) -> None:
    async with engine() as full, engine() as eight, open_app(full, eight, **variants(full, eight)) as app:
        await full.stop()
        await until(lambda: not usable(app, full.url), 10.0)
        refused = await ask(app, model="public")
        assert refused.status in (502, 503)
        assert (await ask(app, {"x-min-precision": "int4"}, model="public")).status == 200
        assert asked_for(eight) == ["big-fp8"]
        await full.start()
        await until(lambda: usable(app, full.url), 10.0)


# -- versions --------------------------------------------------------------------------------------------------


@process_case
async def test_a_new_version_gets_little_at_first(folder: Path) -> None:
    quick = {"scheduler": {"rollout_grace_s": 0.0}}
    async with engine() as old, engine() as new, open_app(old, brain=quick) as app:
        wanted = {"url": new.url, "engine": "vllm", "model": "m", "version": "2"}
        assert (await admin(app, "/replicas", "POST", wanted)).status == 201
        await until(lambda: usable(app, new.url))
        for _ in range(10):
            assert set(await together(app, 20)) == {200}
        assert len(chats(new)) <= 1 + 0.05 * 200 * 1.2
        assert len(chats(new)) >= 5
