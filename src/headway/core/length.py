"""How long prompts and outputs are: bytes per token of prompts, and the law of output lengths.

Both are learned from what engines report, fleet-wide and per model; a model little is known about leans on the fleet,
the fleet on the prior (`shrink` pseudo-observations of the law below). Nothing here knows replicas or time.

Output lengths are a log-histogram of `bins` bins, read as a survival law P(l > x). An output that was cut short (by
max_tokens, by the client) is right-censored: it says "at least this long", and counting it as an end would make every
forecast too short. The estimator is Kaplan and Meier's on binned data (J. Amer. Statist. Assoc. 53, 1958): the hazard
of a bin is ends in it over outputs at risk in it. Laws are rebuilt lazily, because they are asked far more often than
they change.
"""

from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise
from math import exp

from headway.core.constants import LengthConfig
from headway.core.request import RequestInfo

_MAX_HAZARD = 0.999
"""No bin ends everything: what outlives all that was seen must still be divisible by its own survival."""


class _Law:
    """A survival law on fixed edges, linear within a bin.

    `survival[k]` is P(l > edges[k]); `tail[k]` the integral of the survival from edges[k] on, `tail2[k]` the integral
    of the tail. Summed from the far end, so that quotients stay exact where hardly anything survives.
    """

    __slots__ = ("edges", "forecasts", "hazard", "survival", "tail", "tail2")

    def __init__(self, edges: Sequence[int], hazard: list[float]) -> None:
        self.edges = edges
        self.hazard = hazard
        self.forecasts: dict[int, tuple[float, float]] = {}
        alive = 1.0
        self.survival = [alive]
        for h in hazard:
            alive *= 1.0 - min(h, _MAX_HAZARD)
            self.survival.append(alive)
        self.survival[-1] = 0.0  # whatever is longer than the last edge ends there
        self.tail = [0.0] * len(edges)
        self.tail2 = [0.0] * len(edges)
        for k in range(len(edges) - 2, -1, -1):
            width, near, far = edges[k + 1] - edges[k], self.survival[k], self.survival[k + 1]
            self.tail[k] = self.tail[k + 1] + width * (near + far) / 2
            self.tail2[k] = self.tail2[k + 1] + width * self.tail[k + 1] + width * width * (near + 2 * far) / 6

    def clamp(self, generated: int) -> int:
        """Beyond the last bin nothing is known: whoever got there is taken to have just entered it."""
        return min(generated, self.edges[-2])

    def at(self, x: float) -> float:
        """P(l > x)."""
        edges = self.edges
        if x >= edges[-1]:
            return 0.0
        k = bisect_right(edges, x) - 1
        near = self.survival[k]
        return near + (self.survival[k + 1] - near) * (x - edges[k]) / (edges[k + 1] - edges[k])

    def integrals(self, x: float) -> tuple[float, float, float]:
        """Survival at x, its integral from x on, and the integral of that from x on."""
        edges = self.edges
        if x >= edges[-1]:
            return (0.0, 0.0, 0.0)
        k = bisect_right(edges, x) - 1
        far, width = self.survival[k + 1], edges[k + 1] - x
        near = far + (self.survival[k] - far) * width / (edges[k + 1] - edges[k])
        tail = self.tail[k + 1] + width * (near + far) / 2
        return (near, tail, self.tail2[k + 1] + width * self.tail[k + 1] + width * width * (near + 2 * far) / 6)

    def left(self, generated: int, limit: int) -> tuple[float, float]:
        """Mean and variance of min(l, limit) - generated, given l > generated (generated < limit or limit 0).

        Lengths are whole tokens while the law is continuous: the mean of whole numbers in (a, b] is half a token
        above the middle.
        """
        alive, tail, tail2 = self.integrals(generated)
        beyond = 0.0
        if limit:
            beyond, tail_limit, tail2_limit = self.integrals(limit)
            tail -= tail_limit
            tail2 -= tail2_limit + (limit - generated) * tail_limit
        mean = tail / alive
        variance = max(0.0, 2 * tail2 / alive - mean * mean)
        return (mean + (1.0 - beyond / alive) / 2, variance)


class _Counts:
    """Observed outputs per bin: ended there, cut short there, and how much of the bin the cut ones had passed."""

    __slots__ = ("cut", "ended", "law", "passed", "pending", "total")

    def __init__(self, bins: int) -> None:
        self.ended = [0.0] * bins
        self.cut = [0.0] * bins
        self.passed = [0.0] * bins
        self.total = 0.0
        self.pending = 0
        self.law: _Law | None = None

    def add(self, k: int, censored: bool, passed: float, memory: float) -> None:
        """Count one output in bin k; beyond `memory` of them the past is halved."""
        if censored:
            self.cut[k] += 1.0
            self.passed[k] += passed
        else:
            self.ended[k] += 1.0
        self.total += 1.0
        self.pending += 1
        if self.total > memory:
            for counts in (self.ended, self.cut, self.passed):
                counts[:] = [c / 2 for c in counts]
            self.total /= 2

    def current(self) -> _Law | None:
        """The law, unless so much was observed since it was built that it may have moved (an eighth, at most 64)."""
        return self.law if self.pending <= min(64.0, self.total / 8) else None

    def rebuild(self, base: _Law, weight: float) -> _Law:
        """These counts and `weight` pseudo-observations of the base law."""
        hazard = list(base.hazard)
        at_risk = 0.0
        for k in range(len(hazard) - 1, -1, -1):
            pseudo = max(weight * base.survival[k], 1e-9)
            exposed = at_risk + self.ended[k] + self.passed[k]
            hazard[k] = (self.ended[k] + pseudo * hazard[k]) / (exposed + pseudo)
            at_risk += self.ended[k] + self.cut[k]
        self.pending = 0
        self.law = _Law(base.edges, hazard)
        return self.law


class _Ratio:
    """Bytes and tokens of prompts seen, as decayed sums."""

    __slots__ = ("bytes", "tokens")

    def __init__(self) -> None:
        self.bytes = 0.0
        self.tokens = 0.0

    def add(self, prompt_bytes: float, tokens: float, memory: float) -> None:
        """Count one prompt; beyond `memory` tokens the past is halved."""
        self.bytes += prompt_bytes
        self.tokens += tokens
        if self.tokens > memory:
            self.bytes /= 2
            self.tokens /= 2


class _Model:
    """What is known of one model (or of the fleet)."""

    __slots__ = ("counts", "ratio")

    def __init__(self, bins: int) -> None:
        self.counts = _Counts(bins)
        self.ratio = _Ratio()


def _edges(bins: int, growth: float) -> tuple[int, ...]:
    edges = [0]
    for _ in range(bins):
        edges.append(max(edges[-1] + 1, round(edges[-1] * growth)))
    return tuple(edges)


class LengthModel:
    """What is known about lengths, fleet-wide and per model."""

    def __init__(self, config: LengthConfig | None = None) -> None:
        self._config = c = config or LengthConfig()
        self._edges = edges = _edges(c.bins, c.growth)
        ends = [1.0 - exp((a - b) / c.output_mean) for a, b in pairwise(edges)]
        self._prior = _Law(edges, ends)
        self._fleet = _Model(c.bins)
        self._models: dict[str, _Model] = {}
        self._latest: tuple[str | None, _Model] = (None, self._fleet)  # the last of them
        self._longest_token = c.max_bytes_per_token

    def prompt_tokens(self, request: RequestInfo) -> int:
        """Prompt tokens: exact if given, else bytes over the model's learned ratio, plus media; at least 1."""
        if request.prompt_tokens:
            return request.prompt_tokens
        return round(request.prompt_bytes / self.bytes_per_token(request.model)) + request.media_tokens or 1

    def prompt_tokens_at_least(self, request: RequestInfo) -> int:
        """A lower bound that is safe to refuse a request on: exact if given, else as if each token were as long as
        tokens get. Media may weigh anything, hence nothing."""
        return request.prompt_tokens or max(1, int(request.prompt_bytes / self._longest_token))

    def bytes_per_token(self, model: str) -> float:
        """Prompt bytes per token of a model: its own usage, leaning on the fleet's, leaning on the prior (by so many
        tokens each)."""
        c = self._config
        weight, fleet = c.prior_prompt_tokens, self._fleet.ratio
        base = (fleet.bytes + c.bytes_per_token * weight) / (fleet.tokens + weight)
        known = self._models.get(model)
        return (known.ratio.bytes + base * weight) / (known.ratio.tokens + weight) if known else base

    def observe_prompt(self, request: RequestInfo, prompt_tokens: int) -> None:
        """Learn from the engine's own count. Prompts sent as token ids or with media say nothing about text."""
        c = self._config
        if prompt_tokens <= 0 or request.prompt_bytes <= 0 or request.prompt_tokens or request.media_tokens:
            return
        ratio = request.prompt_bytes / prompt_tokens
        if prompt_tokens >= 64:  # shorter ones are mostly template
            longest = 1.25 * ratio
            if longest > self._longest_token:
                self._longest_token = longest
        most = c.prompt_weight_tokens
        tokens = float(prompt_tokens) if prompt_tokens < most else most
        self._fleet.ratio.add(ratio * tokens, tokens, 64 * most)
        self._known(request.model).ratio.add(ratio * tokens, tokens, 64 * most)

    def forecast(self, model: str, limit: int) -> tuple[float, float]:
        """Mean and sigma of the output tokens of a request about to run, cut off at `limit` (0 = none)."""
        law = self._law(model)
        found = law.forecasts.get(limit)
        if found is None:
            mean, variance = law.left(0, limit)
            found = (mean, variance**0.5)
            if len(law.forecasts) >= self._config.max_limits:
                law.forecasts.clear()
            law.forecasts[limit] = found
        return found

    def observe_output(self, model: str, tokens: int, censored: bool) -> None:
        """Learn from an ended output of `tokens`. `censored`: it was cut short (max_tokens, cancel), so it would have
        become longer."""
        edges = self._edges
        if tokens <= 0:
            return
        after = bisect_right(edges, tokens - 1, 0, len(edges) - 1)  # bin k holds edges[k] < tokens <= edges[k + 1]
        near = edges[after - 1]
        passed = min(1.0, (tokens - near) / (edges[after] - near)) if censored else 0.0
        self._fleet.counts.add(after - 1, censored, passed, self._config.memory)
        self._known(model).counts.add(after - 1, censored, passed, self._config.memory)

    def left(self, model: str, generated: int, limit: int) -> tuple[float, float]:
        """Mean and variance of the output tokens still to come, given that `generated` came and it did not end.
        (0, 0) when the limit is reached."""
        if limit and generated >= limit:
            return (0.0, 0.0)
        law = self._law(model)
        start = law.clamp(generated)
        return law.left(start, start + limit - generated if limit else 0)

    def survival(self, model: str, generated: int, limit: int, ahead: Sequence[int]) -> Sequence[float]:
        """P(still running after `ahead` more tokens), given `generated` so far; one per entry of `ahead`."""
        law = self._law(model)
        start = law.clamp(generated)
        alive, at = law.at(start), law.at
        room = limit - generated if limit else None
        return [0.0 if room is not None and a >= room else at(start + a) / alive for a in ahead]

    def _known(self, model: str) -> _Model:
        """The entry of a model, made if need be, moved behind all others; the one not seen for longest makes room."""
        name, known = self._latest
        if name == model:
            return known
        found = self._models.pop(model, None)
        if found is None:
            found = _Model(self._config.bins)
            if len(self._models) >= self._config.max_models:
                del self._models[next(iter(self._models))]
        self._models[model] = found
        self._latest = (model, found)
        return found

    def _law(self, model: str) -> _Law:
        known = self._models.get(model)
        if known is None:
            return self._fleet_law()
        return known.counts.current() or known.counts.rebuild(self._fleet_law(), self._config.shrink)

    def _fleet_law(self) -> _Law:
        counts = self._fleet.counts
        return counts.current() or counts.rebuild(self._prior, self._config.shrink)
