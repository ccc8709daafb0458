"""Each alarm is raised once."""

from structlog.testing import capture_logs

from headway.core.ids import ReplicaId
from headway.observe.alarms import Alarms


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
    alarms = Alarms(ReplicaId("r"))
    with capture_logs() as logs:
        alarms.trouble("frozen")
        alarms.trouble("frozen")
        alarms.over("frozen")
        alarms.trouble("frozen")
    assert len(logs) == alarms.total == 2
