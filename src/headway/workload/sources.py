"""The one entry for recorded workloads: lines of any file that Headway can read become a Workload.

What a file is, its first line says. Files are opened elsewhere (`compose.traces`); each format is read in its module.
"""

from collections.abc import Sequence

import msgspec
import numpy as np

from headway.workload import access, burstgpt, servegen
from headway.workload.arrivals import STEADY, following
from headway.workload.chat import ChatSpec, generate
from headway.workload.columns import FORMATS, Columns, TraceError, detect, field_names, parse_columns
from headway.workload.fitting import only, shorten, within
from headway.workload.request import Request, Segment, Workload, as_workload
from headway.workload.trace import SPAN_S, read

_LENGTHS = Columns(arrival="num_prefill_tokens", input="num_prefill_tokens", output="num_decode_tokens")
"""Vidur's and Etalon's data sets of lengths. They have no arrivals; what the reader is given is dropped."""
_KEYS = 1 << 40


class Options(msgspec.Struct, frozen=True):
    """How a file is read.

    `columns` is a format's name or a mapping (empty: known from the first line). `span_s` is the ring that sessions
    are spread over and the piece that is drawn from laws and profiles. `start_s` is where a ServeGen day is entered
    (None: where the busiest `span_s` begin). `rate` and `cv` make arrivals for data that have lengths or a profile
    only. Then: one `tenant` (empty: all), lengths times `length_factor`, and nothing over `longest` tokens (0: all).
    """

    columns: str = ""
    span_s: float = SPAN_S
    start_s: float | None = None
    rate: float = 1.0
    cv: float = 1.0
    tenant: str = ""
    length_factor: float = 1.0
    longest: int = 0


def read_trace(
    name: str,
    lines: Sequence[str],
    rng: np.random.Generator,
    options: Options | None = None,
    second: Sequence[str] = (),
) -> Workload:
    """The workload in a file's lines. ServeGen's rates need the lines of their histograms as `second`.

    Raises TraceError for what cannot be understood.
    """
    options = options or Options()
    began = next((at for at, line in enumerate(lines) if line.strip()), 0)  # a file may begin with empty lines
    lines = lines[began:]
    load = _read(name, lines, rng, options, second)
    if not load.requests:
        raise TraceError(
            "there is a header and no request in the file" if len(lines) < 2 else "no request comes of this file"
        )
    return fitted(load, options)


def fitted(load: Workload, options: Options) -> Workload:
    """One tenant's requests, shorter, and nothing too long, as the options say. Raises TraceError if none is left."""
    if options.tenant:
        load = only(load, options.tenant)
    if options.length_factor != 1.0:
        load = shorten(load, options.length_factor)
    return within(load, options.longest) if options.longest else load


def _read(
    name: str, lines: Sequence[str], rng: np.random.Generator, options: Options, second: Sequence[str]
) -> Workload:
    first = lines[0] if lines else ""
    if options.columns:
        return _logged(name, lines, rng, options, options.columns)
    if access.is_access_log(first):
        return as_workload(name, access.read_access(lines, rng), "arrivals as logged, no prefixes known")
    names = field_names(first)
    if set(servegen.HEADER) <= names:
        return _servegen(name, lines, rng, options, second)
    if {_LENGTHS.input, _LENGTHS.output} <= names:
        return _lengths(name, lines, rng, options)
    if burstgpt.is_minutes(names):
        return _profiled(name, lines, rng, options)
    return _logged(name, lines, rng, options, detect(first))


def _logged(name: str, lines: Sequence[str], rng: np.random.Generator, options: Options, columns: str) -> Workload:
    if not columns:
        raise TraceError(_unknown(lines[0] if lines else ""))
    mapping = FORMATS.get(columns) or parse_columns(columns)
    requests = read(lines, mapping, rng, options.span_s)
    if mapping.spread:
        how = f"every session started at a random second of {options.span_s:g}, its turns as far apart as recorded"
        return Workload(name, requests, options.span_s, (how,))
    return as_workload(name, requests, "arrivals as recorded")


def _unknown(first: str) -> str:
    """What to do about a file whose first line says nothing to us."""
    names = sorted(field_names(first))
    if not names:
        return "there is nothing in the file"
    found = ", ".join(names[:12])[:200] + (" ..." if len(names) > 12 else "")
    how = "--columns says which column is which: arrival=...,input=...,output=..."
    return f"no known format; {how} (the first line names {found})"


def _servegen(
    name: str, lines: Sequence[str], rng: np.random.Generator, options: Options, second: Sequence[str]
) -> Workload:
    pool = servegen.read_pool(lines, second)
    start_s = servegen.peak(pool, options.span_s) if options.start_s is None else options.start_s
    return servegen.generate(pool, start_s, options.span_s, rng, name)


def _lengths(name: str, lines: Sequence[str], rng: np.random.Generator, options: Options) -> Workload:
    rows = read(lines, _LENGTHS, rng)
    times = following(STEADY, options.rate, options.cv, 0.0, options.span_s, rng).tolist()
    picks = rng.integers(len(rows), size=len(times)).tolist() if rows else []
    requests = [
        Request(time, (Segment(_KEYS + at, rows[pick].prompt_tokens),), rows[pick].output_tokens)
        for at, (time, pick) in enumerate(zip(times, picks, strict=False))
    ]
    how = f"lengths drawn from the file, arrivals from a Gamma process of {options.rate:g}/s, cv {options.cv:g}"
    return Workload(name, requests, options.span_s, (how,))


def _profiled(name: str, lines: Sequence[str], rng: np.random.Generator, options: Options) -> Workload:
    profile = burstgpt.busiest(burstgpt.read_minutes(lines), options.span_s)
    spec = ChatSpec(options.rate, options.span_s, cv=options.cv, profile=profile)
    how = f"generated chat whose sessions start as the file's busiest {options.span_s:g} s went, {options.rate:g}/s"
    return Workload(name, generate(spec, rng), options.span_s, (how,))
