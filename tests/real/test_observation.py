"""Detection, load reports and health on real engines, without the gateway."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest
from openai import OpenAI

from headway.compose.registry import find
from headway.core.events import ProbeFailed, ProbeSucceeded
from headway.core.ids import ReplicaId
from headway.core.replica import ReplicaSpec
from headway.observe import ObserveConfig, Observer
from headway.observe.detect import Undetected, detect
from headway.runtime.http import client
from tests.observe.fakes import Log
from tests.real.engines import Engine, EnginePair

Run = Callable[..., Any]
DIALECTS = {name: plugin.factory(None) for name, plugin in find([]).engines.items()}
QUICK = ObserveConfig(interval_s=0.05, probe_interval_s=0.2, cards_interval_s=0.2)


def look(run: Run, url: str) -> ReplicaSpec | Undetected:
    async def story() -> ReplicaSpec | Undetected:
        async with client() as http:
            return await detect(url, DIALECTS.values(), http, replica_id=ReplicaId("r"))

    return run(story())


def test_the_engine_is_detected(run: Run, pair: EnginePair) -> None:
    spec = look(run, pair.engines[0].url)
    assert isinstance(spec, ReplicaSpec)
    assert (spec.engine, spec.model) == (pair.launcher.dialect.name, pair.launcher.model)
    assert spec.serves[pair.launcher.model] == pair.launcher.model
    assert spec.max_model_tokens == pair.launcher.context_tokens
    assert spec.kv_capacity_tokens > 0
    assert spec.metrics


def test_a_dead_engine_is_said_to_refuse(run: Run, pair: EnginePair) -> None:
    pair.engines[1].kill()
    found = look(run, pair.engines[1].url)
    assert isinstance(found, Undetected)
    assert "refused" in str(found)


def test_reports_show_what_runs(run: Run, pair: EnginePair) -> None:
    log, spec = Log(), look(run, pair.engines[0].url)
    assert isinstance(spec, ReplicaSpec)

    async def story() -> None:
        async with client() as http:
            observer = Observer(log.post, DIALECTS, http, QUICK)
            observer.watch([spec])
            await _until(lambda: any(sample.running == 0 for sample in log.samples))
            with streaming(pair.engines[0]):
                await _until(lambda: log.samples[-1].running == 1)
                await _until(lambda: (log.samples[-1].kv_used_tokens or 0) > 30)
            await _until(lambda: log.samples[-1].running == 0)
            (status,) = observer.status()
            await observer.stop()
        assert (status.missing, status.error, status.health, status.boots) == ((), "", "ok", 1)

    run(story())
    assert all(sample.kv_capacity_tokens == spec.kv_capacity_tokens for sample in log.samples)
    assert log.samples[-1].waiting == 0


def test_death_and_return_are_noticed(run: Run, pair: EnginePair) -> None:
    engine, log = pair.engines[0], Log()
    spec = look(run, engine.url)
    assert isinstance(spec, ReplicaSpec)

    async def story() -> None:
        async with client() as http:
            observer = Observer(log.post, DIALECTS, http, QUICK)
            observer.watch([spec])
            await _until(lambda: any(isinstance(event, ProbeSucceeded) for event in log.probes))
            engine.kill()
            await _until(lambda: any(isinstance(event, ProbeFailed) and event.refused for event in log.probes))
            samples = len(log.samples)
            engine.start()
            await _until(lambda: isinstance(log.probes[-1], ProbeSucceeded), pair.launcher.start_s)
            await _until(lambda: len(log.samples) > samples, 15.0)
            await observer.stop()

    run(story(), within_s=60.0 + pair.launcher.start_s)


class streaming:  # noqa: N801 - reads as a word
    """A long stream straight to an engine, cut at the end of the block."""

    def __init__(self, engine: Engine) -> None:
        sdk = OpenAI(base_url=engine.url + "/v1", api_key="none", max_retries=0)
        self._stream = sdk.completions.create(
            model=engine.launcher.model, prompt="Once upon a time " * 10, max_tokens=6000, stream=True
        )
        self._reader = threading.Thread(target=self._read)
        self._sdk = sdk

    def _read(self) -> None:
        for _ in self._stream:
            if self._over.is_set():
                break

    def __enter__(self) -> None:
        self._over = threading.Event()
        self._reader.start()

    def __exit__(self, *_exc: object) -> None:
        self._over.set()
        self._reader.join()
        self._stream.close()
        self._sdk.close()


async def _until(true: Callable[[], bool], within_s: float = 30.0) -> None:
    async with asyncio.timeout(within_s):
        while not true():  # noqa: ASYNC110 - looks at a log, there is no event to wait for
            await asyncio.sleep(0.01)


pytestmark = pytest.mark.slow
