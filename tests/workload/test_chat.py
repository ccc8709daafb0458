"""The generated chat workload keeps the figures its docstring claims."""

import msgspec
import numpy as np
import pytest

from headway.workload.chat import CHAT, DOCUMENTS, ChatSpec, LogNormal, generate
from headway.workload.outline import outline


def draw(spec: ChatSpec, seed: int = 5) -> list:
    return generate(spec, np.random.default_rng(seed))


@pytest.fixture(scope="module")
def long_run() -> list:
    return draw(ChatSpec(rate=10.0, duration_s=1000.0))


@pytest.mark.slow
def test_lengths_are_those_of_azure_conv(long_run: list) -> None:
    seen = outline(long_run)
    assert seen.prompt_p50 == pytest.approx(1020, rel=0.1)
    assert seen.prompt_p90 == pytest.approx(2734, rel=0.1)
    assert seen.output_p50 == pytest.approx(129, rel=0.1)
    assert seen.output_p90 == pytest.approx(424, rel=0.1)
    assert seen.rate_rps == pytest.approx(10.0, rel=0.1)


@pytest.mark.slow
def test_load_is_steady_from_the_first_second(long_run: list) -> None:
    counts, _ = np.histogram([request.arrival_s for request in long_run], bins=5, range=(0, 1000))
    assert counts[0] == pytest.approx(counts.mean(), rel=0.1)


@pytest.mark.slow
def test_documents_are_as_long_as_they_say() -> None:
    seen = outline(draw(ChatSpec(rate=10.0, duration_s=300.0, shapes=(DOCUMENTS,))))
    assert seen.prompt_p50 == pytest.approx(2730, rel=0.05)
    assert seen.prompt_p90 == pytest.approx(3702, rel=0.05)
    assert seen.sessions == seen.requests


def test_prompts_grow_within_a_session() -> None:
    requests = draw(ChatSpec(rate=5.0, duration_s=60.0))
    before: dict[str, tuple] = {}
    grown = 0
    for request in requests:
        if request.session in before:
            earlier = before[request.session]
            assert request.segments[: len(earlier)] == earlier
            assert request.segments[len(earlier)].role == "assistant"
            grown += 1
        before[request.session] = request.segments
        assert request.segments[0].role == "system"
        assert request.segments[-1].role == "user"
    assert grown > 20


def test_system_prompts_are_shared_between_sessions() -> None:
    firsts = {request.segments[0].key for request in draw(ChatSpec(rate=5.0, duration_s=60.0))}
    assert 2 <= len(firsts) <= CHAT.systems


def test_limit_on_tokens_holds() -> None:
    requests = draw(ChatSpec(rate=20.0, duration_s=30.0, shapes=(CHAT, DOCUMENTS), max_tokens=1500))
    assert max(request.prompt_tokens + request.output_tokens for request in requests) <= 1500
    assert {request.shape for request in requests} == {"chat", "documents"}


def test_same_seed_same_workload() -> None:
    spec = ChatSpec(rate=5.0, duration_s=20.0)
    assert draw(spec) == draw(spec)
    assert draw(spec) != draw(spec, seed=6)


def test_without_system_prompt() -> None:
    bare = msgspec.structs.replace(CHAT, system_tokens=0, turns=1.0)
    assert all(len(request.segments) == 1 for request in draw(ChatSpec(5.0, 10.0, (bare,))))


def test_log_normal_is_clipped() -> None:
    law = LogNormal(100, 1000, low=90, high=110)
    drawn = {law.draw(np.random.default_rng(seed)) for seed in range(60)}
    assert min(drawn) == 90
    assert max(drawn) == 110
