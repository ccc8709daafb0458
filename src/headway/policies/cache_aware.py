"""The `cache_aware` policy of the SGLang router: to the longest known prefix, unless the load is out of balance.

    out of balance (max - min > 64 and max > 1.5 min requests in flight)    fewest in flight
    else some prefix of more than 0.3 of the prompt was sent somewhere      there
    else                                                                    the replica with the smallest tree

Source: sglang-router 0.3.2, policies/cache_aware.rs and tree.rs, its command line's defaults (the Rust defaults
differ: 0.5, 32, 1.1). Where little matches, 0.3.1 and before take the smallest tree, as their manual still says; later
sources take the fewest in flight: `low_match`.

What it knows: what it sent itself, and its own count of requests in flight. No engine gauge, no measured hit, no
size of a KV pool: so its tree believes cached what an engine has long evicted. That is how it is published.

Deviations: text is compared by Headway's blocks of 512 bytes instead of by character, so a match is up to a block
short (prompts below one block are told apart by their fingerprint); the deepest match of all belongs to whoever was
sent it first, as there, but a replica that is no candidate now is passed over rather than replaced by the first
healthy one; ties are broken by chance instead of by position; max and min are those of the candidates.
"""

from collections.abc import Sequence
from typing import Literal

import msgspec

from headway.core.demand import Demand
from headway.core.ids import ReplicaId
from headway.core.plugin import Chance, Plugin
from headway.core.request import RequestInfo
from headway.core.view import ReplicaView
from headway.policies.books import Books, gone

_CHARACTERS_PER_TOKEN = 4  # where the text's length is not known


class CacheAwareConfig(msgspec.Struct, frozen=True):
    """The router's own defaults. Sizes of trees in characters, per replica; evicted every `eviction_interval_s`."""

    cache_threshold: float = 0.3
    balance_abs_threshold: int = 64
    balance_rel_threshold: float = 1.5
    low_match: Literal["smallest_tree", "shortest_queue"] = "smallest_tree"
    eviction_interval_s: float = 60.0
    max_tree_size: int = 2**26


class _Tree:
    """Prompts sent, of one model. Block hashes are chained, so a set of them is a tree."""

    def __init__(self) -> None:
        self.owners: dict[int, dict[ReplicaId, None]] = {}
        self.shelves: dict[ReplicaId, dict[int, float]] = {}  # blocks and their characters, least recently used first
        self.sizes: dict[ReplicaId, float] = {}
        self.evicted_at = 0.0
        self._singles = 0

    def match(self, blocks: Sequence[int]) -> tuple[float, ReplicaId | None]:
        """The share of the prompt that was ever sent anywhere, and who was sent the last block of it first."""
        owner, depth = None, 0
        for block in blocks:
            owners = self.owners.get(block)
            if not owners:
                break
            owner, depth = next(iter(owners)), depth + 1
        return (depth / len(blocks), owner) if depth else (0.0, None)

    def insert(self, replica: ReplicaId, blocks: Sequence[int], characters: float) -> None:
        """Remember a prompt; the beginning of it is touched last, because it must outlive the rest."""
        if not blocks:  # nothing to know it by again, but it takes its room
            self._singles -= 1
            blocks = (self._singles,)
        shelf = self.shelves.setdefault(replica, {})
        size = self.sizes.get(replica, 0.0)
        each = characters / len(blocks)
        for block in reversed(blocks):
            known = shelf.pop(block, None)
            if known is None:
                self.owners.setdefault(block, {})[replica] = None
                size += each
            shelf[block] = each if known is None else known
        self.sizes[replica] = size

    def evict(self, most: int) -> None:
        """Bring every replica's tree down to `most` characters."""
        for replica, shelf in self.shelves.items():
            while self.sizes[replica] > most and shelf:
                block = next(iter(shelf))
                self.sizes[replica] -= shelf.pop(block)
                self._disown(block, replica)

    def forget(self, replica: ReplicaId) -> None:
        """The replica is gone."""
        for block in self.shelves.pop(replica, {}):
            self._disown(block, replica)
        self.sizes.pop(replica, None)

    def _disown(self, block: int, replica: ReplicaId) -> None:
        owners = self.owners[block]
        del owners[replica]
        if not owners:
            del self.owners[block]


class CacheAware:
    """Prefix affinity with a brake."""

    name = "cache_aware"
    parts: tuple[str, ...] = ("in_flight", "match", "tree_characters")
    tolerance = 0.0
    binds_late = False
    minds_prefixes = True
    foresees = False

    def __init__(self, config: CacheAwareConfig) -> None:
        self._config = config
        self._trees = Books(_Tree)

    def costs(
        self, demand: Demand, views: Sequence[ReplicaView], now: float, rng: Chance
    ) -> Sequence[tuple[float, ...]]:
        """Requests in flight, or size of the tree; with a good match 0 for its owner and 1 for the others."""
        config, tree = self._config, self._trees.page(demand.request.model)
        for replica in gone(tree.sizes, views):
            tree.forget(replica)
        loads = [float(view.in_flight) for view in views]
        sizes = [tree.sizes.get(view.id, 0.0) for view in views]
        rate, owner = tree.match(_blocks(demand.request))
        costs = loads if config.low_match == "shortest_queue" else sizes
        least, most = min(loads), max(loads)
        if most - least > config.balance_abs_threshold and most > config.balance_rel_threshold * least:
            costs = loads
        elif rate > config.cache_threshold and any(view.id == owner for view in views):
            costs = [float(view.id != owner) for view in views]
        return [
            (cost, load, rate if view.id == owner else 0.0, size)
            for cost, load, size, view in zip(costs, loads, sizes, views, strict=True)
        ]

    def sent(self, demand: Demand, replica: ReplicaId, now: float) -> None:
        """The prompt becomes part of the replica's tree."""
        request, config = demand.request, self._config
        tree = self._trees.page(request.model)
        tree.insert(replica, _blocks(request), request.prompt_bytes or _CHARACTERS_PER_TOKEN * demand.prompt_tokens)
        if now - tree.evicted_at >= config.eviction_interval_s:
            tree.evicted_at = now
            tree.evict(config.max_tree_size)

    def ended(self, request: RequestInfo, replica: ReplicaId) -> None:
        """Changes nothing: in flight is the ledger's count, and the tree keeps what was sent."""


def _blocks(request: RequestInfo) -> tuple[int, ...]:
    """The prompt's blocks; of one shorter than a block, the fingerprint of its whole body if there is one."""
    return request.prefix_hashes or ((request.fingerprint,) if request.fingerprint else ())


PLUGIN = Plugin("cache_aware", CacheAware, CacheAwareConfig)
