"""A body's part of moving a running request, in virtual time: what gateway/mover does with sockets.

The target first computes the prompt and what was generated so far (*warming*), while the source goes on. Then the rest
is asked for (*cutting*): what the source says from there on is held back, until the target's first token takes its
place. If that takes too long, or the target is lost, the client gets what was held back. Nothing is decided here.
"""

from collections.abc import Callable, Iterator
from typing import Final, Protocol

from headway.core.commands import Migrate
from headway.core.ids import AttemptId
from headway.core.outcome import Outcome, OutcomeKind
from headway.perfmodel.decoding import Job
from headway.sim.replica import SimReplica

PATIENCE_S: Final = 2.0
"""What is held back of a source is given to the client after so long."""


class Transfer:
    """One move. `warm`: the job that computes what is known, until it has; `held_from`: since when the source is held
    back (-1: it is not yet); `said`: tokens the target was warmed with."""

    __slots__ = ("held_from", "index", "replica", "said", "source", "target", "warm")

    def __init__(self, index: int, source: AttemptId, target: AttemptId, replica: SimReplica) -> None:
        self.index = index
        self.source = source
        self.target = target
        self.replica = replica
        self.warm: Job | None = None
        self.held_from = -1.0
        self.said = 0


class Running(Protocol):
    """What the driver knows of attempts, and does for moves."""

    now: float

    def said(self, attempt: AttemptId) -> int:
        """Output tokens of the request so far, as the client sees it."""
        ...

    def continuation(self, name: str, index: int, said: int, limit: int, warm: int = 0) -> Job:
        """A job that goes on from so many tokens, for at most `limit` more (0: to its end). The first `warm` of them
        may be in the target's cache."""
        ...

    def send(self, attempt: AttemptId, index: int, replica: SimReplica, job: Job) -> None:
        """Send an attempt."""
        ...

    def ended(self, attempt: AttemptId, outcome: Outcome) -> None:
        """An attempt is over; its request is not."""
        ...

    def later(self, delay: float, act: Callable[[float, object], None], what: object) -> None:
        """Do something after a while."""
        ...


class Moving:
    """All moves under way. `stalls`: what clients noticed of each cut, in seconds."""

    def __init__(self, running: Running) -> None:
        self._running = running
        self._by_source: dict[AttemptId, Transfer] = {}
        self._by_target: dict[AttemptId, Transfer] = {}
        self.stalls: list[float] = []

    def __iter__(self) -> Iterator[Transfer]:
        return iter(list(self._by_target.values()))

    def begin(self, command: Migrate, index: int, replica: SimReplica) -> None:
        """Warm the target."""
        transfer = Transfer(index, command.source, command.attempt_id, replica)
        self._by_source[command.source] = self._by_target[command.attempt_id] = transfer
        running = self._running
        transfer.said = said = running.said(command.source)
        transfer.warm = job = running.continuation(command.attempt_id, index, said, 1, said)
        running.send(command.attempt_id, index, replica, job)

    def warming(self, attempt: str) -> bool:
        """Whether this attempt computes what is known only."""
        transfer = self._by_target.get(AttemptId(attempt))
        return transfer is not None and transfer.warm is not None

    def warmed(self, attempt: AttemptId, said: int) -> None:
        """The target has computed what was known; `said`: what the client has by now. Ask it for the rest."""
        transfer, running = self._by_target[attempt], self._running
        transfer.warm, transfer.held_from = None, running.now
        job = running.continuation(attempt, transfer.index, said, 0, transfer.said)
        running.send(attempt, transfer.index, transfer.replica, job)
        running.later(PATIENCE_S, self._impatient, transfer)

    def source_of(self, attempt: AttemptId) -> AttemptId | None:
        """The attempt that runs while this one is made ready."""
        transfer = self._by_target.get(attempt)
        return transfer.source if transfer is not None else None

    def started(self, attempt: AttemptId) -> Transfer | None:
        """A target said its first token: the move is over, and its source is to end."""
        transfer = self._by_target.pop(attempt, None)
        if transfer is not None:
            self.stalls.append(self._running.now - transfer.held_from)
            self._by_source.pop(transfer.source, None)
        return transfer

    def lost(self, attempt: AttemptId) -> Transfer | None:
        """An attempt is over. If it was a source that will not be missed, or a target, the move is over too."""
        transfer = self._by_source.pop(attempt, None) or self._by_target.get(attempt)
        if transfer is not None:
            self._by_target.pop(transfer.target, None)
            self._by_source.pop(transfer.source, None)
        return transfer

    def orphaned(self, attempt: AttemptId) -> bool:
        """A source is lost that a target was being made ready for: the target goes on alone. False if there is none."""
        return self._by_source.pop(attempt, None) is not None

    def _impatient(self, _at: float, what: object) -> None:
        assert isinstance(what, Transfer)
        if self._by_target.get(what.target) is what and what.source in self._by_source:
            self._running.ended(what.target, Outcome(OutcomeKind.CANCELLED))
