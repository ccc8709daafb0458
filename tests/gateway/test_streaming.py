"""When the bytes of a stream pass, and which relay a response gets."""

import pytest

from headway.core.outcome import OutcomeKind
from headway.gateway.relay import AnswerRelay, ErrorRelay, PlainRelay
from headway.gateway.streaming import MAX_HELD_LINE_BYTES, StreamRelay, choose
from tests.gateway.boss import OOM, Boss, head
from tests.gateway.fakes import DONE, event

ROLE = b'data: {"choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}\n\n'
USAGE = b'data: {"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":2}}\n\n'


CHUNKED = "transfer-encoding: chunked\r\n"


def stream(boss: Boss, framed: bool = True) -> StreamRelay:
    return StreamRelay(boss, head(lines=CHUNKED if framed else ""), -1)


@pytest.mark.parametrize(
    ("status", "media", "kind"),
    [
        (200, "text/event-stream; charset=utf-8", StreamRelay),
        (200, "Application/JSON", AnswerRelay),
        (200, "audio/mpeg", PlainRelay),
        (201, "application/json", PlainRelay),
        (400, "application/json", PlainRelay),
        (501, "application/json", PlainRelay),
        (500, "application/json", ErrorRelay),
        (429, "application/json", ErrorRelay),
        (503, "text/html", ErrorRelay),
    ],
)
def test_the_choice(status: int, media: str, kind: type) -> None:
    assert choose(head(status, media)) is kind


def test_a_stream_starts_with_its_content_and_then_flows() -> None:
    boss = Boss()
    relay = stream(boss)
    relay.feed(ROLE)
    assert boss.given == b""
    relay.feed(event("a"))
    assert boss.given == ROLE + event("a")
    assert boss.said == ["first token"]
    assert boss.advanced
    relay.feed(event("b")[:10])
    assert boss.given.endswith(event("a"))
    relay.feed(event("b")[10:-1])
    assert boss.given.endswith(event("b")[:-1])
    relay.feed(event("b")[-1:] + DONE)
    relay.end()
    assert boss.given == ROLE + event("a") + event("b") + DONE
    assert boss.said == ["first token", OutcomeKind.OK]
    assert relay.facts().tokens == 2


def test_a_last_line_that_does_not_end_is_passed_with_the_end() -> None:
    boss = Boss()
    relay = stream(boss)
    relay.feed(event("a") + event("b")[:-2])
    assert boss.given == event("a")
    relay.end()
    assert boss.given == event("a") + event("b")[:-2]


def test_a_line_that_is_too_long_to_hold_is_not_held() -> None:
    boss = Boss()
    relay = stream(boss)
    whole = event("a") + event("x" * (MAX_HELD_LINE_BYTES + 10)) + event("b")
    sizes = []
    for at in range(0, len(whole), 1000):
        relay.feed(whole[at : at + 1000])
        sizes.append(at + 1000 - len(boss.given))
    assert boss.given == whole
    assert max(sizes) <= MAX_HELD_LINE_BYTES + 1000
    relay.feed(event("c" * MAX_HELD_LINE_BYTES)[:-10])
    relay.lost(OutcomeKind.TRUNCATED, "gone")
    assert boss.given.partition(b'\n\ndata: {"error"')[0] == whole + event("c" * MAX_HELD_LINE_BYTES)[:-10]


def test_a_moment_is_all_that_is_waited() -> None:
    boss = Boss()
    relay = stream(boss)
    relay.feed(ROLE)
    relay.soon()
    assert boss.given == ROLE
    relay.feed(b": beat\n")
    assert boss.given == ROLE + b": beat\n"
    relay.soon()
    assert boss.given == ROLE + b": beat\n"


def test_a_head_alone_is_let_go_after_a_moment() -> None:
    boss = Boss()
    stream(boss).soon()
    assert boss.outlet.begun
    assert not boss.outlet.body_sent


def test_usage_is_stripped_when_it_was_our_wish() -> None:
    boss = Boss(injected_usage=True)
    relay = stream(boss)
    for piece in (event("a"), event("b", "stop"), USAGE, DONE):
        relay.feed(piece)
    relay.end()
    assert boss.given == event("a") + event("b", "stop") + DONE
    assert relay.facts().usage is not None


@pytest.mark.parametrize("framed", [True, False])
def test_where_a_stream_may_end(framed: bool) -> None:
    boss = Boss()
    relay = stream(boss, framed)
    relay.feed(event("a"))
    relay.end()
    assert boss.said[-1] == (OutcomeKind.OK if framed else ("broken", OutcomeKind.TRUNCATED))
    boss = Boss()
    relay = stream(boss, framed)
    relay.feed(event("a", "stop"))
    relay.end()
    assert boss.said[-1] is OutcomeKind.OK


def test_an_empty_stream_is_asked_about_and_can_still_be_given() -> None:
    boss = Boss()
    relay = stream(boss)
    relay.feed(DONE)
    relay.soon()
    relay.end()
    assert (boss.given, boss.said) == (b"", [("failed", OutcomeKind.TRUNCATED)])
    relay.go_on()
    assert boss.given == DONE


@pytest.mark.parametrize("cut", [0, 1, 20, -3, -2, -1])
def test_a_cut_after_content_is_told_between_whole_lines(cut: int) -> None:
    boss = Boss()
    relay = stream(boss)
    relay.feed(event("a"))
    if cut:
        relay.feed(event("b")[:cut])
    relay.lost(OutcomeKind.TRUNCATED, "gone")
    whole = event("b") if cut == -1 else b""  # its line was complete: it is ended
    assert boss.given.startswith(event("a") + whole + b'data: {"error":{"message":"gone"')
    assert boss.given.endswith(b"\n\n")
    assert boss.said[-1] == ("broken", OutcomeKind.TRUNCATED)


def test_a_cut_before_content_is_a_question() -> None:
    boss = Boss()
    relay = stream(boss)
    relay.feed(ROLE)
    relay.lost(OutcomeKind.TRUNCATED, "gone")
    assert (boss.given, boss.said) == (b"", [("failed", OutcomeKind.TRUNCATED)])


def test_a_timeout_is_a_504_in_band() -> None:
    boss = Boss()
    relay = stream(boss)
    relay.feed(event("a"))
    relay.lost(OutcomeKind.IDLE_TIMEOUT, "idle timeout after 9 s")
    assert b'"code":504' in boss.given


def test_an_abort_before_content_is_a_question_and_can_be_passed_on() -> None:
    boss = Boss()
    relay = stream(boss)
    relay.feed(ROLE)
    relay.feed(event("", "abort"))
    assert (boss.given, boss.said) == (b"", [("failed", OutcomeKind.ENGINE_ABORT)])
    relay.go_on()
    relay.feed(DONE)
    relay.end()
    assert boss.given == ROLE + event("", "abort") + DONE


@pytest.mark.parametrize("split", [0, 5, 100])
def test_an_abort_after_content_is_an_error(split: int) -> None:
    boss = Boss()
    relay = stream(boss)
    relay.feed(event("a"))
    last = event("", "abort")
    if split:
        relay.feed(event("b") + last[:split])
        relay.feed(last[split:] + DONE)
    else:
        relay.feed(event("b") + last + DONE)
    assert boss.said[-1] == ("broken", OutcomeKind.ENGINE_ABORT)
    assert b"[DONE]" not in boss.given
    assert boss.given.startswith(event("a") + event("b") + b'data: {"error"')


@pytest.mark.parametrize(("quotes", "kind"), [(False, OutcomeKind.OUT_OF_MEMORY), (True, OutcomeKind.IN_BAND_ERROR)])
def test_a_stream_may_begin_with_that(quotes: bool, kind: OutcomeKind) -> None:
    boss = Boss()
    boss.quotes = quotes
    stream(boss).feed(b"data: " + OOM + b"\n\n")
    assert boss.said == [("failed", kind)]


ERROR = b'data: {"error":{"message":"dead","code":500}}\n\n'
ABORT = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"abort"}]}\n\n'


@pytest.mark.parametrize("goes_on", [True, False])
@pytest.mark.parametrize("bad", [ERROR, ABORT])
@pytest.mark.parametrize("cut", [1, 20, len(event("a")) - 3])
def test_what_ends_badly_within_its_first_words_is_whole_up_to_there(cut: int, bad: bytes, goes_on: bool) -> None:
    """A moment after the role half an event is here; the rest of it comes with the bad news."""
    boss = Boss()
    boss.goes_on = goes_on
    relay = stream(boss)
    relay.feed(ROLE + event("a")[:cut])
    relay.soon()
    assert boss.given == ROLE
    relay.feed(event("a")[cut:] + bad)
    assert boss.given.startswith(ROLE + event("a"))
    assert boss.given.count(event("a")) == 1
    if goes_on or bad is ABORT:
        assert boss.said[-1] in (("broken", OutcomeKind.IN_BAND_ERROR), ("broken", OutcomeKind.ENGINE_ABORT))
    else:
        assert boss.given == ROLE + event("a") + ERROR
