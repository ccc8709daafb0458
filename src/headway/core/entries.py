"""What the brain writes down while it works: one attempt, one request, one choice. Rooms of core pass these values to
each other and change them in place.

Only values live here, none with a rule of its own; each belongs to the room whose name is said. They are plain classes
and not Structs, for they are read a hundred times for each request: compiled, an attribute of theirs is one load.
"""

import math
from collections.abc import Sequence
from typing import Final, final

from headway.core.demand import Demand
from headway.core.entry import Entry, Share
from headway.core.ids import AttemptId, ReplicaId
from headway.core.replica import ReplicaSpec
from headway.core.request import RequestInfo
from headway.core.view import ReplicaView


@final
class Answered:
    """An answer in one piece, or the mean of several: `prefilled` uncached tokens were prefilled by its replica
    meanwhile, its own included, and it took `steps` of decoding beside `running` sequences of `context` tokens in
    total; all that in `seconds`."""

    __slots__ = ("context", "prefilled", "running", "seconds", "steps")

    def __init__(
        self,
        prefilled: float,
        steps: float,
        running: float,
        context: float,
        seconds: float,
    ) -> None:
        self.prefilled: Final = prefilled
        self.steps: Final = steps
        self.running: Final = running
        self.context: Final = context
        self.seconds: Final = seconds


@final
class Since:
    """What an account changed by since a moment."""

    __slots__ = ("context", "dispatched", "in_flight", "prefill", "started")

    def __init__(
        self,
        context: int = 0,
        in_flight: int = 0,
        started: int = 0,
        prefill: int = 0,
        dispatched: int = 0,
    ) -> None:
        self.context = context
        self.in_flight = in_flight
        self.started = started
        self.prefill = prefill
        self.dispatched = dispatched


@final
class Tries:
    """The tries of one request so far. `spared`: the next one, for which it waits, will not count."""

    __slots__ = ("counted", "deaths", "excluded", "free_used", "made", "retrying", "spared")

    def __init__(
        self,
        made: int = 0,
        counted: int = 0,
        free_used: bool = False,
        excluded: tuple[ReplicaId, ...] = (),
        deaths: tuple[ReplicaId, ...] = (),
        retrying: bool = False,
        spared: bool = False,
    ) -> None:
        self.made = made
        self.counted = counted
        self.free_used = free_used
        self.excluded = excluded
        self.deaths = deaths
        self.retrying = retrying
        self.spared = spared


@final
class Answer:
    """Our own words for a failed attempt that has none of the engine's."""

    __slots__ = ("code", "message", "retry_after_s", "shed", "status")

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        retry_after_s: float = 0.0,
        shed: bool = False,
    ) -> None:
        self.status: Final = status
        self.code: Final = code
        self.message: Final = message
        self.retry_after_s: Final = retry_after_s
        self.shed: Final = shed


@final
class Suspect:
    """A request body that took replicas down."""

    __slots__ = ("replicas", "until")

    def __init__(
        self,
        replicas: tuple[ReplicaId, ...],
        until: float,
    ) -> None:
        self.replicas = replicas
        self.until = until


@final
class Expected:
    """What is believed of a request: for policies, and for the memory forecast."""

    __slots__ = ("demand", "part")

    def __init__(
        self,
        demand: Demand,
        part: Share,
    ) -> None:
        self.demand: Final = demand
        self.part: Final = part


@final
class Terms:
    """On which terms a request is served, as `commands.Dispatch` has them. `asked`: the model that was asked for, if
    another one answers."""

    __slots__ = ("asked", "disclosed", "logprobs", "max_tokens")

    def __init__(
        self,
        max_tokens: int = 0,
        logprobs: bool = True,
        disclosed: tuple[tuple[str, str], ...] = (),
        asked: str = "",
    ) -> None:
        self.asked: Final = asked
        self.max_tokens: Final = max_tokens
        self.logprobs: Final = logprobs
        self.disclosed: Final = disclosed


PLAIN: Final = Terms()


@final
class Move:
    """A running request on its way from one replica to another (`target` empty: into the queue). `phase` as in
    `core.migration`; `replayed`: tokens that the target must prefill; `benefit_s` and `cost_s`: what was expected of
    it, in request-seconds."""

    __slots__ = ("attempt", "began_at", "benefit_s", "cost_s", "phase", "reason", "replayed", "source", "target")

    def __init__(
        self,
        phase: str,
        source: ReplicaId,
        target: ReplicaId,
        attempt: AttemptId,
        reason: str,
        began_at: float,
        replayed: int = 0,
        benefit_s: float = 0.0,
        cost_s: float = 0.0,
    ) -> None:
        self.phase = phase
        self.source = source
        self.target = target
        self.attempt = attempt
        self.reason = reason
        self.began_at = began_at
        self.replayed = replayed
        self.benefit_s = benefit_s
        self.cost_s = cost_s


@final
class Job:
    """One request from arrival to its end. `part` is its share of a memory forecast; `due`: the last moment at which it
    can go and keep its TTFT objective, once that was asked for; `asked`: what was believed when it came, which its
    tenant was charged for. What it has gone through since: `generated` tokens by earlier attempts, the `move` under
    way, how many there were (`moved_at`: the last), the replica that it `left` for none, how often it was evicted and
    outlived a replica; `waits_from`: when it was held last. `charged`: tokens that its tenant's turns were charged.
    """

    __slots__ = (
        "arrived_at", "asked", "at_least", "attempt", "charged", "demand", "due", "evictions", "failovers", "generated",
        "held", "left", "matches", "move", "moved_at", "moves", "part", "request", "terms", "tries", "waits_from",
    )  # fmt: skip

    def __init__(
        self,
        request: RequestInfo,
        asked: Demand,
        demand: Demand,
        matches: dict[ReplicaId, int],
        part: Share,
        at_least: int,
        arrived_at: float,
        tries: Tries,
        attempt: AttemptId | None = None,
        held: bool = False,
        due: float | None = None,
        terms: Terms = PLAIN,
        generated: int = 0,
        move: Move | None = None,
        moves: int = 0,
        moved_at: float = -math.inf,
        evictions: int = 0,
        failovers: int = 0,
        left: ReplicaSpec | None = None,
        waits_from: float = -math.inf,
        charged: float = 0.0,
    ) -> None:
        self.request = request
        self.asked = asked
        self.demand = demand
        self.matches = matches
        self.part = part
        self.at_least = at_least
        self.arrived_at = arrived_at
        self.tries = tries
        self.attempt = attempt
        self.held = held
        self.due = due
        self.terms = terms
        self.generated = generated
        self.move = move
        self.moves = moves
        self.moved_at = moved_at
        self.evictions = evictions
        self.failovers = failovers
        self.left = left
        self.waits_from = waits_from
        self.charged = charged


@final
class Plan:
    """A move worth making. `target` is None for an eviction into the queue."""

    __slots__ = ("benefit_s", "cost_s", "entry", "reason", "replayed", "target")

    def __init__(
        self,
        entry: Entry,
        target: ReplicaView | None,
        reason: str,
        replayed: int = 0,
        benefit_s: float = 0.0,
        cost_s: float = 0.0,
    ) -> None:
        self.entry: Final = entry
        self.target: Final = target
        self.reason: Final = reason
        self.replayed: Final = replayed
        self.benefit_s: Final = benefit_s
        self.cost_s: Final = cost_s


@final
class Waiting:
    """A job in a queue. `serial`: order of arrival; `due`: the last moment at which it can go and keep its TTFT
    objective; `late`: that has passed; `tier`: what it counts as by now; `cost`: tokens its tenant will be charged;
    `rises_at`: when it counts as one tier more; `bypassed` counts overtakings while it was the first of its class."""

    __slots__ = ("bypassed", "cost", "due", "expires", "job", "late", "rises_at", "serial", "tenant", "tier")

    def __init__(
        self,
        job: Job,
        serial: int,
        expires: float,
        due: float,
        tier: int,
        tenant: str,
        cost: float,
        late: bool = False,
        rises_at: float = math.inf,
        bypassed: int = 0,
    ) -> None:
        self.job = job
        self.serial = serial
        self.expires = expires
        self.due = due
        self.tier = tier
        self.tenant = tenant
        self.cost = cost
        self.late = late
        self.rises_at = rises_at
        self.bypassed = bypassed


@final
class Choice:
    """What was chosen, and from what. `kept`: because the request's session keeps to it."""

    __slots__ = ("all_costs", "exclusions", "index", "kept", "view", "views")

    def __init__(
        self,
        view: ReplicaView,
        index: int,
        views: Sequence[ReplicaView],
        all_costs: Sequence[tuple[float, ...]],
        exclusions: dict[str, int],
        kept: bool = False,
    ) -> None:
        self.view = view
        self.index = index
        self.views = views
        self.all_costs = all_costs
        self.exclusions = exclusions
        self.kept = kept


@final
class Outage:
    """A replica that is dead, or was: when it is `due` for a restart, how many it had, and since when it is over."""

    __slots__ = ("due", "over_at", "restarts")

    def __init__(
        self,
        due: float,
        restarts: int = 0,
        over_at: float = math.inf,
    ) -> None:
        self.due = due
        self.restarts = restarts
        self.over_at = over_at
