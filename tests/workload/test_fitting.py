"""Shortened workloads keep what is shared."""

from hypothesis import given
from hypothesis import strategies as st

from headway.workload.fitting import only, shorten, within
from headway.workload.request import Request, Segment, as_workload

A, B, C = Segment(1, 512), Segment(2, 512), Segment(3, 77, "assistant")


@given(st.lists(st.integers(1, 900), min_size=1, max_size=8), st.floats(0.01, 1.5))
def test_every_prefix_is_scaled_to_the_token(lengths: list[int], factor: float) -> None:
    segments = tuple(Segment(at, tokens) for at, tokens in enumerate(lengths))
    shorter = shorten(as_workload("x", [Request(0.0, segments, 100)]), factor).requests[0]
    assert shorter.prompt_tokens == max(1, round(sum(lengths) * factor))
    assert shorter.output_tokens == max(1, round(100 * factor))
    assert all(segment.tokens > 0 for segment in shorter.segments)


def test_equal_prefixes_stay_equal() -> None:
    load = as_workload("x", [Request(0.0, (A, B, C), 8, "s", 1, "shape", "t"), Request(1.0, (A, B), 80)])
    short = shorten(load, 0.125)
    one, two = short.requests
    assert one.segments[:2] == two.segments == (Segment(1, 64), Segment(2, 64))
    assert (one.segments[2].role, one.output_tokens, two.output_tokens) == ("assistant", 1, 10)
    assert (one.session, one.turn, one.shape, one.tenant) == ("s", 1, "shape", "t")
    assert short.how[-1] == "all lengths x 0.125"


def test_requests_too_long_are_left_out_and_counted() -> None:
    load = as_workload("x", [Request(0.0, (A,), 88), Request(1.0, (A,), 89)])
    cut = within(load, 600)
    assert list(cut.requests) == [load.requests[0]]
    assert cut.how == ("left out 1 of 2 requests longer than 600 tokens",)
    assert within(load, 601).how == ()
    assert cut.span_s == load.span_s


def test_one_tenant() -> None:
    load = as_workload("x", [Request(0.0, (A,), 1, tenant="a"), Request(1.0, (A,), 1, tenant="b")])
    assert [request.tenant for request in only(load, "b").requests] == ["b"]
