"""Errors of KV forecasts: what a report says beside what was believed, now and some seconds before."""

import pytest

from headway.core.constants import LengthConfig
from headway.core.fleet import Fleet
from headway.core.hindsight import AHEAD_S, KEEP, Hindsight
from headway.core.ids import ReplicaId
from headway.core.ledger import Account
from headway.core.memory import HORIZONS
from headway.core.snapshot import KvError
from tests.core.house import House

CAPACITY = 10_000


def told(house: House, used: int) -> None:
    """A load report, some milliseconds after what happened last."""
    house.wait(0.01).report("a", kv_used_tokens=used)


def errors(house: House) -> KvError | None:
    found = house.brain.snapshot(house.now).kv_errors
    return found[0] if found else None


def busy(prompt: int = 1000) -> House:
    """One replica that decodes one request, and has told so once."""
    house = House()
    house.add("a", kv_capacity_tokens=CAPACITY)
    house.ask("q", prompt_tokens=prompt)
    house.wait(0.1).first("q-0")
    told(house, prompt)
    return house


def test_nothing_is_said_before_there_was_something_to_expect() -> None:
    assert errors(busy()) is None


def test_a_report_as_expected_is_no_error() -> None:
    house = busy()
    house.wait(0.5).grow(q_0=50)
    told(house, 1050)
    assert errors(house) == KvError(ReplicaId("a"), 1, 0.0, 0.0, 0, 0.0, 0.0, AHEAD_S)


def test_an_error_is_a_fraction_of_the_pool() -> None:
    house = busy()
    told(house.wait(0.5), 1600)
    error = errors(house)
    assert error is not None
    assert error.now_p50 == error.now_p99 == pytest.approx(0.06)


def test_foreign_load_is_expected_once_it_was_reported() -> None:
    house = busy()
    for _ in range(6):
        told(house.wait(0.5), 3000)
    error = errors(house)
    assert error is not None
    assert (error.reports, error.now_p50) == (6, 0.0)
    assert error.now_p99 == pytest.approx(0.2)


def test_shared_prefixes_are_not_more_than_what_was_hit() -> None:
    house = busy()
    told(house.wait(0.5), 0)
    told(house.wait(0.5), 0)
    error = errors(house)
    assert error is not None
    assert error.now_p50 == pytest.approx(0.1), "nothing of ours is shared, so 1,000 tokens are still expected"


def test_a_pool_of_unknown_size_has_no_errors() -> None:
    house = House()
    house.add("a")
    for _ in range(3):
        told(house.wait(0.5), 100)
    assert errors(house) is None


def test_what_was_foreseen_is_compared_when_its_time_has_come() -> None:
    house = busy()
    generated = 0
    for _ in range(8):
        generated += 50
        house.wait(0.5).grow(q_0=generated)
        told(house, 1000 + generated)
    error = errors(house)
    assert error is not None
    assert error.reports == 8
    assert error.forecasts == 1
    assert 0.0 < error.ahead_p50 < 0.1, "it might have ended, and did not"


def test_who_came_since_was_nobodys_forecast() -> None:
    house = busy()
    told(house.wait(0.5), 1000)
    house.ask("late", prompt_tokens=5000)
    house.wait(0.1).first("late-0")
    for _ in range(4):
        told(house.wait(0.5), 6000)
    error = errors(house)
    assert error is not None
    assert error.forecasts == 1
    assert error.ahead_p99 < 0.1, "the 5,000 tokens are known"


def test_prompts_being_prefilled_may_hold_any_part_of_themselves() -> None:
    house = busy()
    told(house.wait(0.5), 1000)
    house.ask("late", prompt_tokens=5000)
    for used in (1000, 3500, 6000, 7000, 7000, 900):
        told(house.wait(0.4), used)
    replica = house.brain._fleet.replicas[ReplicaId("a")].gauges.hindsight
    assert list(replica.now)[1:] == [pytest.approx(error) for error in (0.0, 0.0, 0.0, 0.1, 0.1, 0.01)]
    assert list(replica.ahead) == [pytest.approx(0.1, abs=0.05)], "7,000 where 1,000 and half of 5,000 were likely"


def test_a_standing_gauge_is_no_judge() -> None:
    house = busy()
    generated = 0
    for _ in range(30):
        generated += 40
        house.wait(0.5).grow(q_0=generated)
        told(house, 1000)
    error = errors(house)
    assert error is not None
    assert error.reports < 10
    assert error.forecasts <= 2


def expecting(*mean: float) -> Account:
    """An account whose forecast is this, by horizon."""
    account = Account()
    account.curve.mean = mean or (0.0,) * len(HORIZONS)
    return account


def hindsight(steps: float = 200.0) -> Hindsight:
    """Ten tokens more at each horizon, from 1,500 on; so many steps will have been made when it is looked at."""
    made = Hindsight()
    made.foresee(0.0, expecting(*(1000.0 + 10.0 * k for k in range(len(HORIZONS)))), 500.0, AHEAD_S / steps)
    return made


LAST = len(HORIZONS) - 1


@pytest.mark.parametrize(("k", "part"), [(0, 0.5), (1, 0.0), (LAST // 2, 0.25), (LAST - 1, 1.0)])
def test_forecasts_are_read_between_their_horizons(k: int, part: float) -> None:
    made = hindsight(HORIZONS[k] + part * (HORIZONS[k + 1] - HORIZONS[k]))
    made.reported(AHEAD_S, 1500.0 + 10.0 * (k + part), 0.0, 0.0, Account(), CAPACITY)
    assert list(made.ahead) == [pytest.approx(0.0)]


def test_beyond_the_last_horizon_nothing_changes() -> None:
    made = hindsight(2.0 * HORIZONS[-1])
    made.reported(AHEAD_S, 1500.0 + 10.0 * LAST, 0.0, 0.0, Account(), CAPACITY)
    assert list(made.ahead) == [pytest.approx(0.0)]


def test_steps_are_counted_where_tokens_tell_them() -> None:
    made, account = Hindsight(), expecting(*(float(step) for step in HORIZONS))
    account.decoding = 3
    made.foresee(0.0, account, 0.0, 0.01)
    account.decoding, account.generated = 5, 400
    made.reported(2.0, 100.0, 0.0, 0.0, account, CAPACITY)
    assert list(made.ahead) == [0.0], "400 tokens of 4 are 100 steps, where two seconds would have been 200"


def test_one_forecast_waits_at_a_time_and_may_be_forgotten() -> None:
    made = hindsight()
    made.foresee(1.0, expecting(), 0.0, 0.01)
    made.reported(1.0, 0.0, 0.0, 0.0, Account(), CAPACITY)
    assert not made.ahead
    made.reported(AHEAD_S, 1500.0, 0.0, 0.0, Account(), CAPACITY)
    assert made.ahead[0] < 0.01, "the second would have said 0"
    made.foresee(3.0, expecting(), 0.0, 0.01)
    made.forget()
    made.reported(9.0, 0.0, 0.0, 0.0, Account(), CAPACITY)
    assert len(made.ahead) == 1


def test_only_the_latest_are_kept() -> None:
    made = Hindsight()
    for k in range(3 * KEEP):
        made.reported(float(k), 0.0, float(CAPACITY * (k < 2 * KEEP)), 0.0, Account(), CAPACITY)
    assert made.summary(ReplicaId("a")) == KvError(ReplicaId("a"), KEEP, 0.0, 0.0, 0, 0.0, 0.0, AHEAD_S)
    assert Hindsight().summary(ReplicaId("a")) is None


def test_nobody_who_foresees_nothing_is_held_to_it() -> None:
    fleet = Fleet(length=LengthConfig(), foresees=False)
    assert fleet.kv_errors() == ()
