"""KV that engines hand over themselves, through a folder that both see: break before make; nothing is computed again.

The source is left first, since a slot can only be saved when nobody runs in it. What it computed is saved, the target
reads it, and goes on from there. If either fails the target computes it again, as it would have without this: only time
is lost. What lives here: what that costs, as measured, and the two calls. What must not: when requests move (the
brain), and what the client sees of it (`mover`).
"""

import hashlib
from collections.abc import Callable
from typing import Final

import structlog

from headway.core.commands import Migrate
from headway.core.outcome import OutcomeKind
from headway.engines.continuation import KvMove
from headway.gateway.errand import Errand, Steps
from headway.gateway.head import RequestHead
from headway.gateway.slots import Claim
from headway.gateway.target import Target
from headway.gateway.upstream import Pool
from headway.runtime.clock import now
from headway.telemetry.moves import Moves
from headway.wire.resume_body import Ask

log = structlog.get_logger(__name__)

GUESS_S: Final = 100e-6
"""Per token, until one was measured: 128 KiB (Llama-3.1-8B in bfloat16) written and read at 2.6 GB/s."""

LATEST: Final = 0.5
"""Weight of the last measurement: folders become slow and fast again."""


class Stores:
    """What handing over costs, per store, as it was last. Seconds per token, both halves."""

    def __init__(self, counters: Moves) -> None:
        self._per_token_s: dict[str, float] = {}
        self.counters = counters

    def pays(self, source: Target, target: Target, order: Migrate, most_s: float) -> bool:
        """Whether to hand over instead of computing again: where both see the same folder, it is done sooner, and no
        client's stream stands still for longer than `most_s`."""
        kv = source.kv
        if kv is None or kv != target.kv or source.spec.kv_store != target.spec.kv_store:
            return False
        per_token_s = self._per_token_s.get(source.spec.kv_store, GUESS_S)
        return kv.seconds(order.held_tokens, per_token_s) < min(order.replay_s, most_s)

    def measured(self, store: str, kv: KvMove, tokens: int, seconds: float) -> None:
        """So many tokens took so long."""
        per_token_s = max(0.0, seconds - kv.fixed_s) / max(1, tokens)
        before = self._per_token_s.get(store, per_token_s)
        self._per_token_s[store] = before + LATEST * (per_token_s - before)


class Handover:
    """One. `done` is called when the target may go on, with or without what the source computed; not after `drop`."""

    def __init__(
        self, pool: Pool, stores: Stores, head: RequestHead, source: Claim, target: Claim, tokens: int,
        done: Callable[[], None],
    ) -> None:  # fmt: skip
        self._pool = pool
        self._stores = stores
        self._head = head
        self._source = source
        self._target = target
        self._tokens = tokens
        self._done = done
        self._began = now()
        self._file = _file_of(source)
        kv = source.target.kv
        assert kv is not None  # or nobody would have a slot there
        self._kv = kv
        self._errand: Errand | None = None

    def go(self) -> None:
        """Begin."""
        self._ask(self._source, self._kv.save_ask(self._source.slot, self._file), self._saved)

    def drop(self) -> None:
        """Nobody wants it any more. The engines finish what they have begun."""
        if self._errand is not None:
            self._errand.drop()
            self._errand = None
            self._source.leave()
            self._stores.counters.handed_over("dropped", 0)

    def _saved(self, _answer: bytes) -> None:
        self._ask(self._target, self._kv.restore_ask(self._target.slot, self._file), self._restored)

    def _restored(self, _answer: bytes) -> None:
        store = self._source.target.spec.kv_store
        self._stores.measured(store, self._kv, self._tokens, now() - self._began)
        self._end("done", self._tokens)

    def _failed(self, kind: OutcomeKind, detail: str, _error: Exception | None) -> None:
        source, target = self._source.target.spec.id, self._target.target.spec.id
        log.warning("KV was not handed over", source=source, target=target, kind=str(kind), reason=detail)
        self._end("failed", 0)

    def _end(self, result: str, tokens: int) -> None:
        self._errand = None
        self._source.leave()  # its file may be written again from now on
        self._stores.counters.handed_over(result, tokens)
        self._done()

    def _ask(self, whom: Claim, ask: Ask, done: Callable[[bytes], None]) -> None:
        self._errand = Errand(self._pool, whom.target, self._head, self._file, _one(ask), done, self._failed)
        self._errand.go()


def _one(ask: Ask) -> Steps[bytes]:
    return (yield ask)


def _file_of(source: Claim) -> str:
    """One file per slot: there are never more of them, and whoever has the slot is the only one to write it. Replicas'
    ids can have characters that no file may."""
    return f"headway-{hashlib.sha256(source.target.spec.id.encode()).hexdigest()[:16]}-{source.slot}.bin"
