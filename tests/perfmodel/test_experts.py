"""Which experts are hit: bounds, growth, and the fullest rank."""

import numpy as np
import pytest

from headway.perfmodel import experts

TOKENS = np.arange(0.0, 4097.0)


@pytest.mark.parametrize("skew", [0.0, 0.6, 1.2])
def test_a_batch_hits_between_one_token_s_choice_and_all(skew: float) -> None:
    hit = experts.distinct(TOKENS, 128, 8, skew)
    assert hit[0] == 0
    assert 7.9 < hit[1] + (8 - hit[1]) * (skew > 1) <= 8.0001
    assert (np.diff(hit) >= -1e-9).all()
    assert hit[-1] <= 128


def test_equal_popularity_is_the_textbook_s_formula() -> None:
    hit = experts.distinct(TOKENS, 256, 8, 0.0)
    assert hit[64] == pytest.approx(256 * (1 - (1 - 8 / 256) ** 64), rel=0.01)


def test_the_fullest_rank_has_more_than_its_share_and_no_more_than_it_holds() -> None:
    hit = np.array([8.0, 100.0, 256.0])
    fullest = experts.fullest_rank(hit, 256, 4)
    assert (fullest[:2] > hit[:2] / 4).all()
    assert fullest[2] == 64
    assert (experts.fullest_rank(hit, 256, 1) == hit).all()


def test_equal_popularity_loads_ranks_alike() -> None:
    assert experts.heaviest_share(256, 8, 0.0) == 1.0
    assert 1.0 < experts.heaviest_share(256, 4, 0.6) < experts.heaviest_share(256, 8, 0.6) < 1.6
    assert experts.heaviest_share(256, 64, 0.6) > experts.heaviest_share(256, 16, 0.6)


def test_a_drawn_batch_agrees() -> None:
    """1,000 batches of 16 tokens, popularity by rank: the mean of distinct experts, and of the fullest of 4 ranks."""
    chance = np.random.default_rng(0)
    weight = np.arange(1, 65.0) ** -0.5
    keys = np.log(weight) + chance.gumbel(size=(1000, 16, 64))
    chosen = np.argsort(-keys, axis=2)[:, :, :4]
    hit = np.zeros((1000, 64), dtype=bool)
    for token in range(16):
        np.put_along_axis(hit, chosen[:, token], True, axis=1)
    drawn = hit.sum(axis=1).mean()
    told = experts.distinct(np.arange(17.0), 64, 4, 0.5)[16]
    assert told == pytest.approx(drawn, rel=0.03)
    place = chance.permutation(64).reshape(4, 16)
    fullest = hit[:, place].sum(axis=2).max(axis=1).mean()
    assert experts.fullest_rank(np.array([drawn]), 64, 4)[0] == pytest.approx(fullest, rel=0.05)
