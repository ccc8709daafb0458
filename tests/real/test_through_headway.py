"""Real engines through Headway, with the official OpenAI SDK: answers, streams, clients that leave, death, overload."""

import time
from concurrent.futures import ThreadPoolExecutor

import openai
import pytest
from openai import OpenAI

from tests.real.clients import CHAT, ENDLESS, Client, ask, first_content, stream
from tests.real.engines import EnginePair
from tests.real.headway_process import Headway

pytestmark = pytest.mark.slow


class TestAnswers:
    """What a client gets when nothing goes wrong."""

    def test_a_plain_chat(self, sdk: OpenAI, pair: EnginePair) -> None:
        answer = sdk.chat.completions.create(model=pair.launcher.model, messages=CHAT, max_tokens=12, temperature=0)
        assert answer.choices[0].message.content
        assert answer.usage is not None
        assert answer.usage.completion_tokens == 12
        assert answer.choices[0].finish_reason == "length"

    def test_a_stream_says_what_the_plain_answer_says(self, sdk: OpenAI, pair: EnginePair) -> None:
        with stream(sdk, pair.launcher, 24) as chunks:
            choices = [chunk.choices[0] for chunk in chunks if chunk.choices]
        assert "".join(choice.delta.content or "" for choice in choices) == ask(sdk, pair.launcher)
        assert choices[-1].finish_reason == "length"
        assert len(choices) > 5

    def test_usage_comes_only_when_asked_for(self, sdk: OpenAI, pair: EnginePair) -> None:
        model = pair.launcher.model
        asked = list(
            sdk.chat.completions.create(
                model=model, messages=CHAT, max_tokens=8, stream=True, stream_options={"include_usage": True}
            )
        )
        assert asked[-1].usage is not None
        assert asked[-1].usage.completion_tokens == 8
        with stream(sdk, pair.launcher, 8) as chunks:
            assert all(chunk.usage is None for chunk in chunks)

    def test_completions_plain_and_streamed(self, sdk: OpenAI, pair: EnginePair) -> None:
        model = pair.launcher.model
        plain = sdk.completions.create(model=model, prompt="Once upon", max_tokens=16, temperature=0)
        parts = sdk.completions.create(model=model, prompt="Once upon", max_tokens=16, temperature=0, stream=True)
        assert "".join(part.choices[0].text for part in parts if part.choices) == plain.choices[0].text != ""

    def test_both_engines_give_the_same_answer_as_without_headway(self, sdk: OpenAI, pair: EnginePair) -> None:
        expected = ask(sdk, pair.launcher)
        for engine in pair.engines:
            with OpenAI(base_url=engine.url + "/v1", api_key="none", max_retries=0) as direct:
                assert ask(direct, pair.launcher) == expected

    def test_models_are_listed_once(self, sdk: OpenAI, pair: EnginePair) -> None:
        assert [model.id for model in sdk.models.list()] == [pair.launcher.model]

    def test_an_unknown_model_is_a_typed_error(self, sdk: OpenAI) -> None:
        with pytest.raises(openai.NotFoundError, match="nobody"):
            sdk.chat.completions.create(model="nobody", messages=CHAT)

    def test_a_prompt_beyond_the_context_is_a_typed_error(self, sdk: OpenAI, pair: EnginePair) -> None:
        prompt = "word and more " * pair.launcher.context_tokens
        with pytest.raises(openai.BadRequestError):
            sdk.completions.create(model=pair.launcher.model, prompt=prompt, max_tokens=4)


class TestLoad:
    """More than one request at a time."""

    def test_requests_that_run_together_use_both_engines(self, sdk: OpenAI, pair: EnginePair) -> None:
        streams = [stream(sdk, pair.launcher, ENDLESS) for _ in range(2)]
        for chunks in streams:
            first_content(chunks)
        for engine in pair.engines:
            engine.wait_until_running(1)
        for chunks in streams:
            chunks.close()

    def test_more_clients_than_places_are_all_served(self, sdk: OpenAI, pair: EnginePair, headway: Headway) -> None:
        clients = 3 * pair.launcher.slots * len(pair.engines)
        before = headway.accounts()
        with ThreadPoolExecutor(clients) as pool:
            texts = list(pool.map(lambda _n: ask(sdk, pair.launcher, 200), range(clients)))
        assert len(set(texts)) == 1
        assert headway.accounts()["ok"] - before["ok"] == clients


class TestLeaving:
    """Clients that go away: the engine must stop working for them."""

    def test_a_client_that_leaves_a_stream_frees_its_place(
        self, sdk: OpenAI, pair: EnginePair, headway: Headway
    ) -> None:
        before = headway.accounts()
        for _ in range(5):
            chunks = stream(sdk, pair.launcher, ENDLESS)
            first_content(chunks)
            chunks.close()
            for engine in pair.engines:
                engine.wait_until_running(0, within_s=pair.launcher.leave_s)
        after = headway.accounts()
        assert after["client_closed"] - before["client_closed"] == 5
        assert after["server_error"] == before["server_error"]

    def test_a_client_that_gives_up_waiting_is_not_an_error(
        self, sdk: OpenAI, pair: EnginePair, headway: Headway
    ) -> None:
        before = headway.accounts()
        with pytest.raises(openai.APITimeoutError):
            sdk.with_options(timeout=0.3).chat.completions.create(
                model=pair.launcher.model, messages=CHAT, max_tokens=ENDLESS, extra_body=pair.launcher.go_on
            )
        for engine in pair.engines:
            engine.wait_until_running(0, within_s=pair.launcher.leave_s if pair.launcher.hears_plain_leave else 90.0)
        assert headway.accounts()["client_closed"] - before["client_closed"] == 1


class TestDeath:
    """An engine is killed with -9 while it streams."""

    def test_its_stream_ends_with_an_error_the_other_goes_on_and_new_requests_do_not_notice(
        self, sdk: OpenAI, pair: EnginePair, headway: Headway
    ) -> None:
        for _ in range(8):  # an engine that was restarted a moment ago gets little: until each has one of the two
            before = headway.accounts()
            clients = [Client(lambda: stream(sdk, pair.launcher, pair.launcher.long_tokens)) for _ in range(2)]
            for client in clients:
                client.start()
            assert all(client.begun.wait(60) for client in clients)
            if [engine.load().running for engine in pair.engines] == [1, 1]:
                break
            for client in clients:
                client.join(60)
        doomed = pair.engines[0]
        killed_at = time.monotonic()
        doomed.kill()
        texts = [ask(sdk, pair.launcher) for _ in range(20)]
        for client in clients:
            client.join(60)
        failed = [client for client in clients if client.error is not None]
        assert len(failed) == 1
        assert all(client.finish_reason == "length" for client in clients if client.error is None)
        assert all(client.finish_reason == "" for client in failed)
        assert max(client.ended_at for client in failed) - killed_at < 30.0  # what had arrived is read first
        assert len(set(texts)) == 1
        after = headway.accounts()
        assert after["ok"] - before["ok"] == 1 + len(texts)
        assert after["server_error"] - before["server_error"] == 1
        assert [engine.alive for engine in pair.engines] == [False, True]

    def test_a_dead_engine_is_out_of_rotation_and_comes_back(
        self, sdk: OpenAI, pair: EnginePair, headway: Headway
    ) -> None:
        doomed = pair.engines[0]
        doomed.kill()
        before = headway.accounts()
        for _ in range(10):
            ask(sdk, pair.launcher)
        assert headway.accounts()["ok"] - before["ok"] == 10
        doomed.start()
        doomed.wait_until_healthy()
        headway.wait_until_usable(2)
        streams = [stream(sdk, pair.launcher, ENDLESS) for _ in range(2)]
        for chunks in streams:
            first_content(chunks)
        doomed.wait_until_running(1)
        for chunks in streams:
            chunks.close()

    def test_when_all_are_dead_the_answer_is_a_typed_error(
        self, sdk: OpenAI, pair: EnginePair, headway: Headway
    ) -> None:
        for engine in pair.engines:
            engine.kill()
        began = time.monotonic()
        with pytest.raises(openai.InternalServerError) as raised:
            ask(sdk, pair.launcher)
        assert raised.value.status_code in (502, 503)
        assert time.monotonic() - began < 15.0
        headway.accounts()
