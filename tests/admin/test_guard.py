"""B9, case 134: every route of the app's own table, in odd spellings, by every method and identity. Deny by default."""

import asyncio
from urllib.parse import unquote

import pytest
from starlette.applications import Starlette
from starlette.routing import Route

from headway.admin import binding_problem, make_app
from headway.admin.guard import OPEN, is_loopback
from headway.telemetry import Telemetry
from tests.admin.asgi import call
from tests.admin.fakes import FakeControl

TOKEN = "correct-horse"
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "BREW")
STRANGERS: dict[str, list[tuple[str, str]]] = {
    "nobody": [],
    "empty": [("authorization", "")],
    "no scheme": [("authorization", TOKEN)],
    "other scheme": [("authorization", f"Basic {TOKEN}")],
    "wrong": [("authorization", "Bearer wrong-horse")],
    "prefix": [("authorization", f"Bearer {TOKEN[:-1]}")],
    "longer": [("authorization", f"Bearer {TOKEN}x")],
    "twice": [("authorization", f"Bearer {TOKEN}"), ("authorization", f"Bearer {TOKEN}")],
    "other header": [("x-api-key", TOKEN)],
    "latin-1": [("authorization", "Bearer \xe9\xff")],
    "huge": [("authorization", "Bearer " + "x" * 200_000)],
}


def paths() -> list[str]:
    app = make_app(FakeControl(), Telemetry(), TOKEN).app
    assert isinstance(app, Starlette)
    return [route.path.replace("{id:path}", "a") for route in app.routes if isinstance(route, Route)]


def odd_spellings(path: str) -> list[str]:
    letter = next((i for i, c in enumerate(path) if c.isalpha()), None)
    encoded = [f"{path[:letter]}%{ord(path[letter]):02x}{path[letter + 1 :]}"] if letter is not None else []
    return [path, "/" + path, path + "/", path.upper(), "/v1/.." + path, path + "?x=1", path + ";x", *encoded]


def test_the_table_is_what_we_think() -> None:
    assert {"/", "/metrics", "/fleet", "/replicas", "/replicas/a/drain", "/requests/a/explain"} <= set(paths())


@pytest.mark.parametrize("identity", STRANGERS)
def test_strangers_get_nothing_but_health(identity: str) -> None:
    control = FakeControl()
    app = make_app(control, Telemetry(), TOKEN)
    for path in paths():
        for spelling in odd_spellings(path):
            for method in METHODS:
                asked = spelling.partition("?")[0]
                status = call(app, method, asked, STRANGERS[identity]).status
                if unquote(asked) in OPEN:
                    assert status == (200 if method in ("GET", "HEAD") else 405), (method, spelling)
                else:
                    assert status == 401, (method, spelling)
    assert not control.added
    assert not control.removed
    assert not control.drained


def test_the_token_opens_every_route() -> None:
    app = make_app(FakeControl(), Telemetry(), TOKEN)
    headers = [("authorization", f"bearer  {TOKEN}")]
    for path in paths():
        assert call(app, "GET", path, headers, host="any.example").status in (200, 404, 405), path
    assert call(app, "GET", "/fleet", headers).status == 200


@pytest.mark.parametrize(
    "host", ["localhost", "localhost:8801", "127.0.0.1:8801", "[::1]:8801", "127.9.9.9", "LOCALHOST."]
)
def test_without_a_token_loopback_names_are_answered(host: str) -> None:
    assert call(make_app(FakeControl(), Telemetry()), "GET", "/fleet", host=host).status == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "localhost.evil.example", "10.0.0.1", "127.0.0.1.evil.example:80", "", None]
)
def test_dns_rebinding_is_refused(host: str | None) -> None:
    app = make_app(FakeControl(), Telemetry())
    assert call(app, "GET", "/fleet", host=host).status == 403
    assert call(app, "GET", "/healthz", host=host).status == 200


def test_two_hosts_are_refused() -> None:
    app = make_app(FakeControl(), Telemetry())
    assert call(app, "GET", "/fleet", [("host", "localhost")]).status == 403


def test_web_pages_of_other_origins_cannot_act() -> None:
    control = FakeControl()
    app = make_app(control, Telemetry())
    for origin in ("https://evil.example", "null", "http://127.0.0.1:9999", "http://[", "http://[::1", "\xff"):
        assert call(app, "POST", "/replicas/a/drain", [("origin", origin)]).status == 403
    assert not control.drained
    assert call(app, "POST", "/replicas/a/drain", [("origin", "http://127.0.0.1:8801")]).status == 200


def test_websockets_are_refused() -> None:
    sent = []

    async def send(message: object) -> None:
        sent.append(message)

    async def receive() -> dict[str, str]:
        return {"type": "websocket.connect"}

    scope = {"type": "websocket", "path": "/fleet", "headers": [], "extensions": {"websocket.http.response": {}}}
    asyncio.run(make_app(FakeControl(), Telemetry())(scope, receive, send))  # type: ignore[arg-type]
    assert sent[0]["status"] == 403  # type: ignore[index]


@pytest.mark.parametrize(
    ("host", "token", "fine"),
    [
        ("127.0.0.1", "", True),
        ("::1", "", True),
        ("[::1]", "", True),
        ("localhost", "", True),
        ("0.0.0.0", "", False),
        ("::", "", False),
        ("10.1.2.3", "", False),
        ("admin.example", "", False),
        ("0.0.0.0", "t", True),
    ],
)
def test_only_loopback_may_do_without_a_token(host: str, token: str, fine: bool) -> None:
    assert (binding_problem(host, token) == "") is fine


def test_loopback() -> None:
    assert is_loopback("127.0.0.53")
    assert not is_loopback("128.0.0.1")
    assert not is_loopback("localhost.example")
