"""Streams that arrive oddly cut, oddly spelt or slowly: family B of the cases, and B7.

What must hold: the client gets the engine's bytes, at once and unchanged, and what was counted does not depend on how
they were cut.
"""

import asyncio
import time

import pytest

from headway.telemetry import Access
from tests.cases.house import SOAK, House, case, gather_bounded, official_stream, patience, rounds
from tests.harness import scripts
from tests.harness.client import Answer, chat, request
from tests.harness.engine import Connection, Script, Seen

USAGE = {"prompt_tokens": 11, "completion_tokens": 5, "total_tokens": 16}
ASKS_USAGE = chat(stream=True, stream_options={"include_usage": True})
TOKENS = [scripts.token(f"t{i}", "stop" if i == 4 else None) for i in range(5)]
REPORT = scripts.sse({"id": "c", "choices": [], "usage": USAGE})
PLAIN = b"".join([*TOKENS, REPORT, scripts.DONE])
CALL = {"index": 0, "id": "call_1", "function": {"name": "f", "arguments": '{"a": "data: [DONE]"}'}}
TOOLS = b"".join(
    [
        scripts.sse({"choices": [{"index": 0, "delta": {"role": "assistant", "tool_calls": [CALL]}}]}),
        *[scripts.sse({"choices": [{"index": 0, "delta": {"tool_calls": [{"index": 0}]}}]})] * 3,
        scripts.sse({"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]}),
        REPORT,
        scripts.DONE,
    ]
)
FAILING = b"".join([*TOKENS[:3], scripts.sse({"error": {"message": "out of memory", "code": 500}}), scripts.DONE])
CUMULATIVE = [scripts.token(f"t{i}", usage={"prompt_tokens": 7, "completion_tokens": i + 1}) for i in range(10)]
VARIANTS = {"usage": PLAIN, "tools": TOOLS, "error": FAILING}
LINE_ENDS = {"lf": b"\n", "crlf": b"\r\n", "cr": b"\r"}


def in_two(head: bytes, body: bytes, at: int, chunked: bool) -> Script:
    """A stream whose body is cut at one place: into two chunks, or two segments of one response."""
    first, second = body[:at], body[at:]
    if chunked:
        pieces = [scripts.chunk(piece) for piece in (first, second) if piece]
        return scripts.raw(head + pieces[0], *pieces[1:], scripts.LAST_CHUNK, gap_s=0.002)
    return scripts.raw(head + first, second, gap_s=0.002)


def with_length(body: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: %d\r\n\r\n" % len(body)


async def _at_every_split(house: House, body: bytes, step: int, chunked: bool) -> list[tuple[Answer, Access]]:
    """Relay the body cut at every `step`-th offset; each answer with what was booked about it."""
    head = scripts.STREAM_HEAD if chunked else with_length(body)
    by_id = {f"split-{at}": at for at in range(1, len(body), step)}

    async def script(connection: Connection, seen: Seen) -> None:
        await in_two(head, body, int(seen.request.get("x-split")), chunked)(connection, seen)

    house.engine.script = script
    house.booked.clear()
    asked = [house.ask(ASKS_USAGE, headers={"X-Request-Id": name, "X-Split": str(at)}) for name, at in by_id.items()]
    answers = await gather_bounded(40, asked)
    booked = {access.client_request_id: access for access in house.booked}
    return [(answer, booked[name]) for name, answer in zip(by_id, answers, strict=True)]


@pytest.mark.slow
@pytest.mark.parametrize("chunked", [True, False], ids=["chunks", "segments"])
@pytest.mark.parametrize("end", LINE_ENDS)
@pytest.mark.parametrize("variant", VARIANTS)
@case(scripts.stall())
async def test_a_split_anywhere_changes_nothing(house: House, variant: str, end: str, chunked: bool) -> None:
    """013, 014, B7: every split x LF, CRLF, CR x usage, tools, error: bytes and usage are equal each time."""
    body = VARIANTS[variant].replace(b"\n", LINE_ENDS[end])
    for answer, access in await _at_every_split(house, body, 1 if SOAK else 5, chunked):
        assert answer.body == body
        assert not answer.error
        if variant == "error":
            assert (access.account, access.code, access.output_tokens) == ("server_error", "in_band_error", 3)
        else:
            assert (access.account, access.prompt_tokens, access.output_tokens) == ("ok", 11, 5)


@pytest.mark.parametrize("end", LINE_ENDS)
@pytest.mark.parametrize("cut", ["whole", "in_the_line_end", "before_the_line_end"])
@case(scripts.stall())
async def test_line_ends_split_and_an_unterminated_tail(house: House, end: str, cut: str) -> None:
    """014: the last event has no blank line behind it; it reaches the client, and its usage is counted once."""
    line_end = LINE_ENDS[end]
    body = b"".join([*TOKENS, REPORT]).replace(b"\n", line_end)[: -len(line_end)]
    at = {"whole": len(body), "in_the_line_end": len(TOKENS[0]) - 1, "before_the_line_end": len(TOKENS[0]) - 2}[cut]
    house.engine.script = in_two(scripts.STREAM_HEAD, body, at, chunked=True)
    answer = await house.ask(ASKS_USAGE)
    assert answer.body == body
    await house.at_rest(ok=1)
    assert house.count("headway_output_tokens_total") == 5
    assert house.count("headway_prompt_tokens_total") == 11


@case(scripts.stream(pieces=[*CUMULATIVE, scripts.DONE]))
async def test_usage_on_every_chunk_is_no_end_and_no_sum(house: House) -> None:
    """016: ten chunks with cumulative usage: the client gets ten, and the last report is what counts."""
    answer = await house.ask(chat(stream=True))
    assert len(answer.events) == 11
    assert answer.done
    await house.at_rest(ok=1)
    assert house.count("headway_output_tokens_total") == 10
    assert house.count("headway_prompt_tokens_total") == 7


@case(scripts.stall())
async def test_a_stream_with_a_length_is_relayed_whole_and_as_it_comes(house: House) -> None:
    """017: an event stream with a correct Content-Length, dribbled: it arrives piece by piece, the connection stays."""
    pieces = [*TOKENS, REPORT, scripts.DONE]
    house.engine.script = scripts.raw(with_length(PLAIN), *pieces, gap_s=0.05)
    async with house.client() as client:
        answer = await client.ask(body=ASKS_USAGE)
        assert answer.body == PLAIN
        assert answer.message.framing == "length"
        assert answer.events[-1].at - answer.events[0].at > 0.2
        house.engine.script = scripts.answer()
        assert (await client.ask(body=chat())).status == 200
    assert [seen.connection for seen in house.engine.log.inference] == [1, 1]


@case(scripts.stall())
async def test_a_stream_with_a_length_is_reframed_when_something_is_taken_out(house: House) -> None:
    """017: the same for a client that did not ask for usage: the length no longer holds, and is not sent."""
    house.engine.script = scripts.raw(with_length(PLAIN), PLAIN)
    async with house.client() as client:
        answer = await client.ask(body=chat(stream=True))
        assert answer.body == PLAIN.replace(REPORT, b"")
        assert answer.message.framing == "chunked"
        house.engine.script = scripts.answer()
        assert (await client.ask(body=chat())).status == 200


def stamped(count: int, gap_s: float, event_stream: bool) -> Script:
    """Events that carry the time at which they were written."""

    async def script(connection: Connection, _: Seen) -> None:
        media = b"text/event-stream" if event_stream else b"application/octet-stream"
        await connection.send(scripts.STREAM_HEAD.replace(b"text/event-stream; charset=utf-8", media))
        for _ in range(count):
            await asyncio.sleep(gap_s)
            event = scripts.token("a", written=time.perf_counter()) if event_stream else b"%.6f\n" % time.perf_counter()
            await connection.send(scripts.chunk(event))
        await connection.send(scripts.chunk(scripts.DONE) + scripts.LAST_CHUNK)

    return script


@pytest.mark.parametrize(
    ("path", "headers"),
    [("/v1/chat/completions", {}), ("/v1/chat/completions", {"X-Session-Id": "s"}), ("/v1/un/listed", {})],
    ids=["plain", "session", "pass_through"],
)
@case(scripts.stall())
async def test_each_event_is_passed_on_at_once(house: House, path: str, headers: dict[str, str]) -> None:
    """019: whatever the route, an event reaches the client within 20 ms of being written.

    Soaking: all but the worst. Else half of them, for others use the machine.
    """
    house.engine.script = stamped(rounds(90, 20), 0.1 if SOAK else 0.02, event_stream=True)
    answer = await house.ask(chat(stream=True), path, headers=headers)
    lags = sorted(event.at - event.json["written"] for event in answer.events[:-1])
    assert len(lags) == rounds(90, 20)
    assert lags[-2 if SOAK else len(lags) // 2] < 0.02


@case(scripts.stall())
async def test_bytes_that_are_no_events_are_passed_on_at_once(house: House) -> None:
    """019 for a body of which nothing is known."""
    house.engine.script = stamped(20, 0.02, event_stream=False)
    async with house.client() as client:
        answer = await client.ask("/v1/audio/speech", {"model": "m", "input": "x", "voice": "y"})
        arrived = [at for at, _ in client.pieces]
    written = [float(line) for line in answer.body.split(b"\n")[:20]]
    lags = sorted(min(at - wrote for at in arrived if at >= wrote) for wrote in written)
    assert lags[-2 if SOAK else len(lags) // 2] < 0.02


TINY = b'data: {"choices":[],"x":123}\n\n'
SLOW = [(0.0, scripts.STREAM_HEAD), (0.6, scripts.chunk(TINY)),
        (1.2, scripts.chunk(scripts.token("")) + scripts.LAST_CHUNK)]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("version", ["1.1", "1.0"])
@pytest.mark.parametrize("streaming", [True, False], ids=["asked_to_stream", "not_asked"])
@case(scripts.timed(SLOW))
async def test_headers_and_the_smallest_piece_are_not_held_back(house: House, version: str, streaming: bool) -> None:
    """020: headers at once, then an event of 30 bytes at once, for gzip-accepting and HTTP/1.0 clients too."""
    async with house.client() as client:
        began = time.perf_counter()
        await client.send(request(body=chat(streaming), version=version, headers={"Accept-Encoding": "gzip"}))
        answer = await client.answer()
    arrived = [at - began for at, _ in client.pieces]
    assert answer.head_at - began < 0.5
    assert any(0.55 < at < 1.1 for at in arrived)
    assert answer.body == TINY + scripts.token("")
    assert answer.message.framing == ("chunked" if version == "1.1" else "close")


LATE_EVENTS = b"".join(map(scripts.chunk, scripts.events(3))) + scripts.LAST_CHUNK
WITH_ID = scripts.STREAM_HEAD + scripts.chunk(b"id: 1\n" + scripts.token("a"))


@pytest.mark.slow
@case(scripts.timed([(0.0, WITH_ID), (0.8, LATE_EVENTS)]))
async def test_silence_is_not_filled_with_events(house: House) -> None:
    """022: silence after an id line: nothing is put in, and the official client sees every chunk."""
    texts = await official_stream(house)
    assert texts == ["a", "t0", "t1", "t2"]
    await house.at_rest(ok=1)


BEATS = [(0.15 * beat, scripts.chunk(b": hb\n")) for beat in range(1, 9)]


@pytest.mark.slow
@case(scripts.timed([(0.0, scripts.STREAM_HEAD), *BEATS, (1.35, LATE_EVENTS)]), config=patience(idle_s=0.4))
async def test_heartbeats_pass_at_once_and_are_no_first_token(house: House) -> None:
    """023: comments before the first event: forwarded at once, they keep the stream alive, TTFT is the data's."""
    async with house.client() as client:
        began = time.perf_counter()
        answer = await client.ask(body=chat(stream=True))
        arrived = [at - began for at, _ in client.pieces]
    assert answer.done
    assert answer.body.startswith(b": hb\n" * 8)
    assert sum(at < 1.3 for at in arrived) >= 7
    [access] = house.booked
    assert access.ttft_s is not None
    assert 1.3 < access.ttft_s < 3.0


REPORTED = b'{"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":4}}'
SPELLINGS = {
    "no_space": (b"data:%b\n\ndata:[DONE]\n\n" % REPORTED, 4),
    "two_spaces": (b"data:  %b\n\ndata: [DONE]\n\n" % REPORTED, 4),
    "two_lines": (b"data: %b\n\ndata: [DONE]\n\n" % REPORTED.replace(b",", b",\ndata: ", 1), 4),
    "other_case": (b"DATA: %b\n\ndata: [DONE]\n\n" % REPORTED, 1),
    "other_field": (b"usage: %b\n\ndata: [DONE]\n\n" % REPORTED, 1),
}


@pytest.mark.parametrize("spelling", SPELLINGS)
@case(scripts.stall())
async def test_fields_are_read_as_the_rules_say(house: House, spelling: str) -> None:
    """025: usage and [DONE] are found where the rules of event streams say, and only there; bytes are untouched."""
    tail, tokens = SPELLINGS[spelling]
    body = scripts.token("a", "stop") + tail
    house.engine.script = scripts.stream(pieces=[body])
    answer = await house.ask(ASKS_USAGE)
    assert answer.body == body
    assert house.booked[0].output_tokens == tokens


@pytest.mark.parametrize("step", [1, 7, 1000])
@case(scripts.stall())
async def test_done_inside_content_is_no_end(house: House, step: int) -> None:
    """026: the text "data: [DONE]" within a JSON string, cut anywhere; everything after it arrives."""
    body = b"".join([scripts.token("data: [DONE]"), scripts.token("\ndata: [DONE]\n\n"), *TOKENS, scripts.DONE])
    pieces = [scripts.chunk(body[at : at + step]) for at in range(0, len(body), step)]
    house.engine.script = scripts.raw(scripts.STREAM_HEAD, *pieces, scripts.LAST_CHUNK)
    answer = await house.ask(chat(stream=True))
    assert answer.body == body
    assert (house.booked[0].account, house.booked[0].output_tokens) == ("ok", 7)
