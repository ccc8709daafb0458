"""How an attempt ended. A low-cardinality enum for decisions and metrics; detail in text for people.

`Outcome` is a plain class and not a Struct, as `entries`.
"""

import enum
from typing import Any, Final, final


class OutcomeKind(enum.StrEnum):
    """Every way an attempt can end. `VERDICT` says what each means for the replica's health."""

    OK = "ok"
    CLIENT_ERROR = "client_error"  # the engine answered 4xx other than 429
    BACKPRESSURE = "backpressure"  # 429, or 503 that says the queue is full
    SERVER_ERROR = "server_error"  # the engine answered 5xx
    OUT_OF_MEMORY = "out_of_memory"  # it said that it was, in a 5xx or an error event
    CONNECT_FAILED = "connect_failed"  # refused, unreachable, DNS, TLS
    CONNECT_TIMEOUT = "connect_timeout"
    NO_RESOURCES = "no_resources"  # we had no descriptor, port or memory for a connection, or no way to go on there
    STALE_CONNECTION = "stale_connection"  # a reused connection died before any response byte
    RESET = "reset"  # a fresh connection died before any response byte
    FIRST_BYTE_TIMEOUT = "first_byte_timeout"
    IDLE_TIMEOUT = "idle_timeout"  # silence between two pieces of a response
    TRUNCATED = "truncated"  # the response ended before its framing said so
    BAD_RESPONSE = "bad_response"  # not HTTP, two framings, header bomb ...
    ENGINE_ABORT = "engine_abort"  # finish_reason "abort" inside a 200
    IN_BAND_ERROR = "in_band_error"  # an error event inside a 200 stream
    CLIENT_CLOSED = "client_closed"
    MIGRATED = "migrated"  # another replica goes on with it, and the client has noticed nothing
    EVICTED = "evicted"  # we took it away from the engine; it goes on later
    CANCELLED = "cancelled"  # we withdrew it (drain, admin, deadline)


class Verdict(enum.StrEnum):
    """What an outcome says about the replica."""

    SUCCESS = "success"
    BACKPRESSURE = "backpressure"
    FAILURE = "failure"
    NEUTRAL = "neutral"


VERDICT: Final[dict[OutcomeKind, Verdict]] = {
    OutcomeKind.OK: Verdict.SUCCESS,
    OutcomeKind.CLIENT_ERROR: Verdict.SUCCESS,  # it answered; a wrong key or prompt is not ill health
    OutcomeKind.BACKPRESSURE: Verdict.BACKPRESSURE,
    OutcomeKind.SERVER_ERROR: Verdict.FAILURE,
    OutcomeKind.OUT_OF_MEMORY: Verdict.FAILURE,
    OutcomeKind.CONNECT_FAILED: Verdict.FAILURE,
    OutcomeKind.CONNECT_TIMEOUT: Verdict.FAILURE,
    OutcomeKind.NO_RESOURCES: Verdict.NEUTRAL,  # the lack is ours
    OutcomeKind.STALE_CONNECTION: Verdict.NEUTRAL,  # engines close idle connections all the time
    OutcomeKind.RESET: Verdict.FAILURE,
    OutcomeKind.FIRST_BYTE_TIMEOUT: Verdict.FAILURE,
    OutcomeKind.IDLE_TIMEOUT: Verdict.FAILURE,
    OutcomeKind.TRUNCATED: Verdict.FAILURE,
    OutcomeKind.BAD_RESPONSE: Verdict.FAILURE,
    OutcomeKind.ENGINE_ABORT: Verdict.BACKPRESSURE,  # draining or paused, not dead
    OutcomeKind.IN_BAND_ERROR: Verdict.FAILURE,
    OutcomeKind.CLIENT_CLOSED: Verdict.NEUTRAL,
    OutcomeKind.MIGRATED: Verdict.NEUTRAL,
    OutcomeKind.EVICTED: Verdict.NEUTRAL,
    OutcomeKind.CANCELLED: Verdict.NEUTRAL,
}

GOES_ON: Final = frozenset({OutcomeKind.MIGRATED, OutcomeKind.EVICTED})
"""An attempt that ended, but not its request."""


OUTCOME: Final = (
    "kind", "status", "committed", "sent", "prompt_tokens", "cached_tokens", "output_tokens", "hit_limit",
    "retry_after_s", "detail", "resumable",
)  # fmt: skip
"""Its fields, in the order of its arguments."""


@final
class Outcome:
    """The end of one attempt, as seen by the body.

    `committed`: a response byte of this attempt was given to the client, so the request can no longer be retried.
    `resumable`: although committed, the body has kept what the client was given and can go on from there elsewhere.
    `sent`: the request was written to the engine in full or in part, so it may have executed.
    Token counts are the engine's own usage report where it gave one, else what was counted, else 0.
    `retry_after_s` is what the engine asked for, 0 if nothing.
    """

    __slots__ = (
        "cached_tokens", "committed", "detail", "hit_limit", "kind", "output_tokens", "prompt_tokens", "resumable",
        "retry_after_s", "sent", "status",
    )  # fmt: skip

    def __init__(
        self,
        kind: OutcomeKind,
        status: int = 0,
        committed: bool = False,
        sent: bool = False,
        prompt_tokens: int = 0,
        cached_tokens: int = 0,
        output_tokens: int = 0,
        hit_limit: bool = False,
        retry_after_s: float = 0.0,
        detail: str = "",
        resumable: bool = False,
    ) -> None:
        self.kind: Final = kind
        self.status: Final = status
        self.committed: Final = committed
        self.sent: Final = sent
        self.prompt_tokens: Final = prompt_tokens
        self.cached_tokens: Final = cached_tokens
        self.output_tokens: Final = output_tokens
        self.hit_limit: Final = hit_limit
        self.retry_after_s: Final = retry_after_s
        self.detail: Final = detail
        self.resumable: Final = resumable

    def facts(self) -> tuple[Any, ...]:
        """All of it, in the order of the arguments."""
        return tuple(getattr(self, name) for name in OUTCOME)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Outcome) and self.facts() == other.facts()

    def __hash__(self) -> int:
        return hash(self.facts())

    def __repr__(self) -> str:
        return f"Outcome{self.facts()}"
