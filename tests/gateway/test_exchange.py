"""One request through decisions, attempts, faults and leaving clients, over real sockets with a scripted brain."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from structlog.testing import capture_logs

from headway.core.commands import Abort, Command, Dispatch, Hold, Reject, Relay
from headway.core.events import AttemptFinished, Event, FirstToken, Progress, RequestArrived, RequestCancelled
from headway.core.ids import AttemptId, ReplicaId, RequestId, attempt_id
from headway.core.outcome import OutcomeKind
from headway.gateway.config import GatewayConfig, Limits, Timeouts, UpstreamAuth
from tests.gateway.fakes import (
    CHAT,
    CHAT_STREAM,
    DONE,
    JSON_ANSWER,
    LAST,
    STREAM_HEAD,
    Connection,
    FakeBrain,
    Rig,
    always,
    answer,
    chunk,
    event,
    post,
    rig,
)

Run = Callable[[Any], Any]
Script = Callable[[Connection], Any]


def sends(*pieces: bytes, then: str = "", gap_s: float = 0.0) -> Script:
    """A script that writes pieces, and then keeps the connection, closes it, or resets it."""

    async def script(connection: Connection) -> None:
        for piece in pieces:
            await connection.send(piece)
            await asyncio.sleep(gap_s)
        if then == "reset":
            connection.reset()
        elif then == "close":
            connection.writer.close()
        elif then == "hang":
            await connection.gone(30)

    return script


def status(response: bytes) -> int:
    return int(response.split(b" ", 2)[1])


def kinds(r: Rig) -> list[OutcomeKind]:
    return [outcome.kind for outcome in r.brain.outcomes]


def test_a_stream_passes_byte_for_byte_and_is_counted(run: Run) -> None:
    usage = b'data: {"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":9}}\n\n'
    pieces = [event("a"), event("b"), event("", "length"), usage, DONE]
    script = sends(STREAM_HEAD, *map(chunk, pieces), LAST, gap_s=0.03)

    async def main() -> None:
        async with rig(script, config=GatewayConfig(port=0, inject_usage="never")) as r:
            response = await r.ask(post(CHAT_STREAM))
            assert response.endswith(b"".join(map(chunk, pieces)) + LAST)
            (outcome,) = r.brain.outcomes
            assert (outcome.kind, outcome.committed, outcome.sent) == (OutcomeKind.OK, True, True)
            assert (outcome.prompt_tokens, outcome.output_tokens, outcome.hit_limit) == (5, 9, True)
            names = [type(e) for e in r.brain.events]
            assert names.count(FirstToken) == 1
            assert Progress in names
            assert r.accesses[0].ttft_s is not None

    run(main())


def test_injected_usage_is_asked_for_and_stripped(run: Run) -> None:
    usage = b'data: {"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":2}}\n\n'
    script = sends(STREAM_HEAD + chunk(event("a")) + chunk(event("b")) + chunk(usage + DONE) + LAST)

    async def main() -> None:
        async with rig(script) as r:
            response = await r.ask(post(CHAT_STREAM))
            assert b"include_usage" in r.engines[0].requests[0]
            assert b'"usage"' not in response
            assert response.endswith(LAST)
            assert response.count(b"[DONE]") == 1
            assert r.accesses[0].output_tokens == 2
            asked = CHAT_STREAM[:-1] + b',"stream_options":{"include_usage":true}}'
            assert b'"usage"' in await r.ask(post(asked))

    run(main())


@pytest.mark.parametrize(("refusal", "wish"), [(400, "learn"), (422, "learn"), (422, "always")])
def test_an_engine_that_minds_the_wish_for_usage_is_asked_without_it(run: Run, refusal: int, wish: str) -> None:
    """Every stream there was answered 422, for a field that no client had sent."""

    async def strict(connection: Connection) -> None:
        if b"stream_options" in connection.body:
            await connection.send(answer(b'{"detail":"extra fields not permitted"}', f"{refusal} X"))
        else:
            await connection.send(STREAM_HEAD + chunk(event("a") + DONE) + LAST)

    async def main() -> None:
        async with rig(strict, config=GatewayConfig(port=0, inject_usage=wish)) as r:
            for _ in range(3):
                response = await r.ask(post(CHAT_STREAM))
                assert status(response) == 200
                assert response.endswith(LAST)
            assert [b"stream_options" in body for body in r.engines[0].requests] == [True, False, False, False]
            assert kinds(r) == [OutcomeKind.OK] * 3
            assert [access.attempts for access in r.accesses] == [1, 1, 1]

    run(main())


def test_a_request_that_is_refused_without_the_wish_too_is_the_clients_error(run: Run) -> None:
    """Nothing is learned from it; and an engine that has taken the wish is not asked twice."""
    good = True

    async def script(connection: Connection) -> None:
        whole = STREAM_HEAD + chunk(event("a") + DONE) + LAST
        await connection.send(whole if good else answer(b'{"error":"too long"}', "400 X"))

    async def main() -> None:
        nonlocal good
        async with rig(script) as r:
            for good, asked in ((False, [True, False]), (True, [True]), (False, [True])):
                r.engines[0].requests.clear()
                response = await r.ask(post(CHAT_STREAM))
                assert status(response) == (200 if good else 400)
                assert good or b"too long" in response
                assert [b"stream_options" in body for body in r.engines[0].requests] == asked
            assert kinds(r) == [OutcomeKind.CLIENT_ERROR, OutcomeKind.OK, OutcomeKind.CLIENT_ERROR]

    run(main())


@pytest.mark.parametrize("then", ["reset", "close"])
def test_dead_before_any_byte_is_retried_elsewhere(run: Run, then: str) -> None:
    async def main() -> None:
        async with rig(sends(then=then), always) as r:
            assert status(await r.ask(post(CHAT))) == 200
            assert kinds(r) == [OutcomeKind.RESET, OutcomeKind.OK]
            assert not r.brain.outcomes[0].committed
            assert (r.accesses[0].attempts, r.accesses[0].replica) == (2, "r1")

    run(main())


def test_refused_is_retried_elsewhere(run: Run) -> None:
    async def main() -> None:
        async with rig(always, always) as r:
            await r.engines[0].stop()
            assert status(await r.ask(post(CHAT))) == 200
            assert kinds(r) == [OutcomeKind.CONNECT_FAILED, OutcomeKind.OK]
            assert not r.brain.outcomes[0].sent

    run(main())


def test_nothing_is_said_about_replicas_when_all_are_down(run: Run) -> None:
    async def main() -> None:
        async with rig(always) as r:
            await r.engines[0].stop()
            response = await r.ask(post(CHAT))
            assert status(response) == 502
            assert str(r.engines[0].port).encode() not in response
            assert b"127.0.0.1" not in response
            assert r.accesses[0].account == "server_error"

    run(main())


def test_a_stale_connection_is_retried_without_asking(run: Run) -> None:
    async def once(connection: Connection) -> None:
        await connection.send(answer())
        if len(connection.engine.requests) == 1:
            await connection.reader.read(1)
            connection.engine.requests.clear()
            connection.reset()

    async def main() -> None:
        async with rig(once) as r:
            for _ in range(2):
                assert status(await r.ask(post(CHAT))) == 200
            assert kinds(r) == [OutcomeKind.OK, OutcomeKind.OK]

    run(main())


@pytest.mark.parametrize("code", ["429 Too Many", "500 Oops", "503 Unavailable", "502 Bad", "504 Slow"])
def test_refusals_of_engines_are_retried_elsewhere(run: Run, code: str) -> None:
    busy = sends(answer(b'{"error":1}', code, "retry-after: 7\r\n"))

    async def main() -> None:
        async with rig(busy, always) as r:
            assert status(await r.ask(post(CHAT))) == 200
            first = r.brain.outcomes[0]
            expected = OutcomeKind.BACKPRESSURE if code[:3] in ("429", "503") else OutcomeKind.SERVER_ERROR
            assert (first.kind, first.status, first.committed) == (expected, int(code[:3]), False)
            assert first.retry_after_s == 7.0
        async with rig(busy) as r:
            response = await r.ask(post(CHAT_STREAM))
            assert response.startswith(f"HTTP/1.1 {code}\r\n".encode())
            assert b"\r\nretry-after: 7\r\n" in response
            assert response.endswith(b'\r\n\r\n{"error":1}')

    run(main())


def test_other_errors_pass_as_they_are(run: Run) -> None:
    async def main() -> None:
        async with rig(sends(answer(b'{"error":"mine"}', "400 Bad Request"))) as r:
            response = await r.ask(post(CHAT_STREAM))
            assert response.startswith(b"HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\n")
            assert response.endswith(b'{"error":"mine"}')
            assert kinds(r) == [OutcomeKind.CLIENT_ERROR]
            assert r.accesses[0].account == "client_error"
        async with rig(sends(answer(b"{}", "501 Cannot"))) as r:
            assert status(await r.ask(post(CHAT))) == 501
            assert kinds(r) == [OutcomeKind.CLIENT_ERROR], "the engine is well, it does not do this"
            assert r.accesses[0].account == "server_error"
            assert r.brain.outcomes[0].committed

    run(main())


@pytest.mark.parametrize("then", ["reset", "close"])
@pytest.mark.parametrize("torn", [b"", b"4\r\ndata"])
def test_a_stream_cut_after_content_ends_with_an_error_event(run: Run, then: str, torn: bytes) -> None:
    script = sends(STREAM_HEAD + chunk(event("a")) + chunk(event("b")) + torn, then=then, gap_s=0.02)

    async def main() -> None:
        async with rig(script, always) as r:
            response = await r.ask(post(CHAT_STREAM))
            assert response.count(b"HTTP/1.1") == 1
            assert b'data: {"error":{' in response
            assert b"[DONE]" not in response
            assert not response.endswith(LAST)
            before = response[: response.index(b'data: {"error"')]
            assert b"".join(before.split(b"\r\n")).endswith(b"\n\n") or before.endswith((b"\n\n", b"\r\n"))
            assert kinds(r) == [OutcomeKind.TRUNCATED]
            assert r.brain.outcomes[0].committed
            assert r.accesses[0].account == "server_error"

    run(main())


@pytest.mark.parametrize("pieces", [(STREAM_HEAD,), (STREAM_HEAD, chunk(b": hello\n"))])
def test_a_stream_cut_before_content_is_retried(run: Run, pieces: tuple[bytes, ...]) -> None:
    good = sends(STREAM_HEAD + chunk(event("a")) + chunk(DONE) + LAST)

    async def main() -> None:
        async with rig(sends(*pieces, then="reset"), good) as r:
            response = await r.ask(post(CHAT_STREAM))
            assert response.count(b"HTTP/1.1") == 1
            assert response.endswith(DONE + b"\r\n" + LAST)
            assert b"error" not in response
            assert kinds(r) == [OutcomeKind.TRUNCATED, OutcomeKind.OK]
        async with rig(sends(STREAM_HEAD, then="reset")) as r:
            response = await r.ask(post(CHAT_STREAM))
            assert status(response) == 502
            assert b"upstream" in response

    run(main())


def test_a_head_is_passed_on_at_once_and_the_stream_can_still_be_retried(run: Run) -> None:
    bad = sends(STREAM_HEAD, then="reset", gap_s=0.1)
    good = sends(STREAM_HEAD + chunk(event("good")) + chunk(DONE) + LAST)

    async def main() -> None:
        async with rig(bad, good) as r:
            reader, writer = await r.client()
            writer.write(post(CHAT_STREAM))
            async with asyncio.timeout(0.08):
                head = await reader.readuntil(b"\r\n\r\n")
            rest = await reader.read()
            writer.close()
            assert b"200 OK" in head
            assert b"good" in rest
            assert b"HTTP/1.1" not in rest
            assert rest.endswith(LAST)

    run(main())


ABORTED = JSON_ANSWER.replace(b'"stop"', b'"abort"')


@pytest.mark.parametrize(
    ("bad", "kind"),
    [(ABORTED, OutcomeKind.ENGINE_ABORT), (b"{oops", OutcomeKind.BAD_RESPONSE)],
    ids=["abort", "no json"],
)
@pytest.mark.parametrize("whole", [True, False])
def test_an_answer_that_is_none_is_tried_elsewhere_however_it_arrives(
    run: Run, bad: bytes, kind: OutcomeKind, whole: bool
) -> None:
    raw = answer(bad)
    script = sends(raw) if whole else sends(raw[:-3], raw[-3:], gap_s=0.02)

    async def main() -> None:
        async with rig(script, always) as r:
            response = await r.ask(post(CHAT))
            assert (status(response), kinds(r)) == (200, [kind, OutcomeKind.OK])
            assert response.endswith(JSON_ANSWER)
            assert r.accesses[0].output_tokens == 3

    run(main())


def test_an_answer_cannot_continue_a_stream(run: Run) -> None:
    bad = sends(STREAM_HEAD, then="reset", gap_s=0.05)

    async def main() -> None:
        async with rig(bad, always) as r:
            response = await r.ask(post(CHAT_STREAM))
            assert response.count(b"HTTP/1.1") == 1
            assert b'data: {"error":{' in response
            assert kinds(r)[-1] is OutcomeKind.BAD_RESPONSE

    run(main())


def test_a_retry_that_is_refused_after_the_head_ends_in_band(run: Run) -> None:
    bad = sends(STREAM_HEAD, then="reset", gap_s=0.05)

    async def main() -> None:
        async with rig(bad, sends(answer(b"{}", "400 No"))) as r:
            response = await r.ask(post(CHAT_STREAM))
            assert response.count(b"HTTP/1.1") == 1
            assert b'data: {"error":{' in response
            assert not response.endswith(LAST)
        async with rig(bad) as r:
            response = await r.ask(post(CHAT_STREAM))
            assert b'data: {"error":{' in response
            assert not response.endswith(LAST)
            assert r.accesses[0].account == "server_error"

    run(main())


def test_only_done_is_not_an_answer(run: Run) -> None:
    empty = sends(STREAM_HEAD + chunk(DONE) + LAST)
    torn = sends(STREAM_HEAD + chunk(event("x")) + chunk(event("y")), then="reset", gap_s=0.01)

    async def main() -> None:
        async with rig(empty, torn) as r:
            response = await r.ask(post(CHAT_STREAM))
            assert response.count(b"HTTP/1.1") == 1
            assert b"[DONE]" not in response
            assert b'"error"' in response
            assert kinds(r) == [OutcomeKind.TRUNCATED, OutcomeKind.TRUNCATED]
            assert r.accesses[0].account == "server_error"

    run(main())


def test_an_in_band_error_after_content_passes_and_counts_as_a_failure(run: Run) -> None:
    frame = b'data: {"error":{"code":502,"message":"m"},"choices":[]}\n\n'

    async def main() -> None:
        said = STREAM_HEAD + chunk(event("a")), chunk(frame) + chunk(DONE) + LAST
        async with rig(sends(*said, gap_s=0.02), always) as r:
            response = await r.ask(post(CHAT_STREAM))
            assert frame in response
            assert kinds(r) == [OutcomeKind.IN_BAND_ERROR]
            assert r.accesses[0].account == "server_error"

    run(main())


@pytest.mark.parametrize("content", [b"", chunk(event("a"))], ids=["at once", "after content"])
def test_a_clients_own_error_in_band_says_nothing_about_the_engine(run: Run, content: bytes) -> None:
    frame = b'data: {"error":{"code":400,"message":"no such template"}}\n\n'

    async def main() -> None:
        async with rig(sends(STREAM_HEAD + content, chunk(frame) + chunk(DONE) + LAST, gap_s=0.02)) as r:
            response = await r.ask(post(CHAT_STREAM))
            assert response.count(frame) == 1
            assert kinds(r) == [OutcomeKind.CLIENT_ERROR], "the replica's health counts it as an answer"
            assert (r.accesses[0].account, r.accesses[0].attempts) == ("server_error", 1), "the client was told 200"

    run(main())


def test_overload_told_in_band_before_content_is_retried(run: Run) -> None:
    frame = b'data: {"type":"error","error":{"type":"overloaded_error","message":"busy"}}\n\n'
    good = sends(STREAM_HEAD + chunk(event("good")) + chunk(DONE) + LAST)

    async def main() -> None:
        async with rig(sends(STREAM_HEAD + chunk(frame) + LAST), good) as r:
            response = await r.ask(post(CHAT_STREAM))
            assert b"good" in response
            assert kinds(r) == [OutcomeKind.BACKPRESSURE, OutcomeKind.OK]

    run(main())


def test_who_names_no_model_is_told_so_on_every_path(run: Run) -> None:
    async def main() -> None:
        async with rig(always) as r:
            response = await r.ask(post(b'{"content":"hi"}', "/tokenize"))
            assert status(response) == 400
            assert b'"missing_model"' in response
            assert not r.engines[0].requests
            assert r.accesses[0].account == "client_error"

    run(main())


class Mute(FakeBrain):
    """Forgets to answer: the failed attempt of a request, or its arrival."""

    def __init__(self, forgets: type) -> None:
        super().__init__(1)
        self.forgets = forgets

    def handle(self, event: Event) -> list[Command]:
        commands = super().handle(event)
        return [] if isinstance(event, self.forgets) else commands


@pytest.mark.parametrize("forgets", [AttemptFinished, RequestArrived])
def test_a_request_that_the_brain_forgets_is_answered(run: Run, forgets: type, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headway.gateway.exchange.UNANSWERED_S", 0.0)
    monkeypatch.setattr("tests.gateway.fakes.FakeBrain", lambda _tries: Mute(forgets))

    async def main() -> None:
        async with rig(sends(b"no HTTP at all\r\n\r\n")) as r:
            with capture_logs() as logs:
                response = await r.ask(post(CHAT))
            assert response.startswith(b"HTTP/1.1 502 ")
            assert b'"no_decision"' in response
            assert [line["event"] for line in logs] == ["no decision came for a request"]
            assert r.gateway.plane.unanswered == 1
            assert [(a.account, a.code) for a in r.accesses] == [("server_error", "no_decision")]

    run(main())


@pytest.mark.parametrize("head_first", [False, True])
def test_an_in_band_error_before_content_is_retried(run: Run, head_first: bool) -> None:
    frame = b'data: {"error":{"code":500,"message":"EngineCore died"}}\n\n'
    rest = chunk(frame) + chunk(DONE) + LAST
    dying = sends(STREAM_HEAD, rest, gap_s=0.1) if head_first else sends(STREAM_HEAD + rest)
    good = sends(STREAM_HEAD + chunk(event("good")) + chunk(DONE) + LAST)

    async def main() -> None:
        async with rig(dying, good) as r:
            response = await r.ask(post(CHAT_STREAM))
            assert b"good" in response
            assert b"died" not in response
            assert kinds(r) == [OutcomeKind.IN_BAND_ERROR, OutcomeKind.OK]
        async with rig(dying) as r:
            response = await r.ask(post(CHAT_STREAM))
            assert response.count(frame) == 1
            assert r.accesses[0].account == "server_error"

    run(main())


def test_an_abort_before_content_is_retried(run: Run) -> None:
    role = b'data: {"choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}\n\n'
    drained = sends(STREAM_HEAD, chunk(role), chunk(event("", "abort")) + chunk(DONE) + LAST)
    plain = sends(answer(JSON_ANSWER.replace(b'"stop"', b'"abort"')))
    good = sends(STREAM_HEAD + chunk(event("good")) + chunk(DONE) + LAST)

    async def main() -> None:
        async with rig(drained, good) as r:
            response = await r.ask(post(CHAT_STREAM))
            assert b"good" in response
            assert b"abort" not in response
            assert kinds(r) == [OutcomeKind.ENGINE_ABORT, OutcomeKind.OK]
        async with rig(plain, always) as r:
            response = await r.ask(post(CHAT))
            assert response.endswith(JSON_ANSWER)
            assert kinds(r) == [OutcomeKind.ENGINE_ABORT, OutcomeKind.OK]
        async with rig(plain) as r:
            response = await r.ask(post(CHAT))
            assert b'"abort"' in response
            assert r.accesses[0].account == "server_error"

    run(main())


def test_an_abort_after_content_is_an_error_in_band(run: Run) -> None:
    script = sends(STREAM_HEAD, chunk(event("a")), chunk(event("b") + event("", "abort") + DONE) + LAST, gap_s=0.02)

    async def main() -> None:
        async with rig(script, always) as r:
            response = await r.ask(post(CHAT_STREAM))
            assert b'"content":"b"' in response
            assert b'data: {"error":{' in response
            assert b"[DONE]" not in response
            assert kinds(r) == [OutcomeKind.ENGINE_ABORT]

    run(main())


def test_an_answer_cut_in_the_middle_is_retried_or_502(run: Run) -> None:
    torn = sends(answer()[:-20], then="reset", gap_s=0.01)

    async def main() -> None:
        async with rig(torn, always) as r:
            assert (await r.ask(post(CHAT))).endswith(JSON_ANSWER)
        async with rig(torn) as r:
            response = await r.ask(post(CHAT))
            assert status(response) == 502
            assert b'"type":"upstream_error"' in response

    run(main())


def test_a_long_response_that_is_cut_never_ends_cleanly(run: Run) -> None:
    head = b"HTTP/1.1 200 OK\r\ncontent-type: audio/mpeg\r\n"
    fixed = sends(head + b"content-length: 100\r\n\r\n" + b"x" * 50, then="reset", gap_s=0.05)
    chunked = sends(head + b"transfer-encoding: chunked\r\n\r\n" + chunk(b"x" * 50), then="close", gap_s=0.05)

    async def main() -> None:
        async with rig(fixed) as r:
            response = await r.ask(post(CHAT))
            assert response.endswith(b"x" * 50)
            assert r.accesses[0].account == "server_error"
        async with rig(chunked) as r:
            response = await r.ask(post(CHAT))
            assert response.endswith(chunk(b"x" * 50))
            assert not response.endswith(LAST)

    run(main())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("pieces", "kind", "word"),
    [
        ((), OutcomeKind.FIRST_BYTE_TIMEOUT, b"first_byte"),
        ((STREAM_HEAD + chunk(event("a")),), OutcomeKind.IDLE_TIMEOUT, b"idle"),
        ((STREAM_HEAD + chunk(event("a", "stop")),), OutcomeKind.IDLE_TIMEOUT, b"idle"),
        ((answer()[:-5],), OutcomeKind.IDLE_TIMEOUT, b"idle"),
    ],
)
def test_silence_ends(run: Run, pieces: tuple[bytes, ...], kind: OutcomeKind, word: bytes) -> None:
    config = GatewayConfig(port=0, timeouts=Timeouts(first_byte_s=0.2, idle_s=0.2))

    async def main() -> None:
        async with rig(sends(*pieces, then="hang"), config=config, tries=1) as r:
            response = await r.ask(post(CHAT_STREAM), 2)
            assert word in response
            assert kinds(r) == [kind]
            assert b"[DONE]" not in response
            if b"text/event-stream" not in response:
                assert status(response) == 504
            await r.until(lambda: r.engines[0].open == 0)

    run(main())


@pytest.mark.slow
def test_sounds_of_life_keep_a_stream_open(run: Run) -> None:
    config = GatewayConfig(port=0, timeouts=Timeouts(idle_s=0.3))
    beats = [chunk(b": hb\n")] * 8
    script = sends(STREAM_HEAD, *beats, chunk(event("a")) + chunk(DONE) + LAST, gap_s=0.1)

    async def main() -> None:
        async with rig(script, config=config) as r:
            response = await r.ask(post(CHAT_STREAM))
            assert response.count(b": hb\n") == 8
            assert r.accesses[0].account == "ok"
            assert (r.accesses[0].ttft_s or 0) > 0.7

    run(main())


async def _leave(writer: asyncio.StreamWriter, how: str) -> None:
    if how == "half":
        writer.write_eof()
    elif how == "fin":
        writer.close()
    else:
        Connection.reset(type("W", (), {"writer": writer})())  # type: ignore[arg-type]


@pytest.mark.parametrize("how", ["fin", "rst", "half"])
@pytest.mark.parametrize("phase", ["silent", "streaming", "answering"])
def test_a_leaving_client_closes_the_engine_at_once(run: Run, how: str, phase: str) -> None:
    pieces = {"silent": (), "streaming": (STREAM_HEAD + chunk(event("a")),), "answering": (answer()[:-5],)}[phase]
    loop_time: list[float] = []

    async def main() -> None:
        async with rig(sends(*pieces, then="hang"), always) as r:
            _, writer = await r.client()
            writer.write(post(CHAT_STREAM, close=False))
            await r.until(lambda: bool(r.engines[0].requests))
            await asyncio.sleep(0.03)
            start = asyncio.get_running_loop().time()
            await _leave(writer, how)
            await r.until(lambda: r.engines[0].open == 0, 1.0)
            loop_time.append(asyncio.get_running_loop().time() - start)
            assert kinds(r) == [OutcomeKind.CLIENT_CLOSED]
            assert r.accesses[0].account == "client_closed"
            writer.close()

    run(main())
    assert loop_time[0] < 0.5


@pytest.mark.parametrize(
    ("last", "kind", "account"),
    [
        (DONE, OutcomeKind.OK, "ok"),
        (b'data: {"error":{"message":"m"}}\n\n', OutcomeKind.IN_BAND_ERROR, "server_error"),
        (event("", "stop"), OutcomeKind.CLIENT_CLOSED, "client_closed"),
    ],
)
def test_who_leaves_after_the_last_word_has_heard_it(run: Run, last: bytes, kind: OutcomeKind, account: str) -> None:
    """SDKs close at [DONE] or at an error, without waiting for the end of the framing."""

    async def main() -> None:
        async with rig(sends(STREAM_HEAD + chunk(event("a")), chunk(last), gap_s=0.02, then="hang")) as r:
            reader, writer = await r.client()
            writer.write(post(CHAT_STREAM, close=False))
            await reader.readuntil(last)
            writer.close()
            await r.until(lambda: bool(r.accesses))
            assert (kinds(r), r.accesses[0].account) == ([kind], account)

    run(main())


def test_a_leaving_client_while_held(run: Run) -> None:
    async def main() -> None:
        async with rig(always) as r:
            r.brain.arrived = lambda e: [Hold(e.request.id, 1)]
            _, writer = await r.client()
            writer.write(post(CHAT))
            await r.until(lambda: bool(r.brain.requests))
            writer.close()
            await r.until(lambda: bool(r.accesses))
            assert isinstance(r.brain.events[-1], RequestCancelled)
            assert r.accesses[0].account == "client_closed"

    run(main())


def test_a_leaving_client_while_connecting(run: Run) -> None:
    async def main() -> None:
        async with rig(always) as r:
            _, writer = await r.client()
            writer.write(post(CHAT))
            writer.close()
            await r.until(lambda: bool(r.accesses))
            await r.until(lambda: r.engines[0].open == 0)
            assert r.accesses[0].account in ("client_closed", "ok")

    run(main())


async def one_held(r: Rig) -> tuple[asyncio.Future[bytes], RequestId]:
    """One that is asked, and told to wait."""
    r.brain.arrived = lambda e: [Hold(e.request.id, 1)]
    waiting = asyncio.ensure_future(r.ask(post(CHAT)))
    await r.until(lambda: bool(r.brain.requests))
    (request,) = r.brain.requests
    return waiting, RequestId(request)


def test_held_requests_go_on_when_the_brain_says_so(run: Run) -> None:
    async def main() -> None:
        async with rig(always) as r:
            waiting, request = await one_held(r)
            driver = r.gateway.plane.driver
            driver.exchanges[request].dispatch(Dispatch(request, attempt_id(request, 0), ReplicaId("r0"), "m"))
            assert status(await waiting) == 200
            assert r.accesses[0].queued_s > 0

    run(main())


def test_who_is_held_and_refused_in_the_end_was_queued_all_the_time(run: Run) -> None:
    """The access line of a request that timed out in the queue said `queued_s` 0."""

    async def main() -> None:
        async with rig(always) as r:
            waiting, request = await one_held(r)
            refusal = Reject(request, 503, "queue_timeout", "Late.", 1.0, shed=True)
            r.gateway.plane.driver.exchanges[request].reject(refusal)
            assert status(await waiting) == 503
            assert status(await r.ask(post(b"{"))) == 400
            held, unasked = r.accesses
            assert 0.0 < held.queued_s <= held.duration_s
            assert (unasked.queued_s, unasked.account) == (0.0, "client_error")

    run(main())


def test_rejects(run: Run) -> None:
    async def main() -> None:
        async with rig(always) as r:
            r.brain.arrived = lambda e: [Reject(e.request.id, 429, "queue_full", "Full.", 2.2, shed=True)]
            response = await r.ask(post(CHAT))
            assert status(response) == 429
            assert b"\r\nretry-after: 3\r\n" in response
            assert b'"code":"queue_full"' in response
            assert r.accesses[0].account == "shed"
            r.brain.arrived = lambda e: [Reject(e.request.id, 404, "model_not_found", "No.")]
            assert status(await r.ask(post(CHAT.replace(b'"m"', b'"zz"')))) == 404
            assert (r.accesses[1].account, r.accesses[1].model) == ("client_error", "other")

    run(main())


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        ("replica_gone", OutcomeKind.RESET),
        ("replica_removed", OutcomeKind.CANCELLED),
        ("replica_asleep", OutcomeKind.CANCELLED),
        ("recalled", OutcomeKind.CANCELLED),
    ],
)
def test_an_aborted_attempt_is_retried_or_cut(run: Run, reason: str, kind: OutcomeKind) -> None:
    async def main() -> None:
        async with rig(sends(then="hang"), always) as r:
            waiting = asyncio.ensure_future(r.ask(post(CHAT)))
            await r.until(lambda: bool(r.engines[0].requests))
            (request,) = r.brain.requests
            r.gateway.plane.driver._abort(Abort(AttemptId(f"{request}-0"), reason))
            assert status(await waiting) == 200
            assert kinds(r) == [kind, OutcomeKind.OK]

    run(main())


def test_model_names_are_spliced_for_the_engine(run: Run) -> None:
    async def main() -> None:
        async with rig(always) as r:
            r.brain.renamed = {"m": "org/real"}
            odd = b'{ "seed":9007199254740993, "model" : "m" ,"x":1e400,"messages":[]}'
            await r.ask(post(odd))
            assert r.engines[0].requests[0].endswith(odd.replace(b'"m"', b'"org/real"'))

    run(main())


OF_CLIENT = "Authorization: Bearer c\r\n"


@pytest.mark.parametrize(
    ("auth", "lines", "expected"),
    [
        (UpstreamAuth(), OF_CLIENT + "X-Api-Key: c\r\n", []),
        (UpstreamAuth(forward_client=True), OF_CLIENT, [b"authorization: bearer c"]),
        (
            UpstreamAuth(api_key="k\n", forward_client=True),
            OF_CLIENT + "x-api-key: c\r\n",
            [b"authorization: bearer k"],
        ),
    ],
)
def test_credentials(run: Run, auth: UpstreamAuth, lines: str, expected: list[bytes]) -> None:
    async def main() -> None:
        async with rig(always, config=GatewayConfig(port=0, auth=auth)) as r:
            await r.ask(post(CHAT, lines=lines))
            head = r.engines[0].requests[0].lower().partition(b"\r\n\r\n")[0].split(b"\r\n")
            assert [x for x in head if x.startswith((b"authorization", b"x-api-key"))] == expected

    run(main())


@pytest.mark.slow
def test_a_slow_reader_slows_the_engine(run: Run) -> None:
    sent: list[int] = [0]

    async def flood(connection: Connection) -> None:
        await connection.send(b"HTTP/1.1 400 Bad\r\ncontent-length: 50000000\r\n\r\n")
        for _ in range(500):
            await connection.send(b"x" * 100_000)
            sent[0] += 100_000

    async def main() -> None:
        async with rig(flood, config=GatewayConfig(port=0, limits=Limits(write_high_water_bytes=65536))) as r:
            reader, writer = await asyncio.open_connection("127.0.0.1", r.gateway.port, limit=1000)
            writer.write(post(CHAT))
            await reader.read(1000)
            await asyncio.sleep(0.3)
            assert sent[0] < 20_000_000
            total = 0
            while data := await reader.read(1 << 20):
                total += len(data)
            assert total > 49_000_000
            writer.close()

    run(main())


def test_stop_lets_streams_finish_within_the_drain_time(run: Run) -> None:
    script = sends(STREAM_HEAD + chunk(event("a")), chunk(event("b")), chunk(DONE) + LAST, gap_s=0.05)

    async def main() -> None:
        async with rig(script) as r:
            waiting = asyncio.ensure_future(r.ask(post(CHAT_STREAM, close=False)))
            await r.until(lambda: bool(r.engines[0].requests))
            await r.gateway.stop(2.0)
            response = await waiting
            assert response.endswith(LAST)
            assert not r.gateway.ready

    run(main())


def test_stop_cuts_what_is_left_with_an_error_event(run: Run) -> None:
    async def main() -> None:
        async with rig(sends(STREAM_HEAD + chunk(event("a")), then="hang"), sends(then="hang")) as r:
            reader, writer = await r.client()
            writer.write(post(CHAT_STREAM, close=False))
            await reader.readuntil(b'"content":"a"')
            r.brain.replicas.reverse()
            silent = asyncio.ensure_future(r.ask(post(CHAT, close=False)))
            await r.until(lambda: bool(r.engines[1].requests))
            await r.gateway.stop(0.05)
            rest = await reader.read()
            assert b'data: {"error":{' in rest
            assert b"[DONE]" not in rest
            assert status(await silent) == 503
            assert {a.account for a in r.accesses} == {"server_error", "shed"}
            writer.close()

    run(main())


def test_relay_of_an_attempt_that_is_not_all_there(run: Run) -> None:
    async def main() -> None:
        async with rig(sends(answer()[:-5], then="reset", gap_s=0.01), tries=1) as r:
            r.brain.exhausted = lambda e: Relay(e.attempt_id.rpartition("-")[0], e.attempt_id)  # type: ignore[arg-type]
            assert status(await r.ask(post(CHAT))) == 502

    run(main())
