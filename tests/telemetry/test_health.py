"""What an operator reads about replicas that leave and return."""

import pytest
from structlog.testing import capture_logs

from headway.core.commands import HealthChanged, LevelChanged
from headway.core.degrade import Level
from headway.core.health import Phase
from headway.core.ids import ReplicaId
from headway.telemetry import Telemetry
from headway.telemetry.health import LEVELS, NEWS, HealthNews


@pytest.mark.parametrize(
    ("replica", "state", "level", "words"),
    [
        ("a:1", "open", "warning", "replica taken out of use"),
        ("a:1", "closed", "info", "replica in use"),
        ("a:1", "probing", "debug", "replica probing"),
        ("", "panic", "warning", NEWS["panic"][1]),
    ],
)
def test_every_change_is_told_with_its_reason(replica: str, state: str, level: str, words: str) -> None:
    with capture_logs() as lines:
        Telemetry().record(HealthChanged(1.0, ReplicaId(replica), state, "connect_failed"))
    about = {"replica": replica} if replica else {}
    assert lines == [{"log_level": level, "event": words, "reason": "connect_failed", **about}]


def test_a_replica_that_stays_out_is_told_once() -> None:
    telemetry = Telemetry()
    states = ["open", "probing", "open", "probing", "open", "probing", "closed", "open"]
    with capture_logs() as lines:
        for number, state in enumerate(states):
            telemetry.record(HealthChanged(float(number), ReplicaId("a:1"), state, "refused"))
    told = [line["event"] for line in lines if line["log_level"] != "debug"]
    assert told == ["replica taken out of use", "replica in use", "replica taken out of use"]


def test_replicas_that_left_are_forgotten() -> None:
    news = HealthNews()
    out = HealthChanged(1.0, ReplicaId("a:1"), "open", "refused")
    with capture_logs() as lines:
        news.tell(out)
        news.keep({ReplicaId("b:1")})
        news.tell(out)
    assert [line["log_level"] for line in lines] == ["warning", "warning"]


def test_the_words_are_for_states_that_exist() -> None:
    assert set(NEWS) <= {str(phase) for phase in Phase} | {"panic", "calm"}


@pytest.mark.parametrize("level", list(Level))
def test_every_level_is_told_with_what_is_behind_it(level: Level) -> None:
    with capture_logs() as lines:
        Telemetry().record(LevelChanged(1.0, "m", int(level), True, 0.93456))
    severity, words = LEVELS[level]
    about = {"model": "m", "level": int(level), "burst": True, "saturation": 0.935}
    assert lines == [{"log_level": severity, "event": words, **about}]
