"""Header lines on their way through: family E of the cases.

What must hold: end-to-end lines pass in both directions, in order and unchanged; what belongs to one connection does
not; an engine gets one Host, one framing and at most one credential; whatever a client sends, nobody crashes.
"""

import gzip
import hashlib
import random
import zlib

import msgspec
import pytest

from headway.core.ids import ReplicaId
from headway.gateway.config import GatewayConfig, UpstreamAuth
from tests.cases.house import SEED, House, case, open_house, rounds, within
from tests.harness import scripts
from tests.harness.client import Answer, chat, request
from tests.harness.engine import Connection, Script, Seen

KEY = "zq9-planted-key"
FORWARDING = GatewayConfig(port=0, auth=UpstreamAuth(forward_client=True))
KEYED = GatewayConfig(port=0, auth=UpstreamAuth(api_key=KEY, forward_client=True))


def demands(key: str) -> Script:
    """Answers those who show the key, refuses the others as vLLM does."""

    async def script(connection: Connection, seen: Seen) -> None:
        shown = seen.request.all("authorization") == [f"Bearer {key}"]
        await (scripts.answer() if shown else scripts.error(401, "Unauthorized"))(connection, seen)

    return script


@case(demands("k"), config=FORWARDING)
async def test_a_wrong_key_is_the_clients_problem(house: House) -> None:
    """043: the client's credential reaches the engine when set so; 50 refusals do not make the engine ill."""
    assert (await house.ask(chat(), headers={"Authorization": "Bearer k"})).status == 200
    refused = [await house.ask(chat(), headers={"Authorization": "Bearer wrong"}) for _ in range(50)]
    assert {answer.status for answer in refused} == {401}
    assert refused[0].json["error"]["message"] == "Unauthorized"
    assert house.view().breaker == "closed"
    assert house.count("headway_attempts_total", outcome="client_error") == 50
    await house.at_rest(started=51, ok=1, client_error=50)


def form(size: int, boundary: str) -> bytes:
    """A transcription request with the model behind the file."""
    audio = random.Random(SEED).randbytes(size)
    head = b'--%b\r\nContent-Disposition: form-data; name="file"; filename="a.wav"\r\nContent-Type: audio/wav\r\n\r\n'
    model = b'\r\n--%b\r\nContent-Disposition: form-data; name="model"\r\n\r\nm\r\n--%b--\r\n'
    mark = boundary.encode()
    return head % mark + audio + model % (mark, mark)


@case(demands("k"), config=FORWARDING)
async def test_form_data_passes_raw_with_its_boundary_and_credential(house: House) -> None:
    """044: the same rules on every route; 3 MB of form data, the model last."""
    boundary = "----odd 'boundary'"
    body = form(3_000_000, boundary)
    headers = {"Authorization": "Bearer k", "Content-Type": f'multipart/form-data; boundary="{boundary}"'}
    answer = await house.ask(body, "/v1/audio/transcriptions", headers=headers)
    assert answer.status == 200
    [seen] = house.engine.log.inference
    assert seen.request.get("content-type") == headers["Content-Type"]
    assert hashlib.sha256(seen.request.body).digest() == hashlib.sha256(body).digest()


CREDENTIALS = ("Authorization", "AUTHORIZATION", "X-Api-Key", "api-key", "Proxy-Authorization", "Cookie")


@pytest.mark.parametrize("name", CREDENTIALS[:-1])
@case(scripts.answer())
async def test_no_credential_means_no_line(house: House, name: str) -> None:
    """046: nothing configured, the client's not forwarded: the engine sees no credential, not even an empty one."""
    assert (await house.ask(chat(), headers={name: f"Bearer {KEY}"})).status == 200
    raw = bytes(house.engine.log.inference[0].request.raw).lower()
    assert b"authorization" not in raw
    assert b"api-key" not in raw
    assert KEY.encode() not in raw


@pytest.mark.parametrize("value", ["", " ", "\t"])
@case(scripts.answer(), config=FORWARDING)
async def test_an_empty_credential_is_not_passed_on(house: House, value: str) -> None:
    """046: a client that sends an empty credential has sent none."""
    assert (await house.ask(chat(), headers={"Authorization": value})).status == 200
    assert b"authorization" not in bytes(house.engine.log.inference[0].request.raw).lower()


@pytest.mark.parametrize("configured", [f"{KEY}\n", f" {KEY}\r\n"])
@case()
async def test_a_key_from_a_file_loses_its_line_end(outer: House, configured: str) -> None:
    """046: files end in a newline; headers must not."""
    async with open_house(demands(KEY), config=GatewayConfig(port=0, auth=UpstreamAuth(configured))) as house:
        assert (await house.ask(chat())).status == 200
        await house.at_rest(started=1, ok=1)


def at_home(port: int) -> Script:
    """A virtual host: nothing is here under any other name."""

    async def script(connection: Connection, seen: Seen) -> None:
        home = seen.request.get("host") == f"127.0.0.1:{port}"
        await (scripts.answer() if home else scripts.error(404))(connection, seen)

    return script


@pytest.mark.parametrize(
    ("target", "hosts", "status"),
    [
        ("/v1/chat/completions", ["evil.example"], 200),
        ("/v1/chat/completions", ["evil.example", "evil.example"], 400),
        ("/v1/chat/completions", ["evil.example", "gateway.test"], 400),
        ("http://evil.example/v1/chat/completions", ["gateway.test"], 200),
        ("http://evil.example:81/v1/chat/completions?a=b", ["evil.example"], 200),
    ],
)
@case(scripts.stall())
async def test_the_engine_is_called_by_its_own_name(house: House, target: str, hosts: list[str], status: int) -> None:
    """047: Host is the replica's authority whatever the client said; a client that says two things is refused."""
    house.engine.script = at_home(house.engine.port)
    answer = await house.ask(chat(), target, headers=[("Host", host) for host in hosts])
    assert answer.status == status
    if status == 200:
        [seen] = house.engine.log.inference
        assert seen.request.target == "/v1/chat/completions" + ("?a=b" if "?" in target else "")
        assert len(seen.request.all("host")) == 1


@case(scripts.answer(), config=GatewayConfig(port=0, preserve_host=True))
async def test_the_clients_host_is_kept_on_request(house: House) -> None:
    """047: the option to preserve it."""
    assert (await house.ask(chat(), headers={"Host": "models.example:99"})).status == 200
    assert house.engine.log.inference[0].request.get("host") == "models.example:99"


@pytest.mark.parametrize("trusted", [False, True])
@case()
async def test_forwarding_lines_are_set_once(outer: House, trusted: bool) -> None:
    """047: the client's own are dropped, or extended where the balancer before us is trusted."""
    async with open_house(scripts.answer(), config=GatewayConfig(port=0, trust_forwarded=trusted)) as house:
        claims = {"X-Forwarded-For": "10.9.9.9", "X-Forwarded-Proto": "https", "x-forwarded-host": "h"}
        assert (await house.ask(chat(), headers=claims)).status == 200
        [seen] = house.engine.log.inference
        assert seen.request.get("x-forwarded-for") == ("10.9.9.9, 127.0.0.1" if trusted else "127.0.0.1")
        assert seen.request.get("x-forwarded-proto") == ("https" if trusted else "http")
        assert seen.request.get("x-forwarded-host") == ("h" if trusted else "")
        await house.at_rest(started=1, ok=1)


def odd_chunks(body: bytes, chance: random.Random) -> bytes:
    """The body in chunks of odd sizes, with extensions and a trailer."""
    made, at = [], 0
    while at < len(body):
        size = chance.randrange(1, 4000)
        piece = body[at : at + size]
        extension = chance.choice([b"", b";x", b";name=value", b';q="a;b"'])
        made.append(b"%b%b\r\n%b\r\n" % (chance.choice([b"%x", b"%X", b"00%x"]) % len(piece), extension, piece))
        at += size
    return b"".join([*made, b"0;last\r\nX-Checksum: 1\r\n\r\n"])


@case(scripts.answer())
async def test_one_framing_whatever_the_client_used(house: House) -> None:
    """049: chunked with odd sizes, extensions and a trailer: one framing upstream, the same body."""
    chance = random.Random(SEED)
    body = msgspec.json.encode(chat(content="x" * 50_000))
    head = request(
        headers={"Transfer-Encoding": "chunked", "Content-Type": "application/json", "Trailer": "X-Checksum"}
    )
    head = head.replace(b"GET ", b"POST ", 1)
    for _ in range(rounds(200, 20)):
        async with house.client() as client:
            await client.send(head + odd_chunks(body, chance))
            assert (await client.answer()).status == 200
    for seen in house.engine.log.inference:
        assert len(seen.request.all("content-length")) + len(seen.request.all("transfer-encoding")) == 1
        assert not seen.request.all("trailer")
        assert seen.request.body == body


PACKED = gzip.compress(msgspec.json.encode(scripts.CHAT_ANSWER))
RESPONSES: dict[str, tuple[bytes, int, bytes]] = {
    "gzip": (scripts.response(PACKED, headers=["content-encoding: gzip"]), 200, PACKED),
    "identity": (scripts.response(b'{"a": 1}'), 200, b'{"a": 1}'),
    "empty": (scripts.response(b""), 200, b""),
    "no_content": (b"HTTP/1.1 204 No Content\r\n\r\n", 204, b""),
    "no_content_with_length": (b"HTTP/1.1 204 No Content\r\ncontent-length: 0\r\n\r\n", 204, b""),
    "not_modified": (b"HTTP/1.1 304 Not Modified\r\ncontent-length: 1234\r\netag: x\r\n\r\n", 304, b""),
    "not_modified_bare": (b"HTTP/1.1 304 Not Modified\r\n\r\n", 304, b""),
    "chunked": (scripts.STREAM_HEAD.replace(b"text/event-stream", b"text/plain") + b"1\r\na\r\n0\r\n\r\n", 200, b"a"),
    "reset_content": (b"HTTP/1.1 205 Reset Content\r\ncontent-length: 0\r\n\r\n", 205, b""),
}


@pytest.mark.parametrize("kind", RESPONSES)
@case(scripts.stall())
async def test_every_framing_of_a_response_ends_at_once(house: House, kind: str) -> None:
    """050: the client is done within 100 ms, and both connections are fit for the next request."""
    data, status, body = RESPONSES[kind]
    house.engine.script = scripts.raw(data)
    async with house.client() as client:
        for _ in range(2):
            answer = await client.ask(body=chat())
            assert (answer.status, answer.body, answer.error) == (status, body, "")
            assert answer.ended_at - house.engine.log.inference[-1].at < within(0.1)
            if kind == "not_modified":
                assert answer.message.get("content-length") == "1234"
    assert {seen.connection for seen in house.engine.log.inference} == {1}


@pytest.mark.parametrize("path", ["/v1/models", "/health", "/v1/models/m", "/v1/chat/completions", "/nowhere"])
@case(scripts.answer())
async def test_head_is_answered_without_a_body(house: House, path: str) -> None:
    """050: HEAD gets the head of what GET gets, its length included, and the connection stays usable."""
    async with house.client() as client:
        full = await client.ask(path, method="GET")
        bare = await client.ask(path, method="HEAD")
        again = await client.ask(path, method="GET")
    assert (bare.status, bare.body) == (full.status, b"")
    assert bare.message.get("content-length") == full.message.get("content-length") == str(len(full.body))
    assert again.status == full.status


def readable(answer: Answer) -> bytes:
    """The body as a client understands it that goes by the headers."""
    coding = answer.message.get("content-encoding")
    return {"": bytes, "gzip": gzip.decompress, "deflate": zlib.decompress}[coding](answer.body)


STREAM = b"".join(scripts.events(3))


@pytest.mark.parametrize("coding", ["gzip", "deflate"])
@pytest.mark.parametrize("streaming", [True, False], ids=["stream", "plain"])
@pytest.mark.parametrize("pieces", [1, 7])
@case(scripts.stall())
async def test_an_engine_that_insists_on_compression(house: House, coding: str, streaming: bool, pieces: int) -> None:
    """052: coding and bytes pass together; a compressed stream is not taken for an empty one."""
    plain = STREAM if streaming else msgspec.json.encode(scripts.CHAT_ANSWER)
    packed = {"gzip": gzip.compress, "deflate": zlib.compress}[coding](plain)
    media = b"text/event-stream" if streaming else b"application/json"
    head = b"HTTP/1.1 200 OK\r\ncontent-type: %b\r\ncontent-encoding: %b\r\n" % (media, coding.encode())
    step = len(packed) // pieces + 1
    cut = [packed[at : at + step] for at in range(0, len(packed), step)]
    house.engine.script = scripts.raw(
        head + b"transfer-encoding: chunked\r\n\r\n", *map(scripts.chunk, cut), scripts.LAST_CHUNK
    )
    answer = await house.ask(chat(streaming))
    assert (answer.status, answer.error) == (200, "")
    assert readable(answer) == plain
    assert len(house.engine.log.inference) == 1
    await house.at_rest(started=1, ok=1)


@case(scripts.answer())
async def test_engines_are_asked_for_plain_bytes(house: House) -> None:
    """052: what we count, we must be able to read: engines are asked not to compress."""
    for accepts in ({}, {"Accept-Encoding": "gzip, br"}, {"accept-encoding": "gzip"}):
        assert (await house.ask(chat(), headers=accepts)).status == 200
    assert {seen.request.get("accept-encoding") for seen in house.engine.log.inference} <= {"identity"}


@case(scripts.answer(), scripts.answer())
async def test_model_cards_are_kept_whole(house: House) -> None:
    """053: every field of both replicas; where they disagree on the length, the smaller one."""
    cards = ({"a": [1, {"x": None}], "max_model_len": 4096}, {"b": "\u00e9", "max_model_len": 2048, "a": "other"})
    for number, extra in enumerate(cards):
        house.gateway.set_cards({ReplicaId(f"r{number}"): [{"id": "m", "object": "model", **extra}]})
    async with house.client() as client:
        listed = await client.ask("/v1/models")
        single = await client.ask("/v1/models/m")
    [card] = listed.json["data"]
    assert card == {"id": "m", "object": "model", "a": [1, {"x": None}], "b": "\u00e9", "max_model_len": 2048}
    assert single.json == card


@pytest.mark.parametrize("name", CREDENTIALS)
@case(demands(KEY), config=KEYED)
async def test_one_credential_and_it_is_ours(house: House, name: str) -> None:
    """055: a configured key replaces whatever the client sends, in any spelling."""
    assert (await house.ask(chat(), headers={name.lower(): "Bearer theirs"})).status == 200
    [seen] = house.engine.log.inference
    assert len(seen.request.all("authorization")) == 1
    assert not seen.request.all("x-api-key")
    assert not seen.request.all("api-key")


@pytest.mark.parametrize("names", [("Authorization", "authorization"), ("X-Api-Key", "x-api-key")])
@case(scripts.answer(), config=FORWARDING)
async def test_two_credentials_of_a_client_are_ambiguous(house: House, names: tuple[str, str]) -> None:
    """055: which of the two counts is not for us to guess."""
    answer = await house.ask(chat(), headers=[(names[0], "Bearer a"), (names[1], "Bearer b")])
    assert answer.status == 400
    assert not house.engine.log.inference


LINES = [("server", "uvicorn"), ("date", "Sun, 29 Nov 2026 10:00:00 GMT"), ("set-cookie", "a=1; Path=/"),
         ("vary", "Accept"), ("set-cookie", "b=2"), ("vary", "Origin"), ("x-odd", "caf\u00e9 \t x")]  # fmt: skip
HOPS = [
    ("Connection", "keep-alive, X-Hop"),
    ("x-hop", "1"),
    ("Keep-Alive", "timeout=5"),
    ("proxy-authenticate", "Basic"),
]


@pytest.mark.parametrize("streaming", [True, False])
@case(scripts.stall())
async def test_an_engines_lines_keep_number_and_order(house: House, streaming: bool) -> None:
    """056: one Server, one Date, every Set-Cookie and Vary, as the engine ordered them; hop-by-hop lines end here."""
    lines = "".join(f"\r\n{name}: {value}" for name, value in (*LINES, *HOPS)).encode("latin-1")
    body = b"".join(map(scripts.chunk, scripts.events(2))) if streaming else scripts.chunk(b"{}")
    head = scripts.STREAM_HEAD if streaming else scripts.STREAM_HEAD.replace(b"text/event-stream", b"application/json")
    house.engine.script = scripts.raw(head.replace(b"\r\n\r\n", lines + b"\r\n\r\n"), body, scripts.LAST_CHUNK)
    answer = await house.ask(chat(streaming))
    assert answer.status == 200
    assert [line for line in answer.message.headers if line in LINES] == LINES
    names = [name for name, _ in answer.message.headers]
    assert names.count("server") == names.count("date") == 1
    assert not {name.lower() for name, _ in HOPS} & set(names)


ODD_CREDENTIALS: dict[str, tuple[str, set[int]]] = {
    "scheme_only": ("Bearer", {200}),
    "blank": ("Bearer ", {200}),
    "other_case": ("bearer  x", {200}),
    "basic": ("Basic", {200}),
    "huge": ("Bearer " + "x" * 200_000, {431}),
    "latin1": ("Bearer caf\u00e9", {200}),
    "utf8": ("Bearer \u00f0\u009f\u0098\u0080", {200}),
    "nul": ("Bearer \x00", {400}),
    "control": ("Bearer \x01", {400}),
    "percent": ("Bearer %00%0d%0aX: y", {200}),
}


@pytest.mark.parametrize("forwarding", [True, False])
@pytest.mark.parametrize("kind", ODD_CREDENTIALS)
@case()
async def test_odd_credentials_crash_nobody(outer: House, kind: str, forwarding: bool) -> None:
    """058: forwarded as they are or dropped, or refused where they are no header; the next request is served."""
    value, statuses = ODD_CREDENTIALS[kind]
    async with open_house(scripts.answer(), config=FORWARDING if forwarding else None) as house:
        answer = await house.ask(chat(), headers={"Authorization": value})
        assert answer.status in statuses
        assert (await house.ask(chat())).status == 200
        if 200 in statuses:
            passed = house.engine.log.inference[0].request.all("authorization")
            assert passed == ([value.strip()] if forwarding else [])
        await house.at_rest(started=2, server_error=0)
