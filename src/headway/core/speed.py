"""How fast each replica runs: decode step time and prefill rate, learned on line from its own responses.

    step    = base + per_request * R + per_token * context        seconds of one decode step
    prefill = overhead + tokens / F                               seconds until a prompt is computed

Both are linear, so one estimator serves: recursive least squares with forgetting, coefficients never negative, in
information form (the normal equations are kept, and solved after each observation), by hand because core uses no
arrays. Residuals count relative to what the kind of replica is expected to need, so that short and long steps weigh
the same.

What a replica has not shown itself is taken from its kind: its fit contains `shrink` pseudo-observations that agree
with the fit of all replicas of its kind. And one that is within `same` of its kind counts as equal to it. Without that,
noise makes one of several equals look fastest, and everything is sent there. The kind in turn leans on the prior
(`ReplicaSpec.features`, else the defaults below).

A single outlier is clipped. Several of one sign in a row are news (a card that throttles, a prior that was wrong): the
fit then starts anew from what it leans on, multiplied by how far off it was.
"""

from math import exp, isfinite, log, sqrt
from typing import Final

from headway.core.constants import SpeedConfig
from headway.core.entries import Answered
from headway.core.ids import ReplicaId
from headway.core.replica import ReplicaSpec
from headway.core.view import Speed

Vector = tuple[float, float, float]

_TYPICAL_STEP: Vector = (1.0, 8.0, 8192.0)
"""Eight requests of a thousand tokens: where each coefficient of the prior is as credible as the others."""

_TYPICAL_PREFILL: Vector = (1.0, 1024.0, 1.0)
"""The third coefficient is not used: prior and observations keep it 0."""

_FASTEST_S_PER_TOKEN: Final = 1e-7
"""No replica prefills more than ten million tokens a second; keeps the rate finite when the slope is fitted to 0."""

_FASTEST_STEP_S: Final = 1e-5
"""No step takes less: the coefficients may all be fitted to 0 where nearly all time goes on prefill."""


class _Fit:
    """Weighted least squares of y = theta . x with theta >= 0, leaning on `factor` times a given target."""

    __slots__ = ("count", "factor", "odds", "streak", "theta", "weight", "xx", "xy")

    def __init__(self, theta: Vector) -> None:
        self.theta = theta
        self.factor = 1.0
        self.count = 0
        self.restart(1.0)

    def restart(self, ratio: float) -> None:
        """Forget what was observed: everything takes `ratio` times as long as it was believed to."""
        self.factor *= ratio
        a, b, c = self.theta
        self.theta = (a * ratio, b * ratio, c * ratio)
        self.xx = [0.0] * 6  # x x': 00 01 02 11 12 22
        self.xy = [0.0] * 3
        self.weight = 0.0
        self.streak = 0
        self.odds = 0.0

    def predict(self, x: Vector) -> float:
        """theta . x, never 0."""
        a, b, c = self.theta
        return max(a * x[0] + b * x[1] + c * x[2], 1e-9)

    def judge(self, x: Vector, seconds: float, outlier: float, surprises: int) -> tuple[float, float]:
        """The observation as it may count, and the ratio to restart with (1.0 unless it completes a row of
        surprises)."""
        expected = self.predict(x)
        ratio = seconds / expected
        if outlier >= ratio >= 1.0 / outlier:
            self.streak, self.odds = 0, 0.0
            return (seconds, 1.0)
        sign = 1 if ratio > 1.0 else -1
        if self.streak * sign < 0:
            self.streak, self.odds = 0, 0.0
        self.streak += sign
        self.odds += log(ratio)
        if abs(self.streak) >= surprises:
            return (seconds, exp(self.odds / abs(self.streak)))
        return (expected * (outlier if sign > 0 else 1.0 / outlier), 1.0)

    def add(self, x: Vector, seconds: float, scale: float, keep: float) -> None:
        """Observe, with a residual relative to `scale`; the past counts `keep` of what it did."""
        a, b, c = x[0] / scale, x[1] / scale, x[2] / scale
        y = seconds / scale
        p, q, r, s, t, u = self.xx
        k = keep
        self.xx = [p * k + a * a, q * k + a * b, r * k + a * c, s * k + b * b, t * k + b * c, u * k + c * c]
        v, w, z = self.xy
        self.xy = [v * k + a * y, w * k + b * y, z * k + c * y]
        self.weight = self.weight * keep + 1.0
        self.count += 1

    def ratio(self, theta: Vector) -> float:
        """What was observed over what `theta` says, by least squares."""
        p, q, r, s, t, u = self.xx
        a, b, c = theta
        square = a * (p * a + 2.0 * (q * b + r * c)) + b * (s * b + 2.0 * t * c) + u * c * c
        return (a * self.xy[0] + b * self.xy[1] + c * self.xy[2]) / square if square > 0.0 else 1.0

    def solve(self, pseudo: list[float], target: Vector) -> None:
        """Fit what was observed and pseudo-observations with moments `pseudo` that agree with factor * target."""
        p, q, r, s, t, u = pseudo
        a, b, c = target
        a, b, c = a * self.factor, b * self.factor, c * self.factor
        x0, x1, x2, x3, x4, x5 = self.xx
        y0, y1, y2 = self.xy
        self.theta = non_negative(
            [x0 + p, x1 + q, x2 + r, x3 + s, x4 + t, x5 + u],
            [y0 + (p * a + q * b + r * c), y1 + (q * a + s * b + t * c), y2 + (r * a + t * b + u * c)],
        )


class _Kind:
    """One linear law (of steps, or of prefill) of one kind of replica: the fit of the kind and of each replica."""

    def __init__(self, config: SpeedConfig, typical: Vector, prior: Vector) -> None:
        self._config = config
        self._typical = typical
        self.prior = prior
        self.fit = _Fit(prior)
        self.replicas: dict[ReplicaId, _Fit] = {}
        self.version = 0  # moves when what replicas lean on has moved

    def observe(self, replica: ReplicaId, x: Vector, seconds: float, exact: bool = True) -> None:
        """Learn one duration in both fits: first the kind's, on which the replica's leans. One that is not `exact`
        tells nothing of the kind if it is an outlier: one slow replica, the only one with so many requests at once,
        would make it look as if that were the reason."""
        config, kind = self._config, self.fit
        own = self.replicas.get(replica)
        if own is None:
            own = self.replicas[replica] = _Fit(kind.theta)
        counted, ratio = kind.judge(x, seconds, config.outlier, config.surprises * len(self.replicas))
        if ratio != 1.0:
            kind.restart(ratio)
        if exact or ratio != 1.0 or counted == seconds:
            kind.add(x, counted, kind.predict(x), config.forget_kind)
        if kind.count <= 2 * config.enough or kind.count % 8 == 0 or ratio != 1.0:
            kind.solve(self._ridge(), self.prior)
            self.version += 1
        counted, ratio = own.judge(x, seconds, config.outlier, config.surprises)
        if ratio != 1.0:
            own.restart(ratio)
        own.add(x, counted, kind.predict(x), config.forget)

    def theta(self, replica: ReplicaId) -> Vector:
        """What is believed of a replica: its own fit leaning on the kind's, else the kind's, else the prior."""
        kind, own = self.fit, self.replicas.get(replica)
        if own is None:
            return kind.theta if kind.count else self.prior
        factor, alike = own.ratio(kind.theta), self._config.alike
        own.factor = 1.0 if 1.0 / alike < factor < alike else factor
        n = self._config.shrink / (kind.weight + self._config.prior)
        p, q, r, s, t, u = kind.xx
        a, b, c, d, e, f = self._ridge()
        own.solve([(p + a) * n, (q + b) * n, (r + c) * n, (s + d) * n, (t + e) * n, (u + f) * n], kind.theta)
        apart = own.predict(self._typical) / kind.predict(self._typical)
        return kind.theta if 1.0 / self._config.same < apart < self._config.same else own.theta

    def usual(self, x: Vector) -> float:
        """Seconds that replicas of this kind need, never 0."""
        return self.fit.predict(x)

    def _ridge(self) -> list[float]:
        """Moments of the pseudo-observations of the prior: one per coefficient, at an ordinary x."""
        (p, q, r), (a, b, c), weight = self.prior, self._typical, self._config.prior
        base = self.fit.factor * (p * a + q * b + r * c)
        return [weight * (a / base) ** 2, 0.0, 0.0, weight * (b / base) ** 2, 0.0, weight * (c / base) ** 2]


class _Belief:
    """A speed handed out, and what it was made from."""

    __slots__ = ("prefill", "spec", "speed", "steps", "version")

    def __init__(self, spec: ReplicaSpec, steps: _Kind, prefill: _Kind, speed: Speed) -> None:
        self.spec = spec
        self.steps = steps
        self.prefill = prefill
        self.version = steps.version + prefill.version
        self.speed = speed


class SpeedModel:
    """Speeds of all replicas, shrunk towards those of their kind."""

    def __init__(self, config: SpeedConfig | None = None) -> None:
        self._config = config or SpeedConfig()
        self._kinds: dict[str, tuple[_Kind, _Kind]] = {}  # steps, prefill
        self._believed: dict[ReplicaId, _Belief] = {}

    def speed(self, spec: ReplicaSpec) -> Speed:
        """What is believed of a replica now: the same object until it, or eight times its kind, was observed."""
        found = self._believed.get(spec.id)
        if found is not None and found.spec is spec and found.version == found.steps.version + found.prefill.version:
            return found.speed
        steps, prefill = self._kind(spec)
        base, per_request, per_token = steps.theta(spec.id)
        _, per_prompt_token, _ = prefill.theta(spec.id)
        enough = self._config.enough
        speed = Speed(
            step_base_s=max(base, _FASTEST_STEP_S),
            step_per_request_s=per_request,
            step_per_token_s=per_token,
            prefill_tokens_per_s=1.0 / max(per_prompt_token, _FASTEST_S_PER_TOKEN),
            learned=steps.fit.count >= enough and prefill.fit.count >= enough,
        )
        self._believed[spec.id] = _Belief(spec, steps, prefill, speed)
        return speed

    def observe_step(self, spec: ReplicaSpec, running: float, context_tokens: float, seconds: float) -> None:
        """One decode step (or the mean of several) took `seconds` with `running` sequences of `context_tokens` in
        total. Nonsense (not positive, not finite) is ignored."""
        if _sane(running, context_tokens, seconds):
            self._observe(spec, self._kind(spec)[0], (1.0, running, context_tokens), seconds)

    def observe_prefill(self, spec: ReplicaSpec, tokens: float, seconds: float) -> None:
        """`tokens` uncached prompt tokens (those queued before included) were prefilled in `seconds`."""
        if tokens > 0 and _sane(tokens, 0.0, seconds):
            self._observe(spec, self._kind(spec)[1], (1.0, tokens, 0.0), seconds)

    def observe_answer(self, spec: ReplicaSpec, answered: Answered, step: bool, prefill: bool) -> None:
        """An answer in one piece, of which only the whole duration is known. `step`, `prefill`: what is to be learned.

        Both are taken to have lasted the same multiple of what the kind of replica needs: whatever makes one of
        several slow mostly slows both, and what is slow about a prefill hardly shows in a duration that is nearly all
        decoding. Answers of different lengths move the kind's own prefill and step apart. Nonsense is ignored.
        """
        if not _sane(answered.running, answered.context, answered.seconds):
            return
        steps, prefills = self._kind(spec)
        excess, (at_work, filling) = self.excess(spec, answered), _regressors(answered)
        if step:
            self._observe(spec, steps, at_work, steps.usual(at_work) * excess, False)
        if prefill:
            self._observe(spec, prefills, filling, prefills.usual(filling) * excess, False)

    def excess(self, spec: ReplicaSpec, answered: Answered) -> float:
        """How many times as long as is usual for the kind of replica that took."""
        steps, prefills = self._kind(spec)
        at_work, filling = _regressors(answered)
        return answered.seconds / (prefills.usual(filling) + answered.steps * steps.usual(at_work))

    def forget(self, replica: ReplicaId) -> None:
        """The replica is gone. What its kind learned from it stays."""
        self._believed.pop(replica, None)
        for kinds in self._kinds.values():
            for kind in kinds:
                kind.replicas.pop(replica, None)

    def _observe(self, spec: ReplicaSpec, kind: _Kind, x: Vector, seconds: float, exact: bool = True) -> None:
        kind.observe(spec.id, x, seconds, exact)
        self._believed.pop(spec.id, None)

    def _kind(self, spec: ReplicaSpec) -> tuple[_Kind, _Kind]:
        name = spec.kind
        found = self._kinds.get(name)
        if found is None:
            if len(self._kinds) >= self._config.max_kinds:
                del self._kinds[next(iter(self._kinds))]
            steps, prefill = self._priors(spec)
            found = self._kinds[name] = (
                _Kind(self._config, _TYPICAL_STEP, steps),
                _Kind(self._config, _TYPICAL_PREFILL, prefill),
            )
        return found

    def _priors(self, spec: ReplicaSpec) -> tuple[Vector, Vector]:
        c, known = self._config, spec.features.get
        steps = (
            known("step_base_s", c.step_base_s),
            known("step_per_request_s", c.step_per_request_s),
            known("step_per_token_s", c.step_per_token_s),
        )
        return (steps, (c.prefill_overhead_s, 1.0 / known("prefill_tokens_per_s", c.prefill_tokens_per_s), 0.0))


def _regressors(answered: Answered) -> tuple[Vector, Vector]:
    """Of its steps and of its prefill."""
    return (1.0, answered.running, answered.context), (1.0, answered.prefilled, 0.0)


def _sane(a: float, b: float, seconds: float) -> bool:
    return a >= 0.0 and b >= 0.0 and seconds > 0.0 and isfinite(a) and isfinite(b) and isfinite(seconds)


def non_negative(xx: list[float], xy: list[float]) -> Vector:
    """The theta >= 0 that minimises theta' xx theta - 2 theta' xy.

    xx: upper triangle 00 01 02 11 12 22 of a positive definite matrix. Exact: of all sets of coefficients that may be
    positive, the one whose own solution is feasible and best; at a solution the objective is -theta' xy.
    """
    everything = _solve3(xx, xy)
    if min(everything) >= 0.0:
        return everything
    best, best_gain = (0.0, 0.0, 0.0), 0.0
    for zero in range(3):
        theta = _solve2(xx, xy, zero)
        gain = theta[0] * xy[0] + theta[1] * xy[1] + theta[2] * xy[2]
        if gain > best_gain:
            best, best_gain = theta, gain
    return best


def _solve3(xx: list[float], xy: list[float]) -> Vector:
    """Cramer's rule on columns scaled to unit diagonal (steps and contexts differ by six orders of magnitude)."""
    p, q, r, s, t, u = xx
    i, j, k = 1.0 / sqrt(p), 1.0 / sqrt(s), 1.0 / sqrt(u)
    q, r, t = q * i * j, r * i * k, t * j * k
    x, y, z = xy[0] * i, xy[1] * j, xy[2] * k
    det = 1.0 + 2.0 * q * r * t - q * q - r * r - t * t
    if det < 1e-12:
        return (-1.0, -1.0, -1.0)
    return (
        i * (x * (1.0 - t * t) + y * (r * t - q) + z * (q * t - r)) / det,
        j * (x * (r * t - q) + y * (1.0 - r * r) + z * (q * r - t)) / det,
        k * (x * (q * t - r) + y * (q * r - t) + z * (1.0 - q * q)) / det,
    )


def _solve2(xx: list[float], xy: list[float], zero: int) -> Vector:
    """The same with one coefficient held at 0, and a second one where its sign asks for it."""
    i, j = (1, 2) if zero == 0 else (0, 2) if zero == 1 else (0, 1)
    diagonal = (xx[0], xx[3], xx[5])
    a, b, c = diagonal[i], (xx[4], xx[2], xx[1])[zero], diagonal[j]
    theta = [0.0, 0.0, 0.0]
    det = a * c - b * b
    if det > 1e-12 * a * c:
        theta[i], theta[j] = (xy[i] * c - xy[j] * b) / det, (xy[j] * a - xy[i] * b) / det
    if theta[i] <= 0.0 or theta[j] <= 0.0:
        alone = i if max(0.0, xy[i]) ** 2 * c >= max(0.0, xy[j]) ** 2 * a else j
        theta = [0.0, 0.0, 0.0]
        theta[alone] = max(0.0, xy[alone] / diagonal[alone])
    return (theta[0], theta[1], theta[2])
