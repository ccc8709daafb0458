"""Requests that change engines while they run, by an operator's commands and as bad luck has it: no client notices, and
the text is that of one engine.
"""

import re
import subprocess
import urllib.error
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
from openai import OpenAI
from openai.types.chat import ChatCompletionMessageParam

from tests.real import tiny_scripts, vllm
from tests.real.clients import CHAT, Chunks, Client, ask, client_of
from tests.real.engines import Engine, EnginePair
from tests.real.headway_process import EXECUTABLE, Headway

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

MOVES = "migration: {enabled: true}\n"
CORRECT = {"logit_bias": tiny_scripts.favour(0)}
EXACT_TOKENS = 3000 if vllm.ASKED_FOR else 650
"""llama.cpp computes a prompt and a step in slightly different ways: after more, a near tie falls otherwise, without
Headway, too (docs/migration.md)."""
LONG_TOKENS = 3000
TRIES = 10  # a stream of 650 tokens may be over before anything can be done to it
by_hand = pytest.mark.skipif(
    not vllm.ASKED_FOR, reason="llama.cpp reads a prompt here hardly faster than it writes: long moves are given up"
)


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


@pytest.fixture(scope="module")
def undisturbed(writers: EnginePair) -> str:
    """What one engine says, to its limit."""
    writers.revive()
    with client_of(writers.engines[0].url + "/v1") as direct:
        return ended(begun(direct, writers, EXACT_TOKENS), EXACT_TOKENS)


@contextmanager
def gateway(pair: EnginePair, folder: Path, settings: str, kv_domain: str = "") -> Iterator[Headway]:
    """One in front of both; its accounts balance afterwards."""
    headway = Headway([engine.url for engine in pair.engines], folder / "log", settings, kv_domain)
    headway.start()
    try:
        headway.wait_until_usable(len(pair.engines))
        yield headway
        headway.accounts()
    finally:
        status = headway.stop()
    assert status == 0, headway.log.read_text()[-2000:]


@pytest.fixture
def mover(pair: EnginePair, tmp_path: Path) -> Iterator[Headway]:
    """A gateway that may move requests."""
    with gateway(pair, tmp_path, MOVES) as headway:
        yield headway


def begun(sdk: OpenAI, pair: EnginePair, tokens: int, name: str = "a-chat", more: str = "") -> Client:
    """A client whose greedy stream has begun, and is read on. `more`: said before the usual words."""
    told: list[ChatCompletionMessageParam] = [{"role": "user", "content": more}] if more else []

    def chat() -> Chunks:
        return sdk.chat.completions.create(
            model=pair.launcher.model, messages=[*told, *CHAT], max_tokens=tokens, temperature=0, stream=True,
            stream_options={"include_usage": True}, extra_headers={"x-request-id": name},
            extra_body=CORRECT | pair.launcher.go_on,
        )  # fmt: skip

    client = Client(chat)
    client.start()
    assert client.begun.wait(60)
    return client


def ended(client: Client, tokens: int) -> str:
    """All that a client has heard: no error, and every token once."""
    client.join(180)
    assert (client.error, client.finish_reason, client.tokens) == (None, "length", tokens)
    return "".join(client.pieces)


def command(headway: Headway, *words: str) -> str:
    """What a command of an operator's says."""
    words = (*words, "--admin", f"http://127.0.0.1:{headway.admin_port}")
    done = subprocess.run([EXECUTABLE, *words], capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def name_of(engine: Engine) -> str:
    """Its id as a replica."""
    return engine.url.removeprefix("http://")


def test_a_chat_is_moved(mover: Headway, pair: EnginePair, undisturbed: str) -> None:
    with client_of(mover.base_url) as sdk:
        for attempt in range(TRIES):
            client = begun(sdk, pair, EXACT_TOKENS, f"chat-{attempt}")
            told = asked_to_move(mover, f"chat-{attempt}")
            assert ended(client, EXACT_TOKENS) == undisturbed
            if mover.metric("headway_attempts_total", outcome="migrated"):
                break
    assert mover.metric("headway_attempts_total", outcome="migrated") == 1, told
    assert mover.accounts()["ok"] == attempt + 1


def asked_to_move(headway: Headway, name: str) -> str:
    """As `headway migrate` asks, but sooner; what was answered."""
    try:
        return str(headway.admin(f"/requests/{name}/migrate", "POST"))
    except urllib.error.HTTPError as error:
        return f"{error.code} {error.read()!r}"


def test_a_chat_outlives_its_engine(mover: Headway, pair: EnginePair, undisturbed: str) -> None:
    with client_of(mover.base_url) as sdk:
        for attempt in range(TRIES):
            client = begun(sdk, pair, EXACT_TOKENS, f"chat-{attempt}")
            busy = {view["spec"]["url"] for view in mover.views() if view["in_flight"]}
            for engine in pair.engines:
                if engine.url in busy:
                    engine.kill()
            assert ended(client, EXACT_TOKENS) == undisturbed
            if mover.metric("headway_migrations_total", result="failed_over"):
                break
            pair.revive()
            mover.wait_until_usable(len(pair.engines))
    assert mover.metric("headway_migrations_total", result="failed_over") == 1
    assert mover.accounts()["ok"] == attempt + 1


@by_hand
def test_the_command_moves_a_chat(mover: Headway, pair: EnginePair, undisturbed: str) -> None:
    one, other = map(name_of, pair.engines)
    with client_of(mover.base_url) as sdk:
        with mover.only(pair.engines[0].url):
            client = begun(sdk, pair, LONG_TOKENS)
        told = command(mover, "migrate", "a-chat", "--to", other)
        assert ended(client, LONG_TOKENS) == undisturbed
    assert f"from {one} to {other}" in " ".join(told.split())
    assert mover.metric("headway_attempts_total", outcome="migrated") == 1
    assert mover.accounts()["ok"] == 1


@by_hand
def test_an_engine_is_emptied_sooner_with_moves_and_no_client_notices(pair: EnginePair, tmp_path: Path) -> None:
    """As many streams as it has places, and short requests meanwhile."""
    took_s = {}
    for settings in ("", MOVES):
        with gateway(pair, tmp_path, settings) as headway:
            took_s[settings] = drained(headway, pair)
            moved = headway.metric("headway_attempts_total", outcome="migrated")
        assert moved == (pair.launcher.slots if settings else 0)
    print(f"empty after {took_s['']} s without moves, {took_s[MOVES]} s with {moved:g}")  # noqa: T201
    assert took_s[MOVES] < took_s[""]


def drained(headway: Headway, pair: EnginePair) -> float:
    """Seconds until the first engine was empty, as the command says it."""
    full, tokens = pair.engines[0], LONG_TOKENS
    with client_of(headway.base_url) as sdk, ThreadPoolExecutor(2) as pool:
        with headway.only(full.url):
            clients = [begun(sdk, pair, tokens, f"chat-{number}") for number in range(pair.launcher.slots)]
        said = pool.submit(command, headway, "drain", name_of(full), "--wait")
        short = list(pool.map(lambda _n: ask(sdk, pair.launcher, 4), range(10)))
        empty = re.search(r"empty after ([0-9.]+) s", said.result())
        for client in clients:
            ended(client, tokens)
    assert len(set(short)) == 1
    assert headway.accounts()["ok"] == headway.accounts()["started"] == len(clients) + len(short)
    command(headway, "drain", name_of(full), "--undo")
    assert not headway.view(full.url)["draining"]
    assert empty is not None
    return float(empty[1])
