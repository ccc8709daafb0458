"""What vLLM does that other engines do not, through Headway: sleep, pause, drain, and a core that dies.

Only with HEADWAY_REAL_ENGINE=vllm (`make test-vllm`). What each behaviour looks like without Headway, and what was seen
when this was measured, is in docs/real-engines.md.
"""

import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from openai import OpenAI

from headway.core.replica import LoadSample
from tests.real import vllm
from tests.real.clients import Client, ask, client_of, stream
from tests.real.engines import Engine, EnginePair
from tests.real.headway_process import Headway, serving

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.skipif(not vllm.ASKED_FOR, reason="make test-vllm"),
]
LONG, LONGER = 1500, 6000
"""Tokens of streams that take some seconds: a busy server hears late what it is told, so who is cut has more."""


@pytest.fixture(scope="module")
def _open_pair(tmp_path_factory: pytest.TempPathFactory) -> EnginePair:
    common = ["--enable-prompt-tokens-details"]
    return vllm.pair(tmp_path_factory.mktemp("open"), common, [*common, "--shutdown-timeout", "60"])


@pytest.fixture(scope="module")
def _open_gateway(_open_pair: EnginePair, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Headway]:
    with serving(_open_pair, tmp_path_factory.mktemp("gateway")) as gateway:
        yield gateway


@pytest.fixture
def pair(_open_pair: EnginePair, _open_gateway: Headway) -> EnginePair:
    """Two engines that can be put to sleep; the second one drains when it is told to terminate."""
    _open_pair.revive()
    _open_pair.wait_until_idle()
    return _open_pair


@pytest.fixture
def headway(_open_gateway: Headway, pair: EnginePair) -> Iterator[Headway]:
    """The gateway in front of both; afterwards its accounts balance."""
    _open_gateway.wait_until_usable(2)
    yield _open_gateway
    _open_gateway.accounts()


@pytest.fixture
def sdk(headway: Headway) -> Iterator[OpenAI]:
    """A client that does not retry."""
    with client_of(headway.base_url) as client:
        yield client


def one_stream_each(sdk: OpenAI, pair: EnginePair, headway: Headway, first: int, second: int) -> list[Client]:
    """A stream of so many tokens at the first engine and one at the second, both under way."""
    clients = []
    for engine, tokens in zip(pair.engines, (first, second), strict=True):
        client = Client(lambda tokens=tokens: stream(sdk, pair.launcher, tokens))  # type: ignore[misc]
        with headway.only(engine.url):
            client.start()
            assert client.begun.wait(60)
        clients.append(client)
    return clients


class TestReports:
    """What Headway believes is what the engine says."""

    def test_cached_prompt_tokens_are_counted(self, sdk: OpenAI, pair: EnginePair, headway: Headway) -> None:
        before = headway.metric("headway_cached_prompt_tokens_total")
        prompt = "an old story that is told twice " * 20
        with headway.only(pair.engines[0].url):
            answers = [sdk.completions.create(model="tiny", prompt=prompt, max_tokens=2) for _ in range(2)]
        usages = [answer.usage for answer in answers]
        cached = [u.prompt_tokens_details.cached_tokens or 0 for u in usages if u and u.prompt_tokens_details]
        assert cached[1] > 300
        assert headway.metric("headway_cached_prompt_tokens_total") - before == sum(cached)

    def test_the_length_of_prompts_is_learned(self, sdk: OpenAI, headway: Headway) -> None:
        for number in range(30):
            prompt = f"{number} sheep jumped over a fence and went on " * 4
            answer = sdk.completions.create(model="tiny", prompt=prompt, max_tokens=2)
        newest = headway.admin("/requests")[0]["id"]
        forecast = headway.admin(f"/requests/{newest}/explain")
        assert answer.usage is not None
        expected = forecast["attempts"][0]["decision"]["forecast"]["prompt_tokens"]
        assert expected == pytest.approx(answer.usage.prompt_tokens, rel=0.1)

    def test_a_plain_answer_carries_a_load_report(self, pair: EnginePair, tmp_path: Path) -> None:
        """With one scrape a minute, what is known is as fresh as the last answer."""
        gateway = Headway([pair.engines[0].url], tmp_path / "log", "observe: {interval_s: 60}\n")
        gateway.start()
        try:
            gateway.wait_until_usable(1)
            gateway.wait_for(lambda: gateway.view(pair.engines[0].url)["sample_age_s"] > 3.0)
            with client_of(gateway.base_url) as sdk:
                ask(sdk, pair.launcher)
            assert gateway.view(pair.engines[0].url)["sample_age_s"] < 1.0
        finally:
            assert gateway.stop() == 0

    def test_the_gauges_agree(self, sdk: OpenAI, pair: EnginePair, headway: Headway) -> None:
        """Within what is generated while one looks, and a block per stream."""
        clients = one_stream_each(sdk, pair, headway, LONGER, LONGER)
        for engine in pair.engines:
            headway.wait_for(lambda engine=engine: agree(headway.view(engine.url), engine.load()))  # type: ignore[misc]
        for client in clients:
            client.leave()


def agree(view: dict[str, Any], own: LoadSample) -> bool:
    """Whether Headway and the engine say the same of one running stream."""
    assert view["kv_capacity_tokens"] == own.kv_capacity_tokens
    used = own.kv_used_tokens or 0
    return view["running"] == own.running == 1 and used > 200 and abs(view["kv_used_tokens"] - used) <= 96


class TestSleep:
    """Engines that are put to sleep or paused, and woken."""

    @pytest.mark.parametrize(("lay", "wake"), [("/sleep?level=1", "/wake_up"), ("/pause?mode=abort", "/resume")])
    def test_one_that_does_not_work_gets_nothing(
        self, sdk: OpenAI, pair: EnginePair, headway: Headway, lay: str, wake: str
    ) -> None:
        sleeper = pair.engines[0]
        before = headway.accounts()
        clients = one_stream_each(sdk, pair, headway, LONGER, LONG)
        sleeper.post(lay)
        try:
            with ThreadPoolExecutor(4) as pool:
                texts = list(pool.map(lambda _n: ask(sdk, pair.launcher, 4), range(20)))
            assert len(set(texts)) == 1
            headway.wait_for(lambda: headway.view(sleeper.url)["sleeping"])
            attempts = headway.metric("headway_attempts_total", replica=sleeper.url.removeprefix("http://"))
            for _ in range(5):
                ask(sdk, pair.launcher, 4)
            assert headway.metric("headway_attempts_total", replica=sleeper.url.removeprefix("http://")) == attempts
            assert headway.view(sleeper.url)["breaker"] == "closed"
        finally:
            sleeper.post(wake)
        for client in clients:
            client.join(60)
        assert str(clients[0].error) == "the engine aborted the request"
        assert (clients[1].error, clients[1].finish_reason) == (None, "length")
        after = headway.accounts()
        assert (after["ok"] - before["ok"], after["server_error"] - before["server_error"]) == (26, 1)
        headway.wait_for(lambda: not headway.view(sleeper.url)["sleeping"])
        for client in one_stream_each(sdk, pair, headway, 20, 20):
            client.join(60)

    def test_who_comes_just_as_it_falls_asleep_is_served_elsewhere(self, pair: EnginePair, tmp_path: Path) -> None:
        """Between two reports: here they are rare."""
        sleeper = pair.engines[0]
        gateway = Headway([engine.url for engine in pair.engines], tmp_path / "log", "observe: {interval_s: 10}\n")
        gateway.start()
        try:
            gateway.wait_until_usable(2)
            with client_of(gateway.base_url) as sdk:
                clients = [Client(lambda: stream(sdk, pair.launcher, 4)) for _ in range(3)]
                with gateway.only(sleeper.url):
                    sleeper.post("/sleep?level=1")
                    for client in clients:
                        client.start()
                    gateway.wait_for(lambda: gateway.view(sleeper.url)["in_flight"] == 3)
                for client in clients:
                    client.join(30)
                    assert (client.error, client.finish_reason) == (None, "length")
            assert gateway.metric("headway_attempts_total", outcome="cancelled") == 3
            assert gateway.view(sleeper.url)["breaker"] == "closed"
        finally:
            sleeper.post("/wake_up")
            assert gateway.stop() == 0


class TestTermination:
    """SIGTERM, and the death of the process that computes."""

    def test_an_engine_that_drains_costs_no_request(self, sdk: OpenAI, pair: EnginePair, headway: Headway) -> None:
        """It refuses new requests in odd ways (200 with "abort", 500), with health 200, and ends what it has begun."""
        before = headway.accounts()
        clients = one_stream_each(sdk, pair, headway, LONG, LONG)
        drained = pair.engines[1]
        assert drained.process is not None
        drained.process.send_signal(signal.SIGTERM)
        rounds = 0
        with ThreadPoolExecutor(4) as pool:
            while clients[1].is_alive():
                assert len(set(pool.map(lambda _n: ask(sdk, pair.launcher, 4), range(8)))) == 1
                rounds += 1
        for client in clients:
            client.join(60)
            assert (client.error, client.finish_reason) == (None, "length")
        after = headway.accounts()
        assert after["ok"] - before["ok"] == 2 + 8 * rounds
        drained.kill()  # it may wait for ever for tasks of its own

    def test_streams_that_a_terminated_engine_leaves_are_cut(
        self, sdk: OpenAI, pair: EnginePair, headway: Headway
    ) -> None:
        """Without --shutdown-timeout they get an error event, or neither bytes nor an end while the process waits."""
        clients = one_stream_each(sdk, pair, headway, LONGER, LONG)
        doomed = pair.engines[0]
        assert doomed.process is not None
        doomed.process.send_signal(signal.SIGTERM)
        texts = [ask(sdk, pair.launcher, 4) for _ in range(10)]
        for client in clients:
            client.join(60)
        assert len(set(texts)) == 1
        assert clients[0].error is not None
        assert clients[0].finish_reason == ""
        assert clients[0].ended_at - clients[0].heard_at < 30.0  # far below the idle timeout (180 s)
        assert (clients[1].error, clients[1].finish_reason) == (None, "length")
        doomed.kill()

    def test_when_its_core_dies_plain_requests_move_and_streams_are_told(
        self, sdk: OpenAI, pair: EnginePair, headway: Headway
    ) -> None:
        before = headway.accounts()
        clients = one_stream_each(sdk, pair, headway, LONGER, LONG)
        doomed = pair.engines[0]
        with ThreadPoolExecutor(3) as pool:
            with headway.only(doomed.url):
                plain = [pool.submit(ask, sdk, pair.launcher, 1000) for _ in range(3)]
                headway.wait_for(lambda: headway.view(doomed.url)["in_flight"] == 4)
            os.kill(core_of(doomed), signal.SIGKILL)
            assert len({answer.result() for answer in plain}) == 1
        for client in clients:
            client.join(60)
        assert clients[0].error is not None
        assert (clients[1].error, clients[1].finish_reason) == (None, "length")
        after = headway.accounts()
        assert (after["ok"] - before["ok"], after["server_error"] - before["server_error"]) == (4, 1)
        doomed.kill()


def core_of(engine: Engine) -> int:
    """The process that computes: the child of the API server that vLLM names so."""
    assert engine.process is not None
    for status in Path("/proc").glob("[0-9]*/status"):
        try:
            fields = dict(line.split(":\t", 1) for line in status.read_text().splitlines() if ":\t" in line)
        except OSError:
            continue  # it ended while we looked
        if int(fields["PPid"]) == engine.process.pid and fields["Name"].startswith("VLLM::Engine"):
            return int(fields["Pid"])
    raise AssertionError("no core process found")
