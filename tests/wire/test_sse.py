"""Framing: every split, every line end, and what must not be mistaken for an end (cases 013-026, 038, B7)."""

import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.wire import sse
from headway.wire.chunks import Tally
from headway.wire.sse import Scanner, UsageStripper
from headway.wire.usage import Usage
from tests.interpreted import interpreted
from tests.wire import streams
from tests.wire.streams import LINE_ENDS, written

SEEN = ("events", "tokens", "done", "finished", "aborted", "hit_limit", "error", "usage", "unreadable")


def scan(*pieces: bytes, end: bool = True) -> Scanner:
    scanner = Scanner()
    for piece in pieces:
        scanner.feed(piece)
    if end:
        scanner.end()
    return scanner


def seen(scanner: Scanner) -> tuple[object, ...]:
    return tuple(getattr(scanner, name) for name in SEEN)


@pytest.mark.parametrize("end", LINE_ENDS.values(), ids=LINE_ENDS)
@pytest.mark.parametrize("events", [streams.PLAIN, streams.TOOLS, streams.BROKEN], ids=["usage", "tools", "error"])
def test_every_split_says_the_same(events: list[str], end: str) -> None:
    stream = written(events, end)
    whole = seen(scan(written(events)))
    assert seen(scan(stream)) == whole
    for at in range(len(stream) + 1):
        assert seen(scan(stream[:at], stream[at:])) == whole, (at, stream[:at][-20:])
    assert seen(scan(*(stream[i : i + 1] for i in range(len(stream))))) == whole


@settings(deadline=None)
@given(st.data())
def test_any_cutting_of_a_mixed_stream_says_the_same(data: st.DataObject) -> None:
    blank = st.sampled_from([a + b for a in LINE_ENDS.values() for b in LINE_ENDS.values() if a + b != "\r\n"])
    stream = "".join(f"data: {event}{data.draw(blank)}" for event in streams.PLAIN).encode()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    pieces = [stream[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    assert seen(scan(*pieces)) == seen(scan(written(streams.PLAIN)))


@settings(deadline=None)
@given(st.data())
def test_events_seen_at_a_glance_count_as_those_that_are_read(data: st.DataObject) -> None:
    kinds = [streams.token(" a"), streams.token("\\n"), streams.token("Я"), streams.told(" b", 7), streams.ROLE]
    kinds += [streams.told("c", 88), streams.token(""), streams.USAGE, streams.token("", '"stop"')]
    events = data.draw(st.lists(st.sampled_from(kinds), min_size=1, max_size=30))
    stream = streams.joined(events)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=6)))
    scanner = scan(*(stream[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True)))
    tally = Tally()
    for event in events:
        tally.read(event.encode())
    assert scanner.events == len(events)
    assert (scanner.tokens, scanner.usage, scanner.finished) == (tally.tokens, tally.usage, tally.finished)


def test_several_events_of_a_learned_kind_are_seen_at_a_glance() -> None:
    scanner = scan(streams.joined([streams.token("a")]), end=False)
    assert scanner.feed(streams.joined([streams.token(text) for text in "bcd"]))
    assert not scanner.feed(streams.joined([streams.token("e"), streams.token('\\"'), streams.token("f")]))
    assert not scanner.feed(streams.joined([streams.token("g"), streams.token("", '"stop"')]))
    assert (scanner.events, scanner.tokens, scanner.finished) == (9, 9, True)


def test_what_a_usual_stream_says() -> None:
    scanner = scan(written(streams.PLAIN), end=False)
    assert (scanner.events, scanner.tokens, scanner.done, scanner.usage) == (6, 3, True, Usage(9, 4, 3))
    assert scanner.complete
    assert scanner.at_boundary


@pytest.mark.parametrize("tail", ["", "\n", "\r\n"])
def test_an_unterminated_last_event_counts_once(tail: str) -> None:
    stream = f"data: {streams.token('a')}\n\ndata: {streams.USAGE}{tail}".encode()
    scanner = scan(stream, end=False)
    assert scanner.usage is None
    scanner.end()
    scanner.end()
    assert (scanner.events, scanner.usage) == (2, Usage(9, 4, 3))


def test_fields_are_found_only_where_the_rules_say() -> None:
    scanner = scan(
        b'data:{"choices":[{"text":"no space"}]}\n\n'
        b'data:  {"choices":[{"text":"two spaces"}]}\n\n'
        b"DATA: [DONE]\n\n"
        b"xdata: [DONE]\n\n"
        b": data: [DONE]\n\n"
        b"data\n\n"
        b"id: 1\nevent: data\nretry: 5\n\n"
        b'data: {"choices":[\ndata: {"text":"two lines"}]}\n\n'
    )
    assert (scanner.events, scanner.tokens, scanner.done) == (3, 3, False)


def test_done_is_a_whole_line() -> None:
    text = streams.token("data: [DONE]\\n\\ndata: [DONE]")
    for event in (text, "[DONE] ", " [DONE]x", '"[DONE]"', "[done]"):
        assert not scan(f"data: {event}\n\n".encode()).done
    assert scan(b"data:[DONE]\r\r").done
    assert scan(b"data: [DO", b"NE]").done


def test_usage_in_every_event_does_not_end_the_stream() -> None:
    event = '{"choices":[{"delta":{"content":"a"}}],"usage":{"prompt_tokens":9,"completion_tokens":%d}}'
    scanner = scan(*(f"data: {event % n}\n\n".encode() for n in range(1, 11)))
    assert (scanner.events, scanner.tokens, scanner.usage, scanner.complete) == (10, 10, Usage(9, 0, 10), False)


def test_comments_are_neither_events_nor_content() -> None:
    scanner = scan(b": hb\n", b": hb\n\n", b":\n", end=False)
    assert (scanner.events, scanner.first_content, scanner.at_boundary) == (0, False, True)


def test_a_role_is_not_first_content_and_half_a_character_is() -> None:
    scanner = scan(f"data: {streams.ROLE}\n\n".encode(), end=False)
    assert not scanner.first_content
    scanner.feed(f"data: {streams.token('')}\n\n".encode())
    assert scanner.first_content


def test_boundaries() -> None:
    stream = b"event: x\r\nid: 1\r\ndata: {}\r\n\r\n: c\r\n"
    inside = [scan(stream[:at], end=False).at_boundary for at in range(len(stream) + 1)]
    boundary_at = [at for at, free in enumerate(inside) if free]
    finished = stream.index(b"\r\n\r\n") + 3
    assert boundary_at == [0, finished, finished + 1, len(stream) - 1, len(stream)]


@pytest.mark.parametrize("piece", [1 << 20, 4096, 100_003])
def test_a_huge_event_is_counted_skipped_and_not_kept(piece: int) -> None:
    huge = b'data: {"choices":[{"text":"' + b"x" * (5 << 20) + b'"}]}\n\n'
    scanner = Scanner()
    tracemalloc.start()
    for at in range(0, len(huge), piece):
        scanner.feed(huge[at : at + piece])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (scanner.events, scanner.tokens, scanner.at_boundary) == (1, 0, True)
    assert peak < 5 << 20
    scanner.feed(written(streams.PLAIN))
    assert (scanner.events, scanner.tokens, scanner.done) == (7, 3, True)


def test_a_huge_event_of_many_lines_and_a_huge_comment() -> None:
    scanner = Scanner()
    for _ in range(40):
        scanner.feed(b"data: " + b"x" * 50_000 + b"\n")
    scanner.feed(b"\n")
    assert (scanner.events, scanner.unreadable) == (1, 0)
    scanner.feed(b": " + b"c" * (2 << 20))
    scanner.feed(b"c\n")
    assert scanner.at_boundary
    scanner.feed(written(streams.PLAIN))
    assert (scanner.events, scanner.done) == (7, True)


@settings(deadline=None)
@given(st.lists(st.binary(max_size=30), max_size=20))
def test_garbage_is_harmless_and_framed_alike(pieces: list[bytes]) -> None:
    assert seen(scan(*pieces)) == seen(scan(b"".join(pieces)))


@pytest.mark.parametrize(
    ("stream", "empty"), [("", True), (": c\n\n", True), ("data: [DONE]\n\n", True), (streams.ROLE, False)]
)
def test_a_stream_that_says_nothing_but_done_is_empty(stream: str, empty: bool) -> None:
    scanner = Scanner()
    scanner.feed((stream if stream is not streams.ROLE else f"data: {stream}\n\n").encode())
    scanner.end()
    assert scanner.empty is empty


class TestStripper:
    def strip(self, *pieces: bytes) -> bytes:
        stripper = UsageStripper()
        return b"".join([*map(stripper.feed, pieces), stripper.end()])

    @pytest.mark.parametrize("end", LINE_ENDS.values(), ids=LINE_ENDS)
    def test_exactly_the_usage_event_goes_at_every_split(self, end: str) -> None:
        stream = written(streams.PLAIN, end)
        wanted = stream.replace(f"data: {streams.USAGE}{end}{end}".encode(), b"")
        assert len(wanted) < len(stream)
        for at in range(len(stream) + 1):
            assert self.strip(stream[:at], stream[at:]) == wanted, at
        assert self.strip(*(stream[i : i + 1] for i in range(len(stream)))) == wanted

    def test_other_events_are_passed_at_once_and_untouched(self) -> None:
        stripper = UsageStripper()
        for event in (streams.ROLE, streams.token('\\"usage\\"'), '{"choices":[],"prompt_filter_results":[]}'):
            data = f"data: {event}\n\n".encode()
            assert stripper.feed(data) == data
        with_content = b'data: {"choices":[{"delta":{"content":"a"}}],"usage":{"prompt_tokens":1}}\n\n'
        assert stripper.feed(with_content) == with_content
        assert stripper.end() == b""

    def test_the_beginning_of_an_event_with_content_is_not_held(self) -> None:
        stripper = UsageStripper()
        begin = b'data: {"id":"x","choices":[{"delta":{"content":"a'
        assert stripper.feed(begin) == begin
        assert stripper.feed(b'b"}}]}\n') == b'b"}}]}'
        assert stripper.feed(b"\n: c\n") == b"\n\n: c\n"
        assert stripper.end() == b""

    @pytest.mark.parametrize("end", LINE_ENDS.values(), ids=LINE_ENDS)
    def test_heartbeats_are_not_held_and_stay_when_usage_goes(self, end: str) -> None:
        stripper = UsageStripper()
        beat = f": hb{end}".encode()
        assert stripper.feed(beat) == (b"" if end == "\r" else beat)  # an LF might follow
        assert stripper.feed(beat + b": h") in (beat, beat * 2)
        usage = f"b{end}{end}data: {streams.USAGE}{end}{end}".encode()
        assert stripper.feed(usage) + stripper.end() == beat + end.encode()

    def test_something_endless_is_not_held_for_ever(self) -> None:
        stripper = UsageStripper()
        out = sum(len(stripper.feed(b"x" * 1000)) for _ in range(100))
        assert 100_000 - out < sse.MAX_HELD_BYTES
        assert out + len(stripper.end()) == 100_000

    @pytest.mark.parametrize("end", LINE_ENDS.values(), ids=LINE_ENDS)
    def test_comments_before_the_usage_stay(self, end: str) -> None:
        comments = f"{end}: ping{end}{end}: pong{end}".encode()
        stream = comments + f"id: 1{end}data: {streams.USAGE}{end}{end}".encode()
        for at in range(len(stream)):
            assert self.strip(stream[:at], stream[at:]) == comments, at

    def test_an_unterminated_usage_event_goes_too(self) -> None:
        assert self.strip(f"data: {streams.USAGE}".encode()) == b""

    def test_recorded_streams_lose_only_their_usage(self, shared: Path) -> None:
        for name in ("vllm/chat-stream-usage", "sglang/chat-stream-usage", "llama.cpp/chat-stream-usage"):
            stream = (shared / "fixtures" / f"{name}.body").read_bytes()
            got = self.strip(stream)
            assert stream.count(b"data:") - got.count(b"data:") == 1
            assert b'"choices":[]' not in got
            assert got.endswith(b"data: [DONE]\n\n")

    @settings(deadline=None)
    @given(st.lists(st.sampled_from([b"\n", b"\r", b"data: x", b'{"usage"', b": c", b'"choices":[{']), max_size=20))
    def test_nothing_else_is_ever_lost(self, pieces: list[bytes]) -> None:
        assert self.strip(*pieces) == b"".join(pieces)


ALIKE = st.lists(
    st.sampled_from(
        [
            *("a", "word", "é", "", '\\"', "\\n", "x\\\\", "}", "content", "[DONE]"),
            *('a","role":"assistant', 'a","reasoning":"b', 'a"},"text":"c', 'a"},"token_ids":[1,2],"x":{"y":"z'),
            *('a"},"finish_reason":"abort","x":{"y":"z', 'a"}}],"usage":{"completion_tokens":9},"x":[{"y":{"z":"'),
            *('a"}}],"error":{"message":"no"},"x":[{"y":{"z":"', '"', "\n", "a\r\nb", "a\x01", "a\n\ndata: {}"),
        ]
    ),
    max_size=12,
)


@settings(deadline=None)
@given(ALIKE, st.sampled_from(["content", "text", "reasoning", "other"]))
def test_events_known_by_sight_say_what_they_would_when_read(texts: list[str], key: str) -> None:
    form = '{"choices":[{"text":"%s"}]}' if key == "text" else '{"choices":[{"delta":{"' + key + '":"%s"}}]}'
    pieces = [f"data: {form % text}\n\n".encode() for text in texts]
    by_sight, read = Scanner(), Scanner()
    read._lessons = 0
    for piece in pieces:
        by_sight.feed(piece)
        read.feed(piece)
        assert seen(by_sight) == seen(read), piece


STREAM_PIECES = [
    *(
        b"\n",
        b"\r",
        b"\r\n",
        b"data: {",
        b'"usage":{}',
        b'"choices":[]',
        b'"choices":[{',
        b"}",
        b": beat",
        b"id: 1",
        b"data:",
    ),
    *(f"data: {event}\n\n".encode() for event in (*map(streams.token, "ab"), streams.USAGE)),
]


@settings(deadline=None)
@given(st.lists(st.sampled_from(STREAM_PIECES), max_size=12))
def test_events_known_by_sight_need_not_pass_the_stripper(pieces: list[bytes]) -> None:
    scanner, through = Scanner(), UsageStripper()
    for piece in pieces:
        known, passed = scanner.feed(piece), through.feed(piece)
        assert passed == piece or not known


@interpreted
def test_a_usual_stream_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    scanner, read = Scanner(), list[bytes]()

    def note(tally: Tally, data: bytes) -> None:
        read.append(data)
        Tally.read(tally, data)

    monkeypatch.setattr(Scanner, "read", note)
    for event in [streams.ROLE, *map(streams.token, "abcdef"), streams.token("", '"stop"'), streams.DONE]:
        scanner.feed(f"data: {event}\n\n".encode())
    assert (scanner.tokens, scanner.events, len(read)) == (7, 9, 4)
