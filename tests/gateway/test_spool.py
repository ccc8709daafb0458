"""What passes a spool, and when."""

from typing import Any

import pytest

from headway.gateway.head import ResponseHead
from headway.gateway.spool import Anteroom, Gathering, Spool
from headway.wire import resume_whole


class Client:
    """A transport that keeps what it gets."""

    def __init__(self) -> None:
        self.got = b""

    def write(self, data: bytes) -> None:
        self.got += data


class Whole:
    """A filter that passes lines, loudly."""

    def __init__(self) -> None:
        self.rest = b""

    def feed(self, data: bytes) -> bytes:
        lines, _, self.rest = (self.rest + data).rpartition(b"\n")
        return (lines + b"\n").upper() if lines else b""

    def end(self) -> bytes:
        return self.rest.upper()


class Watcher:
    """Writes down."""

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self.spoken = 0
        self.kept: list[int] = []
        self.given: list[bytes] = []

    def held(self, size: int) -> None:
        self.sizes.append(size)

    def spoke(self) -> None:
        self.spoken += 1

    def gathered(self, size: int) -> None:
        self.kept.append(size)

    def give(self, whole: resume_whole.Whole) -> None:
        self.given.append(whole.answer(resume_whole.Form()))


@pytest.fixture
def made() -> tuple[Any, Client, Watcher]:
    client, watcher = Client(), Watcher()
    return Spool(client, watcher), client, watcher  # type: ignore[arg-type]


def test_without_a_filter_it_is_an_outlet(made: Any) -> None:
    spool, client, watcher = made
    spool.begin(b"head:", 200, False, False, b"a")
    spool.write(b"b")
    spool.finish()
    assert (client.got, spool.sent_bytes, watcher.spoken) == (b"head:ab", 2, 0)


def test_what_is_whole_passes_and_the_end_flushes(made: Any) -> None:
    spool, client, watcher = made
    spool.through(Whole(), joined=True)
    spool.begin(b"", 200, False, False, b"a\nb")
    assert (client.got, spool.body_sent) == (b"A\n", True)
    spool.write(b"c")
    spool.say(b"!")
    spool.write(b"\n")
    spool.finish()
    assert client.got == b"A\n!BC\n"
    assert watcher.spoken == 2


def test_a_first_piece_that_may_not_pass_is_no_body(made: Any) -> None:
    spool, client, _ = made
    spool.through(Whole(), joined=False)
    spool.begin(b"head", 200, False, False, b"a")
    assert (client.got, spool.body_sent) == (b"head", False)


def test_what_is_no_stream_passes_unread(made: Any) -> None:
    spool, client, _ = made
    for media, changes in ((b"text/event-stream", True), (b"application/json", False), (b"", False)):
        head = ResponseHead(200, b"200 OK", b"", {b"content-type": media})
        spool.through(Whole(), joined=False)
        assert spool.opens(head) is changes
        client.got = b""
        spool.begin(b"", 200, False, not changes, b"a")
        assert client.got == (b"" if changes else b"a")


def test_nothing_passes_while_it_holds_and_all_does_when_it_is_released(made: Any) -> None:
    spool, client, watcher = made
    spool.through(Whole(), joined=False)
    spool.write(b"a\n")
    spool.hold()
    spool.write(b"b\nc")
    spool.write(b"c\n")
    assert (client.got, watcher.sizes) == (b"A\n", [3, 5])
    spool.release()
    assert client.got == b"A\nB\nCC\n"
    spool.release()
    spool.hold()
    spool.release()
    assert client.got == b"A\nB\nCC\n"


def test_what_was_held_is_dropped_when_another_takes_over(made: Any) -> None:
    spool, client, _ = made
    spool.hold()
    spool.write(b"old")
    spool.through(Whole(), joined=True)
    assert not spool.holding
    spool.write(b"new\n")
    spool.release()
    assert client.got == b"NEW\n"


def test_an_anteroom_tells_somebody_else() -> None:
    heard: list[bytes] = []
    room = Anteroom(Client(), heard.append)  # type: ignore[arg-type]
    assert (room.begun, room.body_sent) == (True, False)
    room.write(b"a")
    room.finish()
    assert heard == [b"a"]


def piece(text: str) -> bytes:
    return b'data: {"choices":[{"index":0,"text":"%b","finish_reason":"stop"}]}\n\n' % text.encode()


def test_what_is_gathered_is_given_at_the_end() -> None:
    watcher = Watcher()
    spool = Gathering(watcher)
    assert (spool.begun, spool.body_sent) == (True, False)
    spool.write(piece("a"))
    spool.hold()
    spool.write(piece("b"))
    assert (watcher.sizes, watcher.kept, watcher.given) == ([len(piece("b"))], [1], [])
    spool.say(piece("c"))
    spool.finish()
    assert watcher.kept == [1, 3]
    assert watcher.given == [b'{"choices":[{"index":0,"finish_reason":"stop","text":"acb"}]}']


def test_what_was_gathered_of_an_earlier_attempt_is_not_given() -> None:
    watcher = Watcher()
    spool = Gathering(watcher)
    spool.write(piece("old"))
    spool.clear()
    assert (spool.body_sent, spool.sent_bytes, spool.whole.size) == (False, 0, 0)
    spool.write(piece("new"))
    spool.finish()
    assert b"old" not in watcher.given[0]
