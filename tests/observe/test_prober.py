"""Health: what counts as alive, what a refusal means, and when probes happen."""

import asyncio
import random
from collections.abc import Callable
from typing import Any

import pytest

from headway.core.events import ProbeFailed, ProbeSucceeded
from headway.observe.config import ObserveConfig
from headway.observe.prober import Prober
from headway.runtime.http import Failure, FailureKind, client
from tests.observe.fakes import Log, spec
from tests.runtime.servers import Reply, serving

Run = Callable[[Any], Any]
CONFIG = ObserveConfig(probe_timeout_s=0.1)


def probe(run: Run, reply: Reply) -> tuple[ProbeSucceeded | ProbeFailed, Prober]:
    async def story() -> tuple[ProbeSucceeded | ProbeFailed, Prober]:
        log = Log()
        async with serving({"/health": reply}) as served, client() as http:
            prober = Prober(spec(served.url), served.url + "/health", {}, http, CONFIG, random.Random(1), log.post)
            await prober.probe()
        return log.probes[0], prober

    return run(story())


@pytest.mark.parametrize("status", [200, 204, 401, 403, 404, 429])
def test_an_engine_that_answers_is_alive(run: Run, status: int) -> None:
    event, prober = probe(run, Reply(status=status))
    assert isinstance(event, ProbeSucceeded)
    assert (prober.health, prober.failures) == ("ok", 0)


@pytest.mark.parametrize("status", [500, 502, 503, 504])
def test_an_engine_that_says_it_is_not_well_is_not(run: Run, status: int) -> None:
    event, prober = probe(run, Reply(b"Loading model", status))
    assert isinstance(event, ProbeFailed)
    assert (event.reason, event.refused) == (f"status {status}: Loading model", False)
    assert prober.health == event.reason


@pytest.mark.parametrize(("reply", "reason"), [(Reply(delay_s=None), "timeout"), (Reply(raw=b""), "broken")])
def test_silence_and_garbage_are_failures_and_no_refusal(run: Run, reply: Reply, reason: str) -> None:
    event, _ = probe(run, reply)
    assert isinstance(event, ProbeFailed)
    assert event.reason.startswith(reason)
    assert not event.refused


def test_a_refused_connection_means_that_nobody_listens(run: Run) -> None:
    async def story() -> ProbeSucceeded | ProbeFailed:
        async with serving({}) as served:
            url = served.url
        log = Log()
        async with client() as http:
            await Prober(spec(url), url + "/health", {}, http, CONFIG, random.Random(1), log.post).probe()
        return log.probes[0]

    event = run(story())
    assert isinstance(event, ProbeFailed)
    assert event.refused


def test_a_probe_that_could_not_be_sent_says_nothing(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fetch(*_args: object, **_more: object) -> Failure:
        return Failure(FailureKind.OURS, "too many open files")

    async def story() -> tuple[list[Any], Prober]:
        log = Log()
        async with client() as http:
            monkeypatch.setattr(http, "fetch", fetch)
            prober = Prober(spec("http://h"), "http://h/health", {}, http, CONFIG, random.Random(1), log.post)
            await prober.probe()
        return log.probes, prober

    probes, prober = run(story())
    assert (probes, prober.health, prober.failures) == ([], "unknown", 1)


def test_a_long_complaint_is_shortened(run: Run) -> None:
    event, _ = probe(run, Reply(b"x" * 10_000, 503))
    assert isinstance(event, ProbeFailed)
    assert len(event.reason) < 300


def test_probes_come_by_the_clock_and_on_demand(run: Run) -> None:
    async def story() -> None:
        config = ObserveConfig(probe_interval_s=0.02)
        async with serving({"/health": Reply()}) as served, client() as http:
            often = Prober(spec(served.url), served.url + "/health", {}, http, config, random.Random(1), Log().post)
            running = asyncio.ensure_future(often.run())
            await served.asked_for("/health", 3)
            running.cancel()
            await asyncio.wait([running])
            seldom = Prober(spec(served.url), served.url + "/health", {}, http, CONFIG, random.Random(1), Log().post)
            before = served.asked["/health"]
            running = asyncio.ensure_future(seldom.run())
            await served.asked_for("/health", before + 1)
            seldom.ask()
            await served.asked_for("/health", before + 2)
            running.cancel()
            await asyncio.wait([running])

    run(story())


def test_a_probe_asked_for_during_another_follows_it(run: Run) -> None:
    async def story() -> int:
        config = ObserveConfig(probe_interval_s=60.0)
        async with serving({"/health": Reply(delay_s=0.02)}) as served, client() as http:
            prober = Prober(spec(served.url), served.url + "/health", {}, http, config, random.Random(1), Log().post)
            running = asyncio.ensure_future(prober.run())
            await served.asked_for("/health", 1)
            for _ in range(10):
                prober.ask()
            await served.asked_for("/health", 2)
            await asyncio.sleep(0.06)
            running.cancel()
            await asyncio.wait([running])
            return served.asked["/health"]

    assert run(story()) == 2


@pytest.mark.parametrize(
    ("before", "returned"), [(Reply(status=503), 1), (Reply(raw=b""), 1), (Reply(delay_s=None), 0), (Reply(), 0)]
)
def test_a_replica_that_is_well_again_may_be_another_unless_it_was_only_slow(
    run: Run, before: Reply, returned: int
) -> None:
    async def story() -> int:
        async with serving({"/health": before}) as served, client() as http:
            prober = Prober(spec(served.url), served.url + "/health", {}, http, CONFIG, random.Random(1), Log().post)
            returns: list[str] = []
            prober.on_return = lambda: returns.append(prober.health)
            for reply in (before, Reply(), Reply()):
                served.replies["/health"] = reply
                await prober.probe()
        assert set(returns) <= {"ok"}
        return len(returns)

    assert run(story()) == returned
