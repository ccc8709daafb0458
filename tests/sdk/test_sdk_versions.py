"""The official OpenAI SDK in three versions against every way in which a request can fail (B11, case 022).

What must hold: a failure is an exception of the SDK's own, of the right class, in time; success is what the engine
said. No JSON or transport error of a library below ever reaches the user's code.
"""

import asyncio
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headway.gateway.config import GatewayConfig, Timeouts
from tests.cases.house import House, open_house
from tests.harness import scripts
from tests.harness.engine import Connection, Script, Seen

CLIENT = Path(__file__).with_name("client.py")
VERSIONS = {"1": "1.", "2": "2.", "newest": ""}
EVENTS = scripts.events(4, "t{i} \u6f22\U0001f600 ")
TEXT = "".join(f"t{i} \u6f22\U0001f600 " for i in range(4))
STREAM = b"".join(map(scripts.chunk, EVENTS))
IN_BAND = scripts.sse({"error": {"message": "out of memory", "type": "server_error", "code": 500}})
JSON_ANSWER = scripts.response(json.dumps(scripts.CHAT_ANSWER).encode())
LATE = [scripts.chunk(b": hb\n")] * 5


def bare(*events: bytes) -> Script:
    """A stream of these pieces, ended as it should be."""
    return scripts.raw(scripts.STREAM_HEAD, *map(scripts.chunk, events), scripts.LAST_CHUNK, gap_s=0.01)


def cut_stream(count: int, how: str) -> Script:
    """A stream of whole UTF-8 characters that ends after so many bytes."""
    body = b"".join(_readable(event) for event in EVENTS)
    return scripts.cut(scripts.STREAM_HEAD + scripts.chunk(EVENTS[0]) + scripts.chunk(body[:count]), how, 0.02)


def _readable(event: bytes) -> bytes:
    if b"{" not in event:
        return event
    return scripts.sse(json.dumps(json.loads(event[6:]), ensure_ascii=False, separators=(",", ":")).encode())


OK, API = "ok", "APIError"
SCENARIOS: dict[str, tuple[Script, str, int | None]] = {
    "plain": (scripts.answer(), OK, None),
    "stream+": (scripts.stream(pieces=EVENTS), OK, None),
    "stream_in_bits+": (scripts.raw(scripts.STREAM_HEAD, *(scripts.chunk(b"".join(EVENTS)[i : i + 7]) for i in range(
        0, len(b"".join(EVENTS)), 7)), scripts.LAST_CHUNK), OK, None),
    "heartbeats+": (scripts.raw(scripts.STREAM_HEAD, scripts.chunk(b"id: 1\n" + EVENTS[0]), *LATE, *map(
        scripts.chunk, EVENTS[1:]), scripts.LAST_CHUNK, gap_s=0.1), OK, None),
    "heartbeats_first+": (scripts.raw(scripts.STREAM_HEAD, *LATE, STREAM, scripts.LAST_CHUNK, gap_s=0.1), OK, None),
    "no_done+": (bare(*EVENTS[:-1]), OK, None),
    "unknown_model": (scripts.answer(), "NotFoundError", 404),
    "400": (scripts.error(400, "too long"), "BadRequestError", 400),
    "400+": (scripts.error(400, "too long"), "BadRequestError", 400),
    "401": (scripts.error(401), "AuthenticationError", 401),
    "403": (scripts.error(403), "PermissionDeniedError", 403),
    "404": (scripts.error(404), "NotFoundError", 404),
    "422": (scripts.answer({"detail": "odd"}, "422 Odd"), "UnprocessableEntityError", 422),
    "429": (scripts.error(429, headers=["retry-after: 7"]), "RateLimitError", 429),
    "429+": (scripts.error(429, headers=["retry-after: 7"]), "RateLimitError", 429),
    "500": (scripts.error(500), "InternalServerError", 500),
    "503+": (scripts.error(503), "InternalServerError", 503),
    "500_html": (scripts.raw(scripts.response(b"<html>", "500 Oops", "text/html")), "InternalServerError", 500),
    "retry_429": (scripts.error(429, headers=["retry-after: 1"]), OK, None),
    "retry_503+": (scripts.error(503, headers=["retry-after: 1"]), OK, None),
    "reset": (scripts.cut(b"", "rst"), "InternalServerError", 502),
    "reset+": (scripts.cut(b"", "rst"), "InternalServerError", 502),
    "half_head": (scripts.cut(JSON_ANSWER[:20], "fin"), "InternalServerError", 502),
    "half_body": (scripts.cut(JSON_ANSWER[:-5], "rst"), "InternalServerError", 502),
    "half_body_fin": (scripts.cut(JSON_ANSWER[:-5], "fin"), "InternalServerError", 502),
    "garbage_json": (scripts.raw(scripts.response(b"<html>down</html>")), "InternalServerError", 502),
    "short_json": (scripts.raw(scripts.response(JSON_ANSWER[-60:-5])), "InternalServerError", 502),
    "no_http": (scripts.raw(b"\x00\x01\x02 hello\r\n\r\n"), "InternalServerError", 502),
    "silent": (scripts.stall(), "InternalServerError", 504),
    "silent+": (scripts.stall(), "InternalServerError", 504),
    "client_timeout": (scripts.stall(), "APITimeoutError", None),
    "abort": (scripts.answer({**scripts.CHAT_ANSWER, "choices": [{"index": 0, "finish_reason": "abort",
        "message": {"role": "assistant", "content": ""}}]}), "InternalServerError", 503),
    "empty_stream+": (scripts.cut(scripts.STREAM_HEAD, "fin"), "InternalServerError", 502),
    "in_band+": (bare(EVENTS[0], IN_BAND, scripts.DONE), API, None),
    "in_band_first+": (bare(IN_BAND, scripts.DONE), API, None),
    "idle+": (scripts.stall(scripts.STREAM_HEAD + scripts.chunk(EVENTS[0])), API, None),
    "bad_chunk+": (scripts.raw(scripts.STREAM_HEAD + scripts.chunk(EVENTS[0]), b"zz\r\n", gap_s=0.02), API, None),
    **{f"cut_{how}_{at}+": (cut_stream(at, how), API, None) for how in ("rst", "fin")
       for at in (1, 5, 6, 40, 62, 63, 64, 65, 66, 67, 68, 100, 140)},
}  # fmt: skip


def play(house: House) -> Script:
    """Do what the request's scenario says; what the SDK retries succeeds the second time."""
    tries: dict[str, int] = {}

    async def script(connection: Connection, seen: Seen) -> None:
        name = seen.request.get("x-scenario")
        tries[name] = tries.get(name, 0) + 1
        act = SCENARIOS[name][0]
        if name.startswith("retry") and tries[name] % 2 == 0:
            act = scripts.stream(pieces=EVENTS) if name.endswith("+") else scripts.answer()
        await act(connection, seen)

    return script


async def run_client(port: int, version: str) -> dict[str, Any]:
    """What the SDK of a version makes of every scenario."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("OPENAI_")}
    if version != "newest":
        environ["PYTHONPATH"] = str(Path(sys.prefix) / f"sdk-{version}")
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-W", "ignore", str(CLIENT), f"http://127.0.0.1:{port}/v1", *SCENARIOS,
        env=environ, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    out, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    result: dict[str, Any] = json.loads(out)
    return result


def judge(name: str, got: dict[str, Any]) -> str:
    """What is wrong with an outcome, empty if nothing is."""
    _, wanted, status = SCENARIOS[name]
    if got["seconds"] > 3.5:
        return "took too long"
    if name.startswith("retry") and got["seconds"] < 0.9:
        return "did not wait as it was told"
    if wanted == OK:
        text = TEXT if name.endswith("+") else "hi"
        return "" if got.get("text") == text else "not the text"
    if not got.get("typed") or got["from"] != "openai":
        return "not an exception of the SDK"
    if name == "empty_stream+" and got["raised"] == API:
        return ""  # the head alone was let go before the end came: told in band
    return "" if (got["raised"], got["status"]) == (wanted, status) else f"not {wanted} {status}"


@pytest.mark.slow
@pytest.mark.parametrize("version", VERSIONS)
def test_failures_are_exceptions_of_the_sdk(run: Callable[[Any], Any], version: str) -> None:
    """B11, 022: each scenario, with the blocking and the asynchronous client."""
    if version != "newest" and not (Path(sys.prefix) / f"sdk-{version}").is_dir():
        pytest.skip(f"the SDK {version}.x is not installed; `make test` does it")

    async def story() -> None:
        inject = "always" if version == "2" else "never"
        config = GatewayConfig(port=0, timeouts=Timeouts(first_byte_s=1.0, idle_s=0.5), inject_usage=inject)
        async with open_house(scripts.answer(), config=config) as house:
            house.engine.script = play(house)
            result = await run_client(house.gateway.port, version)
        assert result["version"].startswith(VERSIONS[version])
        assert len(result["outcomes"]) == 2 * len(SCENARIOS)
        wrong = {
            key: (why, got) for key, got in result["outcomes"].items() if (why := judge(key.partition(" ")[0], got))
        }
        assert not wrong

    run(story())
