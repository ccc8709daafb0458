"""The gateway as a whole: addresses, TLS on both sides, path prefixes, IPv6, Host, forwarding, a stop."""

import asyncio
import gc
import socket
import ssl
from collections.abc import Callable
from typing import Any

import pytest
import trustme

from headway.core.events import ReplicasChanged
from headway.core.ids import ReplicaId
from headway.core.replica import ReplicaSpec
from headway.gateway.config import GatewayConfig
from headway.gateway.exchange import Exchange
from headway.runtime.clock import now
from tests.gateway.fakes import CHAT, Connection, Engine, always, answer, post, rig
from tests.interpreted import interpreted

Run = Callable[[Any], Any]


async def fails(connection: Connection) -> None:
    """Answers every request with an error."""
    await connection.send(answer(b"{}", "500 Oops"))


def contexts() -> tuple[ssl.SSLContext, ssl.SSLContext]:
    authority = trustme.CA()
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1", "localhost").configure_cert(server)
    client = ssl.create_default_context()
    authority.configure_trust(client)
    return server, client


@pytest.mark.slow
def test_tls_on_both_sides(run: Run) -> None:
    async def main() -> None:
        server, client = contexts()
        async with rig(always, config=GatewayConfig(port=0, server_tls=server, client_tls=client)) as r:
            engine = Engine(always)
            await engine.start(ssl=server)
            r.gateway.post(
                ReplicasChanged(now(), (ReplicaSpec(ReplicaId("t"), f"https://127.0.0.1:{engine.port}/x/"),))
            )
            r.brain.replicas = [ReplicaId("t")]
            reader, writer = await asyncio.open_connection("127.0.0.1", r.gateway.port, ssl=client)
            writer.write(post(CHAT))
            response = await reader.read()
            assert response.startswith(b"HTTP/1.1 200 OK")
            writer.close()
            assert engine.requests[0].startswith(b"POST /x/v1/chat/completions HTTP/1.1\r\n")
            assert b"X-Forwarded-Proto: https" in engine.requests[0]
            await engine.stop()

    run(main())


def test_an_untrusted_engine_is_a_failure_to_connect(run: Run) -> None:
    async def main() -> None:
        server, _ = contexts()
        async with rig(always) as r:
            engine = Engine(always)
            await engine.start(ssl=server)
            r.gateway.post(ReplicasChanged(now(), (ReplicaSpec(ReplicaId("t"), f"https://127.0.0.1:{engine.port}"),)))
            r.brain.replicas = [ReplicaId("t"), ReplicaId("r0")]
            assert (await r.ask(post(CHAT))).startswith(b"HTTP/1.1 200")
            assert r.brain.outcomes[0].kind == "connect_failed"
            await engine.stop()

    run(main())


def has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


@pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6 loopback")
@pytest.mark.parametrize("six", ["::1", "[::1]"])
def test_ipv6_and_several_addresses(run: Run, six: str) -> None:
    async def main() -> None:
        async with rig(always, config=GatewayConfig(host=f"127.0.0.1, {six}", port=0)) as r:
            engine = Engine(always)
            await engine.start(host="::1")
            r.gateway.post(ReplicasChanged(now(), (ReplicaSpec(ReplicaId("six"), f"http://[::1]:{engine.port}"),)))
            r.brain.replicas = [ReplicaId("six")]
            reader, writer = await asyncio.open_connection("::1", r.gateway.port)
            writer.write(post(CHAT))
            assert (await reader.read()).startswith(b"HTTP/1.1 200 OK")
            writer.close()
            assert b"\r\nHost: [::1]:%d\r\n" % engine.port in engine.requests[0]
            assert b"X-Forwarded-For: ::1" in engine.requests[0]
            assert (await r.ask(post(CHAT))).startswith(b"HTTP/1.1 200 OK")
            await engine.stop()

    run(main())


def test_host_may_be_preserved_and_a_balancer_trusted(run: Run) -> None:
    async def main() -> None:
        config = GatewayConfig(port=0, preserve_host=True, trust_forwarded=True)
        async with rig(always, config=config) as r:
            await r.ask(
                post(CHAT, lines="x-forwarded-for: 9.9.9.9\r\nx-forwarded-proto: https\r\nforwarded: for=x\r\n")
            )
            head = r.engines[0].requests[0].lower()
            assert b"\r\nhost: gateway\r\n" in head
            assert b"\r\nx-forwarded-for: 9.9.9.9, 127.0.0.1\r\n" in head
            assert b"\r\nx-forwarded-proto: https\r\n" in head
            assert b"\r\nforwarded: for=x\r\n" in head

    run(main())


def test_forged_forwarding_is_dropped(run: Run) -> None:
    async def main() -> None:
        async with rig(always) as r:
            await r.ask(post(CHAT, lines="x-forwarded-for: 9.9.9.9\r\nx-forwarded-host: evil\r\nforwarded: for=x\r\n"))
            head = r.engines[0].requests[0].lower()
            assert head.count(b"x-forwarded-for") == 1
            assert b"9.9.9.9" not in head
            assert b"evil" not in head
            assert b"\r\nforwarded" not in head

    run(main())


def test_readiness_and_stop(run: Run) -> None:
    async def main() -> None:
        async with rig(always) as r:
            assert r.gateway.ready
            assert r.gateway.port > 0
            kept_reader, kept = await r.client()
            kept.write(post(CHAT, close=False))
            await kept_reader.readuntil(b"}}")
            start = now()
            await r.gateway.stop(5.0)
            assert now() - start < 1.0
            assert not r.gateway.ready
            assert await kept_reader.read() == b""
            kept.close()
            with pytest.raises(OSError, match=r"refused|Connect"):
                await r.client()

    run(main())


@pytest.mark.slow
def test_ten_thousand_times_the_engine_closes_as_it_answers(run: Run) -> None:
    served = [0]

    async def closing(connection: Connection) -> None:
        served[0] += 1
        await connection.send(answer())
        if served[0] % 2:
            connection.writer.close()
        elif served[0] % 5 == 0:
            connection.reset()

    async def main() -> None:
        async with rig(closing) as r:
            for _ in range(500):
                assert (await r.ask(post(CHAT))).startswith(b"HTTP/1.1 200 OK")
            assert served[0] == 500

    run(main())


@interpreted
@pytest.mark.parametrize("script", [always, fails])
def test_no_body_is_kept_after_the_end(run: Run, script: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    bodies: list[bytes] = []
    begin = Exchange.begin

    def noting(exchange: Exchange) -> None:
        bodies.append(exchange.body)
        begin(exchange)

    monkeypatch.setattr(Exchange, "begin", noting)

    async def main() -> None:
        async with rig(script) as r:
            _, writer = await r.client()
            writer.write(post(CHAT, close=False))
            await r.until(lambda: bool(r.accesses))
            await asyncio.sleep(0.03)
            gc.collect()
            assert [holder for holder in gc.get_referrers(bodies[0]) if holder is not bodies] == []
            assert r.gateway.plane.body_bytes == 0
            writer.close()

    run(main())


def test_a_clients_id_that_is_used_twice_means_the_latest_request(run: Run) -> None:
    async def hang(connection: Connection) -> None:
        await connection.reader.read()

    async def main() -> None:
        async with rig(hang) as r:
            clients = []
            for number in (1, 2):
                clients.append(await r.client())
                clients[-1][1].write(post(CHAT, lines="x-request-id: same\r\n"))
                await r.until(lambda number=number: len(r.gateway.plane.driver.exchanges) == number)
            first, last = r.gateway.plane.driver.exchanges
            assert r.gateway.running("same") == last
            assert r.gateway.running(first) == first
            for _, writer in clients:
                writer.close()

    run(main())
