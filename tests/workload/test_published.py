"""The public traces, read by us, have the statistics that were published of them: a reader's bug shows here."""

import gzip
from collections import OrderedDict
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from headway.workload.arrivals import Profile
from headway.workload.burstgpt import HOURS, read_minutes
from headway.workload.outline import reusable
from headway.workload.request import Request, Workload
from headway.workload.scaling import draw, find_sessions, scale, window
from headway.workload.servegen import Pool, generate, read_pool
from headway.workload.sources import Options, read_trace

pytestmark = [pytest.mark.slow, pytest.mark.shared]
Open = Callable[..., Workload]


def lines_of(shared: Path, name: str) -> list[str]:
    with gzip.open(shared / "traces" / name, "rt") as opened:
        return list(opened)


@pytest.fixture(scope="module")
def trace(shared: Path) -> Open:
    known: dict[str, Workload] = {}

    def opened(name: str, options: Options | None = None) -> Workload:
        if options is not None or name not in known:
            load = read_trace(name, lines_of(shared, name), np.random.default_rng(3), options)
            if options is not None:
                return load
            known[name] = load
        return known[name]

    return opened


def quantiles(values: Sequence[int], *shares: float) -> list[int]:
    """Interpolated, as those published are."""
    return [round(float(value)) for value in np.quantile(values, shares)]


def inputs(load: Workload, *shares: float) -> list[int]:
    return quantiles([request.prompt_tokens for request in load.requests], *shares)


def outputs(load: Workload, *shares: float) -> list[int]:
    return quantiles([request.output_tokens for request in load.requests], *shares)


def gaps_cv(load: Workload) -> float:
    gaps = np.diff([request.arrival_s for request in load.requests])
    return float(gaps.std() / gaps.mean())


def dispersion(load: Workload, step_s: float) -> float:
    """Variance of the number of arrivals per window over its mean."""
    arrivals = [request.arrival_s for request in load.requests]
    counts, _ = np.histogram(arrivals, bins=np.arange(0.0, load.span_s, step_s))
    return float(counts.var() / counts.mean())


@pytest.mark.parametrize(
    ("kind", "rows", "span", "cv", "idc", "input_q", "output_q"),
    [
        ("code", 8819, 3436, 13.2, (13, 72, 164), [1469, 5188, 7436, 7437], [13, 55, 251, 1899]),
        ("conv", 19366, 3502, 1.09, (1.4, 3.9, 16), [1020, 2734, 4142, 14050], [129, 424, 601, 1000]),
    ],
)
def test_azure(
    trace: Open,
    kind: str,
    rows: int,
    span: float,
    cv: float,
    idc: tuple[float, ...],
    input_q: list[int],
    output_q: list[int],
) -> None:
    load = trace(f"azure_llm_2023_{kind}.csv.gz")
    assert len(load.requests) == rows
    assert load.span_s == pytest.approx(span, abs=1)
    assert gaps_cv(load) == pytest.approx(cv, rel=0.01)
    assert [dispersion(load, step_s) for step_s in (1, 10, 60)] == pytest.approx(idc, rel=0.06)
    assert inputs(load, 0.5, 0.9, 0.99, 1.0) == input_q
    assert outputs(load, 0.5, 0.9, 0.99, 1.0) == output_q


def blocks(request: Request) -> list[int]:
    return [segment.key for segment in request.segments]


def lru_hits(load: Workload, capacity_blocks: int) -> float:
    """Share of blocks found in one least-recently-used cache."""
    cache: OrderedDict[int, None] = OrderedDict()
    hits = total = 0
    for request in load.requests:
        for key in blocks(request):
            total += 1
            hits += key in cache
            cache[key] = None
            cache.move_to_end(key)
            if len(cache) > capacity_blocks:
                cache.popitem(last=False)
    return hits / total


def block_hits(requests: Sequence[Request]) -> float:
    found = [key for request in requests for key in blocks(request)]
    return 1 - len(set(found)) / len(found)


def test_mooncake(trace: Open) -> None:
    load = trace("mooncake_fast25_conversation.jsonl.gz")
    assert len(load.requests) == 12_031
    assert load.span_s == pytest.approx(3537, abs=4)
    assert inputs(load, 0.5, 0.9, 0.99, 1.0) == [6909, 27367, 85400, 126195]
    assert outputs(load, 0.5, 0.9, 0.99, 1.0) == [350, 597, 1119, 2000]
    found = [key for request in load.requests for key in blocks(request)]
    assert (len(set(found)), len(found)) == (182_790, 288_500)
    assert block_hits(load.requests) == pytest.approx(0.366, abs=0.001)
    assert [lru_hits(load, size * 10**6 // 512) for size in (3, 10)] == pytest.approx([0.14, 0.29], abs=0.01)
    assert {request.segments[0].key for request in load.requests} == {0}


def test_mooncake_ticks_are_spread(trace: Open) -> None:
    load = trace("mooncake_fast25_conversation.jsonl.gz")
    arrivals = np.array([request.arrival_s for request in load.requests])
    assert np.unique(arrivals).size == arrivals.size
    assert gaps_cv(load) < 1.3  # 3.03 on the clock's grid
    assert dispersion(load, 1.0) < 2.0


def test_mooncake_sessions_as_estimated(trace: Open) -> None:
    """8,067 chains by whole prefixes; joining those that share any block makes a few less."""
    sessions = find_sessions(trace("mooncake_fast25_conversation.jsonl.gz").requests)
    assert 7000 < sessions.count <= 8067
    assert np.bincount(sessions.of).max() == 43
    assert sessions.openings == {0}


@pytest.mark.parametrize("factor", [0.4, 2.5])
def test_scaled_mooncake_keeps_its_hits(trace: Open, factor: float) -> None:
    load = trace("mooncake_fast25_conversation.jsonl.gz")
    scaled = scale(load, factor, np.random.default_rng(5))
    assert len(scaled.requests) == pytest.approx(factor * 12_031, rel=0.001)
    assert reusable(scaled.requests) == pytest.approx(reusable(load.requests), abs=0.03)
    assert inputs(scaled, 0.5, 0.9) == pytest.approx(inputs(load, 0.5, 0.9), rel=0.1)  # long sessions go as one


def test_superposed_code_is_burstier_than_chance_and_calmer_than_one_copy(trace: Open) -> None:
    """Independent copies: variance and mean both grow with their number, so dispersion stays and the gaps calm down."""
    load = trace("azure_llm_2023_code.csv.gz")
    four = scale(load, 4.0, np.random.default_rng(5))
    assert dispersion(four, 10.0) == pytest.approx(dispersion(load, 10.0), rel=0.25)
    assert 2.0 < gaps_cv(four) < gaps_cv(load)


def pool(shared: Path, name: str) -> Pool:
    files = (f"servegen_rates_{name}.csv.gz", f"servegen_tokens_{name}.jsonl.gz")
    return read_pool(*(lines_of(shared, file) for file in files))


@pytest.mark.parametrize(
    ("name", "rows", "clients", "tokens", "mean", "low", "high"),
    [
        ("m-large", 49_569, 148, 70, 182, 48, 523),
        ("m-mid", 21_726, 93, 74, 1884, 0.9, 3445),
        ("mm-image", 2_094, 35, 140, 9.5, 4.9, 13.3),
        ("deepseek-r1", 3_111, 73, 184, 16.0, 4.3, 42.5),
    ],
)
def test_servegen_rates(
    shared: Path, name: str, rows: int, clients: int, tokens: int, mean: float, low: float, high: float
) -> None:
    read = pool(shared, name)
    assert len(read.rates) == rows
    assert len({rate.client for rate in read.rates}) == clients
    assert sum(len(own) for own in read.lengths.values()) == tokens
    totals: dict[float, float] = {}
    for rate in read.rates:
        totals[rate.start_s] = totals.get(rate.start_s, 0.0) + rate.rate
    found = list(totals.values())
    assert (np.mean(found), min(found), max(found)) == pytest.approx((mean, low, high), rel=0.05)


def test_servegen_lengths(shared: Path) -> None:
    """Ten minutes of every 70 of deepseek-r1's day: about 200,000 requests."""
    read = pool(shared, "deepseek-r1")
    hourly = Pool([rate for rate in read.rates if rate.start_s % 4200 == 600], read.lengths)
    day = generate(hourly, 0.0, 86_400.0, np.random.default_rng(3))
    assert len(day.requests) == pytest.approx(16.0 * 86_400 / 7, rel=0.1)
    assert inputs(day, 0.5, 0.9, 0.99) == pytest.approx([208, 2092, 23_423], rel=0.1)
    assert outputs(day, 0.5, 0.9, 0.99, 1.0) == pytest.approx([792, 3432, 12_607, 32_768], rel=0.1)
    assert np.mean([request.prompt_tokens for request in day.requests]) == pytest.approx(1268, rel=0.1)
    assert np.mean([request.output_tokens for request in day.requests]) == pytest.approx(1527, rel=0.1)


def test_claude_code(trace: Open) -> None:
    load = trace("claude_code_weka_sample.jsonl.gz")
    assert len(load.requests) == 5000
    assert [round(q, -3) for q in inputs(load, 0.5, 0.9, 0.99)] == [205_000, 585_000, 817_000]
    assert outputs(load, 0.5, 0.9, 0.99) == [248, 1477, 6103]
    whole = trace("claude_code_weka_sample.jsonl.gz", Options(span_s=1e9))  # nothing winds around
    turns: dict[str, list[int]] = {}
    for request in whole.requests:
        turns.setdefault(request.session, []).append(request.prompt_tokens)
    assert len(turns) == 21
    assert max(map(len, turns.values())) == 1973
    growth = np.concatenate([np.diff(lengths) for lengths in turns.values()])
    before = np.concatenate([lengths[:-1] for lengths in turns.values()])
    assert np.median(growth) == pytest.approx(387, abs=2)
    assert np.mean(growth < -0.1 * before) == pytest.approx(0.0024, abs=0.0002)


def test_a_short_ring_keeps_most_of_a_sessions_prefixes(trace: Open) -> None:
    short = trace("claude_code_weka_sample.jsonl.gz", Options(length_factor=0.125))
    assert inputs(short, 0.5)[0] == pytest.approx(205_000 / 8, rel=0.01)
    assert reusable(short.requests) > 0.9


@pytest.mark.parametrize(
    ("suite", "rows", "sessions", "hits"),
    [("magagent", 746, 25, 0.84), ("miniswe", 402, 20, 0.93), ("taubench", 471, 24, 0.78)],
)
def test_lmcache_agents(trace: Open, suite: str, rows: int, sessions: int, hits: float) -> None:
    load = trace("lmcache_agent_traces.jsonl.gz", Options(tenant=suite, span_s=1e9))
    assert len(load.requests) == rows
    assert len({request.session for request in load.requests}) == sessions
    assert block_hits(load.requests) == pytest.approx(hits, abs=0.005)


def test_sharegpt_at_ten_a_second(trace: Open) -> None:
    load = trace("sharegpt_llama31_8b_300.jsonl.gz")
    assert len(load.requests) == 300
    assert load.rate_rps == pytest.approx(10.0, rel=0.05)
    assert block_hits(load.requests) == pytest.approx(0.08, abs=0.005)
    assert find_sessions(load.requests).count == pytest.approx(271, abs=5)


@pytest.mark.parametrize(
    ("name", "input_q", "output_q"),
    [
        ("lengths_sharegpt_8k", [1730, 5696, 7434], [415, 834, 998]),
        ("lengths_arxiv_summarization", [2730, 3702, 3933], [167, 372, 3271]),
    ],
)
def test_lengths(trace: Open, name: str, input_q: list[int], output_q: list[int]) -> None:
    load = trace(f"{name}.csv.gz", Options(rate=10.0))
    assert len(load.requests) == pytest.approx(36_000, rel=0.02)
    assert inputs(load, 0.5, 0.9, 0.99) == pytest.approx(input_q, rel=0.03)
    assert outputs(load, 0.5, 0.9) == pytest.approx(output_q[:2], rel=0.03)
    assert outputs(load, 0.99) == pytest.approx(output_q[2:], rel=0.15)


def test_burstgpt(shared: Path) -> None:
    week = read_minutes(lines_of(shared, "burstgpt_week1_minute_tokens.csv.gz"))
    tokens = np.array(week.weights)
    assert week == Profile(60.0, week.weights)
    assert len(tokens) == 10_080
    assert np.count_nonzero(tokens) <= 6_366
    assert (tokens.mean(), np.quantile(tokens, 0.99), tokens.max()) == pytest.approx((28, 151, 540), rel=0.02)
    assert tokens.std() / tokens.mean() == pytest.approx(1.3, abs=0.05)
    hours = [float(line.split(",")[1]) for line in lines_of(shared, "burstgpt_hour_of_day.csv.gz")[1:]]
    assert list(HOURS) == hours


def test_a_hundred_thousand_requests_are_scaled_and_cut_in_no_time(trace: Open) -> None:
    load = trace("azure_llm_2023_conv.csv.gz")
    big = scale(load, 5.2, np.random.default_rng(1))
    assert len(big.requests) > 100_000
    assert len(window(big, 3000.0, 1000.0).requests) == pytest.approx(28_756, rel=0.1)
    assert len(draw(load, 5.2, 600.0, np.random.default_rng(1)).requests) == pytest.approx(17_250, rel=0.1)
