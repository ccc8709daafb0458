"""Requests that are moved while they run, over sockets: what a client gets is what one undisturbed replica says."""

import asyncio
import gc
import json
import time
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from headway.core.commands import Hold, Moved, Record
from headway.core.events import AttemptFinished
from headway.core.outcome import OutcomeKind
from headway.gateway.attempt import Attempt
from headway.gateway.config import GatewayConfig, Moving
from headway.gateway.exchange import Exchange
from headway.gateway.mover import Mover
from headway.wire.resume import Tape
from tests.cases.house import House, at_most, case, movable, until
from tests.cases.moves import HASTY, MOVABLE, PATIENT, QUEUE, move, obey, plain, running, speak, undisturbed, wish
from tests.harness import scripts
from tests.harness.client import Answer, request
from tests.harness.engine import Connection, Script, Seen
from tests.harness.speaker import MODEL, WAYS, Trouble, said
from tests.interpreted import interpreted
from tests.wire.engine import CHAT, COMPLETIONS
from tests.wire.test_resume_exact import seen as made_of

NOBODY = scripts.stream(1)
TWO: dict[str, Any] = {"config": MOVABLE, "brain": PATIENT, "model": MODEL}
USAGE: dict[str, Any] = {"stream_options": {"include_usage": True}}
PACE_S = 0.003


def first(trouble: Trouble) -> Callable[[Seen], Trouble | None]:
    """Trouble for the attempts that begin an answer."""
    return lambda seen: trouble if seen.request.get("x-request-id").endswith("-0") else None


def later(trouble: Trouble) -> Callable[[Seen], Trouble | None]:
    """Trouble for the attempts that continue one; not for what is only asked to warm a cache."""

    def of(seen: Seen) -> Trouble | None:
        begun = seen.request.get("x-request-id").endswith("-0")
        return (
            None
            if begun or b'"max_tokens":1,' in seen.request.body or b'"max_tokens":1}' in seen.request.body
            else trouble
        )

    return of


def outcomes(house: House) -> list[OutcomeKind]:
    """How attempts ended, in order."""
    return [event.outcome.kind for event, _ in house.journal if isinstance(event, AttemptFinished)]


def results(house: House) -> list[str]:
    """What became of moves, in order."""
    entries = [c.entry for _, commands in house.journal for c in commands if isinstance(c, Record)]
    return [entry.result for entry in entries if isinstance(entry, Moved)]


async def some(house: House, size: int = 2000) -> None:
    """Wait until an engine has said so much."""
    await until(lambda: sum(one.wrote for engine in house.engines for one in engine.log.inference) > size)


async def ask(house: House, path: str = CHAT, **more: Any) -> tuple["asyncio.Future[Answer]", bytes]:
    """A request that has begun to be answered, and what its answer is to be."""
    body = wish(path, **{**USAGE, **more})
    asked = asyncio.ensure_future(house.ask(body, path))
    await some(house)
    return asked, undisturbed(path, body)


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
@case(NOBODY, NOBODY, **TWO)
async def test_a_stream_is_moved(house: House, path: str) -> None:
    """Once there and back again: the bytes are those of an undisturbed run, and so is the account."""
    speak(house, gap_s=PACE_S)
    asked, expected = await ask(house, path)
    move(house, running(house))
    await until(lambda: "cut" in results(house))
    await asyncio.sleep(5 * PACE_S)
    move(house, running(house))
    answer = await asked
    assert answer.error == ""
    assert plain(answer.body) == expected
    assert results(house) == ["begun", "cut", "begun", "cut"]
    assert outcomes(house) == [OutcomeKind.MIGRATED, OutcomeKind.MIGRATED, OutcomeKind.OK]
    [access] = house.booked
    assert (access.account, access.attempts, access.output_tokens) == ("ok", 3, 60)
    assert house.count("headway_migrations_total", result="cut", reason="operator") == 2
    assert house.count("headway_migration_gap_seconds_count", kind="cut") == 2
    assert house.count("headway_replayed_tokens_total") > 0


@interpreted
@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("end", ["moved", "at_rest", "left", "given_up"])
@case(NOBODY, NOBODY, **{**TWO, "config": movable(MOVABLE)})
async def test_what_a_request_has_said_goes_with_it(house: House, end: str, stream: bool) -> None:
    """Not at the next search for cycles, which is twenty thousand objects away: by then every answer of some hundred
    requests would be there, and so would their bodies."""
    gc.collect()
    gc.disable()
    try:
        speak(house, gap_s=PACE_S)
        async with house.client() as client:
            await client.send(request(CHAT, wish(CHAT, **USAGE) if stream else {**wish(CHAT), "stream": False}))
            await some(house)
            if end in ("moved", "given_up"):
                move(house, running(house))
            if end == "moved":
                await until(lambda: "cut" in results(house))
            if end in ("left", "given_up"):
                client.rst()
            else:
                await client.answer()
        await house.at_rest()
        kept = (Exchange, Mover, Attempt, Tape)
        await until(
            lambda: not any(isinstance(one, kept) for one in gc.get_objects()), 1.0, lambda: "they are all there"
        )
    finally:
        gc.enable()


ODD = b'{"choices":[{"message":{"content":"a\\n\\n"},"finish_reason":"stop"}],\n\n"token_ids":[1],"x":1}'
GZIP = "Content-Encoding: gzip"


@pytest.mark.parametrize(
    "head",
    [
        "Content-Type: application/json\r\nContent-Length: @",
        "Content-Type: application/json\r\nTransfer-Encoding: chunked",
        "Content-Type: text/plain\r\nContent-Length: @",
        f"Content-Type: text/event-stream\r\n{GZIP}\r\nContent-Length: @",
        f"Content-Type: text/event-stream\r\n{GZIP}\r\nTransfer-Encoding: chunked",
        "Content-Length: @",
    ],
)
@pytest.mark.parametrize("status", [200, 400])
@case(NOBODY, NOBODY, **TWO)
async def test_what_is_no_stream_though_one_was_asked_for_passes_as_it_is(house: House, head: str, status: int) -> None:
    """Also if it is held back by what takes token ids out of streams, and never ends with an empty line."""
    body = scripts.chunk(ODD) + scripts.LAST_CHUNK if "chunked" in head else ODD
    whole = b"HTTP/1.1 %d X\r\n%b\r\n\r\n%b" % (status, head.replace("@", str(len(ODD))).encode(), body)
    for engine in house.engines:
        engine.script = scripts.raw(whole)
    answer = await house.ask(wish(CHAT))
    assert (answer.error, answer.status, answer.body) == ("", status, ODD)


@case(NOBODY, NOBODY, **TWO)
async def test_a_movable_stream_with_a_length_is_reframed(house: House) -> None:
    """Token ids that its client did not ask for are taken out: the length no longer holds."""
    body = {**wish(CHAT), "return_token_ids": True}
    stream = said(CHAT, json.dumps(body).encode(), "r0")
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: %d\r\n\r\n" % len(stream)
    for engine in house.engines:
        engine.script = scripts.raw(head, stream)
    answer = await house.ask(wish(CHAT))
    assert (answer.error, plain(answer.body)) == ("", undisturbed(CHAT, wish(CHAT)))


@pytest.mark.parametrize("way", [way for way in WAYS if way not in ("early", "hang")])
@case(NOBODY, NOBODY, **TWO)
async def test_the_death_of_a_replica_is_not_noticed(house: House, way: str) -> None:
    """F5: it dies in the middle of a stream, in whichever way: another goes on, within a second."""
    speak(house, gap_s=0.0005, trouble=first(Trouble(3100, way)))
    asked, expected = await ask(house)
    answer = await asked
    assert plain(answer.body) == expected
    assert results(house) == ["failed_over"]
    assert max(b.at - a.at for a, b in zip(answer.events, answer.events[1:], strict=False)) < 1.0
    assert house.count("headway_migration_gap_seconds_count", kind="resumed") == 1


@case(NOBODY, NOBODY, **TWO)
async def test_an_engine_that_ends_within_its_first_event_is_not_believed(house: House) -> None:
    """Its framing is in order, and nothing was given to the client: another begins again."""
    speak(house, trouble=first(Trouble(100, "last")))
    body = wish(CHAT)
    assert plain((await house.ask(body)).body) == undisturbed(CHAT, body)


@case(NOBODY, NOBODY, config=HASTY, brain=PATIENT, model=MODEL)
async def test_silence_is_a_death_too(house: House) -> None:
    speak(house, trouble=first(Trouble(3100, "hang")))
    asked, expected = await ask(house)
    assert plain((await asked).body) == expected


@pytest.mark.parametrize("way", ["rst", "last"])
@case(NOBODY, NOBODY, **TWO)
async def test_an_error_behind_the_last_word_is_not_for_the_client(house: House, way: str) -> None:
    """All was said but for the usage and [DONE]: we can say these."""
    body = wish(CHAT, **USAGE)
    whole = undisturbed(CHAT, body)
    speak(house, gap_s=0.0005, trouble=first(Trouble(-80, way)))
    answer = await house.ask(body)
    assert made_of(plain(answer.body))["usage"] == made_of(whole)["usage"]
    assert made_of(plain(answer.body))["text"] == made_of(whole)["text"]
    assert results(house) == []


@case(NOBODY, NOBODY, config=HASTY, brain=PATIENT, model=MODEL)
async def test_who_cannot_go_on_hears_of_it_in_the_stream(house: House) -> None:
    """A request that is pinned is where it was: an error event, and a cut."""
    speak(house, trouble=first(Trouble(3100, "rst")))
    asked, _ = await ask(house, seed=7)
    answer = await asked
    assert answer.failure["code"] == 502
    assert house.count("headway_pinned_requests_total", reason="seed") == 1


@pytest.mark.parametrize("way", WAYS)
@case(NOBODY, NOBODY, config=HASTY, brain=PATIENT, model=MODEL)
async def test_a_target_that_fails_is_not_noticed(house: House, way: str) -> None:
    """F7: until the target's first word, nothing has happened. (Silence: what is held passes after a while.)"""
    speak(house, gap_s=PACE_S, trouble=later(Trouble(0, way)))
    asked, expected = await ask(house)
    move(house, running(house))
    answer = await asked
    assert plain(answer.body) == expected
    assert results(house) == ["begun", "abandoned"]
    assert outcomes(house)[-1] is OutcomeKind.OK
    assert house.booked[0].attempts == 1


@pytest.mark.parametrize("way", ["rst", "fin", "error", "abort"])
@case(NOBODY, NOBODY, **TWO)
async def test_both_replicas_die(house: House, way: str) -> None:
    """F6, F7: the target dies right after the cut, and again, and again: each time the other goes on."""
    speak(house, gap_s=PACE_S, trouble=later(Trouble(900, way)))
    asked, expected = await ask(house, max_tokens=22)
    move(house, running(house))
    answer = await asked
    assert plain(answer.body) == expected
    assert results(house).count("failed_over") >= 1


@case(NOBODY, NOBODY, **TWO)
async def test_the_source_dies_while_the_target_is_made_ready(house: House) -> None:
    """F7: there is one already that is about to take over."""
    speak(house, gap_s=PACE_S)
    asked, expected = await ask(house)
    source = next(number for number, engine in enumerate(house.engines) if engine.log.inference)
    move(house, running(house))
    for connection in list(house.engines[source].connections):
        connection.rst()
    answer = await asked
    assert plain(answer.body) == expected
    assert results(house) == ["begun", "failed_over"]


@case(NOBODY, NOBODY, **TWO)
async def test_an_evicted_request_goes_on_later(house: House) -> None:
    obey(house)
    speak(house, gap_s=PACE_S)
    asked, expected = await ask(house)
    move(house, running(house), QUEUE)
    answer = await asked
    assert plain(answer.body) == expected
    assert outcomes(house) == [OutcomeKind.EVICTED, OutcomeKind.OK]
    assert any(isinstance(command, Hold) for _, commands in house.journal for command in commands)


@case(
    NOBODY,
    NOBODY,
    config=GatewayConfig(port=0, inject_usage="never", moving=Moving(keepalive_s=0.01)),
    brain=PATIENT,
    model=MODEL,
)
async def test_a_client_that_has_to_wait_gets_comments(house: House) -> None:
    """Between events, and no events themselves."""
    speak(house, gap_s=PACE_S)
    asked, expected = await ask(house)
    for engine in house.engines:
        usual = engine.paths["/detokenize"]

        async def slowly(connection: Connection, seen: Seen, usual: Script = usual) -> None:
            await asyncio.sleep(0.05)
            await usual(connection, seen)

        engine.paths["/detokenize"] = slowly
        for connection in list(engine.connections):
            connection.rst()
    answer = await asked
    assert answer.body.count(b": waiting for a replica\n") >= 1
    assert plain(answer.body).replace(b": waiting for a replica\n", b"") == expected


@pytest.mark.parametrize("moment", ["warming", "cutting", "moved"])
@case(NOBODY, NOBODY, **TWO)
async def test_a_client_that_leaves_closes_both(house: House, moment: str) -> None:
    """Both upstreams are closed at once, and both attempts are settled, once."""
    speak(house, gap_s=PACE_S)
    stuck = scripts.stall()
    async with house.client() as client:
        await client.send(request(CHAT, wish(CHAT)))
        await some(house)
        idle = next(engine for engine in house.engines if not engine.log.inference)
        if moment == "warming":
            idle.paths[COMPLETIONS] = stuck
        elif moment == "cutting":
            idle.paths["/detokenize"] = stuck
        move(house, running(house))
        if moment == "moved":
            await until(lambda: "cut" in results(house))
        else:
            await until(lambda: any(one.request.path != "/metrics" for one in idle.log.inference))
            await asyncio.sleep(0.02)
        left = time.perf_counter()
    await house.at_rest(started=1, client_closed=1)
    gone = [
        one.gone_at
        for engine in house.engines
        for one in engine.log.inference
        if one.answered_at is None or one.gone_at
    ]
    assert all(at is None or at - left < 0.25 for at in gone)
    kinds = outcomes(house)
    assert sorted(kinds) == sorted(
        [OutcomeKind.MIGRATED, OutcomeKind.CLIENT_CLOSED]
        if moment == "moved"
        else [OutcomeKind.CLIENT_CLOSED, OutcomeKind.CANCELLED]
    )


@case(NOBODY, NOBODY, **TWO)
async def test_a_slow_reader_holds_both_up(house: House) -> None:
    """Back-pressure holds across a cut, and nothing is lost of what waited."""
    speak(house)
    body = wish(CHAT, max_tokens=1500, ignore_eos=True)
    expected = undisturbed(CHAT, body)
    async with house.client() as client:
        await client.send(request(CHAT, body))
        await some(house)
        await asyncio.sleep(0.2)
        [connection] = house.gateway.plane.connections
        assert connection.paused or sum(one.wrote for e in house.engines for one in e.log.inference) > 100_000
        move(house, running(house)) if house.gateway.plane.driver.exchanges else None
        await asyncio.sleep(0.1)
        answer = await client.answer()
    assert plain(answer.body) == expected


@case(NOBODY, NOBODY, **TWO)
async def test_the_gateway_shuts_down_in_the_middle_of_a_move(house: House) -> None:
    speak(house, gap_s=PACE_S)
    asked, expected = await ask(house)
    idle = next(engine for engine in house.engines if not engine.log.inference)
    idle.paths["/detokenize"] = scripts.stall()
    move(house, running(house))
    await until(lambda: idle.log.hits["/detokenize"] > 0)
    await house.gateway.stop(0.0)
    answer = await asked
    assert answer.failure is not None
    whole = plain(answer.body).rpartition(b"data: ")[0]
    assert expected.startswith(whole.rstrip(b"\n"))
    assert sorted(outcomes(house)) == [OutcomeKind.CANCELLED, OutcomeKind.CANCELLED]


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
@pytest.mark.parametrize("temperature", [0, 1])
@case(NOBODY, NOBODY, **TWO)
async def test_stop_strings_across_the_cut(house: House, path: str, temperature: int) -> None:
    """The text that may begin a stop string was held back by the source; neither replica alone sees the whole of it."""
    whole = made_of(undisturbed(path, wish(path)))["text"]
    for place in (20, 60, 90):
        stops = [whole[place : place + 12], "never said"]
        body = wish(path, stop=stops, temperature=temperature, **USAGE)
        expected = made_of(undisturbed(path, body))
        speak(house, gap_s=PACE_S)
        seen_before = sum(one.wrote for engine in house.engines for one in engine.log.inference)
        asked = asyncio.ensure_future(house.ask(body, path))
        await some(house, seen_before + 900)
        for request_id in house.gateway.plane.driver.exchanges:
            move(house, request_id)
        got = made_of(plain((await asked).body))
        assert (got["text"], got["ends"], got["roles"]) == (expected["text"], expected["ends"], expected["roles"])


@case(
    NOBODY, NOBODY, config=MOVABLE, brain=msgspec.structs.replace(PATIENT, scheduler=at_most(1).scheduler), model=MODEL
)
async def test_nobody_has_room_yet(house: House) -> None:
    """A request whose replica dies waits in the queue while the other one is busy, then goes on."""
    speak(house, gap_s=PACE_S)
    one, expected = await ask(house)
    other = asyncio.ensure_future(house.ask(wish(CHAT, **USAGE)))
    await until(lambda: all(engine.log.inference for engine in house.engines))
    house.engines[0].refuse()
    for connection in list(house.engines[0].connections):
        connection.rst()
    assert plain((await one).body) == plain((await other).body) == expected
