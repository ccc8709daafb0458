"""A new version gets its share and no more, in whatever row of dispatches one looks at."""

import itertools
import random
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.core.rollout import Rollout

OLD, NEW = "1", "2"


def begun(at: float = 0.0, per_minute: float = 0.05, later: float = 100.0, versions: Iterable[str] = (NEW,)) -> Rollout:
    """One version at `at`, more of them `later`."""
    rollout = Rollout(per_minute, 5.0)
    rollout.reset([OLD], at)
    rollout.reset([OLD, *versions], at + later)
    return rollout


def play(rollout: Rollout, times: Iterable[float], wanted: Iterable[bool] | None = None) -> list[bool]:
    """Which dispatches went to the new version, if it gets all that it may and is wanted."""
    went = []
    wants = iter(wanted) if wanted is not None else None
    for at in times:
        new = NEW not in rollout.closed({OLD, NEW}, at) and (wants is None or next(wants))
        rollout.sent(NEW if new else OLD, at)
        went.append(new)
    return went


def test_a_version_that_comes_later_is_a_newcomer() -> None:
    assert begun().newcomers.keys() == {NEW}


def test_founders_are_those_of_the_first_moment() -> None:
    assert not begun(later=4.0).newcomers
    assert not begun(per_minute=0.0).newcomers, "switched off"


def test_five_percent_at_first_and_five_more_each_minute() -> None:
    rollout = begun()
    first = play(rollout, [100.0] * 1000)
    assert sum(first) == pytest.approx(50, abs=1)
    later = play(rollout, [100.0 + 9 * 60] * 1000)
    assert sum(later) == pytest.approx(500, abs=1)
    assert play(rollout, [100.0 + 20 * 60] * 10) == [True] * 10
    assert not rollout.newcomers, "it is over"


def test_time_counts_from_when_it_can_be_used() -> None:
    rollout = begun()
    assert rollout.closed({OLD}, 100.0) == {NEW}
    assert rollout.closed({OLD}, 10_000.0) == {NEW}
    assert sum(play(rollout, [10_000.0] * 100)) <= 5


def test_idle_newcomers_save_nothing_up() -> None:
    rollout = begun()
    play(rollout, [100.0] * 500, [False] * 500)
    assert sum(play(rollout, [100.0] * 20)) <= 2


def test_a_version_that_leaves_and_comes_back_goes_on_where_it_was() -> None:
    rollout = begun()
    play(rollout, [100.0] * 20)
    rollout.reset([OLD], 200.0)
    rollout.reset([OLD, NEW], 300.0)
    assert sum(play(rollout, [400.0] * 100)) == pytest.approx(30, abs=1)
    rollout.reset([NEW], 500.0)
    assert not rollout.newcomers, "somebody must take the rest"
    rollout.reset([OLD, NEW], 600.0)
    assert not rollout.newcomers, "it has served before"


def test_several_newcomers_each_have_their_own_share() -> None:
    rollout = begun(versions=("2", "3"))
    assert rollout.newcomers.keys() == {"2", "3"}
    rollout.reset(["2", "3"], 200.0)
    assert rollout.newcomers.keys() == {"3"}, "the oldest takes the founders' place"


def test_versions_are_not_remembered_for_ever() -> None:
    rollout = Rollout(0.05, 0.0)
    for number in range(200):
        rollout.reset([OLD, f"v{number:03d}"], float(number))
    assert len(rollout.newcomers) == 33, "the one that is there, and 32 that were"
    rollout.reset([OLD, "v000"], 300.0)
    assert "v000" in rollout.newcomers, "so long gone that it is new again"


def test_a_dispatch_that_had_nowhere_else_to_go_leaves_no_debt() -> None:
    rollout = begun()
    assert rollout.closed({OLD, NEW}, 100.0) == {NEW}
    rollout.sent(NEW, 100.0)
    assert rollout.newcomers[NEW].credit == 0.0


def test_a_session_that_may_use_it_always_may() -> None:
    rollout = begun()
    may = [
        [NEW not in rollout.closed({OLD, NEW}, 100.0 + 60.0 * minute, place / 100) for place in range(100)]
        for minute in range(19)
    ]
    assert [sum(each) for each in may] == pytest.approx([5 * minute + 5 for minute in range(19)], abs=1)
    for before, after in itertools.pairwise(may):
        assert all(later for earlier, later in zip(before, after, strict=True) if earlier)


def test_sessions_wait_for_no_credit_but_leave_none_to_others() -> None:
    rollout = begun()
    rollout.closed({OLD, NEW}, 100.0)
    for _ in range(20):
        assert NEW not in rollout.closed({OLD, NEW}, 100.0, 0.01)
        rollout.sent(NEW, 100.0, 0.01)
    assert NEW in rollout.closed({OLD, NEW}, 100.0)
    assert play(rollout, [100.0] * 125).count(True) == 1, "a flood of one session leaves a debt, but a bounded one"


@pytest.mark.parametrize("part", [0.0, 0.5, 0.9, 1.0])
def test_it_gets_its_share_however_many_have_sessions(part: float) -> None:
    rollout, chance = begun(), random.Random(3)
    new, count = 0, 8_000
    for _ in range(count):
        place = chance.random() if chance.random() < part else None
        version = OLD if NEW in rollout.closed({OLD, NEW}, 100.0, place) else NEW
        rollout.sent(version, 100.0, place)
        new += version == NEW
    assert new / count == pytest.approx(0.05, abs=0.002)


def test_a_session_that_had_nowhere_else_to_go_leaves_no_debt_and_takes_none_away() -> None:
    rollout = begun()
    rollout.closed({OLD, NEW}, 100.0)
    rollout.sent(NEW, 100.0, 0.5)
    assert rollout.newcomers[NEW].credit == 0.0
    for _ in range(3):
        rollout.sent(NEW, 100.0, 0.01)
    owed = rollout.newcomers[NEW].credit
    assert owed == pytest.approx(-3 * 0.95)
    rollout.sent(NEW, 100.0)
    assert rollout.newcomers[NEW].credit == owed


@given(
    steps=st.lists(st.tuples(st.floats(0.0, 60.0), st.booleans()), min_size=1, max_size=300),
    per_minute=st.floats(0.001, 0.3),
)
def test_in_no_row_of_dispatches_does_it_get_more_than_its_share_and_one(
    steps: list[tuple[float, bool]], per_minute: float
) -> None:
    rollout = begun(per_minute=per_minute)
    at, shares, went = 100.0, [], []
    began = at
    for gap, wants in steps:
        at += gap
        began = began if shares else at  # usable when first asked
        shares.append(min(1.0, per_minute * (1.0 + (at - began) / 60.0)))
        went += play(rollout, [at], [wants])
    excess = 0.0  # the largest of sum(went) - sum(shares) over all rows that end here
    for new, share in zip(went, shares, strict=True):
        excess = max(0.0, excess) + new - share
        assert excess <= 1.0 + 1e-6
