"""Headway's own log, read back: written here by the very code that writes it in production."""

import numpy as np
import pytest

from headway.core.ids import RequestId
from headway.telemetry.access import Access
from headway.telemetry.lines import AccessJson
from headway.telemetry.redact import Redactor
from headway.workload.access import is_access_log, read_access
from headway.workload.columns import TraceError

LINE = AccessJson(Redactor(()))


def rng() -> np.random.Generator:
    return np.random.default_rng(0)


CHAT = "/v1/chat/completions"


def line(
    at: float,
    duration_s: float,
    prompt: int,
    output: int,
    account: str = "ok",
    tenant: str = "",
    bytes_in: int = 0,
    path: str = CHAT,
) -> str:
    access = Access(RequestId("r"), "POST", path, "", 0.0)
    access.at, access.duration_s, access.status, access.tenant = at, duration_s, 200, tenant
    access.account = account  # type: ignore[assignment]
    access.prompt_tokens, access.output_tokens, access.bytes_in = prompt, output, bytes_in
    return LINE(access)


def test_requests_come_back_by_arrival() -> None:
    other = '{"timestamp":"x","level":"info","event":"started"}'
    lines = [other, "plain text", line(110.0, 10.0, 50, 7, tenant="a"), line(104.0, 5.0, 30, 9), line(105.0, 0, 0, 0)]
    assert is_access_log(lines[0])
    assert is_access_log(lines[2])
    first, second = read_access(lines, rng())
    assert (first.arrival_s, first.prompt_tokens, first.output_tokens) == (0.0, 30, 9)
    assert (second.arrival_s, second.prompt_tokens, second.output_tokens, second.tenant) == (1.0, 50, 7, "a")
    assert first.segments[0].key != second.segments[0].key


def test_who_got_no_answer_is_given_one_of_the_others() -> None:
    lines = [line(float(at), 0.5, 10, 40 + at, bytes_in=60) for at in range(5)]
    lines += [
        line(9.0, 0.0, 0, 0, "shed", bytes_in=60),
        line(10.0, 1.0, 10, 3, "server_error"),
        line(11.0, 1, 10, 3, "client_closed"),
    ]
    *_, shed, failed, closed = read_access(lines, rng())
    assert shed.output_tokens in range(40, 45)
    assert failed.output_tokens in range(40, 45)
    assert closed.output_tokens == 3


def test_logs_without_answers_or_sense() -> None:
    assert read_access([], np.random.default_rng(0)) == []
    with pytest.raises(TraceError, match="no request ended ok"):
        read_access([line(9.0, 0.0, 0, 0, "shed", bytes_in=60), line(9.0, 0.0, 9, 0, bytes_in=60)], rng())
    with pytest.raises(TraceError, match="no request has prompt tokens"):
        read_access([line(9.0, 0.0, 0, 7, bytes_in=60)], rng())
    with pytest.raises(TraceError, match="line 1"):
        read_access(['{"event":"access","x":' + "[" * 100_000], rng())
    with pytest.raises(TraceError, match="line 1"):
        read_access(['{"event": 3}'], rng())
    assert not is_access_log("a,b")


def test_prompts_that_no_engine_counted_are_told_from_their_bytes() -> None:
    """Whoever is shed never reaches an engine, and streams have no usage once the ratio is learned: only what was
    served, and of that a part, was left of an overloaded day."""
    counted = [line(1.0, 0.5, 100, 5, bytes_in=bytes_in) for bytes_in in (500, 500, 1_000_000)]  # the last: an image
    others = [
        line(2.0, 0.5, 0, 0, "shed", bytes_in=1000),
        line(3.0, 0.5, 0, 8, bytes_in=1500),
        line(4.0, 0.5, 0, 8, "client_closed", bytes_in=2),
        line(5.0, 0.5, 0, 0, "client_error", bytes_in=1000),  # nobody could have answered it
        line(6.0, 0.5, 0, 0, "shed"),  # refused before it was read
    ]
    found = read_access(counted + others, rng())
    assert [request.prompt_tokens for request in found] == [100, 100, 100, 200, 300, 1]
    assert [request.output_tokens for request in found] == [5, 5, 5, found[3].output_tokens, 8, 8]
    assert found[3].output_tokens in (5, 8)


def test_what_generates_nothing_is_no_request_for_an_answer() -> None:
    """An embedding was given the length of somebody's answer."""
    lines = [line(1.0, 0.1, 200, 0, path=path) for path in ("/v1/embeddings", "/v1/rerank", "/v1/*", "/v1/models")]
    assert read_access(lines, rng()) == []
    assert [each.output_tokens for each in read_access([*lines, line(2.0, 0.1, 9, 3)], rng())] == [3]
