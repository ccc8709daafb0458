"""Drawing by hand: scales, axes and marks as SVG text. No data is known here, only numbers and places.

Written by hand and not by a plotting library because a report must be one small file that adapts to light and dark:
colours are CSS variables and classes of the page around, which a rendered picture could not follow.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from html import escape

import msgspec

Point = tuple[float, float]


class Axis(msgspec.Struct, frozen=True):
    """A scale from `low` to `high` with labelled ticks; logarithmic when `log`. low < high."""

    low: float
    high: float
    ticks: tuple[tuple[float, str], ...]
    title: str = ""
    log: bool = False

    def at(self, value: float) -> float:
        """Where a value lies between low (0) and high (1), clipped."""
        low, high = (math.log(self.low), math.log(self.high)) if self.log else (self.low, self.high)
        place = math.log(max(value, self.low)) if self.log else value
        return min(1.0, max(0.0, (place - low) / (high - low)))


class Frame(msgspec.Struct, frozen=True):
    """A drawing of width x height whose axes span the rectangle left..right, top..bottom."""

    x: Axis
    y: Axis
    width: float = 560
    height: float = 320
    left: float = 52
    right: float = 16
    top: float = 14
    bottom: float = 42

    def point(self, x: float, y: float) -> Point:
        """Place of a value."""
        return (
            self.left + self.x.at(x) * (self.width - self.left - self.right),
            self.height - self.bottom - self.y.at(y) * (self.height - self.top - self.bottom),
        )


def linear(low: float, high: float, write: Callable[[float], str], title: str = "", ticks: int = 5) -> Axis:
    """Round ticks, about `ticks` of them; the upper end is moved up to a tick."""
    span = high - low if high > low else abs(high) or 1.0
    step = _round_step(span / ticks)
    top = math.ceil((low + span) / step - 1e-9) * step
    first = math.ceil(low / step - 1e-9)
    values = [n * step for n in range(first, round(top / step) + 1)]
    return Axis(low, top, tuple((value, write(value)) for value in values), title)


def logarithmic(low: float, high: float, write: Callable[[float], str], title: str = "") -> Axis:
    """Ticks at 1, 2, 5 of each decade, only at 1 beyond two decades. 0 < low."""
    high = max(high, low * 10**0.3)
    steps = (1, 2, 5) if high / low < 300 else (1,)
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    values = [step * 10.0**decade for decade in decades for step in steps]
    return Axis(low, high, tuple((v, write(v)) for v in values if low <= v <= high * 1.001), title, log=True)


def drawing(frame: Frame, marks: Iterable[str], label: str) -> str:
    """A whole picture: grid, axes and marks; `label` is read to those who cannot see it."""
    body = "".join((*_grid(frame), *marks))
    return canvas(frame.width, frame.height, body, label)


def canvas(width: float, height: float, body: str, label: str) -> str:
    """An SVG element that grows with its column."""
    return f'<svg viewBox="0 0 {width:g} {height:g}" role="img" aria-label="{escape(label)}">{body}</svg>'


def line(points: Sequence[Point], style: str = "", hint: str = "") -> str:
    """A line through points; `style` are CSS classes, `hint` shows under the pointer."""
    return f'<path class="line {style}" d="{_path(points)}">{_hint(hint)}</path>'


def band(lower: Sequence[Point], upper: Sequence[Point], style: str = "") -> str:
    """The area between two lines."""
    return f'<path class="band {style}" d="{_path([*lower, *reversed(upper)])}Z"/>'


def dot(place: Point, style: str = "", hint: str = "", radius: float = 3.2) -> str:
    """A round mark."""
    return f'<circle class="dot {style}" cx="{place[0]:.1f}" cy="{place[1]:.1f}" r="{radius:g}">{_hint(hint)}</circle>'


def box(left: float, top: float, width: float, height: float, style: str = "", hint: str = "") -> str:
    """A filled rectangle."""
    size = f'x="{left:.1f}" y="{top:.1f}" width="{max(0.0, width):.1f}" height="{height:.1f}"'
    return f'<rect class="{style}" {size}>{_hint(hint)}</rect>'


def text(place: Point, words: str, style: str = "", anchor: str = "start") -> str:
    """Words; `anchor` start, middle or end is at the place."""
    return f'<text class="{style}" x="{place[0]:.1f}" y="{place[1]:.1f}" text-anchor="{anchor}">{escape(words)}</text>'


def rule(start: Point, end: Point, style: str) -> str:
    """A straight line."""
    return f'<path class="{style}" d="{_path([start, end])}"/>'


def spread_labels(wanted: Sequence[float], gap: float, top: float, bottom: float) -> list[float]:
    """Heights near the wanted ones, in their order, at least `gap` apart where there is room."""
    order = sorted(range(len(wanted)), key=lambda at: wanted[at])
    placed = [0.0] * len(wanted)
    lowest = top
    for at in order:
        placed[at] = lowest = max(wanted[at], lowest)
        lowest += gap
    highest = bottom
    for at in reversed(order):
        placed[at] = min(placed[at], highest)
        highest = placed[at] - gap
    return placed


def _grid(frame: Frame) -> Iterable[str]:
    left, bottom = frame.left, frame.height - frame.bottom
    right = frame.width - frame.right
    for value, label in frame.y.ticks:
        height = frame.point(frame.x.low, value)[1]
        yield rule((left, height), (right, height), "gridline")
        yield text((left - 7, height + 3.5), label, "tick", "end")
    for value, label in frame.x.ticks:
        place = frame.point(value, frame.y.low)[0]
        yield rule((place, bottom), (place, bottom + 4), "axis")
        yield text((place, bottom + 16), label, "tick", "middle")
    yield rule((left, bottom), (right, bottom), "axis")
    yield text(((left + right) / 2, frame.height - 6), frame.x.title, "title", "middle")


def _path(points: Sequence[Point]) -> str:
    return "M" + "L".join(f"{round(x, 1):g} {round(y, 1):g}" for x, y in points)


def _hint(words: str) -> str:
    return f"<title>{escape(words)}</title>" if words else ""


def _round_step(step: float) -> float:
    """The next of 1, 2, 2.5, 5 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(step))
    return next(nice * power for nice in (1, 2, 2.5, 5, 10) if nice * power >= step * (1 - 1e-9))
