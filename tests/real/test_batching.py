"""Micro-batching in front of a real llama.cpp: merged or alone, each client gets what the engine makes of its input."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest
from openai import BadRequestError, OpenAI

from tests.real import vllm
from tests.real.clients import client_of
from tests.real.engines import Engine, Launcher, free_port
from tests.real.headway_process import Headway

pytestmark = pytest.mark.skipif(vllm.ASKED_FOR, reason="vLLM batches by itself: merging is not for it")

TEXTS = [
    "hello",
    "load balancing of large language models",
    "a",
    "one two three four five six",
    "привет",
    "x y",
    "z",
    "42",
]
MERGING = "batching: {tiny: {window_ms: 150, max: 16}}\n"


@pytest.fixture(scope="module")
def engine(launcher: Launcher, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    embeds = replace(launcher, command=[*launcher.command, "embeds"])
    made = Engine(embeds, free_port(), tmp_path_factory.mktemp("embeds") / "engine.log")
    try:
        made.start()
        made.wait_until_healthy()
        yield made
    finally:
        made.kill()


@pytest.fixture(scope="module")
def merging(engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Headway]:
    headway = Headway([engine.url], tmp_path_factory.mktemp("merging") / "log", more=MERGING)
    headway.start()
    try:
        headway.wait_until_usable(1)
        yield headway
        headway.accounts()
    finally:
        status = headway.stop()
    assert status == 0, headway.log.read_text()[-2000:]


@pytest.fixture
def both(engine: Engine, merging: Headway) -> Iterator[tuple[OpenAI, OpenAI]]:
    """Clients of the engine and of the gateway."""
    with client_of(f"{engine.url}/v1") as direct, client_of(merging.base_url) as through:
        yield direct, through


def at_once(ask: Callable[[str], Any], texts: list[str]) -> list[Any]:
    with ThreadPoolExecutor(len(texts)) as threads:
        return list(threads.map(ask, texts))


def test_embeddings_are_the_engines_own(both: tuple[OpenAI, OpenAI], merging: Headway) -> None:
    direct, through = both
    alone = [direct.embeddings.create(model="tiny", input=text) for text in TEXTS]
    merged = at_once(lambda text: through.embeddings.create(model="tiny", input=text), TEXTS)
    for own, other in zip(alone, merged, strict=True):
        assert [entry.index for entry in other.data] == [0]
        assert other.data[0].embedding == pytest.approx(own.data[0].embedding, abs=1e-4)
        assert other.model == own.model
    assert sum(one.usage.prompt_tokens for one in merged) == sum(one.usage.prompt_tokens for one in alone)
    assert 1 <= merging.metric("headway_merged_calls_total") < len(TEXTS)
    assert merging.metric("headway_merged_requests_total") >= len(TEXTS) / 2


def test_completions_are_the_engines_own(both: tuple[OpenAI, OpenAI], merging: Headway) -> None:
    def complete(client: OpenAI, text: str) -> str:
        answer = client.completions.create(model="tiny", prompt=text, max_tokens=8, temperature=0)
        return answer.choices[0].text

    direct, through = both
    calls = merging.metric("headway_merged_calls_total")
    alone = [complete(direct, text) for text in TEXTS]
    assert at_once(lambda text: complete(through, text), TEXTS) == alone
    assert merging.metric("headway_merged_calls_total") > calls


def test_one_that_the_engine_refuses_spoils_nobody_elses(both: tuple[OpenAI, OpenAI], merging: Headway) -> None:
    def embed(text: str) -> Any:
        try:
            return through.embeddings.create(model="tiny", input=text).data[0].embedding
        except BadRequestError as error:
            return error.status_code

    direct, through = both
    scattered = merging.metric("headway_scattered_requests_total")
    answers = at_once(embed, ["good", "", "fine"])
    assert answers[1] == 400
    for text, answer in (("good", answers[0]), ("fine", answers[2])):
        own = direct.embeddings.create(model="tiny", input=text).data[0].embedding
        assert answer == pytest.approx(own, abs=1e-4)
    assert merging.metric("headway_scattered_requests_total") > scattered
