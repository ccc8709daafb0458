"""When the next prompt may be sent to a replica, so that those who decode there keep their time per output token.

An engine that prefills makes everybody else wait. If it spends the share d of its time on prefill, a decode step of
`step` seconds becomes `step / (1 - d)`; for that to stay within `target` of the objective, d may be at most
`1 - step / (target * TPOT)`. So a replica earns seconds of prefill at that rate, up to `burst_s`, and a prompt of n
uncached tokens spends n / F of them; the next one is due when the balance is positive again.

It is no use everywhere. Nobody is to be protected where nothing decodes, where speeds are not learned, or where a step
would take too long with nobody else in the batch. A prompt that is mostly cached hardly disturbs anybody. And where
more prompt tokens come than the pace lets through, waiting would only grow: beyond `give_up` times as much the pool is
let go, until the excess is gone (`resume`). Nor can a prompt of seconds be spread over time: where most prompt tokens
are in such ones, pacing would only make everybody wait for them (`longest_s`).
"""

from collections.abc import Container, Sequence
from math import exp

from headway.core.constants import PaceConfig, SloConfig
from headway.core.ids import ReplicaId
from headway.core.view import ReplicaView, Speed


class Flow:
    """Uncached prompt tokens that come for one model: decaying sums. `useless`: the pace does not help against them."""

    __slots__ = ("_at", "_squares", "_sum", "judged_at", "since", "useless")

    def __init__(self, at: float) -> None:
        self._at = self.since = at
        self._sum = self._squares = 0.0
        self.judged_at = at
        self.useless = False

    def add(self, tokens: float, at: float, memory_s: float) -> None:
        """Some came."""
        kept = exp((self._at - at) / memory_s)
        self._sum = self._sum * kept + tokens
        self._squares = self._squares * kept + tokens * tokens
        self._at = at

    @property
    def typical(self) -> float:
        """Length of the prompt that a token of them is in, on average."""
        return self._squares / self._sum if self._sum > 0.0 else 0.0

    def rate(self, at: float, memory_s: float) -> float:
        """Tokens per second. Young sums are scaled up: so much of the weight has not been there yet."""
        seen = 1.0 - exp((self.since - at) / memory_s)
        return self._sum * exp((self._at - at) / memory_s) / (memory_s * max(seen, 0.1))


class Purse:
    """Seconds of prefill that a replica has earned and not spent."""

    __slots__ = ("at", "balance")

    def __init__(self, balance: float, at: float) -> None:
        self.balance = balance
        self.at = at


class Pace:
    """The balances of all replicas, and the flows of all models."""

    def __init__(self, config: PaceConfig | None = None, slo: SloConfig | None = None) -> None:
        self._config = c = config or PaceConfig()
        self._least, self._cached, self._burst_s = c.least, c.cached, c.burst_s
        self._memory_s, self._judge_s = c.memory_s, c.judge_s
        self._target_s = self._config.target * (slo or SloConfig()).tpot_s
        self._purses: dict[ReplicaId, Purse] = {}
        self._broke: dict[ReplicaId, None] = {}  # whose balance was negative when last looked at
        self._flows: dict[str, Flow] = {}
        self._shares: dict[ReplicaId, tuple[ReplicaView, float]] = {}  # a view is asked for its share many times

    def share(self, view: ReplicaView) -> float:
        """The share of its time that a replica may spend on prefill; 1 where nobody is to be protected."""
        speed, running = view.speed, view.running
        if running < 1 or not self._applies(speed):
            return 1.0
        left = 1.0 - speed.step_s(running, view.context_tokens) / self._target_s
        least = self._least
        return left if left > least else least

    def open(self, model: str, view: ReplicaView, prompt: int, hit: int, at: float) -> bool:
        """Whether a prompt of which `hit` tokens are cached may be sent to a replica now."""
        if view.id not in self._broke or hit >= self._cached * prompt:
            return True
        return not self._wait_s(view, at) or self._useless(model)

    def waits(self, model: str, views: Sequence[ReplicaView], at: float) -> dict[ReplicaId, float]:
        """Seconds until replicas take a prompt, as it looks now; those that do already are left out."""
        broke = self._broke
        if not broke or self._useless(model):
            return {}
        waits = {view.id: self._wait_s(view, at) for view in views if view.id in broke}
        return {replica_id: wait for replica_id, wait in waits.items() if wait}

    def sent(self, view: ReplicaView, uncached: int, at: float) -> None:
        """A prompt was sent. Nothing is charged where the pace does not apply whoever runs."""
        if not self._applies(view.speed):
            return
        purse = self._purse(view, self.share(view), at)
        purse.balance -= uncached / view.speed.prefill_tokens_per_s
        if purse.balance < 0.0:
            self._broke[view.id] = None

    def arrived(self, model: str, uncached: int, views: Sequence[ReplicaView], at: float) -> None:
        """A prompt came. From time to time, see whether the pace can keep up with what comes."""
        flow, memory_s = self._flows.get(model), self._memory_s
        if flow is None:
            flow = self._flows[model] = Flow(at)
        flow.add(uncached, at, memory_s)
        if at - flow.judged_at >= self._judge_s:
            flow.judged_at, config = at, self._config
            rates = [view.speed.prefill_tokens_per_s for view in views]
            supply = sum(rate * self.share(view) for rate, view in zip(rates, views, strict=True))
            ratio = flow.rate(at, memory_s) / supply if supply > 0.0 else 0.0
            swamped = ratio > (config.resume if flow.useless else config.give_up)
            long = bool(rates) and flow.typical * len(rates) > config.longest_s * sum(rates)
            flow.useless = swamped or long

    def forget(self, replica_id: ReplicaId) -> None:
        """The replica is gone."""
        self._purses.pop(replica_id, None)
        self._broke.pop(replica_id, None)
        self._shares.pop(replica_id, None)

    def keep(self, models: Container[str]) -> None:
        """Forget the flows of all other models: nobody serves them any more."""
        for model in [name for name in self._flows if name not in models]:
            del self._flows[model]

    def _applies(self, speed: Speed) -> bool:
        return speed.learned and speed.step_s(1, 0.0) < self._target_s

    def _useless(self, model: str) -> bool:
        flow = self._flows.get(model)
        return flow is not None and flow.useless

    def _wait_s(self, view: ReplicaView, at: float) -> float:
        """Seconds until the balance of a replica is positive again; 0 if it is, or if nobody is to be protected."""
        known = self._shares.get(view.id)
        if known is None or known[0] is not view:
            known = self._shares[view.id] = (view, self.share(view))
        share = known[1]
        balance = self._purse(view, share, at).balance
        if balance >= 0.0:
            del self._broke[view.id]
        return 0.0 if balance >= 0.0 or share >= 1.0 else -balance / share

    def _purse(self, view: ReplicaView, share: float, at: float) -> Purse:
        """The purse of a replica, with what it has earned."""
        found = self._purses.get(view.id)
        if found is None:
            found = self._purses[view.id] = Purse(self._burst_s, at)
        elif at > found.at:
            earned = found.balance + share * (at - found.at)
            found.balance = earned if earned < self._burst_s else self._burst_s
            found.at = at
        return found
