"""Bodies are read exactly, whatever the pieces; broken framing is named; what lies behind is given back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.gateway.framing import MAX_EMPTY_BYTES, BadFraming, ChunkedBody, EngineChunks, FixedBody, TooLarge


def pieces(data: bytes, cuts: list[int]) -> list[bytes]:
    at = sorted({cut % (len(data) + 1) for cut in cuts})
    return [data[a:b] for a, b in zip([0, *at], [*at, len(data)], strict=True) if a < b]


def feed_all(reader: ChunkedBody | EngineChunks, data: list[bytes]) -> None:
    for piece in data:
        reader.feed(piece)


@given(st.binary(max_size=200), st.binary(max_size=20), st.lists(st.integers(0, 300), max_size=6))
def test_a_fixed_body_is_exact(body: bytes, behind: bytes, cuts: list[int]) -> None:
    reader, rest = FixedBody(len(body)), None if body else b""
    for piece in pieces(body + behind, cuts):
        rest = reader.feed(piece) if rest is None else rest + piece
    assert rest == behind
    assert reader.take() == body
    assert reader.take() == b""


@given(
    st.lists(st.binary(min_size=1, max_size=50), max_size=5),
    st.binary(max_size=20),
    st.lists(st.integers(0, 500), max_size=8),
    st.sampled_from([b"", b";a=b", b';x="y"']),
    st.sampled_from([b"", b"X: y\r\n"]),
)
def test_a_chunked_body_is_exact(
    chunks: list[bytes], behind: bytes, cuts: list[int], extension: bytes, trailer: bytes
) -> None:
    raw = b"".join(b"%X%b\r\n%b\r\n" % (len(c), extension, c) for c in chunks) + b"0\r\n" + trailer + b"\r\n" + behind
    reader, rest = ChunkedBody(10_000), None
    for piece in pieces(raw, cuts):
        rest = reader.feed(piece) if rest is None else rest + piece
    assert rest == behind
    assert reader.take() == b"".join(chunks)


BROKEN = [
    b"x\r\n", b"0x1\r\na\r\n", b"+1\r\na\r\n", b"1_0\r\n", b" 1\r\na\r\n", b"1 \r\na\r\n", b"1\na\n", b"-1\r\n",
    b"1\r\nab\r\n", b"1\r\na\n0\r\n\r\n", b"\r\n1\r\na\r\n", b"1;\x00\r\na\r\n", b"123456789\r\n", b"1\rx\na\r\n",
    b"0\r\nbad trailer\r\n\r\n", b"0\r\nA: b\n\r\n", b"1" + b"0" * 2000, b"1;" + b"a" * 2000,
]  # fmt: skip


@pytest.mark.parametrize("raw", BROKEN)
@pytest.mark.parametrize("step", [1, 1000])
def test_broken_chunks_are_refused(raw: bytes, step: int) -> None:
    reader = ChunkedBody(10_000)
    with pytest.raises(BadFraming):
        feed_all(reader, [raw[at : at + step] for at in range(0, len(raw), step)])


def test_a_chunked_body_has_a_limit() -> None:
    with pytest.raises(TooLarge):
        ChunkedBody(10).feed(b"b\r\n")


def test_trailers_have_a_limit() -> None:
    reader = ChunkedBody(10)
    reader.feed(b"0\r\n")
    with pytest.raises(BadFraming):
        feed_all(reader, [b"A: " + b"x" * 900 + b"\r\n"] * 20)


@given(st.lists(st.binary(min_size=1, max_size=50), max_size=5), st.lists(st.integers(0, 500), max_size=8))
def test_engine_chunks_give_the_payload(chunks: list[bytes], cuts: list[int]) -> None:
    raw = b"".join(b"%x\r\n%b\r\n" % (len(c), c) for c in chunks) + b"0\r\n\r\n"
    reader = EngineChunks()
    payload = b"".join(reader.feed(piece) for piece in pieces(raw, cuts))
    assert payload == b"".join(chunks)
    assert reader.complete
    assert not reader.surplus


@pytest.mark.parametrize(
    "behind", [b"X", b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello", b"HTTP/1.1 200 OK\r\n\r\n"]
)
def test_what_follows_the_last_chunk_never_reaches_the_payload(behind: bytes) -> None:
    reader = EngineChunks()
    assert reader.feed(b"1\r\na\r\n0\r\n\r\n" + behind) == b"a"
    assert reader.complete
    assert reader.surplus


@pytest.mark.parametrize("raw", [b"x\r\n", b"1\nq", b"1\r\nab\r\n", b"5 \r\nhello\r\n", b"fffffffffffffffff\r\n"])
def test_broken_engine_chunks(raw: bytes) -> None:
    with pytest.raises(BadFraming):
        EngineChunks().feed(raw)


def test_framing_without_data_is_bounded() -> None:
    reader = EngineChunks()
    with pytest.raises(BadFraming):
        feed_all(reader, [b"0"] * (MAX_EMPTY_BYTES + 1))


@given(
    st.lists(st.binary(min_size=1, max_size=3000), min_size=1, max_size=6),
    st.lists(st.integers(0, 20_000), max_size=4),
    st.sampled_from([b"%x", b"%X", b"0%x", b"%x;a=b"]),
    st.booleans(),
)
def test_engine_chunks_do_not_depend_on_how_they_arrive(
    chunks: list[bytes], cuts: list[int], spelt: bytes, at_chunks: bool
) -> None:
    """Whole chunks take a path of their own, others do not: the payload is the same, and so is the end."""
    framed = [b"%b\r\n%b\r\n" % (spelt % len(chunk), chunk) for chunk in chunks]
    arriving = [*framed, b"0\r\n\r\n"] if at_chunks else pieces(b"".join(framed) + b"0\r\n\r\n", cuts)
    reader = EngineChunks()
    assert b"".join(reader.feed(piece) for piece in arriving) == b"".join(chunks)
    assert (reader.complete, reader.surplus) == (True, False)


@pytest.mark.parametrize("first", [b"1\r\na\r\n", b"1\r\na\r\n2\r\nbc\r\n", b"1;x\r\na\r\n", b"1\r\na"])
@pytest.mark.parametrize("bad", [b"g\r\nx\r\n", b" 1\r\na\r\n", b"0x1\r\na\r\n", b"1_0\r\na\r\n", b"2\r\nabc\r\n\r\n"])
def test_chunks_broken_behind_whole_ones_are_refused(first: bytes, bad: bytes) -> None:
    """Behind whole chunks and within one: where the short path was taken and where it was not."""
    reader = EngineChunks()
    reader.feed(first)
    end = b"\r\n" if first.endswith(b"a") else b""
    with pytest.raises(BadFraming):
        feed_all(reader, [end + bad, b"\r\n1\r\na\r\n", b"0\r\n\r\n"])
