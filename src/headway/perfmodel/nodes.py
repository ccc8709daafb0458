"""The KV pool of `jump`: memory in blocks, prefixes in nodes.

A node is a run of full blocks that some prompts share (a piece of a trace's prompt); it is found, referenced and
evicted as a whole, so that a prompt of 12,000 tokens costs 24 look-ups instead of 750. Everything else is a count. The
order of eviction is that of `blocks`: blank blocks first, then what was released longest ago, tails before heads.
"""

from collections import OrderedDict
from collections.abc import Sequence


class Node:
    """`blocks` full blocks under one key (None: they cannot be found again), held by `references` sequences."""

    __slots__ = ("blocks", "key", "references")

    def __init__(self, key: int | None, blocks: int, references: int) -> None:
        self.key = key
        self.blocks = blocks
        self.references = references


class NodePool:
    """`count` blocks. `free`: those that nobody references, cached or not."""

    __slots__ = ("_blank", "_idle", "_nodes", "count", "free")

    def __init__(self, count: int) -> None:
        self.count = count
        self.free = count
        self._blank = count
        self._nodes: dict[int | None, Node] = {}
        self._idle: OrderedDict[Node, None] = OrderedDict()  # without references, longest released first

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
                del self._idle[node]
                self.free -= node.blocks
            node.references += 1

    def take(self, blocks: int) -> None:
        """Take free blocks, forgetting what they held. The caller has looked at `free`."""
        self.free -= blocks
        self._blank -= blocks
        while self._blank < 0:
            gone, _ = self._idle.popitem(last=False)
            self._nodes.pop(gone.key, None)
            self._blank += gone.blocks

    def name(self, key: int, blocks: int) -> Node | None:
        """Make taken blocks findable; they then belong to the node returned. None if the key is known already."""
        if key in self._nodes:
            return None
        node = self._nodes[key] = Node(key, blocks, 1)
        return node

    def release(self, nodes: Sequence[Node], blocks: int, cached: bool) -> None:
        """Give back `blocks` without a name (which age like cached ones if `cached`), then one reference to each
        node, the last first."""
        if blocks:
            self.free += blocks
            if cached:
                self._idle[Node(None, blocks, 0)] = None
            else:
                self._blank += blocks
        for node in reversed(nodes):
            node.references -= 1
            if not node.references:
                self._idle[node] = None
                self.free += node.blocks
