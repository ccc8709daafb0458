"""ServeGen's laws become streams with the counts, gaps and lengths they name."""

import numpy as np
import pytest

from headway.workload.columns import TraceError
from headway.workload.request import Workload
from headway.workload.servegen import HEADER, Pool, generate, peak, read_pool

RATES = [
    ",".join(HEADER),
    "0,0,2.0,1.0,Gamma,1.0,0.5",
    "0,600,4.0,1.0,Gamma,1.0,0.25",
    "0,1200,1.0,1.0,Weibull,1.0,1.0",
    "7,600,1.0,4.0,Gamma,0.0625,16.0",
]
TOKENS = [
    '{"client": 0, "timestamp": 0, "input_tokens": {"10": 0.5, "30": 0.5}, "output_tokens": {"4": 1.0}}',
    '{"client": 0, "timestamp": 21600, "input_tokens": {"99": 1.0}, "output_tokens": {"5": 1.0}}',
]
IMAGE = (
    '{"client": 0, "timestamp": 0, "text_tokens": {"10": 1.0}, "image_tokens": {"500": 1.0}, '
    '"image_count": {"2": 1.0}, "audio_tokens": {"0": 1.0}, "audio_count": {"0": 1.0}, "output_tokens": {"4": 1.0}}'
)


def pool() -> Pool:
    return read_pool(RATES, TOKENS)


def stream(start_s: float = 0.0, length_s: float = 1800.0, seed: int = 1) -> Workload:
    return generate(pool(), start_s, length_s, np.random.default_rng(seed))


def test_every_window_has_the_published_number_of_requests() -> None:
    arrivals = np.array([request.arrival_s for request in stream().requests])
    assert np.histogram(arrivals, bins=[0, 600, 1200, 1800])[0].tolist() == [1200, 3000, 600]
    assert np.all(np.diff(arrivals) >= 0)


def test_gaps_follow_the_law_of_their_client() -> None:
    def cv(tenant: str) -> float:
        gaps = [
            gap
            for seed in range(8)
            for gap in np.diff([r.arrival_s for r in stream(600.0, 600.0, seed).requests if r.tenant == tenant])
        ]
        return float(np.std(gaps) / np.mean(gaps))

    assert cv("client-0") == pytest.approx(1.0, abs=0.05)
    assert cv("client-7") == pytest.approx(4.0, rel=0.12)


def test_lengths_are_those_of_the_time_of_day() -> None:
    requests = stream().requests
    assert {r.prompt_tokens for r in requests if r.tenant == "client-0"} == {10, 30}
    assert {r.output_tokens for r in requests if r.tenant == "client-0"} == {4}
    night = read_pool([RATES[0], "0,86400,1.0,1.0,Gamma,1,1", "0,110000,1.0,1.0,Gamma,1,1"], TOKENS)
    lengths = [
        {request.prompt_tokens for request in generate(night, at, 600.0, np.random.default_rng(1)).requests}
        for at in (86_400.0, 110_000.0)
    ]
    assert lengths == [{10, 30}, {99}]


def test_a_client_without_histograms_takes_those_of_the_others_by_load() -> None:
    borrowed = [request for request in stream().requests if request.tenant == "client-7"]
    assert len(borrowed) == 600
    assert {request.prompt_tokens for request in borrowed} == {10, 30}  # nobody's load stands behind the 99


def test_images_count_as_often_as_they_come() -> None:
    images = generate(read_pool(RATES[:2], [IMAGE]), 0.0, 60.0, np.random.default_rng(1))
    assert {request.prompt_tokens for request in images.requests} == {1010}


def test_the_peak_and_pieces_of_windows() -> None:
    assert peak(pool(), 600.0) == 600.0
    assert peak(pool(), 1200.0) == 0.0
    piece = stream(900.0, 600.0)
    assert piece.span_s == 600.0
    assert all(0 <= request.arrival_s < 600 for request in piece.requests)
    assert len(piece.requests) == pytest.approx(300 * 5 + 300, rel=0.2)
    assert "seconds 900 to 1500" in piece.how[0]


def test_prompts_share_nothing_and_seeds_matter() -> None:
    keys = [request.segments[0].key for request in stream().requests]
    assert len(set(keys)) == len(keys)
    assert stream().requests == stream().requests
    assert stream().requests != stream(seed=2).requests


def test_a_shape_that_draws_nothing_but_zeros() -> None:
    tiny = read_pool([RATES[0], "0,0,0.05,9,Gamma,1e-320,1"], TOKENS)
    assert len(generate(tiny, 0.0, 600.0, np.random.default_rng(1)).requests) == 30


@pytest.mark.parametrize(
    ("rates", "tokens", "says"),
    [
        (["client,rate"], TOKENS, "expected the columns"),
        ([RATES[0], "0,0,x,1,Gamma,1,1"], TOKENS, "rates, line 2"),
        ([RATES[0], "0,0"], TOKENS, "rates, line 2"),
        (RATES, [], "histograms: empty"),
        (RATES, ['{"client": 0, "timestamp": 0, "output_tokens": {"4": 1}}'], "line 1: .*input_tokens"),
        (RATES, ["{"], "histograms, line 1"),
        (RATES, ['{"client": 0, "timestamp": 0, "input_tokens": {"inf": 1}}'], "histograms, line 1"),
        (RATES, ['{"x":' + "[" * 100_000], "histograms, line 1"),
        ([RATES[0], "0,0,-5,1,Gamma,1,1"], TOKENS, "rates, line 2: a rate of -5/s"),
        ([RATES[0], "0,0,nan,1,Gamma,1,1"], TOKENS, "rates, line 2: a rate of nan/s"),
        ([RATES[0], "0,0,1e12,1,Gamma,1,1"], TOKENS, "rates, line 2: a rate of 1e"),
        ([RATES[0], "0,1e18,5,1,Gamma,1,1"], TOKENS, "rates, line 2: a rate of 5/s from second 1e"),
        ([RATES[0], "0,0,5,1,Gamma,-1,1"], TOKENS, "rates, line 2: a law of shape -1"),
        (
            RATES,
            ['{"client": 0, "timestamp": 0, "input_tokens": {"4": 0}, "output_tokens": {"4": 1}}'],
            "line 1: .*shares",
        ),
        (
            RATES,
            ['{"client": 0, "timestamp": 0, "input_tokens": {"-4": 1}, "output_tokens": {"4": 1}}'],
            "0 to 10,000,000",
        ),
        (RATES, ['{"client": 0, "timestamp": 0, "input_tokens": {"1e15": 1}, "output_tokens": {"4": 1}}'], "0 to 10,0"),
    ],
)
def test_bad_files_are_named(rates: list[str], tokens: list[str], says: str) -> None:
    with pytest.raises(TraceError, match=says):
        read_pool(rates, tokens)


def test_an_empty_pool() -> None:
    empty = read_pool(RATES[:1], TOKENS)
    assert generate(empty, 0.0, 600.0, np.random.default_rng(1)).requests == []
    assert peak(empty, 3600.0) == 0.0
