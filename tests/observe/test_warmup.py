"""One token for us: how it is asked for, what counts as warm, and in which order probes and warm-ups are heard of."""

import asyncio
import random
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from headway.core.events import ProbeFailed, ProbeSucceeded
from headway.core.ids import ReplicaId
from headway.core.replica import ReplicaSpec
from headway.observe.config import ObserveConfig
from headway.observe.observer import Observer
from headway.observe.prober import Prober
from headway.observe.warmup import CHAT, COMPLETIONS, warm_up
from headway.runtime.http import Failure, FailureKind, client
from tests.observe.fakes import DIALECTS, Log, engine, spec
from tests.runtime.servers import Reply, Served, serving

Run = Callable[[Any], Any]
CONFIG = ObserveConfig(probe_timeout_s=0.1, warm_up_timeout_s=0.1, probe_interval_s=60.0)


def warmed(run: Run, replies: dict[str, Reply], **facts: object) -> tuple[str | Failure, Served]:
    async def story() -> tuple[str | Failure, Served]:
        async with serving(replies) as served, client() as http:
            return await warm_up(spec(served.url, **facts), http, {"authorization": "Bearer k"}, 0.1), served

    return run(story())


def prober(served: Served, http: Any, log: Log, config: ObserveConfig = CONFIG) -> Prober:
    return Prober(spec(served.url), served.url + "/health", {}, http, config, random.Random(1), log.post)


def test_one_token_is_asked_for_with_the_engines_own_name_of_the_model(run: Run) -> None:
    asked: list[bytes] = []

    async def story() -> str | Failure:
        async def fetch(_url: str, **more: Any) -> Failure:
            asked.append(more["body"])
            return Failure(FailureKind.TIMEOUT)

        async with client() as http:
            http.fetch = fetch  # type: ignore[method-assign]
            nameless = ReplicaSpec(ReplicaId("r"), "http://h", serves={"public": "own"})
            await warm_up(nameless, http, {}, 0.1)
            return await warm_up(spec("http://h"), http, {}, 0.1)

    assert run(story()) == Failure(FailureKind.TIMEOUT)
    first, second = (msgspec.json.decode(body) for body in asked)
    assert (first["model"], second["model"]) == ("own", "m")
    assert first["max_tokens"] == 1
    assert first["stream"] is False


@pytest.mark.parametrize("status", [200, 400, 401, 403, 422, 429])
def test_an_engine_that_answers_is_warm(run: Run, status: int) -> None:
    problem, served = warmed(run, {COMPLETIONS: Reply(status=status)})
    assert problem == ""
    assert served.asked[CHAT] == 0
    assert b"Bearer k" in served.heads[0]


@pytest.mark.parametrize("absent", [404, 405, 501])
def test_an_engine_without_completions_is_asked_to_chat(run: Run, absent: int) -> None:
    problem, served = warmed(run, {COMPLETIONS: Reply(status=absent), CHAT: Reply()})
    assert (problem, served.asked[CHAT]) == ("", 1)
    problem, _ = warmed(run, {COMPLETIONS: Reply(status=absent), CHAT: Reply(status=500)})
    assert problem == "status 500 to one token"


@pytest.mark.parametrize("absent", [404, 501])
def test_an_engine_that_generates_nothing_is_as_warm_as_can_be(run: Run, absent: int) -> None:
    problem, served = warmed(run, {COMPLETIONS: Reply(status=absent), CHAT: Reply(status=absent)})
    assert (problem, served.asked[COMPLETIONS], served.asked[CHAT]) == ("", 1, 1)


def test_an_engine_that_fails_or_hangs_is_not_warm(run: Run) -> None:
    assert warmed(run, {COMPLETIONS: Reply(status=503)})[0] == "status 503 to one token"
    problem, _ = warmed(run, {COMPLETIONS: Reply(delay_s=None)})
    assert isinstance(problem, Failure)
    assert problem.kind is FailureKind.TIMEOUT


def test_what_became_of_a_warm_up_is_posted_like_a_probe(run: Run) -> None:
    async def story() -> tuple[list[Any], Prober]:
        log = Log()
        async with serving({"/health": Reply(), COMPLETIONS: Reply()}) as served, client() as http:
            looking = prober(served, http, log)
            looking.ask_warm_up()
            await looking.warm_up()
            served.replies[COMPLETIONS] = Reply(status=500)
            await looking.warm_up()
        await looking.warm_up()
        return log.probes, looking

    probes, looking = run(story())
    assert [type(each) for each in probes] == [ProbeSucceeded, ProbeFailed, ProbeFailed]
    assert [each.refused for each in probes[1:]] == [False, True]
    assert looking.warm_ups == 3


def test_a_probe_that_succeeds_while_a_warm_up_is_wanted_is_not_heard_of(run: Run) -> None:
    async def story() -> tuple[list[Any], int]:
        log = Log()
        async with serving({"/health": Reply(delay_s=0.03), COMPLETIONS: Reply()}) as served, client() as http:
            looking = prober(served, http, log)
            running = asyncio.ensure_future(looking.run())
            await served.asked_for("/health", 1)
            looking.ask_warm_up()
            await served.asked_for(COMPLETIONS, 1)
            before = len(log.probes)
            while not log.probes:  # noqa: ASYNC110
                await asyncio.sleep(0.005)
            running.cancel()
            await asyncio.wait([running])
            return log.probes, before

    probes, before = run(story())
    assert before == 0, "the probe said less than what was asked"
    assert [type(each) for each in probes] == [ProbeSucceeded]


def test_a_probe_that_fails_meanwhile_is(run: Run) -> None:
    async def story() -> list[Any]:
        log = Log()
        async with serving({"/health": Reply(status=503)}) as served, client() as http:
            looking = prober(served, http, log)
            looking.ask_warm_up()
            await looking.probe()
        return log.probes

    assert [type(each) for each in run(story())] == [ProbeFailed]


def test_the_observer_performs_warm_ups_of_those_it_watches(run: Run) -> None:
    async def story() -> Served:
        async with serving({**engine(), COMPLETIONS: Reply()}) as served, client() as http:
            observer = Observer(Log().post, DIALECTS, http, CONFIG)
            observer.watch([spec(served.url)])
            observer.warm_up(ReplicaId("r"))
            observer.warm_up(ReplicaId("nobody"))
            await served.asked_for(COMPLETIONS, 1)
            await observer.stop()
            return served

    assert run(story()).asked[COMPLETIONS] == 1


def test_new_facts_reach_the_warm_up(run: Run) -> None:
    async def story() -> str:
        async with serving(engine()) as served, client() as http:
            observer = Observer(Log().post, DIALECTS, http, CONFIG)
            observer.watch([spec(served.url)])
            observer.watch([msgspec.structs.replace(spec(served.url), model="other")])
            watch = observer._watches[ReplicaId("r")]
            await observer.stop()
            return watch.prober.spec.model

    assert run(story()) == "other"


def test_reports_carry_the_count_of_boots(run: Run) -> None:
    async def story() -> list[int | None]:
        log = Log()
        config = ObserveConfig(interval_s=0.01)
        async with serving(engine(started=1.0)) as served, client() as http:
            observer = Observer(log.post, DIALECTS, http, config)
            observer.watch([spec(served.url)])
            await served.asked_for("/load", 2)
            served.replies.update(engine(started=100.0))
            await served.asked_for("/load", 4)
            observer.watch([msgspec.structs.replace(spec(served.url), url=served.url + "/")])
            await served.asked_for("/load", 8)
            await observer.stop()
        return [sample.boot for sample in log.samples]

    boots = run(story())
    assert boots == sorted(boots)
    assert set(boots) == {1, 2, 3}
