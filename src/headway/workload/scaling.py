"""More or less load, and a piece of a workload, without compressing time.

Compressing a trace in time would turn its bursts and think times into something no user ever did. So load is scaled by
leaving out whole sessions and by laying copies over each other, each rotated by a random time of its own (`scale`,
`draw`); a piece is cut from the ring that a workload is (`window`). Rules that hold for all of them:

- A session stays whole, and its turns in order. Where the end of the ring cuts one in two, its second part is a
  session of its own that comes in mid-talk, with its history in the prompt, as after a restart of the fleet.
- Copies share no prefix with their original, which would invent cache hits the workload never had; except openings
  (system prompts), which more users would use just as well.
"""

import itertools
import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from headway.workload.request import Request, Segment, Workload

_COPY_KEYS = 1 << 48
"""Distance between the segment keys of two copies; keys of readers and generators stay below it."""
_OPENING_SHARE = 0.01
_OPENING_USES = 20
"""A key that 1 % of the requests use (and 20 at least), in three sessions or more, is an opening. In Mooncake's
conversation trace block 0 is in every prompt and the next most used block in 0.4 %, so the limit lies in a wide gap."""
_OPENING_SESSIONS = 3


class Sessions(msgspec.Struct, frozen=True):
    """`of[i]` numbers the session of request i; `openings` are keys of segments that belong to no single session."""

    of: NDArray[np.int64]
    openings: frozenset[int]

    @property
    def count(self) -> int:
        """How many sessions there are."""
        return int(self.of.max()) + 1 if len(self.of) else 0


def scale(load: Workload, factor: float, rng: np.random.Generator) -> Workload:
    """The workload with `factor` times the requests, in the same span: thinned below 1, superposed above."""
    sessions = find_sessions(load.requests)
    whole = max(0, math.floor(factor + 1e-9))
    starts = [0.0, *(float(rng.uniform(0.0, load.span_s)) for _ in range(whole))]
    return _layered(load, sessions, factor, load.span_s, starts, rng)


def draw(load: Workload, factor: float, length_s: float, rng: np.random.Generator) -> Workload:
    """`length_s` seconds at `factor` times the load, every copy from a random place of its own: one per seed.

    `length_s` of 0 stands for the whole span. Cheaper than to scale everything and cut a window out of it.
    """
    sessions = find_sessions(load.requests)
    whole = max(0, math.floor(factor + 1e-9))
    starts = [float(rng.uniform(0.0, load.span_s)) for _ in range(whole + 1)]
    return _layered(load, sessions, factor, length_s or load.span_s, starts, rng)


def window(load: Workload, start_s: float, length_s: float) -> Workload:
    """The seconds [start_s, start_s + length_s) of the ring, counted from 0; longer than the ring: several laps."""
    cut = _ring(load.requests, load.span_s, start_s, length_s, 0, find_sessions(load.requests).openings)
    how = f"{length_s:g} s from second {start_s:.0f} of {load.span_s:.0f}"
    return Workload(load.name, _by_arrival(cut), length_s, (*load.how, how))


def copies(requests: Sequence[Request]) -> Iterator[Sequence[Request]]:
    """The requests over and over, arrivals unchanged: first they themselves, then copies with prefixes and sessions of
    their own. Without end, but for no requests at all."""
    openings = find_sessions(requests).openings
    for number in itertools.count() if requests else ():
        yield list(_copies(requests, 0.0, number, openings))


def find_sessions(requests: Sequence[Request]) -> Sessions:
    """Which requests belong together: those of one session; without sessions, those that share prefixes.

    A request without a session joins the earlier one that it shares the longest prefix with, unless only openings are
    shared. That is an estimate (Mooncake's trace names no sessions), used for thinning and copying only.
    """
    uses = Counter(segment.key for request in requests for segment in request.segments)
    often = max(_OPENING_USES, _OPENING_SHARE * len(requests))
    popular = {key for key, count in uses.items() if count >= often}
    of = np.fromiter(_numbered(requests, popular), np.int64, len(requests))
    return Sessions(of, _openings(requests, of, popular))


def _numbered(requests: Sequence[Request], popular: set[int]) -> Iterable[int]:
    names: dict[str, int] = {}
    owners: dict[int, int] = {}
    fresh = 0
    for request in requests:
        if request.session:
            number = names.setdefault(request.session, fresh)
        else:
            own = [segment.key for segment in request.segments if segment.key not in popular]
            number = next((owners[key] for key in reversed(own) if key in owners), fresh)
            owners.update(dict.fromkeys(own, number))
        fresh = max(fresh, number + 1)
        yield number


def _openings(requests: Sequence[Request], of: NDArray[np.int64], popular: set[int]) -> frozenset[int]:
    users: dict[int, set[int]] = {key: set() for key in popular}
    if popular:
        for request, number in zip(requests, of.tolist(), strict=True):
            for segment in request.segments:
                if segment.key in users:
                    users[segment.key].add(number)
    return frozenset(key for key, found in users.items() if len(found) >= _OPENING_SESSIONS)


def _layered(
    load: Workload,
    sessions: Sessions,
    factor: float,
    length_s: float,
    starts: Sequence[float],
    rng: np.random.Generator,
) -> Workload:
    """Whole copies from all starts but the last, and a thinned one from there."""
    rest = factor - (len(starts) - 1)
    laps = math.ceil(length_s / load.span_s) + 1 if load.span_s else 1
    merged: list[Request] = []
    for number, start_s in enumerate(starts):
        last = number == len(starts) - 1
        if last and rest <= 1e-9:
            break
        source = _some(load.requests, sessions, rest, rng) if last else load.requests
        merged.extend(_ring(source, load.span_s, start_s, length_s, number * laps, sessions.openings))
    how = _said(load, sessions, factor, len(merged), length_s, cut=starts[0] > 0)
    return Workload(load.name, _by_arrival(merged), length_s, (*load.how, how))


def _ring(
    requests: Sequence[Request],
    span_s: float,
    start_s: float,
    length_s: float,
    number: int,
    openings: frozenset[int],
) -> list[Request]:
    """What the ring holds from start_s on, lap by lap; each lap is a copy of its own (`number` and up)."""
    if span_s <= 0:
        return []
    start_s %= span_s
    laps, rest = divmod(length_s, span_s)
    # A whole turn must end exactly where it began, whatever doubles make of start + span - span.
    laps, end_s = (laps, start_s + rest) if start_s + rest < span_s else (laps + 1, start_s + rest - span_s)
    cut: list[Request] = []
    for lap in range(int(laps) + 1):
        first = bisect_left(requests, start_s, key=_arrival) if lap == 0 else 0
        end = bisect_left(requests, end_s, key=_arrival) if lap == laps else len(requests)
        cut.extend(_copies(requests[first:end], lap * span_s - start_s, number + lap, openings))
    return cut


def _copies(requests: Sequence[Request], shift: float, number: int, openings: frozenset[int]) -> Iterable[Request]:
    if number == 0:
        if shift == 0.0:
            return requests
        return (_at(request, shift, request.segments, request.session) for request in requests)
    fresh = _Fresh(number * _COPY_KEYS, openings)
    suffix = f"#{number}"
    return (
        _at(request, shift, fresh(request.segments), request.session + suffix if request.session else "")
        for request in requests
    )


class _Fresh:
    """Segments of a copy: equal where the original's were equal, shared with the original in openings only."""

    def __init__(self, offset: int, openings: frozenset[int]) -> None:
        self.offset = offset
        self.openings = openings
        self.made: dict[int, Segment] = {}
        """By the identity of the original's segment, which a long session repeats in every turn."""

    def __call__(self, segments: tuple[Segment, ...]) -> tuple[Segment, ...]:
        known = self.made.get
        return tuple([known(id(segment)) or self.make(segment) for segment in segments])

    def make(self, segment: Segment) -> Segment:
        key = segment.key if segment.key in self.openings else segment.key + self.offset
        made = self.made[id(segment)] = Segment(key, segment.tokens, segment.role)
        return made


def _at(request: Request, shift: float, segments: tuple[Segment, ...], session: str) -> Request:
    return Request(
        request.arrival_s + shift,
        segments,
        request.output_tokens,
        session,
        request.turn,
        request.shape,
        request.tenant,
    )


def _some(requests: Sequence[Request], sessions: Sessions, keep: float, rng: np.random.Generator) -> list[Request]:
    sizes = np.bincount(sessions.of, minlength=sessions.count)
    order = rng.permutation(sessions.count)
    middles = np.cumsum(sizes[order]) - sizes[order] / 2
    chosen = np.zeros(sessions.count, dtype=bool)
    chosen[order[middles < keep * len(requests)]] = True
    return [requests[at] for at in np.flatnonzero(chosen[sessions.of]).tolist()]


def _said(load: Workload, sessions: Sessions, factor: float, kept: int, length_s: float, cut: bool) -> str:
    """The sentence that says how arrivals were scaled, with the load that really came out."""
    rate = f"{kept:,} requests, {kept / length_s if length_s else 0:.2f}/s of {load.rate_rps:.2f}/s"
    place = f", {length_s:g} s from random places" if cut else ""
    if factor < 1:
        return f"load x {factor:g} by leaving out whole sessions (of {sessions.count:,}){place}: {rate}"
    if factor == 1:
        return f"load x 1{place}: {rate}"
    copies = f"{math.ceil(factor - 1e-9)} copies" + (
        "" if factor == round(factor) else ", the last with some sessions only"
    )
    shared = f" except {len(sessions.openings)} shared openings" if sessions.openings else ""
    return (
        f"load x {factor:g} by superposing {copies}, each rotated in time by itself and with prefixes of its own"
        f"{shared}{place}: {rate}"
    )


def _arrival(request: Request) -> float:
    return request.arrival_s


def _by_arrival(requests: list[Request]) -> list[Request]:
    """Sorted, turns of one instant in order (a copy's arrivals are sums, and may round to equal ones)."""
    return sorted(requests, key=_arrival)
