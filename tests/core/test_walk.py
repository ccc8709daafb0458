"""A random walk through all that a brain can be told leaves its books in order."""

import os

import pytest

from tests.core.walk import Walk

SOAK = os.environ.get("HEADWAY_SOAK") == "1"
STEPS = 20_000 if SOAK else 500


@pytest.mark.parametrize("hold", [True, False])
@pytest.mark.parametrize("seed", range(1, 11 if SOAK else 2))
def test_a_random_walk_leaves_the_books_in_order(seed: int, hold: bool) -> None:
    walk = Walk(seed, hold).run(STEPS)
    assert walk.said["Dispatch"] > STEPS / 10
    assert walk.said["Hold"] > STEPS / 10
    assert walk.said["Migrate"] + walk.said["Evict"] + walk.said["Abort"] > 0
