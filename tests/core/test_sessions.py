"""The memory of sessions: bounded in age, number and per tenant; nobody pushes out a tenant that has less."""

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from headway.core.constants import SessionsConfig
from headway.core.sessions import Sessions

SMALL = SessionsConfig(ttl_s=100.0, max_entries=32, tenant_share=0.5)


def flooded(sessions: Sessions, tenant: str, count: int, at: float = 0.0) -> None:
    for number in range(count):
        sessions.seen(tenant, f"made up {number}", at)


def test_a_session_is_known_for_a_while_after_it_was_seen() -> None:
    sessions = Sessions()
    assert not sessions.known("a", "s1", 0.0)
    sessions.seen("a", "s1", 10.0)
    assert sessions.known("a", "s1", 10.0 + 1800.0)
    assert not sessions.known("a", "s1", 10.1 + 1800.0)
    sessions.seen("a", "s1", 1000.0)
    assert sessions.known("a", "s1", 2800.0)
    assert len(sessions) == 1


def test_tenants_do_not_share_sessions() -> None:
    sessions = Sessions()
    sessions.seen("a", "s1", 0.0)
    sessions.seen("c", "s2", 0.0)
    assert not sessions.known("b", "s1", 0.0)
    assert not sessions.known("c", "s1", 0.0)


def test_asking_changes_nothing() -> None:
    sessions = Sessions()
    for number in range(100):
        assert not sessions.known("a", str(number), 0.0)
    assert len(sessions) == 0


def test_one_tenant_has_its_share_at_most_and_loses_its_oldest() -> None:
    sessions = Sessions(SMALL)
    sessions.seen("quiet", "s1", 0.0)
    flooded(sessions, "loud", 1000)
    assert len(sessions) == 17
    assert sessions.known("quiet", "s1", 0.0)
    assert sessions.known("loud", "made up 999", 0.0)
    assert sessions.known("loud", "made up 984", 0.0)
    assert not sessions.known("loud", "made up 983", 0.0)


def test_seen_again_counts_as_new() -> None:
    sessions = Sessions(SMALL)
    flooded(sessions, "a", 16)
    sessions.seen("a", "made up 0", 1.0)
    sessions.seen("a", "another", 2.0)
    assert sessions.known("a", "made up 0", 2.0)
    assert not sessions.known("a", "made up 1", 2.0)


def test_when_all_places_are_taken_the_largest_tenant_gives_up_some() -> None:
    sessions = Sessions(SMALL)
    for number in range(4):
        sessions.seen("quiet", f"s{number}", 0.0)
    flooded(sessions, "loud", 16)
    flooded(sessions, "louder", 16)
    assert len(sessions) <= 32
    for number in range(100):
        sessions.seen(f"another {number % 5}", f"s{number}", 0.0)
    assert len(sessions) <= 32
    assert all(sessions.known("quiet", f"s{number}", 0.0) for number in range(4)), "a fair share"


def test_what_is_too_old_makes_room_first() -> None:
    sessions = Sessions(SMALL)
    flooded(sessions, "gone", 16, at=0.0)
    flooded(sessions, "here", 16, at=90.0)
    sessions.seen("new", "s1", 101.0)
    assert len(sessions) == 17
    assert all(sessions.known("here", f"made up {number}", 101.0) for number in range(16))


def test_new_ones_clear_away_old_ones_of_their_tenant() -> None:
    sessions = Sessions(SMALL)
    flooded(sessions, "a", 10, at=0.0)
    for number in range(5):
        sessions.seen("a", f"s{number}", 200.0)
    assert len(sessions) == 5


def test_no_share_is_too_small_for_one() -> None:
    sessions = Sessions(SessionsConfig(max_entries=1, tenant_share=0.01))
    sessions.seen("a", "s1", 0.0)
    sessions.seen("b", "s1", 0.0)
    assert len(sessions) == 1


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("wxyz"), st.floats(0, 60)), max_size=40))
@settings(deadline=None)
def test_with_room_for_all_it_is_a_plain_memory(visits: list[tuple[str, str, float]]) -> None:
    sessions, last, at = Sessions(SMALL), dict[tuple[str, str], float](), 0.0
    for tenant, session, pause in visits:
        at += pause
        known = at - last.get((tenant, session), -1e9) <= 100.0
        assert sessions.known(tenant, session, at) == known
        sessions.seen(tenant, session, at)
        last[tenant, session] = at


class Flood(RuleBasedStateMachine):
    """Some tenants come by now and then, one makes up sessions as fast as it can."""

    @initialize()
    def begin(self) -> None:
        self.sessions = Sessions(SMALL)
        self.at = 0.0
        self.made_up = 0
        self.last: dict[tuple[str, str], float] = {}

    @rule(tenant=st.sampled_from("abc"), session=st.sampled_from("vwxyz"))
    def visit(self, tenant: str, session: str) -> None:
        self.sessions.seen(tenant, session, self.at)
        self.last[tenant, session] = self.at

    @rule(count=st.integers(1, 40))
    def flood(self, count: int) -> None:
        for _ in range(count):
            self.made_up += 1
            self.sessions.seen("loud", str(self.made_up), self.at)

    @rule(seconds=st.sampled_from((1.0, 60.0, 101.0)))
    def wait(self, seconds: float) -> None:
        self.at += seconds

    @invariant()
    def bounded_and_fair(self) -> None:
        """Five sessions each of three tenants are less than a quarter of the places: they are never pushed out."""
        assert 0 <= len(self.sessions) <= 32
        for (tenant, session), seen_at in self.last.items():
            assert self.sessions.known(tenant, session, self.at) == (self.at - seen_at <= 100.0)


TestFlood = Flood.TestCase
TestFlood.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)
