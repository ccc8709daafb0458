"""What the brain writes down while it works: one attempt, one request, one choice. Rooms of core pass these values to
each other and change them in place.

Only values live here, none with a rule of its own; each belongs to the room whose name is said. They are Structs, which
are cheap to make and to read in plain Python, and must not be compiled: a Struct in compiled code loses its options.
What is read far more often than it is made is a class of its own, which is compiled (`entry`).
"""

import math
from collections.abc import Sequence

import msgspec

from headway.core.entry import Entry, Share
from headway.core.ids import AttemptId, ReplicaId
from headway.core.request import Demand, RequestInfo
from headway.core.view import ReplicaView


class Answered(msgspec.Struct, frozen=True, gc=False):
    """An answer in one piece, or the mean of several: `prefilled` uncached tokens were prefilled by its replica
    meanwhile, its own included, and it took `steps` of decoding beside `running` sequences of `context` tokens in
    total; all that in `seconds`."""

    prefilled: float
    steps: float
    running: float
    context: float
    seconds: float


class Since(msgspec.Struct, gc=False):
    """What an account changed by since a moment."""

    context: int = 0
    in_flight: int = 0
    started: int = 0
    prefill: int = 0
    dispatched: int = 0


class Tries(msgspec.Struct, gc=False):
    """The tries of one request so far. `spared`: the next one, for which it waits, will not count."""

    made: int = 0
    counted: int = 0
    free_used: bool = False
    excluded: tuple[ReplicaId, ...] = ()
    deaths: tuple[ReplicaId, ...] = ()
    retrying: bool = False
    spared: bool = False


class Answer(msgspec.Struct, frozen=True):
    """Our own words for a failed attempt that has none of the engine's."""

    status: int
    code: str
    message: str
    retry_after_s: float = 0.0
    shed: bool = False


class Suspect(msgspec.Struct):
    """A request body that took replicas down."""

    replicas: tuple[ReplicaId, ...]
    until: float


class Expected(msgspec.Struct, frozen=True, gc=False):
    """What is believed of a request: for policies, and for the memory forecast."""

    demand: Demand
    part: Share


class Terms(msgspec.Struct, frozen=True, gc=False):
    """On which terms a request is served, as `commands.Dispatch` has them."""

    max_tokens: int = 0
    logprobs: bool = True
    disclosed: tuple[tuple[str, str], ...] = ()


PLAIN = Terms()


class Move(msgspec.Struct, gc=False):
    """A running request on its way from one replica to another (`target` empty: into the queue). `phase` as in
    `core.migration`; `replayed`: tokens that the target must prefill; `benefit_s` and `cost_s`: what was expected of
    it, in request-seconds."""

    phase: str
    source: ReplicaId
    target: ReplicaId
    attempt: AttemptId
    reason: str
    began_at: float
    replayed: int = 0
    benefit_s: float = 0.0
    cost_s: float = 0.0


class Job(msgspec.Struct, gc=False):
    """One request from arrival to its end. `part` is its share of a memory forecast; `due`: the last moment at which it
    can go and keep its TTFT objective, once that was asked for; `asked`: what was believed when it came, which its
    tenant was charged for. What it has gone through since: `generated` tokens by earlier attempts, the `move` under
    way, how many there were (`moved_at`: the last), how often it was evicted and outlived a replica; `waits_from`: when
    it was held last.
    """

    request: RequestInfo
    asked: Demand
    demand: Demand
    matches: dict[ReplicaId, int]
    part: Share
    at_least: int
    arrived_at: float
    tries: Tries
    attempt: AttemptId | None = None
    held: bool = False
    due: float | None = None
    terms: Terms = PLAIN
    generated: int = 0
    move: Move | None = None
    moves: int = 0
    moved_at: float = -math.inf
    evictions: int = 0
    failovers: int = 0
    waits_from: float = -math.inf


class Plan(msgspec.Struct, frozen=True, gc=False):
    """A move worth making. `target` is None for an eviction into the queue."""

    entry: Entry
    target: ReplicaView | None
    reason: str
    replayed: int = 0
    benefit_s: float = 0.0
    cost_s: float = 0.0


class Waiting(msgspec.Struct):
    """A job in a queue. `serial`: order of arrival; `due`: the last moment at which it can go and keep its TTFT
    objective; `late`: that has passed; `tier`: what it counts as by now; `cost`: tokens its tenant will be charged;
    `rises_at`: when it counts as one tier more; `bypassed` counts overtakings while it was the first of its class."""

    job: Job
    serial: int
    expires: float
    due: float
    tier: int
    tenant: str
    cost: float
    late: bool = False
    rises_at: float = math.inf
    bypassed: int = 0


class Choice(msgspec.Struct, gc=False):
    """What was chosen, and from what. `kept`: because the request's session keeps to it."""

    view: ReplicaView
    index: int
    views: Sequence[ReplicaView]
    all_costs: Sequence[tuple[float, ...]]
    exclusions: dict[str, int]
    kept: bool = False


class Outage(msgspec.Struct, gc=False):
    """A replica that is dead, or was: when it is `due` for a restart, how many it had, and since when it is over."""

    due: float
    restarts: int = 0
    over_at: float = math.inf
