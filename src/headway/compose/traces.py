"""Opens workloads: files of traces, plain or gzip, and generated ones by name. How a file is read is `workload`'s."""

import gzip
import zlib
from pathlib import Path

import numpy as np

from headway.workload.columns import TraceError
from headway.workload.mixes import MIXES, generated
from headway.workload.request import Workload
from headway.workload.sources import Options, fitted, read_trace

RATES, HISTOGRAMS = ("servegen_rates", ".csv"), ("servegen_tokens", ".jsonl")
"""How the two files of a ServeGen pool are named; the second is looked for beside the first."""

GENERATED = 32_768
"""Tokens, prompt and output, that a generated request has at most."""


def open_workload(what: str, rng: np.random.Generator, options: Options | None = None) -> Workload:
    """The workload of this name (`chat`, `code`, ...: `options.rate` requests/s for `options.span_s`) or in this file.

    Raises TraceError, with the file's name in it, where that is not possible.
    """
    options = options or Options()
    if what in MIXES:
        longest = round((options.longest or GENERATED) / options.length_factor)
        made = generated(what, options.rate, options.span_s, rng, options.cv, longest)
        return fitted(made, options)
    path = Path(what)
    try:
        return read_trace(what_of(path), read_lines(path), rng, options, _second(path))
    except TraceError as error:
        raise TraceError(f"{path.name}: {error}") from None


def read_lines(path: Path) -> list[str]:
    """All lines of a text file, unpacked where its name ends in .gz. Raises TraceError."""
    try:
        with gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8") as opened:
            return list(opened)
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise TraceError(f"cannot be read: {error}") from None


def what_of(path: Path) -> str:
    """A file's name without its endings, to call a workload by."""
    return path.name.removesuffix(".gz").rsplit(".", 1)[0]


def _second(path: Path) -> list[str]:
    """The lines of the histograms that belong to a file of rates; none for any other file."""
    if not path.name.startswith(RATES[0]):
        return []
    beside = path.with_name(path.name.replace(RATES[0], HISTOGRAMS[0]).replace(RATES[1], HISTOGRAMS[1]))
    if not beside.exists():
        raise TraceError(f"its histograms are expected beside it, as {beside.name}")
    return read_lines(beside)
