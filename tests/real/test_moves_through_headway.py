"""Requests that change engines while they run, on demand and as bad luck has it: the text is that of one engine."""

import json
import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest
from openai import OpenAI

from tests.real import tiny_scripts, vllm
from tests.real.clients import CHAT, client_of
from tests.real.engines import EnginePair
from tests.real.headway_process import Headway

pytestmark = pytest.mark.slow

TOKENS = 650
NAME = "moved-request"


@pytest.fixture(scope="module")
def writers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EnginePair]:
    """Two servers with the model whose text splits into the tokens it was said in."""
    folder = tmp_path_factory.mktemp("writers")
    if vllm.ASKED_FOR:
        launcher = vllm.launcher(folder, tiny=tiny_scripts)
    else:
        pytest.importorskip("xllamacpp", reason="llama.cpp's server is not installed (extra: engines)")
        from tests.real import llama

        launcher = llama.launcher(folder, tiny_scripts)
    pair = EnginePair.make(launcher, folder)
    try:
        yield pair
    finally:
        pair.end()


@pytest.fixture
def pair(writers: EnginePair) -> EnginePair:
    """Both, healthy and with nothing to do."""
    writers.revive()
    writers.wait_until_idle()
    return writers


@pytest.fixture
def mover(pair: EnginePair, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Headway]:
    """A gateway that may move requests."""
    folder = tmp_path_factory.mktemp("mover")
    headway = Headway([engine.url for engine in pair.engines], folder / "log", "migration: {enabled: true}\n")
    headway.start()
    try:
        headway.wait_until_usable(len(pair.engines))
        yield headway
        headway.accounts()
    finally:
        status = headway.stop()
    assert status == 0, headway.log.read_text()[-2000:]


def streamed(sdk: OpenAI, model: str) -> Iterator[str]:
    """The pieces of a greedy chat."""
    chunks = sdk.chat.completions.create(
        model=model, messages=CHAT, max_tokens=TOKENS, temperature=0, stream=True,
        extra_headers={"x-request-id": NAME}, extra_body={"logit_bias": tiny_scripts.favour(0)},
    )  # fmt: skip
    for chunk in chunks:
        if chunk.choices and chunk.choices[0].delta.content:
            yield chunk.choices[0].delta.content


def undisturbed(pair: EnginePair) -> str:
    """What one engine says."""
    with client_of(pair.engines[0].url + "/v1") as direct:
        return "".join(streamed(direct, pair.launcher.model))


def ask_to_move(headway: Headway) -> dict[str, object]:
    """As `headway migrate` does."""
    url = f"http://127.0.0.1:{headway.admin_port}/requests/{NAME}/migrate"
    try:
        with urllib.request.urlopen(urllib.request.Request(url, b"{}", method="POST"), timeout=10) as answer:
            return dict(json.load(answer))
    except urllib.error.HTTPError as error:
        return dict(json.load(error))


def test_a_chat_is_moved(mover: Headway, pair: EnginePair) -> None:
    expected = undisturbed(pair)
    with client_of(mover.base_url) as sdk:
        pieces = streamed(sdk, pair.launcher.model)
        text = "".join(next(pieces) for _ in range(2))
        told = ask_to_move(mover)
        text += "".join(pieces)
    assert text == expected
    assert mover.metric("headway_attempts_total", outcome="migrated") == 1, told


def test_a_chat_outlives_its_engine(mover: Headway, pair: EnginePair) -> None:
    expected = undisturbed(pair)
    with client_of(mover.base_url) as sdk:
        pieces = streamed(sdk, pair.launcher.model)
        text = "".join(next(pieces) for _ in range(2))
        busy = next(view["spec"]["url"] for view in mover.views() if view["in_flight"])
        next(engine for engine in pair.engines if engine.url == busy).kill()
        text += "".join(pieces)
    assert text == expected
    assert mover.metric("headway_migrations_total", result="failed_over") >= 1
