"""Prometheus text format 0.0.4, written line by line.

prometheus_client spends some ten microseconds per line on objects, which would stop the event loop for tens of
milliseconds at every scrape of a large fleet; this takes about one. It still reads the metrics of our own process.
"""

import math
from collections.abc import Iterable

ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})
HELP_ESCAPES = str.maketrans({"\\": r"\\", "\n": r"\n"})


class Page:
    """A page under construction. Samples belong to the family that was begun last."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._name = ""

    def family(self, name: str, kind: str, documentation: str) -> None:
        """Begin a metric; `name` is the full one, `_total` included."""
        self._name = name
        self._lines.append(f"# HELP {name} {documentation.translate(HELP_ESCAPES)}\n# TYPE {name} {kind}")

    def sample(self, value: float, labels: str = "", suffix: str = "") -> None:
        """One value. `labels` come from `label_text`."""
        self._lines.append(f"{self._name}{suffix}{labels} {number(value)}")

    def histogram(
        self, buckets: Iterable[tuple[str, int]], total: float, labels: tuple[str, str] | None = None
    ) -> None:
        """One histogram with at most one label; `buckets` are (upper bound, cumulative count), the last being +Inf."""
        own = f'{labels[0]}="{labels[1].translate(ESCAPES)}"' if labels else ""
        begin = f"{{{own}," if own else "{"
        count = 0
        for bound, count in buckets:
            self._lines.append(f'{self._name}_bucket{begin}le="{bound}"}} {count}')
        closed = f"{{{own}}}" if own else ""
        self._lines.append(f"{self._name}_sum{closed} {number(total)}\n{self._name}_count{closed} {count}")

    def text(self) -> bytes:
        """The page so far."""
        return ("\n".join(self._lines) + "\n").encode() if self._lines else b""


def label_text(names: tuple[str, ...], values: Iterable[str]) -> str:
    """`{a="x",b="y"}`, escaped."""
    inner = ",".join(f'{name}="{value.translate(ESCAPES)}"' for name, value in zip(names, values, strict=True))
    return f"{{{inner}}}"


def number(value: float) -> str:
    """A number as Prometheus reads it."""
    if isinstance(value, int):
        return str(int(value))
    if math.isfinite(value):
        return repr(value)
    return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"
