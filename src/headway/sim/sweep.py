"""Many runs: policies x loads x seeds in parallel processes, every policy under the same arrivals, truth and noise."""

import concurrent.futures
import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence

import msgspec
import numpy as np

from headway.sim.capacity import fleet_rps
from headway.sim.prompt import Prompt, prompts
from headway.sim.run import BrainMaker, simulate
from headway.sim.scenario import Scenario
from headway.workload.request import Workload
from headway.workload.results import Run
from headway.workload.scaling import draw

MOST_REQUESTS = 2_000_000
"""Of one run. They and what becomes of them are kept in memory: two or three gigabytes."""

MOST_COPIES = 100_000
"""Of a workload, to make it denser."""


class NothingToSimulate(ValueError):
    """A run would have no request that counts, or more than can be simulated; the text says what to change."""


class Contender(msgspec.Struct, frozen=True):
    """A policy by the name it is reported under, a maker of its brains, whether it may see the future, and whether
    it moves running requests."""

    name: str
    make_brain: BrainMaker
    clairvoyant: bool = False
    moves: bool = False


class Sweep(msgspec.Struct, frozen=True):
    """`loads` are multiples of the fleet's backlog throughput; `duration_s` of 0 means the whole trace.

    `capacity_rps` of 0 is measured by `prepared`.
    """

    scenario: Scenario
    workload: Workload
    contenders: tuple[Contender, ...]
    loads: tuple[float, ...] = (0.9,)
    seeds: int = 3
    duration_s: float = 0.0
    detail: bool = False
    capacity_rps: float = 0.0

    @property
    def runs(self) -> int:
        """How many runs there will be."""
        return len(self.contenders) * len(self.loads) * self.seeds


class Cell(msgspec.Struct, frozen=True):
    """One run of a sweep: indices of its contender and load, and its seed."""

    contender: int
    load: int
    seed: int


def prepared(sweep: Sweep) -> Sweep:
    """The sweep with its capacity measured (about a second)."""
    if sweep.capacity_rps:
        return sweep
    return msgspec.structs.replace(sweep, capacity_rps=fleet_rps(sweep.scenario, sweep.workload.requests))


def arrivals(sweep: Sweep, load: int, seed: int) -> Workload:
    """What arrives in all runs of one load and seed. Raises NothingToSimulate."""
    rate = sweep.loads[load] * sweep.capacity_rps
    length_s = sweep.duration_s or sweep.workload.span_s
    bounded(rate, length_s)
    factor = rate / sweep.workload.rate_rps
    if factor > MOST_COPIES:
        raise NothingToSimulate(
            f"{rate:.3g}/s would be {factor:,.3g} copies of this workload, which has {len(sweep.workload.requests):,} "
            f"requests in {sweep.workload.span_s:.3g} s, laid over each other; {MOST_COPIES:,} is the most. Are these "
            "the arrivals (column and unit)?"
        )
    drawn = draw(sweep.workload, factor, sweep.duration_s, np.random.default_rng([seed, 20_260]))
    warmup_s = sweep.scenario.warmup_s
    if not drawn.requests or drawn.requests[-1].arrival_s < warmup_s:
        after = f" after a warm-up of {warmup_s:g} s" if warmup_s else ""
        raise NothingToSimulate(
            f"no request arrives within {length_s:g} s{after}: seed {seed}, {rate:.3g}/s asked for (load "
            f"{sweep.loads[load]:g}). Make the duration longer, the load or rate higher, or requests shorter "
            "(length_factor) where they are what makes the rate so low"
        )
    return drawn


def bounded(rate: float, length_s: float) -> None:
    """Refuse so many requests that no run of them would end. Raises NothingToSimulate."""
    if rate * length_s > MOST_REQUESTS:
        raise NothingToSimulate(
            f"{rate:,.3g} requests/s for {length_s:g} s are {rate * length_s:,.3g} requests; a run has "
            f"{MOST_REQUESTS:,} at most. Make the load (or rate) lower or the duration shorter"
        )


def run(sweep: Sweep, jobs: int = 0, progress: Callable[[Cell, Run], None] | None = None) -> list[Run]:
    """All runs, in order of load, contender, seed. `jobs` processes (0: one per CPU; 1: in this one)."""
    sweep = prepared(sweep)
    cells = list(_cells(sweep))
    found: dict[Cell, Run] = {}
    for cell, result in _results(sweep, cells, jobs or os.cpu_count() or 1):
        found[cell] = result
        if progress is not None:
            progress(cell, result)
    return [found[cell] for cell in sorted(cells, key=lambda c: (c.load, c.contender, c.seed))]


def _cells(sweep: Sweep) -> Iterator[Cell]:
    """By load and seed first, so that arrivals are drawn once for all contenders."""
    for load in range(len(sweep.loads)):
        for seed in range(sweep.seeds):
            for contender in range(len(sweep.contenders)):
                yield Cell(contender, load, seed)


def _results(sweep: Sweep, cells: Sequence[Cell], jobs: int) -> Iterator[tuple[Cell, Run]]:
    if jobs == 1 or len(cells) == 1:
        worker = _Worker(sweep)
        for cell in cells:
            yield cell, worker(cell)
        return
    context = multiprocessing.get_context("forkserver")
    with concurrent.futures.ProcessPoolExecutor(jobs, context, _Worker.install, (sweep,)) as pool:
        waiting = {pool.submit(_Worker.call, cell): cell for cell in cells}
        try:
            for future in concurrent.futures.as_completed(waiting):
                yield waiting[future], future.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


class _Worker:
    """Runs cells; remembers the arrivals of the last load and seed."""

    installed: "_Worker"

    def __init__(self, sweep: Sweep) -> None:
        self._sweep = sweep
        self._last: tuple[tuple[int, int], Workload, list[Prompt]] | None = None

    def __call__(self, cell: Cell) -> Run:
        sweep = self._sweep
        load, known = self._arrivals(cell.load, cell.seed)
        contender = sweep.contenders[cell.contender]
        scenario = sweep.scenario
        if contender.clairvoyant or contender.moves:
            scenario = msgspec.structs.replace(scenario, clairvoyant=contender.clairvoyant, moves=contender.moves)
        return simulate(
            scenario,
            load,
            contender.make_brain,
            contender.name,
            sweep.loads[cell.load],
            cell.seed,
            known,
            sweep.detail and cell.seed == 0,
        )

    def _arrivals(self, load: int, seed: int) -> tuple[Workload, list[Prompt]]:
        if self._last is None or self._last[0] != (load, seed):
            drawn = arrivals(self._sweep, load, seed)
            truth = self._sweep.scenario.truth
            self._last = ((load, seed), drawn, prompts(drawn.requests, 16, truth.bytes_per_token, truth.byte_noise))
        return self._last[1], self._last[2]

    @classmethod
    def install(cls, sweep: Sweep) -> None:
        """Make the worker of this process."""
        cls.installed = cls(sweep)

    @classmethod
    def call(cls, cell: Cell) -> Run:
        """Let it run a cell."""
        return cls.installed(cell)
