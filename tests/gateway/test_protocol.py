"""The client's side over real sockets: requests in, responses in order, limits, timeouts, what we answer ourselves."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from headway.core.ids import ReplicaId
from headway.gateway import exchange
from headway.gateway.config import Cors, GatewayConfig, Limits
from tests.gateway.fakes import CHAT, JSON_ANSWER, Connection, always, answer, post, rig
from tests.interpreted import interpreted

Run = Callable[[Any], Any]


def status(response: bytes) -> int:
    return int(response.split(b" ", 2)[1])


def body_of(response: bytes) -> bytes:
    return response.partition(b"\r\n\r\n")[2]


def test_a_plain_request(run: Run) -> None:
    async def main() -> None:
        async with rig(always) as r:
            response = await r.ask(post(CHAT, lines="x-request-id: mine\r\nx-custom: 1\r\nauthorization: Bearer k\r\n"))
            assert status(response) == 200
            assert body_of(response) == JSON_ANSWER
            assert b"\r\nx-request-id: mine\r\n" in response
            head, _, body = r.engines[0].requests[0].partition(b"\r\n\r\n")
            assert body == CHAT
            lines = head.lower().split(b"\r\n")
            assert lines[0] == b"post /v1/chat/completions http/1.1"
            assert lines.count(b"host: 127.0.0.1:%d" % r.engines[0].port) == 1
            assert b"x-custom: 1" in lines
            assert b"x-forwarded-for: 127.0.0.1" in lines
            assert not any(line.startswith((b"authorization", b"transfer-encoding", b"connection")) for line in lines)
            assert sum(line.startswith(b"content-length") for line in lines) == 1
            (access,) = r.accesses
            assert f"x-request-id: {access.request_id}-0".encode() in lines
            assert (access.account, access.status, access.client_request_id) == ("ok", 200, "mine")
            assert (access.prompt_tokens, access.output_tokens, access.model) == (7, 3, "m")

    run(main())


def test_keep_alive_and_pipelining_are_served_in_order(run: Run) -> None:
    async def echo(connection: Connection) -> None:
        await asyncio.sleep(0.02 if b"first" in connection.body else 0)
        await connection.send(answer(connection.body))

    async def main() -> None:
        async with rig(echo) as r:
            bodies = [b'{"model":"m","prompt":"%b"}' % word for word in (b"first", b"second", b"third")]
            requests = [post(body, "/v1/completions", close=False) for body in bodies[:2]]
            response = await r.ask(b"".join(requests) + post(bodies[2], "/v1/completions"))
            assert response.count(b"HTTP/1.1 200 OK") == 3
            places = [response.index(body) for body in bodies]
            assert places == sorted(places)
            assert r.engines[0].connections == 1

    run(main())


@pytest.mark.parametrize("step", [1, 7, 100])
def test_requests_in_any_pieces(run: Run, step: int) -> None:
    async def main() -> None:
        async with rig(always) as r:
            chunked = b"".join(b"%x;e=1\r\n%b\r\n" % (len(c), c) for c in (CHAT[:1], CHAT[1:30], CHAT[30:]))
            raw = (
                b"POST /v1/chat/completions HTTP/1.1\r\nhost: h\r\n"
                b"transfer-encoding: chunked\r\nconnection: close\r\n\r\n" + chunked + b"0\r\nx-trailer: 1\r\n\r\n"
            )
            reader, writer = await r.client()
            for at in range(0, len(raw), step):
                writer.write(raw[at : at + step])
                await asyncio.sleep(0)
            assert status(await reader.read()) == 200
            writer.close()
            head, _, body = r.engines[0].requests[0].lower().partition(b"\r\n\r\n")
            assert body == CHAT
            assert b"content-length: %d" % len(CHAT) in head
            assert b"transfer-encoding" not in head
            assert b"trailer" not in head

    run(main())


def test_a_large_body_arrives_whole(run: Run) -> None:
    async def main() -> None:
        async with rig(always) as r:
            body = b'{"model":"m","messages":[{"role":"user","content":"' + b"x" * 3_000_000 + b'"}]}'
            assert status(await r.ask(post(body))) == 200
            assert r.engines[0].requests[0].endswith(body)

    run(main())


def test_http_1_0(run: Run) -> None:
    async def stream(connection: Connection) -> None:
        await connection.send(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n")

    async def main() -> None:
        async with rig(stream) as r:
            raw = b"POST /v1/chat/completions HTTP/1.0\r\ncontent-length: %d\r\n\r\n" % len(CHAT) + CHAT
            response = await r.ask(raw)
            assert response.endswith(b"\r\n\r\nabc")
            assert b"chunked" not in response
        async with rig(always) as r:
            raw = b"POST /v1/chat/completions HTTP/1.0\r\nconnection: keep-alive\r\ncontent-length: %d\r\n\r\n" % len(
                CHAT
            )
            response = await r.ask(raw + CHAT + (raw + CHAT).replace(b"keep-alive", b"close"))
            assert response.count(b" 200 OK") == 2
            assert b"\r\nconnection: keep-alive\r\n" in response

    run(main())


def test_expect_100_continue(run: Run) -> None:
    async def main() -> None:
        async with rig(always) as r:
            reader, writer = await r.client()
            writer.write(post(CHAT, lines="expect: 100-continue\r\n")[: -len(CHAT)])
            assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
            writer.write(CHAT)
            assert status(await reader.read()) == 200
            writer.close()
            assert b"expect" not in r.engines[0].requests[0].lower()
            assert status(await r.ask(post(CHAT, lines="expect: magic\r\n"))) == 417

    run(main())


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (b"GET / HTTP/1.1\r\nhost: h\r\nx: " + b"a" * 40_000, 431),
        (b"GET /" + b"a" * 9000, 414),
        (b"GET /" + b"a" * 8300 + b" HTTP/1.1\r\nhost: h\r\n\r\n", 414),
        (post(b"", lines="").replace(b"content-length: 0", b"content-length: 99999999999"), 413),
        (b"GET / HTTP/1.1\nHost: h\n\n", 400),
        (b"GET / HTTP/1.1\r\nhost: h\r\ncontent-length: 1\r\ntransfer-encoding: chunked\r\n\r\n", 400),
        (b"POST /v1/x HTTP/1.1\r\nhost: h\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n", 400),
        (b"GET /nothing HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\r\n", 404),
        (b"GET /v1/chat/completions HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\r\n", 405),
        (b"TRACE /v1/chat/completions HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\r\n", 405),
        (b"DELETE /v1/models HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\r\n", 405),
        (post(b"{", lines=""), 400),
        (post(b"x" * 100_000, "/nothing"), 404),
    ],
)
def test_refusals_never_reach_an_engine(run: Run, raw: bytes, expected: int) -> None:
    async def main() -> None:
        async with rig(always) as r:
            response = await r.ask(raw)
            assert status(response) == expected
            assert b'"error"' in response
            assert b"\r\nx-request-id: " in response
            assert b"\r\nconnection: close\r\n" in response
            assert not r.engines[0].requests
            assert [a.account for a in r.accesses] == ["client_error"]

    run(main())


@pytest.mark.parametrize(("lines", "expected"), [(1, 200), (2, 200), (8, 200), (9, 400), (40, 400)])
@pytest.mark.parametrize("at_once", [True, False])
def test_a_few_empty_lines_before_a_request_are_forgiven(run: Run, lines: int, expected: int, at_once: bool) -> None:
    """RFC 9112, 2.2: "at least one"; also between two requests on one connection, and however they are cut."""

    async def main() -> None:
        async with rig(always) as r:
            raw = post(CHAT, close=False) + b"\r\n" * lines + post(CHAT)
            reader, writer = await r.client()
            for piece in [raw] if at_once else [raw[at : at + 1] for at in range(len(raw))]:
                writer.write(piece)
                await asyncio.sleep(0)
            response = await reader.read()
            writer.close()
            assert [int(part[:3]) for part in response.split(b"HTTP/1.1 ")[1:]] == [200, expected]
            assert len(r.engines[0].requests) == 1 + (expected == 200)

    run(main())


def test_a_small_body_of_a_refused_request_is_read_and_the_connection_kept(run: Run) -> None:
    async def main() -> None:
        async with rig(always) as r:
            response = await r.ask(post(CHAT, "/nothing", close=False) + post(CHAT))
            assert response.count(b"HTTP/1.1 404") == 1
            assert response.count(b"HTTP/1.1 200") == 1

    run(main())


def test_chunked_bodies_have_a_limit(run: Run) -> None:
    async def main() -> None:
        config = GatewayConfig(port=0, limits=Limits(max_body_bytes=1000))
        async with rig(always, config=config) as r:
            head = b"POST /v1/x HTTP/1.1\r\nhost: h\r\ntransfer-encoding: chunked\r\n\r\n"
            assert status(await r.ask(head + b"3e9\r\n" + b"x" * 10)) == 413
            assert status(await r.ask(post(b"x" * 1001))) == 413

    run(main())


def test_bodies_together_have_a_limit(run: Run) -> None:
    async def main() -> None:
        config = GatewayConfig(port=0, limits=Limits(buffered_body_bytes=1000))
        async with rig(always, config=config) as r:
            _, writer = await r.client()
            writer.write(post(b"x" * 900)[:-800])
            await r.until(lambda: r.gateway.plane.body_bytes == 900)
            response = await r.ask(post(b'{"model":"m"}' + b" " * 200))
            assert status(response) == 503
            assert b"\r\nretry-after: 1\r\n" in response
            assert r.accesses[-1].account == "shed"
            writer.close()
            await r.until(lambda: r.gateway.plane.body_bytes == 0)
            assert r.accesses[-1].account == "client_closed"

    run(main())


@pytest.mark.slow
def test_slow_heads_and_bodies_are_cut(run: Run) -> None:
    async def main() -> None:
        limits = Limits(head_timeout_s=0.2, body_timeout_s=0.2, keepalive_timeout_s=0.3)
        async with rig(always, config=GatewayConfig(port=0, limits=limits)) as r:
            assert status(await r.ask(b"POST /v1/x HTTP/1.1\r\n", 2)) == 408
            assert status(await r.ask(post(CHAT)[:-1], 2)) == 408
            assert await r.ask(b"", 2) == b""
            kept = await r.ask(post(CHAT, close=False), 2)
            assert status(kept) == 200

    run(main())


def test_models_and_health(run: Run) -> None:
    async def main() -> None:
        async with rig(always) as r:
            r.gateway.set_cards({ReplicaId("r0"): [{"id": "m", "x": 1}]})
            get = b"%b %b HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\r\n"
            assert b'"data":[{"id":"m","x":1}]' in await r.ask(get % (b"GET", b"/v1/models"))
            assert body_of(await r.ask(get % (b"GET", b"/v1/models/m"))) == b'{"id":"m","x":1}'
            assert status(await r.ask(get % (b"GET", b"/v1/models/none"))) == 404
            assert status(await r.ask(get % (b"GET", b"/health"))) == 200
            head = await r.ask(get % (b"HEAD", b"/v1/models"))
            assert body_of(head) == b""
            assert b"content-length: 4" in head
            assert {a.path for a in r.accesses} == {"/v1/models", "/v1/models/{id}", "/health"}

    run(main())


def test_cors(run: Run) -> None:
    async def main() -> None:
        config = GatewayConfig(port=0, cors=Cors(origins=("https://a.example",)))
        async with rig(always, config=config) as r:
            preflight = (
                b"OPTIONS /v1/chat/completions HTTP/1.1\r\nhost: h\r\norigin: %b\r\n"
                b"access-control-request-method: POST\r\nconnection: close\r\n\r\n"
            )
            response = await r.ask(preflight % b"https://a.example")
            assert status(response) == 204
            assert b"access-control-allow-origin: https://a.example" in response
            assert b"access-control-allow-methods" in response
            assert b"access-control" not in await r.ask(preflight % b"https://b.example")
            refused = await r.ask(post(b"{", lines="origin: https://a.example\r\n"))
            assert status(refused) == 400
            assert b"access-control-allow-origin: https://a.example" in refused

    run(main())


def test_without_cors_settings_there_are_no_cors_headers(run: Run) -> None:
    async def main() -> None:
        async with rig(always) as r:
            raw = b"OPTIONS * HTTP/1.1\r\nhost: h\r\norigin: x\r\nconnection: close\r\n\r\n"
            response = await r.ask(raw)
            assert status(response) == 204
            assert b"access-control" not in response
            assert b"allow: " in response

    run(main())


def test_many_immediate_answers_do_not_recurse(run: Run) -> None:
    async def main() -> None:
        async with rig(always) as r:
            one = b"GET /health HTTP/1.1\r\nhost: h\r\n\r\n"
            response = await r.ask(one * 3000 + one.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n"), 20)
            assert response.count(b"HTTP/1.1 200 OK") == 3001

    run(main())


def test_a_client_gone_while_its_body_is_read(run: Run) -> None:
    async def main() -> None:
        async with rig(always) as r:
            _, writer = await r.client()
            writer.write(post(CHAT)[:-5])
            await r.until(lambda: r.gateway.plane.body_bytes > 0)
            writer.close()
            await r.until(lambda: bool(r.accesses))
            assert (r.accesses[0].account, r.accesses[0].status) == ("client_closed", 499)

    run(main())


@interpreted
def test_a_fault_of_ours_is_not_a_client_that_left(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        faults: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _loop, context: faults.append(context))
        async with rig(always) as r:
            with monkeypatch.context() as patched:
                patched.setattr(exchange, "request_info", lambda *_args: 1 // 0)
                assert await r.ask(post(CHAT)) == b""
            assert isinstance(faults[0]["exception"], ZeroDivisionError)
            (access,) = r.accesses
            assert (access.account, access.status, access.code) == ("server_error", 500, "internal_error")
            assert status(await r.ask(post(CHAT))) == 200, "others are served"

    run(main())
