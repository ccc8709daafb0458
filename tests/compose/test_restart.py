"""The restart hook: what it is called with, that it is called once at a time, and what comes of its failures."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headway.compose.recipe import from_settings
from headway.compose.registry import find
from headway.compose.restart import Restarter, filled, watch_restarts
from headway.compose.settings import Settings
from headway.compose.settings_pressure import Degradation, RestartHook
from headway.core.ids import ReplicaId
from headway.runtime.http import client
from headway.telemetry import Telemetry
from tests.runtime.servers import Reply, serving

Run = Callable[[Any], Any]
A = ReplicaId("r-a")
URL = "http://10.0.0.1:8000"


def called(run: Run, hook: RestartHook, *replicas: ReplicaId) -> Restarter:
    """A hook called for these replicas at once."""

    async def story() -> Restarter:
        async with client() as http:
            restarter = Restarter(hook, http, lambda replica: URL if replica == A else "")
            for replica in replicas:
                restarter(replica, "unreachable")
            await restarter.close(grace_s=10.0)
            return restarter

    return run(story())


def test_places_are_filled_once() -> None:
    command = ["x", "--id={replica}", "{url}/{reason}", "{other}", "{", "a{replica", "}{{replica}}"]
    made = filled(command, ReplicaId("{url}"), "u", "r")
    assert made == ["x", "--id={url}", "u/r", "{other}", "{", "a{replica", "}{{url}}"]


def test_a_command_is_run_with_what_it_needs(run: Run, tmp_path: Path) -> None:
    code = "import sys, pathlib; pathlib.Path(sys.argv[1]).write_text(' '.join(sys.argv[2:]))"
    command = [sys.executable, "-S", "-c", code, str(tmp_path / "said"), "{replica}", "{url}", "{reason}"]
    restarter = called(run, RestartHook(command=command), A, A, ReplicaId("gone"))
    assert (tmp_path / "said").read_text() == f"r-a {URL} unreachable"
    assert (restarter.restarts, restarter.failures) == (1, 0)


def test_a_url_is_posted_to(run: Run) -> None:
    async def story() -> tuple[Restarter, bytes]:
        async with serving({"/restart": Reply(raw=b"HTTP/1.1 204 No Content\r\n\r\n")}) as served, client() as http:
            restarter = Restarter(RestartHook(url=served.url + "/restart"), http, lambda _replica: URL)
            restarter(A, "out_of_memory")
            await restarter.close(grace_s=10.0)
            return restarter, served.heads[0]

    restarter, head = run(story())
    assert (restarter.restarts, restarter.failures) == (1, 0)
    assert head.startswith(b"POST /restart HTTP/1.1\r\n")


@pytest.mark.parametrize(
    "hook",
    [
        RestartHook(command=["/no/such/program"]),
        RestartHook(command=[sys.executable, "-S", "-c", "raise SystemExit(1)"]),
        RestartHook(url="http://127.0.0.1:1/x"),
    ],
)
def test_failures_are_counted_and_shown(run: Run, hook: RestartHook) -> None:
    restarter = called(run, hook, A)
    assert (restarter.restarts, restarter.failures) == (1, 1)
    telemetry = Telemetry()
    watch_restarts(telemetry, restarter)
    page = telemetry.render()
    assert b"\nheadway_restarts_total 1" in page
    assert b"\nheadway_restart_failures_total 1" in page


def test_an_answer_that_is_no_success_is_a_failure(run: Run) -> None:
    async def story() -> Restarter:
        async with serving({}) as served, client() as http:
            restarter = Restarter(RestartHook(url=served.url + "/nowhere"), http, lambda _replica: URL)
            restarter(A, "unreachable")
            await restarter.close(grace_s=10.0)
            return restarter

    assert run(story()).failures == 1


def test_settings_reach_the_brain() -> None:
    section = Degradation(
        levels=False,
        fallback={"large": "small"},
        burst={"curbs": True, "max_tokens": 99, "times": 4.0},
        restart={"command": ["x"], "after_s": 7, "every_s": 70},
    )
    config = from_settings(Settings(degradation=section), find()).config
    assert (config.degrade.levels, config.degrade.fallbacks) == (False, {"large": "small"})
    assert (config.burst.curbs, config.burst.max_tokens, config.burst.enter) == (True, 99, 4.0)
    assert (config.restart.enabled, config.restart.after_s, config.restart.every_s) == (True, 7.0, 70.0)
    assert not from_settings(Settings(), find()).config.restart.enabled


@pytest.mark.parametrize(
    ("section", "words"),
    [
        ({"restart": {"command": ["x"], "url": "http://h/"}}, "one of them"),
        ({"restart": {"url": "ftp://h/"}}, "pattern"),
        ({"fallback": {"m": "m"}}, "cannot stand in for itself"),
        ({"burst": {"times": 1.0}}, "greater than 1"),
    ],
)
def test_what_makes_no_sense_is_refused(section: dict[str, object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Degradation(**section)
