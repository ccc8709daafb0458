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


def line(at: float, duration_s: float, prompt: int, output: int, account: str = "ok", tenant: str = "") -> str:
    access = Access(RequestId("r"), "POST", "/v1/chat/completions", "", 0.0)
    access.at, access.duration_s, access.status, access.tenant = at, duration_s, 200, tenant
    access.account = account  # type: ignore[assignment]
    access.prompt_tokens, access.output_tokens = prompt, output
    return LINE(access)


def test_requests_come_back_by_arrival() -> None:
    other = '{"timestamp":"x","level":"info","event":"started"}'
    lines = [other, "plain text", line(110.0, 10.0, 50, 7, tenant="a"), line(104.0, 5.0, 30, 9), line(105.0, 0, 0, 0)]
    assert is_access_log(lines[0])
    assert is_access_log(lines[2])
    first, second = read_access(lines, np.random.default_rng(0))
    assert (first.arrival_s, first.prompt_tokens, first.output_tokens) == (0.0, 30, 9)
    assert (second.arrival_s, second.prompt_tokens, second.output_tokens, second.tenant) == (1.0, 50, 7, "a")
    assert first.segments[0].key != second.segments[0].key


def test_who_got_no_answer_is_given_one_of_the_others() -> None:
    lines = [line(float(at), 0.5, 10, 40 + at) for at in range(5)]
    lines += [
        line(9.0, 0.0, 10, 0, "shed"),
        line(10.0, 1.0, 10, 3, "server_error"),
        line(11.0, 1, 10, 3, "client_closed"),
    ]
    *_, shed, failed, closed = read_access(lines, np.random.default_rng(0))
    assert shed.output_tokens in range(40, 45)
    assert failed.output_tokens in range(40, 45)
    assert closed.output_tokens == 3


def test_logs_without_answers_or_sense() -> None:
    assert read_access([], np.random.default_rng(0)) == []
    with pytest.raises(TraceError, match="no request ended ok"):
        read_access([line(9.0, 0.0, 10, 0, "shed")], np.random.default_rng(0))
    with pytest.raises(TraceError, match="line 1"):
        read_access(['{"event":"access","x":' + "[" * 100_000], np.random.default_rng(0))
    with pytest.raises(TraceError, match="line 1"):
        read_access(['{"event": 3}'], np.random.default_rng(0))
    assert not is_access_log("a,b")
