"""How likely a replica's KV pool overflows soon, and what moving one request would change about it.

From the same curves that admission uses: expected use and its variance at fixed horizons of decode steps. Here only
the near ones count, for a move that is made now relieves the next seconds.
"""

import math
from collections.abc import Sequence

from headway.core.entry import Entry, Share
from headway.core.fleet import Fleet
from headway.core.memory import HORIZONS
from headway.core.standing import Replica

REQUEUE_S = 2.0
"""What a preempted request loses besides its prefill: its place. Engines resume it when the batch has thinned; a stall
of 4 s was measured on vLLM."""

CERTAIN = 0.9
"""An overflow that is so likely even without a request is not helped by that one alone."""


class Strain:
    """One replica at one moment, without those that were told to leave it. `steps`: decode steps within which its pool
    must not overflow."""

    __slots__ = ("_kv", "_leaving", "_room", "_var", "replica", "steps")

    def __init__(self, fleet: Fleet, replica: Replica, horizon_s: float, at: float) -> None:
        view = replica.view
        assert view is not None
        self.replica = replica
        step = view.speed.step_s(view.running, view.context_tokens)
        self.steps = horizon_s / step if step > 0.0 else 0.0
        _, self._kv, self._var = fleet.viewing.foreign(replica, at) or (0, 0.0, 0.0)
        self._leaving = [entry.share for entry in replica.account.entries.values() if entry.aborting]
        self._room = replica.capacity * (1.0 - fleet.memory.spare)

    def overflow(self, without: Sequence[Share] = (), more: Share | None = None) -> float:
        """Probability (0..1) that the pool overflows soon; as it is, without some of its requests, or with one more."""
        if not self.replica.capacity:
            return 0.0
        curve, worst = self.replica.account.curve, 0.0
        for i, ahead in enumerate(HORIZONS):
            if ahead > self.steps and i > 1:
                break
            mean, var = curve.mean[i] + self._kv, curve.var[i] + self._var
            for share in (*self._leaving, *without):
                mean, var = mean - share.mean[i], var - share.var[i]
            if more is not None:
                mean, var = mean + more.mean[i], var + more.var[i]
            worst = max(worst, _beyond(self._room - mean, var))
        return worst

    def preemption_s(self) -> float:
        """What a preemption would cost everybody there, in request-seconds: one loses its place and is prefilled
        again, and the others wait for that prefill."""
        view = self.replica.view
        assert view is not None
        mean_context = view.context_tokens / max(1.0, view.running)
        return REQUEUE_S + max(1.0, view.running) * mean_context / view.speed.prefill_tokens_per_s

    def relief(self, share: Share) -> float:
        """How much likelier the pool is to hold if one of its requests leaves (0..1). Where it overflows by more than
        any one of them holds, each that leaves is a part of the remedy."""
        now, then = self.overflow(), self.overflow(without=(share,))
        if then < CERTAIN:
            return now - then
        curve = self.replica.account.curve
        excess = max(mean + self._kv - self._room for mean in curve.mean)
        return min(1.0, share.peak / excess) * now if excess > 0.0 else now - then

    def step_gain_s(self, entry: Entry, coming: bool = False) -> float:
        """What the others there gain if a request leaves (or lose if it comes), in request-seconds over the time it
        would have stayed: each of their steps is shorter by its part."""
        view = self.replica.view
        assert view is not None
        speed = view.speed
        part = speed.step_per_request_s + speed.step_per_token_s * (entry.prompt + entry.generated)
        others = view.running if coming else max(0.0, view.running - 1.0)
        return part * others * min(view.output_left_mean, entry.outstanding)


def _beyond(margin: float, var: float) -> float:
    """P(a normal variable exceeds its mean by more than `margin`)."""
    if var <= 0.0:
        return 1.0 if margin < 0.0 else 0.0
    return 0.5 * math.erfc(margin / math.sqrt(2.0 * var))
