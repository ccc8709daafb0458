"""What broken load reports and late engines may cost a whole gateway: freshness, never a request.

Cases 082, 089, 091 and fault F13, over real sockets with the default policy and vLLM's dialect.
"""

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import msgspec
import pytest

from headway.compose.build import App, build_gateway
from headway.compose.settings import Settings
from headway.runtime.http import Answer, Client, client
from headway.wire import promtext
from tests.engines import pages
from tests.runtime.servers import Reply, Served, serving

Run = Callable[[Any], Any]
CHAT = "/v1/chat/completions"
ASK = msgspec.json.encode({"model": "tiny", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 4})
JSON_TYPE = ("content-type: application/json",)
SAID = Reply(
    msgspec.json.encode(
        {
            "id": "x",
            "object": "chat.completion",
            "created": 1,
            "model": "tiny",
            "choices": [{"index": 0, "message": {"role": "assistant", "content": "ho"}, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 9, "completion_tokens": 1, "total_tokens": 10},
        }
    ),
    headers=JSON_TYPE,
)
LACKING = "\n".join(line for line in pages.VLLM.splitlines() if "kv_cache" not in line and "running" not in line)
BROKEN = {
    "silence": Reply(delay_s=None),
    "500": Reply(status=500),
    "404": Reply(status=404),
    "closed": Reply(raw=b""),
    "garbage": Reply(b"\x00\xff{}\n" * 1000),
    "html": Reply(b"<html>down for maintenance</html>"),
    "not a number": Reply(pages.VLLM.replace(" 0.5\n", " NaN\n").replace(" 2.0\n", " +Inf\n").encode()),
    "absurd": Reply(pages.VLLM.replace(" 0.5\n", " 1e308\n").replace(" 2.0\n", " -7\n").encode()),
    "fifty megabytes": Reply(pages.VLLM.encode() + b"x" * 50_000_000),
    "frozen": Reply(pages.VLLM.encode()),
    "lacking families": Reply(LACKING.encode()),
    "endless line": Reply(b"vllm:num_requests_running{" + b'a="b",' * 100_000),
}
STALE = {"silence", "500", "404", "closed"}
"""Faults that bring no report at all; the others bring one that says little."""


def vllm() -> dict[str, Reply]:
    """The replies of a healthy vLLM."""
    return {
        "/health": Reply(),
        "/version": Reply(b'{"version":"0.32.0"}'),
        "/v1/models": Reply(pages.cards("vllm", "tiny", max_model_len=2048), headers=JSON_TYPE),
        "/metrics": Reply(pages.VLLM.encode()),
        CHAT: SAID,
    }


@asynccontextmanager
async def gateway(*urls: str) -> AsyncIterator[tuple[App, Client]]:
    """A whole gateway process's worth of rooms, in this one, and a client."""
    settings = Settings.model_validate(
        {
            "listen": {"port": 0},
            "admin": {"enabled": False},
            "replicas": list(urls),
            "observe": {"interval_s": 0.05},
        }
    )
    app = build_gateway(settings)
    await app.start()
    try:
        async with client() as http:
            yield app, http
    finally:
        await app.stop(drain_s=0.0)


async def registered(app: App, replicas: int) -> None:
    """Wait until so many replicas are in rotation."""
    async with asyncio.timeout(10):
        while len([view for view in app.gateway.snapshot().views if view.breaker == "closed"]) < replicas:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def statuses(app: App, http: Client, requests: int, at_once: int = 4) -> list[int | str]:
    """What so many requests are answered, a few at a time."""
    url = f"http://127.0.0.1:{app.port}{CHAT}"
    numbers = itertools.count()
    said: list[int | str] = []

    async def one() -> None:
        while next(numbers) < requests:
            answer = await http.fetch(url, method="POST", body=ASK, headers={"content-type": "application/json"})
            said.append(answer.status if isinstance(answer, Answer) else str(answer))

    await asyncio.gather(*(one() for _ in range(at_once)))
    return said


def gauge(app: App, name: str) -> float:
    """A value of the gateway's own metrics page."""
    page = app.telemetry.render(app.gateway.snapshot())
    return sum(value for _, value in promtext.read(page, frozenset({name})).get(name, []))


@pytest.mark.slow
@pytest.mark.parametrize("fault", BROKEN)
def test_broken_load_reports_cost_no_request(run: Run, fault: str) -> None:
    async def story() -> None:
        async with AsyncExitStack() as stack:
            engines = [await stack.enter_async_context(serving(vllm())) for _ in range(2)]
            app, http = await stack.enter_async_context(gateway(*(engine.url for engine in engines)))
            await registered(app, 2)
            for engine in engines:
                engine.replies["/metrics"] = BROKEN[fault]
            await asyncio.sleep(0.3)
            assert set(await statuses(app, http, 60)) == {200}
            assert all(engine.asked[CHAT] >= 15 for engine in engines)
            assert app.telemetry.accounts["ok"] == 60
            if fault in STALE:
                async with asyncio.timeout(20):
                    while gauge(app, "headway_stale_endpoints") < 2:  # noqa: ASYNC110
                        await asyncio.sleep(0.05)
                assert set(await statuses(app, http, 20)) == {200}
                assert app.observer.counts().stale == 2

    run(story())


@pytest.mark.slow
def test_an_engine_that_is_not_up_yet_costs_no_request_and_is_used_when_it_is(run: Run) -> None:
    async def story() -> None:
        async with AsyncExitStack() as stack:
            early = await stack.enter_async_context(serving(vllm()))
            async with serving({}) as nobody:
                late_url = nobody.url
            app, http = await stack.enter_async_context(gateway(early.url, late_url))
            await registered(app, 1)
            assert set(await statuses(app, http, 40)) == {200}
            late: Served = await stack.enter_async_context(serving(vllm(), port=int(late_url.rpartition(":")[2])))
            await registered(app, 2)
            async with asyncio.timeout(20):
                while late.asked[CHAT] < 10:
                    assert set(await statuses(app, http, 20)) == {200}
            assert app.telemetry.accounts["server_error"] == app.telemetry.accounts["shed"] == 0

    run(story())
