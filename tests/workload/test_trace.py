"""Trace formats: small ones written here, and the public ones where they are beside the project."""

import gzip
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from headway.workload.outline import outline, reusable
from headway.workload.request import Request
from headway.workload.trace import AZURE, MOONCAKE, Columns, TraceError, detect, jitter, parse_columns, read


def rng() -> np.random.Generator:
    return np.random.default_rng(3)


def load(path: Path, columns: Columns) -> list[Request]:
    with gzip.open(path, "rt") as lines:
        return read(lines, columns, rng())


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
    columns = parse_columns("arrival=at:ms,input=chars:0.25,output=out,session=user")
    lines = ["at,chars,out,user,more", "0,400,5,ann,x", "100,600,5,ann,x", "200,600,5,ann,x", "300,80,5,ann,x"]
    requests = read([*lines, "", "400,40,5,bob,x"], columns, rng())
    assert [r.arrival_s for r in requests] == pytest.approx([0.0, 0.1, 0.2, 0.3, 0.4])
    assert [[s.tokens for s in r.segments] for r in requests] == [[100], [100, 50], [100, 50], [20], [10]]
    assert requests[1].segments[0] == requests[0].segments[0]
    assert requests[3].segments[0] != requests[0].segments[0]
    assert [(r.session, r.turn) for r in requests] == [("ann", 0), ("ann", 1), ("ann", 2), ("ann", 3), ("bob", 0)]


@pytest.mark.parametrize(
    ("lines", "columns", "says"),
    [
        (['{"timestamp": 0'], MOONCAKE, "line 1"),
        (['{"timestamp": 0, "input_length": 5}'], MOONCAKE, "request 1: no column 'output_length'"),
        ([*AZURE_LINES, "yesterday,1,1"], AZURE, "request 3"),
        ([*AZURE_LINES, "2023-11-17 00:00:01,few,1"], AZURE, "request 3"),
        (['{"timestamp":0,"input_length":5,"output_length":5,"hash_ids":["x"]}'], MOONCAKE, "request 1"),
    ],
)
def test_bad_lines_are_named(lines: list[str], columns: Columns, says: str) -> None:
    with pytest.raises(TraceError, match=says):
        read(lines, columns, rng())


def test_an_empty_trace() -> None:
    assert read([], AZURE, rng()) == []


def test_mapping_from_the_command_line() -> None:
    assert parse_columns("arrival=t:ns,input=i,output=o,hashes=h:16") == Columns(
        arrival="t", input="i", output="o", hashes="h", arrival_unit_s=1e-9, block_tokens=16
    )


@pytest.mark.parametrize(
    "text",
    [
        "arrival=t",
        "arrival=t:days,input=i,output=o",
        "input=i:x,arrival=t,output=o",
        "who=x",
        "arrival=,input=i,output=o",
    ]
    + ["arrival=t,input=i,output=o,hashes=h"],
)
def test_bad_mappings_are_refused(text: str) -> None:
    with pytest.raises(TraceError, match="column mapping"):
        parse_columns(text)


def test_known_formats_are_recognised() -> None:
    assert detect(AZURE_LINES[0]) is AZURE
    assert detect(MOONCAKE_LINES[0]) is MOONCAKE
    assert detect("a,b,c") is None


@pytest.mark.slow
@pytest.mark.shared
def test_azure_conv(shared: Path) -> None:
    requests = load(shared / "traces/azure_llm_2023_conv.csv.gz", AZURE)
    seen = outline(requests)
    assert seen.requests == 19_366
    assert seen.span_s == pytest.approx(3502, abs=1)
    assert (seen.prompt_p50, seen.prompt_p90) == (1020, 2735)  # 2734 interpolated
    assert (seen.output_p50, seen.output_p90) == (129, 424)


@pytest.mark.slow
@pytest.mark.shared
def test_mooncake_conversation(shared: Path) -> None:
    requests = load(shared / "traces/mooncake_fast25_conversation.jsonl.gz", MOONCAKE)
    seen = outline(requests)
    assert seen.requests == 12_031
    assert seen.span_s == pytest.approx(3540, abs=5)
    assert (seen.prompt_p50, seen.output_p50) == (6909, 350)
    assert 0.30 < reusable(requests) < 0.40  # 0.366 of blocks, a little less of tokens
    ticks = Counter(int(request.arrival_s * 10) for request in requests)
    assert max(ticks.values()) < 10  # the trace itself has up to dozens at one instant


@pytest.mark.slow
@pytest.mark.shared
@pytest.mark.parametrize(
    ("file", "mapping", "rows", "low", "high"),
    [
        (
            "lmcache_agent_traces.jsonl.gz",
            "arrival=timestamp:us,input=input_chars:0.25,output=output_chars:0.25,session=session_id,hashes=hash_ids:64",
            1619,
            0.6,
            0.95,
        ),
        (
            "sharegpt_llama31_8b_300.jsonl.gz",
            "arrival=arrival_time_ns:ns,input=input_toks,output=output_toks,hashes=hash_ids:16",
            300,
            0.05,
            0.11,
        ),
        (
            "claude_code_weka_sample.jsonl.gz",
            "arrival=request_arrival_delta_s,input=input_tokens,output=output_tokens,session=session_id",
            5000,
            0.9,
            1.0,
        ),
    ],
)
def test_other_public_traces_by_mapping(
    shared: Path, file: str, mapping: str, rows: int, low: float, high: float
) -> None:
    requests = load(shared / "traces" / file, parse_columns(mapping))
    assert len(requests) == rows
    assert low < reusable(requests) < high
