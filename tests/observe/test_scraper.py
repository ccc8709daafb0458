"""One replica's load reports: stamped, numbered, never trusted."""

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from structlog.testing import capture_logs

from headway.engines import dcgm
from headway.observe.config import ObserveConfig
from headway.observe.pace import Pace
from headway.observe.polling import Poller
from headway.observe.scraper import MUTE, NONE, Scraper
from headway.runtime import clock
from headway.runtime.http import client
from tests.observe.fakes import LOAD, Log, Plain, engine, load, spec
from tests.observe.test_pace import Middle
from tests.runtime.servers import Reply, Served, serving

Run = Callable[[Any], Any]
MOMENT_S = 0.002
"""The loop's timers count whole milliseconds, and may be early by one."""
MIB = 1024 * 1024


def scraping(
    run: Run,
    steps: list[Callable[[Served], None]],
    *,
    config: ObserveConfig = ObserveConfig(timeout_s=0.1),  # noqa: B008 - frozen
    devices: tuple[dcgm.Device, ...] = (),
    labels: dict[str, str] | None = None,
) -> tuple[Scraper, Log, list[bool]]:
    """Scrape once after each step (which changes what the engine answers)."""

    async def story() -> tuple[Scraper, Log, list[bool]]:
        log = Log()
        async with serving(engine()) as served, client() as http:
            replica = spec(served.url, labels=labels or {})
            poller = Poller(http, served.url, Plain.polls, {}, config)
            pace = Pace(config, Middle())
            scraper = Scraper(replica, Plain(), poller, pace, config, log.post, lambda: devices)
            results = []
            for step in steps:
                step(served)
                results.append(await scraper.scrape())
        return scraper, log, results

    return run(story())


def answers(reply: Reply) -> Callable[[Served], None]:
    return lambda served: served.replies.update({LOAD: reply})


def as_it_is(_served: Served) -> None:
    return None


def test_a_sample_bears_the_time_it_was_asked_for(run: Run) -> None:
    before = clock.now()
    scraper, log, results = scraping(run, [answers(load(running=3)), answers(Reply(b'{"running":4}', delay_s=0.03))])
    first, second = log.samples
    assert (first.running, first.epoch, second.running, second.epoch) == (3, 1, 4, 2)
    assert before <= first.taken_at <= second.taken_at
    event = log.events[1]
    assert event.at - second.taken_at >= 0.03 - MOMENT_S
    assert results == [True, True]
    assert scraper.took_s >= 0.03 - MOMENT_S


@pytest.mark.parametrize(
    "reply",
    [Reply(status=500), Reply(delay_s=None), Reply(raw=b""), Reply(raw=b"\x00\x01\r\n\r\n"), Reply(status=404)],
    ids=["500", "silence", "closed", "garbage", "absent"],
)
def test_a_failed_scrape_posts_nothing_and_says_why(run: Run, reply: Reply) -> None:
    scraper, log, results = scraping(run, [as_it_is, answers(reply)])
    assert len(log.samples) == 1
    assert results == [True, False]
    assert "/load" in scraper.error
    assert (scraper.scrapes, scraper.failures) == (2, 1)


def test_a_body_that_says_nothing_is_a_sample_of_unknowns_and_an_alarm(run: Run) -> None:
    with capture_logs() as logs:
        scraper, log, _ = scraping(run, [answers(Reply(b"<html>"))] * 5)
    assert [sample.running for sample in log.samples] == [None] * 5
    assert [(entry["event"], entry["detail"]) for entry in logs] == [(MUTE, "running")]
    assert scraper.reading is not None
    assert scraper.reading.missing == ("running",)
    assert scraper.pace.interval_s == ObserveConfig().slowest_s, "asked seldom"


def test_a_report_that_tells_something_after_all_is_news_when_it_is_mute_again(run: Run) -> None:
    mute, good = answers(Reply(b"warming up")), answers(load(running=2))
    with capture_logs() as logs:
        scraper, log, _ = scraping(run, [mute, mute, good, mute, good])
    assert [sample.running for sample in log.samples] == [None, None, 2, None, 2]
    assert [entry["event"] for entry in logs] == [MUTE]
    assert scraper.alarms.total == 2, "told once a minute at most, and counted each time"
    assert scraper.pace.interval_s == ObserveConfig().interval_s


@pytest.mark.parametrize("reply", [Reply(status=404), Reply(status=500), Reply(delay_s=None)])
def test_a_report_that_cannot_be_had_for_long_is_one_alarm(run: Run, reply: Reply) -> None:
    steps = [as_it_is, answers(reply), as_it_is, as_it_is, as_it_is]
    config = ObserveConfig(timeout_s=0.01)
    with capture_logs() as logs:
        scraping(run, steps[:3], config=config)
    assert not logs
    with capture_logs() as logs:
        scraper, _, _ = scraping(run, steps, config=config)
    assert [entry["event"] for entry in logs] == [NONE]
    assert "/stand-in: " in logs[0]["detail"]
    assert scraper.alarms.total == 1


def test_a_dialect_that_raises_costs_the_sample_and_not_the_scraper(run: Run) -> None:
    raising = answers(load(**{"raise": True}))
    with capture_logs() as logs:
        scraper, log, results = scraping(run, [raising, raising, answers(load(running=2))])
    assert results == [False, False, True]
    assert [sample.running for sample in log.samples] == [2]
    assert len(logs) == 1
    assert "third party" in logs[0]["detail"]
    assert scraper.error == ""


def test_a_page_beyond_the_cap_is_cut_and_asked_for_less(run: Run) -> None:
    config = ObserveConfig(page_cap_bytes=1000)
    huge = Reply(b'{"running":1}\n' + b"x" * 100_000)
    with capture_logs() as logs:
        scraper, log, results = scraping(run, [answers(huge)] * 3, config=config)
    assert results == [False] * 3
    assert [sample.running for sample in log.samples] == [1] * 3
    assert [entry["event"] for entry in logs] == ["the load report is longer than the cap and was cut"]
    assert scraper.failures == 0


def test_a_page_of_fifty_megabytes_costs_its_first_four(run: Run) -> None:
    huge = Reply(b'{"running":1}\n' + bytes(50_000_000))
    scraper, log, results = scraping(run, [answers(huge)], config=ObserveConfig(timeout_s=5.0))
    assert (results, log.samples[0].running) == ([False], 1)
    assert scraper.took_s < 2.0


def test_a_report_with_a_heartbeat_that_stands_still_is_frozen(run: Run) -> None:
    config = ObserveConfig(frozen_s=0.005)
    still, moving = [Reply(load(running=1, beat=beat).body, delay_s=0.01) for beat in (1, 2)]
    with capture_logs() as logs:
        scraper, log, results = scraping(run, [answers(r) for r in (still, still, still, moving)], config=config)
    assert results == [True, False, False, True]
    assert (len(log.samples), scraper.frozen) == (2, False)
    assert [entry["event"] for entry in logs] == ["the load report does not change any more"]


def test_a_report_that_changes_is_not_frozen(run: Run) -> None:
    config = ObserveConfig(frozen_s=0.001)
    steps = [answers(load(running=1, beat=number)) for number in range(3)]
    scraper, log, _ = scraping(run, steps, config=config)
    assert (len(log.samples), scraper.frozen) == (3, False)


def test_an_idle_report_without_a_heartbeat_is_not_frozen(run: Run) -> None:
    scraper, log, _ = scraping(run, [as_it_is] * 3, config=ObserveConfig(frozen_s=0.0))
    assert (len(log.samples), scraper.frozen) == (3, False)


def test_a_new_boot_is_noticed(run: Run) -> None:
    with capture_logs() as logs:
        scraper, log, _ = scraping(run, [answers(load(running=1, started=s)) for s in (1e9, 1e9, 2e9)])
    assert scraper.boots.count == 2
    assert [sample.epoch for sample in log.samples] == [1, 2, 3]
    assert [entry["event"] for entry in logs] == ["an engine was started anew"]


def test_device_memory_is_joined_by_label(run: Run) -> None:
    devices = (dcgm.Device({"UUID": "GPU-a"}, 5 * MIB, 9 * MIB), dcgm.Device({"UUID": "GPU-b"}, MIB, MIB))
    _, log, _ = scraping(run, [as_it_is], devices=devices, labels={"gpu_uuid": "GPU-a"})
    assert (log.samples[0].device_free_bytes, log.samples[0].device_total_bytes) == (5 * MIB, 9 * MIB)


def test_refused_connections_ask_for_a_probe(run: Run) -> None:
    async def story() -> int:
        asked = 0

        def on_refused() -> None:
            nonlocal asked
            asked += 1

        async with serving({}) as served:
            url = served.url
        config = ObserveConfig()
        async with client() as http:
            poller = Poller(http, url, Plain.polls, {}, config)
            scraper = Scraper(spec(url), Plain(), poller, Pace(config, Middle()), config, Log().post, tuple)
            scraper.on_refused = on_refused
            await scraper.scrape()
        return asked

    assert run(story()) == 1


def test_a_sample_says_when_the_next_is_due(run: Run) -> None:
    slow = Reply(b'{"running":4}', delay_s=0.05)
    config = ObserveConfig(interval_s=0.01, slow_factor=4.0)
    _, log, _ = scraping(run, [answers(slow), answers(slow)], config=config)
    first, second = (sample.interval_s or 0.0 for sample in log.samples)
    assert first == 0.01, "one slow answer may be our own hiccup"
    assert 4.0 * (0.05 - MOMENT_S) <= second < 5.0


def test_new_facts_about_the_replica_hold_from_the_next_scrape(run: Run) -> None:
    async def story() -> list[str]:
        log, config = Log(), ObserveConfig(interval_s=0.01)
        async with serving(engine()) as served, client() as http:
            poller = Poller(http, served.url, Plain.polls, {}, config)
            scraper = Scraper(spec(served.url), Plain(), poller, Pace(config, Middle()), config, log.post, tuple)
            running = asyncio.ensure_future(scraper.run())
            await served.asked_for(LOAD, 2)
            scraper.spec = msgspec.structs.replace(scraper.spec, id="r#2")
            await served.asked_for(LOAD, 5)
            running.cancel()
            await asyncio.wait([running])
        return [sample.replica_id for sample in log.samples]

    ids = run(story())
    assert ids[0] == "r"
    assert ids[-1] == "r#2"
