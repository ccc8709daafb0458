"""What clients, operators and strangers get to see: ids 121 to 139 of family J, B9 and B10.

What must hold: refusals hold no slot, say why in OpenAI's words and tell nothing about the fleet; metrics do not grow
with what clients invent; whatever is not allowed is denied.
"""

import asyncio
import itertools
import random
import re
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from headway.core.commands import Hold
from headway.core.constants import AdmissionConfig, BrainConfig, SchedulerConfig
from headway.gateway.config import Cors, GatewayConfig, Limits, Timeouts, UpstreamAuth
from tests.cases.house import (
    SEED,
    House,
    at_most,
    black_hole,
    case,
    open_house,
    patience,
    rounds,
    until,
    within,
)
from tests.cases.served import Served, free_port, open_app, process_case, served_case
from tests.harness import scripts
from tests.harness.client import Answer, RawClient, chat, request
from tests.harness.engine import ScriptedEngine

CHAT = "/v1/chat/completions"
REJECTED: dict[str, tuple[bytes, int]] = {
    "malformed_json": (request(body=b'{"model":'), 400),
    "unknown_model": (request(body=chat(model="nobody")), 404),
    "too_large": (request(body=chat(content="x" * 20_000)), 413),
    "nowhere": (request("/nowhere", body=chat()), 404),
    "method": (request(CHAT, method="DELETE"), 405),
    "content_type": (request(body=b"model=m", headers={"Content-Type": "application/x-www-form-urlencoded"}), 400),
    "form": (request(body=b"--x--", headers={"Content-Type": "multipart/form-data; boundary=x"}), 400),
    "head": (b"POST /v1 HTTP/1.1\r\n\r\n", 400),
}


@pytest.mark.parametrize("kind", REJECTED)
@case(scripts.answer(), config=GatewayConfig(port=0, limits=Limits(max_body_bytes=10_000)), brain=at_most(1))
async def test_what_is_refused_holds_no_slot(house: House, kind: str) -> None:
    """121: one slot; ten refusals, then a good request is served at once, not held."""
    data, status = REJECTED[kind]
    for _ in range(10):
        async with house.client() as client:
            await client.send(data)
            assert (await client.answer()).status == status
    assert (await house.ask(chat())).status == 200
    assert not [command for _, commands in house.journal for command in commands if isinstance(command, Hold)]
    await house.at_rest(started=11, ok=1, client_error=10)


PAGE = "https://app.example"
BROWSERS = GatewayConfig(port=0, cors=Cors(origins=(PAGE,)), limits=Limits(max_body_bytes=10_000))
PREFLIGHT = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization"}


@pytest.mark.parametrize("path", [CHAT, "/v1/models", "/v1/odd/path"])
@case(scripts.answer(), config=BROWSERS)
async def test_preflights_are_answered(house: House, path: str) -> None:
    """125: 204 with what is allowed, for allowed origins; others get no such line. No engine is asked."""
    async with house.client() as client:
        allowed = await client.ask(path, method="OPTIONS", headers={"Origin": PAGE, **PREFLIGHT})
        denied = await client.ask(path, method="OPTIONS", headers={"Origin": "https://evil.example", **PREFLIGHT})
        null = await client.ask(path, method="OPTIONS", headers={"Origin": "null", **PREFLIGHT})
        bare = await client.ask(path, method="OPTIONS")
    assert (allowed.status, allowed.message.get("access-control-allow-origin")) == (204, PAGE)
    assert "POST" in allowed.message.get("access-control-allow-methods")
    assert "authorization" in allowed.message.get("access-control-allow-headers")
    for other in (denied, null, bare):
        assert other.status == 204
        assert not [name for name, _ in other.message.headers if name.startswith("access-control")]
    assert not house.engine.log.inference


ERRORS: dict[str, tuple[Any, str, int]] = {
    "bad_json": (b"{", CHAT, 400),
    "unknown_model": (chat(model="x"), CHAT, 404),
    "nowhere": (chat(), "/nowhere", 404),
    "too_large": (chat(content="x" * 20_000), CHAT, 413),
    "engine": (chat(), CHAT, 401),
}


@pytest.mark.parametrize("kind", ERRORS)
@case(scripts.error(401, headers=["access-control-allow-origin: *", "vary: Accept"]), config=BROWSERS)
async def test_errors_can_be_read_by_browsers(house: House, kind: str) -> None:
    """125: refusals and the engine's errors carry the line, once, for allowed origins only."""
    body, path, status = ERRORS[kind]
    ours = await house.ask(body, path, headers={"Origin": PAGE})
    theirs = await house.ask(body, path, headers={"Origin": "https://evil.example"})
    assert (ours.status, theirs.status) == (status, status)
    assert ours.message.all("access-control-allow-origin") == [PAGE]
    assert theirs.message.all("access-control-allow-origin") == []
    assert "Origin" in ours.message.all("vary")


def series(page: bytes) -> set[bytes]:
    """Every series of a metrics page, without its value."""
    return {line.rpartition(b" ")[0] for line in page.splitlines() if line and not line.startswith(b"#")}


def word(chance: random.Random) -> str:
    """A name that nobody ever used."""
    return f"{chance.getrandbits(64):x}"


@pytest.mark.slow
@served_case(scripts.answer())
async def test_invented_names_cost_nothing(served: Served) -> None:
    """127, 128, B10: models, paths, methods, statuses, sessions: no series, no memory (once as many sessions are known
    as may be), and a quick page afterwards."""
    chance = random.Random(SEED)
    engine = served.engine

    async def some(count: int) -> None:
        async with served.client() as client:
            for _ in range(count):
                kind = chance.randrange(4)
                if kind == 0:
                    assert (await client.ask(body=chat(model=word(chance)))).status == 404
                elif kind == 1:
                    method = chance.choice(["GET", "PUT", word(chance).upper()])
                    assert (await client.ask(f"/v1x/{word(chance)}?{word(chance)}", method=method)).status == 404
                elif kind == 2:
                    engine.then(scripts.answer(status=f"{chance.choice([200, 201, 299, 418, 451, 499])} Odd"))
                    await client.ask(f"/v1/{word(chance)}", chat(), headers={"X-Session-Id": word(chance)})
                else:
                    headers = {"X-Session-Id": word(chance), "X-Request-Id": word(chance), "X-Odd": word(chance)}
                    assert (await client.ask(body=chat(user=word(chance)), headers=headers)).status == 200

    await some(rounds(80_000, 1_500))
    async with asyncio.timeout(10.0):
        while b'horizon="2s"' not in await served.page():  # noqa: ASYNC110 - judged once they are due
            await asyncio.sleep(0.1)
    before, memory = await served.page(), served.memory_bytes()
    await some(rounds(70_000, 1_500))
    began = time.perf_counter()
    page = await served.page()
    assert time.perf_counter() - began < within(0.1)
    assert not {line for line in series(page) - series(before) if b"status=" not in line}
    assert len(page) - len(before) < 4096
    assert served.memory_bytes() - memory < 6 * 2**20
    assert len([line for line in series(page) if b"headway_requests_total" in line]) < 60


SECRET = "zq9-planted-engine-key"
FAULTS = ("refused", "no_such_name", "tls", "connect_timeout", "first_byte_timeout", "idle_timeout", "reset", "garbage",
          "two_framings", "cut_stream", "long_label")  # fmt: skip
SHOWING = GatewayConfig(
    port=0, auth=UpstreamAuth(SECRET), timeouts=Timeouts(connect_s=0.2, first_byte_s=0.2, idle_s=0.2)
)


async def fault_of(house: House, fault: str) -> str:
    """Break the engine; the URL to register."""
    port = house.engine.port
    spoilt = {
        "first_byte_timeout": scripts.stall(),
        "idle_timeout": scripts.stall(scripts.STREAM_HEAD + scripts.chunk(scripts.token("a"))),
        "reset": scripts.cut(b"", "rst"),
        "garbage": scripts.raw(b"SSH-2.0-OpenSSH_9.2 on engine-host-17\r\n\r\n"),
        "two_framings": scripts.raw(scripts.STREAM_HEAD.replace(b"\r\n\r\n", b"\r\ncontent-length: 5\r\n\r\n")),
        "cut_stream": scripts.cut(scripts.STREAM_HEAD + scripts.chunk(scripts.token("a")), "rst"),
    }
    house.engine.script = spoilt.get(fault, scripts.answer())
    return {
        "refused": f"http://127.0.0.1:{free_port()}",
        "no_such_name": "http://engine-host-17.invalid:8000",
        "long_label": f"http://{'x' * 70}.invalid:8000",
        "tls": f"https://127.0.0.1:{port}",
    }.get(fault, house.engine.url)


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("streaming", [True, False])
@case(scripts.answer(), config=SHOWING)
async def test_errors_tell_nothing_about_the_fleet(house: House, fault: str, streaming: bool) -> None:
    """131: whatever goes wrong upstream, the client learns no address, no key and no internals; and soon enough."""
    url = await fault_of(house, fault)
    with black_hole() as hole:
        url = hole if fault == "connect_timeout" else url
        house.add(url, 0)
        for _ in range(3):
            began = time.perf_counter()
            answer = await house.ask(chat(streaming))
            assert time.perf_counter() - began < 4.0
            if fault in ("idle_timeout", "cut_stream"):
                assert answer.status == 200
                assert answer.failure is not None
                assert not answer.done
            else:
                assert answer.status in (502, 503, 504)
            raw = bytes(answer.message.raw)
            told = [url.split("/")[2], url.split("/")[2].partition(":")[0], SECRET, "zq9", "Traceback", ".py", "Error("]
            told += ["engine-host-17", str(house.engine.port), "r0", "errno", "Errno", "ssl", "SSL", "gaierror"]
            assert not [secret for secret in told if secret.encode() in raw]
    house.engine.log.malformed.clear()  # a TLS hello is no HTTP
    await house.at_rest(started=3, ok=0)


TOKEN = "zq9-planted-admin-token"


async def admin_ask(port: int, target: str, method: str = "GET", body: object = None, **headers: str) -> Answer:
    """One request to an admin port, the target as it is."""
    sent = {"Host": "localhost", **{name.replace("_", "-"): value for name, value in headers.items()}}
    async with RawClient(port) as client:
        return await client.ask(target, body, method=method, headers=sent)


FORBIDDEN = [
    "http://169.254.169.254/", "http://[fe80::1]/", "http://[::ffff:169.254.169.254]/", "http://2852039166/",
    "http://0xa9fea9fe/", "http://metadata.google.internal/", "file:///etc/passwd", "gopher://127.0.0.1:70/",
    "http://user:pass@127.0.0.1:{port}/", "http://user@127.0.0.1:{port}/", "ftp://127.0.0.1:{port}/",
    "//127.0.0.1:{port}/",
    "http://127.0.0.1:{port}/?x", "http://127.0.0.1:{port}/#x", "http://0.0.0.0:{port}/", "http://127.1:{port}/", "",
    "http://127.0.0.1:{port}/\r\nX: y", "javascript:alert(1)", "http:///x",
]  # fmt: skip


@process_case
async def test_registration_needs_the_token_and_takes_no_odd_addresses(folder: Path) -> None:
    """133: without the token 401; with it, what could reach into the network is refused without a connection."""
    engine = ScriptedEngine(scripts.answer(), scripts.vllm_paths())
    async with engine, open_app(admin={"port": 0, "token": TOKEN}) as app:
        wanted = {"url": engine.url, "engine": "vllm", "model": "m"}
        assert (await admin_ask(app.admin_port, "/replicas", "POST", wanted)).status == 401
        assert (await admin_ask(app.admin_port, "/replicas", "POST", wanted, Authorization="Bearer x")).status == 401
        for url in FORBIDDEN:
            bad = {"url": url.format(port=engine.port), "engine": "vllm", "model": "m"}
            got = await admin_ask(app.admin_port, "/replicas", "POST", bad, Authorization=f"Bearer {TOKEN}")
            assert got.status == 400, url
        assert not engine.log.accepted
        assert not app.gateway.snapshot().views
        got = await admin_ask(app.admin_port, "/replicas", "POST", wanted, Authorization=f"Bearer {TOKEN}")
        assert got.status == 201


@process_case
async def test_nobody_is_followed_elsewhere(folder: Path) -> None:
    """133: an engine that answers every probe with a redirect leads us nowhere."""
    async with ScriptedEngine(scripts.answer(), scripts.vllm_paths()) as target:
        away = scripts.raw(scripts.response(b"", "302 Found", headers=[f"location: {target.url}/health"]))
        async with ScriptedEngine(away) as engine, open_app() as app:
            got = await admin_ask(app.admin_port, "/replicas", "POST", {"url": engine.url})
            assert got.status == 400
            wanted = {"url": engine.url, "engine": "vllm", "model": "m"}
            assert (await admin_ask(app.admin_port, "/replicas", "POST", wanted)).status == 201
            await asyncio.sleep(0.2)
            async with RawClient(app.port) as client:
                assert (await client.ask(body=chat())).status == 302
        assert engine.log.requests
        assert not target.log.accepted


OPEN = {"/healthz", "/readyz"}
STRANGERS: tuple[dict[str, str], ...] = (
    {},
    {"Authorization": "Bearer wrong"},
    {"Authorization": f"Basic {TOKEN}"},
    {"Authorization": "Bearer"},
    {"X-Api-Key": TOKEN},
    {"Cookie": f"token={TOKEN}"},
    {"Host": "evil.example"},
)
SPELLINGS: tuple[Callable[[str], str], ...] = (
    lambda path: path,
    lambda path: "/" + path,
    lambda path: path + "/",
    lambda path: path.upper(),
    lambda path: path[:1] + f"%{ord(path[1:2] or '/'):02x}" + path[2:],
    lambda path: "/v1/.." + path,
    lambda path: "/." + path,
    lambda path: path + ";x=y",
    lambda path: path + "?token=" + TOKEN,
    lambda path: path + "%00",
    lambda path: "/healthz/.." + path,
)
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE")


@pytest.mark.slow
@process_case
async def test_every_admin_route_is_closed_to_strangers(folder: Path) -> None:
    """134, B9: every route of the app's own table, in every spelling, with every method, for all but the owner."""
    async with open_app(admin={"port": 0, "token": TOKEN}) as app:
        described = await admin_ask(app.admin_port, "/openapi.json", Authorization=f"Bearer {TOKEN}")
        paths = [*described.json["paths"], "/admin", "/docs", "/nowhere"]
        assert len(paths) > 10
        odd: list[tuple[str, str, int]] = []
        async with RawClient(app.admin_port) as client:
            for path, spell, method in itertools.product(paths, SPELLINGS, METHODS):
                target = spell(re.sub(r"\{[^}]*\}", "x", path))
                wanted = {"Host": "localhost", **STRANGERS[hash_of(target, method) % len(STRANGERS)]}
                answer = await client.ask(target, method=method, headers=wanted)
                if target.partition("?")[0] in OPEN or _decoded(target) in OPEN:
                    assert answer.status in (200, 405, 503), target
                elif answer.status != 401:
                    odd.append((method, target, answer.status))
        assert not odd


def hash_of(*words: str) -> int:
    """A number that depends on the words alone."""
    return random.Random("|".join(words)).getrandbits(16)


def _decoded(target: str) -> str:
    return re.sub("%([0-9a-f]{2})", lambda found: chr(int(found[1], 16)), target.partition("?")[0])


CONTROL = [
    "/sleep", "/wake_up", "/is_sleeping", "/reset_prefix_cache", "/abort_request", "/abort_requests", "/pause",
    "/resume", "/flush_cache", "/metrics", "/server_info", "/get_server_info", "/v1/load_lora_adapter",
    "/v1/unload_lora_adapter", "/update_weights", "/slots", "/slots/0", "/props", "/lora-adapters", "/start_profile",
    "/v1/start_profile", "/v1/loads", "/load", "/version",
    "/api/pull", "/api/delete", "/collective_rpc", "/healthz", "/readyz", "/fleet", "/replicas", "/openapi.json", "/",
]  # fmt: skip


@pytest.mark.slow
@case(scripts.answer())
async def test_no_control_path_of_an_engine_is_reachable(house: House) -> None:
    """B9 for the data port: engines' control paths and our own admin paths, in every spelling, with every method."""
    before = set(house.engine.log.hits)
    spellings = (*SPELLINGS, lambda path: "/v1/models/.." + path, lambda path: "/v1/%2e%2e" + path)
    odd = []
    async with house.client() as client:
        for path, spell, method in itertools.product(CONTROL, spellings, METHODS):
            answer = await client.ask(spell(path), chat() if method == "POST" else None, method=method)
            if method == "OPTIONS" and answer.status == 204:
                continue
            if answer.status not in (404, 405):
                odd.append((method, spell(path), answer.status))
    assert not odd
    assert set(house.engine.log.hits) == before
    assert not house.engine.log.inference


NAMES: dict[str, tuple[object, int]] = {
    "typo": ("mm", 404),
    "case": ("M", 404),
    "blanks": (" m ", 404),
    "empty": ("", 400),
    "null": (None, 400),
    "number": (5, 400),
    "path": ("../m", 404),
    "look_alike": ("\uff4d", 404),
    "nul": ("m\x00", 404),
    "megabyte": ("m" * 1_000_000, 400),
    "newline": ("m\r\nX-Evil: 1", 404),
    "markup": ("<script>", 404),
}


@pytest.mark.parametrize("kind", NAMES)
@case(scripts.answer())
async def test_an_unknown_model_is_404_and_no_engines_business(house: House, kind: str) -> None:
    """136: OpenAI's words, no engine is asked, and the name cannot break out of the answer."""
    name, status = NAMES[kind]
    answer = await house.ask({"model": name, "messages": []})
    assert answer.status == status
    error = answer.json["error"]
    assert error["type"] == "invalid_request_error"
    if status == 404:
        assert error["code"] == "model_not_found"
    assert len(answer.body) < 2_000
    assert "x-evil" not in dict(answer.message.headers)
    assert not house.engine.log.inference


@case(scripts.answer())
async def test_a_known_model_that_nobody_can_serve_is_503(house: House) -> None:
    """136: not 404: the name is right, it will be back."""
    house.engine.refuse()
    await house.engine.stop()
    answers = [await house.ask(chat()) for _ in range(5)]
    assert {answer.status for answer in answers} == {503}
    assert {answer.json["error"]["code"] for answer in answers} == {"no_replica"}
    assert all(int(answer.message.get("retry-after")) >= 1 for answer in answers)


@case(brain=at_most(1))
async def test_each_replica_gets_the_name_it_knows(house: House) -> None:
    """137: one alias, two replicas that call the model differently: each gets its own name, on a retry, too."""
    async with open_house(scripts.stall(), scripts.stall(), brain=at_most(1)) as inner:
        for number, own in enumerate(("small", "org/large")):
            inner.add(inner.engines[number].url, number, model=own, serves={"alias": own, own: own})
            inner.engines[number].script = scripts.stream(3)
        held = scripts.stall()
        for first, second in ((0, 1), (1, 0)):
            busy, free = inner.engines[first], inner.engines[second]
            busy.script, free.script = held, scripts.stream(3)
            async with inner.client() as blocker, inner.client() as client:
                own = ("small", "org/large")[first]
                await blocker.send(request(body=chat(stream=True, model=own)))
                await busy.wait_for(lambda log: log.running)
                answer = await client.ask(body=chat(stream=True, model="alias"))
                assert answer.done
            await until(lambda busy=busy: not busy.log.running)
        assert [seen_model(inner, number) for number in (0, 1)] == [["small", "small"], ["org/large", "org/large"]]
        inner.engine.script = scripts.error(500)
        inner.engines[1].script = scripts.answer()
        for _ in range(6):
            await inner.ask(chat(model="alias"))
        assert set(seen_model(inner, 1)) == {"org/large"}
        assert set(seen_model(inner, 0)) == {"small"}
        await inner.at_rest()


def seen_model(house: House, number: int) -> list[str]:
    """The names an engine was asked for."""
    return [
        re.findall(rb'"model": ?"([^"]*)"', seen.request.body)[0].decode()
        for seen in house.engines[number].log.inference
    ]


async def _full(house: House, client: RawClient) -> Answer:
    async with house.client() as first, house.client() as second:
        for other in (first, second):
            await other.send(request(body=chat()))
        await until(lambda: house.gateway.snapshot().queued == 1)
        return await client.ask(body=chat())


async def _waited(house: House, client: RawClient) -> Answer:
    async with house.client() as first:
        await first.send(request(body=chat()))
        await house.engine.wait_for(lambda log: log.running)
        return await client.ask(body=chat())


async def _bodies(house: House, client: RawClient) -> Answer:
    return await client.ask(body=chat(content="x" * 5_000))


async def _closing(house: House, client: RawClient) -> Answer:
    await client.send(request(body=chat()))
    await house.engine.wait_for(lambda log: log.running)
    stopping = asyncio.ensure_future(house.gateway.stop(0.0))
    answer = await client.answer()
    await stopping
    return answer


async def _unreachable(house: House, client: RawClient) -> Answer:
    await house.engine.stop()
    return await client.ask(body=chat())


async def _quarantined(house: House, client: RawClient) -> Answer:
    for engine in house.engines:
        engine.script = scripts.cut(b"", "rst")
    return await client.ask(body=chat())


SHEDS: dict[str, tuple[Callable[[House, RawClient], Awaitable[Answer]], str, str]] = {
    "full": (_full, "queue_full", "shed"),
    "waited": (_waited, "queue_timeout", "shed"),
    "bodies": (_bodies, "overloaded", "shed"),
    "closing": (_closing, "shutting_down", "shed"),
    "unreachable": (_unreachable, "no_replica", "server_error"),
    "quarantined": (_quarantined, "quarantined", "server_error"),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", SHEDS)
@case()
async def test_a_refusal_for_lack_of_room_says_when_to_come_back(house: House, kind: str) -> None:
    """139: 503, a code of its own, Retry-After of at least a second."""
    shed, code, account = SHEDS[kind]
    brain = BrainConfig(
        scheduler=SchedulerConfig(max_in_flight=1 if kind in ("full", "waited") else 0),
        admission=AdmissionConfig(max_queued=1, queue_timeout_s=0.2 if kind == "waited" else 30.0),
    )
    config = GatewayConfig(port=0, limits=Limits(buffered_body_bytes=4_000 if kind == "bodies" else 2**28))
    engines = [scripts.stall()] * (2 if kind == "quarantined" else 1)
    async with open_house(*engines, brain=brain, config=config) as inner:
        async with inner.client() as client:
            answer = await shed(inner, client)
        assert (answer.status, answer.json["error"]["code"]) == (503, code)
        assert answer.json["error"]["type"] == "server_error"
        assert re.fullmatch("[1-9][0-9]*", answer.message.get("retry-after"))
        await inner.at_rest()
        assert [access.code for access in inner.booked if access.account == account][-1] == code


@case(scripts.stall(), config=patience(first_byte_s=5.0), brain=at_most(1))
async def test_the_clients_own_deadline_is_kept(house: House) -> None:
    """139: a client that says how long it will wait is told in time, and not to come back."""
    async with house.client() as first:
        await first.send(request(body=chat()))
        await house.engine.wait_for(lambda log: log.running)
        began = time.perf_counter()
        answer = await house.ask(chat(), headers={"X-Request-Deadline-S": "0.1"})
        assert time.perf_counter() - began < 2.0
    assert (answer.status, answer.json["error"]["code"]) == (504, "deadline")
    assert not answer.message.all("retry-after")
