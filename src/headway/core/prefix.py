"""Which replica has which prompt prefix in its cache: a bounded index of text blocks, corrected by measured hits.

A prompt is a chain of hashes of its text blocks, each hash covering all text before it, so a block found means that the
whole prefix up to it was sent there. One dict maps a hash to a set of replicas, kept as the bits of an int: matching a
prompt costs one lookup per block whatever the size of the fleet. A second dict per replica keeps its blocks in order of
use. Bounds hold at every insert (never by a periodic sweep): blocks per replica, and bytes of the index as a whole.

Text blocks are a guess about token blocks; `trust` is how far measured `cached_tokens` confirmed it.
"""

from itertools import islice
from typing import Final

from headway.core.constants import PrefixConfig
from headway.core.ids import ReplicaId

_BYTES_PER_BLOCK: Final = 92
"""A distinct block: an entry of a dict (30 to 60 bytes, by fill) and a mask of up to 60 replicas (32)."""

_BYTES_PER_COPY: Final = 108
"""A block at one replica: an entry of its dict of use, and the hash itself (48 as allocated)."""


class _Shelf:
    """One replica's blocks, least recently used first."""

    __slots__ = ("bit", "blocks", "cached", "confirmed", "limit", "predicted")

    def __init__(self, bit: int, limit: int) -> None:
        self.bit = bit
        self.limit = limit
        self.blocks: dict[int, None] = {}
        self.predicted = 0.0
        self.cached = 0.0
        self.confirmed = False


class PrefixIndex:
    """Hashes of consecutive prompt blocks believed cached, per replica."""

    def __init__(self, config: PrefixConfig | None = None) -> None:
        self._config = config or PrefixConfig()
        self._trust_tokens = self._config.trust_tokens
        self._masks: dict[int, int] = {}
        self._shelves: dict[ReplicaId, _Shelf] = {}
        self._names: dict[int, ReplicaId] = {}  # bit -> replica
        self._copies = 0
        self._safe = 0  # so many copies fit whatever blocks they share
        self._decoded: dict[int, tuple[ReplicaId, ...]] = {}

    def match(self, hashes: tuple[int, ...]) -> dict[ReplicaId, int]:
        """Consecutive leading blocks believed cached, per replica.

        The first block alone never decides (real traffic shares it everywhere): a replica is named from two blocks on,
        unless the prompt has only one.
        """
        found: dict[ReplicaId, int] = {}
        if not hashes:
            return found
        get, decoded = self._masks.get, self._decoded.get
        enough = 2 if len(hashes) > 1 else 1
        alive = -1  # every replica, until the first block is looked up
        for depth, block in enumerate(hashes):
            still = alive & get(block, 0)
            if still != alive:
                if depth >= enough:
                    lost = alive ^ still
                    for replica in decoded(lost) or self._decode(lost):
                        found[replica] = depth
                if not still:
                    return found
                alive = still
        for replica in decoded(alive) or self._decode(alive):
            found[replica] = len(hashes)
        return found

    def insert(self, replica: ReplicaId, hashes: tuple[int, ...]) -> None:
        """The replica was sent a prompt of these blocks. What does not fit is forgotten, least recently used first.

        Blocks are touched from the last to the first: a prefix must outlive what builds on it, as in engines.
        """
        shelf = self._shelves.get(replica) or self._open(replica)
        blocks, bit, masks, limit = shelf.blocks, shelf.bit, self._masks, shelf.limit
        before, get = len(blocks), masks.get
        for block in reversed(hashes if len(hashes) <= limit else hashes[:limit]):
            mask = get(block, 0)
            if mask & bit:
                del blocks[block]
            else:
                masks[block] = mask | bit
            blocks[block] = None
        added = len(blocks) - before
        if not added:
            return
        self._copies += added
        if len(blocks) > limit:
            self._evict(shelf, len(blocks) - limit + limit // 16)
        while self._copies > self._safe and self.bytes_estimate > self._config.max_bytes:
            largest = max(self._shelves.values(), key=lambda s: len(s.blocks))
            self._evict(largest, 1 + len(largest.blocks) // 16)

    def forget(self, replica: ReplicaId) -> None:
        """The replica is gone or lost its cache."""
        shelf = self._shelves.pop(replica, None)
        if shelf:
            self._evict(shelf, len(shelf.blocks))
            del self._names[shelf.bit]
            self._decoded.clear()

    def blocks(self, replica: ReplicaId) -> int:
        """Blocks believed cached at a replica."""
        shelf = self._shelves.get(replica)
        return len(shelf.blocks) if shelf else 0

    @property
    def bytes_estimate(self) -> int:
        """Memory of the index (bytes, estimated; tables that have just grown take up to a tenth more)."""
        return len(self._masks) * (_BYTES_PER_BLOCK + len(self._names) // 7) + self._copies * _BYTES_PER_COPY

    def trust(self, replica: ReplicaId) -> float:
        """Factor in (0, 1] by which hit forecasts of a replica are to be scaled: measured over predicted."""
        shelf = self._shelves.get(replica)
        if shelf is None:
            return 1.0
        weight = self._trust_tokens
        return (shelf.cached + weight) / (shelf.predicted + weight)

    def correct(self, replica: ReplicaId, predicted_tokens: int, cached_tokens: int) -> None:
        """The engine measured `cached_tokens` where `predicted_tokens` (before scaling by trust) were forecast.

        Many engines do not report cached tokens unless told to, which reads as 0: zeros of a replica count only once
        it has reported any.
        """
        shelf = self._shelves.get(replica)
        if shelf is None or predicted_tokens <= 0:
            return
        shelf.confirmed = shelf.confirmed or cached_tokens > 0
        if shelf.confirmed:
            keep = self._config.trust_memory
            shelf.predicted = shelf.predicted * keep + predicted_tokens
            shelf.cached = shelf.cached * keep + min(cached_tokens, predicted_tokens)

    def resize(self, replica: ReplicaId, tokens_capacity: int, bytes_per_token: float) -> None:
        """Never believe more is cached than a KV pool of `tokens_capacity` holds (0: unknown)."""
        config = self._config
        held = (
            int(tokens_capacity * bytes_per_token) // config.block_bytes if tokens_capacity > 0 else config.max_blocks
        )
        shelf = self._shelves.get(replica) or self._open(replica)
        shelf.limit = max(1, min(config.max_blocks, held))
        if len(shelf.blocks) > shelf.limit:
            self._evict(shelf, len(shelf.blocks) - shelf.limit)

    def _open(self, replica: ReplicaId) -> _Shelf:
        """A shelf on the lowest free bit, so that masks stay short while replicas come and go."""
        bit = 1
        while bit in self._names:
            bit <<= 1
        shelf = self._shelves[replica] = _Shelf(bit, self._config.max_blocks)
        self._names[bit] = replica
        per_copy = _BYTES_PER_BLOCK + len(self._names) // 7 + _BYTES_PER_COPY
        self._safe = self._config.max_bytes // per_copy
        return shelf

    def _evict(self, shelf: _Shelf, count: int) -> None:
        """Drop the `count` least recently used. Always many at once: the head of a dict is slow to find when it was
        eaten away one by one."""
        blocks, masks, bit = shelf.blocks, self._masks, shelf.bit
        dropped = list(islice(blocks, count))
        for block in dropped:
            del blocks[block]
            left = masks[block] ^ bit
            if left:
                masks[block] = left
            else:
                del masks[block]
        self._copies -= len(dropped)

    def _decode(self, mask: int) -> tuple[ReplicaId, ...]:
        """The replicas of a mask, lowest bit first; remembered."""
        if len(self._decoded) >= self._config.decoded:
            self._decoded.clear()
        rest, found = mask, []
        while rest:
            bit = rest & -rest
            found.append(self._names[bit])
            rest ^= bit
        names = self._decoded[mask] = tuple(found)
        return names
