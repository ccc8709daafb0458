"""When bytes pass: each relay on its own, with a boss that only writes down what it is asked."""

import pytest

from headway.core.outcome import OutcomeKind
from headway.gateway.relay import (
    MAX_HELD_ANSWER_BYTES,
    MAX_HELD_ERROR_BYTES,
    AnswerRelay,
    ErrorRelay,
    PlainRelay,
    kind_of,
)
from tests.gateway.boss import OOM, Boss, head
from tests.gateway.fakes import JSON_ANSWER


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (200, OutcomeKind.OK),
        (302, OutcomeKind.OK),
        (404, OutcomeKind.CLIENT_ERROR),
        (429, OutcomeKind.BACKPRESSURE),
        (503, OutcomeKind.BACKPRESSURE),
        (500, OutcomeKind.SERVER_ERROR),
        (504, OutcomeKind.SERVER_ERROR),
        (501, OutcomeKind.CLIENT_ERROR),  # this engine does not do embeddings: no reason to eject it
    ],
)
def test_kinds(status: int, kind: OutcomeKind) -> None:
    assert kind_of(status) is kind


def test_an_answer_is_held_until_it_is_whole() -> None:
    boss = Boss()
    relay = AnswerRelay(boss, head(media="application/json"), len(JSON_ANSWER))
    relay.feed(JSON_ANSWER[:50])
    assert not boss.outlet.begun
    relay.feed(JSON_ANSWER[50:])
    relay.end()
    assert (boss.given, boss.said) == (JSON_ANSWER, [OutcomeKind.OK])
    assert relay.facts().tokens == 3


def test_a_huge_answer_is_not_held() -> None:
    boss = Boss()
    relay = AnswerRelay(boss, head(media="application/json"), -1)
    relay.feed(b"x" * MAX_HELD_ANSWER_BYTES)
    assert not boss.outlet.begun
    relay.feed(b"y")
    assert boss.outlet.begun
    relay.feed(b"z")
    relay.end()
    assert boss.given.endswith(b"xyz")
    assert boss.said == [OutcomeKind.OK]


def test_an_aborted_answer_is_a_question_and_can_be_passed_on() -> None:
    boss = Boss()
    relay = AnswerRelay(boss, head(media="application/json"), -1)
    relay.feed(JSON_ANSWER.replace(b'"stop"', b'"abort"'))
    relay.end()
    assert boss.said == [("failed", OutcomeKind.ENGINE_ABORT)]
    relay.go_on()
    assert b'"abort"' in boss.given


def test_a_refusal_is_a_question_once_its_body_is_here() -> None:
    boss = Boss()
    relay = ErrorRelay(boss, head(503, lines="retry-after: 4\r\n"), 5)
    relay.feed(b"sorry")
    assert boss.said == []
    relay.end()
    assert boss.said == [("failed", OutcomeKind.BACKPRESSURE)]
    assert relay.retry_after_s() == 4.0
    relay.go_on()
    assert boss.given == b"sorry"
    assert boss.said[-1] is OutcomeKind.BACKPRESSURE


@pytest.mark.parametrize("how", ["slow", "large", "lost"])
def test_a_refusal_is_not_waited_for(how: str) -> None:
    boss = Boss()
    relay = ErrorRelay(boss, head(502), -1)
    relay.feed(b"a")
    if how == "slow":
        relay.soon()
    elif how == "large":
        relay.feed(b"x" * MAX_HELD_ERROR_BYTES)
    else:
        relay.lost(OutcomeKind.TRUNCATED, "gone")
    assert boss.said == [("failed", OutcomeKind.SERVER_ERROR)]
    relay.go_on()
    relay.feed(b"b")
    relay.end()
    assert boss.given.startswith(b"a")
    assert boss.given.endswith(b"b")
    assert boss.said[-1] is OutcomeKind.SERVER_ERROR


def test_dates_in_retry_after_are_not_read() -> None:
    relay = ErrorRelay(Boss(), head(503, lines="retry-after: Sun, 29 Nov 2026 21:00:00 GMT\r\n"), -1)
    assert relay.retry_after_s() == 0.0


def test_plain_responses_pass_at_once() -> None:
    boss = Boss()
    relay = PlainRelay(boss, head(404, "text/plain"), -1)
    relay.feed(b"a")
    relay.feed(b"b")
    relay.end()
    assert (boss.given, boss.said) == (b"ab", [OutcomeKind.CLIENT_ERROR])
    boss = Boss()
    PlainRelay(boss, head(404, "text/plain"), -1).lost(OutcomeKind.TRUNCATED, "gone")
    assert boss.said == [("failed", OutcomeKind.TRUNCATED)]


@pytest.mark.parametrize(
    ("status", "body", "quotes", "kind"),
    [
        (500, OOM, False, OutcomeKind.OUT_OF_MEMORY),
        (502, OOM, False, OutcomeKind.OUT_OF_MEMORY),
        (500, OOM, True, OutcomeKind.SERVER_ERROR),
        (500, b"Internal Server Error", False, OutcomeKind.SERVER_ERROR),
        (503, OOM, False, OutcomeKind.BACKPRESSURE),
        (429, OOM, False, OutcomeKind.BACKPRESSURE),
    ],
)
def test_an_engine_that_is_out_of_memory_says_so_itself(
    status: int, body: bytes, quotes: bool, kind: OutcomeKind
) -> None:
    boss = Boss()
    boss.quotes = quotes
    relay = ErrorRelay(boss, head(status, "application/json"), len(body))
    relay.feed(body)
    relay.end()
    assert boss.said == [("failed", kind)]
