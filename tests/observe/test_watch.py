"""One registration under observation: which facts it takes over, when it is stale, what it has to say."""

from collections.abc import Callable
from typing import Any

import pytest
from structlog.testing import capture_logs

from headway.core.replica import ReplicaSpec
from headway.observe.boots import Boots
from headway.observe.config import DEFAULTS
from headway.observe.watch import Watch
from headway.runtime.http import client
from headway.runtime.tasks import TaskSet
from tests.observe.fakes import DIALECTS, Log, engine, spec
from tests.observe.test_pace import Middle
from tests.runtime.servers import serving

Run = Callable[[Any], Any]
URL = "http://h:1"


def watched(run: Run, replica: ReplicaSpec, look: Callable[[Watch], Any]) -> Any:
    async def story() -> Any:
        async with client() as http:
            dialect = DIALECTS[replica.engine]
            return look(Watch(replica, dialect, "key", http, DEFAULTS, Middle(), Log().post, tuple, Boots(7)))

    return run(story())


@pytest.mark.parametrize(
    ("other", "taken"),
    [
        (spec(URL, weight=3.0), True),
        (spec(URL, kv_capacity_tokens=5), True),
        (spec("http://h:2"), False),
        (spec(URL, metrics=False), False),
        (ReplicaSpec(spec(URL).id, URL, "openai", "m"), False),
    ],
)
def test_facts_that_do_not_change_how_to_look_are_taken_over(run: Run, other: ReplicaSpec, taken: bool) -> None:
    assert watched(run, spec(URL), lambda watch: watch.takes(other)) is taken


def test_before_the_first_report_a_replica_is_stale_and_has_no_age(run: Run) -> None:
    stale, status = watched(run, spec(URL), lambda watch: (watch.is_stale(100.0), watch.status(100.0)))
    assert (stale, status.sample_age_s, status.health, status.boots) == (True, None, "unknown", 0)


def test_a_replica_without_a_report_is_never_stale(run: Run) -> None:
    assert watched(run, spec(URL, metrics=False), lambda watch: watch.is_stale(100.0)) is False


def test_a_slow_engine_is_not_stale_between_its_rare_reports(run: Run) -> None:
    def sampled(watch: Watch, every_s: float) -> tuple[bool, bool]:
        watch.scraper.sampled_at, watch.scraper.sampled_every_s = 100.0, every_s
        return watch.is_stale(104.0), watch.is_stale(113.0)

    assert watched(run, spec(URL), lambda watch: sampled(watch, 0.5)) == (True, True)
    assert watched(run, spec(URL), lambda watch: sampled(watch, 5.0)) == (False, True)


def test_epochs_go_on_where_an_earlier_watch_ended(run: Run) -> None:
    assert watched(run, spec(URL), lambda watch: watch.scraper.boots.epoch) == 7


def test_after_stop_work_under_way_is_not_posted(run: Run) -> None:
    async def story() -> list[object]:
        log, heard = Log(), []
        async with serving(engine()) as served, client() as http, TaskSet() as tasks:
            watch = Watch(spec(served.url), DIALECTS["plain"], "", http, DEFAULTS, Middle(), log.post, tuple, Boots())
            watch.models_changed = lambda _id, cards: heard.append(cards)
            watch.start(tasks)
            watch.stop()
            await watch.scraper.scrape()
            await watch.prober.probe()
            await watch.models.refresh()
        return [*log.events, *heard]

    assert run(story()) == []


def test_an_engine_that_could_report_its_load_and_does_not_is_told_of(run: Run) -> None:
    async def story(replica: ReplicaSpec) -> list[str]:
        with capture_logs() as logs:
            async with client() as http, TaskSet() as tasks:
                dialect = DIALECTS[replica.engine]
                watch = Watch(replica, dialect, "", http, DEFAULTS, Middle(), Log().post, tuple, Boots())
                watch.start(tasks)
                watch.stop()
        return [entry["event"] for entry in logs]

    told = "this engine has no load report: only our own requests are counted"
    assert run(story(spec(URL, metrics=False))) == [told]
    assert run(story(spec(URL))) == []
    assert run(story(ReplicaSpec(spec(URL).id, URL, "openai", "m", metrics=False))) == []
