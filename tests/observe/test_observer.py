"""Watches follow registrations: nothing of an old one is heard, nothing is left behind."""

import asyncio
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from headway.core.events import ProbeFailed, ProbeSucceeded
from headway.core.ids import ReplicaId
from headway.core.replica import ReplicaSpec
from headway.engines.sglang import LOADS, Sglang
from headway.engines.vllm import Vllm
from headway.observe import ObserveConfig, Observer
from headway.observe.detect import detect
from headway.runtime.http import client
from tests.engines import pages
from tests.observe.fakes import DIALECTS, LOAD, MODELS, Log, engine, models, spec
from tests.runtime.servers import Reply, serving

Run = Callable[[Any], Any]
QUICK = ObserveConfig(interval_s=0.02, probe_interval_s=0.05, timeout_s=0.2, probe_timeout_s=0.2, slowest_s=0.1)


def test_a_watched_replica_is_scraped_probed_and_its_cards_are_kept(run: Run) -> None:
    async def story() -> None:
        log, heard = Log(), []
        async with serving(engine(rejected=4)) as served, client() as http:
            observer = Observer(
                log.post, DIALECTS, http, QUICK, on_cards=lambda i, c: heard.append((i, [x["id"] for x in c]))
            )
            observer.watch([spec(served.url)])
            await served.asked_for(LOAD, 3)
            await served.asked_for("/health", 2)
            await served.asked_for(MODELS, 1)
            await asyncio.sleep(0.02)
            (status,) = observer.status()
            assert (status.id, status.health, status.engine, status.boots) == ("r", "ok", "plain", 1)
            assert status.sample_age_s is not None
            assert status.sample_age_s < 1.0
            assert (status.error, status.missing, status.frozen, status.rejections_total) == ("", (), False, 4)
            counts = observer.counts()
            assert (counts.replicas, counts.stale, counts.missing_gauges, counts.frozen) == (1, 0, 0, 0)
            assert counts.scrapes_total >= 2
            assert counts.scrape_failures_total == counts.probe_failures_total == counts.alarms_total == 0
            assert heard == [("r", ["m"])]
            assert [card["id"] for card in observer.cards()[ReplicaId("r")]] == ["m"]
            await observer.stop()

    run(story())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("owner", "path", "good"),
    [("vllm", "/metrics", pages.VLLM.encode()), ("sglang", LOADS, pages.SGLANG_LOADS)],
)
def test_an_engine_detected_while_its_report_says_nothing_is_observed_once_it_does(
    run: Run, owner: str, path: str, good: bytes
) -> None:
    """One alarm meanwhile, whatever the page: it switched observation off for the whole registration."""

    async def story() -> None:
        log, dialects = Log(), {"vllm": Vllm(), "sglang": Sglang(), "openai": DIALECTS["openai"]}
        replies = {MODELS: Reply(pages.cards(owner, "tiny")), "/health": Reply(), path: Reply(b"warming up\n")}
        async with serving(replies) as served, client() as http:
            found = await detect(served.url, dialects.values(), http, replica_id=ReplicaId("r"))
            assert isinstance(found, ReplicaSpec)
            observer = Observer(log.post, dialects, http, QUICK)
            observer.watch([found])
            await served.asked_for(path, 6)
            assert observer.counts().alarms_total == 1
            assert {sample.running for sample in log.samples} <= {None}
            served.replies[path] = Reply(good)
            async with asyncio.timeout(5):
                while not any(sample.running for sample in log.samples):  # noqa: ASYNC110 - nothing tells
                    await asyncio.sleep(0.01)
            await observer.stop()

    run(story())


def test_the_brain_can_ask_for_a_probe_and_unknown_ids_do_not_matter(run: Run) -> None:
    async def story() -> None:
        config = ObserveConfig(probe_interval_s=60.0)
        async with serving(engine()) as served, client() as http:
            observer = Observer(Log().post, DIALECTS, http, config)
            observer.watch([spec(served.url)])
            await served.asked_for("/health", 1)
            observer.probe(ReplicaId("r"))
            observer.probe(ReplicaId("nobody"))
            await served.asked_for("/health", 2)
            await observer.stop()

    run(story())


def test_late_news_of_an_old_registration_is_dropped(run: Run) -> None:
    async def story() -> None:
        log = Log()
        slow = ObserveConfig(probe_timeout_s=0.15, probe_interval_s=60.0)
        async with serving({"/health": Reply(delay_s=None)}) as served, client() as http:
            observer = Observer(log.post, DIALECTS, http, slow)
            observer.watch([spec(served.url, "h:1", metrics=False)])
            await served.asked_for("/health", 1)
            served.replies["/health"] = Reply()
            observer.watch([spec(served.url, "h:1#2", metrics=False)])
            await asyncio.sleep(0.2)
            await observer.stop()
        assert [(type(event), event.replica_id) for event in log.probes] == [(ProbeSucceeded, "h:1#2")]

    run(story())


def test_nothing_is_posted_after_stop(run: Run) -> None:
    async def story() -> None:
        log = Log()
        async with serving(engine()) as served, client() as http:
            observer = Observer(log.post, DIALECTS, http, QUICK)
            observer.watch([spec(served.url)])
            await served.asked_for(LOAD, 2)
            await observer.stop()
            before = len(log.events)
            await asyncio.sleep(0.05)
            assert len(log.events) == before

    run(story())


def test_new_facts_keep_the_watch_a_new_engine_starts_it_anew_with_growing_epochs(run: Run) -> None:
    async def story() -> None:
        log = Log()
        async with serving(engine()) as served, client() as http:
            observer = Observer(log.post, DIALECTS, http, QUICK)
            observer.watch([spec(served.url)])
            await served.asked_for(LOAD, 3)
            observer.watch([spec(served.url, weight=2.0)])
            asked = served.asked["/health"]
            await asyncio.sleep(0)
            assert served.asked["/health"] == asked
            other = ReplicaSpec(ReplicaId("r"), served.url, "openai", "m")
            observer.watch([other])
            assert observer.counts().scrapes_total >= 2
            observer.watch([spec(served.url)])
            await served.asked_for(LOAD, served.asked[LOAD] + 3)
            await observer.stop()
        epochs = [sample.epoch for sample in log.samples]
        assert epochs == sorted(set(epochs))

    run(story())


def test_an_engine_without_a_report_is_probed_and_never_stale(run: Run) -> None:
    async def story() -> None:
        log = Log()
        async with serving({MODELS: models("m")}) as served, client() as http:
            observer = Observer(log.post, DIALECTS, http, QUICK)
            unknown = ReplicaSpec(ReplicaId("g"), served.url, "no such engine", "m")
            observer.watch([unknown, ReplicaSpec(ReplicaId("h"), served.url, "openai", "m")])
            await served.asked_for(MODELS, 4)
            await asyncio.sleep(0.02)
            assert (log.samples, observer.counts().stale, set(served.asked)) == ([], 0, {MODELS})
            await observer.stop()

    run(story())


def test_a_dead_replica_is_stale_and_said_to_be_refused(run: Run) -> None:
    async def story() -> None:
        log = Log()
        async with serving(engine()) as served:
            url = served.url
        async with client() as http:
            observer = Observer(log.post, DIALECTS, http, QUICK)
            observer.watch([spec(url)])
            async with asyncio.timeout(10):
                while len(log.probes) < 3:  # noqa: ASYNC110 - counts what is posted, there is no event to wait for
                    await asyncio.sleep(0.01)
            (status,) = observer.status()
            assert (status.sample_age_s, status.health.partition(":")[0]) == (None, "refused")
            assert "refused" in status.error
            assert observer.counts().stale == 1
            assert all(isinstance(event, ProbeFailed) and event.refused for event in log.probes)
            await observer.stop()

    run(story())


def test_fifty_reloads_leave_no_task_and_no_question_behind(run: Run) -> None:
    async def story() -> None:
        async with serving(engine()) as old, serving(engine()) as new, client() as http:
            observer = Observer(Log().post, DIALECTS, http, QUICK)
            before = len(asyncio.all_tasks())
            for generation in range(50):
                observer.watch([spec((old if generation % 2 else new).url, f"r#{generation}")])
                await asyncio.sleep(0.002)
            await asyncio.sleep(0.02)
            assert len(asyncio.all_tasks()) - before == 3
            observer.watch([spec(new.url, "last")])
            await asyncio.sleep(0.02)
            asked = sum(old.asked.values())
            await asyncio.sleep(0.1)
            assert sum(old.asked.values()) == asked
            await observer.stop()

    run(story())


def test_device_memory_reaches_the_samples(run: Run) -> None:
    page = b'DCGM_FI_DEV_FB_FREE{UUID="GPU-a"} 10\nDCGM_FI_DEV_FB_USED{UUID="GPU-a"} 90\n'

    async def story() -> None:
        log = Log()
        async with serving({**engine(), "/dcgm": Reply(page)}) as served, client() as http:
            observer = Observer(log.post, DIALECTS, http, QUICK, exporters=[served.url + "/dcgm"])
            observer.watch([spec(served.url, labels={"gpu_uuid": "GPU-a"})])
            observer.watch([spec(served.url, labels={"gpu_uuid": "GPU-a"})])
            await served.asked_for(LOAD, 3)
            assert served.asked["/dcgm"] == 1
            await observer.stop()
        assert log.samples[-1].device_total_bytes == 100 * 1024 * 1024

    run(story())


@contextmanager
def farm() -> Iterator[list[str]]:
    """A good engine and a black hole in a process of their own, so that their CPU and their lock are not ours."""
    command = [sys.executable, "-m", "tests.observe.farm"]
    root = Path(__file__).parents[2]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=root) as process:
        assert process.stdout is not None
        yield process.stdout.readline().split()
        process.communicate()


@pytest.mark.slow
def test_black_holes_do_not_starve_the_others(run: Run) -> None:
    """100 replicas, half of which accept connections and never answer: fresh samples, little CPU.

    Measured up to three times: a busy machine can spoil a run, it cannot make one better than it is.
    """
    seconds, interval = 4.0, 0.5

    async def story(good: str, hole: str) -> tuple[list[float], float]:
        ages: list[float] = []
        async with client() as http:
            observer = Observer(Log().post, DIALECTS, http, chance=random.Random(1))
            observer.watch([spec(good, f"good{n}") for n in range(50)] + [spec(hole, f"hole{n}") for n in range(50)])
            await asyncio.sleep(1.0)
            cpu, until = time.thread_time(), time.monotonic() + seconds
            while time.monotonic() < until:
                await asyncio.sleep(0.23)
                known = [status for status in observer.status() if status.id.startswith("good")]
                ages += [status.sample_age_s for status in known if status.sample_age_s is not None]
            cpu = time.thread_time() - cpu
            await observer.stop()
        return sorted(ages), cpu / seconds

    seen = []
    with farm() as (good, hole):
        for _ in range(3):
            ages, cpu = run(story(good, hole))
            p99 = ages[int(len(ages) * 0.99)]
            assert len(ages) > 500
            seen.append(f"sample age p50 {ages[len(ages) // 2]:.3f} s, p99 {p99:.3f} s, {cpu:.1%} of a core")
            if p99 < 2 * interval and cpu < 0.1:
                return
    pytest.fail("; ".join(seen))


def test_an_engine_that_may_be_another_is_told_of(run: Run) -> None:
    """With other cards, and when it is well again: it may have no report that shows its starts."""

    async def story() -> None:
        altered: asyncio.Queue[str] = asyncio.Queue()
        config = ObserveConfig(probe_interval_s=0.01, cards_interval_s=0.01)
        async with serving({MODELS: models("m"), "/health": Reply()}) as served, client() as http:
            observer = Observer(Log().post, DIALECTS, http, config, on_altered=altered.put_nowait)
            observer.watch([spec(served.url, metrics=False)])
            await served.asked_for(MODELS, 3)
            assert altered.empty(), "the first cards are what was registered"
            for path, reply in ((MODELS, models("m", "lora")), ("/health", Reply(status=503)), ("/health", Reply())):
                await served.asked_for(path, served.asked[path] + 2)
                served.replies[path] = reply
            async with asyncio.timeout(5):
                assert [await altered.get(), await altered.get()] == ["r", "r"]
            await observer.stop()

    run(story())
