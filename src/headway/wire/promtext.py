"""Prometheus text and OpenMetrics pages, read selectively: only the asked-for samples are looked at.

A page of a real engine has 48 to 90 kB and a gateway reads two a second of each replica, so lines are found by their
name instead of splitting the page. What lives here: the format. What must not: the meaning of a gauge, or of NaN and
infinity, which are handed on as they are (`engines`).
"""

import re
from functools import lru_cache

MAX_PAGE_BYTES = 8 * 1024 * 1024
"""Of a longer page only this much is read. The largest page seen from a real engine is 90 kB."""

MAX_READ_BYTES = 256 * 1024
"""Bytes of asked-for lines that are parsed per page, at some 10 MB/s: a hostile page must not hold up the process for
long, nor fill its memory. What is asked of a real page is below 6 kB."""

_LABEL = rb'[ \t]*+(%b[a-zA-Z_][a-zA-Z0-9_.:]*+)[ \t]*+=[ \t]*+"(%b[^"\\\n]*+(?:\\.[^"\\\n]*+)*)"[ \t]*+'
_PAIRS = re.compile(_LABEL % (b"", b""))
_PLAIN = _LABEL % (b"?:", b"?:")
_LINE = re.compile(
    rb"(\{(?:" + _PLAIN + rb"(?:," + _PLAIN + rb")*,?)?[ \t]*+\})?[ \t]+"
    rb"([+-]?(?:[0-9][0-9.eE+-]*|\.[0-9][0-9eE+-]*|[iI]nf|[nN]a[nN]|INF|NAN))(?=[ \t\r\n]|$)"
)
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
    page = b"\n" + page
    for line in _finder(names).finditer(page):
        end = page.find(b"\n", line.end())
        end = end if end >= 0 else len(page)
        samples.left -= end - line.end()
        if samples.left < 0:
            samples.truncated = True
            break
        one = _line(page, line.end(), end)
        if one is None:
            samples.malformed += 1
        else:
            samples.setdefault(line[1].decode(), []).append(one)
    return samples


@lru_cache(maxsize=64)
def _finder(names: frozenset[str]) -> re.Pattern[bytes]:
    """Finds the lines of these names in one pass. Names are grouped by what stands before their first colon, because
    the expression gives up early on a line that begins like none of them."""
    groups: dict[str, list[str]] = {}
    for name in sorted(names):
        space, colon, own = name.rpartition(":")
        groups.setdefault(space + colon, []).append(own)
    spaces = (f"{re.escape(space)}(?:{'|'.join(map(re.escape, own))})" for space, own in groups.items())
    return re.compile(f"\\n({'|'.join(spaces)})(?=[{{ \\t])".encode())


def _line(page: bytes, at: int, end: int) -> Series | None:
    """The labels and the value of a line that ends at `end`, read from behind its name."""
    line = _LINE.match(page, at, end)
    if line is None:
        return None
    try:
        value = float(line[2])
    except ValueError:
        return None
    if line[1] is None:
        return {}, value
    return {name.decode(): _text(text) for name, text in _PAIRS.findall(line[1])}, value


def _text(value: bytes) -> str:
    if b"\\" in value:
        value = _ESCAPE.sub(lambda escape: _ESCAPED.get(escape[1], escape[1]), value)
    return value.decode(errors="replace")
