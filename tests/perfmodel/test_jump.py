"""The jumping engine against the stepping one: the same requests, the same times, the same preemptions."""

import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.perfmodel import catalogue
from headway.perfmodel.decoding import Job
from headway.perfmodel.engine import Engine, EngineConfig
from headway.perfmodel.jump import JumpEngine
from headway.perfmodel.sequence import Request
from headway.perfmodel.steptime import Batch, StepModel

MODEL = StepModel(catalogue.model("llama-3.1-8b"), catalogue.gpu("a100-80gb"))

Load = list[tuple[float, int, int]]
"""Arrival, prompt, output."""


def by_steps(config: EngineConfig, load: Load) -> tuple[dict[str, tuple[float, float, int]], int]:
    """First token, last token and preemptions of each request, by the engine that goes step by step."""
    engine, now, todo, seen = Engine(config, MODEL), 0.0, list(enumerate(load)), {}
    while todo or engine.busy:
        if not engine.busy:
            now = max(now, todo[0][1][0])
        while todo and todo[0][1][0] <= now:
            number, (_, prompt, output) = todo.pop(0)
            tokens = range(number * 1_000_000, number * 1_000_000 + prompt)
            engine.add(Request(f"{number}", tokens, output, ignore_eos=True, output_tokens=output), now)
        result = engine.step(now)
        now += result.duration_s
        for sequence in result.finished:
            seen[sequence.id] = (sequence.first_token, sequence.last_token, sequence.preemptions)
    return seen, engine.stats().preemptions_total


def by_jumps(config: EngineConfig, load: Load) -> tuple[dict[str, tuple[float, float, int]], int, JumpEngine]:
    engine, todo, seen = JumpEngine(config, MODEL), list(enumerate(load)), {}
    while todo or engine.ends < math.inf:
        if todo and todo[0][1][0] <= engine.ends:
            number, (at, prompt, output) = todo.pop(0)
            engine.add(Job(f"{number}", prompt, output, [(number, prompt // 16)], at), at)
            continue
        for job in engine.complete().finished:
            seen[job.id] = (job.first_token, job.last_token, job.preemptions)
    return seen, engine.preemptions, engine


def loads(seed: int, count: int, gap: float, longest: int) -> Load:
    rng = random.Random(seed)
    at, load = 0.0, []
    for _ in range(count):
        at += rng.expovariate(1 / gap)
        load.append((at, rng.randint(1, longest), rng.randint(1, 300)))
    return load


@pytest.mark.slow
@given(seed=st.integers(0, 10_000), blocks=st.sampled_from([140, 300, 2000]), seqs=st.sampled_from([4, 64]))
@settings(max_examples=25, deadline=None)
def test_same_times_and_preemptions_as_the_stepping_engine(seed: int, blocks: int, seqs: int) -> None:
    config = EngineConfig(blocks, 16, seqs, 512, 2048, enable_prefix_caching=False)
    load = loads(seed, 40, 0.1, 1500)
    expected, preemptions = by_steps(config, load)
    found, jumped, engine = by_jumps(config, load)
    assert jumped == preemptions
    assert found.keys() == expected.keys()
    for name, (first, last, times) in expected.items():
        assert found[name] == (pytest.approx(first, abs=1e-6), pytest.approx(last, abs=1e-6), times), name
    assert engine.pool.free == blocks
    assert not engine.running


def test_prefixes_are_found_and_everything_comes_back() -> None:
    config = EngineConfig(200, 16, 64, 512, 2048)
    engine = JumpEngine(config, MODEL)
    shared = [(7, 20), (8, 10)]
    first = Job("a", 500, 10, shared, 0.0)
    engine.add(first, 0.0)
    while engine.ends < math.inf:
        engine.complete()
    second = Job("b", 500, 10, shared, 10.0)
    engine.add(second, 10.0)
    engine.complete()
    assert (first.cached, second.cached) == (0, 480)
    third = Job("c", 481, 10, [(7, 20), (9, 10)], 10.0)
    engine.add(third, engine.ends)
    while engine.ends < math.inf:
        engine.complete()
    assert third.cached == 320
    assert engine.pool.free == 200
    assert engine.hits == 800


def test_the_least_recently_released_prefix_goes_first() -> None:
    engine = JumpEngine(EngineConfig(100, 16, 64, 2048, 1600), MODEL)
    at = 0.0
    for name, key in (("a", 1), ("b", 2), ("a2", 1), ("c", 3), ("a3", 1), ("b2", 2)):
        job = Job(name, 641, 2, [(key, 40)], at)
        engine.add(job, at)
        while engine.ends < math.inf:
            at = engine.ends
            engine.complete()
        assert job.cached == (640 if name in ("a2", "a3") else 0), name


def test_abort_is_done_at_the_end_of_the_step_and_frees_everything() -> None:
    engine = JumpEngine(EngineConfig(100, 16, 1, 2048, 1600), MODEL)
    running, waiting = Job("a", 100, 500, [], 0.0), Job("b", 100, 500, [], 0.0)
    engine.add(running, 0.0)
    engine.complete()
    engine.add(waiting, engine.ends / 2)
    assert engine.abort(waiting, engine.ends / 2)
    far = engine.ends
    assert not engine.abort(running, far / 3)
    assert far / 3 <= engine.ends < far / 2
    assert engine.complete().aborted == [running]
    assert (engine.pool.free, engine.ends) == (100, math.inf)


def test_what_can_never_fit_is_refused() -> None:
    engine = JumpEngine(EngineConfig(10, 16, 4, 512, 2048), MODEL)
    with pytest.raises(ValueError, match="160"):
        engine.add(Job("a", 160, 5, [], 0.0), 0.0)


def test_progress_and_gauges_between_events() -> None:
    engine = JumpEngine(EngineConfig(1000, 16, 64, 2048, 8192), MODEL)
    job = Job("a", 160, 1000, [], 0.0)
    engine.add(job, 0.0)
    engine.complete()
    step = MODEL.step_s(Batch(1, 161, 0, 0.0, 1))
    at = engine._began + 32.5 * step
    assert job.tokens(engine.steps_at(at)) == pytest.approx(33, abs=1)
    assert engine.used_blocks(at) == 12
    assert engine.generated_at(at) == job.tokens(engine.steps_at(at))
