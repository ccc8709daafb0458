"""The only holder of the brain in the gateway: hands it events in order, and performs what it commands.

Everything is synchronous. An event that arises while commands are performed waits its turn, so the brain sees one
event at a time, in the order they happened. Nothing is decided here.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, Final, Protocol

from headway.core.commands import (
    Abort,
    Command,
    Dispatch,
    Evict,
    Hold,
    LevelChanged,
    Migrate,
    Probe,
    Record,
    Recorded,
    Reject,
    Relay,
    Restart,
    SetTimer,
    WarmUp,
)
from headway.core.events import AttemptFinished, Event, EvictionRefused, Progress, ReplicasChanged, TimerFired
from headway.core.ids import AttemptId, ReplicaId, RequestId
from headway.core.outcome import Outcome, OutcomeKind
from headway.core.snapshot import FleetSnapshot
from headway.runtime.clock import now

_DISPATCH: Final = Dispatch  # compiled, a constant of this module is one load, and an imported class a look-up
_RECORD: Final = Record
_LEVEL_CHANGED: Final = LevelChanged
_REPLICAS_CHANGED: Final = ReplicasChanged


class Brain(Protocol):
    """core.brain.Brain, or a fake of it."""

    def handle(self, event: Event) -> list[Command]: ...
    def snapshot(self, at: float) -> FleetSnapshot: ...
    def prospect(self, request_id: RequestId, at: float) -> tuple[int, float] | None: ...


class Body(Protocol):
    """One request, as the driver commands it."""

    @property
    def client_name(self) -> str: ...
    def dispatch(self, command: Dispatch) -> None: ...
    def hold(self, command: Hold) -> None: ...
    def reject(self, command: Reject) -> None: ...
    def relay(self, command: Relay) -> None: ...
    def abort(self, attempt: AttemptId, reason: str) -> None: ...
    def migrate(self, command: Migrate) -> None: ...
    def evict(self, command: Evict) -> None: ...


class Advancing(Protocol):
    """One attempt that generates tokens."""

    id: AttemptId
    advanced: bool

    def tokens(self) -> int: ...


class Keeper(Protocol):
    """What keeps records of decisions and settlements."""

    def record(self, entry: Recorded) -> None: ...


class Driver:
    """Feeds one brain. `exchanges` are the requests it may command, by id."""

    def __init__(
        self,
        brain: Brain,
        keeper: Keeper,
        tick_s: float,
        replicas_changed: Callable[[ReplicasChanged], None],
        journal: Callable[[Event, list[Command]], None] | None = None,
        probe: Callable[[ReplicaId], None] | None = None,
        warm_up: Callable[[ReplicaId], None] | None = None,
        restart: Callable[[ReplicaId, str], None] | None = None,
        level_changed: Callable[[LevelChanged], None] = lambda _entry: None,
    ) -> None:
        self.exchanges: dict[RequestId, Body] = {}
        self._brain = brain
        self._keeper = keeper
        self._tick_s = tick_s
        self._replicas_changed = replicas_changed
        self._level_changed = level_changed
        self._journal = journal
        self.probe = probe
        self.warm_up = warm_up
        self.restart = restart
        self._events: deque[Event] = deque()
        self._busy = False
        self._advanced: list[Advancing] = []
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._perform: dict[type, Callable[[Any], None]] = {
            Hold: self._on_request("hold"),
            Reject: self._on_request("reject"),
            Relay: self._on_request("relay"),
            Migrate: self._migrate,
            Evict: self._evict,
            Abort: self._abort,
            SetTimer: self._set_timer,
            Probe: self._ask_probe,
            WarmUp: self._ask_warm_up,
            Restart: self._ask_restart,
        }

    def post(self, event: Event) -> None:
        """Hand over an event, and perform what follows from it before returning (unless called from within)."""
        if self._busy:
            self._events.append(event)
            return
        self._busy = True
        try:
            self._handle(event)
            while self._events:
                self._handle(self._events.popleft())
        finally:
            self._busy = False

    def snapshot(self) -> FleetSnapshot:
        """Every view at this moment."""
        return self._brain.snapshot(now())

    def prospect(self, request_id: RequestId) -> tuple[int, float] | None:
        """Position in the queue and expected wait (s) of a request, None if it is not held (any more)."""
        return self._brain.prospect(request_id, now())

    def advance(self, attempt: Advancing) -> None:
        """The attempt generated tokens; the brain hears of it with the next tick. Call once until `advanced` falls."""
        attempt.advanced = True
        if not self._advanced:
            asyncio.get_running_loop().call_later(self._tick_s, self._tick)
        self._advanced.append(attempt)

    def stop(self) -> None:
        """Let no timer fire any more."""
        for handle in self._timers.values():
            handle.cancel()
        self._timers.clear()

    def _handle(self, event: Event) -> None:
        if type(event) is _REPLICAS_CHANGED:
            self._replicas_changed(event)
        commands = self._brain.handle(event)
        if self._journal is not None:
            self._journal(event, commands)
        for command in commands:
            if type(command) is _DISPATCH:
                exchange = self.exchanges.get(command.request_id)
                if exchange is not None:
                    exchange.dispatch(command)
            elif type(command) is _RECORD:
                entry = command.entry
                self._keeper.record(entry)
                if type(entry) is _LEVEL_CHANGED:
                    self._level_changed(entry)
            else:
                self._perform[type(command)](command)

    def _on_request(self, verb: str) -> Callable[[Any], None]:
        exchanges = self.exchanges

        def perform(command: Any) -> None:
            exchange = exchanges.get(command.request_id)
            if exchange is not None:
                getattr(exchange, verb)(command)

        return perform

    def _abort(self, command: Abort) -> None:
        exchange = self._of(command.attempt_id)
        if exchange is not None:
            exchange.abort(command.attempt_id, command.reason)

    def _migrate(self, command: Migrate) -> None:
        """The brain waits for the end of a target, also if its request is no more."""
        exchange = self.exchanges.get(command.request_id)
        if exchange is not None:
            exchange.migrate(command)
        else:
            gone = Outcome(OutcomeKind.CANCELLED, detail="its request has ended")
            self.post(AttemptFinished(now(), command.attempt_id, gone))

    def _evict(self, command: Evict) -> None:
        exchange = self._of(command.attempt_id)
        if exchange is not None:
            exchange.evict(command)
        else:
            self.post(EvictionRefused(now(), command.attempt_id))

    def _of(self, attempt: AttemptId) -> Body | None:
        return self.exchanges.get(RequestId(attempt.rpartition("-")[0]))

    def _set_timer(self, command: SetTimer) -> None:
        earlier = self._timers.pop(command.timer, None)
        if earlier is not None:
            earlier.cancel()
        delay = max(0.0, command.at - now())
        self._timers[command.timer] = asyncio.get_running_loop().call_later(delay, self._fire, command)

    def _fire(self, command: SetTimer) -> None:
        if now() < command.at:  # the loop counts in whole milliseconds, and the brain ignores a timer that is early
            self._set_timer(command)
            return
        del self._timers[command.timer]
        self.post(TimerFired(now(), command.timer))

    def _ask_probe(self, command: Probe) -> None:
        if self.probe is not None:
            self.probe(command.replica_id)

    def _ask_warm_up(self, command: WarmUp) -> None:
        if self.warm_up is not None:
            self.warm_up(command.replica_id)
        elif self.probe is not None:
            self.probe(command.replica_id)

    def _ask_restart(self, command: Restart) -> None:
        if self.restart is not None:
            self.restart(command.replica_id, command.reason)

    def _tick(self) -> None:
        advanced, self._advanced = self._advanced, []
        counts = [(attempt.id, tokens) for attempt in advanced if (tokens := attempt.tokens())]
        for attempt in advanced:
            attempt.advanced = False
        if counts:
            self.post(Progress(now(), counts))
