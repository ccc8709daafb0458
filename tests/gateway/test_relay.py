"""When bytes pass: each relay on its own, with a boss that only writes down what it is asked."""

import pytest

from headway.core.outcome import OutcomeKind
from headway.gateway.head import HeadReader, ResponseHead
from headway.gateway.outlet import Outlet
from headway.gateway.relay import (
    MAX_HELD_ANSWER_BYTES,
    MAX_HELD_ERROR_BYTES,
    MAX_HELD_LINE_BYTES,
    AnswerRelay,
    ErrorRelay,
    PlainRelay,
    StreamRelay,
    choose,
    kind_of,
)
from tests.gateway.fakes import DONE, JSON_ANSWER, event

ROLE = b'data: {"choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}\n\n'
USAGE = b'data: {"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":2}}\n\n'


class Client:
    """The client's transport: it gives what it gets to the boss."""

    def __init__(self, boss: "Boss") -> None:
        self.boss = boss

    def write(self, data: bytes) -> None:
        assert self.boss.outlet.begun
        assert data
        self.boss.given += data


class Boss:
    """Writes down."""

    def __init__(self, injected_usage: bool = False) -> None:
        self.outlet = Outlet(Client(self))  # type: ignore[arg-type]
        self.advanced = False
        self.injected_usage = injected_usage
        self.quotes = False
        self.goes_on = False
        self.given = b""
        self.said: list[object] = []

    def commit(self, first: bytes, reframe: bool = False) -> None:
        self.outlet.begun = True
        self.outlet.body_sent |= bool(first)
        self.given += first

    def complete(self, kind: OutcomeKind) -> None:
        self.said.append(kind)

    def failed(self, kind: OutcomeKind, detail: str) -> None:
        self.said.append(("failed", kind))

    def broken(self, kind: OutcomeKind, detail: str, farewell: bytes = b"") -> None:
        self.given += farewell
        self.said.append(("broken", kind))

    def first_token(self) -> None:
        self.said.append("first token")

    def advance(self) -> None:
        self.advanced = True

    def may_be_quoted(self) -> bool:
        return self.quotes

    def may_go_on(self) -> bool:
        return self.goes_on


def head(status: int = 200, media: str = "text/event-stream", lines: str = "") -> ResponseHead:
    read, _ = HeadReader().response(f"HTTP/1.1 {status} X\r\ncontent-type: {media}\r\n{lines}\r\n".encode())
    assert read is not None
    return read


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


OOM = b'{"error":{"message":"CUDA out of memory. Tried to allocate 2.00 GiB","code":500}}'


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


@pytest.mark.parametrize(("quotes", "kind"), [(False, OutcomeKind.OUT_OF_MEMORY), (True, OutcomeKind.IN_BAND_ERROR)])
def test_a_stream_may_begin_with_that(quotes: bool, kind: OutcomeKind) -> None:
    boss = Boss()
    boss.quotes = quotes
    stream(boss).feed(b"data: " + OOM + b"\n\n")
    assert boss.said == [("failed", kind)]
