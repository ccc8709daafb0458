"""Who gives way: enough, and nobody who need not."""

from hypothesis import given
from hypothesis import strategies as st

from headway.core.clearing import surplus, victims
from headway.core.entries import Job, Tries
from headway.core.entry import Entry
from headway.core.tenant import Tier
from tests.core.house import demand, outlook, request
from tests.core.test_strain import CAPACITY, Pool

LIVES = [1.0] * 4


def head(tokens: float) -> Job:
    """Somebody who needs so many tokens, for certain."""
    asked = request("head")
    return Job(asked, demand(asked), demand(asked), {}, outlook(*LIVES).share(tokens - 100.0), 1, 0.0, Tries())


def pool(*sizes: int) -> Pool:
    return Pool(*[(size, LIVES) for size in sizes])


def names(entries: list[Entry] | None) -> list[str]:
    return [entry.attempt_id for entry in entries or ()]


class TestVictims:
    def test_as_many_as_are_needed(self) -> None:
        full = pool(3000, 3000, 3000)
        for tokens, count in ((500, 0), (2000, 1), (5000, 2), (9000, 3)):
            found = victims(full.fleet, full.replica, head(tokens), full.entries, 0.0)
            assert found is not None
            assert len(found) == count

    def test_none_is_enough_if_all_are_not(self) -> None:
        full = pool(3000, 6000)
        assert victims(full.fleet, full.replica, head(5000), full.entries[:1], 0.0) is None
        assert names(victims(full.fleet, full.replica, head(5000), full.entries, 0.0)) == ["r1-0"]

    def test_the_lowest_tier_first(self) -> None:
        full = pool(2000, 3000, 4000)
        for entry in full.entries[:2]:
            entry.request = request("low", tier=Tier.LOW)
        assert names(victims(full.fleet, full.replica, head(3500), full.entries, 0.0)) == ["r1-0"]
        assert names(victims(full.fleet, full.replica, head(5000), full.entries, 0.0)) == ["r1-0", "r0-0"]

    def test_who_is_not_needed_in_the_end_stays(self) -> None:
        """A low one was taken first, but the standard one that was needed besides is large enough alone."""
        full = pool(500, 8000)
        full.entries[0].request = request("low", tier=Tier.LOW)
        assert names(victims(full.fleet, full.replica, head(7000), full.entries, 0.0)) == ["r1-0"]

    @given(st.lists(st.integers(100, 2000), min_size=1, max_size=8), st.integers(200, CAPACITY))
    def test_whoever_is_taken_is_needed(self, sizes: list[int], wanted: int) -> None:
        full = pool(*sizes)
        found = victims(full.fleet, full.replica, head(wanted), full.entries, 0.0)
        assert found is not None or wanted > 0.9 * CAPACITY
        for kept in found or ():
            others = [entry for entry in found or () if entry is not kept]
            assert victims(full.fleet, full.replica, head(wanted), others, 0.0) is None


class TestSurplus:
    def test_the_latest_until_the_others_fit(self) -> None:
        full = pool(4000, 4000, 1500, 1500)
        for number, entry in enumerate(full.entries):
            entry.dispatched_at = float(number)
        strain, waiting = full.strain(), full.entries[2:]
        assert names(surplus(strain, waiting, 0.2)) == ["r3-0"]
        assert names(surplus(strain, waiting, 1.0)) == []

    def test_all_of_them_if_even_that_is_not_enough(self) -> None:
        full = pool(6000, 6000, 1500)
        assert names(surplus(full.strain(), full.entries[2:], 0.2)) == ["r2-0"]

    def test_those_who_leave_already_count_no_more(self) -> None:
        full = pool(4000, 4000, 1500, 1500)
        full.entries[3].aborting = True
        assert names(surplus(full.strain(), full.entries[2:3], 0.2)) == []
