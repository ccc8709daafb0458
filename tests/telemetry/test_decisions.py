import msgspec

from headway.core.outcome import OutcomeKind
from headway.telemetry import DecisionLog
from tests.telemetry.values import decision, settled


def test_explains_every_attempt_with_its_outcome() -> None:
    log = DecisionLog()
    log.decided(decision("r1", "a", 1))
    log.decided(decision("r2", "a", 1))
    log.settled(settled("r1", 1, OutcomeKind.RESET))
    log.decided(decision("r1", "b", 2))

    explanation = log.explain("r1")

    assert explanation is not None
    assert [(e.decision.chosen, e.settled and e.settled.outcome.kind) for e in explanation.attempts] == [
        ("a", OutcomeKind.RESET),
        ("b", None),
    ]


def test_accepts_the_id_that_engines_log() -> None:
    log = DecisionLog()
    log.decided(decision("r1"))
    explanation = log.explain("r1-1")
    assert explanation is not None
    assert explanation.request_id == "r1"


def test_accepts_the_clients_own_id_and_means_its_latest_use() -> None:
    log = DecisionLog()
    for ours in ("r1", "r2", "r3"):
        log.decided(decision(ours))
        log.named(("theirs-0" if ours != "r3" else "other", ours))
    explanation = log.explain("theirs-0")
    assert explanation is not None
    assert explanation.request_id == "r2"
    log.named(("theirs-0", "r4"))  # it was refused
    assert log.explain("theirs-0") == explanation


def test_why_a_request_stays_where_it_is() -> None:
    log = DecisionLog()
    log.decided(msgspec.structs.replace(decision("r1"), pinned="seed"))
    explanation = log.explain("r1")
    assert explanation is not None
    assert explanation.pinned == "seed"


def test_unknown_request() -> None:
    assert DecisionLog().explain("r1") is None


def test_forgets_the_oldest() -> None:
    log = DecisionLog(capacity=10)
    for number in range(25):
        log.decided(decision(f"r{number}"))
        log.settled(settled(f"r{number}"))
    assert len(log) == 10
    assert log.explain("r14") is None
    assert log.explain("r15") is not None


def test_latest_comes_first() -> None:
    log = DecisionLog()
    for number in range(5):
        log.decided(decision(f"r{number}"))
    assert [d.request_id for d in log.latest(2)] == ["r4", "r3"]
    assert len(log.latest(50)) == 5
