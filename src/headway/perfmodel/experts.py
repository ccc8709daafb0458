"""Which experts a batch hits, and how unevenly the ranks of an expert-parallel group share them.

Popularity falls as a power of the rank. Expectations only: nothing here draws. Times are in `steptime`.
"""

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

LARGEST_OF = {2: 0.56, 4: 1.03, 8: 1.42, 16: 1.77}
"""Expected largest of so many standard normal draws: a step waits for the rank with most to do."""


def distinct(tokens: Floats, experts: int, chosen: int, skew: float) -> Floats:
    """Expected number of experts that so many tokens hit."""
    chance = np.minimum(1.0, chosen * _popularity(experts, skew))
    known = np.unique(np.geomspace(1, max(2.0, tokens[-1]), 64).round())
    hit = (1 - (1 - chance[None, :]) ** known[:, None]).sum(axis=1)
    return np.asarray(np.interp(tokens, np.concatenate([[0.0], known]), np.concatenate([[0.0], hit])), dtype=np.float64)


def fullest_rank(hit: Floats, experts: int, ranks: int) -> Floats:
    """Of `hit` experts over all ranks, expected number on the rank that holds most of them."""
    each = hit / ranks
    spread = np.sqrt(each * np.maximum(0.0, 1 - hit / experts))
    return np.asarray(np.minimum(each + _largest(ranks) * spread, experts / ranks), dtype=np.float64)


def heaviest_share(experts: int, ranks: int, skew: float) -> float:
    """Tokens of the rank with the most popular experts over the mean, when experts are dealt without regard to it."""
    popularity = _popularity(experts, skew)
    return float(1 + _largest(ranks) * popularity.std() / popularity.mean() * np.sqrt(ranks / experts))


def _popularity(experts: int, skew: float) -> Floats:
    weight = np.arange(1, experts + 1, dtype=np.float64) ** -skew
    return np.asarray(weight / weight.sum(), dtype=np.float64)


def _largest(ranks: int) -> float:
    known = min((size for size in LARGEST_OF if size >= ranks), default=16)
    return LARGEST_OF[known] if ranks > 1 else 0.0
