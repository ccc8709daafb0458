"""Who is known and what strangers learn: ids 118 to 140 of family J as far as keys are concerned, B8, B9, B10.

What must hold: without a key nothing is served but health and preflights, however a request is spelt; what one tenant
does is never seen by another; and no credential and no prompt is ever written down, whatever the log level.
"""

import asyncio
import gc
import itertools
import json
import os
import random
import re
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from headway.compose.keyfile import change, revoked
from headway.core.brain import Brain
from headway.core.commands import Dispatch, Hold
from headway.core.constants import BrainConfig
from headway.core.events import AttemptFinished, ProbeSucceeded, ReplicasChanged, RequestArrived, TenantsChanged
from headway.core.ids import ReplicaId, RequestId
from headway.core.outcome import Outcome, OutcomeKind
from headway.core.replica import ReplicaSpec
from headway.core.request import RequestInfo
from headway.core.tenant import Tenant, Tier
from headway.gateway.config import Cors, GatewayConfig, Limits
from headway.policies import headroom
from tests.cases.house import SEED, House, case, rounds, until
from tests.cases.served import open_app, process_case, serving
from tests.cases.tenants import admit, bearer, closed, given_out
from tests.compose.processes import command
from tests.harness import scripts
from tests.harness.client import RawClient, chat, request
from tests.harness.engine import ScriptedEngine

CHAT = "/v1/chat/completions"
ANN, BOB = Tenant("ann"), Tenant("bob")


def arrived(house: House) -> list[RequestInfo]:
    """What the brain was told of each request."""
    return [event.request for event, _ in house.journal if isinstance(event, RequestArrived)]


# Limits of a tenant.


@case(scripts.stall())
async def test_a_bound_on_requests_at_once_is_no_rate(house: House) -> None:
    """118: ten at once, whatever the rate; one more than that is told so, and each that ends lets one in at once."""
    admit(house, Tenant("ann", max_concurrent=10), BOB)
    async with asyncio.TaskGroup() as group:
        clients = [RawClient(house.gateway.port) for _ in range(30)]

        async def one(client: RawClient, number: int) -> int:
            async with client:
                await asyncio.sleep(number * 0.01)
                await client.send(request(body=chat(), headers=bearer("ann")))
                if number < 10:
                    await asyncio.sleep(0.5)
                    return 0
                answer = await client.answer()
                assert answer.json["error"]["code"] == "concurrency_limit"
                assert int(answer.message.get("retry-after")) >= 1
                return answer.status

        statuses = [group.create_task(one(client, number)) for number, client in enumerate(clients)]
    assert {task.result() for task in statuses[10:]} == {429}
    assert house.engine.log.peak == 10
    await until(lambda: not house.engine.log.running)
    house.engine.script = scripts.answer()
    assert (await house.ask(chat(), headers=bearer("ann"))).status == 200


@pytest.mark.slow
@case(scripts.stream(50, gap_s=0.002))
async def test_a_stream_that_is_left_gives_its_slot_back(house: House) -> None:
    """119: one at once; a stream left at any moment, and the next request is served at once."""
    admit(house, Tenant("ann", max_concurrent=1))
    chance = random.Random(SEED)
    for _ in range(rounds(1_000, 25)):
        async with house.client() as client:
            await client.send(request(body=chat(stream=True), headers=bearer("ann")))
            await asyncio.sleep(chance.random() * 0.06)
            client.rst() if chance.random() < 0.5 else client.close()
        await until(lambda: not house.gateway.snapshot().in_flight)
        house.engine.then(scripts.answer())
        assert (await house.ask(chat(), headers=bearer("ann"))).status == 200


REJECTED: dict[str, tuple[bytes, int]] = {
    "malformed_json": (request(body=b'{"model":', headers=bearer("ann")), 400),
    "unknown_model": (request(body=chat(model="nobody"), headers=bearer("ann")), 404),
    "too_large": (request(body=chat(content="x" * 20_000), headers=bearer("ann")), 413),
    "nowhere": (request("/nowhere", body=chat(), headers=bearer("ann")), 404),
    "stranger": (request(body=chat(), headers=bearer("eve")), 401),
}


@pytest.mark.parametrize("kind", REJECTED)
@case(scripts.answer(), config=GatewayConfig(port=0, limits=Limits(max_body_bytes=10_000)))
async def test_a_refused_request_holds_no_slot_of_its_tenant(house: House, kind: str) -> None:
    """121: one at once; five refusals, then a good request is served, not held."""
    admit(house, Tenant("ann", max_concurrent=1))
    data, status = REJECTED[kind]
    for _ in range(5):
        async with house.client() as client:
            await client.send(data)
            assert (await client.answer()).status == status
    assert (await house.ask(chat(), headers=bearer("ann"))).status == 200
    assert not [command for _, commands in house.journal for command in commands if isinstance(command, Hold)]


LIMITED: dict[str, tuple[Tenant, int, str]] = {
    "concurrent": (Tenant("ann", max_concurrent=1), 429, "concurrency_limit"),
    "requests": (Tenant("ann", requests_per_s=0.1, burst_s=1.0), 429, "rate_limit_exceeded"),
    "tokens": (Tenant("ann", tokens_per_s=1.0, burst_s=1.0), 429, "rate_limit_exceeded"),
    "model": (Tenant("ann", models=("other",)), 404, "model_not_found"),
    "policy": (Tenant("ann", policies=("p2c",)), 403, "policy_not_allowed"),
}


@pytest.mark.parametrize("limit", LIMITED)
@case(scripts.stall())
async def test_each_limit_says_which_it_is_and_when_to_come_back(house: House, limit: str) -> None:
    """139: a status and a code for each, Retry-After in whole seconds where time helps; nobody else is concerned."""
    tenant, status, code = LIMITED[limit]
    admit(house, tenant, BOB)
    async with house.client() as first:
        await first.send(request(body=chat(), headers=bearer("ann", x_policy="headroom" if limit == "policy" else "")))
        if status == 429:
            await house.engine.wait_for(lambda log: log.running)
        async with house.client() as client:
            answer = await client.ask(body=chat(), headers=bearer("ann", x_policy="headroom"))
        assert (answer.status, answer.json["error"]["code"]) == (status, code)
        assert (answer.json["error"]["type"] == "rate_limit_error") == (status == 429)
        if status == 429:
            assert int(answer.message.get("retry-after")) >= 1
        else:
            assert not answer.message.get("retry-after")
        house.engine.then(scripts.answer())
        assert (await house.ask(chat(), headers=bearer("bob"))).status == 200


# What tenants see of each other.


@case(scripts.answer())
async def test_tenants_share_nothing_that_is_remembered(house: House) -> None:
    """124: the same request of two tenants reaches the engine twice, with nothing in the answers that tells of the
    other; one session key of two tenants is two sessions, in headers and in bodies."""
    admit(house, ANN, BOB)
    answers = []
    for tenant in ("ann", "bob"):
        answers.append(await house.ask(chat(), headers=bearer(tenant, X_Session_Id="s1", X_Request_Id="same")))
        answers.append(await house.ask(chat(user="s2"), headers=bearer(tenant)))
    assert [answer.status for answer in answers] == [200] * 4
    assert len(house.engine.log.inference) == 4
    named = [{name for name, _ in answer.message.headers} for answer in answers]
    assert all(names == named[0] for names in named)
    assert not [name for name in named[0] if "cache" in name or "tenant" in name]
    infos = arrived(house)
    assert [info.tenant for info in infos] == ["ann", "ann", "bob", "bob"]
    assert len({info.session_key for info in infos}) == 4
    assert [access.tenant for access in house.booked] == ["ann", "ann", "bob", "bob"]


@case(scripts.answer())
async def test_a_tenant_sees_its_own_models_only(house: House) -> None:
    """124, 136: others are not listed, not to be had, and not told from such that do not exist."""
    house.gateway.set_cards({house.gateway.snapshot().views[0].spec.id: [{"id": "m"}]})
    admit(house, Tenant("ann", models=("m",)), Tenant("bob", models=("x",)))
    seen = {}
    async with house.client() as client:
        for tenant in ("ann", "bob"):
            listed = await client.ask("/v1/models", headers=bearer(tenant))
            card = await client.ask("/v1/models/m", headers=bearer(tenant))
            seen[tenant] = ([model["id"] for model in listed.json["data"]], card.status)
    assert seen == {"ann": (["m"], 200), "bob": ([], 404)}
    house.gateway.plane.levels["m"] = 2
    answers = [await house.ask(chat(model=name), headers=bearer("bob", x_policy="odd")) for name in ("m", "n")]
    assert [answer.status for answer in answers] == [404, 404]
    there, absent = ([line for line in a.message.headers if line[0] != "x-request-id"] for a in answers)
    assert there == absent
    assert answers[0].json == msgspec.json.decode(answers[1].body.replace(b"`n`", b"`m`"))
    assert not house.engine.log.inference


@case(scripts.answer())
async def test_nobody_lifts_himself_above_his_tier(house: House) -> None:
    """A tier asked for is bounded by the tenant's; without keys any tier may be asked for, as there is nobody to
    protect from whom."""
    await house.ask(chat(), headers={"X-Priority": "critical"})
    admit(house, Tenant("ann", tier=Tier.STANDARD, max_tier=Tier.HIGH), BOB)
    for said in ("low", "", "critical", "7"):
        assert (await house.ask(chat(), headers=bearer("ann", X_Priority=said))).status == 200
    assert [info.tier for info in arrived(house)] == [2, -1, 0, 2, 0]
    seen = house.engine.log.inference[-1].request
    assert not [name for name, _ in seen.headers if name.startswith("x-priority")]


# Strangers.

PAGE = "https://app.example"
BROWSERS = GatewayConfig(port=0, cors=Cors(origins=(PAGE,)))
PREFLIGHT = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization"}


@case(scripts.answer(), config=BROWSERS)
async def test_browsers_may_ask_before_they_show_a_key_and_read_why_they_are_refused(house: House) -> None:
    """125: a preflight without a key is 204; a request without one is 401 that the page may read."""
    admit(house, ANN)
    async with house.client() as client:
        for origin, line in ((PAGE, PAGE), ("https://evil.example", "")):
            preflight = await client.ask(CHAT, method="OPTIONS", headers={"Origin": origin, **PREFLIGHT})
            assert (preflight.status, preflight.message.get("access-control-allow-origin")) == (204, line)
            bare = await client.ask(body=chat(), headers={"Origin": origin})
            assert (bare.status, bare.message.get("access-control-allow-origin")) == (401, line)
            assert bare.message.get("www-authenticate") == "Bearer"
        good = await client.ask(body=chat(), headers={"Origin": PAGE, **bearer("ann")})
    assert (good.status, good.message.get("access-control-allow-origin")) == (200, PAGE)
    assert not good.message.get("www-authenticate")


PATHS = [
    CHAT, "/v1/completions", "/v1/embeddings", "/v1/models", "/v1/models/m", "/v1/responses", "/v1/x/y", "/tokenize",
    "/health", "/healthz", "/metrics", "/fleet", "/admin", "/replicas", "/openapi.json", "/docs", "/", "/nowhere",
]  # fmt: skip
SPELLINGS: tuple[Callable[[str], str], ...] = (
    lambda path: path,
    lambda path: "/" + path,
    lambda path: path + "/",
    lambda path: path.upper(),
    lambda path: path[:1] + f"%{ord(path[1:2] or '/'):02x}" + path[2:],
    lambda path: "/v1/.." + path,
    lambda path: "/health/.." + path,
    lambda path: "/./" + path[1:],
    lambda path: path + ";x=y",
    lambda path: path + "?api_key=hw-key-of-ann",
    lambda path: "http://localhost" + path,
)
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "health", "OPTION")
STRANGERS: tuple[dict[str, str], ...] = (
    {},
    {"Authorization": "Bearer wrong"},
    {"Authorization": "Basic hw-key-of-ann"},
    {"Authorization": "hw-key-of-ann"},
    {"Authorization": "Bearer"},
    {"X-Api-Key": "hw-key-of-an"},
    {"Api-Key": "hw-key-of-anne"},
    {"Cookie": "api_key=hw-key-of-ann"},
    {"X-Forwarded-For": "127.0.0.1"},
    {"X-Admin-Token": "hw-key-of-ann"},
    {"Authorization": "Bearer hw-key-of-ann", "X-Api-Key": "wrong"},
    {"Authorization": "Bearer hw-key-of-ann", "Api-Key": "hw-key-of-bob"},
    {"Authorization": "Bearer hw-key-of-\xe4nn"},
)


@pytest.mark.slow
@case(scripts.answer())
async def test_every_route_of_the_data_port_is_closed_to_strangers(house: House) -> None:
    """B9, 134: route x method x spelling x identity: 401 for all but health and preflights, and no engine is asked."""
    admit(house, ANN, BOB)
    before = set(house.engine.log.hits)
    odd: list[tuple[str, str, int]] = []
    chance = random.Random(SEED)
    async with house.client() as client:
        for path, spell, method in itertools.product(PATHS, SPELLINGS, METHODS):
            who = chance.choice(STRANGERS)
            answer = await client.ask(spell(path), chat() if method == "POST" else None, method=method, headers=who)
            healthy = spell(path).removeprefix("http://localhost").partition("?")[0] == "/health"
            right = 204 if method == "OPTIONS" else 401
            if answer.status != right and not (healthy and answer.status in (200, 405)):
                odd.append((method, spell(path), answer.status))
        for who in STRANGERS:
            assert (await client.ask(body=chat(), headers=who)).status == 401
        for line in ("Authorization: Bearer hw-key-of-ann", "x-api-key: hw-key-of-ann", "API-KEY: hw-key-of-bob"):
            name, _, value = line.partition(": ")
            assert (await client.ask(body=chat(), headers={name: value})).status == 200
    assert not odd
    assert set(house.engine.log.hits) - before == {CHAT}
    assert len(house.engine.log.inference) == 3


@case(scripts.answer())
async def test_malformed_credentials_crash_nobody(house: House) -> None:
    """130, 058: NUL, control characters, endless ones, two lines of one header: 400 or 401, and the next is served."""
    admit(house, ANN)
    for value, status in (
        ("Bearer hw-key-of-ann\x00", 400),
        ("Bearer hw-key\x07of-ann", 400),
        ("Bearer " + "x" * 20_000, 401),
        ("Bearer " + "x" * 40_000, 431),
        ("Bearer hw-key-of-ann\r\nAuthorization: Bearer hw-key-of-ann", 400),
        ("Bearer hw-key-of-ann\r\n hw-key-of-ann", 400),
        ("Bearer hw-key-of-ann hw-key-of-ann", 401),
        ('Bearer "hw-key-of-ann"', 401),
        ("Bearer\thw-key-of-ann", 401),
    ):
        async with house.client() as client:
            await client.send(request(body=chat(), headers={"Authorization": value}))
            assert (await client.answer()).status == status, value[:40]
    assert (await house.ask(chat(), headers=bearer("ann"))).status == 200
    assert len(house.engine.log.inference) == 1


@pytest.mark.slow
@process_case
async def test_keys_come_and_go_while_the_gateway_runs(folder: Path) -> None:
    """A key added or revoked is felt within two seconds, also on connections that stay; a spoilt file (130: the store
    is down) changes nothing and says so."""
    file, keys = given_out(folder, "ann", "bob")
    engine = ScriptedEngine(scripts.answer(), scripts.vllm_paths())
    async with (
        engine,
        open_app(engine, **closed(file, {"ann": {"tier": "high"}})) as app,
        RawClient(app.port) as client,
    ):

        async def status(tenant: str) -> int:
            headers = {"Authorization": f"Bearer {keys[tenant]}"}
            return (await client.ask(body=chat(), headers=headers)).status

        async def becomes(tenant: str, wanted: int) -> None:
            async with asyncio.timeout(2.0):
                while await status(tenant) != wanted:  # noqa: ASYNC110 - over the network
                    await asyncio.sleep(0.02)

        assert (await status("ann"), await status("bob")) == (200, 200)
        change(file, lambda known: [revoked(key) if key.tenant == "bob" else key for key in known])
        await becomes("bob", 401)
        good = file.read_bytes()
        file.write_bytes(good[: len(good) // 2])
        await until(lambda: app.key_watch is not None and app.key_watch.failures == 1, 3.0)
        assert (await status("ann"), await status("bob")) == (200, 401)
        file.unlink()
        await until(lambda: app.key_watch is not None and app.key_watch.failures == 2, 3.0)
        assert await status("ann") == 200
        _, more = given_out(folder, "new")
        keys |= more
        await becomes("new", 200)
        await becomes("ann", 401)
        page = app.telemetry.render().decode()
        assert re.search(r"^headway_api_keys 1(\.0)?$", page, re.MULTILINE)
        assert re.search(r"^headway_key_reload_failures_total 2(\.0)?$", page, re.MULTILINE)
        assert 'headway_tenant_requests_total{tenant="ann",account="ok"}' in page
        assert 'tenant="new"' not in page, "only tenants of the settings have a label of their own"
        assert 'headway_tenant_requests_total{tenant="other",account="ok"}' in page


def series(page: bytes) -> set[bytes]:
    """Every series of a metrics page, without its value."""
    return {line.rpartition(b" ")[0] for line in page.splitlines() if line and not line.startswith(b"#")}


@pytest.mark.slow
@process_case
async def test_invented_keys_and_sessions_cost_nothing(folder: Path) -> None:
    """127, 128, B10 with keys: random keys, models, paths and sessions leave neither series nor memory, once as many
    sessions are known as may be."""
    file, keys = given_out(folder, "ann")
    chance = random.Random(SEED)
    right = {"Authorization": f"Bearer {keys['ann']}"}
    async with serving(folder, (scripts.answer(),), closed(file, {"ann": {}})) as served:

        async def some(count: int) -> None:
            async with served.client() as client:
                for _ in range(count):
                    word = f"{chance.getrandbits(64):x}"
                    kind = chance.randrange(4)
                    if kind == 0:
                        headers = {"Authorization": f"Bearer hw-{word}"}
                        assert (await client.ask(body=chat(model=word), headers=headers)).status == 401
                    elif kind == 1:
                        assert (await client.ask(f"/v1x/{word}", headers={"X-Api-Key": word})).status == 401
                    elif kind == 2:
                        assert (await client.ask(body=chat(model=word), headers=right)).status == 404
                    else:
                        asked = {**right, "X-Session-Id": word, "X-Priority": word, "X-Request-Id": word}
                        assert (await client.ask(body=chat(user=word), headers=asked)).status == 200

        await some(rounds(140_000, 1_200))
        before, memory = await served.page(), served.memory_bytes()
        await some(rounds(200_000, 1_500))
        page = await served.page()
        assert not {
            line for line in series(page) - series(before) if b"status=" not in line and b"forecast" not in line
        }
        assert len(page) - len(before) < 4096
        assert served.memory_bytes() - memory < 6 * 2**20


@pytest.mark.slow
def test_two_million_sessions_leave_nothing_behind() -> None:
    """B10: every request of a session of its own, and one regular: the brain's memory stays where it was."""
    brain = Brain(BrainConfig(), headroom.PLUGIN.factory(headroom.PLUGIN.config()), random.Random(SEED))
    brain.handle(TenantsChanged(0.0, (ANN,)))
    brain.handle(
        ReplicasChanged(
            0.0, tuple(ReplicaSpec(ReplicaId(f"r{n}"), f"http://h:{n}", serves={"m": "m"}) for n in range(3))
        )
    )
    for n in range(3):
        brain.handle(ProbeSucceeded(0.0, ReplicaId(f"r{n}")))
    chance = random.Random(SEED)
    outcome = Outcome(OutcomeKind.OK, 200, committed=True, sent=True, prompt_tokens=10, output_tokens=5)

    def some(first: int, last: int) -> None:
        for number in range(first, last):
            session = "regular" if number % 10 == 0 else f"{chance.getrandbits(64):016x}"
            info = RequestInfo(RequestId(f"q{number}"), "m", "ann", prompt_bytes=40, session_key=session)
            sent = [c for c in brain.handle(RequestArrived(number / 1e3, info)) if isinstance(c, Dispatch)]
            assert len(sent) == 1
            brain.handle(AttemptFinished(number / 1e3, sent[0].attempt_id, outcome))

    warm, whole = rounds(100_000, 2_000), rounds(2_000_000, 4_000)
    some(0, warm)
    gc.collect()
    before = len(gc.get_objects()), resident_bytes()
    some(warm, whole)
    gc.collect()
    assert len(gc.get_objects()) - before[0] < 1_000
    assert resident_bytes() - before[1] < 4 * 2**20


def resident_bytes() -> int:
    """Memory of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


test_two_million_sessions_leave_nothing_behind.checks_books = True  # type: ignore[attr-defined]  # no gateway here


# Secrets.

MARK = "zq9plant"


class Planted:
    """Forty secrets, each of its own, and where each was put."""

    def __init__(self) -> None:
        self.all: dict[str, str] = {}

    def __call__(self, where: str, prefix: str = "") -> str:
        """A fresh secret to be put there."""
        secret = self.all[where] = f"{prefix}{MARK}{len(self.all):02d}{random.Random(where).getrandbits(64):016x}"
        return secret

    def found_in(self, text: str) -> list[str]:
        """Where those come from that a text shows, in whole or in their telling part."""
        return [where for where, secret in self.all.items() if secret[-16:] in text or secret in text]


def strange_heads(planted: Planted) -> list[bytes]:
    """Requests of strangers and of careless ones, as bytes."""
    bad = "Bearer " + planted("a wrong key", "hw-")
    return [
        request(body=chat(), headers={"Authorization": bad}),
        request(body=chat(), headers={"Authorization": "Basic " + planted("basic credentials")}),
        request(body=chat(), headers={"Authorization": planted("a key without a scheme")}),
        request(body=chat(), headers={"X-Api-Key": planted("a wrong x-api-key", "sk-")}),
        request(body=chat(), headers={"Api-Key": planted("a wrong api-key")}),
        request(body=chat(), headers={"Authorization": f"Bearer {planted('a key with a NUL')}\x00x"}),
        request(body=chat(), headers={"Authorization": f"Bearer {planted('a key that is folded')}\r\n x"}),
        request(body=chat(), headers=[("x-api-key", planted("one of two keys")), ("x-api-key", planted("its twin"))]),
        request(body=chat(), headers={"Authorization": "Bearer " + planted("an endless key") + "x" * 40_000}),
        request(body=chat(), headers={"Cookie": "session=" + planted("a stranger's cookie")}),
        request(f"/v1/models?api_key={planted('a key in the query')}"),
        request(f"/{planted('a key as the path')}"),
        request(f"http://u:{planted('a password in the target')}@h/v1/models"),
        planted("a key as the method", "hw-").encode() + b" / HTTP/1.1\r\nHost: h\r\n\r\n",
        f"GET / HTTP/{planted('a key as the version')}\r\nHost: h\r\n\r\n".encode(),
    ]


def careless_bodies(planted: Planted, right: dict[str, str]) -> list[bytes]:
    """Requests with a good key, with secrets where none belong, and prompts that are nobody's business."""
    prompts = [{"role": role, "content": planted(f"a {role} message")} for role in ("system", "user", "assistant")]
    tool = {"type": "function", "function": {"name": planted("a tool"), "description": planted("a tool's description")}}
    elsewhere = {"X-Session-Id": planted("a session"), "X-Request-Id": planted("a request id", "hw-")}
    elsewhere |= {"Cookie": planted("a cookie"), "X-Custom": planted("a header of the client's own")}
    asked = {"X-Policy": planted("a policy", "hw-"), "X-Min-Precision": planted("a precision", "hw-")}
    return [
        request(body={"model": "m", "messages": prompts, "tools": [tool]}, headers=right),
        request(body={"model": "m", "messages": prompts, "stream": True}, headers={**right, **elsewhere}),
        request("/v1/completions", {"model": "m", "prompt": planted("a prompt") * 40}, headers=right),
        request("/v1/embeddings", {"model": "m", "input": [planted("a text")]}, headers=right),
        request(body=chat(user=planted("a user")), headers=right),
        request(body=chat(metadata={"k": planted("metadata")}), headers=right),
        request(body=chat(model=planted("a key as the model", "hw-")), headers=right),
        request(body=chat(), headers={**right, **asked}),
        request(body=b'{"model": "m", "messages": [' + planted("a broken body").encode(), headers=right),
        request(body=b"model=" + planted("a form").encode(), headers={**right, "Content-Type": "text/plain"}),
        request(f"/v1/models/{planted('a model asked for')}", headers=right),
    ]


@pytest.mark.slow
@process_case
async def test_no_secret_is_ever_written_down(folder: Path) -> None:
    """B8, 130, 131, 140: forty secrets of clients, operators and engines, in heads, bodies, settings and answers, at
    DEBUG: none in the log, the journal, metrics, explanations, the admin API, or in answers to others."""
    planted = Planted()
    file, keys = given_out(folder, "ann")
    planted.all["a good key"] = keys["ann"]
    right = {"Authorization": f"Bearer {keys['ann']}"}
    token, engine_key = planted("the admin token"), planted("a replica's key")
    (folder / "upstream.key").write_text(planted("the common key") + "\n")
    told = [planted("an engine's error"), planted("an engine's server line"), planted("an engine's stream")]
    engine = ScriptedEngine(scripts.answer(), scripts.vllm_paths())
    settings = {
        "admin": {"port": 0, "token": token},
        "upstream": {"api_key_file": str(folder / "upstream.key")},
        "logging": {"level": "debug", "format": "json"},
        "journal": str(folder / "journal"),
        **closed(file, {"ann": {}}),
    }
    async with engine:
        replica = {"url": engine.url, "engine": "vllm", "model": "m", "api_key": engine_key}
        async with serving(folder, (), {**settings, "replicas": [replica]}) as served:
            heard: list[str] = []

            async def send(data: bytes) -> None:
                async with served.client() as client:
                    await client.send(data)
                    heard.append(
                        bytes((await client.answer(method=data.split(b" ", 1)[0].decode())).message.raw).decode()
                    )

            for data in strange_heads(planted):
                await send(data)
            strangers = len(heard)
            for data in careless_bodies(planted, right):
                await send(data)
            engine.then(
                scripts.error(401, f"Incorrect API key: {told[0]}"),
                scripts.error(500, told[0], headers=[f"server: {told[1]}"]),
                scripts.raw(f"HTTP/1.1 200 OK {told[1]}\r\nbroken {told[0]}\r\n\r\n".encode()),
                scripts.stream(pieces=[scripts.sse({"error": {"message": told[2], "code": 500}}), scripts.DONE]),
            )
            for streaming in (False, False, False, True):
                await send(request(body=chat(streaming), headers=right))
            good = request(body=chat(), headers=right)
            await send(good)
            assert "HTTP/1.1 200" in heard[-1]
            ids = [re.search(r"x-request-id: ([^\r]*)", answer) for answer in heard]
            paths = ["/fleet", "/metrics", "/replicas", "/requests", "/openapi.json", "/healthz", "/readyz"]
            paths += [f"/requests/{found[1]}/explain" for found in ids if found]
            pages = [bytes((await served.admin(path)).message.raw).decode() for path in paths]
            assert any('"decision"' in page for page in pages)
            await asyncio.sleep(0.2)
    log, journal = served.process.log.read_text(), (folder / "journal").read_text()
    assert '"level":"debug"' in log or '"level":"info"' in log
    assert '"tenant":"ann"' in log
    assert '"RequestArrived"' in journal
    assert json.loads(file.read_text())["keys"][0]["tenant"] == "ann"
    assert len(planted.all) >= 40
    written = {"log": log, "journal": journal, "admin": "".join(pages), "keys": file.read_text()}
    assert {where: found for where, text in written.items() if (found := planted.found_in(text))} == {}
    assert not planted.found_in("".join(heard[:strangers])), "strangers are told nothing back"
    assert command("verify", str(folder / "journal")).returncode == 0, "tenants are replayed, too"
    operators = {"the admin token", "a replica's key", "the common key", "a good key"}
    assert not operators & set(planted.found_in("".join(heard)))
