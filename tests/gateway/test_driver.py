"""Events go to the brain one at a time and in order; commands are performed; timers and ticks come back as events."""

import asyncio
from collections.abc import Callable
from typing import Any

from headway.core.commands import (
    Abort,
    Command,
    Dispatch,
    Evict,
    Hold,
    Migrate,
    Probe,
    Record,
    Reject,
    Relay,
    SetTimer,
    Settled,
)
from headway.core.events import (
    AttemptFinished,
    Event,
    EvictionRefused,
    ProbeSucceeded,
    Progress,
    ReplicasChanged,
    RequestCancelled,
    TimerFired,
)
from headway.core.ids import AttemptId, ReplicaId, RequestId
from headway.core.outcome import Outcome, OutcomeKind
from headway.core.snapshot import FleetSnapshot
from headway.gateway.driver import Driver
from headway.runtime.clock import now

Run = Callable[[Any], Any]
R, A = RequestId("r"), AttemptId("r-0")


class Brain:
    """Answers each event with the next list of its script."""

    def __init__(self, *answers: list[Command]) -> None:
        self.answers = list(answers)
        self.events: list[Event] = []

    def handle(self, event: Event) -> list[Command]:
        self.events.append(event)
        return self.answers.pop(0) if self.answers else []

    def snapshot(self, at: float) -> FleetSnapshot:
        return FleetSnapshot(at, "x", 0, 0, False, ())

    def prospect(self, request_id: RequestId) -> tuple[int, float] | None:
        return None


class Keeper:
    """Keeps."""

    def __init__(self) -> None:
        self.kept: list[Any] = []

    def record(self, entry: Any) -> None:
        self.kept.append(entry)


class Body:
    """Writes down what it is told; may post another event while it is told."""

    def __init__(self, driver: Driver | None = None) -> None:
        self.told: list[Any] = []
        self.driver = driver
        self.id = A
        self.advanced = False
        self.count = 3

    def dispatch(self, command: Dispatch) -> None:
        self.told.append(command)
        if self.driver is not None:
            self.driver.post(RequestCancelled(2.0, R))
            self.told.append("posted")

    def hold(self, command: Hold) -> None:
        self.told.append(command)

    def reject(self, command: Reject) -> None:
        self.told.append(command)

    def relay(self, command: Relay) -> None:
        self.told.append(command)

    def abort(self, attempt: AttemptId, reason: str) -> None:
        self.told.append((attempt, reason))

    def tokens(self) -> int:
        return self.count


def driver_of(brain: Brain, **more: Any) -> Driver:
    return Driver(brain, more.pop("keeper", Keeper()), 0.01, more.pop("changed", lambda _: None), **more)


def test_commands_reach_their_request() -> None:
    commands: list[Command] = [
        Hold(R, 1),
        Dispatch(R, A, ReplicaId("x"), "m"),
        Reject(R, 404, "c", "m"),
        Relay(R, A),
        Hold(RequestId("unknown"), 1),
    ]
    body, driver = Body(), driver_of(Brain([*commands, Abort(A, "why")]))
    driver.exchanges[R] = body
    driver.post(RequestCancelled(1.0, R))
    assert body.told == [*commands[:-1], (A, "why")]


def test_an_event_from_within_waits_its_turn() -> None:
    brain = Brain([Dispatch(R, A, ReplicaId("x"), "m"), Hold(R, 1)], [Hold(R, 2)])
    driver = driver_of(brain)
    body = driver.exchanges[R] = Body(driver)
    driver.post(RequestCancelled(1.0, R))
    assert [type(entry) for entry in body.told] == [Dispatch, str, Hold, Hold]
    assert [event.at for event in brain.events] == [1.0, 2.0]


def test_records_probes_journal_and_replicas() -> None:
    settled = Settled(1.0, R, A, ReplicaId("x"), Outcome(OutcomeKind.OK), None, 0.0, 0.0)
    keeper, probed, journal, changed = Keeper(), list[str](), list[Any](), list[Any]()
    brain = Brain([Record(settled), Probe(ReplicaId("x"))], [])
    driver = driver_of(
        brain, keeper=keeper, changed=changed.append, probe=probed.append, journal=lambda e, c: journal.append((e, c))
    )
    event = ReplicasChanged(1.0)
    driver.post(event)
    driver.post(ProbeSucceeded(2.0, ReplicaId("x")))
    assert (keeper.kept, probed, changed) == ([settled], ["x"], [event])
    assert [entry[0] for entry in journal] == brain.events
    assert driver.snapshot().policy == "x"


def test_moves_of_a_request_that_is_no_more_are_answered() -> None:
    """The brain waits for a word on each; without one a reservation, or the move itself, would stay for ever."""
    brain = Brain([Migrate(R, A, AttemptId("r-1"), ReplicaId("x"), "m", "why"), Evict(A, "why")])
    driver_of(brain).post(ProbeSucceeded(0.0, ReplicaId("x")))
    _, ended, refused = brain.events
    assert isinstance(ended, AttemptFinished)
    assert (ended.attempt_id, ended.outcome.kind) == ("r-1", OutcomeKind.CANCELLED)
    assert isinstance(refused, EvictionRefused)
    assert refused.attempt_id == A


def test_no_timer_is_early(run: Run) -> None:
    async def story() -> None:
        due = {f"t{n}": now() + 0.005 + n * 0.00037 for n in range(200)}
        brain = Brain([SetTimer(timer, at) for timer, at in due.items()])
        driver = driver_of(brain)
        driver.post(ProbeSucceeded(0.0, ReplicaId("r")))
        await asyncio.sleep(0.12)
        fired = {event.timer: event.at for event in brain.events if isinstance(event, TimerFired)}
        assert fired.keys() == due.keys()
        assert all(at >= due[timer] for timer, at in fired.items())

    run(story())


def test_timers_fire_once_and_can_be_moved(run: Run) -> None:
    async def main() -> None:
        at = now()
        brain = Brain(
            [SetTimer("a", at + 5.0), SetTimer("a", at + 0.01), SetTimer("b", at - 1.0), SetTimer("c", at + 9.0)]
        )
        driver = driver_of(brain)
        driver.post(RequestCancelled(1.0, R))
        await asyncio.sleep(0.05)
        driver.stop()
        assert sorted(event.timer for event in brain.events if isinstance(event, TimerFired)) == ["a", "b"]

    run(main())


def test_progress_is_one_event_for_all_that_advanced(run: Run) -> None:
    async def main() -> None:
        brain = Brain()
        driver = driver_of(brain)
        body, silent = Body(), Body()
        silent.count = 0
        driver.advance(body)
        driver.advance(silent)
        assert body.advanced
        await asyncio.sleep(0.03)
        ((event,), body_after) = (brain.events, body.advanced)
        assert isinstance(event, Progress)
        assert event.counts == [(A, 3)]
        assert not body_after

    run(main())
