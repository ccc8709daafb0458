"""Where a session keeps to: its owner, the next one while the owner has too much, and the owner again."""

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from headway.core.affinity import Affinity
from headway.core.constants import AffinityConfig
from headway.core.ids import ReplicaId
from headway.core.view import ReplicaView, Speed
from tests.core.house import demand, request, spec
from tests.policies.fleet import FAST
from tests.policies.fleet import view as bare
from tests.views import changed

CONFIG = AffinityConfig()
HARD = Speed(1.0, 0.0, 0.0, 1000.0, True)


def view(name: str, used: float = 0.0, load: int = 0, weight: float = 1.0, **facts: object) -> ReplicaView:
    """A replica with 100,000 tokens of KV, a share of them used, so many requests, and nothing easy for it."""
    facts.setdefault("kv_capacity_tokens", 100_000)
    facts.setdefault("speed", HARD)
    made = bare(name, in_flight=load, running=float(load), kv_used_tokens=used * 100_000, **facts)
    return changed(made, spec=spec(name, weight=weight))


def affinity(*names: str, config: AffinityConfig = CONFIG) -> Affinity:
    made = Affinity(config)
    made.reset(map(spec, names))
    return made


def order(of: Affinity, views: Iterable[ReplicaView], session: str = "s1", tenant: str = "") -> list[str]:
    """Where the session keeps to, and where it would if those before refused."""
    asked, found = demand(request("r", session_key=session, tenant=tenant)), list[str]()
    among = sorted(views, key=lambda view: view.id)

    def refuses(view: ReplicaView) -> str:
        return "full" if view.id in found else ""

    while (kept := of.keeps(asked, among, refuses)) is not None:
        found.append(kept[0])
    return found


def test_a_session_keeps_to_one_and_others_follow_in_one_order() -> None:
    ring = affinity("a", "b", "c", "d")
    views = [view(name) for name in "abcd"]
    first = order(ring, views)
    assert sorted(first) == list("abcd")
    assert all(order(ring, views) == first for _ in range(3))
    assert len({tuple(order(ring, views, f"s{n}")) for n in range(100)}) > 10


def test_the_tenant_is_part_of_the_key() -> None:
    ring = affinity("a", "b", "c", "d")
    views = [view(name) for name in "abcd"]
    orders = {tuple(order(ring, views, "s1", f"tenant {n}")) for n in range(40)}
    assert len({found[0] for found in orders}) == 4


def test_who_is_no_candidate_is_passed_over() -> None:
    ring = affinity("a", "b", "c", "d")
    first, *others = order(ring, [view(name) for name in "abcd"])
    assert order(ring, [view(name) for name in others]) == others
    assert order(ring, [view(name) for name in sorted((first, *others))]) == [first, *others]


def test_a_replica_that_left_is_gone_from_the_ring() -> None:
    ring = affinity("a", "b", "c")
    found = order(ring, [view(name) for name in "abc"])
    ring.reset(map(spec, found[1:]))
    assert order(ring, [view(name) for name in "abc"]) == found[1:]


def test_a_full_replica_gives_sessions_away_and_takes_them_back_later() -> None:
    ring = affinity("a", "b")
    first, second = order(ring, [view("a"), view("b")])
    for used, whose in ((0.84, first), (0.86, second), (0.80, second), (0.76, second), (0.74, first), (0.84, first)):
        assert order(ring, [view(first, used), view(second)])[0] == whose, used


def test_what_was_sent_but_not_prefilled_counts() -> None:
    ring = affinity("a", "b")
    first, second = order(ring, [view("a"), view("b")])
    assert order(ring, [view(first, 0.6, prefill_backlog_tokens=30_000.0), view(second)]) == [second]


def test_unknown_capacity_is_never_full() -> None:
    ring = affinity("a")
    assert order(ring, [view("a", 9.0, kv_capacity_tokens=0)]) == ["a"]


def test_far_more_than_the_mean_is_too_much() -> None:
    ring = affinity("a", "b")
    first, second = order(ring, [view("a"), view("b")])
    assert order(ring, [view(first, load=9), view(second, load=5)]) == [first, second], "9 < 1.25 x 15 / 2"
    assert order(ring, [view(first, load=10), view(second, load=5)]) == [second], "10 = 1.25 x 16 / 2"


def test_a_few_requests_are_never_too_much() -> None:
    ring = affinity("a", "b")
    first, second = order(ring, [view("a"), view("b")])
    assert order(ring, [view(first, load=7), view(second)]) == [first, second]
    assert order(ring, [view(first, load=8), view(second)]) == [second]


@pytest.mark.parametrize(
    ("prompt", "facts", "easy"),
    [
        (200, {}, True),
        (300, {}, False),
        (200, {"prefill_backlog_tokens": 100.0}, False),
        (300, {"hit": 100}, True),
        (200, {"load": 14}, True),
        (200, {"load": 15}, False),
        (200, {"context_tokens": 5_000.0}, False),
        (200, {"used": 0.69}, True),
        (200, {"used": 0.699}, False),
        (200, {"used": 0.84, "kv_capacity_tokens": 0}, True),
    ],
)
def test_easy_is_what_will_hardly_be_felt(prompt: int, facts: dict[str, Any], easy: bool) -> None:
    """A prefill of 1,000 tokens/s, a step of 10 ms and 1 ms more for each request: 0.25 s and 25 ms are the limits."""
    speed = Speed(0.009, 0.001, 5e-6, 1000.0, True)
    asked = demand(request("r", session_key="s1"), prompt, hits={ReplicaId("a"): facts.pop("hit", 0)})
    assert affinity("a").keeps(asked, [view("a", speed=speed, **facts)], None) == ("a", easy)


def test_at_unknown_speed_it_is_easy_where_there_is_hardly_anybody() -> None:
    speed, asked = Speed(9.0, 9.0, 9.0, 0.1), demand(request("r", session_key="s1"))
    found = [affinity("a").keeps(asked, [view("a", load=load, speed=speed)], None) for load in (7, 8)]
    assert found == [("a", True), ("a", False)]


def test_what_is_easy_stays_beyond_the_bound() -> None:
    ring = affinity("a", "b")
    first, second = order(ring, [view("a"), view("b")])
    crowd = [view(first, load=20, speed=FAST), view(second, speed=FAST)]
    assert order(ring, crowd) == [first, second]
    assert order(ring, [view(first, 0.9, load=20, speed=FAST), view(second, speed=FAST)]) == [second]


def test_the_bound_follows_weights() -> None:
    ring = Affinity(CONFIG)
    ring.reset([spec("a", weight=3.0), spec("b", weight=1.0)])
    even = [view("a", load=20, weight=3.0), view("b", load=20)]
    assert order(ring, even) == ["a"]


def test_where_reports_are_stale_our_own_count_decides() -> None:
    ring = affinity("a", "b")
    first, second = order(ring, [view("a"), view("b")])
    foreign = view(first, load=2, waiting=40.0)
    assert order(ring, [foreign, view(second)]) == [second]
    assert order(ring, [changed(foreign, stale=True), view(second)]) == [first, second]


def test_somebody_is_always_left_unless_all_are_full() -> None:
    ring = affinity("a", "b", "c")
    assert order(ring, [view(name, load=50) for name in "abc"])
    assert order(ring, [view(name, used=0.9) for name in "abc"]) == []


class Fleet(RuleBasedStateMachine):
    """Replicas join, leave, fill up and empty; sessions ask after every step."""

    NAMES = "abcdef"

    def __init__(self) -> None:
        super().__init__()
        self.affinity = affinity("a")
        self.used = {"a": 0.0}
        self.load = {"a": 0}
        self.full: set[str] = set()

    @rule(name=st.sampled_from(NAMES))
    def join(self, name: str) -> None:
        self.used.setdefault(name, 0.0)
        self.load.setdefault(name, 0)
        self.affinity.reset(map(spec, self.used))

    @precondition(lambda self: len(self.used) > 1)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.used)))
        del self.used[name], self.load[name]
        self.full.discard(name)
        self.affinity.reset(map(spec, self.used))

    @rule(data=st.data(), used=st.sampled_from((0.1, 0.7, 0.8, 0.9)))
    def fill(self, data: st.DataObject, used: float) -> None:
        self.used[data.draw(st.sampled_from(sorted(self.used)))] = used

    @rule(data=st.data(), load=st.integers(0, 40))
    def queue(self, data: st.DataObject, load: int) -> None:
        self.load[data.draw(st.sampled_from(sorted(self.load)))] = load

    @invariant()
    def sessions_are_where_they_belong(self) -> None:
        views = [view(name, self.used[name], self.load[name]) for name in sorted(self.used)]
        everybody = affinity(*self.used)
        for name, used in self.used.items():
            if used > 0.85:
                self.full.add(name)
            elif used < 0.75:
                self.full.discard(name)
        mean = (sum(self.load.values()) + 1) / len(self.load)
        busy = {name for name, load in self.load.items() if load >= 8 and load >= 1.25 * mean}
        for session in ("s1", "s2", "s3"):
            belongs = order(everybody, [view(name) for name in sorted(self.used)], session)
            found = order(self.affinity, views, session)
            assert found == [name for name in belongs if name not in self.full | busy]
        assert len(busy) < len(self.load) or not self.load


TestFleet = Fleet.TestCase
TestFleet.settings = settings(max_examples=40, stateful_step_count=20, deadline=None)
