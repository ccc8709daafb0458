"""Request logs written here: rows become requests, prefixes segments, and bad lines errors that name them."""

import numpy as np
import pytest

from headway.workload.columns import FORMATS, Columns, TraceError, parse_columns
from headway.workload.request import Request
from headway.workload.trace import jitter, read

AZURE, MOONCAKE = FORMATS["azure"], FORMATS["mooncake"]
PLAIN = Columns(arrival="timestamp", input="input_length", output="output_length")


def rng() -> np.random.Generator:
    return np.random.default_rng(3)


AZURE_LINES = [
    "TIMESTAMP,ContextTokens,GeneratedTokens\r\n",
    "2023-11-16 23:59:59.9805900,374,44\r\n",
    "2023-11-17 00:00:00.4805901,12,1\r\n",
]
MOONCAKE_LINES = [
    '{"timestamp": 3000, "input_length": 1100, "output_length": 5, "hash_ids": [0, 1, 2]}',
    '{"timestamp": 3000, "input_length": 600, "output_length": 6, "hash_ids": [0, 4]}',
    '{"timestamp": 3000, "input_length": 512, "output_length": 7, "hash_ids": [0]}',
    '{"timestamp": 6000, "input_length": 700, "output_length": 8, "hash_ids": [0, 4]}',
]


@pytest.mark.parametrize(
    ("stamp", "second"),
    [
        ("2024-05-10 00:00:01.009930", 1.00993),
        ("2024-05-10 00:00:01.009930+00:00", 1.00993),
        ("2024-05-10T00:00:01.5Z", 1.5),
        ("2024-05-10 02:00:01+02", 1.0),
        ("2024-05-09 18:30:01 -0530", 1.0),
        ("2024-05-10 00:01 UTC", 60.0),
        ("2024-05-10 00:00:01.1234567", 1.1234567),
    ],
)
def test_timestamps_say_where_their_clock_stands(stamp: str, second: float) -> None:
    """Azure's trace of 2024 ends in +00:00, of which numpy warned on standard error."""
    rows = ["TIMESTAMP,ContextTokens,GeneratedTokens", "2024-05-10 00:00:00,1,1", f"{stamp},2,1"]
    found = read(rows, FORMATS["azure"], np.random.default_rng(0))
    assert found[-1].arrival_s == pytest.approx(second, abs=1e-6)


@pytest.mark.parametrize("stamp", ["2024-05-10 00:00:01 GMT+1", "10.05.2024 00:00", "noon", "12:00:00+99:99", ""])
def test_what_is_no_timestamp_is_refused(stamp: str) -> None:
    with pytest.raises(TraceError, match="request 1"):
        read(["TIMESTAMP,ContextTokens,GeneratedTokens", f"{stamp},2,1"], FORMATS["azure"], np.random.default_rng(0))


def test_azure_timestamps_cross_midnight_exactly() -> None:
    first, second = read(AZURE_LINES, AZURE, rng())
    assert (first.arrival_s, first.prompt_tokens, first.output_tokens) == (0.0, 374, 44)
    assert second.arrival_s == pytest.approx(0.5000001, abs=3e-7)  # seconds since 1970 in a double: 0.2 us
    assert first.segments[0].key != second.segments[0].key


def test_mooncake_blocks_become_segments_and_ticks_are_spread() -> None:
    requests = read(MOONCAKE_LINES, MOONCAKE, rng())
    by_output = {request.output_tokens: request for request in requests}
    assert [s.tokens for s in by_output[5].segments] == [512, 512, 76]
    assert [(s.key, s.tokens) for s in by_output[8].segments] == [(0, 512), (4, 188)]
    assert requests[0].arrival_s == 0.0
    assert len({request.arrival_s for request in requests}) == 4
    assert requests[-1].arrival_s < 6.0
    assert [r.arrival_s for r in requests] == sorted(r.arrival_s for r in requests)


def test_jitter_leaves_fine_clocks_alone() -> None:
    fine = np.array([0.0, 0.1, 0.1, 0.4])
    assert np.array_equal(jitter(fine, rng()), fine)
    assert np.array_equal(jitter(np.array([2.0, 2.0]), rng()), np.array([2.0, 2.0]))


def test_a_prompt_longer_than_its_hashes_gets_a_rest() -> None:
    line = '{"timestamp": 0, "input_length": 700, "output_length": 1, "hash_ids": [9]}'
    assert [s.tokens for s in read([line], MOONCAKE, rng())[0].segments] == [512, 188]


def test_generic_csv_with_sessions_grows_and_compacts() -> None:
    columns = parse_columns("arrival=at:ms,input=chars:0.25,output=out,session=user,tenant=more")
    lines = ["at,chars,out,user,more", "0,400,5,ann,x", "100,600,5,ann,x", "200,600,5,ann,x", "300,80,5,ann,x"]
    requests = read([*lines, "", "400,40,5,bob,x"], columns, rng())
    assert [r.arrival_s for r in requests] == pytest.approx([0.0, 0.1, 0.2, 0.3, 0.4])
    assert [[s.tokens for s in r.segments] for r in requests] == [[100], [100, 5, 45], [100, 5, 45], [20], [10]]
    assert requests[1].segments[0] == requests[0].segments[0]
    assert [s.role for s in requests[1].segments] == ["user", "assistant", "user"]
    assert {r.tenant for r in requests} == {"x"}
    assert requests[3].segments[0] != requests[0].segments[0]
    assert [(r.session, r.turn) for r in requests] == [("ann", 0), ("ann", 1), ("ann", 2), ("ann", 3), ("bob", 0)]


@pytest.mark.parametrize(
    ("lines", "columns", "says"),
    [
        (['{"timestamp": 0'], MOONCAKE, "line 1"),
        (['{"timestamp": 0, "input_length": 5}'], MOONCAKE, "request 1: no column 'output_length'"),
        ([*AZURE_LINES, "yesterday,1,1"], AZURE, "request 3"),
        ([*AZURE_LINES, "2023-11-17 00:00:01,few,1"], AZURE, "request 3"),
        ([*AZURE_LINES, "2023-11-17 00:00:01,nan,1"], AZURE, "request 3: a length of nan"),
        ([*AZURE_LINES, "2023-11-17 00:00:01,1,inf"], AZURE, "request 3: a length of inf"),
        ([*AZURE_LINES, "2023-11-17 00:00:01,-1,1"], AZURE, "request 3: a length of -1"),
        ([*AZURE_LINES, "2023-11-17 00:00:01,99999999999999999999,1"], AZURE, "longer than 10,000,000 tokens"),
        ([*AZURE_LINES, "2023-11-17 00:00:01,1,1,1"], AZURE, "line 4: 4 fields, where the header names 3"),
        (["TIMESTAMP,ContextTokens,ContextTokens,GeneratedTokens", "1,1,1,1"], AZURE, "names ContextTokens twice"),
        (['{"timestamp":"2024-05-10 00:00:00","input_length":5,"output_length":5}'], PLAIN, "arrival=timestamp:time"),
        ([*AZURE_LINES, "NaT,1,1"], AZURE, "request 3: .NaT. is no timestamp"),
        (['{"timestamp":"inf","input_length":5,"output_length":5,"hash_ids":[1]}'], MOONCAKE, "request 1: an arrival"),
        (['{"timestamp":0,"x":' + "[" * 100_000], MOONCAKE, "line 1"),
        (['{"timestamp":0,"input_length":5,"output_length":5,"hash_ids":["x"]}'], MOONCAKE, "request 1"),
        (["timestamp,input_length,output_length,hash_ids", "0,5,5,7 8"], MOONCAKE, "request 1"),
        (["timestamp,input_length,output_length,hash_ids", '0,5,5,"[7, ""x""]"'], MOONCAKE, "request 1"),
    ],
)
def test_bad_lines_are_named(lines: list[str], columns: Columns, says: str) -> None:
    with pytest.raises(TraceError, match=says):
        read(lines, columns, rng())


def test_an_empty_trace() -> None:
    assert read([], AZURE, rng()) == []


def test_quoted_fields_of_a_csv() -> None:
    lines = ["at,in,out,who", '0,5,6,"ann, bob"']
    columns = Columns("at", "in", "out", session="who")
    assert read(lines, columns, rng())[0].session == "ann, bob"


def test_hash_ids_in_a_csv_are_written_as_json_has_them() -> None:
    lines = ["timestamp,input_length,output_length,hash_ids", '0,1024,5,"[1, 2]"', "1000,600,5,[1]", "2000,600,5,"]
    prompts = [[(s.key, s.tokens) for s in each.segments] for each in read(lines, MOONCAKE, rng())]
    assert prompts[0] == [(1, 512), (2, 512)]
    assert prompts[1][0] == (1, 512)
    assert [tokens for _, tokens in prompts[2]] == [600]


def spread(span_s: float) -> list[Request]:
    """Two sessions of 20 turns, 10 s apart, on a ring."""
    columns = Columns("at", "in", "out", session="who", spread=True)
    rows = [f"{turn * 10},{100 + turn * 10},5,{who}" for who in "ab" for turn in range(20)]
    return read(["at,in,out,who", *rows], columns, rng(), span_s)


def test_spread_sessions_start_anywhere_and_keep_their_gaps() -> None:
    requests = spread(10_000.0)
    for who in "ab":
        own = [r.arrival_s for r in requests if r.session.startswith(who)]
        assert np.allclose(np.diff(own) % 10_000.0, 10.0)
    assert (
        abs(requests[0].arrival_s - next(r for r in requests if r.session[0] != requests[0].session[0]).arrival_s) > 0
    )


def test_sessions_longer_than_the_ring_wind_around_it_in_parts() -> None:
    requests = spread(60.0)
    assert len(requests) == 40
    assert all(0 <= r.arrival_s < 60 for r in requests)
    parts = {r.session for r in requests}
    assert 7 <= len(parts) <= 10  # 190 s are four or five parts each
    keys: dict[int, str] = {}
    for part in parts:
        own = [r for r in requests if r.session == part]
        assert [r.turn for r in own] == list(range(own[0].turn, own[0].turn + len(own)))
        assert len(own[0].segments) == 1  # in mid-talk: its history is one piece of prompt, and nobody else's
        assert all(keys.setdefault(s.key, part) == part for r in own for s in r.segments)


def test_whole_blocks_that_recur_are_one_object() -> None:
    first, second = read(MOONCAKE_LINES[1:3], MOONCAKE, rng())
    assert first.segments[0] is second.segments[0]
