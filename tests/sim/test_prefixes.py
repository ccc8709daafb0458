"""What prompts have in common, as a tree, against comparing every pair."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.sim.prefixes import prefixes

Piece = tuple[int, int]
PIECES = st.tuples(st.integers(1, 3), st.sampled_from((16, 32)))


def common(one: list[Piece], other: list[Piece]) -> int:
    total = 0
    for a, b in zip(one, other, strict=False):
        if a != b:
            break
        total += a[1]
    return total


@pytest.mark.slow
@given(st.lists(st.lists(PIECES, max_size=5), min_size=1, max_size=8))
def test_shared_is_the_longest_beginning_that_another_has(prompts: list[list[Piece]]) -> None:
    shared = prefixes(prompts).shared()
    for i, prompt in enumerate(prompts):
        others = [common(prompt, other) for j, other in enumerate(prompts) if j != i]
        assert shared[i] == max(others, default=0)


@pytest.mark.slow
@given(st.lists(st.lists(PIECES, max_size=5), min_size=1, max_size=8))
def test_nodes_hold_what_is_distinct_and_shared(prompts: list[list[Piece]]) -> None:
    tree = prefixes(prompts)
    beginnings = [tuple(prompt[:n]) for prompt in prompts for n in range(1, len(prompt) + 1)]
    distinct = {beginning for beginning in beginnings if beginnings.count(beginning) > 1}
    assert tree.tokens.sum() == sum(beginning[-1][1] for beginning in distinct)
    assert all(above < node for node, above in enumerate(tree.parent))
    assert len(tree.parent) <= 2 * len(prompts)


def test_a_node_lasts_from_the_first_to_the_last_that_go_through_it() -> None:
    tree = prefixes([[(1, 16), (2, 16)], [(1, 16)], [(1, 16), (2, 16), (3, 16)], [(9, 16)]])
    first, last = tree.spans(np.array([5.0, 1.0, 7.0, 0.0]), np.array([6.0, 2.0, 9.0, 99.0]))
    assert tree.tokens.tolist() == [16.0, 16.0]
    assert (first.tolist(), last.tolist()) == ([1.0, 5.0], [9.0, 9.0])
    assert tree.node.tolist() == [1, 0, 1, -1]


def test_nothing_in_common() -> None:
    tree = prefixes([[(1, 16)], [(2, 16)], []])
    assert tree.shared().tolist() == [0.0, 0.0, 0.0]
    assert len(tree.parent) == 0
