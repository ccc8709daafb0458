"""Scaling keeps sessions whole and in order, invents no shared prefixes, and gives the load that was asked for."""

import itertools
import math
from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.workload.outline import reusable
from headway.workload.request import Request, Segment, Workload, as_workload
from headway.workload.scaling import copies, draw, find_sessions, scale, window

HEAD = 7


def rng(seed: int = 11) -> np.random.Generator:
    return np.random.default_rng(seed)


def conversations(sessions: int, turns: int, gap_s: float = 2.5, head: bool = True) -> Workload:
    """Sessions that start every second and share the opening HEAD; prompts grow by one segment a turn."""
    opening = (Segment(HEAD, 100, "system"),) if head else ()
    requests = [
        Request(
            start + turn * gap_s,
            (*opening, *(Segment(1000 + start * 50 + at, 5 + at) for at in range(turn + 1))),
            3,
            f"s{start}",
            turn,
        )
        for start in range(sessions)
        for turn in range(turns)
    ]
    return as_workload("test", sorted(requests, key=lambda request: request.arrival_s))


def lone(count: int) -> Workload:
    return as_workload("lone", [Request(float(at), (Segment(at, 10),), 1) for at in range(count)])


def by_session(load: Workload) -> dict[str, list[Request]]:
    found = defaultdict(list)
    for request in load.requests:
        found[request.session].append(request)
    return found


def check(load: Workload, turns: int, seams: int) -> None:
    """Arrivals ordered and inside the span; turns ordered and without gaps; at most `seams` sessions cut."""
    arrivals = [request.arrival_s for request in load.requests]
    assert arrivals == sorted(arrivals)
    assert all(0 <= at < load.span_s for at in arrivals)
    cut = 0
    for requests in by_session(load).values():
        found = [request.turn for request in requests]
        assert found == list(range(found[0], found[0] + len(found)))
        gaps = np.diff([request.arrival_s for request in requests])
        assert np.allclose(gaps, 2.5)
        cut += len(found) != turns
    assert cut <= seams


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(st.integers(30, 80), st.integers(1, 4), st.floats(0.05, 4.0), st.integers(0, 1000))
def test_scaled_load_has_the_rate_and_whole_sessions(count: int, turns: int, factor: float, seed: int) -> None:
    load = conversations(count, turns)
    scaled = scale(load, factor, rng(seed))
    assert len(scaled.requests) == pytest.approx(factor * len(load.requests), abs=turns)
    assert scaled.span_s == load.span_s
    check(scaled, turns, seams=5 * turns * math.ceil(factor))
    assert f"load x {factor:g}" in scaled.how[-1]


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(st.floats(0, 300), st.floats(1, 400))
def test_any_window_of_the_ring_keeps_turns_in_order(start_s: float, length_s: float) -> None:
    load = conversations(60, 3)
    cut = window(load, start_s, length_s)
    check(cut, 3, seams=60 if length_s < 10 else 6 * (2 + int(length_s / load.span_s)) * 2)
    laps = length_s / load.span_s
    assert len(cut.requests) == pytest.approx(laps * len(load.requests), abs=20)


def test_a_whole_turn_of_the_ring_has_every_request_once() -> None:
    load = conversations(40, 3)
    turned = window(load, load.span_s / 3, load.span_s)
    assert len(turned.requests) == len(load.requests)
    assert sorted(r.prompt_tokens for r in turned.requests) == sorted(r.prompt_tokens for r in load.requests)


@given(st.floats(0, 1e6), st.lists(st.floats(0, 1000), min_size=2, max_size=9))
def test_a_turn_from_anywhere_neither_loses_nor_doubles_one(start_s: float, arrivals: list[float]) -> None:
    load = as_workload("x", [Request(at, (Segment(1, 1),), 1) for at in sorted(arrivals)])
    assert len(window(load, start_s, load.span_s).requests) == (len(arrivals) if load.span_s else 0)
    assert len(window(load, arrivals[0], load.span_s).requests) == (len(arrivals) if load.span_s else 0)


def test_windows_that_do_not_wrap_leave_requests_as_they_are() -> None:
    load = conversations(40, 3)
    cut = window(load, 10.0, 5.0)
    kept = [request for request in load.requests if 10.0 <= request.arrival_s < 15.0]
    assert [(r.session, r.segments) for r in cut.requests] == [(r.session, r.segments) for r in kept]
    assert cut.requests[0].arrival_s == kept[0].arrival_s - 10.0


def test_copies_share_openings_and_nothing_else() -> None:
    load = conversations(50, 2)
    doubled = scale(load, 2.0, rng())
    users: dict[int, set[str]] = defaultdict(set)
    for request in doubled.requests:
        for segment in request.segments:
            users[segment.key].add(request.session)
    assert len(users.pop(HEAD)) >= 100
    assert {len(found) for found in users.values()} == {1}
    assert reusable(doubled.requests) == pytest.approx(reusable(load.requests), abs=0.02)


def test_load_one_is_the_workload_itself() -> None:
    load = conversations(30, 2)
    assert list(scale(load, 1.0, rng()).requests) == list(load.requests)


def test_draws_differ_by_seed_and_agree_by_seed() -> None:
    load = conversations(50, 3)
    one, same, other = (draw(load, 1.5, 20.0, rng(seed)) for seed in (1, 1, 2))
    assert one == same
    assert one.requests != other.requests
    assert one.span_s == 20.0
    check(one, 3, seams=1000)
    assert len(draw(load, 3.0, 0.0, rng()).requests) == 3 * len(load.requests)


def test_drawn_load_is_right_on_average() -> None:
    load = lone(1000)
    counts = [len(draw(load, 2.5, 100.0, rng(seed)).requests) for seed in range(20)]
    assert np.mean(counts) == pytest.approx(250, rel=0.03)


def test_requests_without_sessions_are_thinned_one_by_one() -> None:
    assert len(scale(lone(1000), 0.3, rng()).requests) == 300


def test_sessions_are_found_by_their_prefixes_where_none_are_named() -> None:
    named = conversations(60, 3)
    bare = [Request(r.arrival_s, r.segments, r.output_tokens) for r in named.requests]
    found = find_sessions(bare)
    assert found.count == 60
    assert found.openings == {HEAD}
    for request, number in zip(named.requests, found.of, strict=True):
        assert found.of[[r.session for r in named.requests].index(request.session)] == number


def test_a_long_session_is_no_opening() -> None:
    one = [Request(float(turn), (Segment(5, 10), Segment(10 + turn, 5)), 1, "only", turn) for turn in range(100)]
    assert find_sessions(one).openings == frozenset()


@pytest.mark.parametrize("factor", [0.0, 0.5, 1.0, 2.5])
def test_nothing_stays_nothing(factor: float) -> None:
    empty = as_workload("empty", [])
    assert scale(empty, factor, rng()).requests == []
    assert draw(empty, factor, 10.0, rng()).requests == []
    assert window(empty, 0.0, 10.0).requests == []
    assert scale(lone(5), 0.0, rng()).requests == []


def test_copies_follow_each_other_with_prefixes_and_sessions_of_their_own() -> None:
    requests = [
        Request(float(k), (Segment(1, 64), Segment(10 + k // 2, 32)), 5, session=f"s{k // 2}", turn=k % 2)
        for k in range(60)
    ]
    endless = copies(requests)
    first, second, third = next(endless), next(endless), next(endless)
    assert list(first) == requests
    assert {r.segments[0] for r in second} == {Segment(1, 64)}, "everybody's opening stays everybody's"
    for one, other in itertools.combinations((first, second, third), 2):
        assert not {r.session for r in one} & {r.session for r in other}
        assert not {r.segments[1].key for r in one} & {r.segments[1].key for r in other}
    assert [r.arrival_s for r in third] == [r.arrival_s for r in requests]
    assert list(copies([])) == []
