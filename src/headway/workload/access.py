"""Headway's own request log as a workload: what a fleet was asked yesterday, to be asked again.

A line tells when a request ended, how long it took, its lengths and its tenant. It tells nothing of prefixes or
sessions, so no prompt shares anything: a simulation of this workload has no prefix hits.

Prompt tokens are logged where an engine said them: not of requests that never reached one, nor of most streams. Those
are told from the bytes of their bodies.
"""

from collections.abc import Iterable, Iterator, Sequence

import msgspec
import numpy as np

from headway.wire.fields import PATHS
from headway.workload.columns import TraceError
from headway.workload.request import Request, Segment

_KEYS = 1 << 40
_GENERATING = frozenset(path for path, fields in PATHS.items() if fields.generates)


class _Line(msgspec.Struct, frozen=True):
    """The fields of an access line that say what was asked; `at` is when it ended (Unix seconds)."""

    event: str = ""
    at: float = 0.0
    duration_s: float = 0.0
    path: str = ""
    bytes_in: int = 0
    prompt_tokens: int = 0
    output_tokens: int = 0
    account: str = ""
    tenant: str = ""


def is_access_log(line: str) -> bool:
    """Whether this line of JSON is one that Headway logs."""
    return '"event":"access"' in line or ('"timestamp"' in line and '"level"' in line and '"event"' in line)


def read_access(lines: Iterable[str], rng: np.random.Generator) -> list[Request]:
    """Requests for generated text, by arrival (end minus duration), the first at 0. Other log lines are skipped.

    Requests that were shed or failed count as well, because they were asked; the length of the answer they did not get
    is drawn from those of requests that ended ok. An answer that a client cut short is taken to be that short. Of
    client errors, those count that reached an engine. A prompt whose tokens nobody counted has as many per byte as the
    median of the others.
    """
    asked = sorted(_asked(lines), key=lambda line: line.at - line.duration_s)
    per_byte = _tokens_per_byte(asked)
    answers = [line.output_tokens for line in asked if line.account == "ok" and line.output_tokens]
    if asked and not answers:
        raise TraceError("access log: no request ended ok with output tokens")
    start_s = asked[0].at - asked[0].duration_s if asked else 0.0
    return [
        Request(
            line.at - line.duration_s - start_s,
            (Segment(_KEYS + number, line.prompt_tokens or max(1, round(line.bytes_in * per_byte))),),
            line.output_tokens if _answered(line) else answers[int(rng.integers(len(answers)))],
            tenant=line.tenant,
        )
        for number, line in enumerate(asked)
    ]


def _tokens_per_byte(asked: Sequence[_Line]) -> float:
    """Of a body: the median, because one image has as many bytes as a thousand texts."""
    counted = [line.prompt_tokens / line.bytes_in for line in asked if line.prompt_tokens and line.bytes_in]
    if counted or all(line.prompt_tokens for line in asked):
        return float(np.median(counted or [0.0]))
    raise TraceError("access log: no request has prompt tokens (requests: {inject_usage: always} asks for them)")


def _answered(line: _Line) -> bool:
    return line.account in ("ok", "client_closed") and line.output_tokens > 0


def _asked(lines: Iterable[str]) -> Iterator[_Line]:
    decode = msgspec.json.Decoder(_Line).decode
    for number, text in enumerate(lines, 1):
        if not text.startswith("{"):
            continue
        try:
            line = decode(text)
        except (msgspec.DecodeError, RecursionError) as error:
            raise TraceError(f"line {number}: {error}") from None
        known = line.prompt_tokens > 0 or (line.bytes_in > 0 and line.account != "client_error")
        if line.event == "access" and line.path in _GENERATING and known:
            yield line
