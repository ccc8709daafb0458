"""Replays on the engine model, shared by the perfmodel benchmarks: a closed loop, and requests with given times."""

import heapq
import math
from collections.abc import Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from headway.perfmodel.decoding import Job
from headway.perfmodel.engine import EngineConfig
from headway.perfmodel.jump import JumpEngine
from headway.perfmodel.service import ApiCost
from headway.perfmodel.steptime import StepModel

Floats = npt.NDArray[np.float64]


class Seen(msgspec.Struct, frozen=True):
    """What clients saw: seconds, in the order in which requests ended; `order`: when each was issued."""

    order: Floats
    ttft: Floats
    tpot: Floats


def closed_loop(
    model: StepModel, config: EngineConfig, sizes: Sequence[tuple[int, int]], concurrency: int, api: ApiCost
) -> Seen:
    """`concurrency` clients work through `sizes` (prompt and output tokens), all starting at once."""
    engine = JumpEngine(config, model)
    arrivals: list[tuple[float, int]] = []
    sent: dict[int, float] = {}
    rows: list[tuple[int, float, float]] = []
    free = 0.0  # when the server's process has done with those before

    def issue(number: int, now: float) -> None:
        nonlocal free
        sent[number] = now
        free = max(free, now) + api.busy_s(sizes[number][0])
        heapq.heappush(arrivals, (free + api.base_s, number))

    for number in range(min(concurrency, len(sizes))):
        issue(number, 0.0)
    while arrivals or engine.ends < math.inf:
        if arrivals and arrivals[0][0] <= engine.ends:
            at, number = heapq.heappop(arrivals)
            engine.add(Job(str(number), *sizes[number], (), at), at)
            continue
        for job in engine.complete().finished:
            number = int(job.id)
            span = (job.last_token - job.first_token) / max(1, sizes[number][1] - 1)
            rows.append((number, job.first_token - sent[number], span))
            if len(sent) < len(sizes):
                issue(len(sent), job.last_token)
    columns = np.asarray(rows, dtype=np.float64).T
    return Seen(columns[0], columns[1], columns[2])


def open_loop(
    model: StepModel, config: EngineConfig, requests: Sequence[tuple[float, int, int]], ticks: Sequence[float] = ()
) -> tuple[list[Job], list[tuple[int, int, float]]]:
    """Requests (arrival, prompt, output) in time order; at every tick running, waiting and the used share of KV."""
    engine = JumpEngine(config, model)
    jobs = [Job(str(number), prompt, output, (), at) for number, (at, prompt, output) in enumerate(requests)]
    events = sorted([(job.arrived, 0, job) for job in jobs] + [(at, 1, None) for at in ticks], key=lambda e: e[:2])
    gauges: list[tuple[int, int, float]] = []
    for at, _kind, job in events:
        while engine.ends <= at:
            engine.complete()
        if job is not None:
            engine.add(job, at)
        else:
            gauges.append((len(engine.running), len(engine.waiting), engine.used_blocks(at) / config.kv_blocks))
    while engine.ends < math.inf:
        engine.complete()
    return jobs, gauges
