"""Prometheus text and OpenMetrics pages, read selectively: only the asked-for samples are looked at.

A page of a real engine has 48 to 90 kB and a gateway reads two a second of each replica, so lines are found by their
name instead of splitting the page. What lives here: the format. What must not: the meaning of a gauge, or of NaN and
infinity, which are handed on as they are (`engines`).
"""

import re

MAX_PAGE_BYTES = 8 * 1024 * 1024
"""Of a longer page only this much is read. The largest page seen from a real engine is 90 kB."""

MAX_READ_BYTES = 256 * 1024
"""Bytes of asked-for lines that are parsed per page, at about 4 MB/s: a hostile page must not hold up the process for
long, nor fill its memory. What is asked of a real page is below 6 kB."""

_LABEL = re.compile(rb'[ \t]*([a-zA-Z_][a-zA-Z0-9_.:]*)[ \t]*=[ \t]*"([^"\\\n]*+(?:\\.[^"\\\n]*+)*)"[ \t]*(,?)')
_VALUE = re.compile(rb"[ \t]+([+-]?(?:[0-9][0-9.eE+-]*|\.[0-9][0-9eE+-]*|[iI]nf|[nN]a[nN]|INF|NAN))(?=[ \t\r\n]|$)")
_ESCAPE = re.compile(rb"\\(.)")
_ESCAPED = {b"n": b"\n"}

Series = tuple[dict[str, str], float]


class Samples(dict[str, list[Series]]):
    """Series by sample name, in page order; names without a series are absent.

    `malformed` lines of asked-for names were skipped; `truncated`: the page, or its asked-for lines, went beyond a cap.
    """

    __slots__ = ("left", "malformed", "truncated")

    def __init__(self) -> None:
        super().__init__()
        self.left = MAX_READ_BYTES
        self.malformed = 0
        self.truncated = False


def read(page: bytes, names: frozenset[str], max_bytes: int = MAX_PAGE_BYTES) -> Samples:
    """The series of `names` (full sample names: with `_total`, `_sum`, `_bucket`). Never raises on content.

    Lines of a name that cannot be read are skipped and counted. Values may be NaN or infinite.
    """
    samples = Samples()
    if len(page) > max_bytes:
        samples.truncated = True
        page = page[: page.rfind(b"\n", 0, max_bytes) + 1]
    for name in names:
        series = _series(page, name.encode(), samples)
        if series:
            samples[name] = series
    return samples


def _series(page: bytes, name: bytes, samples: Samples) -> list[Series]:
    found: list[Series] = []
    needle = b"\n" + name
    at = len(name) if page.startswith(name) else _after(page, needle, 0)
    while at > 0:
        if page[at : at + 1] in (b"{", b" ", b"\t"):
            end = page.find(b"\n", at)
            end = end if end >= 0 else len(page)
            samples.left -= end - at
            if samples.left < 0:
                samples.truncated = True
                break
            one = _line(page, at, end)
            if one is None:
                samples.malformed += 1
            else:
                found.append(one)
        at = _after(page, needle, at)
    return found


def _after(page: bytes, needle: bytes, at: int) -> int:
    found = page.find(needle, at)
    return found + len(needle) if found >= 0 else 0


def _line(page: bytes, at: int, end: int) -> Series | None:
    """The labels and the value of a line that ends at `end`, read from behind its name."""
    labels: dict[str, str] = {}
    if page[at : at + 1] == b"{":
        at = _labels(page, at + 1, end, labels)
        if at == 0:
            return None
    value = _VALUE.match(page, at, end)
    if value is None:
        return None
    try:
        return labels, float(value[1])
    except ValueError:
        return None


def _labels(page: bytes, at: int, end: int, labels: dict[str, str]) -> int:
    """Fill `labels`; the offset behind the closing brace, 0 if there is none where it must be."""
    while (label := _LABEL.match(page, at, end)) is not None:
        labels[label[1].decode()] = _text(label[2])
        at = label.end()
        if not label[3]:
            break
    while page[at : at + 1] in (b" ", b"\t"):
        at += 1
    return at + 1 if page[at : at + 1] == b"}" else 0


def _text(value: bytes) -> str:
    if b"\\" in value:
        value = _ESCAPE.sub(lambda escape: _ESCAPED.get(escape[1], escape[1]), value)
    return value.decode(errors="replace")
