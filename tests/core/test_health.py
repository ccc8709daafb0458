"""The breaker as a table, and what moves it."""

import itertools

import msgspec
import pytest

from headway.core.commands import Command, Probe, SetTimer, WarmUp
from headway.core.commands import HealthChanged as Changed
from headway.core.constants import HealthConfig
from headway.core.health import BREAKER, NEXT, UNREACHABLE, Health, Phase, Signal
from headway.core.ids import AttemptId, ReplicaId
from headway.core.outcome import VERDICT, Outcome, OutcomeKind, Verdict
from headway.core.view import Breaker
from tests.core.house import entries, only

CONFIG = HealthConfig()


class Patient:
    """A health and its clock."""

    def __init__(self, config: HealthConfig = CONFIG, ramps: bool = True, probed: bool = True) -> None:
        self.health = Health(ReplicaId("a"), config)
        self.now = 100.0
        self.serial = 0
        self.out: list[Command] = []
        self.health.join(self.now, ramps, self.out)
        if probed:
            self.health.probe_succeeded(self.now, self.out)

    def end(self, kind: OutcomeKind, attempt: str = "", sent_at: float | None = None, **facts: float) -> bool:
        self.serial += 1
        name = AttemptId(attempt or f"r{self.serial}-0")
        when = self.now if sent_at is None else sent_at
        return self.health.finished(name, when, Outcome(kind, **facts), self.now, self.out)  # type: ignore[arg-type]

    def fail(self, times: int, kind: OutcomeKind = OutcomeKind.SERVER_ERROR) -> "Patient":
        for _ in range(times):
            self.end(kind)
        return self

    def after(self, seconds: float) -> "Patient":
        self.now += seconds
        return self

    def fire(self) -> bool:
        """The last timer that was set fires when it is due."""
        self.now = only(self.out, SetTimer)[-1].at
        return self.health.timer(self.now, self.out)

    @property
    def phase(self) -> Phase:
        return self.health.phase


def test_the_tables_are_whole() -> None:
    assert set(BREAKER) == set(Phase)
    assert {phase for phase, _ in NEXT} | set(NEXT.values()) == set(Phase)
    assert {signal for _, signal in NEXT} == set(Signal)
    reached, frontier = {Phase.PENDING}, [Phase.PENDING]
    while frontier:
        here = frontier.pop()
        for signal in Signal:
            there = NEXT.get((here, signal))
            if there and there not in reached:
                reached.add(there)
                frontier.append(there)
    assert reached == set(Phase)


def test_pending_until_a_probe_succeeds() -> None:
    patient = Patient(probed=False)
    assert patient.phase is Phase.PENDING
    assert only(patient.out, Probe) == [Probe(ReplicaId("a"))]
    patient.health.probe_failed(patient.now, True, "", patient.out)
    assert patient.phase is Phase.PENDING
    patient.fire()
    assert len(only(patient.out, Probe)) == 2, "it is probed again"
    patient.health.probe_succeeded(patient.now, patient.out)
    assert patient.phase is Phase.CLOSED
    assert patient.health.slow_start(patient.now) == CONFIG.slow_start_floor


def test_a_request_that_succeeds_is_as_good_as_a_probe() -> None:
    patient = Patient(probed=False)
    assert patient.end(OutcomeKind.OK)
    assert patient.phase is Phase.CLOSED


def test_founders_do_not_start_slowly() -> None:
    assert Patient(ramps=False).health.slow_start(100.0) == 1.0


@pytest.mark.parametrize("kind", [k for k, v in VERDICT.items() if v is Verdict.FAILURE])
def test_failures_in_a_row_open(kind: OutcomeKind) -> None:
    patient = Patient()
    at_once = kind in UNREACHABLE | {OutcomeKind.FIRST_BYTE_TIMEOUT, OutcomeKind.OUT_OF_MEMORY}
    patient.fail(1 if at_once else CONFIG.failures - 1, kind)
    assert patient.phase is (Phase.OPEN if at_once else Phase.CLOSED)
    patient.fail(1, kind)
    assert patient.phase is Phase.OPEN
    assert patient.health.ejected
    assert patient.health.breaker is Breaker.OPEN
    assert entries(patient.out, Changed)[-1].state == "open"


@pytest.mark.parametrize(
    ("kind", "dead"),
    [
        (OutcomeKind.CONNECT_FAILED, "unreachable"),
        (OutcomeKind.OUT_OF_MEMORY, "out_of_memory"),
        (OutcomeKind.FIRST_BYTE_TIMEOUT, ""),
        (OutcomeKind.SERVER_ERROR, ""),
    ],
)
def test_an_engine_is_dead_until_it_is_back(kind: OutcomeKind, dead: str) -> None:
    patient = Patient()
    assert patient.health.dead == ""
    patient.fail(CONFIG.failures, kind)
    assert patient.health.dead == dead
    patient.fire()
    assert patient.health.dead == dead, "while it is probed"
    patient.health.probe_succeeded(patient.now, patient.out)
    patient.health.dispatched(AttemptId("trial-0"))
    patient.end(OutcomeKind.OK, "trial-0")
    assert patient.health.dead == ""


@pytest.mark.parametrize("kind", [k for k, v in VERDICT.items() if v is not Verdict.FAILURE])
def test_nothing_else_opens(kind: OutcomeKind) -> None:
    assert Patient().fail(50, kind).phase is Phase.CLOSED


def test_a_success_between_starts_the_row_anew() -> None:
    patient = Patient()
    for _ in range(2):
        patient.fail(CONFIG.failures - 1)
        patient.end(OutcomeKind.OK)
    assert patient.phase is Phase.CLOSED


def test_a_bad_rate_opens_without_a_row() -> None:
    patient = Patient()
    for _ in range(6):
        patient.end(OutcomeKind.OK)
        patient.fail(2)
    assert patient.phase is Phase.OPEN


def test_the_window_slides() -> None:
    patient = Patient()
    for _ in range(200):
        patient.fail(1)
        patient.end(OutcomeKind.OK)
        patient.end(OutcomeKind.OK)
    assert patient.phase is Phase.CLOSED


def test_backpressure_is_avoided_for_a_moment() -> None:
    patient = Patient()
    assert patient.end(OutcomeKind.BACKPRESSURE, retry_after_s=2.0)
    assert patient.health.avoid_until == patient.now + 2.0
    patient.end(OutcomeKind.BACKPRESSURE)
    assert patient.health.avoid_until == patient.now + 2.0, "never shortened"
    patient.end(OutcomeKind.BACKPRESSURE, retry_after_s=3600.0)
    assert patient.health.avoid_until == patient.now + CONFIG.avoid_max_s
    assert not patient.health.ejected


def opened(kind: OutcomeKind = OutcomeKind.SERVER_ERROR) -> Patient:
    return Patient().fail(CONFIG.failures, kind)


def test_after_its_time_it_is_probed_and_then_tried_once() -> None:
    patient = opened()
    assert not patient.health.timer(patient.now + CONFIG.open_s - 0.01, patient.out), "too early: an outdated timer"
    assert patient.fire()
    assert patient.phase is Phase.PROBING
    assert patient.health.ejected
    assert only(patient.out[-3:], Probe)
    patient.health.probe_succeeded(patient.now, patient.out)
    assert patient.phase is Phase.TRIAL
    assert not patient.health.ejected
    assert patient.health.dispatched(AttemptId("t-0"))
    assert patient.health.ejected, "exactly one"
    assert not patient.health.dispatched(AttemptId("u-0"))
    assert patient.end(OutcomeKind.OK, "t-0")
    assert patient.phase is Phase.CLOSED
    assert patient.health.slow_start(patient.now) == CONFIG.slow_start_floor
    assert patient.health.slow_start(patient.now + CONFIG.slow_start_s / 2) == 0.5
    assert patient.health.slow_start(patient.now + CONFIG.slow_start_s) == 1.0


def on_trial() -> Patient:
    patient = opened()
    patient.fire()
    patient.health.probe_succeeded(patient.now, patient.out)
    patient.health.dispatched(AttemptId("t-0"))
    return patient.after(0.1)


def test_the_first_token_of_the_trial_is_enough() -> None:
    patient = on_trial()
    assert not patient.health.answered(AttemptId("u-0"), patient.now, patient.out)
    assert patient.health.answered(AttemptId("t-0"), patient.now, patient.out)
    assert patient.phase is Phase.CLOSED


def test_a_trial_that_said_nothing_is_repeated() -> None:
    patient = on_trial()
    assert patient.end(OutcomeKind.CLIENT_CLOSED, "t-0")
    assert patient.phase is Phase.TRIAL
    assert not patient.health.ejected


def test_backpressure_on_trial_is_life() -> None:
    patient = on_trial()
    patient.end(OutcomeKind.BACKPRESSURE, "t-0")
    assert patient.phase is Phase.CLOSED
    assert patient.health.avoid_until > patient.now


def test_a_failed_trial_opens_for_longer() -> None:
    patient = on_trial()
    assert patient.end(OutcomeKind.SERVER_ERROR, "t-0")
    assert patient.phase is Phase.OPEN
    assert only(patient.out, SetTimer)[-1].at == patient.now + 2 * CONFIG.open_s


def test_open_time_is_bounded_and_forgiven() -> None:
    patient = opened()
    for _ in range(12):
        patient.fire()
        patient.health.probe_failed(patient.now, False, "500", patient.out)
        assert patient.phase is Phase.OPEN
    assert only(patient.out, SetTimer)[-1].at == patient.now + CONFIG.open_max_s
    patient.fire()
    patient.health.probe_succeeded(patient.now, patient.out)
    patient.health.dispatched(AttemptId("t-0"))
    patient.end(OutcomeKind.OK, "t-0")
    patient.after(CONFIG.forgive_s).fail(CONFIG.failures)
    assert only(patient.out, SetTimer)[-1].at == patient.now + CONFIG.open_s


def test_a_probe_that_is_never_answered_counts_as_failed() -> None:
    patient = opened()
    patient.fire()
    assert patient.fire()
    assert patient.phase is Phase.OPEN


def test_being_reached_is_proof_enough_for_the_unreachable() -> None:
    patient = Patient().fail(1, OutcomeKind.CONNECT_FAILED)
    assert patient.health.unreachable
    patient.fire()
    patient.health.probe_succeeded(patient.now, patient.out)
    assert patient.phase is Phase.CLOSED
    assert not patient.health.unreachable
    assert patient.health.slow_start(patient.now) < 1.0


def test_late_news_of_the_past_is_ignored() -> None:
    patient = Patient().fail(1, OutcomeKind.CONNECT_FAILED).after(1.0)
    before = patient.now - 1.5
    assert not patient.end(OutcomeKind.OK, sent_at=before)
    assert patient.phase is Phase.OPEN
    patient.fire()
    patient.health.probe_succeeded(patient.now, patient.out)
    for _ in range(10):
        assert not patient.end(OutcomeKind.IDLE_TIMEOUT, sent_at=before)
    assert patient.phase is Phase.CLOSED


def test_an_open_breaker_stays_open_whatever_still_arrives() -> None:
    patient = opened().after(0.1)
    for kind in OutcomeKind:
        patient.end(kind)
    patient.health.probe_succeeded(patient.now, patient.out)
    assert patient.phase is Phase.OPEN
    assert only(patient.out, SetTimer)[-1].at == pytest.approx(patient.now - 0.1 + CONFIG.open_s)


def test_probes_that_fail_open_too() -> None:
    patient = Patient()
    for _ in range(CONFIG.probe_failures - 1):
        assert not patient.health.probe_failed(patient.now, False, "", patient.out)
    patient.health.probe_succeeded(patient.now, patient.out)
    for _ in range(CONFIG.probe_failures - 1):
        assert not patient.health.probe_failed(patient.now, False, "", patient.out)
    assert patient.health.probe_failed(patient.now, False, "", patient.out)
    assert patient.phase is Phase.OPEN
    assert not patient.health.unreachable


def test_a_refused_probe_opens_at_once() -> None:
    patient = Patient()
    assert patient.health.probe_failed(patient.now, True, "", patient.out)
    assert entries(patient.out, Changed)[-1].reason == "connection refused"
    assert patient.health.unreachable


def test_flapping_sends_one_probe_per_interval() -> None:
    """However many failures arrive, an open breaker asks once per interval."""
    patient = opened(OutcomeKind.CONNECT_FAILED)
    probes = len(only(patient.out, Probe))
    for _ in itertools.repeat(None, 5):
        patient.fail(20, OutcomeKind.CONNECT_FAILED)
        patient.fire()
        patient.fail(20, OutcomeKind.CONNECT_FAILED)
        patient.health.probe_failed(patient.now, True, "", patient.out)
    assert len(only(patient.out, Probe)) == probes + 5


def test_slow_start_can_be_switched_off() -> None:
    assert Patient(HealthConfig(slow_start_s=0.0)).health.slow_start(100.0) == 1.0


def test_the_unreachable_return_with_the_first_probe_that_reaches_them() -> None:
    patient = Patient()
    patient.end(OutcomeKind.CONNECT_FAILED)
    assert patient.phase is Phase.OPEN
    patient.health.probe_succeeded(patient.now + 0.1, patient.out)  # may have been under way when it died
    assert patient.phase is Phase.OPEN
    patient.after(CONFIG.open_s)
    assert patient.health.probe_succeeded(patient.now, patient.out)
    assert patient.phase is Phase.CLOSED
    assert patient.health.slow_start(patient.now) == CONFIG.slow_start_floor


def test_one_that_answers_with_errors_stays_out_for_its_whole_time() -> None:
    patient = Patient().fail(CONFIG.failures)
    patient.after(CONFIG.open_s * 10)
    assert not patient.health.probe_succeeded(patient.now, patient.out)
    assert patient.phase is Phase.OPEN


WARMING = msgspec.structs.replace(CONFIG, warm_up=True)


def warmed(patient: Patient, times: int = 1) -> bool:
    """It was asked to warm up so often, and for nothing else since."""
    asked = [command for command in patient.out if isinstance(command, Probe | WarmUp)]
    return isinstance(asked[-1], WarmUp) and len(only(asked, WarmUp)) == times


def test_a_replica_generates_for_us_before_it_does_for_clients() -> None:
    patient = Patient(WARMING)
    assert patient.phase is Phase.PENDING, "it listens, and that is not enough"
    assert warmed(patient)
    assert only(patient.out, SetTimer)[-1].at == patient.now + WARMING.warm_up_timeout_s
    assert patient.after(3.0).health.probe_succeeded(patient.now, patient.out)
    assert patient.phase is Phase.CLOSED
    assert patient.health.slow_start(patient.now) == CONFIG.slow_start_floor


def test_a_warm_up_that_fails_is_tried_again_after_the_next_probe() -> None:
    patient = Patient(WARMING)
    for tries in range(2, WARMING.warm_up_tries + 1):
        patient.health.probe_failed(patient.now, False, "status 500", patient.out)
        assert only(patient.out, SetTimer)[-1].at == patient.now + CONFIG.pending_probe_s
        patient.fire()
        patient.health.probe_succeeded(patient.now, patient.out)
        assert warmed(patient, tries)
    patient.health.probe_failed(patient.now, False, "status 500", patient.out)
    patient.fire()
    assert patient.health.probe_succeeded(patient.now, patient.out)
    assert patient.phase is Phase.CLOSED, "our request may be what is wrong"


def test_a_warm_up_that_nobody_heard_of_is_tried_again() -> None:
    patient = Patient(WARMING)
    patient.fire()
    assert isinstance(patient.out[-2], Probe)
    patient.health.probe_succeeded(patient.now, patient.out)
    assert warmed(patient, 2)


def test_where_nobody_listens_our_request_is_not_to_blame() -> None:
    patient = Patient(WARMING)
    for tries in range(2, 10):
        patient.health.probe_failed(patient.now, True, "", patient.out)
        patient.fire()
        patient.health.probe_succeeded(patient.now, patient.out)
        assert warmed(patient, tries)


def test_a_replica_that_comes_back_from_the_dead_is_warmed_up_first() -> None:
    patient = Patient(WARMING)
    patient.health.probe_succeeded(patient.now, patient.out)
    patient.fail(1, OutcomeKind.CONNECT_FAILED)
    patient.fire()
    assert patient.phase is Phase.PROBING
    assert warmed(patient, 2)
    patient.health.probe_failed(patient.now, True, "", patient.out)
    assert patient.phase is Phase.OPEN
    patient.after(CONFIG.open_s).health.probe_succeeded(patient.now, patient.out)
    assert patient.phase is Phase.PROBING, "a probe of the usual round found it: it need not wait, but is cold"
    assert warmed(patient, 3)
    patient.health.probe_succeeded(patient.now, patient.out)
    assert patient.phase is Phase.CLOSED


def test_one_that_failed_but_was_there_is_not() -> None:
    patient = Patient(WARMING)
    patient.health.probe_succeeded(patient.now, patient.out)
    patient.fail(CONFIG.failures)
    patient.fire()
    assert patient.phase is Phase.PROBING
    assert len(only(patient.out, WarmUp)) == 1
    patient.health.probe_succeeded(patient.now, patient.out)
    assert patient.phase is Phase.TRIAL


def test_a_replica_that_never_warms_up_comes_back_all_the_same() -> None:
    patient = Patient(WARMING)
    patient.health.probe_succeeded(patient.now, patient.out)
    patient.fail(1, OutcomeKind.CONNECT_FAILED)
    for _ in range(WARMING.warm_up_tries):
        patient.fire()
        assert patient.phase is Phase.PROBING
        patient.fire()
        assert patient.phase is Phase.OPEN, "nothing was heard of the warm-up"
    patient.fire()
    patient.health.probe_succeeded(patient.now, patient.out)
    assert patient.phase is Phase.CLOSED
    patient.health.probe_succeeded(patient.now, patient.out)
    assert patient.phase is Phase.CLOSED


@pytest.mark.parametrize(("woke", "seconds"), [(True, CONFIG.wake_start_s), (False, CONFIG.slow_start_s)])
@pytest.mark.parametrize("config", [CONFIG, WARMING])
def test_an_engine_that_woke_or_was_started_anew_starts_slowly(
    config: HealthConfig, woke: bool, seconds: float
) -> None:
    patient = Patient(config, ramps=False)
    patient.health.probe_succeeded(patient.now, patient.out)
    assert patient.phase is Phase.CLOSED
    patient.after(100.0)
    assert patient.health.slow_start(patient.now) == 1.0
    assert patient.health.cooled(patient.now, woke, patient.out)
    if config.warm_up:
        assert patient.phase is Phase.PENDING
        patient.after(4.0).health.probe_succeeded(patient.now, patient.out)
    assert patient.phase is Phase.CLOSED
    assert patient.health.slow_start(patient.now) == CONFIG.slow_start_floor
    assert patient.health.slow_start(patient.now + seconds / 2) == pytest.approx(0.5)
    assert patient.health.slow_start(patient.now + seconds) == 1.0


def test_one_that_wakes_while_it_is_out_of_use_starts_slowly_once_it_is_back() -> None:
    patient = Patient(ramps=False, probed=False)
    assert not patient.health.cooled(patient.now, True, patient.out)
    patient.health.probe_succeeded(patient.now, patient.out)
    assert patient.health.slow_start(patient.now + CONFIG.wake_start_s / 2) == pytest.approx(0.5)


def test_without_a_ramp_there_is_none() -> None:
    patient = Patient(msgspec.structs.replace(CONFIG, slow_start_s=0.0))
    assert patient.health.slow_start(patient.now) == 1.0
