"""The KV pool of `jump`: memory in blocks, prefixes in nodes.

A node is a run of full blocks that some prompts share (a piece of a trace's prompt); it is found, referenced and
evicted as a whole, so that a prompt of 12,000 tokens costs 24 look-ups instead of 750. Everything else is a count. The
order of eviction is that of `blocks`: blank blocks first, then what was released longest ago, tails before heads.
"""

from collections import OrderedDict
from collections.abc import Sequence


class Node:
    """`blocks` full blocks under one key, held by `references` sequences."""

    __slots__ = ("blocks", "key", "references")

    def __init__(self, key: int, blocks: int) -> None:
        self.key = key
        self.blocks = blocks
        self.references = 1


class NodePool:
    """`count` blocks. `free`: those that nobody references, cached or not."""

    __slots__ = ("_blank", "_idle", "_names", "_nodes", "count", "free")

    def __init__(self, count: int) -> None:
        self.count = count
        self.free = count
        self._blank = count
        self._nodes: dict[int, Node] = {}
        self._idle: OrderedDict[int, int] = OrderedDict()  # key -> blocks, longest released first
        self._names = -1

    def find(self, pieces: Sequence[tuple[int, int]], most: int) -> list[Node]:
        """The longest known prefix of (key, blocks) pieces of at most `most` blocks. Nothing is taken yet."""
        found: list[Node] = []
        known = self._nodes.get
        for key, blocks in pieces:
            most -= blocks
            if most < 0:
                break
            node = known(key)
            if node is None:
                break
            found.append(node)
        return found

    def idle(self, nodes: Sequence[Node]) -> int:
        """Blocks of these nodes that are free now and would not be once they are shared."""
        return sum([node.blocks for node in nodes if not node.references])

    def share(self, nodes: Sequence[Node]) -> None:
        """Take one more reference to each."""
        for node in nodes:
            if not node.references:
                del self._idle[node.key]
                self.free -= node.blocks
            node.references += 1

    def take(self, blocks: int) -> None:
        """Take free blocks, forgetting what they held. The caller has looked at `free`."""
        self.free -= blocks
        self._blank -= blocks
        while self._blank < 0:
            key, gone = self._idle.popitem(last=False)
            self._nodes.pop(key, None)
            self._blank += gone

    def name(self, key: int, blocks: int) -> Node | None:
        """Make taken blocks findable; they then belong to the node returned. None if the key is known already."""
        if key in self._nodes:
            return None
        node = self._nodes[key] = Node(key, blocks)
        return node

    def release(self, nodes: Sequence[Node], blocks: int, cached: bool) -> None:
        """Give back `blocks` without a name (which age like cached ones if `cached`), then one reference to each
        node, the last first."""
        if blocks:
            self.free += blocks
            if cached:
                self._idle[self._names] = blocks
                self._names -= 1
            else:
                self._blank += blocks
        for node in reversed(nodes):
            node.references -= 1
            if not node.references:
                self._idle[node.key] = node.blocks
                self.free += node.blocks

    def forget_all(self) -> None:
        """Drop what is cached and not referenced."""
        for key in self._idle:
            self._nodes.pop(key, None)
        self._blank += sum(self._idle.values())
        self._idle.clear()
