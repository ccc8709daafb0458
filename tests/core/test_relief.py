"""Levels at work in a whole brain: what a pool in distress does to those who come, and to those who wait."""

import pytest

from headway.core.commands import Command, Dispatch, LevelChanged, Reject, Restart, SetTimer
from headway.core.constants import (
    AdmissionConfig,
    BrainConfig,
    BurstConfig,
    DegradeConfig,
    RestartConfig,
    SchedulerConfig,
)
from headway.core.events import DrainAsked, ProbeFailed, ProbeSucceeded, ReplicasChanged, TenantsChanged, TimerFired
from headway.core.ids import ReplicaId
from headway.core.outcome import OutcomeKind
from headway.core.snapshot import PoolState
from headway.core.tenant import Tenant, Tier
from tests.core.house import House, entries, only, sent_to, spec

LOW = int(Tier.LOW)


class Watched(House):
    """A house whose timers fire."""

    def __init__(self, **config: object) -> None:
        super().__init__(config=BrainConfig(**config))  # type: ignore[arg-type]
        self.timers: dict[str, float] = {}
        self.said: list[Command] = []

    def tell(self, event: object) -> list[Command]:
        out = super().tell(event)
        self.timers.update({timer.timer: timer.at for timer in only(out, SetTimer)})
        self.said += out
        return out

    def pass_time(self, seconds: float) -> list[Command]:
        """Let the timers fire that are due meanwhile; what was said."""
        until, said = self.now + seconds, list[Command]()
        while self.timers and min(self.timers.values()) <= until:
            timer = min(self.timers, key=lambda name: (self.timers[name], name))
            self.now = max(self.now, self.timers.pop(timer))
            said += self.tell(TimerFired(self.now, timer))
        self.now = until
        return said

    @property
    def pool(self) -> PoolState:
        return next(state for state in self.brain.snapshot(self.now).pools if state.model == "m")


def full(**config: object) -> Watched:
    """A house with one replica whose pool is promised to the last token, and a bit more."""
    house = Watched(**config)
    house.add("a", kv_capacity_tokens=1000)
    assert sent_to(house.ask("huge", prompt_tokens=995, max_output_tokens=60, session_key="old")) == "a"
    return house


def rejected(commands: list[Command]) -> Reject:
    (found,) = only(commands, Reject)
    return found


# -- saturation


def test_levels_come_with_saturation_and_are_shown() -> None:
    house = full()
    assert (house.pool.level, house.pool.queued) == (0, 0)
    assert house.pool.saturation > 0.95
    said = house.pass_time(3.0)
    assert [(entry.model, entry.level) for entry in entries(said, LevelChanged)] == [("m", 2)]
    assert house.pool.level == 2
    house.end("huge-0")
    said = house.pass_time(20.0)
    assert [entry.level for entry in entries(said, LevelChanged)] == [0]
    assert house.pool == PoolState("m", 0, 0, False, 0.0, 0.0)


def test_new_sessions_are_refused_and_told_when_to_come_back() -> None:
    house = full()
    house.pass_time(3.0)
    no = rejected(house.ask("q", session_key="new"))
    assert (no.status, no.code, no.shed) == (503, "new_sessions_refused", True)
    assert no.retry_after_s >= 1.0
    assert sent_to(house.ask("r", session_key="old")) == "a"
    assert sent_to(house.ask("s")) == "a"
    assert sent_to(house.ask("t", session_key="newer", tier=int(Tier.HIGH))) == "a"
    assert sent_to(house.ask("u", session_key="newer")) == "a", "it has begun"


def test_what_is_low_is_dropped_from_the_queue_and_shed() -> None:
    house = full(scheduler=SchedulerConfig(max_in_flight=1))
    house.ask("low", tier=LOW)
    house.ask("standard")
    said = house.pass_time(3.0)
    no = rejected(said)
    assert (no.request_id, no.code, no.shed) == ("low", "shed", True)
    assert house.pool.queued == 1
    assert rejected(house.ask("lower", tier=LOW)).code == "shed"
    assert sent_to(house.end("huge-0")) == "a"


def test_nothing_follows_if_levels_are_off() -> None:
    house = full(degrade=DegradeConfig(levels=False), scheduler=SchedulerConfig(max_in_flight=1))
    house.ask("low", tier=LOW)
    house.pass_time(5.0)
    assert house.pool.level == 2
    assert not only(house.ask("new", tier=LOW, session_key="s"), Reject)
    assert house.pool.queued == 2


def test_the_wait_of_those_who_matter_counts() -> None:
    """A queue that drains at two a second: eight of STANDARD are four seconds, twenty of LOW are none."""
    house = Watched(scheduler=SchedulerConfig(max_in_flight=1))
    house.add("a")
    for n in range(45):
        house.ask(f"s{n}")
    for n in range(36):
        house.pass_time(0.5)
        house.end(f"s{n}-0")
    assert house.pool.expected_wait_s == pytest.approx(4.0, rel=0.05)
    assert house.pool.saturation == pytest.approx(4.0 / 5.0, rel=0.05)
    for n in range(36, 44):
        house.pass_time(0.01)
        house.end(f"s{n}-0")
    for n in range(20):
        house.ask(f"l{n}", tier=LOW)
    assert house.pool.expected_wait_s == 0.0


@pytest.mark.parametrize(("timeout_s", "queued"), [(4.0, 512), (30.0, 4), (30.0, 0)])
def test_an_overload_shows_whatever_the_bounds_of_the_queue(timeout_s: float, queued: int) -> None:
    """Three come where one is served: most are not, for want of patience or of room."""
    admission = AdmissionConfig(queue_timeout_s=timeout_s, max_queued=queued)
    house = Watched(admission=admission, scheduler=SchedulerConfig(max_in_flight=1))
    house.add("a")
    for second in range(15):
        for n in range(4):
            for name in "abc":
                house.ask(f"{name}{second}-{n}")
            house.pass_time(0.25)
            house.end(str(only(house.said, Dispatch)[-1].attempt_id))
    assert house.pool.level == 2
    assert house.pool.queued <= queued
    for _ in range(80):
        house.pass_time(0.25)
        house.end(str(only(house.said, Dispatch)[-1].attempt_id))
    house.pass_time(20.0)
    assert (house.pool.level, house.pool.queued) == (0, 0)


# -- health


def two_models(**config: object) -> Watched:
    config.setdefault("degrade", DegradeConfig(fallbacks={"m": "small", "small": "m"}))
    house = Watched(**config)
    house.add("a")
    house.tell(ReplicasChanged(0.0, (spec("b", model="small", serves={"small": "org/small"}),)))
    house.tell(ProbeSucceeded(0.0, ReplicaId("b")))
    return house


def broken(house: Watched) -> Watched:
    house.ask("first")
    house.end("first-0", OutcomeKind.CONNECT_FAILED)
    assert house.pool.level == 4
    return house


def test_another_model_answers_while_half_the_breakers_are_open() -> None:
    house = broken(two_models())
    (dispatch,) = only(house.ask("q"), Dispatch)
    assert (dispatch.replica_id, dispatch.model) == ("b", "org/small")
    assert dispatch.disclosed == (("x-headway-model", "small"),)
    house.end("q-0")
    house.now = 9.0
    house.tell(ProbeSucceeded(9.0, ReplicaId("a")))
    house.pass_time(6.0)
    assert house.pool.level == 0
    (dispatch,) = only(house.ask("r"), Dispatch)
    assert (dispatch.replica_id, dispatch.disclosed) == ("a", ())


@pytest.mark.parametrize(
    ("own", "other", "told"),
    [
        ("bf16", "fp8", "fp8"),
        ("", "fp8-dynamic", "fp8"),  # what does not say is taken to be unquantised
        ("fp8", "awq", "int4"),
        ("fp8", "bf16", ""),
        ("bf16", "fp16", ""),
        ("bf16", "", ""),
    ],
)
def test_a_fallback_of_less_precision_says_so_too(own: str, other: str, told: str) -> None:
    house = Watched(degrade=DegradeConfig(fallbacks={"m": "small"}))
    house.add("a", precision=own)
    house.tell(ReplicasChanged(0.0, (spec("b", model="small", serves={"small": "small"}, precision=other),)))
    house.tell(ProbeSucceeded(0.0, ReplicaId("b")))
    (dispatch,) = only(broken(house).ask("q"), Dispatch)
    assert dispatch.disclosed == (("x-headway-model", "small"), *((("x-headway-precision", told),) if told else ()))
    (dispatch,) = only(house.ask("r", model="small"), Dispatch)
    assert dispatch.disclosed == (), "that is what was asked for"


def test_a_tenant_gets_no_model_that_it_may_not_use() -> None:
    house = two_models()
    house.tell(TenantsChanged(0.0, (Tenant("strict", models=("m",)), Tenant("broad", models=("m", "small")))))
    broken(house)
    assert sent_to(house.ask("q", tenant="strict")) == "a", "the last one is tried"
    assert sent_to(house.ask("r", tenant="broad")) == "b"
    assert sent_to(house.ask("s", tenant="unknown")) == "b"


def test_a_fallback_that_nobody_serves_is_none() -> None:
    house = broken(two_models(degrade=DegradeConfig(fallbacks={"m": "absent"})))
    assert sent_to(house.ask("q")) == "a"


def test_a_death_is_shown_as_long_as_it_lasts() -> None:
    house = Watched()
    house.add("a", "b", "c")
    house.tell(ProbeFailed(0.0, ReplicaId("a"), refused=True))
    assert house.pool.level == 3
    house.pass_time(60.0)
    assert house.pool.level == 3
    house.tell(ReplicasChanged(house.now, removed=(ReplicaId("a"),)))
    house.pass_time(6.0)
    assert house.pool.level == 0
    assert [entry.level for entry in entries(house.said, LevelChanged)] == [3, 0]


def test_a_short_death_is_shown_for_a_while_although_nothing_comes() -> None:
    house = Watched()
    house.add("a", "b", "c")
    house.tell(ProbeFailed(0.0, ReplicaId("a"), refused=True))
    house.now = 2.5
    house.tell(ProbeSucceeded(2.5, ReplicaId("a")))
    assert house.view("a").breaker == "closed"
    assert house.pool.level == 3
    house.pass_time(6.0)
    assert house.pool.level == 0
    assert "degrade:" not in house.timers


def test_out_of_memory_opens_at_once_and_is_replayed_elsewhere() -> None:
    house = Watched()
    house.add("a", "b", "c", "d")
    sent = sent_to(house.ask("q"))
    said = house.end("q-0", OutcomeKind.OUT_OF_MEMORY, status=500, sent=True)
    again = sent_to(said)
    assert again not in (None, sent)
    assert house.view(str(sent)).breaker == "open"
    assert house.pool.level == 3


def test_what_is_not_served_any_more_is_not_degraded() -> None:
    house = broken(two_models())
    house.tell(ReplicasChanged(1.0, removed=(ReplicaId("a"),)))
    assert entries(house.said, LevelChanged)[-1] == LevelChanged(1.0, "m", 0, False, 0.0)
    assert [state.model for state in house.brain.snapshot(1.0).pools] == ["small"]


# -- bursts


def test_a_burst_costs_output_and_logprobs_and_says_so() -> None:
    house = Watched(burst=BurstConfig(curbs=True))
    house.add("a")
    for second in range(70):
        for n in range(30 if second > 60 else 5):
            (dispatch,) = only(house.ask(f"r{second}.{n}", max_output_tokens=900), Dispatch)
            house.end(f"r{second}.{n}-0")
        house.pass_time(1.0)
        if second == 60:
            assert (dispatch.max_tokens, dispatch.logprobs, dispatch.disclosed) == (0, True, ())
    assert (dispatch.max_tokens, dispatch.logprobs) == (256, False)
    assert dispatch.disclosed == (("x-headway-max-tokens", "256"), ("x-headway-logprobs", "off"))
    (short,) = only(house.ask("short", max_output_tokens=10), Dispatch)
    assert (short.max_tokens, short.disclosed) == (0, (("x-headway-logprobs", "off"),))
    (other,) = only(house.ask("vector", generates=False), Dispatch)
    assert (other.logprobs, other.disclosed) == (True, ())
    assert house.pool.burst


# -- restarts


def test_a_dead_engine_is_restarted_after_a_while() -> None:
    house = Watched(restart=RestartConfig(enabled=True))
    house.add("a", "b", "c")
    house.tell(ProbeFailed(0.0, ReplicaId("a"), refused=True))
    assert not only(house.pass_time(29.0), Restart)
    assert only(house.pass_time(2.0), Restart) == [Restart(ReplicaId("a"), "unreachable")]
    assert only(house.pass_time(1000.0), Restart) == [Restart(ReplicaId("a"), "unreachable")] * 2


def test_what_an_operator_drains_is_not_restarted() -> None:
    house = Watched(restart=RestartConfig(enabled=True))
    house.add("a", "b", "c")
    house.tell(ProbeFailed(0.0, ReplicaId("a"), refused=True))
    house.tell(DrainAsked(1.0, ReplicaId("a")))
    assert not only(house.pass_time(100.0), Restart)


# -- the timer


def test_it_rests_when_nothing_comes_and_nothing_is_wrong() -> None:
    house = Watched()
    house.add("a")
    assert "degrade:" not in house.timers
    house.ask("q")
    house.end("q-0")
    house.pass_time(5.5)
    assert "degrade:" in house.timers
    house.pass_time(5.0)
    assert "degrade:" not in house.timers
    house.ask("r")
    house.ask("s")
    assert house.timers["degrade:"] == house.now + 1.0


def test_a_level_by_health_needs_no_looking_at() -> None:
    house = Watched()
    house.add("a", "b", "c")
    house.tell(ProbeFailed(0.0, ReplicaId("a"), refused=True))
    house.pass_time(60.0)
    assert house.pool.level == 3
    assert "degrade:" not in house.timers
