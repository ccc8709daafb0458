"""Events in, commands out: the life of a request in every variant, and what happens to replicas around it."""

import msgspec
import pytest

from headway.core.brain import Brain
from headway.core.commands import Abort, Command, Dispatch, HealthChanged, Hold, Probe, Reject, Relay, SetTimer, Settled
from headway.core.constants import AdmissionConfig, BrainConfig, HealthConfig, SchedulerConfig
from headway.core.events import (
    DrainAsked,
    Event,
    FirstToken,
    ProbeFailed,
    ProbeSucceeded,
    ReplicasChanged,
    RequestCancelled,
    TenantsChanged,
    TimerFired,
)
from headway.core.ids import AttemptId, ReplicaId, RequestId
from headway.core.outcome import OutcomeKind
from headway.core.tenant import Tenant
from headway.core.view import Breaker
from tests.core.house import FewestInFlight, Fixed, House, decision, entries, only, sent_to, spec
from tests.core.storm import Storm

A, B, C = ReplicaId("a"), ReplicaId("b"), ReplicaId("c")


def rejected(commands: list[Command]) -> Reject:
    (found,) = only(commands, Reject)
    return found


def ready(*names: str, policy: object | None = None, config: BrainConfig | None = None, **facts: object) -> House:
    house = House(policy, config)
    house.add(*(names or ("a", "b")), **facts)
    return house


# -- arrivals


def test_an_arrival_is_dispatched_and_explained() -> None:
    house = ready("a")
    commands = house.ask("r")
    assert isinstance(commands[0], Dispatch)
    assert commands[0] == Dispatch(RequestId("r"), AttemptId("r-0"), A, "m")
    made = decision(commands)
    assert (made.chosen, made.policy, made.attempt, made.forecast.prompt_tokens) == (A, "fewest", 0, 100)
    assert only(commands, SetTimer) == [SetTimer("degrade:", 1.0)]
    assert len(commands) == 3


def test_the_engine_hears_its_own_name_for_the_model() -> None:
    house = House()
    house.add("a", serves={"small": "org/small-v2"})
    (dispatch,) = only(house.ask("r", model="small"), Dispatch)
    assert dispatch.model == "org/small-v2"


def test_load_is_counted_at_dispatch() -> None:
    """40 at once, no answer yet: nobody gets everything."""
    house = ready("a", "b", "c", "d")
    picked = [sent_to(house.ask(f"r{i}")) for i in range(40)]
    assert {picked.count(name) for name in "abcd"} == {10}


@pytest.mark.parametrize("model", ["typo", "M", " m ", "", "../m", "м"])
def test_an_unknown_model_is_not_found(model: str) -> None:
    refusal = rejected(ready().ask("r", model=model))
    assert (refusal.status, refusal.code, refusal.shed) == (404, "model_not_found", False)


def test_a_fleet_without_any_replica_says_later_and_not_never() -> None:
    """Engines that are asked what they are, or still load: nobody can say which models there will be."""
    refusal = rejected(House().ask("r", model="m"))
    assert (refusal.status, refusal.code) == (503, "no_replica")
    assert refusal.retry_after_s >= 1.0


def test_a_model_that_the_tenant_may_not_use_does_not_exist_either() -> None:
    """In the same words, whatever else is asked for: which of the two it is is not told."""
    house = ready("a")
    house.tell(TenantsChanged(house.now, (Tenant("t", models=("other",)), Tenant("u", models=("m",)))))
    for more in ({}, {"policy": "odd"}, {"precision_floor": "odd"}, {"deadline": -1.0}):
        there, absent = (
            rejected(house.ask("r", tenant="t", model=model, **more))  # type: ignore[arg-type]
            for model in ("m", "n")
        )
        assert (there.status, there.code, there.shed) == (404, "model_not_found", False)
        assert there.message == absent.message.replace("`n`", "`m`")
        assert msgspec.structs.replace(there, message="") == msgspec.structs.replace(absent, message="")
    assert sent_to(house.ask("r", tenant="u"))
    assert sent_to(house.ask("s", tenant="another"))


def test_the_message_does_not_repeat_a_huge_name() -> None:
    assert len(rejected(ready().ask("r", model="x" * 10**6)).message) < 400


def test_a_known_model_without_a_replica_is_503() -> None:
    house = ready("a")
    house.tell(DrainAsked(house.now, A))
    refusal = rejected(house.ask("r"))
    assert (refusal.status, refusal.code) == (503, "no_replica")
    assert refusal.retry_after_s >= 1.0


def test_a_prompt_that_fits_nowhere_is_refused_by_its_limit() -> None:
    house = ready("a", "b", max_model_tokens=1000)
    refusal = rejected(house.ask("r", prompt_tokens=1000))
    assert (refusal.status, refusal.code) == (400, "context_length_exceeded")
    assert "1000 tokens" in refusal.message
    assert sent_to(house.ask("s", prompt_tokens=999))
    assert sent_to(house.ask("t", prompt_tokens=1000, generates=False)), "nothing is generated"


def test_an_estimate_refuses_nobody() -> None:
    house = ready("a", max_model_tokens=1000)
    assert sent_to(house.ask("r", prompt_tokens=0, prompt_bytes=8000)), "2,000 tokens by guess, certainly not by proof"


def test_too_small_replicas_are_passed_by() -> None:
    house = House()
    house.add("a", max_model_tokens=500)
    house.add("b", max_model_tokens=5000)
    commands = house.ask("r", prompt_tokens=2000)
    assert sent_to(commands) == B
    assert decision(commands).exclusions == {"too_small": 1}


def test_a_passed_deadline_is_refused() -> None:
    house = ready().wait(10.0)
    assert rejected(house.ask("r", deadline=10.0)).code == "deadline"
    assert sent_to(house.ask("s", deadline=10.5))


def test_an_id_in_use_is_ignored() -> None:
    house = ready()
    house.ask("r")
    assert house.ask("r") == []
    assert house.brain.ignored == 1


def test_nothing_but_never_is_no_replica_to_wait_for() -> None:
    house = ready("a", policy=Fixed({}))
    assert only(house.ask("r"), Hold)


# -- the memory hold


def tight(binds_late: bool = True, **admission: float) -> House:
    """One replica of 1,000 tokens. In order of arrival, unless told otherwise."""
    admission.setdefault("order", False)
    config = BrainConfig(admission=AdmissionConfig(**admission))  # type: ignore[arg-type]
    return ready("a", policy=FewestInFlight(binds_late), config=config, kv_capacity_tokens=1000)


def ask(house: House, name: str, tokens: int = 400, **facts: object) -> list[Command]:
    """A request whose memory is known: it generates nothing."""
    return house.ask(name, prompt_tokens=tokens, generates=False, **facts)


def test_who_does_not_fit_is_held_and_goes_when_there_is_room() -> None:
    house = tight()
    assert sent_to(ask(house, "r")) == A
    assert sent_to(ask(house, "s")) == A
    commands = ask(house, "t")
    assert only(commands, Hold) == [Hold(RequestId("t"), 1)]
    assert only(commands, SetTimer) == [SetTimer("queue:m", 30.0)]
    assert only(ask(house, "u"), Hold) == [Hold(RequestId("u"), 2)]
    assert house.brain.queue_positions() == {"t": 1, "u": 2}
    assert house.brain.snapshot(house.now).queued == 2
    house.wait(1.5)
    released = house.end("r-0")
    assert [d.request_id for d in only(released, Dispatch)] == ["t"]
    assert decision(released).queued_s == 1.5
    assert only(house.end("s-0"), Dispatch)[0].request_id == "u"
    assert house.brain.queue_positions() == {}


def test_a_policy_that_binds_early_never_holds() -> None:
    house = tight(binds_late=False)
    assert all(sent_to(ask(house, f"r{i}")) for i in range(9))


def test_an_idle_replica_is_never_a_reason_to_wait() -> None:
    assert sent_to(ask(tight(), "r", tokens=50_000_000)) is None, "a proof, though, is"
    house = House(FewestInFlight(binds_late=True))
    house.add("a", kv_capacity_tokens=1000)
    assert sent_to(house.ask("r", prompt_tokens=0, prompt_bytes=8000)) == A


def test_missing_data_is_never_a_reason_to_wait() -> None:
    house = ready("a", policy=FewestInFlight(binds_late=True))
    assert all(sent_to(ask(house, f"r{i}", tokens=10**6)) for i in range(9))


def test_frozen_reports_that_claim_a_full_pool_do_not_block() -> None:
    house = tight()
    house.report("a", kv_capacity_tokens=1000, kv_used_tokens=990, running=9, waiting=0)
    assert only(ask(house, "r"), Hold), "full, says a fresh report"
    house.wait(3.0)
    assert [d.request_id for d in only(house.tell(TimerFired(house.now, "queue:m")), Dispatch)] == ["r"]


def test_a_sample_that_shows_room_releases() -> None:
    house = tight()
    house.report("a", kv_capacity_tokens=1000, kv_used_tokens=900, running=2, waiting=0)
    assert only(ask(house, "r"), Hold)
    house.wait(0.5)
    assert house.report("a", kv_used_tokens=900, running=2, waiting=0) == []
    house.wait(0.5)
    assert sent_to(house.report("a", kv_used_tokens=0, running=0, waiting=0)) == A


def test_smaller_ones_may_pass_a_big_head_but_not_for_ever() -> None:
    house = tight(bypass_max=2)
    ask(house, "r", tokens=500)
    assert only(ask(house, "big", tokens=900), Hold)
    assert sent_to(ask(house, "s0", tokens=50)) == A
    house.end("s0-0")
    assert sent_to(ask(house, "s1", tokens=50)) == A
    house.end("s1-0")
    assert only(ask(house, "s2", tokens=90), Hold)[0].position == 2
    assert [d.request_id for d in only(house.end("r-0"), Dispatch)] == ["big"], "and s2 does not fit beside it"


def test_those_behind_the_head_are_looked_at_when_room_is_made() -> None:
    house = tight(bypass_max=1)
    for name, tokens in (("r", 500), ("s", 200), ("t", 200)):
        ask(house, name, tokens)
    for name, tokens in (("big", 900), ("bigger", 950), ("u", 150), ("v", 150)):
        assert only(ask(house, name, tokens), Hold)
    assert [d.request_id for d in only(house.end("s-0"), Dispatch)] == ["u"]
    assert only(house.end("u-0"), Dispatch) == [], "the head was overtaken once, that is all"


def test_the_queue_is_bounded_in_count() -> None:
    house = tight(max_queued=2)
    for name in ("r", "s", "t", "u"):
        ask(house, name)
    refusal = rejected(ask(house, "v"))
    assert (refusal.status, refusal.code, refusal.shed) == (503, "queue_full", True)
    assert refusal.retry_after_s >= 1.0


def test_the_queue_is_bounded_in_time() -> None:
    house = tight(queue_timeout_s=2.0)
    for name in ("r", "s"):
        ask(house, name)
    ask(house, "t")
    house.wait(0.5)
    assert only(ask(house, "u", deadline=1.0), SetTimer) == [SetTimer("queue:m", 1.0)], "its deadline comes first"
    assert only(ask(house, "w"), SetTimer) == [], "nothing sooner"
    house.wait(0.5)
    commands = house.tell(TimerFired(house.now, "queue:m"))
    assert [(r.request_id, r.status, r.code) for r in only(commands, Reject)] == [("u", 504, "deadline")]
    assert only(commands, SetTimer) == [SetTimer("queue:m", 2.0)]
    house.wait(1.0)
    commands = house.tell(TimerFired(house.now, "queue:m"))
    assert [(r.request_id, r.code, r.shed) for r in only(commands, Reject)] == [("t", "queue_timeout", True)]
    house.wait(0.5)
    assert rejected(house.tell(TimerFired(house.now, "queue:m"))).request_id == "w"
    assert house.brain.queue_positions() == {}


def test_leaving_the_queue_costs_nothing_and_lets_others_up() -> None:
    house = tight(bypass_max=0)
    ask(house, "r", tokens=500)
    ask(house, "s", tokens=100)
    ask(house, "big", tokens=900)
    assert only(house.end("s-0"), Dispatch) == []
    assert only(ask(house, "small", tokens=100), Hold), "the only replica is kept for the big one"
    commands = house.tell(RequestCancelled(house.now, RequestId("big")))
    assert [d.request_id for d in only(commands, Dispatch)] == ["small"]
    assert house.tell(RequestCancelled(house.now, RequestId("big"))) == []
    assert house.tell(RequestCancelled(house.now, RequestId("r"))) == [], "in flight the body ends the attempt"
    assert house.brain.ignored == 2


def test_a_count_limit_holds_whatever_the_policy() -> None:
    house = ready("a", config=BrainConfig(scheduler=SchedulerConfig(max_in_flight=1)))
    assert sent_to(house.ask("r")) == A
    assert only(house.ask("s"), Hold)
    assert only(house.ask("t"), Hold)
    assert [d.request_id for d in only(house.end("r-0"), Dispatch)] == ["s"]


def test_a_returning_replica_releases() -> None:
    house = ready("a", "b", config=BrainConfig(scheduler=SchedulerConfig(max_in_flight=1)))
    house.tell(DrainAsked(house.now, B))
    house.ask("r")
    assert only(house.ask("s"), Hold)
    assert sent_to(house.tell(DrainAsked(house.now, B, False))) == B


def test_a_new_replica_releases_once_it_is_probed() -> None:
    house = ready("a", config=BrainConfig(scheduler=SchedulerConfig(max_in_flight=1)))
    house.ask("r")
    house.ask("s")
    assert sent_to(house.tell(ReplicasChanged(house.now, (spec("b"),)))) is None
    assert sent_to(house.tell(ProbeSucceeded(house.now, B))) == B


def test_whoever_waits_for_a_model_that_vanishes_is_told() -> None:
    house = tight()
    for name in ("r", "s", "t"):
        ask(house, name)
    commands = house.tell(ReplicasChanged(house.now, removed=(A,)))
    assert rejected(commands).code == "no_replica"
    assert [a.reason for a in only(commands, Abort)] == ["replica_removed"] * 2
    assert rejected(house.ask("u")).code == "no_replica", "nobody is left who could say what there is"


def test_progress_rebuilds_forecasts_and_may_release() -> None:
    """Without reports: outputs turn out to be short, so those that run are expected to end soon."""
    house = ready("a", policy=FewestInFlight(binds_late=True), metrics=False, kv_capacity_tokens=3300)
    for i in range(10):
        assert sent_to(house.ask(f"r{i}", prompt_tokens=200)) == A
        house.first(f"r{i}-0")
    assert only(house.ask("t", prompt_tokens=100), Hold)
    learn = house.brain._fleet.length
    for _ in range(2000):
        learn.observe_output("m", 2, False)
    assert house.wait(0.1).grow(r0_0=1) == [], "not at every tick"
    assert sent_to(house.wait(0.5).grow(r0_0=2)) == A


# -- attempts


def test_a_finished_attempt_is_settled_and_recorded() -> None:
    house = ready("a")
    house.ask("r")
    house.wait(0.2).first("r-0")
    (settled,) = entries(house.wait(0.8).end("r-0", output_tokens=5), Settled)
    assert (settled.request_id, settled.replica_id, settled.at) == ("r", A, 1.0)
    assert settled.ttft_s == pytest.approx(0.2)
    assert settled.forecast_ttft_s > 0.0
    assert settled.forecast_output_tokens > 0.0
    assert house.brain.snapshot(house.now).in_flight == 0
    house.ask("s")
    (settled,) = entries(house.end("s-0", OutcomeKind.CLIENT_CLOSED), Settled)
    assert settled.ttft_s is None


def test_an_end_is_heard_once() -> None:
    house = ready("a")
    house.ask("r")
    house.end("r-0")
    assert house.end("r-0") == []
    assert house.first("r-0") == []
    assert house.grow(r_0=3) == []
    assert house.brain.ignored == 3


@pytest.mark.parametrize("kind", [OutcomeKind.CONNECT_FAILED, OutcomeKind.RESET, OutcomeKind.TRUNCATED])
def test_death_before_the_first_byte_is_retried_elsewhere(kind: OutcomeKind) -> None:
    house = ready("a", "b")
    first = sent_to(house.ask("r"))
    commands = house.end("r-0", kind, sent=True)
    (dispatch,) = only(commands, Dispatch)
    assert dispatch.attempt_id == "r-1"
    assert dispatch.replica_id != first
    assert decision(commands).exclusions["tried" if kind is not OutcomeKind.CONNECT_FAILED else "unreachable"] == 1
    assert entries(house.end("r-1"), Settled)[0].attempt_id == "r-1"


def test_an_ejected_replica_is_the_last_resort_of_a_retry() -> None:
    house = ready("a", "b", policy=Fixed({"a": 1.0, "b": 2.0}))
    for i in range(3):
        house.ask(f"r{i}")
        house.end(f"r{i}-0", OutcomeKind.SERVER_ERROR, status=500, committed=True)
    assert house.view("a").breaker is Breaker.OPEN
    assert sent_to(house.ask("x")) == B
    commands = house.end("x-0", OutcomeKind.RESET, sent=True)
    assert sent_to(commands) == A
    assert decision(commands).exclusions == {"tried": 1}
    house.end("x-1")
    assert house.view("a").breaker is Breaker.OPEN, "only a trial closes it"
    assert sent_to(house.ask("y")) == B
    refusal = house.end("y-0", OutcomeKind.SERVER_ERROR, status=500)
    assert only(refusal, Relay), "an engine that answered 500 may be overloaded: no last resort"


def test_a_last_resort_does_not_disturb_a_trial() -> None:
    house = ready("a", "b", policy=Fixed({"a": 1.0, "b": 2.0}))
    for i in range(3):
        house.ask(f"r{i}")
        house.end(f"r{i}-0", OutcomeKind.SERVER_ERROR, status=500, committed=True)
    assert sent_to(house.ask("x")) == B
    house.wait(2.0)
    house.tell(TimerFired(house.now, "breaker:a"))
    house.tell(ProbeSucceeded(house.now, A))
    assert sent_to(house.ask("trial")) == A
    assert rejected(house.end("x-0", OutcomeKind.RESET, sent=True)).status == 502


def test_a_retry_goes_where_it_can_though_its_policy_wants_nobody() -> None:
    policy = Fixed({"a": 1.0, "b": 2.0, "c": 3.0})
    house = ready("a", "b", "c", policy=policy)
    assert sent_to(house.ask("r")) == A
    assert sent_to(house.ask("s")) == A
    policy.table.clear()
    assert sent_to(house.end("r-0", OutcomeKind.RESET, sent=True)) == B
    assert sent_to(house.end("s-0", OutcomeKind.RESET, sent=True)) == C, "the emptier one"


def test_two_attempts_are_all() -> None:
    house = ready("a", "b", "c")
    house.ask("r")
    house.end("r-0", OutcomeKind.BAD_RESPONSE)
    refusal = rejected(house.end("r-1", OutcomeKind.BAD_RESPONSE))
    assert (refusal.status, refusal.code, refusal.shed) == (502, "upstream_failed", False)


def test_nothing_is_retried_after_a_byte_was_relayed() -> None:
    house = ready("a", "b")
    house.ask("r")
    commands = house.end("r-0", OutcomeKind.TRUNCATED, committed=True, sent=True)
    assert only(commands, Dispatch) + only(commands, Reject) + only(commands, Relay) == []


def test_a_stale_connection_may_go_to_the_same_replica() -> None:
    house = ready("a")
    house.ask("r")
    assert sent_to(house.end("r-0", OutcomeKind.STALE_CONNECTION, sent=True)) == A
    assert house.view("a").breaker is Breaker.CLOSED
    assert rejected(house.end("r-1", OutcomeKind.STALE_CONNECTION, sent=True)).status == 502


def test_a_stale_connection_and_then_a_dead_replica_still_ends_well() -> None:
    house = ready("a", "b", policy=Fixed({"a": 1.0, "b": 2.0}))
    house.ask("r")
    assert sent_to(house.end("r-0", OutcomeKind.STALE_CONNECTION, sent=True)) == A
    assert sent_to(house.end("r-1", OutcomeKind.CONNECT_FAILED)) == B


def test_the_engines_own_answer_is_relayed_when_no_retry_is_left() -> None:
    house = ready("a")
    house.ask("r")
    commands = house.end("r-0", OutcomeKind.BACKPRESSURE, status=429, retry_after_s=1.0)
    assert only(commands, Relay) == [Relay(RequestId("r"), AttemptId("r-0"))]
    house.ask("s")
    assert only(house.end("s-0", OutcomeKind.SERVER_ERROR, status=500), Relay)


def test_an_abort_before_content_is_retried_and_never_relayed() -> None:
    house = ready("a", "b")
    house.ask("r")
    assert sent_to(house.end("r-0", OutcomeKind.ENGINE_ABORT, status=200))
    refusal = rejected(house.end("r-1", OutcomeKind.ENGINE_ABORT, status=200))
    assert (refusal.status, refusal.code) == (503, "upstream_failed")


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "status"), [(OutcomeKind.BACKPRESSURE, 503), (OutcomeKind.SERVER_ERROR, 503)])
def test_when_all_answer_503_hardly_anything_is_retried(kind: OutcomeKind, status: int) -> None:
    """100 requests a second for 30 s: attempts stay within 1.2 of arrivals."""
    house = ready("a", "b", "c", "d")
    attempts, arrivals, timers = 0, 3000, {}
    for i in range(arrivals):
        house.wait(0.01)
        todo: list[Command] = house.ask(f"r{i}")
        for name in [n for n, at in timers.items() if at <= house.now]:
            del timers[name]
            todo += house.tell(TimerFired(house.now, name))
        for command in todo:
            if isinstance(command, Dispatch):
                attempts += 1
                todo += house.end(command.attempt_id, kind, status=status, sent=True)
            elif isinstance(command, SetTimer):
                timers[command.timer] = command.at
            elif isinstance(command, Probe):
                todo += house.tell(ProbeSucceeded(house.now, command.replica_id))
    assert arrivals * 0.9 <= attempts <= arrivals * 1.2
    assert house.brain.snapshot(house.now).in_flight == 0


def test_a_poison_request_kills_at_most_two_and_is_quarantined() -> None:
    house = ready("a", "b", "c", "d")
    killed = set()
    for i in range(10):
        commands = house.ask(f"p{i}", fingerprint=666)
        while sent_to(commands):
            (dispatch,) = only(commands, Dispatch)
            killed.add(dispatch.replica_id)
            commands = house.end(dispatch.attempt_id, OutcomeKind.RESET, sent=True)
        refusal = rejected(commands)
    assert len(killed) == 2
    assert (refusal.status, refusal.code) == (503, "quarantined")
    assert refusal.retry_after_s > 1.0
    assert sent_to(house.ask("good", fingerprint=1)) is not None


def test_the_deadline_ends_retries() -> None:
    house = ready("a", "b")
    house.ask("r", deadline=5.0)
    house.wait(6.0)
    assert rejected(house.end("r-0", OutcomeKind.RESET, sent=True)).code == "deadline"


def test_a_retry_does_not_wait_for_memory() -> None:
    house = ready("a", "b", policy=FewestInFlight(binds_late=True), kv_capacity_tokens=1000)
    for name in ("r", "s", "t", "u"):
        assert sent_to(ask(house, name))
    assert sent_to(house.end("r-0", OutcomeKind.RESET, sent=True)) is not None


def test_a_cancelled_attempt_of_the_body_gets_an_end() -> None:
    house = ready("a", "b")
    house.ask("r")
    assert rejected(house.end("r-0", OutcomeKind.CANCELLED)).code == "no_replica"


# -- replicas


def test_new_replicas_are_probed_and_pending() -> None:
    house = ready("a")
    commands = house.add("b", probed=False)
    assert only(commands, Probe) == [Probe(B)]
    assert {sent_to(house.ask(f"r{i}")) for i in range(4)} == {A}
    house.tell(ProbeSucceeded(house.now, B))
    assert sent_to(house.ask("s")) == B


def test_pending_replicas_serve_when_nothing_else_does() -> None:
    house = House()
    house.add("a", probed=False)
    assert sent_to(house.ask("r")) == A


def test_unprobed_replicas_that_refuse_cost_the_client_nothing() -> None:
    house = House()
    house.add("a", "b", probed=False)
    house.ask("r")
    assert sent_to(house.end("r-0", OutcomeKind.CONNECT_FAILED)) is not None


def test_newcomers_start_slowly_and_founders_do_not() -> None:
    house = ready("a", "b")
    assert house.view("a").slow_start == house.view("b").slow_start == 1.0
    house.add("c")
    assert house.view("c").slow_start == 0.1
    house.add("a")
    assert house.view("a").slow_start == 1.0, "new facts are no new start"


def test_a_dead_replica_is_out_at_once_and_its_silent_streams_are_cut() -> None:
    house = ready("a", "b", policy=Fixed({"a": 1.0, "b": 2.0}))
    house.ask("silent")
    house.ask("lively")
    house.first("lively-0")
    house.wait(0.6).grow(lively_0=3)
    house.ask("new")
    commands = house.wait(0.1).end("new-0", OutcomeKind.CONNECT_FAILED)
    assert sent_to(commands) == B
    assert only(commands, Probe) == [Probe(A)], "two of ours are still open there"
    assert sent_to(house.ask("next")) == B
    commands = house.tell(ProbeFailed(house.now, A, "refused", refused=True))
    assert only(commands, Abort) == [Abort(AttemptId("silent-0"), "replica_gone")]
    assert only(house.tell(ProbeFailed(house.now, A, refused=True)), Abort) == [], "once"
    assert sent_to(house.end("silent-0", OutcomeKind.CANCELLED)) == B
    house.wait(1.0)
    assert only(house.tell(ProbeFailed(house.now, A, refused=True)), Abort) == [
        Abort(AttemptId("lively-0"), "replica_gone")
    ]


def test_a_failed_probe_that_was_not_refused_cuts_nothing() -> None:
    house = ready("a")
    house.ask("r")
    house.wait(5.0)
    assert house.tell(ProbeFailed(house.now, A, "timeout")) == []


def test_one_request_is_the_trial() -> None:
    config = BrainConfig(health=HealthConfig(open_s=1.0))
    house = ready("a", "b", policy=Fixed({"a": 1.0, "b": 2.0}), config=config)
    for i in range(3):
        house.ask(f"r{i}")
        house.end(f"r{i}-0", OutcomeKind.SERVER_ERROR, status=500, committed=True)
    assert house.view("a").breaker is Breaker.OPEN
    assert sent_to(house.ask("x")) == B
    house.wait(1.0)
    commands = house.tell(TimerFired(house.now, "breaker:a"))
    assert only(commands, Probe) == [Probe(A)]
    assert sent_to(house.ask("y")) == B
    house.tell(ProbeSucceeded(house.now, A))
    assert [sent_to(house.ask(f"t{i}")) for i in range(3)] == [A, B, B]
    assert house.view("a").breaker is Breaker.HALF_OPEN
    (changed,) = entries(house.first("t0-0"), HealthChanged)
    assert (changed.replica_id, changed.state) == (A, "closed")
    assert sent_to(house.ask("z")) == A
    assert house.view("a").slow_start < 1.0


def test_an_engine_that_always_fails_is_asked_once_per_interval() -> None:
    """086, with its own numbers: a request each half second for a minute, breakers that open for 15 s: three failures
    and one trial per interval go there, and every client is served by the other."""
    house = ready(
        "a", "b", policy=Fixed({"a": 1.0, "b": 2.0}), config=BrainConfig(health=HealthConfig(open_s=15.0, backoff=1.0))
    )
    timers: dict[str, float] = {}
    asked = 0

    def follow(commands: list[Command]) -> None:
        nonlocal asked
        timers.update({timer.timer: timer.at for timer in only(commands, SetTimer)})
        for probe in only(commands, Probe):
            follow(house.tell(ProbeSucceeded(house.now, probe.replica_id)))
        for dispatch in only(commands, Dispatch):
            asked += dispatch.replica_id == A
            failed = dispatch.replica_id == A
            kind = OutcomeKind.SERVER_ERROR if failed else OutcomeKind.OK
            said = house.end(dispatch.attempt_id, kind, status=500 if failed else 200)
            assert bool(only(said, Dispatch)) == failed, "it is tried elsewhere"
            follow(said)

    for number in range(120):
        for timer in [timer for timer, at in timers.items() if at <= house.now]:
            del timers[timer]
            follow(house.tell(TimerFired(house.now, timer)))
        follow(house.ask(f"r{number}"))
        house.wait(0.5)
    assert asked == 3 + 3


def test_the_only_replica_is_used_whatever_its_breaker_says() -> None:
    house = ready("a")
    for i in range(10):
        assert sent_to(house.ask(f"r{i}")) == A
        house.end(f"r{i}-0", OutcomeKind.SERVER_ERROR, status=500)
    assert house.brain.snapshot(house.now).panic


def test_all_down_is_503_not_404() -> None:
    house = ready("a", "b")
    house.ask("r")
    house.end("r-0", OutcomeKind.CONNECT_FAILED)
    refusal = rejected(house.end("r-1", OutcomeKind.CONNECT_FAILED))
    assert (refusal.status, refusal.code) == (503, "no_replica")
    assert sent_to(house.ask("s")) is not None, "and the next one finds out whether they are back"


def test_removal_retries_what_has_not_begun_and_lets_streams_go_on() -> None:
    house = ready("a", "b", policy=Fixed({"a": 1.0, "b": 2.0}))
    house.ask("begun")
    house.first("begun-0")
    house.ask("waiting")
    commands = house.tell(ReplicasChanged(house.now, removed=(A, ReplicaId("nobody"))))
    assert only(commands, Abort) == [Abort(AttemptId("waiting-0"), "replica_removed")]
    assert sent_to(house.end("waiting-0", OutcomeKind.CANCELLED)) == B
    assert house.grow(begun_0=5) == []
    assert entries(house.end("begun-0"), Settled)
    assert [view.id for view in house.brain.snapshot(house.now).views] == ["b"]


def test_an_attempt_begins_although_its_replica_has_left() -> None:
    house = ready("a", "b", policy=Fixed({"a": 1.0, "b": 2.0}))
    house.ask("r")
    house.tell(ReplicasChanged(house.now, removed=(A,)))
    assert house.first("r-0") == []
    assert entries(house.end("r-0"), Settled)


def test_a_retry_finds_its_model_gone() -> None:
    house = ready("a")
    house.ask("r")
    house.tell(ReplicasChanged(house.now, removed=(A,)))
    assert rejected(house.end("r-0", OutcomeKind.CANCELLED)).code == "no_replica"


def test_late_probes_of_an_old_registration_change_nothing() -> None:
    house = ready("a-1")
    house.tell(ReplicasChanged(house.now, removed=(ReplicaId("a-1"),)))
    house.add("a-2")
    late = ProbeFailed(house.now, ReplicaId("a-1"), refused=True)
    assert house.tell(late) == []
    assert house.tell(ProbeSucceeded(house.now, ReplicaId("a-1"))) == []
    assert house.tell(DrainAsked(house.now, ReplicaId("a-1"))) == []
    assert house.tell(TimerFired(house.now, "breaker:a-1")) == []
    assert house.report("a-1", running=1) == []
    assert house.view("a-2").breaker is Breaker.CLOSED
    assert house.brain.ignored == 4


@pytest.mark.parametrize("timer", ["", "queue:", "queue:m", "nothing", "breaker", "nothing:a"])
def test_unknown_timers_are_ignored(timer: str) -> None:
    assert ready("a").tell(TimerFired(0.0, timer)) == []


def test_sleeping_replicas_get_nothing() -> None:
    house = ready("a", "b")
    house.report("a", sleep_level=1)
    assert {sent_to(house.ask(f"r{i}")) for i in range(4)} == {B}


def test_who_came_just_as_a_replica_fell_asleep_goes_elsewhere() -> None:
    house = ready("a", "b", policy=Fixed({"a": 1.0, "b": 2.0}))
    house.ask("early")
    house.wait(0.5).report("a", sleep_level=0)
    house.wait(0.1).ask("begun")
    house.first("begun-0")
    house.ask("late")
    commands = house.wait(0.4).report("a", sleep_level=1)
    assert only(commands, Abort) == [Abort(AttemptId("late-0"), "replica_asleep")]
    assert only(house.wait(0.5).report("a", sleep_level=1), Abort) == [], "once"
    assert sent_to(house.end("late-0", OutcomeKind.CANCELLED, sent=True)) == B
    assert house.view("a").breaker is Breaker.CLOSED, "to sleep is no failure"


def test_nobody_leaves_a_sleeper_for_nowhere() -> None:
    house = ready("a")
    house.wait(0.1).ask("r")
    assert only(house.wait(0.1).report("a", sleep_level=1), Abort) == []


def test_asking_for_a_snapshot_changes_no_decision() -> None:
    calm, watched = Storm(5), Storm(5)
    brain = watched.brain

    class Curious:
        """Asks before each event."""

        def handle(self, event: Event) -> list[Command]:
            brain.snapshot(watched.now + 50.0)
            brain.queue_positions()
            return brain.handle(event)

    watched.brain = Curious()  # type: ignore[assignment]
    assert watched.run(150).journal == calm.run(150).journal


def test_the_trial_answers_only_for_itself() -> None:
    house = ready("a")
    house.ask("r")
    assert house.tell(FirstToken(house.now, AttemptId("r-0"))) == []


# -- everything at once


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("binds_late", [True, False])
def test_a_storm_keeps_every_promise(seed: int, binds_late: bool) -> None:
    """Asserted inside: one end each, limits, nothing sent to the absent or draining. Here: all accounts are zero."""
    storm = Storm(seed, FewestInFlight(binds_late)).run(800)
    asked = [event.request.id for event, _ in storm.journal if type(event).__name__ == "RequestArrived"]
    assert sorted(asked) == sorted(storm.ends)
    brain: Brain = storm.brain
    assert brain.queue_positions() == {}
    assert {usage.alive for usage in brain._admission.tenancy.usages.values()} <= {0}
    assert brain._admission.queued_bytes == 0
    after = brain.snapshot(storm.now)
    assert all((tenant.alive, tenant.promised_tokens) == (0, 0.0) for tenant in after.tenants)
    assert (after.in_flight, after.queued) == (0, 0)
    for view in after.views:
        assert (view.in_flight, view.reserved_tokens, view.prefill_backlog_tokens) == (0, 0.0, 0.0)
        if view.stale:
            assert (view.context_tokens, view.running, view.waiting) == (0.0, 0.0, 0.0)
