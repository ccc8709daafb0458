"""How important the requests of a scenario are."""

import pytest

from headway.compose.simulate import MakeBrain
from headway.core.tenant import Tier
from headway.sim.run import simulate
from headway.sim.scenario import RequestClass, tiers
from tests.sim.support import fleet, workload

CLASSES = (RequestClass(0.05, Tier.HIGH), RequestClass(0.3, Tier.LOW))


def test_each_class_gets_its_share_and_the_rest_is_standard() -> None:
    drawn = tiers(CLASSES, 20_000, 1)
    for tier, share in ((Tier.HIGH, 0.05), (Tier.LOW, 0.3), (Tier.STANDARD, 0.65)):
        assert drawn.count(tier) / 20_000 == pytest.approx(share, abs=0.01)


def test_equal_seeds_equal_tiers_and_other_seeds_others() -> None:
    assert tiers(CLASSES, 100, 1) == tiers(CLASSES, 100, 1) != tiers(CLASSES, 100, 2)


def test_without_classes_all_are_alike() -> None:
    assert tiers((), 3, 1) == [0, 0, 0]


def test_a_run_counts_its_urgent_requests_apart() -> None:
    found = simulate(fleet(classes=CLASSES), workload(), MakeBrain("headroom"), "headroom", 0.5, 1).result
    assert found.urgent == sum(tier >= Tier.HIGH for tier in tiers(CLASSES, 120, 1))
    assert 0 < found.urgent_good <= found.urgent
    assert 0.0 < found.urgent_ttft_p99_s <= found.e2e_p99_s
