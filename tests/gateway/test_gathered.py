"""Answers in one piece of engines that stream: when they are whole, and what becomes of those that will not be."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from headway.core.commands import Reject, Relay
from headway.core.events import FirstToken, Progress
from headway.core.outcome import OutcomeKind
from headway.gateway.gathered import Gathered, as_answer
from headway.gateway.head import HeadReader
from tests.gateway.stage import CHAT, COMPLETIONS, JSON_HEAD, R1, Stage, dispatch
from tests.interpreted import interpreted
from tests.wire.engine import whole as at_once

pytestmark = interpreted
Make = Callable[..., Stage]
REASONING = b'data: {"choices":[{"index":0,"delta":{"reasoning":"hm"},"finish_reason":null}]}\n\n'


def again(s: Stage) -> Callable[[Any], list[Any]]:
    """The brain's answer: all over again, elsewhere."""
    return lambda _: [dispatch(s.request, 1, R1)]


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
def test_an_answer_is_given_when_it_is_whole(stage: Make, path: str) -> None:
    s = stage(plain=True)
    source = s.arrive(path, stream=False)
    assert json.loads(source.body)["stream"] is True
    assert json.loads(source.body)["stream_options"] == {"include_usage": True}
    source.begins()
    source.plays(len(source.script) - 1)
    assert s.client.got == b""
    assert isinstance(s.exchange.source, Gathered)
    source.plays()
    assert s.client.body == at_once(path, s.body, "at-r0")
    assert s.client.head.startswith(b"HTTP/1.1 200 OK")
    s.closed()
    assert s.kinds == [("0", "ok")]
    assert [(a.account, a.stream, a.output_tokens, a.first_token_at) for a in s.booked] == [("ok", False, 40, None)]


def test_the_brain_hears_of_tokens_as_of_a_stream(stage: Make) -> None:
    s = stage(plain=True)
    s.running(8, stream=False)
    s.timers.fire(0.05)
    assert any(isinstance(event, FirstToken) for event in s.brain.events)
    assert any(isinstance(event, Progress) for event in s.brain.events)
    s.exchange.client_gone()
    assert s.kinds == [("0", "client_closed")]
    assert s.plane.body_bytes == 0


def test_what_is_kept_is_accounted_for(stage: Make) -> None:
    s = stage(plain=True)
    s.running(20, stream=False)
    assert s.plane.body_bytes > 2 * len(s.body), "the client's own, one to go on with, and what was said"
    s.exchange.client_gone()
    assert s.plane.body_bytes == 0


def test_one_that_was_not_streamed_after_all_passes(stage: Make) -> None:
    s = stage(plain=True)
    source = s.arrive(stream=False)
    source.answers({"choices": [{"finish_reason": "stop"}], "odd": 1})
    assert json.loads(s.client.body)["odd"] == 1
    s.closed()


def test_one_that_was_not_streamed_and_comes_slowly_passes(stage: Make) -> None:
    s = stage(plain=True)
    source = s.arrive(stream=False)
    source.begins(JSON_HEAD)
    source.says(b'{"choices":')
    source.says(b"[]}")
    source.ends()
    assert s.client.body.endswith(b'{"choices":[]}\r\n0\r\n\r\n') or s.client.body == b'{"choices":[]}'
    s.closed()


@pytest.mark.parametrize("pinned", [{"seed": 1}, {"stream_options": {}}])
def test_what_is_pinned_is_not_streamed(stage: Make, pinned: dict[str, Any]) -> None:
    s = stage(plain=True)
    source = s.arrive(stream=False, **pinned)
    assert source.body == s.body
    source.answers({"choices": [{"finish_reason": "stop"}]})
    s.closed()


def test_an_event_stream_that_nobody_asked_for_passes_as_it_comes(stage: Make) -> None:
    s = stage(plain=True)
    source = s.arrive(stream=False, stream_options={})
    source.begins()
    source.says(b'data: {"choices":[{"index":0,"delta":{"content":"a"}}]}\n\n')
    assert b"text/event-stream" in s.client.head
    source.dies()
    assert b'"error"' in s.client.body
    s.closed()


@pytest.mark.parametrize("kind", [OutcomeKind.TRUNCATED, OutcomeKind.RESET])
@pytest.mark.parametrize("place", [0, 1, 9])
def test_who_cannot_go_on_begins_again(stage: Make, place: int, kind: OutcomeKind) -> None:
    s = stage(plain=True)
    source = s.running(place, stream=False)
    source.says(REASONING)
    s.brain.then.append(again(s))
    source.dies(kind)
    assert (s.kinds, s.ends[0][1].committed) == ([("0", str(kind))], False)
    second = s.pool.connections[-1]
    second.begins()
    second.plays()
    assert json.loads(s.client.body)["choices"] == json.loads(at_once(CHAT, s.body))["choices"]
    s.closed()


def test_who_began_again_can_be_moved(stage: Make) -> None:
    s = stage(plain=True)
    source = s.running(9, stream=False)
    source.says(REASONING)
    s.brain.then.append(again(s))
    source.dies()
    second = s.pool.connections[-1]
    second.begins()
    second.plays(9)
    third = s.moving(number=2, source=1, to=R1)
    third.begins()
    third.plays()
    assert s.client.body == at_once(CHAT, s.body, "at-r1")
    s.closed()


@pytest.mark.parametrize(
    ("says", "kind"),
    [
        (b"data: [DONE]\n\n", OutcomeKind.TRUNCATED),
        (b"data: {\n\ndata: [DONE]\n\n", OutcomeKind.BAD_RESPONSE),
        (b'data: {"error":{"message":"dead","code":500}}\n\ndata: [DONE]\n\n', OutcomeKind.IN_BAND_ERROR),
        (b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"abort"}]}\n\n', OutcomeKind.ENGINE_ABORT),
    ],
)
def test_what_is_no_whole_answer_begins_again(stage: Make, says: bytes, kind: OutcomeKind) -> None:
    s = stage(plain=True)
    source = s.running(3, stream=False)
    s.brain.then.append(again(s))
    source.says(REASONING + says)
    source.ends()
    assert (s.kinds, s.ends[0][1].committed) == ([("0", str(kind))], False)
    second = s.pool.connections[-1]
    second.begins()
    second.plays()
    assert s.client.body == at_once(CHAT, s.body, "at-r1")
    s.closed()


@pytest.mark.parametrize("command", ["reject", "relay"])
def test_nobody_is_left(stage: Make, command: str) -> None:
    """An error with a status: there is nothing of the engine's to pass on."""
    s = stage(plain=True)
    source = s.running(9, stream=False)
    source.says(REASONING)
    s.brain.then.append(
        lambda event: [
            Reject(s.request, 502, "upstream_failed", "no")
            if command == "reject"
            else Relay(s.request, event.attempt_id)
        ]
    )
    source.dies()
    assert s.client.got.startswith(b"HTTP/1.1 502 ")
    assert s.client.ended
    s.closed()


def test_an_error_of_the_clients_has_its_status(stage: Make) -> None:
    s = stage(plain=True)
    source = s.running(3, stream=False)
    error = b'{"error":{"message":"bad","type":"BadRequestError","code":400}}'
    source.says(b"data: " + error + b"\n\ndata: [DONE]\n\n")
    source.ends()
    assert s.client.got.startswith(b"HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\n")
    assert s.client.body == error
    assert (s.kinds, s.booked[0].account) == ([("0", "client_error")], "client_error")
    s.closed()


def test_an_answer_may_not_grow_without_end(stage: Make) -> None:
    s = stage(plain=True, plain_bytes=20)
    source = s.arrive(stream=False)
    source.begins()
    source.plays()
    assert source.dropped
    assert b'"code":"answer_too_large"' in s.client.body
    assert s.client.got.startswith(b"HTTP/1.1 502")
    s.closed()


def test_what_is_held_for_a_cut_may_not_either(stage: Make) -> None:
    """The move is given up; the answer goes on, and is whole if it is short enough."""
    s = stage(plain=True, plain_bytes=1500)
    source = s.running(8, stream=False)
    s.moving()
    source.plays(12)
    assert s.kinds == [("1", "cancelled")]
    source.plays()
    assert s.client.body == at_once(CHAT, s.body, "at-r0")
    s.closed()


def test_a_client_that_leaves_behind_the_last_word_has_nothing(stage: Make) -> None:
    s = stage(plain=True)
    source = s.arrive(stream=False)
    source.begins()
    for event in source.script:
        source.says(event)
    s.exchange.client_gone()
    assert (s.booked[0].account, s.client.got) == ("client_closed", b"")
    assert source.dropped


@pytest.mark.parametrize("drop", [b"", b"x-accel-buffering: no\r\ncache-control: no-cache\r\n"])
def test_the_head_is_that_of_an_answer(drop: bytes) -> None:
    read, _ = HeadReader().response(
        b"HTTP/1.1 200 OK\r\nserver: x\r\n"
        + drop
        + b"Content-Type: text/event-stream; charset=utf-8\r\nvary: Origin\r\n\r\n"
    )
    assert read is not None
    shown = as_answer(read)
    assert shown.lead == b"HTTP/1.1 200 OK\r\nserver: x\r\nContent-Type: application/json\r\nvary: Origin"
