"""Request logs as workloads: any CSV or JSON Lines, given which column means what (`columns`).

Everything works on lines; callers open (and decompress) files. A line that cannot be read is a TraceError that names
the line: a trace with silent holes would be another trace.

Prompts are rebuilt as segments: from hash ids of prefix blocks where the trace has them; from sessions else, taking
the previous prompt of the session as the prefix, then its answer (the prompt shrinks on compaction: then nothing is
shared); else unshared.
"""

import csv
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import msgspec
import numpy as np

from headway.workload.columns import Columns, TraceError
from headway.workload.request import Request, Segment

Row = dict[str, object]

MAX_TOKENS = 10_000_000
"""No model reads or writes more. A column that was taken for another has such numbers, and every prompt is rebuilt."""

SPAN_S = 3600.0
"""Seconds over which sessions are spread whose trace says only what happened within each."""

_ZONED = re.compile(r"(.*?\d:\d\d[:.\d]*) ?(?:Z|UTC|([+-])(\d\d):?(\d\d)?)")
"""A timestamp that says where its clock stands: Z, +00:00, -0530, +02."""

_STAMP = re.compile(r"\d{4}-\d\d(-\d\d([T ]\d\d(:\d\d(:\d\d([.]\d+)?)?)?)?)?")

_SESSION_KEYS = 1 << 40
"""Keys of segments that a session or a lone request made start here, above any hash id seen in public traces."""


class Logged(msgspec.Struct):
    """One row of a log, in seconds and tokens. `whole` names the session, `session` the part of it this row is in."""

    arrival_s: float
    prompt: int
    output: int
    session: str
    tenant: str
    hashes: Sequence[int]
    whole: str = ""
    turn: int = 0


def read(lines: Iterable[str], columns: Columns, rng: np.random.Generator, span_s: float = SPAN_S) -> list[Request]:
    """Requests of a CSV (first line: header) or JSON Lines trace, by arrival.

    Arrivals that fall on a coarse grid (more than half of the gaps are zero) are spread within their tick by `rng`.
    The first arrival becomes 0; sessions that are `spread` lie in [0, span_s).
    """
    rows = list(_logged(_rows(lines), columns))
    if not columns.spread:
        _jitter(rows, rng)
    rows.sort(key=_arrival)
    _number(rows)
    if columns.spread:
        _spread(rows, span_s, rng)
        rows.sort(key=_arrival)
    return _built(rows, columns, 0.0 if columns.spread or not rows else rows[0].arrival_s)


def jitter(arrivals: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Spread arrivals uniformly within the tick of a coarse clock; a fine clock's arrivals stay as they are.

    The tick is the smallest gap that is not zero. Mooncake's conversation trace has ticks of 3 s and 90 % zero gaps.
    """
    gaps = np.diff(np.sort(arrivals))
    if len(gaps) == 0 or np.mean(gaps == 0) <= 0.5 or not np.any(gaps > 0):
        return arrivals
    tick = float(gaps[gaps > 0].min())
    spread: np.ndarray = arrivals + rng.uniform(0.0, tick, size=len(arrivals))
    return spread


def _jitter(rows: Sequence[Logged], rng: np.random.Generator) -> None:
    arrivals = jitter(np.array([row.arrival_s for row in rows]), rng)
    for row, arrival_s in zip(rows, arrivals.tolist(), strict=True):
        row.arrival_s = arrival_s


def _rows(lines: Iterable[str]) -> Iterator[Row]:
    """Rows of JSON Lines or of a CSV, with their line numbers in errors; empty lines are skipped."""
    header: list[str] = []
    for number, line in enumerate(lines, 1):
        text = line.strip().lstrip("\ufeff")
        if text.startswith("{"):
            try:
                yield msgspec.json.decode(text, type=Row)
            except (msgspec.DecodeError, RecursionError) as error:
                raise TraceError(f"line {number}: {error}") from None
        elif text:
            fields = next(csv.reader([text]), []) if '"' in text else text.split(",")
            if header:
                if len(fields) > len(header) and any(field.strip() for field in fields[len(header) :]):
                    raise TraceError(f"line {number}: {len(fields)} fields, where the header names {len(header)}")
                yield dict(zip(header, fields, strict=False))
            else:
                header = _header(fields)


def _header(fields: Sequence[str]) -> list[str]:
    names = [name.strip() for name in fields]
    twice = [name for name, count in Counter(names).items() if name and count > 1]
    if twice:
        raise TraceError(f"line 1: the header names {', '.join(twice)} twice")
    return names


def _logged(rows: Iterable[Row], columns: Columns) -> Iterator[Logged]:
    for number, row in enumerate(rows, 1):
        try:
            prompt = _tokens(row[columns.input], columns.input_unit_tokens)
            output = _tokens(row[columns.output], columns.output_unit_tokens)
            session = str(row[columns.session]) if columns.session else ""
            tenant = str(row[columns.tenant]) if columns.tenant else ""
            hashes = _hashes(row[columns.hashes]) if columns.hashes else []
            arrival_s = _seconds(row[columns.arrival], columns)
            yield Logged(arrival_s, max(1, prompt), max(1, output), session, tenant, hashes, session)
        except KeyError as error:
            raise TraceError(f"request {number}: no column {error}") from None
        except (ValueError, msgspec.DecodeError) as error:
            raise TraceError(f"request {number}: {error}") from None


def _tokens(value: object, unit_tokens: float) -> int:
    tokens = float(str(value)) * unit_tokens
    if not 0.0 <= tokens <= MAX_TOKENS:
        raise ValueError(f"a length of {value} is none, or longer than {MAX_TOKENS:,} tokens")
    return round(tokens)


def _hashes(value: object) -> list[int]:
    """Ids of blocks: a list, in a CSV written as JSON has it. An empty field has none."""
    if isinstance(value, str):
        return msgspec.json.decode(value, type=list[int]) if value.strip() else []
    return msgspec.convert(value, list[int])


def _seconds(value: object, columns: Columns) -> float:
    text = str(value).strip()
    try:
        seconds = float(text) * columns.arrival_unit_s if columns.arrival_unit_s else _since_epoch(text)
    except ValueError as error:
        if columns.arrival_unit_s and _STAMP.match(text):
            raise ValueError(f"{error}: timestamps are read with arrival={columns.arrival}:time") from None
        raise
    if not math.isfinite(seconds):
        raise ValueError(f"an arrival at {value} is none")
    return seconds


def _since_epoch(text: str) -> float:
    """Seconds of a timestamp, in UTC unless it says otherwise. Raises ValueError for what is none."""
    offset_s = 0.0
    if zoned := _ZONED.fullmatch(text):
        text, sign, hours, minutes = zoned.groups(default="0")
        offset_s = (3600.0 * int(hours) + 60.0 * int(minutes)) * (-1.0 if sign == "-" else 1.0)
    if not _STAMP.fullmatch(text):
        raise ValueError(f"{text[:40]!r} is no timestamp, such as 2024-05-10 12:30:00.5+02:00")
    return float(np.datetime64(text.replace(" ", "T"), "ns").astype(np.int64)) * 1e-9 - offset_s


def _number(rows: Sequence[Logged]) -> None:
    """Count the turns of each session."""
    turns: dict[str, int] = {}
    for row in rows:
        if row.session:
            row.turn = turns[row.session] = turns.get(row.session, -1) + 1


def _spread(rows: Sequence[Logged], span_s: float, rng: np.random.Generator) -> None:
    """Start every session at a random second of a ring of span_s, and wind it around.

    What lies a lap behind its start is a session of its own, in mid-talk: a session of ten hours on a ring of one is
    ten sessions at once, and the ring holds the load of as many new sessions per span_s as the trace has.
    """
    shifts: dict[str, float] = {}
    for row in rows:
        shift = shifts.get(row.session) if row.session else None
        if shift is None:
            shift = shifts[row.session] = float(rng.uniform(0.0, span_s)) - row.arrival_s
        lap, row.arrival_s = divmod(row.arrival_s + shift, span_s)
        if lap and row.session:
            row.session = f"{row.whole}~{int(lap)}"


def _arrival(row: Logged) -> float:
    return row.arrival_s


def _built(rows: Iterable[Logged], columns: Columns, start_s: float) -> list[Request]:
    grown = _Sessions()
    blocks: dict[int, Segment] = {}
    return [
        Request(
            row.arrival_s - start_s,
            tuple(_blocks(row, columns.block_tokens, blocks) if row.hashes else grown.prompt(row)),
            row.output,
            row.session,
            row.turn,
            tenant=row.tenant,
        )
        for row in rows
    ]


def _blocks(row: Logged, block_tokens: int, known: dict[int, Segment]) -> list[Segment]:
    """One segment per block, the same object wherever a whole one recurs; the last as long as the prompt leaves it."""
    whole, part = divmod(row.prompt, block_tokens)
    segments = [known.get(key) or known.setdefault(key, Segment(key, block_tokens)) for key in row.hashes[:whole]]
    if whole < len(row.hashes):
        return [*segments, Segment(row.hashes[whole], part)] if part else segments
    left = row.prompt - len(row.hashes) * block_tokens
    return [*segments, Segment(row.hashes[-1] + _SESSION_KEYS, left)] if left else segments


class _Sessions:
    """Prompts of sessions, each grown from the one before."""

    def __init__(self) -> None:
        self._before: dict[str, tuple[list[Segment], int, int]] = {}
        """Per session: the last prompt's segments, their tokens, and the tokens of its answer."""
        self._keys = iter(range(_SESSION_KEYS, _SESSION_KEYS * 2))

    def prompt(self, row: Logged) -> list[Segment]:
        """The segments of this row's prompt."""
        segments, had, answer = self._before.get(row.session, ([], 0, 0)) if row.session else ([], 0, 0)
        if row.prompt < had or not had:
            segments = [Segment(next(self._keys), row.prompt)]
        elif row.prompt > had:
            # At least one token is the user's, so that a prompt never ends in an answer.
            answered = min(answer, row.prompt - had - 1)
            told = [Segment(next(self._keys), answered, "assistant")] if answered else []
            segments = [*segments, *told, Segment(next(self._keys), row.prompt - had - answered)]
        if row.session:
            self._before[row.session] = (segments, row.prompt, row.output)
        return segments
