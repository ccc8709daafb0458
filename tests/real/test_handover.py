"""Real engines hand a running request's KV over, llama.cpp through a folder that both servers see, vLLM by a connector:
the target computes next to nothing, and the text is that of one engine.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.real import tiny_scripts, vllm
from tests.real.clients import client_of
from tests.real.engines import Engine, EnginePair
from tests.real.headway_process import Headway
from tests.real.test_moves_through_headway import TRIES, asked_to_move, begun, ended, gateway, name_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

KIND = "cut" if vllm.ASKED_FOR else "handed_over"
"""A source that goes on meanwhile is left by a cut as in any move."""

SETTINGS = "migration: {enabled: true}\n"
COMPUTED = (("llamacpp:prompt_tokens_total ", ""), ("vllm:prompt_tokens_by_source_total{", 'source="local_compute"'))
"""Where the engines tell of it: name and label."""

TOKENS = 600
"""Of a chat: vLLM's connectors keep a processor busy each, so engines are slow here. The 640th is a near tie that falls
otherwise where llama.cpp computes the token at the cut as a prompt (12 of 12 the same without a move, 7 of 12 with)."""

LONG = "the word of water and time " * 150
"""Said first, so that it is worth handing over what was computed of it."""


@pytest.fixture(scope="module")
def writers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EnginePair]:
    """Two servers that can hand their KV over to each other."""
    folder = tmp_path_factory.mktemp("writers")
    if vllm.ASKED_FOR:
        pair = vllm.connected(folder, tiny_scripts)
    else:
        pytest.importorskip("xllamacpp", reason="llama.cpp's server is not installed (extra: engines)")
        from tests.real import llama

        pair = EnginePair.make(llama.launcher(folder, tiny_scripts), folder)
    try:
        yield pair
    finally:
        pair.end()


@pytest.fixture(scope="module")
def undisturbed(writers: EnginePair) -> str:
    """What one engine says, to its limit."""
    writers.revive()
    with client_of(writers.engines[0].url + "/v1") as direct:
        return ended(begun(direct, writers, TOKENS, more=LONG), TOKENS)


@pytest.fixture
def pair(writers: EnginePair) -> EnginePair:
    """Both, healthy and with nothing to do."""
    writers.revive()
    writers.wait_until_idle()
    return writers


@pytest.fixture
def mover(pair: EnginePair, tmp_path: Path) -> Iterator[Headway]:
    """A gateway in front of both that has learned how fast they read."""
    with gateway(pair, tmp_path, SETTINGS, kv_domain="shared") as headway:
        with client_of(headway.base_url) as sdk:
            for number, engine in enumerate(pair.engines):
                with headway.only(engine.url):
                    for turn in range(3):
                        sdk.completions.create(model="tiny", prompt=f"{number} {turn} {LONG}", max_tokens=2)
        yield headway


def moved(mover: Headway, pair: EnginePair) -> str:
    """A chat that was handed over: its text. Streams of so few tokens may be over before anything can be done."""
    before = mover.metric("headway_kv_handovers_total", result="done")
    with client_of(mover.base_url) as sdk:
        for attempt in range(TRIES):
            client = begun(sdk, pair, TOKENS, f"chat-{attempt}", LONG)
            told = asked_to_move(mover, f"chat-{attempt}")
            text = ended(client, TOKENS)
            if mover.metric("headway_kv_handovers_total", result="done") > before:
                return text
    pytest.fail(f"nothing was handed over: {told}")


def test_a_chat_is_handed_over(mover: Headway, pair: EnginePair, undisturbed: str) -> None:
    assert moved(mover, pair) == undisturbed
    assert mover.metric("headway_attempts_total", outcome="migrated") >= 1
    assert mover.metric("headway_handed_over_tokens_total") > 0
    assert mover.metric("headway_migration_gap_seconds_count", kind=KIND) >= 1


def test_next_to_nothing_is_computed_again(mover: Headway, pair: EnginePair) -> None:
    """A long prompt is read once, by the source; the engines' own counters tell."""
    for turn in range(TRIES):  # it may be computed sooner, or be over before
        before = sum(map(computed, pair.engines))
        prompt, said = handed_over(mover, f"again {turn} {LONG}", 400)
        read = sum(map(computed, pair.engines)) - before
        assert said == 400
        if mover.metric("headway_kv_handovers_total", result="done"):
            break
    assert mover.metric("headway_kv_handovers_total", result="done") == 1
    assert prompt <= read < 1.1 * prompt, "read twice it would be twice as much"
    gap_s = mover.metric("headway_migration_gap_seconds_sum", kind=KIND)
    print(f"{prompt + said} tokens at most: the stream stood still for {gap_s:.3f} s")  # noqa: T201


def handed_over(mover: Headway, prompt: str, tokens: int) -> tuple[int, int]:
    """A completion of that prompt which is moved as soon as it speaks: its usage, prompt and output."""
    usage = (0, 0)
    with client_of(mover.base_url) as sdk:
        stream = sdk.completions.create(
            model="tiny", prompt=prompt, max_tokens=tokens, temperature=0, stream=True,
            stream_options={"include_usage": True}, extra_headers={"x-request-id": "long"},
            extra_body={"logit_bias": tiny_scripts.favour(0)},
        )  # fmt: skip
        for place, chunk in enumerate(stream):
            if place == 4:
                asked_to_move(mover, "long")
            if chunk.usage is not None:
                usage = chunk.usage.prompt_tokens, chunk.usage.completion_tokens
    return usage


def computed(engine: Engine) -> float:
    """Prompt tokens that an engine has computed so far."""
    page = (engine.get("/metrics") or b"").decode()
    name, label = COMPUTED[vllm.ASKED_FOR]
    lines = [line for line in page.splitlines() if line.startswith(name) and label in line]
    assert lines
    return sum(float(line.split()[1]) for line in lines)


def test_streams_leave_an_engine_that_drains(mover: Headway, pair: EnginePair, undisturbed: str) -> None:
    """Where a prompt is read hardly faster than an answer is written, this is what makes moves possible at all."""
    full = pair.engines[0]
    with client_of(mover.base_url) as sdk:
        for turn in range(TRIES):  # they may be over before they are asked to go
            with mover.only(full.url):
                clients = [begun(sdk, pair, TOKENS, f"{turn}-{n}", LONG) for n in range(pair.launcher.slots)]
            mover.admin(f"/replicas/{name_of(full)}/drain", "POST")
            assert [ended(client, TOKENS) for client in clients] == [undisturbed] * len(clients)
            mover.admin(f"/replicas/{name_of(full)}/undrain", "POST")
            moved = mover.metric("headway_attempts_total", outcome="migrated")
            if moved if vllm.ASKED_FOR else mover.metric("headway_kv_handovers_total", result="done"):
                return  # vLLM has cached this prompt on both sides
    pytest.fail("nothing was handed over")
