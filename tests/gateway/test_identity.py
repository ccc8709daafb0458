"""From credentials to tenants; over sockets: who is refused, and how soon a change is felt."""

import asyncio
import hashlib
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.core.tenant import Tenant, Tier
from headway.gateway.config import Cors, GatewayConfig, Limits, UpstreamAuth
from headway.gateway.head import HeadReader, Refusal, RequestHead
from headway.gateway.identity import (
    ANYBODY,
    CONFLICTING,
    MISSING,
    SCHEME,
    WRONG,
    Identities,
    Identity,
    session_of,
)
from tests.gateway.fakes import CHAT, Rig, always, post, rig

Run = Callable[[Any], Any]

ANN, BOB = "hw-ann-key", "hw-bob-key"
TENANTS = (Tenant("ann", tier=Tier.HIGH, models=("m",)), Tenant("bob"))


def digest(key: str) -> bytes:
    return hashlib.sha256(key.encode()).digest()


KNOWN = Identities({digest(ANN): "ann", digest(BOB): "bob"}, TENANTS)


def who(*lines: str, identities: Identities = KNOWN) -> Identity | Refusal:
    head, _ = HeadReader().request("\r\n".join(("GET / HTTP/1.1", "host: h", *lines, "", "")).encode("latin-1"))
    assert isinstance(head, RequestHead)
    return identities.of(head)


@pytest.mark.parametrize(
    "lines",
    [
        (f"authorization: Bearer {ANN}",),
        (f"Authorization: bearer   {ANN} ",),
        (f"x-api-key: {ANN}",),
        (f"API-Key: {ANN}",),
        (f"authorization: Bearer {ANN}", f"x-api-key: {ANN}"),
        (f"x-api-key: {ANN}", "authorization: "),
        (f"x-api-key: {ANN}", "authorization: Bearer "),
        (f"authorization: Bearer {ANN}", "api-key:"),
    ],
)
def test_a_key_is_taken_from_where_clients_put_it(lines: tuple[str, ...]) -> None:
    found = who(*lines)
    assert isinstance(found, Identity)
    assert (found.tenant, found.tier, found.models) == ("ann", 1, {"m"})


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        ((), MISSING),
        (("authorization:",), MISSING),
        (("authorization: Bearer",), MISSING),
        (("x-api-key: ",), MISSING),
        ((f"cookie: key={ANN}",), MISSING),
        ((f"authorization: Basic {ANN}",), SCHEME),
        ((f"authorization: {ANN}",), SCHEME),
        ((f"authorization: Basic x, Bearer {ANN}",), SCHEME),
        (("authorization: Basic x", f"x-api-key: {ANN}"), SCHEME),
        ((f"authorization: Bearer {ANN[:-1]}",), WRONG),
        ((f"authorization: Bearer {ANN}x",), WRONG),
        ((f"authorization: Bearer {ANN.upper()}",), WRONG),
        ((f"authorization: Bearer {ANN}, Bearer {ANN}",), WRONG),
        ((f"authorization: Bearer {digest(ANN).hex()}",), WRONG),
        (("authorization: Bearer \xe4\xff",), WRONG),
        ((f"authorization: Bearer {ANN}", f"x-api-key: {BOB}"), CONFLICTING),
        ((f"authorization: Bearer {ANN}", "x-api-key: wrong"), CONFLICTING),
    ],
)
def test_everything_else_is_a_stranger(lines: tuple[str, ...], why: Refusal) -> None:
    assert who(*lines) is why
    assert (why.status, why.code) == (401, "invalid_api_key")


def test_without_keys_everybody_is_served_and_with_none_yet_nobody() -> None:
    assert who(f"authorization: Bearer {ANN}", identities=Identities()) is ANYBODY
    assert who(identities=Identities()) is ANYBODY
    assert who(f"authorization: Bearer {ANN}", identities=Identities({})) is WRONG


def test_a_tenant_without_limits_is_one_all_the_same() -> None:
    found = who("api-key: x", identities=Identities({digest("x"): "new"}))
    assert isinstance(found, Identity)
    assert (found.tenant, found.tier, found.models) == ("new", 0, frozenset())


def test_nothing_shows_a_key() -> None:
    assert repr(KNOWN) == "<Identities 2 keys>"
    assert repr(Identities()) == "<Identities open>"
    assert [repr(Identity("ann")), repr(ANYBODY)] == ["<Identity ann>", "<Identity anybody>"]


@given(st.binary(max_size=60).map(lambda raw: raw.translate(None, bytes(range(32)) + b"\x7f")))
def test_no_key_but_the_right_one_is_right(raw: bytes) -> None:
    key = raw.strip(b" ").decode("latin-1")
    expected = MISSING if not key else ANYBODY if key in (ANN, BOB) else WRONG
    assert who(f"x-api-key: {key}") is expected


def test_sessions_of_two_tenants_are_two_and_tell_nothing() -> None:
    keys = {session_of(tenant, key) for tenant in ("", "ann", "bob") for key in ("s1", "s2", "ann")}
    assert len(keys) == 9
    assert session_of("ann", "") == ""
    assert all(len(key) == 16 and not set("sn") & set(key) for key in keys)


def asking(key: str = "", body: bytes = CHAT, path: str = "/v1/chat/completions", lines: str = "") -> bytes:
    return post(body, path, f"authorization: Bearer {key}\r\n{lines}" if key else lines)


def at_a_gateway(scene: Callable[[Rig], Any], run: Run, **config: Any) -> None:
    async def main() -> None:
        async with rig(always, config=GatewayConfig(port=0, **config)) as r:
            r.gateway.set_identities(KNOWN)
            await scene(r)
            assert all(b"hw-" not in request for request in r.engines[0].requests)

    run(main())


def test_a_stranger_is_told_so_and_no_engine_is_asked(run: Run) -> None:
    async def scene(r: Rig) -> None:
        for request in (asking(), asking("wrong"), asking("wrong", lines=f"x-api-key: {ANN}\r\n"), asking(path="/x")):
            answer = await r.ask(request)
            head, _, body = answer.partition(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 401 Unauthorized\r\n")
            assert b"\r\nwww-authenticate: Bearer" in head
            assert b'"type":"invalid_request_error"' in body
            assert b'"code":"invalid_api_key"' in body
        assert not r.engines[0].requests
        assert not r.brain.requests
        assert {(a.status, a.account, a.tenant, a.code) for a in r.accesses} == {
            (401, "client_error", "", "invalid_api_key")
        }

    at_a_gateway(scene, run)


def test_who_is_known_is_served_and_named(run: Run) -> None:
    async def scene(r: Rig) -> None:
        asked = "x-priority: low\r\nx-policy: p2c\r\nx-min-precision: bf16\r\nx-session-id: s1\r\n"
        assert (await r.ask(asking(ANN, lines=asked))).startswith(b"HTTP/1.1 200")
        assert (await r.ask(asking(BOB, b'{"model":"m","user":"u1","prompt":"x"}'))).startswith(b"HTTP/1.1 200")
        ann, bob = (arrived.request for arrived in r.brain.requests.values())
        assert (ann.tenant, ann.tier, ann.policy, ann.precision_floor) == ("ann", -1, "p2c", "bf16")
        assert ann.session_key == session_of("ann", "s1")
        assert (bob.tenant, bob.tier, bob.policy, bob.precision_floor) == ("bob", 0, "", "")
        assert bob.session_key == session_of("bob", "u1")
        assert [access.tenant for access in r.accesses] == ["ann", "bob"]
        sent = r.engines[0].requests[0].lower()
        assert not [name for name in (b"x-priority", b"x-policy", b"x-min-precision") if name in sent]

    at_a_gateway(scene, run)


@pytest.mark.parametrize(("size", "lines"), [(9, "expect: 100-continue\r\n"), (200_000, ""), (9, "expect: odd\r\n")])
def test_a_strangers_body_is_neither_waited_for_nor_judged(run: Run, size: int, lines: str) -> None:
    async def scene(r: Rig) -> None:
        reader, writer = await r.client()
        head, _, _ = asking("wrong", b"x" * size, lines=lines).partition(b"\r\n\r\n")
        writer.write(head + b"\r\n\r\n")
        async with asyncio.timeout(1.0):
            assert (await reader.read(20)).startswith(b"HTTP/1.1 401")
        writer.close()

    at_a_gateway(scene, run, limits=Limits(max_body_bytes=100_000))


def test_models_are_the_tenants_own(run: Run) -> None:
    async def scene(r: Rig) -> None:
        r.gateway.set_cards({r.brain.replicas[0]: [{"id": "m"}, {"id": "other"}]})

        async def get(path: str, key: str) -> bytes:
            request = f"GET {path} HTTP/1.1\r\nhost: h\r\nconnection: close\r\nauthorization: Bearer {key}\r\n\r\n"
            return await r.ask(request.encode())

        assert b'"other"' in await get("/v1/models", BOB)
        mine = await get("/v1/models", ANN)
        assert b'"m"' in mine
        assert b'"other"' not in mine
        assert (await get("/v1/models/other", BOB)).startswith(b"HTTP/1.1 200")
        assert (await get("/v1/models/m", ANN)).startswith(b"HTTP/1.1 200")
        assert (await get("/v1/models/other", ANN)).startswith(b"HTTP/1.1 404")

    async def main() -> None:
        async with rig(always, config=GatewayConfig(port=0), serves={"m": "m", "other": "other"}) as r:
            r.gateway.set_identities(KNOWN)
            await scene(r)

    run(main())


def test_a_revoked_key_is_felt_on_connections_that_stay(run: Run) -> None:
    """The same head again on the same connection is recognised by its bytes: that must not outlive the key."""

    async def scene(r: Rig) -> None:
        reader, writer = await r.client()
        request = post(CHAT, lines=f"authorization: Bearer {ANN}\r\n", close=False)

        async def status() -> bytes:
            writer.write(request)
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
            await reader.readexactly(length)
            return head[9:12]

        assert [await status(), await status()] == [b"200", b"200"]
        r.gateway.set_identities(Identities({digest(BOB): "bob"}, TENANTS))
        assert [await status(), await status()] == [b"401", b"401"]
        r.gateway.set_identities(KNOWN)
        assert await status() == b"200"
        writer.close()

    at_a_gateway(scene, run)


def test_health_is_open_and_preflights_come_before_keys(run: Run) -> None:
    async def scene(r: Rig) -> None:
        health = b"GET /health HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\r\n"
        assert (await r.ask(health)).startswith(b"HTTP/1.1 200")
        preflight = b"OPTIONS /v1/chat/completions HTTP/1.1\r\nhost: h\r\nconnection: close\r\norigin: https://a\r\n"
        answer = await r.ask(preflight + b"access-control-request-method: POST\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 204")
        assert b"access-control-allow-origin: https://a" in answer
        refused = await r.ask(asking("wrong", lines="origin: https://a\r\n"))
        assert refused.startswith(b"HTTP/1.1 401")
        assert b"access-control-allow-origin: https://a" in refused

    at_a_gateway(scene, run, cors=Cors(("https://a",)))


def test_a_session_header_that_is_a_credential_goes_no_further(run: Run) -> None:
    async def scene(r: Rig) -> None:
        assert (await r.ask(asking(ANN, lines=f"api-key: {ANN}\r\n"))).startswith(b"HTTP/1.1 200")
        assert b"Bearer engine" in r.engines[0].requests[0]
        (arrived,) = r.brain.requests.values()
        assert arrived.request.session_key == session_of("ann", f"Bearer {ANN}")

    at_a_gateway(scene, run, session_headers=("authorization",), auth=UpstreamAuth("engine"))
