"""What is counted of moves."""

from headway.core.commands import Moved
from headway.core.ids import ReplicaId, RequestId
from headway.telemetry import Telemetry


def moved(result: str, reason: str = "memory", target: str = "b", replayed: int = 0) -> Moved:
    return Moved(1.0, RequestId("r"), ReplicaId("a"), ReplicaId(target), reason, result, replayed)


def page(telemetry: Telemetry) -> str:
    return telemetry.render().decode()


def test_moves_are_counted_by_reason_and_result() -> None:
    telemetry = Telemetry()
    telemetry.record(moved("begun", replayed=70))
    telemetry.record(moved("abandoned", "memory (target: reset)"))
    telemetry.record(moved("failed_over", "truncated", replayed=30))
    told = page(telemetry)
    assert 'headway_migrations_total{reason="memory",result="begun"} 1' in told
    assert 'headway_migrations_total{reason="memory",result="abandoned"} 1' in told
    assert "headway_replayed_tokens_total 100" in told


def test_words_for_operators_are_no_labels() -> None:
    telemetry = Telemetry()
    telemetry.record(moved("refused", "operator (no other replica can go on with it)", target=""))
    telemetry.record(moved("refused", "operator (it is pinned: seed)"))
    telemetry.record(moved("abandoned", "operator (target: cancelled, the target was late)"))
    telemetry.record(moved("begun", "something new"))
    told = page(telemetry)
    assert 'headway_migrations_total{reason="operator",result="refused"} 2' in told
    assert 'headway_migrations_total{reason="operator",result="abandoned"} 1' in told
    assert 'headway_migrations_total{reason="other",result="begun"} 1' in told
    assert told.count("headway_migrations_total{") == 3


def test_gaps_and_pins() -> None:
    telemetry = Telemetry()
    telemetry.moves.gap("cut", 0.02)
    telemetry.moves.gap("resumed", 0.3)
    telemetry.moves.pinned("seed")
    told = page(telemetry)
    assert 'headway_migration_gap_seconds_bucket{kind="cut",le="0.02"} 1' in told
    assert 'headway_migration_gap_seconds_count{kind="resumed"} 1' in told
    assert 'headway_pinned_requests_total{reason="seed"} 1' in told
