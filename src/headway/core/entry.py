"""One attempt in flight, and its share of a forecast of memory: what the brain looks at most.

Every stream that goes on changes its entry several times a second, and a forecast reads all entries of a replica: for
each that is made, its fields are read hundreds of times. So these two, as the other values that the brain works with
(`entries`), are no Structs but classes that can be compiled: compiled code reads a field of its own class as fast as a
local variable, and one of a Struct at the price of a look-up.
"""

import math

from headway.core.demand import Demand
from headway.core.ids import AttemptId, ReplicaId
from headway.core.replica import ReplicaSpec
from headway.core.request import RequestInfo

Octet = tuple[float, float, float, float, float, float, float, float]
"""A value for each of `memory.HORIZONS`. Of fixed length, because compiled code keeps such a tuple without boxes."""


class Share:
    """What one request adds to a curve: expected tokens and variance at each horizon, and what it holds if it lives:
    `context` now, `sequences` more at each step. None of its means and deviations exceeds `mean_bound` and
    `sigma_bound`: they decide most cases without a look at the horizons."""

    __slots__ = ("context", "mean", "mean_bound", "sequences", "sigma_bound", "var")

    def __init__(
        self,
        mean: Octet,
        var: Octet,
        context: float,
        sequences: int,
        mean_bound: float,
        sigma_bound: float,
    ) -> None:
        self.mean = mean
        self.var = var
        self.context = context
        self.sequences = sequences
        self.mean_bound = mean_bound
        self.sigma_bound = sigma_bound

    @property
    def peak(self) -> float:
        """The largest mean."""
        return max(self.mean)

    @property
    def peak_var(self) -> float:
        """The largest variance."""
        return max(self.var)


class Entry:
    """One attempt in flight (tokens, seconds).

    `prompt` is the whole prompt, `hit` what is believed cached of it, `predicted_hit` the same before trust is
    applied; `reserve` the expected total output, `limit` the most it can be (0: unknown). `started`: its prefill is
    done or presumed done; `first_token_at` only when content was seen. `ahead`: uncached tokens that had to be
    prefilled when it was sent, its own included. `demand` is what was believed of the request. `base`: output tokens of
    earlier attempts that it goes on from; they are part of its `prompt`. `spec`: its replica's, when it was sent.
    `streams`, `generates` and `sequences` are its request's; `names` those of what its output may be like (`length`),
    once somebody asked. Of those that are not streamed, `overdue_at`: when it will have taken longer than hardly any;
    `prefilled_before`: what its replica had prefilled when it was sent.
    """

    __slots__ = (
        "aborting",
        "ahead",
        "attempt_id",
        "base",
        "demand",
        "dispatched_at",
        "first_token_at",
        "forecast_ttft_s",
        "generated",
        "generates",
        "heard_at",
        "hit",
        "limit",
        "names",
        "overdue_at",
        "predicted_hit",
        "prefilled_before",
        "prompt",
        "replica_id",
        "request",
        "reserve",
        "sequences",
        "share",
        "spec",
        "started",
        "streams",
    )

    def __init__(
        self,
        attempt_id: AttemptId,
        request: RequestInfo,
        replica_id: ReplicaId,
        prompt: int,
        hit: int,
        predicted_hit: int,
        reserve: int,
        limit: int,
        share: Share,
        dispatched_at: float,
        heard_at: float,
        forecast_ttft_s: float,
        demand: Demand,
        base: int = 0,
        spec: ReplicaSpec | None = None,
    ) -> None:
        self.attempt_id = attempt_id
        self.request = request
        self.replica_id = replica_id
        self.prompt = prompt
        self.hit = hit
        self.predicted_hit = predicted_hit
        self.reserve = reserve
        self.limit = limit
        self.share = share
        self.dispatched_at = dispatched_at
        self.heard_at = heard_at
        self.forecast_ttft_s = forecast_ttft_s
        self.demand = demand
        self.base = base
        self.spec = spec
        self.ahead = self.generated = self.prefilled_before = 0
        self.started = self.aborting = False
        self.first_token_at: float | None = None
        self.overdue_at = math.inf
        self.streams = request.stream
        self.generates = request.generates
        self.sequences = request.sequences
        self.names = ("", "")

    @property
    def uncached(self) -> int:
        """Prompt tokens to be prefilled."""
        return self.prompt - self.hit

    @property
    def outstanding(self) -> int:
        """Reserved tokens not generated yet."""
        left = self.reserve - self.generated
        return left if left > 0 else 0
