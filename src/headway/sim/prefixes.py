"""The beginnings that prompts have in common, as a tree: what has to be computed once, however many use it."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Prefixes:
    """A forest of nodes, parents before children. A node is a run of prompt tokens that at least two prompts have.

    Per node: `parent` (-1: none), `tokens` of its own, `before`: tokens of its ancestors. `node`: the deepest node of
    each prompt, -1 if it shares nothing.
    """

    parent: NDArray[np.int64]
    tokens: NDArray[np.float64]
    before: NDArray[np.float64]
    node: NDArray[np.int64]

    def shared(self) -> NDArray[np.float64]:
        """Leading tokens of each prompt that others have too."""
        through = np.append(self.before + self.tokens, 0.0)
        return through[self.node]

    def spans(
        self, begins: NDArray[np.float64], ends: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Per node, the earliest beginning and the latest end among the prompts that go through it."""
        first, last = np.full(len(self.parent), np.inf), np.full(len(self.parent), -np.inf)
        mine = self.node >= 0
        np.minimum.at(first, self.node[mine], begins[mine])
        np.maximum.at(last, self.node[mine], ends[mine])
        for node in range(len(self.parent) - 1, -1, -1):
            above = self.parent[node]
            if above >= 0:
                first[above] = min(first[above], first[node])
                last[above] = max(last[above], last[node])
        return first, last


def prefixes(prompts: Sequence[Sequence[tuple[int, int]]]) -> Prefixes:
    """The tree of prompts given as (key, tokens) pieces. Two prompts share a piece if all up to it is equal."""
    children: dict[tuple[int, int, int], int] = {}
    passed: list[int] = []
    above: list[int] = []
    size: list[int] = []
    paths: list[list[int]] = []
    for prompt in prompts:
        place = -1
        path: list[int] = []
        for key, tokens in prompt:
            place = children.setdefault((place, key, tokens), len(passed))
            if place == len(passed):
                passed.append(0)
                size.append(tokens)
                above.append(path[-1] if path else -1)
            passed[place] += 1
            path.append(place)
        paths.append(path)
    return _merged(paths, passed, above, size)


def _merged(paths: list[list[int]], passed: list[int], above: list[int], size: list[int]) -> Prefixes:
    """Keep what two or more have, a run of places that the same prompts go through as one node."""
    name = [-1] * len(passed)
    parent: list[int] = []
    tokens: list[int] = []
    before: list[int] = []
    for place, count in enumerate(passed):
        if count < 2:
            continue
        up = above[place]
        if up >= 0 and passed[up] == count:  # then nobody ends or turns off between the two
            name[place] = name[up]
            tokens[name[place]] += size[place]
        else:
            name[place] = len(parent)
            parent.append(name[up] if up >= 0 else -1)
            tokens.append(size[place])
            before.append(before[parent[-1]] + tokens[parent[-1]] if parent[-1] >= 0 else 0)
    deepest = [max((name[place] for place in path), default=-1) for path in paths]
    return Prefixes(
        np.array(parent, dtype=np.int64),
        np.array(tokens, dtype=np.float64),
        np.array(before, dtype=np.float64),
        np.array(deepest, dtype=np.int64),
    )
