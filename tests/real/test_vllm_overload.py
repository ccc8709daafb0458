"""vLLM with too little of everything, through Headway: a short queue of its own, and a pool too small for what it runs.

Only with HEADWAY_REAL_ENGINE=vllm (`make test-vllm`).
"""

import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import openai
import pytest
from openai import OpenAI

from tests.real import vllm
from tests.real.clients import Client, ask, client_of, first_content, stream
from tests.real.engines import Engine, EnginePair, Launcher
from tests.real.headway_process import Headway, serving

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.skipif(not vllm.ASKED_FOR, reason="make test-vllm"),
]
POOL_BLOCKS = 40  # of 32 tokens: one and a half of the longest requests below
SIZES = [random.Random(1).choice((100, 200, 500, 700)) for _ in range(40)]


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> EnginePair:
    """One with a pool too small for what it runs, and one that runs one request and lets one wait."""
    pool = ["--max-model-len", "896", "--num-gpu-blocks-override", str(POOL_BLOCKS), "--max-num-seqs", "8"]
    queue = ["--max-num-seqs", "1", "--max-num-queued-reqs", "1"]
    return vllm.pair(tmp_path_factory.mktemp("small"), pool, queue)


@pytest.fixture(scope="module")
def gateway(small: EnginePair, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Headway]:
    """In front of both."""
    with serving(small, tmp_path_factory.mktemp("gateway")) as gateway:
        gateway.wait_until_usable(2)
        yield gateway


def test_a_full_queue_sends_requests_elsewhere_and_is_no_failure(small: EnginePair, gateway: Headway) -> None:
    full = small.engines[1]
    with client_of(full.url + "/v1") as foreign, client_of(gateway.base_url) as sdk:
        occupant = stream(foreign, small.launcher, 8000)
        first_content(occupant)
        others = [Client(lambda: stream(foreign, small.launcher, 4)) for _ in range(2)]
        for other in others:
            other.start()
        gateway.wait_for(lambda: any(other.error for other in others))  # one waits, so the other was refused
        with gateway.only(full.url), pytest.raises(openai.InternalServerError, match="busy") as raised:
            ask(sdk, small.launcher, 4)
        assert raised.value.status_code == 503
        assert all(ask(sdk, small.launcher, 4) for _ in range(10))
        assert not any(other.begun.is_set() for other in others)
        assert gateway.view(full.url)["breaker"] == "closed"
        occupant.close()
        for other in others:
            other.join(60)
    assert gateway.metric("headway_attempts_total", outcome="backpressure") >= 1
    assert gateway.accounts()["server_error"] == 1


def test_a_preempted_stream_is_waited_for(small: EnginePair, gateway: Headway) -> None:
    """Clients of others fill the pool with one of ours: in rounds, for a starved server takes one at a time."""
    engine = small.engines[0]
    with client_of(engine.url + "/v1") as foreign, client_of(gateway.base_url) as sdk, gateway.only(engine.url):
        for _ in range(8):
            clients = [Client(lambda: stream(foreign, small.launcher, 800)) for _ in range(4)]
            clients.append(Client(lambda: stream(sdk, small.launcher, 800)))
            for client in clients:
                client.start()
            for client in clients:
                client.join(120)
                assert (client.error, client.finish_reason) == (None, "length")
            if engine.load().preemptions_total:
                break
    gateway.wait_for(lambda: gateway.metric("headway_replica_preemptions_total") >= 1)
    gateway.accounts()


def test_headway_holds_back_what_would_be_preempted(small: EnginePair, gateway: Headway) -> None:
    """Eight clients, forty answers of up to 700 tokens: through Headway, and straight to the engine."""
    engine = small.engines[0]
    with gateway.only(engine.url):
        preemptions(engine, gateway.base_url)  # it learns the lengths
        assert preemptions(engine, gateway.base_url) < preemptions(engine, engine.url + "/v1")


def preemptions(engine: Engine, base_url: str) -> int:
    """How many the engine counts while all is served."""
    before = engine.load().preemptions_total or 0
    with client_of(base_url) as sdk, ThreadPoolExecutor(8) as pool:
        for client in pool.map(lambda tokens: read(sdk, engine.launcher, tokens), SIZES):
            assert (client.error, client.finish_reason) == (None, "length")
    return (engine.load().preemptions_total or 0) - before


def read(sdk: OpenAI, launcher: Launcher, tokens: int) -> Client:
    """A stream, read in this thread."""
    client = Client(lambda: stream(sdk, launcher, tokens))
    client.run()
    return client
