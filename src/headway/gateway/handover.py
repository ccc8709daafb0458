"""KV that engines hand over themselves, so that nothing is computed again.

llama.cpp (`Handover`): through a folder that both servers see. The source is left first, since a slot can only be saved
when nobody runs in it: break before make. vLLM (`Fetch`): the target fetches it while the source goes on. Whatever
fails is computed again, as it would have been without this: only time is lost. What lives here: what that costs, as
measured, and the calls. What must not: when requests move (the brain), and what the client sees of it (`mover`).
"""

import hashlib
from collections.abc import Callable
from typing import Any, Final

import structlog

from headway.core.commands import Migrate
from headway.core.outcome import OutcomeKind
from headway.gateway.errand import Errand, Steps
from headway.gateway.head import RequestHead
from headway.gateway.slots import Claim
from headway.gateway.target import Target
from headway.gateway.upstream import Pool
from headway.runtime.clock import now
from headway.telemetry.moves import Moves
from headway.wire.resume_body import Ask

log = structlog.get_logger(__name__)

LATEST: Final = 0.5
"""Weight of the last measurement: folders and networks become slow and fast again."""

ALONE_S: Final = 30.0
ALONE_MOST_S: Final = 600.0
"""A domain is left alone for so long from the second failure in a row on, then twice as long each time: a stream of
llama.cpp's stands still for each that fails. One failure is no rule, for an engine may have died of something else."""


class Domains:
    """What handing over costs, per domain, as it was last: seconds per token. And where it fails."""

    def __init__(self, counters: Moves) -> None:
        self._per_token_s: dict[str, float] = {}
        self._failures: dict[str, int] = {}  # in a row
        self._alone_until: dict[str, float] = {}
        self.counters = counters

    def pays(self, source: Target, target: Target, order: Migrate, most_s: float) -> bool:
        """Whether to hand over instead of computing again: both can, it has not always failed of late, is done sooner,
        and takes no longer than `most_s`."""
        kv = source.kv or source.pull
        if kv is None or kv != (target.kv or target.pull) or source.spec.kv_domain != target.spec.kv_domain:
            return False
        if now() < self._alone_until.get(source.spec.kv_domain, 0.0):
            return False
        per_token_s = self._per_token_s.get(source.spec.kv_domain, kv.per_token_s)
        return kv.fixed_s + order.held_tokens * per_token_s < min(order.replay_s, most_s)

    def measured(self, source: Target, tokens: int, seconds: float) -> None:
        """So many tokens took so long."""
        kv, domain = source.kv or source.pull, source.spec.kv_domain
        self._failures.pop(domain, None)
        per_token_s = max(0.0, seconds - (kv.fixed_s if kv is not None else 0.0)) / max(1, tokens)
        before = self._per_token_s.get(domain, per_token_s)
        self._per_token_s[domain] = before + LATEST * (per_token_s - before)

    def failed(self, source: Target) -> None:
        """It came to nothing, or took too long."""
        domain = source.spec.kv_domain
        failures = self._failures[domain] = self._failures.get(domain, 0) + 1
        if failures > 1:
            self._alone_until[domain] = now() + min(ALONE_S * 2.0 ** min(failures - 2, 9), ALONE_MOST_S)


class _Transfer:
    """One, under way. `done` is called once the target may go on: whether it has what the source computed. Not after
    `drop`."""

    def __init__(
        self, pool: Pool, domains: Domains, head: RequestHead, name: str, source: Target, target: Target, tokens: int,
        done: Callable[[bool], None],
    ) -> None:  # fmt: skip
        self._pool = pool
        self._domains = domains
        self._head = head
        self._name = name
        self._source = source
        self._target = target
        self._tokens = tokens
        self._done = done
        self._began = now()
        self._errand: Errand | None = None

    def drop(self) -> None:
        """Nobody wants it any more. The engines finish what they have begun."""
        if self._errand is not None:
            self._errand.drop()
            self._end("dropped")

    def late(self) -> None:
        """Nobody waits for it any longer. `done` is not called."""
        if self._errand is not None:
            self._errand.drop()
            self._lost(OutcomeKind.FIRST_BYTE_TIMEOUT, "it took too long")

    def _run(self, whom: Target, steps: Steps[Any], done: Callable[[Any], None]) -> None:
        self._errand = Errand(self._pool, whom, self._head, self._name, steps, done, self._failed)
        self._errand.go()

    def _arrived(self, _answer: bytes) -> None:
        self._domains.measured(self._source, self._tokens, now() - self._began)
        self._end("done", self._tokens)
        self._done(True)

    def _failed(self, kind: OutcomeKind, detail: str, _error: Exception | None) -> None:
        self._lost(kind, detail)
        self._done(False)

    def _lost(self, kind: OutcomeKind, detail: str) -> None:
        source, target = self._source.spec.id, self._target.spec.id
        log.warning("KV was not handed over", source=source, target=target, kind=str(kind), reason=detail)
        self._domains.failed(self._source)
        self._end("failed")

    def _end(self, result: str, tokens: int = 0) -> None:
        self._errand = None
        self._domains.counters.handed_over(result, tokens)


class Handover(_Transfer):
    """From a slot to a slot. That of the source is nobody else's until the target has read what was in it."""

    def __init__(
        self, pool: Pool, domains: Domains, head: RequestHead, source: Claim, target: Claim, tokens: int,
        done: Callable[[bool], None],
    ) -> None:  # fmt: skip
        super().__init__(pool, domains, head, _file_of(source), source.target, target.target, tokens, done)
        self._from = source
        self._to = target
        kv = source.target.kv
        assert kv is not None  # or nobody would have a slot there
        self._kv = kv

    def go(self) -> None:
        """Begin."""
        self._run(self._source, _one(self._kv.save_ask(self._from.slot, self._name)), self._saved)

    def _saved(self, _answer: bytes) -> None:
        self._run(self._target, _one(self._kv.restore_ask(self._to.slot, self._name)), self._arrived)

    def _end(self, result: str, tokens: int = 0) -> None:
        self._from.leave()  # its file may be written again from now on
        super()._end(result, tokens)


class Fetch(_Transfer):
    """From prefix cache to prefix cache. `export` has the source say what is to be said to the target, `warm` has the
    target read with that. What the source keeps for a target that never comes it gives up by itself, after a time."""

    def __init__(
        self, pool: Pool, domains: Domains, head: RequestHead, name: str, source: Target, target: Target, tokens: int,
        export: Steps[dict[str, object]], warm: Callable[[dict[str, object]], Steps[bytes]],
        done: Callable[[bool], None],
    ) -> None:  # fmt: skip
        super().__init__(pool, domains, head, name, source, target, tokens, done)
        self._export = export
        self._warm = warm

    def go(self) -> None:
        """Begin."""
        self._run(self._source, self._export, self._exported)

    def _exported(self, ticket: dict[str, object]) -> None:
        self._run(self._target, self._warm(ticket), self._arrived)


def _one(ask: Ask) -> Steps[bytes]:
    return (yield ask)


def _file_of(source: Claim) -> str:
    """One file per slot: there are never more of them, and whoever has the slot is the only one to write it. Replicas'
    ids can have characters that no file may."""
    return f"headway-{hashlib.sha256(source.target.spec.id.encode()).hexdigest()[:16]}-{source.slot}.bin"
