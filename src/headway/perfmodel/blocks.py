"""The paged KV cache: a pool of equal blocks, shared by reference count, and re-used while their content is known.

A block that nobody references stays findable by its key (the hash of all tokens up to its end) until it is handed out
again: the prefix cache costs no memory. Free blocks are handed out least recently released first, and a sequence
releases its tail first, so that long-lived prefixes are evicted last. Who gets blocks is decided in `engine`.
"""

from collections import OrderedDict
from collections.abc import Iterable, Sequence


class BlockPool:
    """`count` blocks, numbered from 0."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._free: OrderedDict[int, None] = OrderedDict.fromkeys(range(count))
        self._references = [0] * count
        self._key: list[int | None] = [None] * count
        self._by_key: dict[int, int] = {}

    @property
    def free(self) -> int:
        """Blocks that nobody references, cached or not."""
        return len(self._free)

    @property
    def used(self) -> int:
        """Blocks that somebody references."""
        return self.count - len(self._free)

    @property
    def cached(self) -> int:
        """Blocks whose content can be found, referenced or not."""
        return len(self._by_key)

    def find(self, keys: Iterable[int]) -> list[int]:
        """The blocks of the longest known prefix of these keys. They are not yet taken."""
        found = []
        for key in keys:
            block = self._by_key.get(key)
            if block is None:
                break
            found.append(block)
        return found

    def idle(self, blocks: Iterable[int]) -> int:
        """How many of these blocks are free now, and would leave the free list if taken."""
        return sum(1 for block in blocks if not self._references[block])

    def share(self, blocks: Iterable[int]) -> None:
        """Take one more reference to blocks that `find` returned."""
        for block in blocks:
            if not self._references[block]:
                del self._free[block]
            self._references[block] += 1

    def allocate(self, count: int) -> list[int]:
        """Take `count` free blocks, forgetting what they held. The caller has checked `free`; KeyError otherwise."""
        blocks = []
        for _ in range(count):
            block, _nothing = self._free.popitem(last=False)
            self._forget(block)
            self._references[block] = 1
            blocks.append(block)
        return blocks

    def name(self, block: int, key: int) -> None:
        """Make a full block findable. If another block already answers to this key, that one keeps it."""
        if self._key[block] is None and key not in self._by_key:
            self._key[block] = key
            self._by_key[key] = block

    def release(self, blocks: Sequence[int]) -> None:
        """Give back one reference each, the last block first."""
        for block in reversed(blocks):
            self._references[block] -= 1
            if not self._references[block]:
                self._free[block] = None

    def forget_all(self) -> None:
        """Drop the prefix cache; references stay."""
        for block in list(self._by_key.values()):
            self._forget(block)

    def _forget(self, block: int) -> None:
        key = self._key[block]
        if key is not None:
            del self._by_key[key]
            self._key[block] = None
