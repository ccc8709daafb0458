"""Three ways to give sequences room in a KV pool, counted in tokens.

`Contiguous` is a best-fit allocator with coalescing, as in TensorFlow's BFC; `Buddy` halves powers of two (Knowlton
1965); `Paged` hands out pages one by one (PagedAttention, Kwon et al. 2023). All hand out multiples of a granularity.
The first two must give a sequence its final length at once, in one piece; pages come as it grows.
"""

from bisect import bisect_left, insort
from typing import Protocol


class Allocator(Protocol):
    """A pool. `owner` is a sequence; it holds one region or any number of pages."""

    @property
    def free_tokens(self) -> int:
        """Tokens that nobody holds."""

    @property
    def largest_tokens(self) -> int:
        """The largest request that would succeed now."""

    def hold(self, owner: int, now: int, final: int) -> bool:
        """Room for a new sequence of `now` tokens that ends with `final`; False, and nothing is held, without room."""

    def grow(self, owner: int, tokens: int) -> bool:
        """Room for `tokens` in all; False where there is none (the sequence keeps what it holds)."""

    def drop(self, owner: int) -> None:
        """Everything of a sequence is free again."""


class Contiguous:
    """One region per sequence; the smallest free one that is large enough; neighbours merge when freed."""

    def __init__(self, pool_tokens: int, granularity: int) -> None:
        self._unit = granularity
        self._free: list[tuple[int, int]] = []  # (size, start), sorted
        self._ends: dict[int, tuple[int, int]] = {}  # end -> free region
        self._starts: dict[int, tuple[int, int]] = {}
        self._held: dict[int, tuple[int, int]] = {}
        self.free_tokens = 0
        self._add(pool_tokens - pool_tokens % granularity, 0)

    @property
    def largest_tokens(self) -> int:
        """The largest free region."""
        return self._free[-1][0] if self._free else 0

    def hold(self, owner: int, now: int, final: int) -> bool:
        """A region for the final length."""
        size = -(-final // self._unit) * self._unit
        at = bisect_left(self._free, (size, -1))
        if at == len(self._free):
            return False
        whole, start = self._free[at]
        self._take(whole, start)
        if whole > size:
            self._add(whole - size, start + size)
        self._held[owner] = (size, start)
        return True

    def grow(self, owner: int, tokens: int) -> bool:
        """The region was made for it."""
        return tokens <= self._held[owner][0]

    def drop(self, owner: int) -> None:
        """Merge with free neighbours."""
        size, start = self._held.pop(owner)
        before, after = self._ends.get(start), self._starts.get(start + size)
        for region in (before, after):
            if region:
                self._take(*region)
                size += region[0]
        self._add(size, before[1] if before else start)

    def _add(self, size: int, start: int) -> None:
        if size:
            insort(self._free, (size, start))
            self._starts[start] = self._ends[start + size] = (size, start)
            self.free_tokens += size

    def _take(self, size: int, start: int) -> None:
        del self._free[bisect_left(self._free, (size, start))]
        del self._starts[start], self._ends[start + size]
        self.free_tokens -= size


class Buddy:
    """Regions of granularity x 2^k; a free region is halved until it is as small as it may be, halves merge again.

    A pool that is no power of two is a row of trees, largest first.
    """

    def __init__(self, pool_tokens: int, granularity: int) -> None:
        self._unit = granularity
        self._free: dict[int, set[int]] = {}  # order -> starts, in units
        self._tree: dict[int, int] = {}  # start of a held region -> order of the tree it lies in
        self._held: dict[int, tuple[int, int]] = {}
        self.free_tokens = 0
        self._roots: list[tuple[int, int]] = []
        start, left = 0, pool_tokens // granularity
        while left:
            order = left.bit_length() - 1
            self._roots.append((start, order))
            self._free.setdefault(order, set()).add(start)
            start, left = start + (1 << order), left - (1 << order)
        self.free_tokens = start * granularity

    @property
    def largest_tokens(self) -> int:
        """The largest free region."""
        return max(((1 << order) * self._unit for order, starts in self._free.items() if starts), default=0)

    def hold(self, owner: int, now: int, final: int) -> bool:
        """The next power of two above the final length."""
        order = max(0, (-(-final // self._unit) - 1).bit_length())
        found = next((at for at in range(order, 64) if self._free.get(at)), None)
        if found is None:
            return False
        start = min(self._free[found])
        self._free[found].discard(start)
        while found > order:
            found -= 1
            self._free.setdefault(found, set()).add(start + (1 << found))
        self._held[owner] = (start, order)
        self.free_tokens -= (1 << order) * self._unit
        return True

    def grow(self, owner: int, tokens: int) -> bool:
        """The region was made for it."""
        return tokens <= (1 << self._held[owner][1]) * self._unit

    def drop(self, owner: int) -> None:
        """Merge with the buddy as long as it is free and of the same tree."""
        start, order = self._held.pop(owner)
        self.free_tokens += (1 << order) * self._unit
        root, top = next((at, size) for at, size in reversed(self._roots) if at <= start)
        while order < top:
            buddy = root + ((start - root) ^ (1 << order))
            if buddy not in self._free.get(order, ()):
                break
            self._free[order].discard(buddy)
            start, order = min(start, buddy), order + 1
        self._free.setdefault(order, set()).add(start)


class Paged:
    """Pages of one granularity, anywhere; any page serves any sequence."""

    def __init__(self, pool_tokens: int, granularity: int) -> None:
        self._unit = granularity
        self._pages = pool_tokens // granularity
        self._held: dict[int, int] = {}

    @property
    def free_tokens(self) -> int:
        """Pages left."""
        return self._pages * self._unit

    @property
    def largest_tokens(self) -> int:
        """All that is free: pages need not lie side by side."""
        return self.free_tokens

    def hold(self, owner: int, now: int, final: int) -> bool:
        """Pages for what there is now."""
        self._held[owner] = 0
        if self.grow(owner, now):
            return True
        del self._held[owner]
        return False

    def grow(self, owner: int, tokens: int) -> bool:
        """As many more pages as are missing."""
        missing = -(-tokens // self._unit) - self._held[owner]
        if missing > self._pages:
            return False
        if missing > 0:
            self._pages -= missing
            self._held[owner] += missing
        return True

    def drop(self, owner: int) -> None:
        """All its pages."""
        self._pages += self._held.pop(owner)


ALLOCATORS: tuple[tuple[str, type[Contiguous] | type[Buddy] | type[Paged]], ...] = (
    ("contiguous", Contiguous),
    ("buddy", Buddy),
    ("paged", Paged),
)
"""By the names of the study."""
