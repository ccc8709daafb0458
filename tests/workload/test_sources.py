"""One entry finds out what a file is and reads it."""

import numpy as np
import pytest

from headway.workload.columns import TraceError
from headway.workload.request import Workload
from headway.workload.sources import Options, read_trace
from tests.workload.test_access import line
from tests.workload.test_servegen import RATES, TOKENS

AZURE = ["TIMESTAMP,ContextTokens,GeneratedTokens", "2023-11-16 23:59:59.0,374,44", "2023-11-17 00:00:01.0,12,1"]
LENGTHS = ["num_prefill_tokens,num_decode_tokens,num_total_tokens,pd_ratio", "74,918,992,0.08", "290,905,1195,0.32"]
MINUTES = ["minute,tokens_per_s,norm", "0,0.0,0.1", "1,10.0,0.1"]
SESSIONS = [
    '{"session_id": "a", "request_arrival_delta_s": 0.5, "input_tokens": 800, "output_tokens": 80}',
    '{"session_id": "a", "request_arrival_delta_s": 9.5, "input_tokens": 1600, "output_tokens": 80}',
]


def opened(lines: list[str], options: Options | None = None, second: list[str] | None = None) -> Workload:
    return read_trace("t", lines, np.random.default_rng(2), options, second or [])


def test_logs_are_read_as_recorded() -> None:
    load = opened(AZURE)
    assert [request.prompt_tokens for request in load.requests] == [374, 12]
    assert load.span_s == pytest.approx(4.0)
    assert load.how == ("arrivals as recorded",)
    assert load.name == "t"


def test_a_mapping_or_a_name_goes_before_what_the_file_looks_like() -> None:
    assert len(opened(AZURE, Options(columns="azure")).requests) == 2
    swapped = opened(AZURE, Options(columns="arrival=TIMESTAMP:time,input=GeneratedTokens,output=ContextTokens"))
    assert [request.prompt_tokens for request in swapped.requests] == [44, 1]


def test_sessions_are_spread_over_the_span() -> None:
    load = opened(SESSIONS, Options(span_s=100.0, length_factor=0.125))
    assert load.span_s == 100.0
    assert sorted(request.prompt_tokens for request in load.requests) == [100, 200]
    assert "random second of 100" in load.how[0]
    assert load.how[1] == "all lengths x 0.125"


def test_servegen_is_entered_at_its_peak() -> None:
    load = opened(RATES, Options(span_s=600.0), TOKENS)
    assert len(load.requests) == 3000
    assert len(opened(RATES, Options(span_s=600.0, start_s=0.0), TOKENS).requests) == 1200
    assert {r.tenant for r in opened(RATES, Options(span_s=600.0, tenant="client-7"), TOKENS).requests} == {"client-7"}
    with pytest.raises(TraceError, match="histograms"):
        opened(RATES)


def test_lengths_get_arrivals() -> None:
    load = opened(LENGTHS, Options(rate=5.0, span_s=200.0, longest=1000))
    assert {(r.prompt_tokens, r.output_tokens) for r in load.requests} == {(74, 918)}
    assert len(load.requests) == pytest.approx(500, rel=0.2)
    assert "left out" in load.how[-1]


def test_profiles_get_sessions() -> None:
    load = opened(MINUTES, Options(rate=5.0, span_s=120.0))
    assert min(request.arrival_s for request in load.requests if request.turn == 0) >= 60.0


def test_our_own_log() -> None:
    assert len(opened([line(10.0, 1.0, 5, 6), line(11.0, 1.0, 5, 6)]).requests) == 2


@pytest.mark.parametrize(
    ("lines", "found"),
    [(["a,b,c", "1,2,3"], "a, b, c"), (['{"x": 1}'], "x"), ([",".join(map(str, range(99))), ""], r"0, .*\.\.\.")],
)
def test_what_nobody_knows(lines: list[str], found: str) -> None:
    with pytest.raises(TraceError, match=rf"which column is which.* \(the first line names {found}"):
        opened(lines)


def test_an_empty_file_is_called_empty() -> None:
    with pytest.raises(TraceError, match="nothing in the file"):
        opened([])
    for header in (AZURE[0], LENGTHS[0]):
        with pytest.raises(TraceError, match="a header and no request"):
            opened([header])


def test_empty_lines_before_the_header_are_nothing() -> None:
    assert opened(["\n", "  \n", *AZURE]).requests == opened(AZURE).requests


def test_a_choice_that_leaves_nothing_says_what_there_is() -> None:
    with pytest.raises(TraceError, match="no request of a tenant named 'bob'; this workload names none"):
        opened(AZURE, Options(tenant="bob"))
    with pytest.raises(TraceError, match="named 'bob'; there are client-0, client-7"):
        opened(RATES, Options(span_s=600.0, tenant="bob"), TOKENS)
    with pytest.raises(TraceError, match="no request has 12 tokens or fewer, prompt and output: the shortest has 13"):
        opened(AZURE, Options(longest=12))


def test_columns_called_what_they_mean_need_no_mapping() -> None:
    load = opened(["arrival,input,output", "0.5,100,20", "1.5,200,30"])
    assert [(r.arrival_s, r.prompt_tokens, r.output_tokens) for r in load.requests] == [(0.0, 100, 20), (1.0, 200, 30)]
