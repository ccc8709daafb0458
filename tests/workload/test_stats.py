"""Statistics against cases computed by hand."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.workload.stats import Record, Slo, Spread, met, percentile, spread, summarize

SLO = Slo()


def record(**fields: object) -> Record:
    base: dict[str, object] = {"due_s": 10.0, "sent_s": 10.0, "end_s": 12.0, "kind": "ok", "status": 200}
    return Record(**{**base, **fields})  # type: ignore[arg-type]


@pytest.mark.parametrize(("q", "rank"), [(0.5, 5), (0.9, 9), (0.91, 10), (0.99, 10), (0.1, 1), (0.01, 1), (1.0, 10)])
def test_percentile_is_the_nearest_rank(q: float, rank: int) -> None:
    assert percentile([1, 2, 3, 4, 5, 6, 7, 8, 9, 10], q) == rank


@given(st.lists(st.floats(0, 1e6), min_size=1), st.floats(0.01, 1.0))
def test_a_percentile_happened_and_covers_its_share(values: list[float], q: float) -> None:
    found = percentile(sorted(values), q)
    assert found in values
    assert sum(value <= found for value in values) >= q * len(values) - 1e-6
    assert sum(value < found for value in values) < q * len(values) + 1e-6


def test_spread_of_nothing_has_no_figures() -> None:
    assert spread([]) == Spread()


def test_spread() -> None:
    assert spread([4.0, 1.0, 3.0, 2.0]) == Spread(count=4, mean=2.5, p50=2.0, p90=4.0, p95=4.0, p99=4.0, max=4.0)


def test_times_of_a_record() -> None:
    one = record(sent_s=10.25, piece_times=(10.5, 10.75, 11.5), output_tokens=5, end_s=11.75)
    assert one.lag_s == 0.25
    assert one.ttft_s == 0.5
    assert one.tpot_s == 0.25  # 1 s over 4 further tokens
    assert one.e2e_s == 1.75


def test_what_cannot_be_seen_is_none() -> None:
    assert record().ttft_s is None
    assert record(piece_times=(11.0,), output_tokens=1).tpot_s is None
    whole = record(piece_times=(11.0, 11.5), output_tokens=9, stream=False)
    assert (whole.ttft_s, whole.tpot_s) == (None, None)


@pytest.mark.parametrize(
    ("fields", "good"),
    [
        ({"piece_times": (11.0, 11.5), "output_tokens": 11}, True),  # TTFT 1.0 and TPOT 0.05: both exactly met
        ({"piece_times": (11.001, 11.5), "output_tokens": 11}, False),
        ({"piece_times": (11.001, 11.5), "output_tokens": 11, "prompt_tokens": 8}, True),  # 8 tokens allow 2 ms more
        ({"piece_times": (11.0, 11.51), "output_tokens": 11}, False),
        ({"piece_times": (10.9,), "output_tokens": 1}, True),
        ({"piece_times": (10.9,), "output_tokens": 1, "kind": "server_error"}, False),
        ({"kind": "shed", "status": 503, "end_s": 10.01}, False),
        ({"stream": False, "output_tokens": 21, "end_s": 12.0}, True),  # 1 s and 20 times 50 ms
        ({"stream": False, "output_tokens": 20, "end_s": 12.0}, False),
        ({"end_s": 10.5, "output_tokens": 0}, True),  # an empty answer is judged by its end
    ],
)
def test_goodput_of_one(fields: dict[str, object], good: bool) -> None:
    assert met(record(**fields), SLO) is good


def test_summary_counts_misses_in_goodput() -> None:
    records = [
        record(piece_times=(10.5, 10.6, 10.8), output_tokens=11, end_s=10.9, prompt_tokens=100, cached_tokens=64),
        record(piece_times=(12.0, 12.1), output_tokens=11, end_s=12.2),
        record(kind="shed", status=503, error="queue_full", end_s=10.1),
        record(kind="server_error", error="truncated", piece_times=(10.2,), output_tokens=1),
    ]
    summary = summarize(records, started=4, window_s=2.0, slo=SLO)
    assert summary.accounts.balanced
    assert (summary.accounts.ok, summary.accounts.shed, summary.accounts.server_error) == (2, 1, 1)
    assert summary.goodput_rps == 0.5
    assert summary.goodput_share == 0.25
    assert summary.request_rps == 2.0
    assert summary.errors == {"server_error:truncated": 1, "shed:queue_full": 1}
    assert summary.ttft.p50 == 0.5
    assert summary.ttft.p99 == 2.0
    assert summary.itl.count == 3
    assert summary.itl.max == pytest.approx(0.2)
    assert summary.tpot.p50 == pytest.approx(0.01)
    assert (summary.prompt_tokens, summary.cached_tokens, summary.output_tokens) == (100, 64, 23)


def test_summary_of_nothing() -> None:
    summary = summarize([], started=0, window_s=0.0, slo=SLO)
    assert summary.goodput_rps == 0.0
    assert summary.ttft.p99 is None


def test_objectives_are_printed() -> None:
    assert str(SLO) == "TTFT <= 1 s + 0.25 ms per prompt token, TPOT <= 50 ms"
