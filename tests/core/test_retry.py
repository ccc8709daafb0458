"""What is tried again, how often, and what is said when it is not."""

import pytest

from headway.core.constants import RetryConfig
from headway.core.entries import Tries
from headway.core.ids import ReplicaId
from headway.core.outcome import Outcome, OutcomeKind
from headway.core.retry import FINAL, RULES, UNTOUCHED, Retries, Rule, answer

A, B, C = ReplicaId("a"), ReplicaId("b"), ReplicaId("c")


def allows(kind: OutcomeKind, tries: Tries | None = None, withdrawn: bool = False, **facts: bool) -> Rule:
    return Retries().allows(tries or Tries(made=1, counted=1), Outcome(kind, **facts), withdrawn, 10)  # type: ignore[arg-type]


def test_the_table_is_whole() -> None:
    assert set(RULES) == set(OutcomeKind)
    assert all(RULES[kind] is Rule.NEVER for kind in FINAL)


@pytest.mark.parametrize("kind", list(OutcomeKind))
def test_the_first_failure_follows_the_table(kind: OutcomeKind) -> None:
    assert allows(kind) is RULES[kind]


@pytest.mark.parametrize("kind", list(OutcomeKind))
def test_never_after_a_byte_reached_the_client(kind: OutcomeKind) -> None:
    assert allows(kind, committed=True) is Rule.NEVER
    assert allows(kind, withdrawn=True, committed=True) is Rule.NEVER


@pytest.mark.parametrize("kind", list(OutcomeKind))
def test_two_counted_attempts_are_all(kind: OutcomeKind) -> None:
    rule = allows(kind, Tries(made=2, counted=2, free_used=True), sent=True)
    assert rule is Rule.NEVER


@pytest.mark.parametrize("kind", sorted(UNTOUCHED))
def test_what_was_never_sent_is_bound_by_all_tries_only(kind: OutcomeKind) -> None:
    retries, outcome = Retries(), Outcome(kind)
    for _ in range(50):
        retries.sent(Tries(), retry=True, free=False)
    assert retries.allows(Tries(made=4, counted=4), outcome, False, 5) is Rule.ELSEWHERE
    assert retries.allows(Tries(made=5, counted=5), outcome, False, 5) is Rule.NEVER


def test_a_stale_connection_is_free_once() -> None:
    tries = Tries(made=2, counted=2)
    assert allows(OutcomeKind.STALE_CONNECTION, tries) is Rule.ANYWHERE_ONCE_FREE
    assert allows(OutcomeKind.STALE_CONNECTION, Tries(made=2, counted=1, free_used=True)) is Rule.ELSEWHERE


def test_what_we_withdrew_is_retried_but_not_for_ever() -> None:
    assert allows(OutcomeKind.CANCELLED, Tries(made=2, counted=2), withdrawn=True) is Rule.ELSEWHERE
    assert allows(OutcomeKind.CANCELLED, Tries(made=5, counted=1), withdrawn=True) is Rule.NEVER
    assert allows(OutcomeKind.CANCELLED) is Rule.NEVER


def test_the_budget_bounds_retries_in_flight() -> None:
    retries = Retries()
    outcome = Outcome(OutcomeKind.RESET)
    running = [Tries() for _ in range(20)]
    for tries in running[:3]:
        assert retries.allows(Tries(made=1, counted=1), outcome, False, 5) is Rule.ELSEWHERE
        retries.sent(tries, retry=True, free=False)
    assert retries.allows(Tries(made=1, counted=1), outcome, False, 5) is Rule.NEVER, "three at least, and no more"
    assert retries.allows(Tries(made=1, counted=1), outcome, False, 20) is Rule.ELSEWHERE, "a fifth of those active"
    retries.ended(running[0])
    retries.ended(running[0])
    assert retries.in_flight == 2
    assert retries.allows(Tries(made=1, counted=1), outcome, False, 5) is Rule.ELSEWHERE


def test_free_tries_cost_neither_attempt_nor_budget() -> None:
    retries, tries = Retries(), Tries()
    retries.sent(tries, retry=False, free=False)
    retries.sent(tries, retry=False, free=True)
    assert (tries.made, tries.counted, retries.in_flight) == (2, 1, 0)


DEATH = Outcome(OutcomeKind.RESET, sent=True)


def test_a_body_that_killed_two_replicas_is_quarantined() -> None:
    retries, tries = Retries(), Tries()
    retries.judge(7, tries, A, DEATH, 10.0)
    assert retries.quarantined_s(7, 10.0) == 0.0
    retries.judge(7, tries, A, DEATH, 11.0)
    assert retries.quarantined_s(7, 11.0) == 0.0, "one replica, however often"
    retries.judge(7, tries, B, DEATH, 12.0)
    assert retries.quarantined_s(7, 12.0) == RetryConfig().quarantine_s
    assert retries.quarantined_s(7, 12.0 + RetryConfig().quarantine_s) == 0.0
    assert retries.quarantined_s(8, 12.0) == 0.0
    assert retries.allows(Tries(made=2, counted=1, deaths=tries.deaths), DEATH, False, 10) is Rule.NEVER


def test_kills_of_several_requests_with_one_body_add_up() -> None:
    retries = Retries()
    retries.judge(7, Tries(), A, DEATH, 10.0)
    retries.judge(7, Tries(), B, Outcome(OutcomeKind.TRUNCATED, sent=True), 11.0)
    assert retries.quarantined_s(7, 12.0) > 0.0


def test_suspicion_fades() -> None:
    retries = Retries()
    retries.judge(7, Tries(), A, DEATH, 10.0)
    retries.judge(7, Tries(), B, DEATH, 10.0 + RetryConfig().quarantine_s)
    assert retries.quarantined_s(7, 10.0 + RetryConfig().quarantine_s) == 0.0


def test_a_success_clears_a_body() -> None:
    retries = Retries()
    retries.judge(7, Tries(), A, DEATH, 10.0)
    retries.judge(7, Tries(), C, Outcome(OutcomeKind.OK, sent=True), 11.0)
    retries.judge(7, Tries(), B, DEATH, 12.0)
    assert retries.quarantined_s(7, 12.0) == 0.0


def test_a_refusal_kills_only_who_had_been_sent_something() -> None:
    for sent in (False, True):
        retries = Retries()
        for replica in (A, B):
            retries.judge(7, Tries(), replica, Outcome(OutcomeKind.CONNECT_FAILED, sent=sent), 10.0)
        assert bool(retries.quarantined_s(7, 10.0)) is sent


def test_a_stale_connection_accuses_only_together_with_a_kill() -> None:
    retries, tries = Retries(), Tries()
    stale = Outcome(OutcomeKind.STALE_CONNECTION, sent=True)
    for replica in (A, B):
        retries.judge(7, Tries(), replica, stale, 10.0)
    assert retries.quarantined_s(7, 10.0) == 0.0
    retries.judge(7, tries, A, stale, 10.0)
    retries.judge(7, tries, B, DEATH, 10.0)
    assert retries.quarantined_s(7, 10.0) > 0.0


@pytest.mark.parametrize(
    "outcome",
    [
        Outcome(OutcomeKind.RESET),
        Outcome(OutcomeKind.TRUNCATED, sent=True, output_tokens=3),
        Outcome(OutcomeKind.SERVER_ERROR, sent=True, status=500),
        Outcome(OutcomeKind.CLIENT_CLOSED, sent=True),
    ],
)
def test_other_ends_are_no_kills(outcome: Outcome) -> None:
    retries = Retries()
    for replica in (A, B, C):
        retries.judge(7, Tries(), replica, outcome, 10.0)
    assert retries.quarantined_s(7, 10.0) == 0.0


def test_requests_without_a_fingerprint_are_not_confused() -> None:
    retries = Retries()
    for replica in (A, B, C):
        retries.judge(0, Tries(), replica, DEATH, 10.0)
    assert retries.quarantined_s(0, 10.0) == 0.0


def test_suspects_are_bounded() -> None:
    retries = Retries(RetryConfig(suspects=3))
    for fingerprint in range(1, 6):
        for replica in (A, B):
            retries.judge(fingerprint, Tries(), replica, DEATH, 10.0)
    assert [retries.quarantined_s(i, 10.0) > 0 for i in range(1, 6)] == [False, False, True, True, True]


@pytest.mark.parametrize(
    ("kind", "status", "code"),
    [
        (OutcomeKind.CONNECT_FAILED, 503, "no_replica"),
        (OutcomeKind.CONNECT_TIMEOUT, 503, "no_replica"),
        (OutcomeKind.NO_RESOURCES, 503, "overloaded"),
        (OutcomeKind.CANCELLED, 503, "no_replica"),
        (OutcomeKind.FIRST_BYTE_TIMEOUT, 504, "upstream_failed"),
        (OutcomeKind.IDLE_TIMEOUT, 504, "upstream_failed"),
        (OutcomeKind.ENGINE_ABORT, 503, "upstream_failed"),
        (OutcomeKind.RESET, 502, "upstream_failed"),
        (OutcomeKind.BAD_RESPONSE, 502, "upstream_failed"),
    ],
)
def test_our_own_words_are_of_the_5xx_class(kind: OutcomeKind, status: int, code: str) -> None:
    said = answer(Outcome(kind, detail="10.0.0.1:8000 refused"))
    assert (said.status, said.code, said.shed) == (status, code, kind is OutcomeKind.NO_RESOURCES)
    assert "10.0.0.1" not in said.message


def test_timeouts_name_their_cause() -> None:
    assert "first_byte" in answer(Outcome(OutcomeKind.FIRST_BYTE_TIMEOUT)).message
    assert "idle" in answer(Outcome(OutcomeKind.IDLE_TIMEOUT)).message
