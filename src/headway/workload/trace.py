"""Request logs as workloads: Azure CSV, Mooncake JSON Lines, and any CSV or JSON Lines with a mapping of columns.

Everything works on lines; callers open (and decompress) files. The first arrival becomes 0. A line that cannot be
read is a TraceError that names the line: a trace with silent holes would be another trace.

Prompts are rebuilt as segments: from hash ids of prefix blocks where the trace has them; from sessions else, taking
the previous prompt of the session as the prefix (it shrinks on compaction: then nothing is shared); else unshared.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence

import msgspec
import numpy as np

from headway.workload.request import Request, Segment

Row = dict[str, object]

_SESSION_KEYS = 1 << 40
"""Keys of segments that a session or a lone request made start here, above any hash id seen in public traces."""


class TraceError(ValueError):
    """A trace that cannot be read; the text names the line and the reason."""


class Columns(msgspec.Struct, frozen=True):
    """Which column means what. Empty: the trace has none.

    `arrival_unit_s` converts arrivals to seconds, 0 says they are wall-clock timestamps. `tokens_per_unit` converts
    lengths to tokens (0.25 for characters). `block_tokens` is the span of one hash id.
    """

    arrival: str
    input: str
    output: str
    session: str = ""
    hashes: str = ""
    arrival_unit_s: float = 1.0
    tokens_per_unit: float = 1.0
    block_tokens: int = 0


AZURE = Columns(arrival="TIMESTAMP", input="ContextTokens", output="GeneratedTokens", arrival_unit_s=0.0)
MOONCAKE = Columns(
    arrival="timestamp",
    input="input_length",
    output="output_length",
    hashes="hash_ids",
    arrival_unit_s=1e-3,
    block_tokens=512,
)
FORMATS: dict[str, Columns] = {"azure": AZURE, "mooncake": MOONCAKE}
_UNITS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9, "time": 0.0}


def read(lines: Iterable[str], columns: Columns, rng: np.random.Generator) -> list[Request]:
    """Requests of a CSV (first line: header) or JSON Lines trace, by arrival.

    Arrivals that fall on a coarse grid (more than half of the gaps are zero) are spread within their tick by `rng`.
    """
    rows = list(_located(_rows(lines), columns))
    arrivals = jitter(np.array([row[0] for row in rows]), rng)
    order = np.argsort(arrivals, kind="stable")
    start = float(arrivals[order[0]]) if len(order) else 0.0
    build = _builder(columns)
    return [build(float(arrivals[at]) - start, *rows[at][1:]) for at in order]


def parse_columns(text: str) -> Columns:
    """A mapping from the command line: `arrival=timestamp:ms,input=input_length,output=out,hashes=hash_ids:512`.

    Units of arrival: s, ms, us, ns, or `time` for timestamps. `input=prompt_chars:0.25` gives tokens per unit.
    """
    fields: dict[str, str | float | int] = {}
    for pair in text.split(","):
        name, _, value = pair.strip().partition("=")
        column, _, extra = value.partition(":")
        if name not in ("arrival", "input", "output", "session", "hashes") or not column:
            raise TraceError(f"column mapping: cannot read {pair!r} (expected e.g. input=prompt_tokens)")
        fields[name] = column
        if extra:
            fields |= _extra(name, extra)
    missing = {"arrival", "input", "output"} - fields.keys()
    if missing:
        raise TraceError(f"column mapping: {', '.join(sorted(missing))} missing")
    if "hashes" in fields and "block_tokens" not in fields:
        raise TraceError("column mapping: hashes needs the tokens of one block, e.g. hashes=hash_ids:512")
    return msgspec.convert(fields, Columns)


def detect(first_line: str) -> Columns | None:
    """The known format whose columns the first line names, if any."""
    names = set(next(iter(_rows([first_line, first_line])), {}))
    for columns in FORMATS.values():
        if {columns.arrival, columns.input, columns.output} <= names:
            return columns
    return None


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


def _extra(name: str, text: str) -> dict[str, float | int]:
    try:
        if name == "arrival":
            return {"arrival_unit_s": _UNITS[text]}
        return {"block_tokens": int(text)} if name == "hashes" else {"tokens_per_unit": float(text)}
    except (KeyError, ValueError):
        raise TraceError(f"column mapping: cannot read {name}=...:{text}") from None


def _rows(lines: Iterable[str]) -> Iterator[Row]:
    header: list[str] = []
    for number, line in enumerate(lines, 1):
        text = line.strip().lstrip("\ufeff")
        if not text:
            continue
        if text.startswith("{"):
            try:
                yield msgspec.json.decode(text, type=Row)
            except msgspec.DecodeError as error:
                raise TraceError(f"line {number}: {error}") from None
        elif not header:
            header = [name.strip() for name in text.split(",")]
        else:
            yield dict(zip(header, text.split(","), strict=False))


def _located(rows: Iterable[Row], columns: Columns) -> Iterator[tuple[float, int, int, str, Sequence[int]]]:
    for number, row in enumerate(rows, 1):
        try:
            prompt = round(float(str(row[columns.input])) * columns.tokens_per_unit)
            output = round(float(str(row[columns.output])) * columns.tokens_per_unit)
            session = str(row[columns.session]) if columns.session else ""
            hashes = msgspec.convert(row[columns.hashes], list[int]) if columns.hashes else []
            yield _seconds(row[columns.arrival], columns), max(1, prompt), max(1, output), session, hashes
        except KeyError as error:
            raise TraceError(f"request {number}: no column {error}") from None
        except (ValueError, msgspec.ValidationError) as error:
            raise TraceError(f"request {number}: {error}") from None


def _seconds(value: object, columns: Columns) -> float:
    if columns.arrival_unit_s:
        return float(str(value)) * columns.arrival_unit_s
    stamp = np.datetime64(str(value).strip().replace(" ", "T"), "ns")
    return float(stamp.astype(np.int64)) * 1e-9


Builder = Callable[[float, int, int, str, Sequence[int]], Request]


def _builder(columns: Columns) -> Builder:
    """A function that turns the fields of one row into a Request; it remembers the sessions it has seen."""
    sessions: dict[str, list[Segment]] = {}
    turns: dict[str, int] = {}
    fresh = iter(range(_SESSION_KEYS, _SESSION_KEYS * 2))

    def build(arrival_s: float, prompt: int, output: int, session: str, hashes: Sequence[int]) -> Request:
        if hashes:
            segments = _blocks(hashes, prompt, columns.block_tokens)
        else:
            segments = _grown(sessions.get(session, []), prompt, lambda: next(fresh))
            if session:
                sessions[session] = segments
        turn = turns[session] = turns.get(session, -1) + 1
        return Request(arrival_s, tuple(segments), output, session, turn if session else 0)

    return build


def _blocks(hashes: Sequence[int], prompt: int, block_tokens: int) -> list[Segment]:
    """One segment per block; the last is as long as the prompt leaves it."""
    segments = []
    for index, key in enumerate(hashes):
        tokens = min(block_tokens, prompt - index * block_tokens)
        if tokens > 0:
            segments.append(Segment(key, tokens))
    left = prompt - len(hashes) * block_tokens
    return [*segments, Segment(hashes[-1] + _SESSION_KEYS, left)] if left > 0 else segments


def _grown(previous: list[Segment], prompt: int, fresh: Callable[[], int]) -> list[Segment]:
    had = sum(segment.tokens for segment in previous)
    if previous and prompt > had:
        return [*previous, Segment(fresh(), prompt - had)]
    if previous and prompt == had:
        return previous
    return [Segment(fresh(), prompt)]
