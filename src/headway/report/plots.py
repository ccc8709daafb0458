"""The pictures of a simulation report. Each takes plain results and gives one SVG; colours come as CSS classes.

A policy's marks carry its class (`p0`, `p1` ...), by which the page colours, dims and hides them.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from headway.report import svg
from headway.report.board import Board
from headway.report.figures import NOTHING, count, seconds, share
from headway.report.measures import GOOD, Measure
from headway.report.raster import heat_uri
from headway.workload.results import RunDetail

Styles = Mapping[str, str]
Details = Mapping[str, RunDetail]
Write = Callable[[float], str]

PHASES: tuple[tuple[str, str], ...] = (
    ("held_s", "held by us"),
    ("waiting_s", "in the engine's queue"),
    ("prefill_s", "prefill"),
    ("decode_s", "decode"),
)
_POINTS = 200
"""Points per curve over time: more cannot be told apart at the width of a page."""

_LETTER = 7.1
"""Width of a letter of a policy's name, on average and in the widest of the usual fonts."""


def against_load(board: Board, measure: Measure, styles: Styles, offered: bool = False) -> str:
    """A measure over load: a line with its 95 % band per policy; `offered` adds the rate of arrivals."""
    arrivals = {load: _offered(board, load) for load in board.loads} if offered else {}
    top = 1.0 if measure is GOOD else max([*arrivals.values(), *_highest(board, measure)], default=0.0) or 1.0
    loads = svg.Axis(board.loads[0], board.loads[-1], tuple((load, f"{load:g}") for load in board.loads), "load")
    frame = svg.Frame(loads, svg.linear(0.0, top, share if measure is GOOD else plain), right=_room(styles))
    marks = [svg.line([frame.point(*at) for at in arrivals.items()], "offered", "requests offered")] if offered else []
    ends = {}
    for policy, style in styles.items():
        marks += _banded(board, measure, policy, style, frame)
        last = next(load for load in reversed(board.loads) if board.has(policy, load))
        ends[policy] = frame.point(last, board.band(policy, last, measure).mean)[1]
    return svg.drawing(frame, [*marks, *_end_labels(frame, ends, styles)], f"{measure.about}, against load")


def at_load(board: Board, measure: Measure, styles: Styles, load: float) -> str:
    """A measure at one load: a bar per policy with the 95 % interval of its mean."""
    bands = {policy: board.band(policy, load, measure) for policy in styles if board.has(policy, load)}
    top = 1.0 if measure is GOOD else max((band.high or band.mean for band in bands.values()), default=0.0) or 1.0
    scale = svg.linear(0.0, top, share if measure is GOOD else plain)
    frame, rows = _bars(scale, bands, styles)
    marks = []
    for (policy, band), centre in zip(bands.items(), rows, strict=True):
        start, end = frame.point(0.0, 0)[0], frame.point(band.mean, 0)[0]
        hint = f"{policy}: {measure.write(band.mean)}"
        marks.append(svg.box(start, centre - 8, end - start, 16, f"bar {styles[policy]}", hint))
        if band.low is not None and band.high is not None:
            ends = [(frame.point(edge, 0)[0], centre) for edge in (band.low, band.high)]
            marks.append(svg.rule(ends[0], ends[1], f"whisker {styles[policy]}"))
        far = frame.point(band.high or band.mean, 0)[0]
        marks.append(svg.text((far + 6, centre + 4), measure.write(band.mean), f"value {styles[policy]}"))
    return svg.drawing(frame, [*marks, *_row_names(bands, rows, styles)], f"{measure.about}, at load {load:g}")


def distribution(details: Details, field: str, styles: Styles, limit_s: float, title: str) -> str:
    """The share of requests that were at least as quick, over seconds (log); a dashed line at the objective."""
    curves = {policy: np.array(getattr(detail, field)) for policy, detail in details.items()}
    known = {policy: curve for policy, curve in curves.items() if len(curve) and curve[-1] > 0}
    values = np.concatenate([*known.values(), [limit_s]])
    low = max(float(np.min(values[values > 0])), float(np.max(values)) * 1e-5)
    frame = svg.Frame(
        svg.logarithmic(low, float(np.max(values)) * 1.1, seconds, title), svg.linear(0.0, 1.0, share), right=20
    )
    place = frame.point(limit_s, 1.0)
    marks = [svg.rule(place, (place[0], frame.height - frame.bottom), "limit")]
    foot = frame.height - frame.bottom - 7
    beyond = place[0] > 0.8 * frame.width
    beside = place[0] + (-5 if beyond else 5)
    marks.append(svg.text((beside, foot), f"SLO {seconds(limit_s)}", "tick", "end" if beyond else "start"))
    for policy, curve in known.items():
        shares = np.linspace(0.0, 1.0, len(curve))
        points = [frame.point(float(x), float(y)) for x, y in zip(curve, shares, strict=True)]
        marks.append(svg.line(points, styles[policy], policy))
    return svg.drawing(frame, marks, f"distribution of {title}")


def over_time(
    curves: Mapping[str, tuple[Sequence[float], Sequence[float]]], styles: Styles, write: Write, title: str
) -> str:
    """Curves (times, values) over time, one per policy. Counts get whole numbers at the axis."""
    span = max((times[-1] for times, _ in curves.values() if len(times)), default=1.0) or 1.0
    top = max((max(values, default=0.0) for _, values in curves.values()), default=0.0) or 1.0
    top = max(top, 5) if write is count else top
    frame = svg.Frame(_clock(span), svg.linear(0.0, float(top), write), right=20)
    marks = []
    for policy, (times, values) in curves.items():
        kept = _thinned(len(times))
        marks.append(
            svg.line([frame.point(float(times[at]), float(values[at])) for at in kept], styles[policy], policy)
        )
    return svg.drawing(frame, marks, f"{title} over time")


def phases(details: Details, styles: Styles) -> str:
    """Mean seconds of a request by where it was: held by us, in the engine's queue, in prefill, in decode."""
    totals = {policy: sum(getattr(detail, field) for field, _ in PHASES) for policy, detail in details.items()}
    frame, rows = _bars(svg.linear(0.0, max(totals.values(), default=0.0) or 1.0, seconds), totals, styles)
    marks = []
    for (policy, detail), centre in zip(details.items(), rows, strict=True):
        start = 0.0
        for place, (field, name) in enumerate(PHASES):
            spent = getattr(detail, field)
            left, right = frame.point(start, 0)[0], frame.point(start + spent, 0)[0]
            hint = f"{policy}: {seconds(spent)} {name}"
            marks.append(svg.box(left, centre - 8, right - left, 16, f"phase{place} of {styles[policy]}", hint))
            start += spent
        far = frame.point(start, 0)[0]
        served = seconds(start) if detail.ttft_s else NOTHING
        marks.append(svg.text((far + 6, centre + 4), served, f"value {styles[policy]}"))
    return svg.drawing(frame, [*marks, *_row_names(totals, rows, styles)], "where requests spent their time")


def heat(detail: RunDetail, label: str) -> str:
    """KV use of every replica over time: a row per replica, blue with room, red when full."""
    rows = len(detail.replicas)
    row = max(3.0, min(18.0, 190.0 / max(1, rows)))
    named = row >= 8
    scale = svg.Axis(0, max(1, rows), ())
    frame = svg.Frame(_clock(detail.times[-1], 4), scale, 380, rows * row + 40, 64 if named else 12, 10, 6, 34)
    left, top = frame.point(0, rows)
    right, bottom = frame.point(detail.times[-1], 0)
    picture = (
        f'<image x="{left:.1f}" y="{top:.1f}" width="{right - left:.1f}" height="{bottom - top:.1f}" '
        f'preserveAspectRatio="none" href="{heat_uri(detail.kv_usage)}"/>'
    )
    names = [
        svg.text((left - 7, top + (n + 0.5) * row + 3.5), name[-9:], "tick", "end")
        for n, name in enumerate(detail.replicas)
        if named
    ]
    return svg.drawing(frame, [picture, *names], label)


def imbalance(detail: RunDetail) -> list[float]:
    """Standard deviation of KV use across replicas at each time."""
    spread: list[float] = np.std(np.array(detail.kv_usage), axis=0).tolist()
    return spread


def in_engines(detail: RunDetail) -> list[int]:
    """Requests waiting in all engines' queues at each time."""
    total: list[int] = np.sum(np.array(detail.waiting), axis=0).tolist()
    return total


def ramp_uri() -> str:
    """A picture of the shades from free to full."""
    return heat_uri([np.linspace(0.0, 1.0, 240).tolist()])


def plain(value: float) -> str:
    """A number as it is."""
    return f"{value:g}"


def _offered(board: Board, load: float) -> float:
    runs = [run for policy in board.policies for run in board.runs(policy, load)]
    return float(np.mean([run.requests / run.window_s if run.window_s else 0.0 for run in runs]))


def _highest(board: Board, measure: Measure) -> Iterator[float]:
    for policy in board.policies:
        for load in board.loads:
            if board.has(policy, load):
                band = board.band(policy, load, measure)
                yield band.mean if band.high is None else band.high


def _banded(board: Board, measure: Measure, policy: str, style: str, frame: svg.Frame) -> Iterator[str]:
    bands = [(load, board.band(policy, load, measure)) for load in board.loads if board.has(policy, load)]
    if all(band.low is not None for _, band in bands):
        lower = [frame.point(load, band.low or 0.0) for load, band in bands]
        yield svg.band(lower, [frame.point(load, band.high or 0.0) for load, band in bands], style)
    centre = [frame.point(load, band.mean) for load, band in bands]
    yield svg.line(centre, style, policy)
    for place, (load, band) in zip(centre, bands, strict=True):
        yield svg.dot(place, style, f"{policy}, load {load:g}: {measure.write(band.mean)}")


def _end_labels(frame: svg.Frame, ends: Mapping[str, float], styles: Styles) -> Iterator[str]:
    """Names of policies beside the ends of their lines, moved apart where they would cover each other."""
    heights = svg.spread_labels(list(ends.values()), 14, frame.top + 4, frame.height - frame.bottom)
    for policy, height in zip(ends, heights, strict=True):
        yield svg.text((frame.width - frame.right + 9, height + 4), policy, f"name {styles[policy]}")


def _bars(scale: svg.Axis, rows: Mapping[str, object], styles: Styles) -> tuple[svg.Frame, list[float]]:
    """A frame for horizontal bars and the height of the centre of each."""
    gap = 26.0
    frame = svg.Frame(
        scale, svg.Axis(0, 1, ()), height=len(rows) * gap + 46, left=_room(styles), right=58, bottom=38, top=8
    )
    return frame, [frame.top + (n + 0.5) * gap for n in range(len(rows))]


def _row_names(rows: Mapping[str, object], heights: Sequence[float], styles: Styles) -> Iterator[str]:
    edge = _room(styles) - 10
    for policy, height in zip(rows, heights, strict=True):
        yield svg.text((edge, height + 4), policy, f"name {styles[policy]}", "end")


def _room(styles: Styles) -> float:
    """What the names of the policies take at a side of a picture."""
    return 20 + _LETTER * max(map(len, styles), default=0)


def _clock(span_s: float, ticks: int = 6) -> svg.Axis:
    """Time since the start, in minutes where it is long."""
    unit, name = (60.0, "min") if span_s >= 300 else (1.0, "s")
    rounded = svg.linear(0.0, span_s / unit, plain, ticks=ticks)
    kept = tuple((value * unit, label) for value, label in rounded.ticks if value * unit <= span_s * 1.0001)
    return svg.Axis(0.0, span_s, kept, f"time ({name})")


def _thinned(length: int) -> list[int]:
    """At most _POINTS places of a curve, the first and the last among them."""
    return sorted(set(np.linspace(0, length - 1, min(length, _POINTS)).round().astype(int).tolist()))
