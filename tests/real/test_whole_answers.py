"""Answers in one piece that Headway puts together from a stream, beside what the engine says at once itself."""

import json
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.real import tiny_scripts
from tests.real.engines import EnginePair
from tests.real.headway_process import Headway
from tests.real.test_moves_through_headway import TRIES, gateway, pair, writers

__all__ = ["pair", "writers"]

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

WHOLE = "migration: {enabled: true, plain: true}\n"
OWN = ("id", "created", "timings")
"""What differs from run to run."""

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
GREEDY: dict[str, Any] = {"temperature": 0, "logit_bias": tiny_scripts.favour(0)}
SAY = {"messages": [{"role": "user", "content": "hello world"}]}
WISHES: dict[str, tuple[str, dict[str, Any]]] = {
    "chat": (CHAT, {**SAY, "max_tokens": 60}),
    "chat, short": (CHAT, {**SAY, "max_tokens": 1}),
    "chat, stop": (CHAT, {**SAY, "max_tokens": 60, "stop": ["e"]}),
    "completion": (COMPLETIONS, {"prompt": "hello world", "max_tokens": 60}),
    "completion, ids": (COMPLETIONS, {"prompt": [300, 301, 302], "max_tokens": 20}),
    "several": (CHAT, {**SAY, "max_tokens": 9, "n": 2}),
    "logprobs": (CHAT, {**SAY, "max_tokens": 5, "logprobs": True, "top_logprobs": 2}),
    "refused": (CHAT, {"messages": "no list"}),
}


@pytest.fixture
def headway(pair: EnginePair, tmp_path: Path) -> Iterator[Headway]:
    with gateway(pair, tmp_path, WHOLE) as made:
        yield made


def ask(base: str, path: str, body: dict[str, Any], name: str = "whole") -> tuple[int, str, Any]:
    """Status, content type and JSON of an answer."""
    headers = {"content-type": "application/json", "x-request-id": name}
    request = urllib.request.Request(base + path, json.dumps(body).encode(), headers)
    try:
        with urllib.request.urlopen(request, timeout=120) as answer:
            return answer.status, answer.headers["content-type"].partition(";")[0], json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, error.headers["content-type"].partition(";")[0], json.load(error)


def alike(value: Any) -> Any:
    """An answer, its keys in order, without what differs from run to run."""
    kept = {name: part for name, part in value.items() if name not in OWN}
    if kept.get("usage"):
        kept["usage"] = {**kept["usage"], "prompt_tokens_details": None}
    return json.dumps(kept)


@pytest.mark.parametrize("wish", WISHES)
def test_an_answer_is_the_engines_own(headway: Headway, pair: EnginePair, wish: str) -> None:
    """Text, reasons, usage, keys and their order."""
    path, fields = WISHES[wish]
    body = {"model": pair.launcher.model, **GREEDY, **fields}
    direct = ask(pair.engines[0].url, path, body)
    told = ask(headway.base_url.removesuffix("/v1"), path, body)
    assert told[:2] == direct[:2]
    assert alike(told[2]) == alike(direct[2])
    assert sorted(told[2]) == sorted(direct[2])


def test_an_answer_outlives_its_engine(headway: Headway, pair: EnginePair) -> None:
    """Killed while nobody but Headway knows how far it was; it may not have begun yet, or be over before."""
    body = {"model": pair.launcher.model, **GREEDY, **SAY, "max_tokens": 600}
    expected = ask(pair.engines[0].url, CHAT, body)
    for turn in range(TRIES):
        told = outlived(headway, pair, body, wait_s=0.3 / (1 + turn))
        assert told[0] == 200
        assert told[2]["choices"] == expected[2]["choices"]
        if headway.metric("headway_migrations_total", result="failed_over"):
            return
        pair.revive()
        headway.wait_until_usable(len(pair.engines))
    pytest.fail("no engine was killed in the middle of an answer")


def outlived(headway: Headway, pair: EnginePair, body: dict[str, Any], wait_s: float) -> tuple[int, str, Any]:
    """The answer to a request whose engine is killed so long after it got it."""
    with ThreadPoolExecutor(1) as pool:
        asking = pool.submit(ask, headway.base_url.removesuffix("/v1"), CHAT, body)
        deadline = time.monotonic() + 30
        busy: list[str] = []
        while not busy and not asking.done():
            assert time.monotonic() < deadline
            busy = [view["spec"]["url"] for view in headway.views() if view["in_flight"]]
        time.sleep(wait_s)
        for engine in pair.engines:
            if engine.url in busy:
                engine.kill()
        return asking.result(120)
