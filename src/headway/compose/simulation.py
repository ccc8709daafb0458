"""A simulation as people write it down, in YAML or by flags, and the sweep it becomes.

A file and flags meet as plain data (`overlaid`), so that every flag can also stand in a file and wins over it there.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path as FilePath
from typing import Any

import msgspec
import numpy as np

from headway.compose import ranges
from headway.compose.load import convert, near, read
from headway.compose.simulate import contenders
from headway.compose.source import Document, Path, Problem, SettingsError
from headway.compose.traces import open_workload
from headway.core.constants import BrainConfig, SloConfig
from headway.core.precision import floor, rank
from headway.sim.scenario import Fault, PoolSpec, Scenario, Truth
from headway.sim.sweep import Sweep, bounded, prepared
from headway.sim.truth import engine_config, precision
from headway.workload.arrivals import STEADY
from headway.workload.mixes import MIXES
from headway.workload.request import Workload
from headway.workload.sources import Options
from headway.workload.stats import Slo

BASE_RATE = 8.0
"""Requests/s of a generated ring of an hour: with 29,000 requests, copies laid over each other repeat little."""

PROFILED_S = 900.0
"""Seconds of a workload with a profile of its own that its fleet's throughput is measured with, before it is made."""

SPARE = 1.15
"""Workloads with a profile of their own are generated this much denser than the highest load and thinned, because
copies rotated in time would smooth their peaks away."""


class Simulation(msgspec.Struct, frozen=True):
    """Everything a simulation is asked for. Seconds; `loads` are multiples of what the fleet can work off.

    One of `trace` (a file) and `generate` (the name of a mix) is given. `duration_s` of 0 is the whole trace.
    """

    trace: str = ""
    generate: str = ""
    columns: str = ""
    tenant: str = ""
    length_factor: float = 1.0
    longest: int = 0
    duration_s: float = 600.0
    warmup_s: float = 0.0
    pools: tuple[PoolSpec, ...] = (PoolSpec(),)
    truth: Truth = Truth()
    slo: Slo = Slo()
    faults: tuple[Fault, ...] = ()
    precision_floor: str = ""
    loads: tuple[float, ...] = (0.9,)
    seeds: int = 3
    policies: tuple[str, ...] = ("headroom", "least_connections", "round_robin")
    reference: str = ""


_LISTS: Mapping[str, type[msgspec.Struct]] = {"pools": PoolSpec, "faults": Fault}


def read_simulation(path: FilePath) -> Document:
    """A scenario file; its trace is looked for beside it. Raises SettingsError."""
    document = read(path)
    if not isinstance(document.data, dict):
        raise SettingsError(document.source, [Problem((), "must be a map (`trace:`, `pools:` ...)", 1)])
    trace = document.data.get("trace")
    if isinstance(trace, str) and trace:
        document.data["trace"] = str(path.parent / trace)
    return document


def overlaid(document: Document | None, changes: Mapping[str, Any], pool: Mapping[str, Any]) -> Simulation:
    """The file (if any) with flags over it; None changes nothing. `pool` changes every pool, its count the only one.

    Raises SettingsError, with lines of the file where something there is wrong.
    """
    data = dict(document.data) if document is not None else {}
    if changes.get("trace") or changes.get("generate"):
        data = {name: value for name, value in data.items() if name not in ("trace", "generate")}
    for name, value in changes.items():
        if isinstance(value, Mapping):
            data[name] = _merged(data.get(name), value)
        elif value is not None:
            data[name] = value
    try:
        return checked(_with_pool(data, _given(pool)))
    except SettingsError as error:
        raise (error.located(document) if document is not None else error) from None


def _merged(section: Any, flags: Mapping[str, Any]) -> Any:
    """A section of the file with flags over it. What is no map stays what it is, and is refused with its line."""
    if section is not None and not isinstance(section, Mapping):
        return section
    return {**(section or {}), **_given(flags)}


def _given(flags: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in flags.items() if value is not None}


def _with_pool(data: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    pools = data.get("pools") or [{}]
    if not given or not isinstance(pools, list):
        return data
    if "count" in given and len(pools) > 1:
        raise SettingsError("settings", [Problem(("pools",), "there are several: say how many replicas in the file")])
    return {**data, "pools": [{**each, **given} for each in pools]}


def checked(data: Mapping[str, Any]) -> Simulation:
    """A simulation from plain data. Raises SettingsError that names the field."""
    for name, kind in _LISTS.items():
        found = data.get(name) or []
        for index, item in enumerate(found if isinstance(found, list) else []):
            if not isinstance(item, dict):
                raise SettingsError("settings", [Problem((name, index), "must be a map")])
            convert(item, kind, (name, index))
    simulation: Simulation = convert(dict(data), Simulation, ())
    problems = [Problem(path, message) for path, message in _wrong(simulation)]
    if problems:
        raise SettingsError("settings", problems)
    return simulation


def _wrong(simulation: Simulation) -> Sequence[tuple[Path, str]]:
    """What fits together nowhere, as (field, reason)."""
    found: list[tuple[Path, str]] = []
    if bool(simulation.trace) == bool(simulation.generate):
        found.append(
            (("trace",), "give a trace (--trace FILE) or a workload to generate (--generate chat), one of them")
        )
    if simulation.generate and simulation.generate not in MIXES:
        hint = near(simulation.generate, MIXES) or f"; there are {', '.join(MIXES)}"
        found.append((("generate",), f"no workload is named {simulation.generate!r}{hint}"))
    if simulation.generate and not simulation.duration_s:
        found.append((("duration_s",), "must be positive for a generated workload"))
    if simulation.generate and simulation.columns:
        found.append((("columns",), "belong to a trace; a generated workload has none"))
    if not simulation.pools:
        found.append((("pools",), "needs one pool at least"))
    if 0 < simulation.duration_s <= simulation.warmup_s:
        found.append((("warmup_s",), f"leaves nothing of the {simulation.duration_s:g} s that are simulated"))
    if not simulation.policies or len(set(simulation.policies)) < len(simulation.policies):
        found.append((("policies",), "needs one name at least, and none twice"))
    if len(set(simulation.loads)) < len(simulation.loads):
        found.append((("loads",), "names one twice"))
    if not simulation.loads or not all(0 < load < math.inf for load in simulation.loads):
        found.append((("loads",), "must be positive multiples of the fleet's capacity, such as 0.9"))
    if simulation.precision_floor and not floor(simulation.precision_floor):
        found.append((("precision_floor",), "is no precision, such as bf16, fp8, int4 or any"))
    if simulation.reference and simulation.reference not in simulation.policies:
        found.append((("reference",), f"{simulation.reference} is not among the policies"))
    fleet = sum(pool.count for pool in simulation.pools)
    for index, fault in enumerate(simulation.faults):
        if not 0 <= fault.replica < fleet:
            found.append((("faults", index, "replica"), f"there are replicas 0 to {fleet - 1}"))
    return found + list(_outside(simulation))


def _outside(simulation: Simulation) -> Iterator[tuple[Path, str]]:
    """Numbers that make no sense wherever they stand."""
    yield from ranges.outside(simulation, ranges.WORKLOAD, ())
    yield from ranges.outside(simulation.truth, ranges.TRUTH, ("truth",))
    yield from ranges.outside(simulation.slo, ranges.SLO, ("slo",))
    for index, pool in enumerate(simulation.pools):
        yield from ranges.outside(pool, ranges.POOL, ("pools", index))
        yield from ranges.outside(pool.api, ranges.API, ("pools", index, "api"))
    for index, fault in enumerate(simulation.faults):
        yield from ranges.outside(fault, ranges.FAULT, ("faults", index))


def scenario(simulation: Simulation) -> Scenario:
    """The fleet and what is true of it. Raises ValueError for names and sizes that cannot be (the text says which)."""
    for pool in simulation.pools:
        engine_config(pool)
    least = simulation.precision_floor
    if least and all(rank(each) < rank(floor(least)) for each in map(precision, simulation.pools)):
        raise ValueError(f"precision_floor: no pool is as precise as {least}: every request would be refused")
    made = Scenario(simulation.pools, simulation.truth, simulation.slo, simulation.faults, simulation.warmup_s)
    return msgspec.structs.replace(made, precision_floor=simulation.precision_floor)


def workload(simulation: Simulation, rate: float = BASE_RATE, span_s: float = 0.0) -> Workload:
    """The trace, or the generated mix at `rate` requests/s over `span_s` (0: an hour, as sources.Options has it).

    Raises TraceError.
    """
    options = Options(
        columns=simulation.columns,
        rate=rate,
        tenant=simulation.tenant,
        length_factor=simulation.length_factor,
        longest=simulation.longest,
    )
    if span_s:
        options = msgspec.structs.replace(options, span_s=span_s)
    return open_workload(simulation.trace or simulation.generate, np.random.default_rng(0), options)


def sweep(simulation: Simulation, detail: bool = False) -> Sweep:
    """All runs to be made, its capacity measured. Raises ValueError for what cannot be simulated."""
    made = msgspec.structs.replace(_measured(simulation), detail=detail)
    bounded(made.capacity_rps * max(made.loads), made.duration_s or made.workload.span_s)
    return _dense_enough(simulation, made, made.capacity_rps * max(made.loads))


def sized(simulation: Simulation, rate: float) -> tuple[Sweep, float]:
    """Runs at `rate` requests/s (0: the workload's own), and the requests/s that one replica works off.

    For `at_size`: load 1.0 is the rate, whatever the fleet. Raises ValueError for what cannot be simulated.
    """
    if len(simulation.pools) > 1:
        raise ValueError("a fleet of several pools has no one size: plan for one pool at a time")
    if any(fault.replica for fault in simulation.faults):
        raise ValueError(
            "fleets of one replica are tried, too: where a size is asked for, faults befall replica 0 only"
        )
    pool = msgspec.structs.replace(simulation.pools[0], count=1)
    made = _measured(msgspec.structs.replace(simulation, pools=(pool,), loads=(1.0,)))
    wanted = rate or made.workload.rate_rps
    bounded(wanted, made.duration_s or made.workload.span_s)
    asked = msgspec.structs.replace(made, capacity_rps=wanted)
    return _dense_enough(simulation, asked, wanted), made.capacity_rps


def at_size(made: Sweep, replicas: int, policies: Sequence[str]) -> Sweep:
    """The same for a fleet of that many replicas and some of the policies."""
    pools = (msgspec.structs.replace(made.scenario.pools[0], count=replicas),)
    return msgspec.structs.replace(
        made,
        scenario=msgspec.structs.replace(made.scenario, pools=pools),
        contenders=tuple(each for each in made.contenders if each.name in policies),
    )


def _measured(simulation: Simulation) -> Sweep:
    return prepared(
        Sweep(
            scenario=scenario(simulation),
            workload=workload(simulation, span_s=PROFILED_S if _has_profile(simulation) else 0.0),
            contenders=contenders(simulation.policies, BrainConfig(slo=_objectives(simulation.slo))),
            loads=simulation.loads,
            seeds=simulation.seeds,
            duration_s=simulation.duration_s,
        )
    )


def _objectives(slo: Slo) -> SloConfig:
    """What is wanted, as a gateway would be told."""
    return SloConfig(slo.ttft_s, slo.ttft_per_prompt_token_s, slo.tpot_s)


def misfits(made: Sweep) -> float:
    """The share of the workload's requests whose prompt is too long for every replica."""
    sizes = [engine_config(pool) for pool in made.scenario.pools]
    longest = max(min(size.kv_blocks * size.block_size, size.max_model_len) for size in sizes)
    requests = made.workload.requests
    return sum(request.prompt_tokens >= longest for request in requests) / len(requests)


def _dense_enough(simulation: Simulation, made: Sweep, rate: float) -> Sweep:
    """With a workload that need not be superposed to reach `rate`, where superposing would change it (`SPARE`)."""
    if not _has_profile(simulation):
        return made
    return msgspec.structs.replace(made, workload=workload(simulation, rate * SPARE, simulation.duration_s))


def _has_profile(simulation: Simulation) -> bool:
    return bool(simulation.generate) and MIXES[simulation.generate].profile is not STEADY
