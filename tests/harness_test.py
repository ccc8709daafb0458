"""The harness itself: a raw client against a scripted engine, without a gateway between them."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.harness import accounts, chaos, scripts
from tests.harness.client import Answer, RawClient, chat, request
from tests.harness.engine import Script, ScriptedEngine
from tests.harness.http1 import Malformed, Reader

Run = Callable[[Awaitable[Any]], Any]


async def ask(script: Script, body: object = None, **options: Any) -> tuple[Answer, ScriptedEngine]:
    async with ScriptedEngine(script, scripts.vllm_paths()) as engine:
        async with RawClient(engine.port) as client:
            answer = await client.ask(body=body or chat(), **options)
        await engine.wait_for(lambda log: log.open == 0)
    return answer, engine


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\n\n",
        b"GET /\r\n\r\n",
        b"GET / HTTP/1.1\r\nA : b\r\n\r\n",
        b"GET / HTTP/1.1\r\n folded\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\nx",
        b"POST / HTTP/1.1\r\nContent-Length: +1\r\n\r\nx",
        b"POST / HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST / HTTP/1.1\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
        b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nxx\r\n",
        b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0x1\r\n",
    ],
)
def test_the_reader_takes_nothing_doubtful(data: bytes) -> None:
    with pytest.raises(Malformed):
        Reader().feed(data)


def test_the_reader_keeps_every_byte_at_every_split() -> None:
    one = b"POST /a?b HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\nabc\r\n0\r\nT: 1\r\n\r\n"
    two = b"PUT /c HTTP/1.1\r\nContent-Length: 2\r\n\r\nhi"
    for at in range(len(one + two) + 1):
        reader = Reader()
        messages = reader.feed((one + two)[:at]) + reader.feed((one + two)[at:])
        assert [bytes(message.raw) for message in messages] == [one, two]
        assert [bytes(message.body) for message in messages] == [b"abc", b"hi"]
        assert messages[0].trailers == [("t", "1")]
        assert (messages[0].path, messages[0].framing, messages[1].framing) == ("/a", "chunked", "length")
        assert reader.idle


def test_responses_without_bodies_and_with_interim_ones() -> None:
    reader = Reader(response=True)
    reader.methods += ["HEAD", "GET", "GET"]
    data = b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nHTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n"
    assert [message.status for message in reader.feed(data)] == [200, 100, 204]
    assert reader.feed(b"HTTP/1.1 200 OK\r\n\r\ntill") == []
    assert bytes(reader.end()[0].body) == b"till"


def test_an_answer_and_what_the_engine_saw(run: Run) -> None:
    answer, engine = run(ask(scripts.answer(headers=["x-a: 1"]), headers={"X-Request-Id": "r1"}))
    assert (answer.status, answer.json, answer.error) == (200, scripts.CHAT_ANSWER, "")
    assert answer.message.get("x-a") == "1"
    [seen] = engine.log.inference
    assert bytes(seen.request.raw) == request(body=chat(), headers={"X-Request-Id": "r1"})
    assert engine.log.ids == {"r1": 1}
    assert seen.wrote == len(answer.message.raw)
    assert seen.gone_at is not None


def test_a_stream_is_read_event_by_event(run: Run) -> None:
    answer, _ = run(ask(scripts.stream(4, gap_s=0.01)))
    assert [event.json["choices"][0]["delta"]["content"] for event in answer.events[:-1]] == ["t0", "t1", "t2", "t3"]
    assert answer.done
    assert answer.failure is None
    assert answer.events[3].at - answer.events[0].at > 0.02


def test_in_band_errors_are_seen(run: Run) -> None:
    answer, _ = run(ask(scripts.stream(pieces=[scripts.token("a"), scripts.sse({"error": {"code": 502}})])))
    assert answer.failure == {"code": 502}
    assert not answer.done


def test_half_of_an_event_is_no_event(run: Run) -> None:
    answer, _ = run(ask(scripts.stream(pieces=[scripts.token("a")[:-1]])))
    assert answer.events == []


@pytest.mark.parametrize("how", ["fin", "rst"])
@pytest.mark.parametrize("whole", [scripts.response(b"x" * 50), scripts.STREAM_HEAD + scripts.chunk(b"abc")])
def test_every_cut_is_an_error_and_never_a_clean_end(run: Run, how: str, whole: bytes) -> None:
    async def every_cut() -> list[str]:
        async with ScriptedEngine(scripts.stall()) as engine:
            errors = []
            for at in range(0, len(whole), 7):
                engine.then(scripts.cut(whole[:at], how))
                async with RawClient(engine.port) as client:
                    errors.append((await client.ask(body=chat())).error)
            return errors

    assert all(run(every_cut()))


@pytest.mark.parametrize(("leave", "by_rst"), [("fin", False), ("rst", True)])
def test_the_engine_knows_how_the_peer_left(run: Run, leave: str, by_rst: bool) -> None:
    async def left() -> ScriptedEngine:
        async with ScriptedEngine(scripts.stall()) as engine:
            async with RawClient(engine.port) as client:
                await client.send(chaos.REQUEST)
                await engine.wait_for(lambda log: log.inference)
                await chaos.LEAVES[leave](client)
                await engine.wait_for(lambda log: log.open == 0)
            return engine

    [seen] = run(left()).log.inference
    assert (seen.rst_at is not None) is by_rst
    assert seen.gone_at is not None
    assert seen.gone_at - seen.at < 1.0


def test_a_half_closed_client_still_gets_its_answer(run: Run) -> None:
    async def half() -> Answer:
        async with ScriptedEngine(scripts.answer(after_s=0)) as engine, RawClient(engine.port) as client:
            await client.send(request(body=chat()))
            client.half_close()
            return await client.answer()

    assert run(half()).status == 200


def test_pipelined_requests_are_answered_in_order_and_queued_scripts_go_first(run: Run) -> None:
    async def pipelined() -> tuple[list[int], ScriptedEngine]:
        async with ScriptedEngine(scripts.answer()) as engine, RawClient(engine.port) as client:
            engine.then(scripts.error(500), scripts.error(429, headers=["retry-after: 1"]))
            await client.send(request(body=chat()) * 3)
            return [(await client.answer()).status for _ in range(3)], engine

    statuses, engine = run(pipelined())
    assert statuses == [500, 429, 200]
    assert [seen.number for seen in engine.log.inference] == [1, 2, 3]
    assert engine.log.peak == 1


def test_peak_counts_what_runs_at_once(run: Run) -> None:
    async def at_once() -> ScriptedEngine:
        async with ScriptedEngine(scripts.answer(after_s=0.05)) as engine:
            clients = [RawClient(engine.port) for _ in range(5)]
            await asyncio.gather(*(client.__aenter__() for client in clients))
            await asyncio.gather(*(client.ask(body=chat()) for client in clients))
            for client in clients:
                await client.__aexit__()
            return engine

    assert run(at_once()).log.peak == 5


def test_an_engine_that_stops_refuses_and_comes_back_on_its_port(run: Run) -> None:
    async def again() -> tuple[bool, int]:
        async with ScriptedEngine(scripts.answer()) as engine:
            await engine.stop()
            refused = False
            try:
                async with RawClient(engine.port):
                    pass
            except ConnectionRefusedError:
                refused = True
            await engine.start()
            async with RawClient(engine.port) as client:
                return refused, (await client.ask(body=chat())).status

    assert run(again()) == (True, 200)


def test_a_malformed_request_is_logged_and_cut(run: Run) -> None:
    async def odd() -> ScriptedEngine:
        async with ScriptedEngine(scripts.answer()) as engine, RawClient(engine.port) as client:
            await client.send(b"GET / HTTP/1.1\nHost: x\n\n")
            assert await client.closed()
            return engine

    assert len(run(odd()).log.malformed) == 1


def test_side_doors_answer_like_vllm(run: Run) -> None:
    async def doors() -> list[Answer]:
        paths = scripts.vllm_paths("m", running=2, kv_usage=0.5)
        async with ScriptedEngine(scripts.stall(), paths) as engine, RawClient(engine.port) as client:
            return [await client.ask(path) for path in ("/health", "/v1/models", "/metrics", "/version")]

    health, models, metrics, version = run(doors())
    assert health.status == 200
    assert models.json["data"][0]["id"] == "m"
    assert b'vllm:num_requests_running{engine="0",model_name="m"} 2\n' in metrics.body
    assert version.json == {"version": "0.32.0"}


PAGE = b"""headway_requests_started_total 3
headway_requests_total{path="/v1/chat/completions",model="m",status="200",account="ok"} 2
headway_requests_total{path="unmatched",model="other",status="404",account="client_error"} 1
headway_replica_in_flight{replica="a"} 0
headway_in_flight_attempts 0
"""


def test_books_in_order() -> None:
    accounts.assert_balanced(PAGE, started=3, ok=2, client_error=1, shed=0)
    with pytest.raises(AssertionError):
        accounts.assert_balanced(PAGE, ok=3)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b"started_total 3", b"started_total 4"),
        (b'account="ok"} 2', b'account="ok"} 3'),
        (b'replica="a"} 0', b'replica="a"} 1'),
        (b"attempts 0", b"attempts -1"),
    ],
)
def test_books_out_of_order(before: bytes, after: bytes) -> None:
    assert accounts.imbalance(PAGE.replace(before, after))


def test_waiting_for_the_books(run: Run) -> None:
    pages = [PAGE.replace(b"started_total 3", b"started_total 4"), PAGE]

    async def fetch() -> bytes:
        return pages.pop(0)

    run(accounts.balanced_within(fetch, ok=2))
    assert pages == []


def test_the_chaos_tables_cover_all_phases_and_ways() -> None:
    everything = [case for needs in ("", "hold", "blackhole", "second") for case in chaos.cases(needs)]
    assert len(everything) == len(chaos.PHASES) * 3 == 30
    assert len({chaos.case_id(phase) + leave for phase, leave in everything}) == 30
    assert list(chaos.cuts(b"ab")) == [(0, "fin"), (0, "rst"), (1, "fin"), (1, "rst")]


@pytest.mark.parametrize(("phase", "leave"), chaos.cases(), ids=chaos.case_id)
def test_each_phase_can_be_reached_and_left(run: Run, phase: chaos.Phase, leave: str) -> None:
    async def once() -> None:
        async with ScriptedEngine(phase.script()) as engine, RawClient(engine.port) as client:
            await client.send(phase.sends)
            await phase.reached(client, engine)
            await chaos.LEAVES[leave](client)
            if leave != "half_close":
                await engine.wait_for(lambda log: log.open == 0)

    run(once())
