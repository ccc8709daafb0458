"""What the brain takes from a request, and that the client is told: over real sockets with a scripted brain."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from headway.core.commands import Command, Dispatch, LevelChanged, Record, Reject
from headway.core.ids import RequestId, attempt_id
from headway.gateway.config import Cors, GatewayConfig
from headway.runtime.clock import now
from headway.wire import spans
from tests.gateway.fakes import CHAT, CHAT_STREAM, Connection, Rig, always, answer, post, rig

Run = Callable[[Any], Any]
LONG = b'{"model":"m","max_tokens":900,"messages":[],"logprobs":true,"top_logprobs":3}'
TOLD = (("x-headway-max-tokens", "256"), ("x-headway-logprobs", "off"))


def takes(r: Rig, *first: Command, model: str = "", **change: Any) -> None:
    """The brain dispatches with these changes, after some other commands."""

    def arrived(event: Any) -> list[Any]:
        request = event.request
        r.brain.attempts[request.id] = 0
        attempt = attempt_id(request.id, 0)
        return [*first, Dispatch(request.id, attempt, r.brain.replicas[0], model or request.model, **change)]

    r.brain.arrived = arrived


def sent(r: Rig) -> bytes:
    """The body that the engine got."""
    return r.engines[0].requests[-1].partition(b"\r\n\r\n")[2]


def lines(response: bytes) -> list[bytes]:
    return response.partition(b"\r\n\r\n")[0].lower().split(b"\r\n")[1:]


@pytest.mark.parametrize(
    ("change", "body"),
    [
        ({}, LONG),
        ({"max_tokens": 1000}, LONG),
        ({"max_tokens": 256}, LONG.replace(b"900", b"256")),
        ({"logprobs": False}, b'{"model":"m","max_tokens":900,"messages":[],"logprobs":false,"top_logprobs":null}'),
        (
            {"max_tokens": 5, "logprobs": False, "model": "other"},
            b'{"model":"other","max_tokens":5,"messages":[],"logprobs":false,"top_logprobs":null}',
        ),
    ],
)
def test_the_engine_gets_what_the_brain_allows(run: Run, change: dict[str, Any], body: bytes) -> None:
    async def main() -> None:
        async with rig(always) as r:
            takes(r, **change)
            assert b" 200 " in await r.ask(post(LONG))
            assert sent(r) == body

    run(main())


def test_a_cap_beside_the_usage_option(run: Run) -> None:
    async def main() -> None:
        async with rig(always, config=GatewayConfig(port=0, inject_usage="always")) as r:
            takes(r, max_tokens=9)
            await r.ask(post(CHAT_STREAM))
            got = msgspec.json.decode(sent(r))
            assert (got["max_tokens"], got["stream_options"]) == (9, {"include_usage": True})

    run(main())


def test_forms_are_not_rewritten(run: Run) -> None:
    form = b'--x\r\nContent-Disposition: form-data; name="model"\r\n\r\nm\r\n--x--\r\n'

    async def main() -> None:
        async with rig(always) as r:
            takes(r, max_tokens=9, logprobs=False)
            head = "POST /v1/audio/transcriptions HTTP/1.1\r\nhost: h\r\nconnection: close\r\n"
            head += f"content-type: multipart/form-data; boundary=x\r\ncontent-length: {len(form)}\r\n\r\n"
            assert b" 200 " in await r.ask(head.encode() + form)
            assert sent(r) == form

    run(main())


def test_a_body_that_cannot_be_rewritten_is_refused(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spans, "MAX_KEYS", 1)

    async def main() -> None:
        async with rig(always) as r:
            for change in ({"max_tokens": 9}, {"logprobs": False}):
                takes(r, **change)
                assert b" 400 " in (await r.ask(post(CHAT))).partition(b"\r\n")[0]
            assert not r.engines[0].requests

    run(main())


def test_what_was_changed_is_disclosed_with_the_answer(run: Run) -> None:
    async def main() -> None:
        async with rig(always) as r:
            takes(r, disclosed=(*TOLD, ("x-headway-model", "a\r\nset-cookie: é" + "x" * 999), ("no name", "v")))
            got = lines(await r.ask(post(CHAT)))
            assert b"x-headway-max-tokens: 256" in got
            assert b"x-headway-logprobs: off" in got
            (model,) = (line for line in got if line.startswith(b"x-headway-model"))
            assert model.startswith(b"x-headway-model: a??set-cookie: ?xxx")
            assert len(model) < 300
            assert not any(line.startswith((b"set-cookie", b"no name", b"access-control")) for line in got)

    run(main())


def test_refusals_disclose_too_and_a_retry_discloses_its_own(run: Run) -> None:
    async def refuses(connection: Connection) -> None:
        await connection.send(answer(b"{}", "503 Busy"))

    async def main() -> None:
        async with rig(refuses, always) as r:
            takes(r, disclosed=TOLD)
            assert not any(line.startswith(b"x-headway") for line in lines(await r.ask(post(CHAT))))
            r.brain.tries = 1
            r.brain.exhausted = lambda event: Reject(RequestId(event.attempt_id[:-2]), 502, "upstream_failed", "no")
            refused = await r.ask(post(CHAT))
            assert b" 502 " in refused
            assert b"x-headway-logprobs: off" in lines(refused)

    run(main())


def test_browsers_may_read_what_is_disclosed(run: Run) -> None:
    async def main() -> None:
        async with rig(always, config=GatewayConfig(port=0, cors=Cors(("https://a",)))) as r:
            takes(r, disclosed=TOLD)
            got = lines(await r.ask(post(CHAT, lines="origin: https://a\r\n")))
            exposed = b", ".join(line.split(b": ")[1] for line in got if b"expose-headers" in line).split(b", ")
            for name in (
                b"x-request-id",
                b"retry-after",
                b"x-headway-level",
                b"x-queue-position",
                b"x-expected-wait-s",
            ):
                assert name in exposed
            assert b"x-headway-max-tokens" in exposed
            other = lines(await r.ask(post(CHAT, lines="origin: https://b\r\n")))
            assert not any(b"expose-headers" in line for line in other)

    run(main())


def test_the_level_of_a_model_is_on_its_responses_while_it_lasts(run: Run) -> None:
    async def main() -> None:
        async with rig(always, serves={"m": "m", "calm": "calm"}) as r:
            for level, told in ((2, True), (0, False)):
                takes(r, Record(LevelChanged(now(), "m", level, False, 0.97)))
                assert (b"x-headway-level: 2" in lines(await r.ask(post(CHAT)))) == told
                calm = await r.ask(post(CHAT.replace(b'"m"', b'"calm"')))
                assert not any(line.startswith(b"x-headway") for line in lines(calm))

    run(main())
