"""Every plan is tried, none twice."""

import pytest

from headway.sim.exhaustive import Plan, exhaustive


def test_every_assignment_refusals_included_is_tried_once() -> None:
    seen: list[Plan] = []

    def worth(plan: Plan) -> int:
        seen.append(plan)
        return 0

    best = exhaustive(3, 2, worth)
    assert (best.good, best.plans) == (0, 27)
    assert len(set(seen)) == 27
    assert {plan.order for plan in seen} == {(0, 1, 2)}


def test_holds_and_orders_multiply() -> None:
    assert exhaustive(2, 2, lambda _: 0, holds=(0.0, 0.5)).plans == 5**2
    assert exhaustive(3, 1, lambda _: 0, orders=True).plans == 2**3 * 6


def test_the_best_plan_is_found() -> None:
    """Only one plan serves both: the second first, after a wait, apart."""

    def worth(plan: Plan) -> int:
        return 2 if plan == Plan((1, 0), (0.5, 0.0), (1, 0)) else 1

    best = exhaustive(2, 2, worth, holds=(0.0, 0.5), orders=True)
    assert (best.good, best.plan) == (2, Plan((1, 0), (0.5, 0.0), (1, 0)))


def test_it_ends_where_no_more_can_be_won() -> None:
    assert exhaustive(4, 3, lambda plan: 4).plans == 1


def test_a_refused_request_is_not_held() -> None:
    seen = []
    exhaustive(1, 1, lambda plan: seen.append(plan) or 0, holds=(0.0, 0.5))  # type: ignore[func-returns-value]
    assert [plan.held_s for plan in seen if plan.replicas == (-1,)] == [(0.0,)]


def test_too_many_plans_are_refused_before_the_first() -> None:
    with pytest.raises(ValueError, match="too many"):
        exhaustive(20, 2, lambda _: pytest.fail("tried"))
