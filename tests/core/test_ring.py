"""The ring: stable places, shares by weight, and nobody moves but those whose owner came or went."""

import random
import string
import tracemalloc
from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from headway.core.ids import ReplicaId
from headway.core.ring import Ring, place

SESSIONS = [place("", f"session {number}") for number in range(2_000)]
NAMES = [ReplicaId(name) for name in string.ascii_lowercase[:12]]
weights = st.dictionaries(st.sampled_from(NAMES), st.sampled_from((0.5, 1.0, 3.0)), min_size=1)


def ring(*names: str, points: int = 200, **weighted: float) -> Ring:
    made = Ring(points)
    made.reset({**dict.fromkeys(map(ReplicaId, names), 1.0), **{ReplicaId(k): v for k, v in weighted.items()}})
    return made


def owner(of: Ring, at: int) -> ReplicaId:
    return next(of.walk(at))


def owners(of: Ring, sessions: int = len(SESSIONS)) -> list[ReplicaId]:
    return [owner(of, at) for at in SESSIONS[:sessions]]


def test_places_are_the_same_in_every_process() -> None:
    """Recorded: were they ever others, all sessions would move at the next release."""
    assert place("", "s1") == 13_582_160_310_890_607_902
    assert place("team-a", "s1") == 16_802_943_990_165_237_054
    assert [owner(ring("a", "b", "c"), place("", f"s{n}")) for n in range(8)] == list("abbbaaba")


def test_a_session_of_one_name_lies_elsewhere_for_each_tenant() -> None:
    assert place("a", "s1") != place("b", "s1")
    assert place("a", "bs1") != place("ab", "s1"), "no choice of names makes two tenants meet"
    assert place("1", "1:x") != place("", "11:x")
    fleet = ring("a", "b", "c", "d")
    alike = sum(owner(fleet, place("one", f"s{n}")) == owner(fleet, place("two", f"s{n}")) for n in range(2_000))
    assert 400 < alike < 600, "one in four, by chance"


def test_any_text_has_a_place() -> None:
    assert place("\ud800", "\udfff") != place("", "")
    assert len({place("", "x" * n) for n in range(500)}) == 500


def test_shares_are_near_equal_and_follow_weights() -> None:
    counts = Counter(owners(ring(*"abcdefgh")))
    assert len(counts) == 8
    assert max(counts.values()) < 1.3 * 2_000 / 8
    assert min(counts.values()) > 0.7 * 2_000 / 8
    counts = Counter(owners(ring("a", "b", c=2.0)))
    assert 0.42 < counts[ReplicaId("c")] / 2_000 < 0.58


def test_huge_and_tiny_weights_cost_no_more_than_they_must() -> None:
    made = ring(a=1e9, b=1e-9)
    assert len(made) == 2
    assert len(list(made.walk(0))) == 2


def test_an_empty_ring_has_nobody() -> None:
    assert list(Ring().walk(5)) == []
    assert len(Ring()) == 0


def test_a_change_of_weight_moves_only_to_or_from_it() -> None:
    before, after = owners(ring("a", "b", "c")), owners(ring("a", "b", c=2.0))
    moved = [(old, new) for old, new in zip(before, after, strict=True) if old != new]
    assert moved
    assert all(new == "c" for _, new in moved)


@given(weights, st.sampled_from(NAMES), st.integers(0, 2**64 - 1))
@settings(deadline=None)
def test_a_walk_meets_everybody_once(members: dict[ReplicaId, float], extra: ReplicaId, at: int) -> None:
    made = Ring(20)
    made.reset(members)
    walked = list(made.walk(at))
    assert sorted(walked) == sorted(members)
    without = {k: v for k, v in members.items() if k != extra}
    made.reset(without)
    assert list(made.walk(at)) == [name for name in walked if name != extra], "the order of the others stays"


@given(weights, st.sampled_from(NAMES))
@settings(deadline=None)
def test_exactly_those_sessions_move_whose_owner_came_or_went(
    members: dict[ReplicaId, float], other: ReplicaId
) -> None:
    without = {k: v for k, v in members.items() if k != other} or {ReplicaId("z"): 1.0}
    small, large = Ring(), Ring()
    small.reset(without)
    large.reset({**without, other: members.get(other, 1.0)})
    before, after = owners(small, 200), owners(large, 200)
    assert all(new in (old, other) for old, new in zip(before, after, strict=True))


def test_at_most_a_fair_share_moves() -> None:
    """1/N, but for chance."""
    for count in (2, 4, 8, 16):
        names = [f"r{n}" for n in range(count)]
        before, after = owners(ring(*names[:-1])), owners(ring(*names))
        moved = sum(old != new for old, new in zip(before, after, strict=True))
        assert moved <= 1.25 * len(SESSIONS) / count


def test_memory_does_not_grow_with_sessions() -> None:
    made, chance = ring(*"abcdefgh"), random.Random(1)
    tracemalloc.start()
    try:
        for _ in range(5_000):
            owner(made, place("t", str(chance.random())))
        assert tracemalloc.get_traced_memory()[0] < 20_000
    finally:
        tracemalloc.stop()


class Fleet(RuleBasedStateMachine):
    """Replicas come, go and change weight; sessions are asked after every step."""

    def __init__(self) -> None:
        super().__init__()
        self.ring = Ring(50)
        self.members: dict[ReplicaId, float] = {}
        self.before: list[ReplicaId | None] = [None] * 200

    def settle(self, changed: ReplicaId) -> None:
        self.ring.reset(self.members)
        after = [next(self.ring.walk(at), None) for at in SESSIONS[:200]]
        for old, new in zip(self.before, after, strict=True):
            assert old == new or changed in (old, new)
        self.before = after

    @rule(name=st.sampled_from(NAMES), weight=st.sampled_from((0.1, 1.0, 2.0)))
    def join(self, name: ReplicaId, weight: float) -> None:
        self.members[name] = weight
        self.settle(name)

    @precondition(lambda self: self.members)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.members)))
        del self.members[name]
        self.settle(name)

    @invariant()
    def history_does_not_show(self) -> None:
        fresh = Ring(50)
        fresh.reset(dict(sorted(self.members.items(), reverse=True)))
        assert [list(fresh.walk(at)) for at in SESSIONS[:5]] == [list(self.ring.walk(at)) for at in SESSIONS[:5]]


TestFleet = Fleet.TestCase
TestFleet.settings = settings(max_examples=30, stateful_step_count=15, deadline=None)
