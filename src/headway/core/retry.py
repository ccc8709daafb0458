"""Whether a failed attempt is tried again, and what the client is told if not.

The rules are a table over outcomes. Three bounds keep retries from making things worse: a budget over all requests, at
most two attempts per request, and a quarantine for requests that killed two replicas. A connection that was found dead
when it was reused costs nothing and is retried once for free. Nothing is ever retried once a byte reached the client.

Quarantined requests are refused with 503 and the time left: a cut connection is never the client's fault for certain
(two replicas may have died by chance), so a 4xx would be a lie; Retry-After keeps clients from hammering.
"""

import enum
from typing import Final

from headway.core.constants import RetryConfig
from headway.core.entries import Answer, Suspect, Tries
from headway.core.ids import ReplicaId
from headway.core.outcome import Outcome, OutcomeKind


class Rule(enum.StrEnum):
    """What an unfinished attempt allows."""

    NEVER = "never"
    ANYWHERE_ONCE_FREE = "anywhere_once_free"  # costs no attempt the first time, the same replica may serve it
    ELSEWHERE = "elsewhere"
    HEALTHY_ONLY = "healthy_only"  # the fleet may be overloaded: only where nothing is wrong


RULES: Final[dict[OutcomeKind, Rule]] = {
    OutcomeKind.OK: Rule.NEVER,
    OutcomeKind.CLIENT_ERROR: Rule.NEVER,
    OutcomeKind.CLIENT_CLOSED: Rule.NEVER,
    OutcomeKind.BACKPRESSURE: Rule.HEALTHY_ONLY,
    OutcomeKind.SERVER_ERROR: Rule.HEALTHY_ONLY,
    OutcomeKind.OUT_OF_MEMORY: Rule.ELSEWHERE,
    OutcomeKind.ENGINE_ABORT: Rule.HEALTHY_ONLY,
    OutcomeKind.IN_BAND_ERROR: Rule.HEALTHY_ONLY,
    OutcomeKind.CONNECT_FAILED: Rule.ELSEWHERE,
    OutcomeKind.CONNECT_TIMEOUT: Rule.ELSEWHERE,
    OutcomeKind.NO_RESOURCES: Rule.ELSEWHERE,  # where a connection is open already
    OutcomeKind.RESET: Rule.ELSEWHERE,
    OutcomeKind.TRUNCATED: Rule.ELSEWHERE,
    OutcomeKind.BAD_RESPONSE: Rule.ELSEWHERE,
    OutcomeKind.STALE_CONNECTION: Rule.ANYWHERE_ONCE_FREE,
    OutcomeKind.FIRST_BYTE_TIMEOUT: Rule.NEVER,  # patience is spent, and the engine may still be working on it
    OutcomeKind.IDLE_TIMEOUT: Rule.NEVER,
    OutcomeKind.MIGRATED: Rule.NEVER,
    OutcomeKind.EVICTED: Rule.NEVER,
    OutcomeKind.CANCELLED: Rule.NEVER,  # by us for a deadline or shutdown; our own Abort is another matter
}

FINAL: Final = frozenset({OutcomeKind.OK, OutcomeKind.CLIENT_ERROR, OutcomeKind.CLIENT_CLOSED})
"""Ends after which the client needs nothing more."""

RELAYED: Final = frozenset(
    {OutcomeKind.BACKPRESSURE, OutcomeKind.SERVER_ERROR, OutcomeKind.OUT_OF_MEMORY, OutcomeKind.IN_BAND_ERROR}
)
"""Kinds that carry an answer of the engine worth giving to the client when no retry is left."""

_OK: Final = OutcomeKind.OK  # looked up once: members of an enum are slow to get at

TIMEOUTS: Final = frozenset({OutcomeKind.FIRST_BYTE_TIMEOUT, OutcomeKind.IDLE_TIMEOUT})
NOBODY: Final = frozenset({OutcomeKind.CONNECT_FAILED, OutcomeKind.CONNECT_TIMEOUT})
UNTOUCHED: Final = NOBODY | {OutcomeKind.NO_RESOURCES}
"""Ends in which no engine had a part, unless something had been sent before."""
KILLERS: Final = frozenset(
    {OutcomeKind.RESET, OutcomeKind.TRUNCATED, OutcomeKind.CONNECT_FAILED, OutcomeKind.OUT_OF_MEMORY}
)
DEATHS: Final = KILLERS | {OutcomeKind.STALE_CONNECTION}
"""Ends that look as if the engine had died, if the request had been sent: a refused connection only after a reused one
was lost with the request on it. A stale connection alone accuses nobody: engines close idle connections all
the time. It counts against the request only if another try of it then kills for certain."""


def answer(outcome: Outcome) -> Answer:
    """What to tell the client. Never a 4xx: SDKs retry the 5xx that a cut connection deserves. No address is named."""
    if outcome.kind is OutcomeKind.NO_RESOURCES:
        return Answer(503, "overloaded", "the gateway has no connection left for the request", 1.0, shed=True)
    if outcome.kind in NOBODY:
        return Answer(503, "no_replica", "no replica of this model can be reached at the moment", 1.0)
    if outcome.kind is OutcomeKind.CANCELLED:  # not the engine's doing: it was removed, or put to sleep
        return Answer(503, "no_replica", "the replica was taken out of service, and no other can take the request", 1.0)
    if outcome.kind in TIMEOUTS:
        return Answer(504, "upstream_failed", f"the engine did not answer in time ({outcome.kind})")
    if outcome.kind is OutcomeKind.ENGINE_ABORT:
        return Answer(503, "upstream_failed", "the engine aborted the request before it produced anything", 1.0)
    return Answer(502, "upstream_failed", f"the engine failed before it answered ({outcome.kind})")


class Retries:
    """The budget over all requests, and the quarantine."""

    def __init__(self, config: RetryConfig | None = None) -> None:
        self._config = config or RetryConfig()
        self.suspects: dict[int, Suspect] = {}
        self.in_flight = 0

    def sent(self, tries: Tries, retry: bool, free: bool) -> None:
        """An attempt goes out."""
        tries.made += 1
        if not free:
            tries.counted += 1
        if retry:
            self.waits(tries)

    def waits(self, tries: Tries) -> None:
        """A try that counts is to come, and the budget has room for it: it is kept for it."""
        if not tries.retrying:
            tries.retrying = True
            self.in_flight += 1

    def ended(self, tries: Tries) -> None:
        """The attempt ended, or will not come."""
        if tries.retrying:
            tries.retrying = False
            self.in_flight -= 1

    def allows(self, tries: Tries, outcome: Outcome, withdrawn: bool, active: int) -> Rule:
        """The rule for the next try, NEVER if there must be none. `withdrawn`: we aborted the attempt ourselves.

        A withdrawn attempt and the first stale connection are free: neither says anything against the request.
        `active`: requests in flight, the failed one included. What never reached an engine cannot have harmed or
        burdened one: neither the budget nor the bound on attempts applies, only the one on all tries.
        """
        config = self._config
        if outcome.committed or tries.made >= config.tries or len(tries.deaths) >= config.kills:
            return Rule.NEVER
        if withdrawn:
            return Rule.ELSEWHERE
        rule = RULES[outcome.kind]
        if rule is Rule.ANYWHERE_ONCE_FREE:
            if not tries.free_used:
                return rule
            rule = Rule.ELSEWHERE
        if outcome.kind in UNTOUCHED and not outcome.sent:
            return rule
        if rule is Rule.NEVER or tries.counted >= config.attempts:
            return Rule.NEVER
        if self.in_flight >= max(config.floor, int(config.ratio * active)):
            return Rule.NEVER
        return rule

    def judge(self, fingerprint: int, tries: Tries, replica: ReplicaId, outcome: Outcome, at: float) -> None:
        """Note what an attempt of this body did to its replica. A success clears the body."""
        if outcome.kind is _OK:
            if self.suspects:
                self.suspects.pop(fingerprint, None)
            return
        if outcome.kind not in DEATHS or not outcome.sent or outcome.output_tokens:
            return
        tries.deaths = _with(tries.deaths, replica)
        if fingerprint and outcome.kind in KILLERS:
            self._accuse(fingerprint, tries.deaths, at)

    def _accuse(self, fingerprint: int, replicas: tuple[ReplicaId, ...], at: float) -> None:
        known = self.suspects.pop(fingerprint, None)
        killed = known.replicas if known and known.until > at else ()
        for replica in replicas:
            killed = _with(killed, replica)
        self.suspects[fingerprint] = Suspect(killed, at + self._config.quarantine_s)
        if len(self.suspects) > self._config.suspects:
            del self.suspects[next(iter(self.suspects))]

    def quarantined_s(self, fingerprint: int, at: float) -> float:
        """Seconds for which this body is refused, 0 if it is not."""
        found = self.suspects.get(fingerprint)
        if found is None or len(found.replicas) < self._config.kills:
            return 0.0
        return max(0.0, found.until - at)


def _with(replicas: tuple[ReplicaId, ...], replica: ReplicaId) -> tuple[ReplicaId, ...]:
    return replicas if replica in replicas else (*replicas, replica)
