"""Attempts that are answered in one piece: what is presumed of them while they run, and what they tell of speeds.

Nothing is seen of them until their end. How far they have come is presumed from what is believed of their replica.
When they have ended, their duration is one observation, window by window for all that ended in it; one that does not
come, though hardly any takes as long, is one too, or a replica that became slow would be found out only when the
answers it had begun are there. Where streams tell how long a step, or a prefill, takes, they go before: they are exact.
"""

from headway.core.constants import FleetConfig
from headway.core.entries import Answered
from headway.core.entry import Entry
from headway.core.outcome import Outcome
from headway.core.speed import SpeedModel
from headway.core.standing import Replica


class Unseen:
    """Presumes and learns, for all replicas."""

    def __init__(self, config: FleetConfig, speed: SpeedModel) -> None:
        self._overdue = config.overdue
        self._answer_tokens = config.answer_tokens
        self._answer_window_s, self._told_s = config.answer_window_s, config.told_s
        self._speed = speed

    def begin(self, replica: Replica, at: float) -> None:
        """Another is about to be sent: those whose prefill should be done by now are not before it."""
        filling = replica.answers.filling
        while filling and at >= filling[0].dispatched_at + filling[0].forecast_ttft_s:
            entry = filling.popleft()
            if not entry.started and entry.attempt_id in replica.account.entries:
                replica.account.start(entry, at)

    def sent(self, replica: Replica, entry: Entry, at: float) -> None:
        """One was sent."""
        if not entry.generates:
            return
        replica.answers.filling.append(entry)
        entry.prefilled_before = replica.account.prefilled
        account, longest = replica.account, self._longest(entry)
        if longest:
            step_s = replica.speed.step_s(account.in_flight, account.context)
            entry.overdue_at = at + self._overdue * (entry.forecast_ttft_s + longest * step_s)

    def watch(self, replica: Replica, entry: Entry, step_s: float, at: float) -> None:
        """One is running: presume how far it is. `step_s`: what a step takes there."""
        decoding_s = at - entry.dispatched_at - entry.forecast_ttft_s
        if decoding_s < 0.0 or not entry.generates:
            return
        account = replica.account
        if not entry.started:
            account.start(entry, at)
        tokens = min(int(decoding_s / step_s) * entry.sequences, entry.reserve) - entry.generated
        if tokens > 0:
            account.grow(entry, tokens)
        if at >= entry.overdue_at:
            self._miss(replica, entry, at)

    def answered(self, replica: Replica, entry: Entry, outcome: Outcome, at: float) -> None:
        """One has ended well. It tells nothing where many wait in the engine (so may it have), nor if it was small."""
        view, tokens = replica.view, outcome.output_tokens
        assert view is not None  # something was sent there
        if not tokens or not entry.generates or 2.0 * view.waiting > view.running:
            return
        if entry.uncached + tokens < self._answer_tokens:
            return
        prefilled = self._prefilled(replica, entry)
        if replica.reports_cached and outcome.prompt_tokens:
            prefilled += max(1, outcome.prompt_tokens - outcome.cached_tokens) - entry.uncached
        context = max(view.context_tokens, float(entry.prompt + tokens))
        steps, running = tokens / entry.sequences, max(1.0, view.running)
        self._learn(replica, Answered(float(prefilled), steps, running, context, at - entry.dispatched_at), at)

    def _miss(self, replica: Replica, entry: Entry, at: float) -> None:
        """One has not come: so much at least is known of it, and again when it has taken twice as long."""
        steps, account = self._longest(entry), replica.account
        age_s = at - entry.dispatched_at
        entry.overdue_at = at + age_s
        prefilled = float(self._prefilled(replica, entry))
        missed = Answered(prefilled, steps, float(account.in_flight), float(account.context), age_s)
        if self._speed.excess(replica.spec, missed) >= self._overdue:
            self._learn(replica, missed, at)

    def _longest(self, entry: Entry) -> float:
        """Steps of nine in ten like it (0: not known), but no fewer than would count if it came: small ones, which tell
        nothing when they are in time, must not tell that their replica is slow when they are late."""
        high = entry.demand.output_high
        return max(high, self._answer_tokens - entry.uncached) / entry.sequences if high else 0.0

    @staticmethod
    def _prefilled(replica: Replica, entry: Entry) -> int:
        """Tokens that were prefilled while it was there: those before it, its own, and, while it decoded, those of who
        came later. All of them take their time from its steps."""
        return max(entry.ahead, replica.account.prefilled - entry.prefilled_before)

    def _learn(self, replica: Replica, answered: Answered, at: float) -> None:
        answers = replica.answers
        answers.add(answered)
        if at - answers.since >= self._answer_window_s:
            told = at - self._told_s
            step, prefill = answers.step_told_at <= told, answers.prefill_told_at <= told
            self._speed.observe_answer(replica.spec, answers.take(at), step, prefill)
