"""Moves of running requests, counted: why they were made, what became of them, and what clients noticed."""

from typing import Final

import structlog

from headway.core.commands import Moved
from headway.core.outcome import OutcomeKind
from headway.telemetry.exposition import Page
from headway.telemetry.families import counted, single
from headway.telemetry.tally import Counter, Histogram, Table

log = structlog.get_logger(__name__)

GAP_BOUNDS_S: Final = (0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 30.0, 120.0)
"""Around the objective of 50 ms for a cut and of a second for a failover; evicted requests wait longer."""

KINDS: Final = ("cut", "resumed", "handed_over")

STARTS: Final = frozenset({"begun", "failed_over"})
"""Results that are followed by a prefill at the target."""

WHY: Final = frozenset({
    "operator", "drain", "urgent", "memory", "latency", "balance", "plain", *(str(kind) for kind in OutcomeKind),
})  # fmt: skip
"""Reasons that are labels: the brain's, and how a lost replica failed. What follows in brackets is for people."""

LOUD: Final = frozenset({"failed_over", "refused"})


class Moves:
    """All moves so far. `gap` tells how long a client's stream stood still: where it changed replicas ("cut"), or
    until it went on after its replica was lost or had to be left ("resumed"), or was left because engines handed their
    KV over ("handed_over"). `pinned`: requests that cannot move."""

    def __init__(self) -> None:
        self._results: Table[Counter] = Table(lambda _: Counter(), limit=256)
        self._pinned: Table[Counter] = Table(lambda _: Counter(), limit=64)
        self._handovers: Table[Counter] = Table(lambda _: Counter(), limit=8)
        self._handed_tokens = 0
        self._gaps = {kind: Histogram(GAP_BOUNDS_S) for kind in KINDS}
        self.replayed = 0

    def moved(self, entry: Moved) -> None:
        """The brain recorded a step of a move."""
        reason = entry.reason.partition(" (")[0]
        self._results[reason if reason in WHY else "other", entry.result].value += 1
        if entry.result in STARTS:
            self.replayed += entry.replayed_tokens
        say = log.info if entry.result in LOUD else log.debug
        say(
            f"request {entry.result}", request=entry.request_id, source=entry.source, target=entry.target,
            reason=entry.reason,
        )  # fmt: skip

    def gap(self, kind: str, seconds: float) -> None:
        """A client's stream went on after so long."""
        self._gaps[kind].observe(seconds)

    def handed_over(self, result: str, tokens: int) -> None:
        """Engines handed over the KV of so many tokens, or did not ("failed", "dropped")."""
        self._handovers[result,].value += 1
        self._handed_tokens += tokens

    def pinned(self, reason: str) -> None:
        """A request came that will stay where it is sent, and why."""
        self._pinned[reason,].value += 1

    def fill(self, page: Page) -> None:
        """The metrics."""
        text = "Moves of running requests, by why and by what became of them."
        counted(page, "headway_migrations_total", text, ("reason", "result"), self._results)
        counted(page, "headway_pinned_requests_total", "Requests that cannot be moved.", ("reason",), self._pinned)
        text = "KV caches that engines handed over instead of computing them again."
        counted(page, "headway_kv_handovers_total", text, ("result",), self._handovers)
        text = "Tokens in the KV caches that were handed over."
        single(page, "headway_handed_over_tokens_total", "counter", text, self._handed_tokens)
        text = "Tokens that had to be prefilled again because of moves, those that were handed over among them."
        single(page, "headway_replayed_tokens_total", "counter", text, self.replayed)
        name = "headway_migration_gap_seconds"
        page.family(name, "histogram", "How long streams stood still when they changed replicas.")
        for kind, histogram in self._gaps.items():
            page.histogram(histogram.cumulative(), histogram.total, ("kind", kind))
