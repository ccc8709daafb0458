"""The pool of nodes: whatever is found, shared, taken and given back, no block is lost and none is there twice."""

from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from headway.perfmodel.nodes import Node, NodePool

BLOCKS = 24
KEYS = st.integers(-6, 6)
"""Few, so that they meet often; below 0, too: any number may be a key."""


class Holding:
    """What one sequence holds: nodes, and blocks without a name."""

    def __init__(self, nodes: list[Node], own: int) -> None:
        self.nodes = nodes
        self.own = own


class Machine(RuleBasedStateMachine):
    holdings = Bundle("holdings")

    def __init__(self) -> None:
        super().__init__()
        self.pool = NodePool(BLOCKS)
        self.held: list[Holding] = []

    @rule(target=holdings, pieces=st.lists(st.tuples(KEYS, st.integers(1, 4)), max_size=4), own=st.integers(0, 8))
    def begin(self, pieces: list[tuple[int, int]], own: int) -> Holding:
        """As an engine lets a sequence in: what is known is shared, the rest is taken."""
        known = self.pool.find(pieces, BLOCKS)
        assert [node.key for node in known] == [key for key, _ in pieces[: len(known)]]
        self.pool.share(known)
        holding = Holding(known, min(own, self.pool.free))
        self.pool.take(holding.own)
        self.held.append(holding)
        return holding

    @rule(holding=holdings, key=KEYS, blocks=st.integers(1, 4))
    def name(self, holding: Holding, key: int, blocks: int) -> None:
        if blocks > holding.own or (node := self.pool.name(key, blocks)) is None:
            return
        holding.own -= blocks
        holding.nodes.append(node)

    @rule(holding=consumes(holdings), cached=st.booleans())
    def end(self, holding: Holding, cached: bool) -> None:
        self.held.remove(holding)
        self.pool.release(holding.nodes, holding.own, cached)

    @invariant()
    def none_is_lost_and_none_is_there_twice(self) -> None:
        nodes = {id(node): node.blocks for holding in self.held for node in holding.nodes}
        assert self.pool.free == BLOCKS - sum(nodes.values()) - sum(holding.own for holding in self.held)

    def teardown(self) -> None:
        for holding in self.held:
            self.pool.release(holding.nodes, holding.own, True)
        self.pool.take(BLOCKS)
        assert self.pool.free == 0
        assert self.pool.find([(key, 1) for key in range(-6, 7)], BLOCKS) == []


TestMachine = Machine.TestCase


def test_what_was_released_longest_ago_goes_first_tails_before_heads() -> None:
    pool = NodePool(10)
    pool.take(6)
    nodes = [node for key in (1, 2) if (node := pool.name(key, 2))]
    pool.release(nodes, 2, True)
    pool.take(4 + 2)
    assert len(pool.find([(1, 2), (2, 2)], 10)) == 2, "blank blocks, and those without a name"
    pool.take(1)
    assert [node.key for node in pool.find([(1, 2), (2, 2)], 10)] == [1]
    assert pool.name(1, 2) is None
