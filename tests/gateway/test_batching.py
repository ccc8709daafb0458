"""Requests that share a call: who does, what the engine and each client get, and whatever may go wrong with it."""

import asyncio
import hashlib
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from headway.core.events import AttemptFinished
from headway.core.outcome import OutcomeKind
from headway.core.tenant import Tenant
from headway.gateway import batching
from headway.gateway.batching import Batcher
from headway.gateway.config import Batching, GatewayConfig, Timeouts, UpstreamAuth
from headway.gateway.identity import Identities
from headway.runtime.clock import now
from tests.gateway.fakes import Connection, Rig, answer, chunk, post, rig

Run = Callable[[Any], Any]
EMBED = "/v1/embeddings"
TEXT = "/v1/completions"
OK, CLIENT_ERROR = OutcomeKind.OK, OutcomeKind.CLIENT_ERROR
MERGING = GatewayConfig(port=0, batching={"m": Batching(window_ms=20, max=4), "alias": Batching(window_ms=20, max=4)})


def embedding(text: Any) -> list[float]:
    """What the engine below makes of an input."""
    return [float(len(text)), float(sum(map(ord, text))) if isinstance(text, str) else float(sum(text))]


def reply_to(body: bytes) -> dict[str, Any]:
    """An engine's answer to embeddings and completions."""
    asked = json.loads(body)
    given = asked["input"] if "input" in asked else asked["prompt"]
    inputs = [given] if isinstance(given, str) or isinstance(given[0], int) else given
    usage = {"prompt_tokens": sum(map(len, inputs)), "total_tokens": sum(map(len, inputs))}
    if "input" in asked:
        data = [{"object": "embedding", "index": i, "embedding": embedding(text)} for i, text in enumerate(inputs)]
        return {"object": "list", "data": data, "model": asked["model"], "usage": usage, "id": "embd-1"}
    choices = [{"index": i, "text": text.upper(), "finish_reason": "stop"} for i, text in enumerate(inputs)]
    usage = {**usage, "completion_tokens": len(inputs), "total_tokens": usage["total_tokens"] + len(inputs)}
    return {"id": "cmpl-1", "object": "text_completion", "model": asked["model"], "choices": choices, "usage": usage}


async def embeds(connection: Connection) -> None:
    """Answers every request as it should."""
    await connection.send(answer(json.dumps(reply_to(connection.body)).encode()))


def only_alone(status: str, body: bytes = b'{"error":{"message":"no"}}') -> Callable[[Connection], Awaitable[None]]:
    """Answers single inputs, and lists with this."""

    async def script(connection: Connection) -> None:
        if isinstance(json.loads(connection.body)["input"], list):
            await connection.send(answer(body, status))
        else:
            await embeds(connection)

    return script


def asking(text: Any, path: str = EMBED, lines: str = "", **more: Any) -> bytes:
    body = {"model": "m", "input" if path == EMBED else "prompt": text, **more}
    return post(json.dumps(body).encode(), path, lines)


def body_of(response: bytes) -> Any:
    return json.loads(response.partition(b"\r\n\r\n")[2])


def status(response: bytes) -> int:
    return int(response.split(b" ", 2)[1])


def sent(r: Rig, engine: int = 0) -> list[Any]:
    """The inputs of each call that the engine got."""
    bodies = [json.loads(request.partition(b"\r\n\r\n")[2]) for request in r.engines[engine].requests]
    return [body.get("input", body.get("prompt")) for body in bodies]


def batcher(r: Rig) -> Batcher:
    found = r.gateway.plane.batcher
    assert found is not None
    return found


@asynccontextmanager
async def merging(
    *scripts: Callable[[Connection], Awaitable[None]], config: GatewayConfig = MERGING, tries: int = 2, **spec: Any
) -> AsyncIterator[Rig]:
    """A gateway that merges; afterwards each request ended once, and no batch is left."""
    async with rig(*scripts, config=config, tries=tries, **spec) as r:
        yield r
        await r.until(r.balanced)
        ends = [event.attempt_id for event in r.brain.events if isinstance(event, AttemptFinished)]
        assert len(ends) == len(set(ends))
        assert not batcher(r)._waiting


def test_embeddings_in_a_window_become_one_call(run: Run) -> None:
    async def main() -> None:
        async with merging(embeds) as r:
            texts: list[Any] = ["a", ["bb", "ccc"], "é\U0001f600"]
            answers = await asyncio.gather(*(r.ask(asking(text)) for text in texts))
            assert len(sent(r)) == 1
            assert sorted(sent(r)[0]) == sorted(["a", "bb", "ccc", "é\U0001f600"])
            for text, response in zip(texts, answers, strict=True):
                told, flat = body_of(response), [text] if isinstance(text, str) else text
                assert [entry["embedding"] for entry in told["data"]] == [embedding(one) for one in flat]
                assert [entry["index"] for entry in told["data"]] == list(range(len(flat)))
                assert told["model"] == "m"
            assert {body_of(response)["id"] for response in answers} == {f"embd-1-{n}" for n in range(3)}
            assert sum(body_of(response)["usage"]["prompt_tokens"] for response in answers) == 8
            assert [outcome.kind for outcome in r.brain.outcomes] == [OK] * 3
            assert sum(outcome.prompt_tokens for outcome in r.brain.outcomes) == 8
            assert (batcher(r).calls, batcher(r).riders, batcher(r).scattered) == (1, 3, 0)
            assert {access.account for access in r.accesses} == {"ok"}

    run(main())


def test_completions_of_one_prompt_become_one_call(run: Run) -> None:
    async def main() -> None:
        async with merging(embeds) as r:
            answers = await asyncio.gather(*(r.ask(asking(text, TEXT, max_tokens=5)) for text in ("a", ["bb"])))
            assert [sorted(call) for call in sent(r)] == [["a", "bb"]]
            for text, response in zip(("A", "BB"), answers, strict=True):
                told = body_of(response)
                assert [(choice["index"], choice["text"]) for choice in told["choices"]] == [(0, text)]
                assert told["usage"]["completion_tokens"] == 1

    run(main())


@pytest.mark.parametrize(
    "pair",
    [
        (asking("a"), asking("b", dimensions=3)),
        (asking("a"), asking("b", user="u")),
        (asking("a"), asking([1, 2])),
        (asking("a"), asking("b", lines="x-tenant: t\r\n")),
        (asking("a", TEXT), asking("b", TEXT, stream=True)),
        (asking("a", TEXT), asking(["b", "c"], TEXT)),
        (asking("a", TEXT, n=2), asking("b", TEXT, n=2)),
        (asking("a"), asking("a", TEXT)),
        (asking("a"), asking({"text": "b"})),
        (asking("a" * batching.MAX_RIDER_BYTES), asking("b")),
        (asking("a"), asking(["b"] * 4)),
    ],
)
def test_what_differs_in_more_than_its_input_goes_alone(run: Run, pair: tuple[bytes, bytes]) -> None:
    async def plain(connection: Connection) -> None:
        await connection.send(answer())

    async def main() -> None:
        async with merging(plain) as r:
            await asyncio.gather(*map(r.ask, pair))
            assert len(r.engines[0].requests) == 2
            assert batcher(r).calls == 0

    run(main())


def test_credentials_that_are_passed_on_are_never_shared(run: Run) -> None:
    config = GatewayConfig(port=0, batching=MERGING.batching, auth=UpstreamAuth(forward_client=True))

    async def main() -> None:
        async with merging(embeds, config=config) as r:
            keys = ("authorization: Bearer a\r\n", "authorization: Bearer b\r\n", "authorization: Bearer b\r\n")
            await asyncio.gather(*(r.ask(asking("x", lines=key)) for key in keys))
            shown = [re.findall(rb"Bearer \w", request) for request in r.engines[0].requests]
            assert sorted(shown) == [[b"Bearer a"], [b"Bearer b"]]
            assert (batcher(r).calls, batcher(r).riders) == (1, 2)

    run(main())


def test_tenants_never_share_a_call(run: Run) -> None:
    """Engines do not see the keys of tenants, so that all they would get is the same bytes."""
    tenants = (Tenant("ann"), Tenant("bob"))
    keys = {hashlib.sha256(tenant.name.encode()).digest(): tenant.name for tenant in tenants}

    async def main() -> None:
        async with merging(embeds) as r:
            r.gateway.set_identities(Identities(keys, tenants))
            lines = [f"authorization: Bearer {name}\r\n" for name in ("ann", "bob", "bob")]
            answers = await asyncio.gather(*(r.ask(asking(f"x{n}", lines=line)) for n, line in enumerate(lines)))
            assert [len(body_of(response)["data"]) for response in answers] == [1, 1, 1]
            assert [sorted(call) for call in sent(r) if isinstance(call, list)] == [["x1", "x2"]]
            assert (batcher(r).calls, batcher(r).riders) == (1, 2)

    run(main())


def test_the_call_names_no_client(run: Run) -> None:
    async def main() -> None:
        async with merging(embeds) as r:
            lines = ("x-request-id: mine\r\n", "x-request-id: yours\r\n")
            await asyncio.gather(*(r.ask(asking("x", lines=line)) for line in lines))
            (request,) = r.engines[0].requests
            head = request.partition(b"\r\n\r\n")[0].lower()
            assert head.count(b"x-request-id: ") == 1
            assert not any(name in head for name in (b"mine", b"yours", b"forwarded"))
            assert not any(str(access.request_id).encode() in head for access in r.accesses)

    run(main())


def test_a_renamed_model_is_shared_with_its_own_name(run: Run) -> None:
    async def main() -> None:
        async with merging(embeds, serves={"m": "real", "alias": "real"}) as r:
            r.brain.renamed = {"m": "real", "alias": "real"}
            answers = await asyncio.gather(r.ask(asking("a")), r.ask(asking("b", model="alias")))
            assert [sorted(call) for call in sent(r)] == [["a", "b"]]
            assert [body_of(response)["model"] for response in answers] == ["real", "real"]

    run(main())


def test_models_that_are_not_set_are_not_touched(run: Run) -> None:
    async def main() -> None:
        async with rig(embeds, config=GatewayConfig(port=0)) as r:
            assert r.gateway.plane.batcher is None
        async with merging(embeds, config=GatewayConfig(port=0, batching={"other": Batching()})) as r:
            await asyncio.gather(r.ask(asking("a")), r.ask(asking("b")))
            assert sorted(sent(r)) == ["a", "b"]

    run(main())


def test_a_full_call_leaves_at_once(run: Run) -> None:
    config = GatewayConfig(port=0, batching={"m": Batching(window_ms=20_000, max=2)})

    async def main() -> None:
        async with merging(embeds, config=config) as r:
            began = now()
            await asyncio.gather(r.ask(asking("a")), r.ask(asking("b")))
            assert now() - began < 10.0, "it did not wait for its window"
            assert (batcher(r).calls, batcher(r).riders) == (1, 2)

    run(main())


def test_a_lone_rider_leaves_as_it_came(run: Run) -> None:
    async def main() -> None:
        async with merging(embeds) as r:
            await r.ask(asking("c"))
            assert sent(r) == ["c"]
            assert (batcher(r).calls, batcher(r).riders) == (0, 0)

    run(main())


def test_what_does_not_fit_any_more_takes_the_next_one(run: Run) -> None:
    async def main() -> None:
        async with merging(embeds) as r:
            await asyncio.gather(*(r.ask(asking(inputs)) for inputs in (["a", "b"], ["c"], ["d", "e"], ["f"])))
            assert all(len(call) <= 4 for call in sent(r))
            assert sorted(text for call in sent(r) for text in call) == list("abcdef")
            assert len(sent(r)) == 2

    run(main())


@pytest.mark.parametrize("refusal", ["400 Bad", "404 No", "413 Large", "422 Odd", "500 Error", "501 No"])
def test_one_bad_input_spoils_nobody_elses(run: Run, refusal: str) -> None:
    async def picky(connection: Connection) -> None:
        given = json.loads(connection.body)["input"]
        if "bad" in given:
            await connection.send(
                answer(b'{"error":{"message":"bad input"}}', "400 Bad" if given == "bad" else refusal)
            )
        else:
            await embeds(connection)

    async def main() -> None:
        async with merging(picky) as r:
            texts = ("a", "bad", "b")
            answers = await asyncio.gather(*(r.ask(asking(text)) for text in texts))
            assert [status(response) for response in answers] == [200, 400, 200]
            assert b"bad input" in answers[1]
            assert sorted(sent(r)[1:]) == ["a", "b", "bad"]
            assert sorted(outcome.kind for outcome in r.brain.outcomes) == sorted([OK, OK, CLIENT_ERROR])
            assert batcher(r).scattered == 3

    run(main())


def test_a_refusal_for_lack_of_room_is_the_brains_to_answer(run: Run) -> None:
    async def main() -> None:
        async with merging(only_alone("503 Busy"), embeds) as r:
            answers = await asyncio.gather(r.ask(asking("a")), r.ask(asking("b")))
            assert [status(response) for response in answers] == [200, 200]
            assert (len(sent(r)), sorted(sent(r, 1))) == (1, ["a", "b"])
            kinds = [outcome.kind for outcome in r.brain.outcomes]
            assert sorted(kinds) == sorted([OutcomeKind.BACKPRESSURE] * 2 + [OK] * 2)
        async with merging(only_alone("503 Busy"), tries=1) as r:
            answers = await asyncio.gather(r.ask(asking("a")), r.ask(asking("b")))
            assert [status(response) for response in answers] == [503, 503]

    run(main())


@pytest.mark.parametrize(
    "body",
    [
        b"{}",
        b'{"data":[]}',
        json.dumps([reply_to(b'{"model":"m","input":["a","b"]}')]).encode(),
        json.dumps(reply_to(b'{"model":"m","input":"a"}')).encode(),
    ],
)
def test_a_reply_that_is_no_such_thing_scatters_once_and_for_all(run: Run, body: bytes) -> None:
    async def main() -> None:
        async with merging(only_alone("200 OK", body)) as r:
            for calls in (3, 5):
                answers = await asyncio.gather(r.ask(asking("a")), r.ask(asking("b")))
                assert [status(response) for response in answers] == [200, 200]
                assert len(sent(r)) == calls

    run(main())


@pytest.mark.parametrize("how", ["reset", "half", "garbage", "stream", "huge"])
def test_a_call_that_is_lost_scatters(run: Run, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batching, "MAX_REPLY_BYTES", 1000)

    async def script(connection: Connection) -> None:
        if not isinstance(json.loads(connection.body)["input"], list):
            await embeds(connection)
        elif how == "reset":
            connection.reset()
        elif how == "half":
            await connection.send(answer(b'{"data":[]}')[:-3])
            connection.writer.close()
        elif how == "garbage":
            await connection.send(b"nonsense\r\n\r\n")
        elif how == "stream":
            await connection.send(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\ndata: x\n\n")
            connection.writer.close()
        else:
            await connection.send(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" + chunk(b"x" * 2000))
            await connection.gone()

    async def main() -> None:
        async with merging(script) as r:
            answers = await asyncio.gather(r.ask(asking("a")), r.ask(asking("b")))
            assert [status(response) for response in answers] == [200, 200]
            assert [outcome.kind for outcome in r.brain.outcomes] == [OK, OK]
            assert sorted(sent(r)[1:]) == ["a", "b"]

    run(main())


def test_a_reply_in_chunks_is_taken_apart_too(run: Run) -> None:
    async def script(connection: Connection) -> None:
        whole = json.dumps(reply_to(connection.body)).encode()
        head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n"
        await connection.send(head + chunk(whole[:40]))
        await connection.send(chunk(whole[40:]) + b"0\r\n\r\n")

    async def main() -> None:
        async with merging(script) as r:
            answers = await asyncio.gather(r.ask(asking("a")), r.ask(asking("bb")))
            assert [body_of(response)["data"][0]["embedding"] for response in answers] == [
                embedding("a"),
                embedding("bb"),
            ]
            assert all(b"content-length" in response and b"chunked" not in response for response in answers)

    run(main())


def test_an_engine_that_is_gone_fails_each_as_if_alone(run: Run) -> None:
    async def main() -> None:
        async with merging(embeds, embeds) as r:
            await r.engines[0].stop()
            answers = await asyncio.gather(r.ask(asking("a")), r.ask(asking("b")))
            assert [status(response) for response in answers] == [200, 200]
            assert sorted(sent(r, 1)) == ["a", "b"]
            failed = [outcome for outcome in r.brain.outcomes if outcome.kind is OutcomeKind.CONNECT_FAILED]
            assert [outcome.sent for outcome in failed] == [False, False]

    run(main())


@pytest.mark.parametrize("stays", [0, 1, 2])
def test_who_leaves_in_the_window_is_not_sent(run: Run, stays: int) -> None:
    async def main() -> None:
        async with merging(embeds, config=GatewayConfig(port=0, batching={"m": Batching(60, 9)})) as r:
            _, writer = await r.client()
            writer.write(asking("gone"))
            await r.until(lambda: len(r.brain.requests) == 1)
            asked = [asyncio.create_task(r.ask(asking(text))) for text in "ab"[:stays]]
            await r.until(lambda: len(r.brain.requests) == 1 + stays)
            writer.close()
            await asyncio.gather(*asked)
            await r.until(lambda: len(r.accesses) == 1 + stays)
            assert sorted(text for call in sent(r) for text in call) == sorted("ab"[:stays])
            assert sorted(access.account for access in r.accesses) == sorted(["client_closed"] + ["ok"] * stays)
            (left,) = (outcome for outcome in r.brain.outcomes if outcome.kind is OutcomeKind.CLIENT_CLOSED)
            assert not left.sent

    run(main())


def test_who_leaves_a_call_under_way_loses_its_part_only(run: Run) -> None:
    async def slow(connection: Connection) -> None:
        if not await connection.gone(0.08):
            await embeds(connection)

    async def main() -> None:
        async with merging(slow) as r:
            _, writer = await r.client()
            writer.write(asking("gone"))
            others = [asyncio.create_task(r.ask(asking(text))) for text in "ab"]
            await r.until(lambda: len(r.engines[0].requests) == 1)
            writer.close()
            answers = await asyncio.gather(*others)
            assert [body_of(one)["data"][0]["embedding"] for one in answers] == [embedding("a"), embedding("b")]
            assert len(r.engines[0].requests) == 1
            assert sorted(access.account for access in r.accesses) == ["client_closed", "ok", "ok"]

    run(main())


def test_when_all_leave_the_call_is_cut(run: Run) -> None:
    async def hangs(connection: Connection) -> None:
        assert await connection.gone()

    async def main() -> None:
        async with merging(hangs) as r:
            clients = [await r.client() for _ in range(2)]
            for _, writer in clients:
                writer.write(asking("x"))
            await r.until(lambda: len(r.engines[0].requests) == 1)
            for _, writer in clients:
                writer.close()
            await r.until(lambda: r.engines[0].open == 0)
            assert [outcome.kind for outcome in r.brain.outcomes] == [OutcomeKind.CLIENT_CLOSED] * 2

    run(main())


def test_silence_is_each_ones_own_timeout(run: Run) -> None:
    config = GatewayConfig(port=0, batching=MERGING.batching, timeouts=Timeouts(first_byte_s=0.1))

    async def hangs(connection: Connection) -> None:
        await connection.gone()

    async def main() -> None:
        async with merging(hangs, config=config, tries=1) as r:
            answers = await asyncio.gather(r.ask(asking("a")), r.ask(asking("b")))
            assert [status(response) for response in answers] == [504, 504]
            assert [outcome.kind for outcome in r.brain.outcomes] == [OutcomeKind.FIRST_BYTE_TIMEOUT] * 2
            await r.until(lambda: r.engines[0].open == 0)

    run(main())


def test_an_abort_takes_one_out(run: Run) -> None:
    """A completion that the engine aborts within a merged reply is tried again elsewhere; the other one is served."""

    async def aborts(connection: Connection) -> None:
        reply = reply_to(connection.body)
        for choice in reply["choices"]:
            choice["finish_reason"] = "abort" if choice["text"] == "B" else "stop"
        await connection.send(answer(json.dumps(reply).encode()))

    async def main() -> None:
        async with merging(aborts, embeds) as r:
            answers = await asyncio.gather(*(r.ask(asking(text, TEXT)) for text in "ab"))
            assert [body_of(response)["choices"][0]["text"] for response in answers] == ["A", "B"]
            assert sent(r, 1) == ["b"]
            assert sorted(outcome.kind for outcome in r.brain.outcomes) == sorted([OK, OutcomeKind.ENGINE_ABORT, OK])

    run(main())


def test_shutting_down_with_riders_in_the_window(run: Run) -> None:
    async def main() -> None:
        config = GatewayConfig(port=0, batching={"m": Batching(window_ms=900, max=9)})
        async with merging(embeds, config=config) as r:
            asked = [asyncio.create_task(r.ask(asking(text))) for text in "ab"]
            await r.until(lambda: len(r.brain.requests) == 2)
            await r.gateway.stop(0.0)
            assert [status(response) for response in await asyncio.gather(*asked)] == [503, 503]
            assert not r.engines[0].requests

    run(main())
