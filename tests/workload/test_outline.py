"""A workload's outline."""

from headway.workload.outline import outline, reusable
from headway.workload.request import Request, Segment


def test_outline_of_a_few() -> None:
    requests = [
        Request(0.0, (Segment(1, 100), Segment(2, 50)), 10, "a", 0),
        Request(5.0, (Segment(1, 100), Segment(2, 50), Segment(3, 50)), 20, "a", 1),
        Request(10.0, (Segment(2, 50),), 30),
    ]
    seen = outline(requests)
    assert (seen.requests, seen.sessions, seen.span_s, seen.rate_rps) == (3, 1, 10.0, 0.3)
    assert (seen.prompt_p50, seen.prompt_p90, seen.output_p50, seen.output_p90) == (150, 200, 20, 30)
    assert seen.reusable == 150 / 400  # the same key behind another prefix is no hit


def test_outline_of_nothing() -> None:
    assert outline([]).requests == 0
    assert reusable([]) == 0.0
