"""`headway study fragmentation`: what allocators lose on a length distribution, and what that costs."""

import enum
import json
from pathlib import Path
from typing import Annotated

import msgspec
import numpy as np
import typer

from headway.cli.console import fail, out
from headway.compose.traces import open_workload
from headway.perfmodel.fragmentation import GRANULARITIES, lossless, study
from headway.report.fragmentation import NoMatplotlib, fragmentation_plot, fragmentation_view
from headway.workload.columns import TraceError
from headway.workload.sources import Options

GENERATED = 4000
"""Requests of the built-in chat workload."""

_USUAL = ",".join(map(str, GRANULARITIES))


class Study(enum.StrEnum):
    """What can be studied."""

    fragmentation = "fragmentation"


def command(
    what: Annotated[Study, typer.Argument(help="What to study.")],
    data: Annotated[
        str, typer.Option(help="Trace or list of lengths (.gz too), or chat, code ...: generated.")
    ] = "chat",
    kv_tokens: Annotated[int, typer.Option(help="Size of the pool.", min=1024)] = 120_000,
    steps: Annotated[int, typer.Option(help="Steps; a running sequence gains a token in each.", min=1)] = 20_000,
    granularity: Annotated[
        str,
        typer.Option(help="Tokens per request to the allocator, by comma.", show_default=f"{_USUAL}, if they fit"),
    ] = "",
    plot: Annotated[Path | None, typer.Option(help="Draw it into this file (.svg, .png, .pdf).")] = None,
    seed: Annotated[int, typer.Option(help="Seed of generated lengths.", min=0)] = 0,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print a JSON list, one object per line of the table.")
    ] = False,
) -> None:
    """Contiguous best-fit, buddy and paged allocators on one list of requests: fragmentation, and requests it costs."""
    units = _units(granularity, kv_tokens)
    try:
        requests = open_workload(data, np.random.default_rng(seed), Options(span_s=GENERATED)).requests
        lengths = [(request.prompt_tokens, request.output_tokens) for request in requests]
        outcomes, bound = study(lengths, kv_tokens, steps, units), lossless(lengths, kv_tokens, steps)
    except TraceError as error:
        fail(f"--data: {error}", "any trace that `headway simulate --trace` reads will do", code=2)
    except ValueError as error:
        fail(f"--kv-tokens: {error}", code=2)
    if as_json:
        typer.echo(json.dumps([msgspec.to_builtins(one) | {"lossless": bound} for one in outcomes]))
    else:
        out.print(fragmentation_view(outcomes, bound))
    if plot is not None:
        try:
            fragmentation_plot(outcomes, bound, plot)
        except NoMatplotlib as error:
            fail(f"--plot: {error}", "pip install 'headway[sim]'")
        except (OSError, ValueError) as error:
            fail(f"--plot {plot}: {error}", code=2)


def _units(text: str, most: int) -> list[int]:
    if not text:
        return [unit for unit in GRANULARITIES if unit <= most]
    try:
        units = [int(part) for part in text.split(",")]
    except ValueError:
        units = []
    if not units or min(units) < 1:
        fail(f"--granularity {text!r} is no list of positive numbers", "write it like 32,512,2048", code=2)
    if max(units) > most:
        fail(
            f"--granularity: {max(units):,} tokens per request are more than the pool's {most:,} (--kv-tokens)", code=2
        )
    return units
