"""The open loop against a scripted server: every end is booked, times are right, nothing waits for answers."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from headway.bench import BenchPlan, BenchResult, Progress
from headway.bench.runner import BenchError
from headway.bench.runner import run as bench_run
from headway.workload.request import Request, Segment
from tests.bench.scripted import CUT, DONE, GOOD, Script, Server, error, event, head, piece, served, whole

Run = Callable[..., Any]


def requests(count: int, every_s: float = 0.0) -> list[Request]:
    return [Request(every_s * n, (Segment(n, 10),), 3, shape="t") for n in range(count)]


async def bench(script: Script, **fields: Any) -> tuple[BenchResult, Server]:
    async with served(script) as server:
        plan = BenchPlan(**{"url": server.url, "requests": requests(1), "model": "tiny", **fields})
        return await bench_run(plan), server


@pytest.mark.parametrize(
    ("steps", "kind", "word"),
    [
        (GOOD, "ok", ""),
        (error(400, "bad"), "client_error", "400 bad"),
        (error(503, "queue_full"), "shed", "queue_full"),
        (error(503, 503), "server_error", "503 503"),
        ([head(), piece("a"), event(error={"message": "m", "code": 500})], "server_error", "in_band_500"),
        ([head(), piece("a"), event(error={"message": "m", "code": 500}), CUT], "server_error", "in_band_500"),
        ([head(), piece("a"), piece("b")], "server_error", "truncated"),
        ([head(), piece("a", "stop")], "server_error", "truncated"),
        ([head(), piece("a", "stop"), 0.02, CUT], "server_error", "truncated"),
        ([CUT], "server_error", "broken_"),
        ([b"HTTP/1.1 200 OK\r\ncontent-length: x\r\n\r\n"], "server_error", "broken_"),
        ([head(200, "text/event-stream", 5000), *GOOD[1:5]], "server_error", "truncated"),
    ],
)
def test_each_end_has_its_account(run: Run, steps: list, kind: str, word: str) -> None:
    result, _ = run(bench(lambda _n, _r: steps))
    (record,) = result.records
    assert record.kind == kind
    assert record.error.startswith(word)
    assert result.accounts.balanced
    assert result.accounts.started == 1


def test_a_good_answer_is_measured(run: Run) -> None:
    pauses = [head(), 0.1, piece("a"), 0.05, piece("b"), piece("c", "stop"), GOOD[-2], DONE]
    result, server = run(bench(lambda _n, _r: pauses, api_key="k-1"))
    (record,) = result.records
    assert record.ttft_s == pytest.approx(0.1, abs=0.04)
    assert record.tpot_s == pytest.approx(0.025, abs=0.02)
    assert (record.prompt_tokens, record.output_tokens, record.cached_tokens) == (40, 3, 16)
    assert result.summary.goodput_share == 1.0
    method, path, headers, _ = server.seen[0]
    assert (method, path) == ("POST", "/v1/chat/completions")
    assert headers["authorization"] == "Bearer k-1"


@pytest.mark.slow
def test_late_answers_do_not_delay_what_is_due(run: Run) -> None:
    slow = [head(), 0.4, *GOOD[1:]]
    result, _ = run(bench(lambda _n, _r: slow, requests=requests(10, 0.02)))
    sent = [record.sent_s for record in sorted(result.records, key=lambda record: record.due_s)]
    assert all(abs(at - 0.02 * n) < 0.05 for n, at in enumerate(sent))
    assert result.accounts.ok == 10
    assert result.client.late_p99_s < 0.05
    assert result.summary.capped == 0


@pytest.mark.slow
def test_a_concurrency_cap_is_kept_counted_and_charged(run: Run) -> None:
    peak = 0

    def script(_number: int, _request: dict) -> list:
        return [head(), 0.1, *GOOD[1:]]

    result, _ = run(bench(script, requests=requests(4), max_concurrency=2))
    assert result.summary.capped == 2
    kept_back = [record for record in result.records if record.capped]
    assert all(record.lag_s > 0.05 for record in kept_back)
    assert all(record.e2e_s > 0.15 for record in kept_back)
    assert result.client.late_p99_s < 0.05
    spans = sorted((r.sent_s, r.end_s) for r in result.records)
    for begin, _end in spans:
        running = sum(s <= begin < e for s, e in spans)
        peak = max(peak, running)
    assert peak <= 2


@pytest.mark.slow
def test_patience_ends_the_run_and_closes_what_is_open(run: Run) -> None:
    result, server = run(bench(lambda _n, _r: [head(), piece("a"), 30.0], requests=requests(3), patience_s=0.2))
    assert result.accounts.client_closed == 3
    assert {record.error for record in result.records} == {"stopped"}
    assert result.accounts.balanced
    assert server.closed_early == 3


def test_one_request_may_be_given_up(run: Run) -> None:
    result, _ = run(bench(lambda _n, _r: [head(), 30.0], request_timeout_s=0.1))
    assert result.records[0].error == "timeout"
    assert result.accounts.client_closed == 1


def test_stopping_early_books_what_was_started(run: Run) -> None:
    async def scenario() -> BenchResult:
        stop = asyncio.Event()
        async with served(lambda _n, _r: [head(), 30.0]) as server:
            plan = BenchPlan(
                url=server.url, requests=requests(50, 0.01), model="tiny", max_concurrency=2, patience_s=30.0,
                duration_s=60.0, warmup_s=0.1,
            )  # fmt: skip
            asyncio.get_running_loop().call_later(0.3, stop.set)
            return await bench_run(plan, stop=stop)

    result = run(scenario())
    assert result.stopped
    assert 0 < result.accounts.started < 50
    assert result.accounts.client_closed == result.accounts.started
    assert {record.error for record in result.records} == {"stopped", "never_sent"}
    assert 0.0 < result.summary.window_s < result.client.wall_s - 0.1
    assert result.summary.request_rps == result.summary.accounts.started / result.summary.window_s


def test_warm_up_is_sent_but_not_summed(run: Run) -> None:
    result, server = run(bench(lambda _n, _r: GOOD, requests=requests(4, 0.02), warmup_s=0.03))
    assert result.accounts.ok == 4
    assert result.summary.accounts.ok == 2
    assert len(server.seen) == 4


@pytest.mark.slow
def test_time_scale_sends_faster_and_multiplies_times(run: Run) -> None:
    result, _ = run(
        bench(lambda _n, _r: [head(), 0.1, *GOOD[1:]], requests=requests(5, 1.0), time_scale=10.0, patience_s=60.0)
    )
    assert result.client.wall_s < 2.0
    assert result.time_scale == 10.0
    assert all(0.9 < (record.ttft_s or 0) < 1.6 for record in result.records)


def test_the_model_is_asked_for(run: Run) -> None:
    result, server = run(bench(lambda _n, _r: GOOD, model=""))
    assert result.model == "tiny"
    assert server.seen[0][:2] == ("GET", "/v1/models")
    assert server.seen[1][3]["model"] == "tiny"


def test_nobody_there(run: Run) -> None:
    async def gone(model: str) -> BenchResult:
        async with served(lambda _n, _r: GOOD) as server:
            url = server.url
        return await bench_run(BenchPlan(url=url, requests=requests(2), model=model))

    with pytest.raises(BenchError, match="does not answer"):
        run(gone(""))
    result = run(gone("tiny"))
    assert result.accounts.server_error == 2
    assert result.summary.errors == {"server_error:connect_failed": 2}


def test_without_streaming(run: Run) -> None:
    body = {"choices": [{"message": {"content": "abc"}, "finish_reason": "stop"}], "usage": {"completion_tokens": 3}}
    result, _ = run(bench(lambda _n, _r: whole(200, body), stream=False))
    assert result.records[0].ttft_s is None
    assert result.summary.accounts.ok == 1
    assert result.summary.goodput_share == 1.0


def test_nothing_to_send(run: Run) -> None:
    result, _ = run(bench(lambda _n, _r: GOOD, requests=[]))
    assert result.accounts.started == 0


def test_progress_is_told(run: Run) -> None:
    async def scenario() -> list[Progress]:
        told: list[Progress] = []
        async with served(lambda _n, _r: GOOD) as server:
            await bench_run(BenchPlan(url=server.url, requests=requests(3), model="tiny"), watch=told.append)
        return told

    told = run(scenario())
    assert told[0].started == 0
    assert (told[-1].total, told[-1].finished, told[-1].in_flight) == (3, 3, 0)
    assert told[-1].accounts.balanced
