"""Which column of a request log means what: known formats, and mappings from the command line. Only names live here.

Sources of the formats: docs/workloads.md.
"""

import csv
import math
from collections.abc import Mapping

import msgspec


class TraceError(ValueError):
    """A trace that cannot be read; the text names the line and the reason."""


class Columns(msgspec.Struct, frozen=True):
    """Which column means what. Empty: the trace has none.

    `arrival_unit_s` converts arrivals to seconds, 0 says they are wall-clock timestamps. `input_unit_tokens` and
    `output_unit_tokens` convert lengths to tokens (0.25 for characters). `block_tokens` is the span of one hash id.
    `spread` says that arrivals mean something within their session only (seconds since its start, or the clock of a
    benchmark that ran sessions as it pleased): every session then starts at a random second.
    """

    arrival: str
    input: str
    output: str
    session: str = ""
    hashes: str = ""
    tenant: str = ""
    arrival_unit_s: float = 1.0
    input_unit_tokens: float = 1.0
    output_unit_tokens: float = 1.0
    block_tokens: int = 0
    spread: bool = False


FORMATS: Mapping[str, Columns] = {
    "azure": Columns(arrival="TIMESTAMP", input="ContextTokens", output="GeneratedTokens", arrival_unit_s=0.0),
    "mooncake": Columns(
        arrival="timestamp",
        input="input_length",
        output="output_length",
        hashes="hash_ids",
        arrival_unit_s=1e-3,
        block_tokens=512,
    ),
    "sharegpt": Columns(
        arrival="arrival_time_ns",
        input="input_toks",
        output="output_toks",
        hashes="hash_ids",
        arrival_unit_s=1e-9,
        block_tokens=16,
    ),
    "claude_code": Columns(
        arrival="request_arrival_delta_s",
        input="input_tokens",
        output="output_tokens",
        session="session_id",
        spread=True,
    ),
    # Blocks of 256 characters, 4 characters to a token. Three benchmark suites, run on different days.
    "lmcache": Columns(
        arrival="timestamp",
        input="input_chars",
        output="output_chars",
        session="session_id",
        hashes="hash_ids",
        tenant="suite",
        arrival_unit_s=1e-6,
        input_unit_tokens=0.25,
        output_unit_tokens=0.25,
        block_tokens=64,
        spread=True,
    ),
}

_UNITS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9, "time": 0.0}
_MEANINGS = ("arrival", "input", "output", "session", "hashes", "tenant")
_PLAIN = ("arrival", "input", "output", "session", "tenant")
"""Meanings that need no unit: seconds, tokens, names. The first three are what a trace must have."""
_EXTRAS = {"input": "input_unit_tokens", "output": "output_unit_tokens"}


def parse_columns(text: str) -> Columns:
    """A mapping from the command line: `arrival=timestamp:ms,input=input_length,output=out,hashes=hash_ids:512`.

    Units of arrival: s, ms, us, ns, or `time` for timestamps. `input=prompt_chars:0.25` gives tokens per unit;
    `session=id:spread` starts every session at a random second. Raises TraceError.
    """
    fields: dict[str, str | float | int | bool] = {}
    for pair in text.split(","):
        name, _, value = pair.strip().partition("=")
        column, _, extra = value.partition(":")
        if name not in _MEANINGS or not column:
            known = f"or a format: {', '.join(FORMATS)}"
            raise TraceError(f"column mapping: cannot read {pair!r} (expected e.g. input=prompt_tokens, {known})")
        if name in fields:
            raise TraceError(f"column mapping: {name} is given twice")
        fields[name] = column
        if extra:
            fields |= _extra(name, extra)
    missing = {"arrival", "input", "output"} - fields.keys()
    if missing:
        raise TraceError(f"column mapping: {', '.join(sorted(missing))} missing")
    if "hashes" in fields and "block_tokens" not in fields:
        raise TraceError("column mapping: hashes needs the tokens of one block, e.g. hashes=hash_ids:512")
    return msgspec.convert(fields, Columns)


def detect(first_line: str) -> str:
    """The known format whose columns the first line (a CSV header or a JSON object) names, or the mapping of columns
    that are called what they mean; empty if neither."""
    names = field_names(first_line)
    for name, columns in FORMATS.items():
        if {columns.arrival, columns.input, columns.output} <= names:
            return name
    return ",".join(f"{name}={name}" for name in _PLAIN if name in names) if names.issuperset(_PLAIN[:3]) else ""


def field_names(first_line: str) -> set[str]:
    """The columns that a CSV header or a JSON object names."""
    text = first_line.strip().lstrip("\ufeff")
    if not text.startswith("{"):
        return {name.strip() for name in next(csv.reader([text]), [])}
    try:
        return set(msgspec.json.decode(text, type=dict[str, msgspec.Raw]))
    except (msgspec.DecodeError, RecursionError) as error:
        raise TraceError(f"line 1: {error}") from None


def _extra(name: str, text: str) -> dict[str, float | int | bool]:
    try:
        if name == "arrival":
            return {"arrival_unit_s": _UNITS[text]}
        if name == "hashes":
            return {"block_tokens": int(_positive(int(text)))}
        return {"spread": {"spread": True}[text]} if name == "session" else {_EXTRAS[name]: _positive(float(text))}
    except (KeyError, ValueError):
        raise TraceError(f"column mapping: cannot read {name}=...:{text}") from None


def _positive(number: float) -> float:
    if not 0 < number < math.inf:
        raise ValueError(number)
    return number
