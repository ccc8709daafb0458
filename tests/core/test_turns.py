"""Whose turn it is: tiers, then tenants by what they were served, then deadlines."""

import itertools
import math
import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.core.entries import Job, Tries, Waiting
from headway.core.turns import Turns
from tests.core.house import demand, outlook, request

FLAT = outlook(1.0)


def waiting(serial: int, tenant: str = "", tier: int = 0, due: float = math.inf, cost: float = 10.0) -> Waiting:
    asked = request(f"r{serial}", tenant=tenant, tier=tier)
    job = Job(asked, demand(asked), demand(asked), {}, FLAT.share(100.0), 100, 0.0, Tries())
    return Waiting(job, serial, math.inf, due, tier, tenant, cost)


def alike(_tenant: str) -> float:
    return 1.0


def serials(turns: Turns) -> list[int]:
    return [item.serial for item in turns]


def test_a_higher_tier_goes_first_whatever_it_costs() -> None:
    turns = Turns(alike)
    for item in (waiting(1, tier=-1), waiting(2), waiting(3, tier=2, cost=1e6), waiting(4, tier=1)):
        turns.add(item)
    assert serials(turns) == [3, 4, 2, 1]
    assert turns.highest == 2


def test_within_a_tenant_the_least_slack_goes_first_and_late_ones_behind() -> None:
    turns, items = Turns(alike), [waiting(1, due=9.0), waiting(2, due=3.0), waiting(3, due=5.0)]
    for item in items:
        turns.add(item)
    assert serials(turns) == [2, 3, 1]
    turns.demote(items[1])
    assert serials(turns) == [3, 1, 2]
    assert [turns.ahead(item) for item in items] == [1, 2, 0]


def test_tenants_take_turns_by_tokens() -> None:
    turns = Turns(alike)
    for number in range(4):
        turns.add(waiting(number, "a", cost=30.0))
    for number in range(4, 12):
        turns.add(waiting(number, "b", cost=10.0))
    order = [item.tenant for item in turns]
    assert order[:8].count("b") == 6, "three small ones for each big one"
    assert order[8:] == ["a", "b", "b", "a"] or order[8:].count("a") == 2


def test_weight_is_a_share_of_tokens() -> None:
    weights = {"a": 3.0, "b": 1.0}
    turns = Turns(weights.__getitem__)
    served = Counter[str]()
    items = {n: waiting(n, "ab"[n % 2]) for n in range(400)}
    for item in items.values():
        turns.add(item)
    for _ in range(200):
        item = next(iter(turns))
        turns.charge(item.tenant, item.cost)
        turns.remove(item)
        served[item.tenant] += 1
    assert served["a"] == pytest.approx(150, abs=2)


def test_who_was_away_saves_up_nothing() -> None:
    turns = Turns(alike)
    for number in range(100):
        turns.charge("busy", 10.0)
        turns.add(waiting(number, "busy"))
    for number in range(100, 110):
        turns.add(waiting(number, "away"))
    first = [item.tenant for item in turns][:10]
    assert 4 <= first.count("away") <= 6, "turns alternate at once; nothing is made up for"


def test_who_leaves_the_line_and_comes_back_gains_nothing() -> None:
    turns = Turns(alike)
    turns.add(waiting(0, "a"))
    for number in range(1, 6):
        turns.add(waiting(number, "b"))
        item = next(iter(turns))
        if item.tenant == "b":
            turns.charge("b", item.cost)
            turns.remove(item)
    assert turns._start("b") >= turns._start("a")


def test_a_newcomer_may_be_looked_at_when_it_is_its_turn() -> None:
    turns = Turns(alike)
    assert turns.first(-1, "x"), "nobody waits"
    turns.add(waiting(1, "a"))
    assert turns.first(0, "a"), "beside its own"
    assert turns.first(1, "b"), "it is more important"
    assert not turns.first(-1, "a"), "others go first"
    assert turns.first(0, "b")
    turns.charge("b", 100.0)
    assert not turns.first(0, "b"), "it was served more than who waits"


def test_rising_keeps_the_turn() -> None:
    turns, item = Turns(alike), waiting(1, "a", -1)
    turns.add(item)
    turns.add(waiting(2, "b", 1))
    before = turns._start("a")
    turns.promote(item)
    assert (item.tier, turns._start("a")) == (0, before)
    assert serials(turns) == [2, 1]
    turns.remove(item)
    assert serials(turns) == [2]


def test_a_correction_moves_the_next_turn() -> None:
    turns = Turns(alike)
    turns.add(waiting(1, "a"))
    turns.add(waiting(2, "b"))
    turns.charge("a", 50.0)
    assert serials(turns) == [2, 1]
    turns.charge("a", -51.0)
    assert serials(turns) == [1, 2], "it produced less than was believed"


def test_positions_are_exact_for_one_tenant_and_near_for_several() -> None:
    turns = Turns(alike)
    items = [waiting(n, "a" if n % 2 else "b", tier=n % 3 - 1) for n in range(30)]
    for item in items:
        turns.add(item)
    order = list(turns)
    for item in items:
        assert abs(turns.ahead(item) - order.index(item)) <= 2


class Named(str):
    """The name of a tenant that counts how often any of its like is looked at."""

    __slots__ = ()
    looks = 0

    def __hash__(self) -> int:
        Named.looks += 1
        return super().__hash__()

    def __eq__(self, other: object) -> bool:
        Named.looks += 1
        return super().__eq__(other)

    def __lt__(self, other: str) -> bool:
        Named.looks += 1
        return super().__lt__(other)


def looked_at(tenants: int) -> dict[str, int]:
    """How many looks at tenants it takes to do each thing once while so many of them wait, two of each."""

    def weight(_tenant: str) -> float:
        Named.looks += 1
        return 1.0

    turns, found, items = Turns(weight), {}, []
    for number in range(2 * tenants):
        items.append(waiting(number, Named(f"t{number % tenants}"), cost=10.0 + number % 7))
        turns.add(items[-1])
    for item in items[:tenants:2]:
        turns.charge(item.tenant, item.cost)
    newcomer = waiting(2 * tenants, Named("new"))

    def go() -> None:
        first = next(iter(turns))
        turns.charge(first.tenant, first.cost)
        turns.remove(first)

    for name, step in {
        "come": lambda: turns.add(newcomer),
        "may it go": lambda: turns.first(0, newcomer.tenant),
        "ahead": lambda: turns.ahead(newcomer),
        "ahead of the last": lambda: turns.ahead(items[-1]),
        "count": lambda: turns.from_tier(0) + turns.timely_from(0),
        "scan": lambda: list(itertools.islice(turns, 32)),
        "go": go,
        "mend": lambda: turns.charge(items[tenants // 2].tenant, -5.0),
        "leave": lambda: turns.remove(items[-1]),
    }.items():
        before = Named.looks
        step()
        found[name] = Named.looks - before
    return found


def test_a_step_costs_the_same_however_many_tenants_wait() -> None:
    """But for searches in sorted lists, by halves."""
    few, many = looked_at(100), looked_at(1600)
    assert sum(few.values()) > 0
    for name, looks in many.items():
        assert looks <= few[name] + 40, name


@pytest.mark.parametrize("tenants", [20, 150])
def test_positions_among_many_tenants_are_near(tenants: int) -> None:
    """Those who are asked stand for the others. (If all were, places would be off by a thirtieth of the line.)"""
    turns, items, chance = Turns(alike), [], random.Random(1)
    for number in range(3 * tenants):
        items.append(waiting(number, f"t{chance.randrange(tenants)}", cost=chance.uniform(5.0, 15.0)))
        turns.add(items[-1])
    for number in range(0, tenants, 3):
        turns.charge(f"t{number}", chance.uniform(0.0, 13.0))
    order = {item.serial: place for place, item in enumerate(turns)}
    off = [abs(turns.ahead(item) - order[item.serial]) for item in items[::5]]
    assert sum(off) / len(off) <= 0.06 * len(items)


class TestDispensable:
    """Who goes when there is no room."""

    def test_the_last_of_the_lowest_tier(self) -> None:
        turns = Turns(alike)
        for item in (waiting(1, tier=-1), waiting(2, tier=-1), waiting(3)):
            turns.add(item)
        found = next(turns.dispensable(0, ""), None)
        assert found is not None
        assert found.serial == 2

    def test_nobody_for_a_newcomer_that_is_less_important(self) -> None:
        turns = Turns(alike)
        turns.add(waiting(1))
        assert not list(turns.dispensable(-1, ""))

    def test_of_the_tenant_that_crowds_most(self) -> None:
        turns = Turns(alike)
        for number in range(5):
            turns.add(waiting(number, "crowd"))
        turns.add(waiting(5, "other"))
        found = next(turns.dispensable(0, "new"), None)
        assert found is not None
        assert found.serial == 4
        assert not list(turns.dispensable(0, "crowd")), "its own fault"
        assert [item.serial for item in turns.dispensable(0, "other")] == [4, 3, 2]

    def test_nobody_in_an_empty_queue(self) -> None:
        assert not list(Turns(alike).dispensable(0, "a"))

    def test_nobody_in_the_middle_of_an_answer(self) -> None:
        turns, items = Turns(alike), [waiting(n, "ab"[n % 2], tier=n // 4 - 1) for n in range(8)]
        begun = [items[0], items[2], items[1], items[7]]
        for item in begun:
            item.job.generated = 50
        for item in items:
            turns.add(item)

        def victim(tier: int, tenant: str = "new") -> int:
            found = next(turns.dispensable(tier, tenant), None)
            assert found is not None
            turns.remove(found)
            return found.serial

        assert [item.serial for item in turns.dispensable(1, "new")] == [3, 5, 6, 4]
        assert [victim(1) for _ in range(4)] == [3, 5, 6, 4], "of each tier, though most of the lowest have begun"
        assert not list(turns.dispensable(1, "new"))
        assert serials(turns) == [7, 0, 1, 2]

    def test_equals_do_not_push_each_other_out(self) -> None:
        turns = Turns(alike)
        turns.add(waiting(1, "a"))
        assert not list(turns.dispensable(0, "b"))


tenants = st.sampled_from(["a", "b", "c"])
steps = st.lists(
    st.tuples(st.sampled_from(["add", "go", "leave", "late", "rise"]), tenants, st.integers(-1, 2), st.floats(1, 100)),
    max_size=80,
)


@given(steps)
def test_nobody_is_lost_and_tiers_are_strict(moves: list[tuple[str, str, int, float]]) -> None:
    turns, inside = Turns(alike), {}
    for number, (move, tenant, tier, amount) in enumerate(moves):
        if move == "add":
            item = waiting(number, tenant, tier, due=amount, cost=amount)
            inside[number] = item
            turns.add(item)
        elif not inside:
            continue
        elif move == "go":
            item = next(iter(turns))
            turns.charge(item.tenant, item.cost)
            turns.remove(inside.pop(item.serial))
        elif move == "leave":
            turns.remove(inside.pop(min(inside)))
        else:
            item = inside[max(inside)]
            if move == "late" and not item.late:
                turns.demote(item)
            elif move == "rise" and item.tier < 2:
                turns.promote(item)
        found = list(turns)
        assert sorted(item.serial for item in found) == sorted(inside)
        tiers = [item.tier for item in found]
        assert tiers == sorted(tiers, reverse=True)


def test_how_many_wait_above_a_tier_counts_all_tenants_and_that_tier() -> None:
    turns = Turns(alike)
    for number, (tenant, tier) in enumerate([("a", 0), ("a", 0), ("b", 0), ("a", 1), ("b", 2), ("b", -1)]):
        turns.add(waiting(number, tenant, tier))
    assert [turns.from_tier(tier) for tier in (-1, 0, 1, 2, 3)] == [6, 5, 2, 1, 0]
    assert Turns(alike).from_tier(0) == 0


def test_those_who_are_late_are_no_hindrance_to_a_newcomer() -> None:
    turns = Turns(alike)
    items = [waiting(number, "a", number % 2, due=float(number)) for number in range(4)]
    for item in items:
        turns.add(item)
    turns.demote(items[1])
    turns.demote(items[2])
    assert [turns.timely_from(tier) for tier in (0, 1, 2)] == [2, 1, 0]
    assert [turns.from_tier(tier) for tier in (0, 1, 2)] == [4, 2, 0]


@pytest.mark.slow
@settings(max_examples=50)
@given(st.lists(st.tuples(tenants, st.floats(1.0, 50.0)), min_size=40, max_size=120))
def test_backlogged_tenants_are_served_alike(arrivals: list[tuple[str, float]]) -> None:
    """As long as both wait, no tenant gets ahead of another by more than one request of each (Goyal et al. 1996)."""
    turns = Turns(alike)
    for number, (tenant, cost) in enumerate(arrivals):
        turns.add(waiting(number, tenant, cost=cost))
    served: Counter[str] = Counter()
    while True:
        left = Counter(item.tenant for item in turns)
        if len(left) < 3:
            return
        item = next(iter(turns))
        turns.charge(item.tenant, item.cost)
        turns.remove(item)
        served[item.tenant] += item.cost  # type: ignore[assignment]
        assert max(served.values()) - min(served[t] for t in "abc") <= 2 * 50.0


def test_lines_that_follow_others_have_their_accounts() -> None:
    weights = {"a": 2.0, "b": 1.0}
    turns, others = Turns(weights.__getitem__), Turns(weights.__getitem__)
    for each in (turns, others):
        each.add(waiting(1, "a"))
    others.add(waiting(2, "b"))
    for tenant, tokens in (("a", 100.0), ("b", 30.0), ("a", -20.0), ("b", 30.0)):
        others.charge(tenant, tokens)
        turns.follow(others, tenant)
        assert turns.starts(tenant, 8.0) == pytest.approx(others.starts(tenant, 8.0))
    assert turns.waits("a")
    assert not turns.waits("b")
    fresh = Turns(weights.__getitem__)
    fresh.join(others)
    assert fresh.starts("a", 0.0) == others.starts("a", 0.0) == 40.0
    fresh.charge("a", 2.0)
    assert others.starts("a", 0.0) == 40.0, "they are its own from now on"
