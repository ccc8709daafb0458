"""Each alarm is raised once."""

from structlog.testing import capture_logs

from headway.core.ids import ReplicaId
from headway.observe.alarms import AGAIN_S, Alarms


def test_a_missing_gauge_is_told_once_until_the_next_boot() -> None:
    alarms = Alarms(ReplicaId("r"))
    with capture_logs() as logs:
        for _ in range(100):
            alarms.check(("a", "b"))
        alarms.forget()
        alarms.check(("a",))
    assert [(entry["gauge"], entry["replica"]) for entry in logs] == [("a", "r"), ("b", "r"), ("a", "r")]
    assert alarms.total == 3


def test_trouble_is_news_again_after_it_was_over() -> None:
    at = 0.0
    alarms = Alarms(ReplicaId("r"), lambda: at)
    with capture_logs() as logs:
        alarms.trouble("frozen")
        alarms.trouble("frozen")
        alarms.over("frozen")
        at = AGAIN_S
        alarms.trouble("frozen")
    assert len(logs) == alarms.total == 2


def test_trouble_that_comes_and_goes_floods_no_log() -> None:
    at = 5.0
    alarms = Alarms(ReplicaId("r"), lambda: at)
    with capture_logs() as logs:
        for _ in range(100):
            alarms.trouble("mute")
            alarms.over("mute")
            at += AGAIN_S / 50
    assert (len(logs), alarms.total) == (2, 100)
